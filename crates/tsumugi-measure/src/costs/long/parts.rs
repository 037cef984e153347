//! The parts of a longer message's time, and what they come to together.

use serde::{Deserialize, Serialize};

use super::super::parts::{Figure, TOLERANCE};
use super::talk::Sample;
use crate::costs::timing::median_ns;
use crate::row::rounded;

/// A part of a message's time from one application to another, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LongPart {
    /// In the call that sends, outside the calls of the rail: the copy that is kept, the cutting, the CRCs, the headers.
    LibrarySend,
    /// In the calls that send: the copy into one buffer, the socket layer, segmentation, the driver; on a veth pair the receiver's softirq, too.
    KernelSend,
    /// From there to where the receiver's look begins that finds the first of it. Nothing, where that looks while the sender is still in its call.
    Unseen,
    /// In calls that find some of it, without what the library does with it.
    KernelReceive,
    /// From the first of these calls to the application's bytes, outside the calls: the CRCs, the bookkeeping, the copy to its place.
    LibraryReceive,
    /// In calls that find nothing, until more of it comes.
    Waiting,
}

impl LongPart {
    pub(crate) const ALL: [LongPart; 6] = [
        LongPart::LibrarySend,
        LongPart::KernelSend,
        LongPart::Unseen,
        LongPart::KernelReceive,
        LongPart::LibraryReceive,
        LongPart::Waiting,
    ];

    /// As it stands in a table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            LongPart::LibrarySend => "library, sending",
            LongPart::KernelSend => "kernel, sending",
            LongPart::Unseen => "until it is seen",
            LongPart::KernelReceive => "kernel, receiving",
            LongPart::LibraryReceive => "library, receiving",
            LongPart::Waiting => "waiting for the rest",
        }
    }
}

/// What one round measured, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Round {
    /// In the order of [`LongPart::ALL`].
    pub(super) parts: [f64; LongPart::ALL.len()],
    /// See [`LongCosts::ahead`].
    pub(super) ahead: f64,
    /// See [`LongCosts::copy`].
    pub(super) copy: f64,
    /// See [`LongCosts::crc`].
    pub(super) crc: f64,
    pub(super) round_trip: f64,
    /// Round trips of the others.
    pub(super) udp: f64,
    pub(super) tcp: f64,
}

impl Round {
    /// The parts, of what both sides noted.
    pub(super) fn of(here: &[Sample], there: &[Sample]) -> Round {
        // A question has been sent here and is taken there; its answer is the other way round.
        let questions = here.iter().zip(there);
        let answers = there.iter().zip(here);
        let ways: Vec<[u64; LongPart::ALL.len() + 1]> =
            questions.chain(answers).map(|(sender, receiver)| way(sender, receiver)).collect();
        let median = |at: usize| median_ns(&mut ways.iter().map(|way| way[at]).collect::<Vec<_>>());
        Round { parts: std::array::from_fn(median), ahead: median(LongPart::ALL.len()), ..Round::default() }
    }
}

/// The parts of one message's way, and what the two sides did at once, ns.
fn way(sender: &Sample, receiver: &Sample) -> [u64; LongPart::ALL.len() + 1] {
    let call = sender.returned - sender.posted;
    let arrival = receiver.taken.saturating_duration_since(receiver.seen);
    [
        call.saturating_sub(sender.sending),
        sender.sending,
        receiver.seen.saturating_duration_since(sender.returned),
        receiver.receiving,
        arrival.saturating_sub(receiver.receiving + receiver.waiting),
        receiver.waiting,
        sender.returned.saturating_duration_since(receiver.seen),
    ]
    .map(|time| time.as_nanos() as u64)
}

/// A part's cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LongPartCost {
    pub(crate) part: LongPart,
    #[serde(flatten)]
    pub(crate) figure: Figure,
}

/// Where the time of a message of one size goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LongCosts {
    /// Bytes of the message.
    pub(crate) size_bytes: u64,
    /// How many rounds the medians are over.
    pub(crate) rounds: u32,
    /// All of them, one way.
    pub(crate) parts: Vec<LongPartCost>,
    /// How long the sender is still in its call when the receiver has begun. It is in the parts, and not in the message's one-way time.
    pub(crate) ahead: Figure,
    /// Copying so many bytes once, by itself. The library does so when it is given the message, when it gives packets to the kernel, and when
    /// it puts them to their place.
    pub(crate) copy: Figure,
    /// CRC32C of so many bytes, by itself. Both sides compute it.
    pub(crate) crc: Figure,
    /// What the message and its answer took together, without anything else being measured.
    pub(crate) round_trip: Figure,
    /// The parts, less `ahead`.
    pub(crate) sum_ns: f64,
    /// Half of the round trip.
    pub(crate) one_way_ns: f64,
    /// (sum − one way) / one way.
    pub(crate) difference: f64,
    /// Whether that is within a tenth.
    pub(crate) adds_up: bool,
    /// Round trip of as many bytes through a bare UDP socket that the kernel segments and coalesces for.
    pub(crate) udp: Figure,
    /// The same through a TCP socket.
    pub(crate) tcp: Figure,
}

impl LongCosts {
    pub(super) fn of(size_bytes: u64, rounds: &[Round]) -> LongCosts {
        let figure = |of: &dyn Fn(&Round) -> f64| Figure::of(rounds.iter().map(of));
        let parts = LongPart::ALL.into_iter().enumerate();
        let parts: Vec<LongPartCost> =
            parts.map(|(at, part)| LongPartCost { part, figure: figure(&|round| round.parts[at]) }).collect();
        let (ahead, round_trip) = (figure(&|round| round.ahead), figure(&|round| round.round_trip));
        // Of the medians, so that whoever adds up the column finds it.
        let sum_ns = rounded(parts.iter().map(|cost| cost.figure.ns).sum::<f64>() - ahead.ns);
        let one_way_ns = rounded(round_trip.ns / 2.0);
        let difference = if one_way_ns > 0.0 { rounded((sum_ns - one_way_ns) / one_way_ns) } else { 1.0 };
        LongCosts {
            size_bytes,
            rounds: rounds.len() as u32,
            parts,
            ahead,
            copy: figure(&|round| round.copy),
            crc: figure(&|round| round.crc),
            round_trip,
            sum_ns,
            one_way_ns,
            difference,
            adds_up: difference.abs() <= TOLERANCE,
            udp: figure(&|round| round.udp),
            tcp: figure(&|round| round.tcp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_way_is_taken_apart_and_comes_to_its_whole() {
        let start = Instant::now();
        let at = |ns| start + Duration::from_nanos(ns);
        let ns = Duration::from_nanos;
        // Sent from 0 to 1000, of which 700 in the kernel; the receiver looks at 900, takes 300 to receive, waits 50, has it at 1600.
        let here = Sample {
            posted: at(0),
            returned: at(1000),
            sending: ns(700),
            seen: at(3000),
            taken: at(3600),
            receiving: ns(250),
            waiting: ns(0),
        };
        // The answer is sent from 1700 to 2500, of which 600 in the kernel, and seen only at 3000.
        let there = Sample {
            posted: at(1700),
            returned: at(2500),
            sending: ns(600),
            seen: at(900),
            taken: at(1600),
            receiving: ns(300),
            waiting: ns(50),
        };
        let question = way(&here, &there);
        assert_eq!(question, [300, 700, 0, 300, 350, 50, 100]);
        assert_eq!(question[..6].iter().sum::<u64>() - question[6], 1600, "from the call to the bytes");
        assert_eq!(way(&there, &here), [200, 600, 500, 250, 350, 0, 0]);
        let round = Round::of(&[here], &[there]);
        assert_eq!(round.parts.len(), LongPart::ALL.len());
    }

    #[test]
    fn the_sum_is_that_of_the_medians_less_what_is_ahead() {
        let round = Round { parts: [100.0; 6], ahead: 50.0, round_trip: 1100.0, ..Round::default() };
        let costs = LongCosts::of(4096, &[round; 3]);
        assert_eq!((costs.sum_ns, costs.one_way_ns, costs.adds_up), (550.0, 550.0, true));
        assert!(!LongCosts::of(4096, &[Round { round_trip: 800.0, ..round }]).adds_up);
        let text = serde_json::to_string(&costs).expect("JSON");
        assert!(text.contains(r#"{"part":"kernel_send","ns":100.0,"spread":0.0}"#), "{text}");
        assert_eq!(serde_json::from_str::<LongCosts>(&text).expect("the same"), costs);
    }
}
