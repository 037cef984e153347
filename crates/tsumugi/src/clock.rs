//! The endpoint's clock.
//!
//! A message costs a few looks at the clock, and each look through the kernel's vDSO 22 ns. Where the kernel
//! itself keeps time by the CPU's time-stamp counter we read that counter, for 8 ns, once its rate is known.
//!
//! The counter is believed for a millisecond at a time; then the system's clock is asked what time it is. So it may
//! jump or change its rate, as it does when a machine sleeps or a virtual one moves to another host: the clock is off by a
//! millisecond at most, and never goes back. Should it stand still, the system's clock is asked after some looks.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant as Origin;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// How long the counter is compared with the system's clock, ns. Reading both takes some 50 ns, so that the rate
/// is known to one part in 10⁵: far better than any timer here needs.
const COMPARE_NS: u64 = 5 * MILLISECOND_NS;
/// How long the counter is believed before the system's clock is asked again, ns.
const BELIEVE_NS: u64 = MILLISECOND_NS;
/// Looks after which it is asked again, too: a counter that stands still says that no time has passed.
const BELIEVE_LOOKS: u32 = 10_000;
/// A counter that was off by more than this has changed, ns.
const OFF_NS_MAX: u64 = MILLISECOND_NS / 20;
/// Two readings of the counter that lie further apart than this tell little of what lies between them, ticks.
const APART_TICKS_MAX: u64 = 5_000;
/// Attempts to read the counter and the system's clock with nothing in between.
const READINGS_MAX: u32 = 20;
/// Binary places of [`Rate::ns_per_tick`].
const RATE_BITS: u32 = 32;

/// Counts nanoseconds since it was made.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Origin,
    counter: Cell<Counter>,
    /// Looks at the counter since the system's clock was asked.
    looks: Cell<u32>,
    /// What it showed last.
    last: Cell<Instant>,
    /// A simulation says what time it is, ns.
    told: Option<Rc<Cell<u64>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// Not to be used on this machine.
    Absent,
    /// It showed this then.
    Comparing(Reading),
    Known(Reading, Rate),
}

/// What the counter showed, and the time then, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    ticks: u64,
    ns: u64,
}

impl Reading {
    /// The time was `ns` at some moment between two looks at the counter; `None`: they are too far apart.
    fn between(before: u64, ns: u64, after: u64) -> Option<Reading> {
        let apart = after.wrapping_sub(before);
        (apart <= APART_TICKS_MAX).then(|| Reading { ticks: before.wrapping_add(apart / 2), ns })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// Fixed point with [`RATE_BITS`] binary places.
    ns_per_tick: u64,
    /// [`BELIEVE_NS`] in ticks.
    believe_ticks: u64,
}

impl Rate {
    fn between(first: Reading, second: Reading) -> Option<Rate> {
        let ticks = second.ticks.checked_sub(first.ticks).filter(|ticks| *ticks > 0)?;
        let ns_per_tick = (u128::from(second.ns - first.ns) << RATE_BITS) / u128::from(ticks);
        let ns_per_tick = u64::try_from(ns_per_tick).ok().filter(|rate| *rate > 0)?;
        let believe_ticks = (u128::from(BELIEVE_NS) << RATE_BITS) / u128::from(ns_per_tick);
        Some(Rate { ns_per_tick, believe_ticks: u64::try_from(believe_ticks).ok()? })
    }

    fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick)) >> RATE_BITS) as u64
    }
}

impl Counter {
    /// The time when the counter shows `ticks`, ns; `None` when the system's clock is to be asked.
    #[inline]
    fn at(self, ticks: u64) -> Option<u64> {
        let Counter::Known(since, rate) = self else { return None };
        // One that has gone back shows a great number here.
        let passed = ticks.wrapping_sub(since.ticks);
        (passed < rate.believe_ticks).then(|| since.ns + rate.ns(passed))
    }

    /// The system's clock said `ns` after the counter had shown the one number and before it showed the other.
    fn learn(self, ns: u64, before: u64, after: u64) -> Counter {
        // If something came between, another look will do.
        let Some(now) = Reading::between(before, ns, after) else { return self };
        match self {
            Counter::Absent => Counter::Absent,
            Counter::Comparing(first) if ns < first.ns + COMPARE_NS => self,
            Counter::Comparing(first) => {
                Rate::between(first, now).map_or(Counter::Comparing(now), |rate| Counter::Known(now, rate))
            }
            Counter::Known(since, rate) => match now.ticks.checked_sub(since.ticks) {
                // What it is off by grows with the time that it was believed for.
                Some(ticks)
                    if rate.ns(ticks).abs_diff(ns - since.ns) <= OFF_NS_MAX + (ns - since.ns) / 1000 =>
                {
                    Counter::Known(now, rate)
                }
                _ => Counter::Comparing(now),
            },
        }
    }
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let mut clock = Clock::with(Counter::Absent, None);
        if counter::is_steady() {
            // The rate will be only as good as this reading. If none is good the counter is not used.
            let begin = || {
                let before = counter::read();
                let origin = Origin::now();
                Reading::between(before, 0, counter::read()).map(|first| (origin, first))
            };
            if let Some((origin, first)) = (0..READINGS_MAX).find_map(|_| begin()) {
                (clock.origin, clock.counter) = (origin, Cell::new(Counter::Comparing(first)));
            }
        }
        clock
    }

    /// A clock that shows what somebody else writes there, ns.
    pub(crate) fn told(ns: Rc<Cell<u64>>) -> Clock {
        Clock::with(Counter::Absent, Some(ns))
    }

    fn with(counter: Counter, told: Option<Rc<Cell<u64>>>) -> Clock {
        Clock {
            origin: Origin::now(),
            counter: Cell::new(counter),
            looks: Cell::new(0),
            last: Cell::new(Instant(0)),
            told,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let looks = self.looks.get();
        if let Some(ns) = self.counter.get().at(counter::read())
            && looks < BELIEVE_LOOKS
        {
            self.looks.set(looks + 1);
            return self.show(ns);
        }
        self.ask()
    }

    #[cold]
    fn ask(&self) -> Instant {
        if let Some(told) = &self.told {
            return Instant(told.get());
        }
        let before = counter::read();
        let ns = self.origin.elapsed().as_nanos() as u64;
        self.counter.set(self.counter.get().learn(ns, before, counter::read()));
        self.looks.set(0);
        self.show(ns)
    }

    #[inline]
    fn show(&self, ns: u64) -> Instant {
        let shown = self.last.get().max(Instant(ns));
        self.last.set(shown);
        shown
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
            known |= matches!(clock.counter.get(), Counter::Known(..));
        }
        assert_eq!(known, counter::is_steady());
    }

    /// A counter of two ticks a nanosecond that is known since `ns`.
    fn known(ticks: u64, ns: u64) -> Counter {
        let first = Reading { ticks: ticks - 2 * COMPARE_NS, ns: ns - COMPARE_NS };
        let counter = Counter::Comparing(first).learn(ns, ticks - 25, ticks + 25);
        assert!(matches!(counter, Counter::Known(..)));
        counter
    }

    const TICKS: u64 = 1 << 40;
    const NS: u64 = 1_000_000_000;

    #[test]
    fn a_counter_is_believed_for_a_while_and_then_again() {
        let counter = known(TICKS, NS);
        assert_eq!(counter.at(TICKS + 2000), Some(NS + 1000));
        assert_eq!(counter.at(TICKS + 3 * BELIEVE_NS), None);
        let (ticks, ns) = (TICKS + 4_000_000_000, NS + 2_000_000_100); // off by a little
        let counter = counter.learn(ns, ticks - 25, ticks + 25);
        assert_eq!(counter.at(ticks + 2000), Some(ns + 1000));
    }

    #[test]
    fn one_that_begins_anew_stops_jumps_or_changes_its_rate_is_compared_anew() {
        let counter = known(TICKS, NS);
        assert_eq!(counter.at(1000), None, "a machine that slept counts from 0");
        for (ticks, what) in [
            (1000, "begins anew"),
            (TICKS, "stands still"),
            (TICKS << 1, "jumps"),
            (TICKS + 3 * MILLISECOND_NS, "is slower"),
        ] {
            let ns = NS + 3 * MILLISECOND_NS;
            let anew = counter.learn(ns, ticks - 25, ticks + 25);
            assert_eq!(anew, Counter::Comparing(Reading { ticks, ns }), "{what}");
            let (later, then) = (ticks + 4 * COMPARE_NS, ns + COMPARE_NS);
            let anew = anew.learn(then, later - 25, later + 25);
            assert_eq!(anew.at(later + 4000), Some(then + 1000), "{what}");
        }
    }

    #[test]
    fn what_was_read_while_something_else_ran_says_nothing() {
        let counter = known(TICKS, NS);
        let late = TICKS + 2 * BELIEVE_NS;
        assert_eq!(counter.learn(NS + BELIEVE_NS, late, late + 50 * APART_TICKS_MAX), counter);
    }

    #[test]
    fn one_that_stands_still_is_found_out_after_some_looks() {
        let clock = Clock::start();
        let still = Rate { ns_per_tick: 1, believe_ticks: u64::MAX };
        clock.counter.set(Counter::Known(Reading { ticks: 0, ns: 0 }, still));
        std::thread::sleep(std::time::Duration::from_millis(2));
        for _ in 0..=BELIEVE_LOOKS {
            clock.now();
        }
        assert!(clock.now() >= Instant(2 * MILLISECOND_NS));
    }
}
