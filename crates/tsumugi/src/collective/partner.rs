//! Another participant: what is known of it, and how far we may run ahead of it.
//!
//! # Memory
//!
//! What arrives for an operation that was started has its place in the operation's buffer. What arrives for one that was not is
//! kept, and that is bounded: a participant may have sent another at most [`AHEAD_BYTES`] for operations that the other has not
//! started, as far as it knows. Beyond that it waits until the other says that it has started the operation.
//!
//! So whatever arrives is taken in at once, and the channel never has to hold anything back. Nobody waits for ever: an operation
//! that all have started needs no leave to send; who is to start one needs only that the operations before it end; and those end
//! because all have started them.

use crate::PeerId;
use crate::error::Failure;
use std::collections::BTreeMap;

/// Most bytes that a participant may have sent another for operations that the other has not started, headers included.
pub(super) const AHEAD_BYTES: usize = 256 << 10;
/// What every message counts beside its data.
const OVERHEAD_BYTES: usize = 128;

/// What data count as that were sent ahead.
pub(super) fn cost(data_bytes: usize) -> usize {
    data_bytes + OVERHEAD_BYTES
}

#[derive(Debug)]
pub(super) struct Partner {
    pub(super) peer: PeerId,
    /// How many operations it has started, as far as it has said.
    started: u64,
    /// What was sent to it for operations that it has not started, by operation.
    ahead: BTreeMap<u64, usize>,
    ahead_bytes: usize,
    /// The last operation that it was asked about, to go on sending.
    asked: Option<u64>,
    /// The last operation that it was told we wait for.
    inquired: Option<u64>,
    /// What it has sent that is kept.
    pub(super) kept_bytes: usize,
    /// Longest data of a message to it, bytes.
    pub(super) piece_bytes: usize,
    /// It was told that operations from this one on are not done.
    pub(super) told: Option<u64>,
    /// Something has come from it.
    pub(super) is_heard: bool,
    /// It is gone.
    pub(super) gone: Option<Box<Failure>>,
}

/// Whether data may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// They may.
    Granted,
    /// They may, and the next may not, so that it should be asked.
    GrantedButAsk,
    /// Not before it has said that it has started the operation.
    Refused,
}

impl Partner {
    pub(super) fn new(peer: PeerId, piece_bytes: usize) -> Partner {
        Partner {
            peer,
            started: 0,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            asked: None,
            inquired: None,
            kept_bytes: 0,
            piece_bytes,
            told: None,
            is_heard: false,
            gone: None,
        }
    }

    /// It has started so many operations.
    pub(super) fn learn(&mut self, started: u64) {
        self.started = self.started.max(started);
        while let Some(first) = self.ahead.first_entry()
            && *first.key() < self.started
        {
            self.ahead_bytes -= first.remove();
        }
    }

    /// Whether data for an operation may be sent.
    pub(super) fn may_send(&self, sequence: u64, data_bytes: usize) -> Leave {
        let would_be = self.ahead_bytes + cost(data_bytes);
        if sequence < self.started || would_be <= AHEAD_BYTES / 2 {
            Leave::Granted
        } else if would_be <= AHEAD_BYTES {
            Leave::GrantedButAsk
        } else {
            Leave::Refused
        }
    }

    /// Data for an operation were sent.
    pub(super) fn on_sent(&mut self, sequence: u64, data_bytes: usize) {
        if sequence >= self.started {
            *self.ahead.entry(sequence).or_default() += cost(data_bytes);
            self.ahead_bytes += cost(data_bytes);
        }
    }

    /// Whether it is to be asked now to say when it has started an operation: not while it has not answered.
    pub(super) fn ask(&mut self, sequence: u64) -> bool {
        let is_free = self.asked.is_none_or(|asked| asked < self.started);
        if is_free {
            self.asked = Some(sequence);
        }
        is_free
    }

    /// Whether it is to be told now what operation we wait for: once for each.
    pub(super) fn inquire(&mut self, sequence: u64) -> bool {
        let is_news = self.inquired.is_none_or(|inquired| inquired < sequence);
        if is_news {
            self.inquired = Some(sequence);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_more_than_the_limit_ahead() {
        let mut partner = Partner::new(PeerId(1), 1000);
        let mut sent = 0;
        let mut hints = 0;
        loop {
            match partner.may_send(5 + sent % 3, 1000) {
                Leave::Granted => {}
                Leave::GrantedButAsk => hints += 1,
                Leave::Refused => break,
            }
            partner.on_sent(5 + sent % 3, 1000);
            sent += 1;
        }
        let most = AHEAD_BYTES / cost(1000);
        assert_eq!((sent as usize, hints > most / 3), (most, true));
        // What it has started needs no leave, and gives room for the rest.
        partner.learn(6);
        assert_eq!(partner.may_send(5, AHEAD_BYTES), Leave::Granted);
        assert_ne!(partner.may_send(6, 1000), Leave::Refused);
        partner.learn(3);
        partner.learn(8);
        assert_eq!((partner.ahead_bytes, partner.ahead.len()), (0, 0));
        assert!(partner.ask(9) && !partner.ask(10));
        partner.learn(10);
        assert!(partner.ask(10) && !partner.ask(11));
        assert!(partner.inquire(9) && !partner.inquire(9) && !partner.inquire(8) && partner.inquire(10));
    }
}
