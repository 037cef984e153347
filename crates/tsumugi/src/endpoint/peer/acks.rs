//! What is to be acknowledged to a peer, and when.

use std::net::SocketAddr;
use tsumugi_wire::time::MICROSECOND_NS;
use tsumugi_wire::{Instant, Kind, Psn};

/// How long an ACK may wait for a packet to ride on, ns.
const ACK_DELAY_NS: u64 = 100 * MICROSECOND_NS;
/// Packets of one flow after which an ACK is due though nobody asked.
const UNANSWERED_MAX: u32 = 64;

/// When a packet is to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckDue {
    Now,
    /// By then at the latest.
    At(Instant),
    /// With others, as was said before.
    Known,
}

/// What is to be acknowledged, and when.
#[derive(Debug)]
pub(crate) struct Acks {
    /// Where its last DATA came from, as far as is known, and the answer goes.
    to: SocketAddr,
    /// Highest PSN deposited, plus one.
    highest: Psn,
    deposited_at: Instant,
    /// Packets deposited since the last answer.
    unanswered: u32,
    /// When an ACK is due though nobody asked for one.
    due: Instant,
    /// An answer that must go out now, and the PSN that it is about.
    answer: Option<(Kind, Psn)>,
    /// Credit was withheld for want of memory.
    credit_withheld: bool,
    /// What the XDP program noted last of its acknowledgements: PSN and limit.
    noted: (u64, u64),
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

    /// Its last DATA came from there.
    #[inline]
    pub(crate) fn answer_to(&mut self, address: SocketAddr) {
        self.to = address;
    }

    /// Where answers go.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.to
    }

    /// Highest PSN deposited, plus one.
    #[inline]
    pub(crate) const fn highest(&self) -> Psn {
        self.highest
    }

    /// As before it was suspended.
    pub(crate) fn restore_highest(&mut self, highest: Psn) {
        self.highest = highest;
    }

    pub(crate) const fn deposited_at(&self) -> Instant {
        self.deposited_at
    }

    /// When an ACK is due though nobody asked for one.
    #[inline]
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether an answer must go out now.
    #[inline]
    pub(crate) const fn is_demanded(&self) -> bool {
        self.answer.is_some()
    }

    /// Takes the answer that must go out now, and the PSN that it is about.
    pub(crate) fn take_answer(&mut self) -> Option<(Kind, Psn)> {
        self.answer.take()
    }

    /// It could not be sent.
    pub(crate) fn put_back(&mut self, answer: (Kind, Psn)) {
        self.answer = Some(answer);
    }

    /// What the XDP program has noted of its acknowledgements, PSN and limit. Returns whether that is news.
    pub(crate) fn note(&mut self, ack: u64, limit: u64) -> bool {
        std::mem::replace(&mut self.noted, (ack, limit)) != (ack, limit)
    }

    /// Credit is withheld from it for want of memory, or is not any more.
    #[inline]
    pub(crate) fn withhold_credit(&mut self, is_withheld: bool) {
        self.credit_withheld = is_withheld;
    }

    pub(crate) const fn is_credit_withheld(&self) -> bool {
        self.credit_withheld
    }

    /// So many packets were deposited, up to this one.
    pub(crate) fn on_deposited(
        &mut self,
        now: Instant,
        psn: Psn,
        packets: u32,
        is_waited_for: bool,
    ) -> AckDue {
        self.highest = self.highest.max(psn.next());
        self.deposited_at = now;
        self.unanswered += packets;
        if is_waited_for || self.unanswered >= UNANSWERED_MAX {
            self.demand(Kind::Ack, Psn(0));
            return AckDue::Now;
        }
        if self.due != Instant::NEVER {
            return AckDue::Known;
        }
        self.due = now.plus(ACK_DELAY_NS);
        AckDue::At(self.due)
    }

    /// An acknowledgement of everything before `ack` went out with something else: only a gap needs an answer of its own.
    pub(crate) fn on_ridden_along(&mut self, ack: Psn) {
        self.on_answered();
        if matches!(self.answer, Some((Kind::Ack, _))) && ack >= self.highest {
            self.answer = None;
        }
    }

    /// An acknowledgement is on its way.
    pub(crate) fn on_answered(&mut self) {
        self.unanswered = 0;
        self.due = Instant::NEVER;
    }

    /// An acknowledgement that would be due later, or is due by now, is demanded now. `false` if there is none.
    pub(crate) fn hurry(&mut self, now: Instant) -> bool {
        let is_due = self.due != Instant::NEVER && now >= self.due;
        if is_due {
            self.demand(Kind::Ack, Psn(0));
            self.due = Instant::NEVER;
        }
        is_due
    }
}
