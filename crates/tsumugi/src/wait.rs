//! How a blocking call waits.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::fd::BorrowedFd;
use strum::VariantNames as _;
use tsumugi_wire::time::{Instant, MICROSECOND_NS, SECOND_NS};

/// How a blocking call waits.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = ParseWaitError, parse_err_fn = ParseWaitError::of)]
pub enum Wait {
    /// Look again at once, always. Takes a whole core and answers fastest.
    Spin,
    /// Look for about as long as a wake-up would cost, giving way to others meanwhile; then sleep.
    #[default]
    Adaptive,
    /// Sleep at once.
    Block,
    /// Look again at once, always, and have each look run the NIC's poll instead of waiting for its interrupt.
    ///
    /// Preferred busy polling; the interrupt reaping of P1 (Sumimoto et al., 2000). For NICs that were set for it by `tsumugi up --busy-poll`; on others,
    /// and on virtual ones, it is a slower way to spin.
    BusyPoll,
}

/// A word that names no wait policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no way of waiting; choose from {all}", all = Wait::VARIANTS.join(", "))]
pub struct ParseWaitError(String);

impl ParseWaitError {
    fn of(word: &str) -> ParseWaitError {
        ParseWaitError(word.to_owned())
    }
}

/// Longest time that the adaptive policy spins, ns: what a wake-up costs on a virtual machine (60 to 80 µs, by round trips that block
/// beside such that spin), nearly twice. Who sleeps between the bursts of a stream makes its sender pay for waking it, too.
const SPIN_NS_MAX: u64 = 120 * MICROSECOND_NS;
/// Shortest.
const SPIN_NS_MIN: u64 = 4 * MICROSECOND_NS;
/// Empty looks between two times of giving way.
const LOOKS_PER_YIELD: u32 = 4;

/// What to do after a look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again.
    Look,
    /// Let another process run, then look again.
    Yield,
    /// Sleep until something arrives.
    Sleep,
}

/// Decides, look by look, how one endpoint waits.
///
/// The adaptive policy spins at most as long as a wake-up costs, which is never worse than twice the
/// best that knowledge of the future could do. It spins less while waits are long, and more when they are
/// short again, whether it was awake to see their end or not.
#[derive(Debug)]
pub(crate) struct Waiter {
    policy: Wait,
    spin_ns: u64,
    idle_since: Option<Instant>,
    asleep: bool,
    looks: u32,
    /// Time spent without finding anything, ns, but for the wait that goes on.
    idle_ns: u64,
}

impl Waiter {
    pub(crate) fn new(policy: Wait) -> Waiter {
        Waiter { policy, spin_ns: SPIN_NS_MAX, idle_since: None, asleep: false, looks: 0, idle_ns: 0 }
    }

    /// Waits otherwise from now on.
    pub(crate) fn set_policy(&mut self, policy: Wait) {
        *self = Waiter { idle_ns: self.idle_ns, ..Waiter::new(policy) };
    }

    /// Time spent without finding anything so far, ns.
    pub(crate) fn idle_ns(&self, now: Instant) -> u64 {
        self.idle_ns + self.idle_since.map_or(0, |since| now.since(since))
    }

    pub(crate) fn policy(&self) -> Wait {
        self.policy
    }

    /// The look found nothing.
    #[inline]
    pub(crate) fn idle(&mut self, now: Instant) -> Step {
        let since = *self.idle_since.get_or_insert(now);
        match self.policy {
            Wait::Spin | Wait::BusyPoll => return Step::Look,
            Wait::Block => return Step::Sleep,
            Wait::Adaptive => {}
        }
        self.looks += 1;
        // Woken by a timer, it sleeps on.
        if self.asleep || now.since(since) >= self.spin_ns {
            self.asleep = true;
            Step::Sleep
        } else if self.looks.is_multiple_of(LOOKS_PER_YIELD) {
            Step::Yield
        } else {
            Step::Look
        }
    }

    /// The look found what was waited for.
    #[inline]
    pub(crate) fn busy(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.idle_ns += now.since(since);
            // A wake-up takes about as long as the longest spin: a wait that ended within both was short.
            self.spin_ns = if now.since(since) <= 2 * SPIN_NS_MAX {
                (self.spin_ns * 2).min(SPIN_NS_MAX)
            } else {
                (self.spin_ns / 2).max(SPIN_NS_MIN)
            };
        }
        self.asleep = false;
        self.looks = 0;
    }
}

/// Sleeps until `descriptor` is readable, but not longer than `ns` nanoseconds.
///
/// Returns early on a signal; whoever waits looks again anyway.
pub(crate) fn sleep_on(descriptor: BorrowedFd<'_>, ns: u64) {
    let timeout = Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ };
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_spins_yields_sleeps_and_learns() {
        let mut waiter = Waiter::new(Wait::Adaptive);
        let mut now = Instant(0);
        // How long it spins before it sleeps; what it waits for comes `late_ns` after it began to wait.
        let mut wait = |late_ns: u64| {
            let start = now;
            while waiter.idle(now) != Step::Sleep {
                now = now.plus(200);
            }
            let spun_ns = now.since(start);
            now = start.plus(late_ns.max(spun_ns));
            waiter.busy(now);
            spun_ns
        };
        for _ in 0..10 {
            wait(SECOND_NS);
        }
        assert_eq!(wait(SECOND_NS), SPIN_NS_MIN, "spins least while waits are long");
        for _ in 0..10 {
            wait(SPIN_NS_MAX);
        }
        assert_eq!(wait(SPIN_NS_MAX), SPIN_NS_MAX, "spins longest when waits are short, though it slept");
    }

    #[test]
    fn words_come_back() {
        for wait in [Wait::Spin, Wait::Adaptive, Wait::Block, Wait::BusyPoll] {
            assert_eq!(wait.to_string().parse(), Ok(wait));
        }
        assert!("busy".parse::<Wait>().is_err());
    }
}
