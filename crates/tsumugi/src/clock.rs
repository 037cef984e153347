//! The endpoint's clock.
//!
//! A message costs a few looks at the clock, and each look through the kernel's vDSO 22 ns. Where the kernel
//! itself keeps time by the CPU's time-stamp counter we read that counter, for 8 ns, once its rate is known.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant as Origin;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// How long the counter is compared with the system's clock, ns. Reading both takes some 50 ns, so that the rate
/// is known to one part in 10⁵: far better than any timer here needs.
const COMPARE_NS: u64 = 5 * MILLISECOND_NS;
/// Binary places of [`Rate::ns_per_tick`].
const RATE_BITS: u32 = 32;

/// Counts nanoseconds since it was made.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Origin,
    counter: Cell<Counter>,
    /// A simulation says what time it is, ns.
    told: Option<Rc<Cell<u64>>>,
}

#[derive(Clone, Copy, Debug)]
enum Counter {
    /// Not to be used on this machine.
    Absent,
    /// It showed this when the clock was made.
    Comparing(u64),
    Known(Rate),
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// A reading of the counter, and the time then, ns.
    ticks: u64,
    ns: u64,
    /// Fixed point with [`RATE_BITS`] binary places.
    ns_per_tick: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let counter =
            if counter::is_steady() { Counter::Comparing(counter::read()) } else { Counter::Absent };
        Clock { origin: Origin::now(), counter: Cell::new(counter), told: None }
    }

    /// A clock that shows what somebody else writes there, ns.
    pub(crate) fn told(ns: Rc<Cell<u64>>) -> Clock {
        Clock { origin: Origin::now(), counter: Cell::new(Counter::Absent), told: Some(ns) }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        if let Counter::Known(Rate { ticks, ns, ns_per_tick }) = self.counter.get() {
            let passed = u128::from(counter::read().saturating_sub(ticks)) * u128::from(ns_per_tick);
            return Instant(ns + (passed >> RATE_BITS) as u64);
        }
        self.compare()
    }

    #[cold]
    fn compare(&self) -> Instant {
        if let Some(told) = &self.told {
            return Instant(told.get());
        }
        let ns = self.origin.elapsed().as_nanos() as u64;
        if let Counter::Comparing(first) = self.counter.get()
            && ns >= COMPARE_NS
        {
            let ticks = counter::read();
            let ns_per_tick = (u128::from(ns) << RATE_BITS) / u128::from((ticks - first).max(1));
            self.counter.set(Counter::Known(Rate { ticks, ns, ns_per_tick: ns_per_tick as u64 }));
        }
        Instant(ns)
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    /// Whether the kernel trusts the counter: the same on all CPUs, never slower, never stopped.
    pub(super) fn is_steady() -> bool {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction; it touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back_and_keeps_up_with_the_system() {
        let clock = Clock::start();
        let mut last = Instant(0);
        let mut known = false;
        while clock.origin.elapsed().as_nanos() < 30_000_000 {
            let before = clock.origin.elapsed().as_nanos() as u64;
            let now = clock.now();
            let after = clock.origin.elapsed().as_nanos() as u64;
            assert!(now >= last, "{last:?} then {now:?}");
            // One part in a thousand is a hundred times what it should be off.
            assert!(now.0 + before / 1000 + 1000 >= before, "{now:?} is behind {before}");
            assert!(now.0 <= after + after / 1000 + 1000, "{now:?} is ahead of {after}");
            last = now;
            known |= matches!(clock.counter.get(), Counter::Known(_));
        }
        assert_eq!(known, counter::is_steady());
    }
}
