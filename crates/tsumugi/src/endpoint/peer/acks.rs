//! What is to be acknowledged to a peer, and when.

use std::net::SocketAddr;
use tsumugi_wire::{Instant, Kind, Psn};

/// What is to be acknowledged, and when.
#[derive(Debug)]
pub(crate) struct Acks {
    /// Where its last DATA came from, as far as is known, and the answer goes.
    pub(crate) to: SocketAddr,
    /// Highest PSN deposited, plus one.
    pub(crate) highest: Psn,
    pub(crate) deposited_at: Instant,
    /// Packets deposited since the last answer.
    pub(crate) unanswered: u32,
    /// When an ACK is due though nobody asked for one.
    pub(crate) due: Instant,
    /// An answer that must go out now, and the PSN that it is about.
    pub(crate) answer: Option<(Kind, Psn)>,
    /// Credit was withheld for want of memory.
    pub(crate) credit_withheld: bool,
    /// What the XDP program noted last of its acknowledgements: PSN and limit.
    pub(crate) noted: (u64, u64),
}

impl Acks {
    pub(crate) fn new(to: SocketAddr) -> Acks {
        Acks {
            to,
            highest: Psn(0),
            deposited_at: Instant(0),
            unanswered: 0,
            due: Instant::NEVER,
            answer: None,
            credit_withheld: false,
            noted: (0, 0),
        }
    }

    /// Demands that an answer of `kind` goes out now; the more urgent of two wins.
    pub(crate) fn demand(&mut self, kind: Kind, psn: Psn) {
        let urgency = |kind| match kind {
            Kind::Xoff => 3,
            Kind::Xon => 2,
            Kind::Nak => 1,
            _ => 0,
        };
        if self.answer.is_none_or(|(have, _)| urgency(kind) >= urgency(have)) {
            self.answer = Some((kind, psn));
        }
    }
}
