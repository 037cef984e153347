//! What the processes of an evaluation tell of their flows, and the clock that all of them read.

use serde::{Deserialize, Serialize};

use crate::conditions::Side;
use crate::row::PathRow;

/// Bytes of a message: P2's `send()` of 1 kB.
pub(crate) const MESSAGE_BYTES: usize = 1024;
/// What arrives is counted in pieces of time that are so long, ns, and begin at multiples of it.
pub(crate) const BUCKET_NS: u64 = 100_000_000;
/// The channel that is used.
pub(super) const CHANNEL: u16 = 1;
/// A message of one byte that opens every path to a receiver before anything is counted.
pub(super) const HELLO: u8 = b'h';
/// A message of one byte: the last.
pub(super) const END: u8 = b'e';

/// What the sender tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// The bucket in which the first message was sent, by the clock of the machine.
    pub(crate) begin: u64,
    /// CPU time in the last part of the run, in which every flow sends, ns.
    pub(crate) cpu_ns: u64,
    /// The send path, as the library calls it.
    pub(crate) send: String,
    /// Of each flow.
    pub(crate) flows: Vec<SentFlow>,
    /// By what.
    #[serde(default)]
    pub(crate) side: Side,
}

/// What the sender tells of a flow, of the part of the run in which every flow sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SentFlow {
    /// Messages accepted.
    pub(crate) messages: u64,
    /// What its paths have carried.
    pub(crate) paths: Vec<PathRow>,
}

/// What a receiver tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Received {
    /// The bucket in which the first message arrived, by the clock of the machine.
    pub(crate) begin: u64,
    /// Payload bytes that arrived in each bucket.
    pub(crate) bytes: Vec<u64>,
    /// CPU time of the process by the end of each bucket, ns.
    pub(crate) cpu_ns: Vec<u64>,
    /// By what.
    #[serde(default)]
    pub(crate) side: Side,
}

impl Received {
    /// Counts bytes by the time at which they arrived.
    pub(super) fn count(&mut self, bucket: u64, bytes: u64, cpu_ns: impl FnOnce() -> u64) {
        if self.bytes.is_empty() {
            self.begin = bucket;
        }
        let place = bucket.saturating_sub(self.begin) as usize;
        if place >= self.bytes.len() {
            self.bytes.resize(place + 1, 0);
            // Of buckets in which nothing arrived it is not known in which of them the time was used.
            self.cpu_ns.resize(place + 1, cpu_ns());
        }
        self.bytes[place] += bytes;
    }

    /// How many buckets so many seconds are.
    pub(super) fn buckets(seconds: f64) -> u64 {
        (seconds * 1e9 / BUCKET_NS as f64).round() as u64
    }

    /// Bytes by bucket, from another beginning.
    pub(super) fn bytes_since(&self, begin: u64) -> Vec<u64> {
        let (late, early) = (self.begin.saturating_sub(begin), begin.saturating_sub(self.begin));
        let late = std::iter::repeat_n(0, late as usize);
        late.chain(self.bytes.iter().skip(early as usize).copied()).collect()
    }

    /// CPU time from the beginning of a bucket to that of another, ns.
    pub(super) fn cpu_between(&self, from: u64, to: u64) -> u64 {
        // By the beginning of a bucket is by the end of the one before.
        let by = |bucket: u64| {
            let place = bucket.checked_sub(self.begin + 1).map(|place| place as usize);
            place.and_then(|place| self.cpu_ns.get(place).or(self.cpu_ns.last())).copied()
        };
        let first = self.cpu_ns.first().copied().unwrap_or(0);
        by(to).unwrap_or(first).saturating_sub(by(from).unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_is_seen_from_the_senders_beginning() {
        let (bytes, cpu_ns) = (vec![5, 6, 7], vec![10, 30, 60]);
        let received = Received { begin: 12, bytes, cpu_ns, side: Side::default() };
        assert_eq!(received.bytes_since(10), [0, 0, 5, 6, 7]);
        assert_eq!(received.bytes_since(13), [6, 7]);
        assert!(received.bytes_since(99).is_empty());
        assert_eq!(received.cpu_between(13, 15), 50, "by the end of bucket 14 less by that of 12");
        assert_eq!(received.cpu_between(0, 99), 50, "what it had used when the first arrived does not count");
        assert_eq!(Received::default().cpu_between(0, 9), 0);
        assert_eq!(Received::buckets(1.25), 13);
    }

    #[test]
    fn bytes_are_counted_where_they_arrived() {
        let mut received = Received::default();
        for (bucket, bytes, cpu_ns) in [(70, 10, 1), (70, 10, 2), (71, 5, 3), (74, 1, 4)] {
            received.count(bucket, bytes, || cpu_ns);
        }
        let Received { begin, bytes, cpu_ns, .. } = received;
        assert_eq!((begin, bytes, cpu_ns), (70, vec![20, 5, 0, 0, 1], vec![1, 3, 4, 4, 4]));
    }
}
