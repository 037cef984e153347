//! Packet sequence numbers.
//!
//! A PSN is 64 bits and starts at 0 with each epoch, so it never wraps (at a billion packets a
//! second, 584 years) and comparing two of them is plain comparison. Four more bytes a packet
//! buy the absence of wrap-around, in two languages.

use crate::limits::BITMAP_PACKETS;

/// Number of a packet in its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Psn(pub u64);

impl Psn {
    /// The packet after this one. Saturates, so that a hostile header cannot overflow it.
    #[must_use]
    pub const fn next(self) -> Psn {
        Psn(self.0.saturating_add(1))
    }

    /// This PSN moved on by `packets`.
    #[must_use]
    pub const fn plus(self, packets: u64) -> Psn {
        Psn(self.0.saturating_add(packets))
    }

    /// How far this PSN lies at or beyond `base`; `None` when it lies before.
    #[must_use]
    pub const fn since(self, base: Psn) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// Index into a store of one slot per PSN of the receive bitmap.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 % BITMAP_PACKETS) as usize
    }
}

impl core::fmt::Display for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}
