//! Time as an argument.
//!
//! Nothing in the protocol reads a clock; whoever calls it says what time it is. A test, a
//! simulated year and a real NIC therefore run the same code.

/// A point in time, in nanoseconds since an origin that the caller chose and keeps. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Later than anything that happens.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// This instant and `ns` nanoseconds.
    #[must_use]
    pub const fn plus(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this instant; 0 when it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Nanoseconds in a microsecond.
pub const MICROSECOND_NS: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
