//! How an endpoint makes progress: it looks for what has arrived and follows up, and waits in between.

use super::bell::Bell;
use super::core::Core;
use super::shared::{Inner, Shared};
use crate::error::SendError;
use crate::wait::Step;
use crate::{PeerId, Policy};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use tsumugi_rail::{Rail, RailError};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// Looks of one call for an event loop; what they leave is left to timers.
const LOOKS_AT_ONCE: u32 = 64;
/// Idle looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 8;
/// Idle looks after which the rail is told not to ring.
const SPINS_UNWATCHED: u32 = 200;
/// Time between two looks for NICs that have come or gone, ns.
const NICS_EVERY_NS: u64 = 5 * MILLISECOND_NS;
/// Most packets in flight to a peer for another to leave at once: enough that nobody waits for a message behind a few
/// others, and few enough that a stream of short messages shares packets.
const PUSHED_PACKETS_MAX: usize = 8;
/// How old a look may be for the packets in flight that it found to count, ns.
const PUSH_LOOK_NS: u64 = 5 * MICROSECOND_NS;
/// Longest sleep, ns; a bound on what a missed timer could cost.
const SLEEP_NS_MAX: u64 = 10 * SECOND_NS;

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When `timeout` from now will have passed.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        Some(self.now().plus(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// What a child of our process does is an error: two would talk as one.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<(), RailError> {
        if self.owner.is_here() { Ok(()) } else { Err(self.other_process()) }
    }

    #[cold]
    fn other_process(&self) -> RailError {
        let (owner, here) = (self.owner.process(), std::process::id());
        RailError::OtherProcess { address: self.inner.borrow().rail.address(), owner, here }
    }

    /// Has something accepted for a peer; if nothing is in flight to it, it leaves at once.
    #[inline]
    pub(crate) fn post_with<T>(
        &self,
        peer: PeerId,
        post: impl FnOnce(&mut Core, Instant) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        let now = self.now();
        self.check_owner()?;
        let mut inner = self.inner.borrow_mut();
        let core = &mut inner.core;
        let alone = core.is_quiet(now, peer);
        let posted = post(core, now)?;
        drop(inner);
        if alone {
            self.transmit(now)?;
        } else {
            self.set_bell();
        }
        Ok(posted)
    }

    /// See [`Endpoint::descriptor`](super::Endpoint::descriptor).
    pub(super) fn show_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.check_owner().ok()?;
        let mut inner = self.inner.borrow_mut();
        let rail = inner.rail.descriptor()?;
        let raw = match &inner.bell {
            Some(bell) => bell.descriptor().as_raw_fd(),
            None => {
                // Without a timer it is as good as the system allows.
                let bell = Bell::new(rail).ok();
                let raw = bell.as_ref().map_or(rail, |bell| bell.descriptor()).as_raw_fd();
                inner.bell = bell;
                raw
            }
        };
        inner.shown = true;
        // A rail that cannot watch is broken, which the next call will say.
        let _ = inner.rail.watch(true);
        inner.set_bell(|| self.clock.now());
        // SAFETY: the descriptor is the bell's or the rail's, both of which are there as long as `self`, and are not exchanged; it
        // is open, and so not -1.
        Some(unsafe { BorrowedFd::borrow_raw(raw) })
    }

    /// Has the application's event loop call when something is due.
    #[inline]
    pub(crate) fn set_bell(&self) {
        self.inner.borrow_mut().set_bell(|| self.clock.now());
    }

    pub(crate) fn progress(&self) -> Result<usize, RailError> {
        self.check_owner()?;
        let now = self.clock.now();
        let mut inner = self.inner.borrow_mut();
        let was_due = self.tasks.are_used() && inner.due(now) <= now;
        let mut arrived = inner.progress(now)?;
        if inner.bell.is_some() {
            // An event loop may be told of what has arrived, and not again of what was left of it.
            for _ in 0..LOOKS_AT_ONCE {
                match inner.progress(now)? {
                    0 => break,
                    more => arrived += more,
                }
            }
        }
        if arrived == 0 {
            inner.spin()?;
        }
        inner.set_bell(|| now);
        drop(inner);
        if arrived > 0 || was_due {
            self.tasks.wake();
        }
        Ok(arrived)
    }

    /// Sends what waits for a peer, unless several packets are in flight to it.
    pub(crate) fn push(&self, peer: PeerId) -> Result<(), RailError> {
        let mut inner = self.inner.borrow_mut();
        if inner.core.is_handed_over(peer) {
            return Ok(());
        }
        self.check_owner()?;
        let now = self.clock.now();
        let may_leave = |core: &mut Core| core.has_at_most(now, peer, PUSHED_PACKETS_MAX);
        // What was acknowledged meanwhile is not known before it is looked for.
        let mut arrived = 0;
        if !may_leave(&mut inner.core) && now.since(inner.looked_at) > PUSH_LOOK_NS {
            arrived = inner.look(now, || now)?;
        }
        if may_leave(&mut inner.core) {
            let Inner { core, rail, .. } = &mut *inner;
            core.transmit(now, &mut **rail)?;
        }
        inner.set_bell(|| now);
        drop(inner);
        if arrived > 0 {
            // It may be what a task waits for, and no event loop tells of it any more.
            self.tasks.wake();
        }
        Ok(())
    }

    /// Sends what may be sent now, without looking for what arrived.
    pub(crate) fn transmit(&self, now: Instant) -> Result<(), RailError> {
        self.check_owner()?;
        let mut inner = self.inner.borrow_mut();
        let Inner { core, rail, .. } = &mut *inner;
        let sent = core.transmit(now, &mut **rail);
        inner.set_bell(|| now);
        sent
    }

    /// Makes progress until `ready` says so; `None` when `deadline` has passed.
    pub(crate) fn wait_until<T>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, RailError> {
        self.wait(deadline, || None, ready)
    }

    /// Makes progress until `found`, which may use the endpoint and is asked before each look, or `ready`, which is asked when
    /// something has arrived, says so; `None` when `deadline` has passed.
    pub(super) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        found: impl FnMut() -> Option<T>,
        ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, RailError> {
        let outcome = self.wait_here(deadline, found, ready);
        self.set_bell();
        self.tasks.wake();
        outcome
    }

    fn wait_here<T>(
        &self,
        deadline: Option<Instant>,
        mut found: impl FnMut() -> Option<T>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, RailError> {
        self.check_owner()?;
        let mut inner = self.inner.borrow_mut();
        if let Some(found) = ready(&mut inner.core) {
            return Ok(Some(found));
        }
        let mut now = inner.looked_at;
        let mut looks = 0u32;
        loop {
            drop(inner);
            let there = found();
            inner = self.inner.borrow_mut();
            if there.is_some() {
                if looks > 0 {
                    inner.waiter.busy(now);
                }
                return Ok(there);
            }
            let arrived = inner.look(now, || self.clock.now())? > 0;
            looks += 1;
            // The clock costs as much as a look: an idle look now and then is enough for timers. What was posted before leaves
            // at once, for who waits adds nothing to it.
            let timers = looks.is_multiple_of(LOOKS_PER_CLOCK) || looks == 1 && inner.core.is_due(now);
            if arrived {
                now = inner.looked_at;
                // A part of what is waited for is no reason to sleep before the next.
                inner.waiter.busy(now);
            } else if timers {
                now = self.clock.now();
            }
            if arrived || timers && (inner.core.is_due(now) || inner.rail.wake_at() <= now) {
                inner.follow_up(now)?;
                if let Some(found) = ready(&mut inner.core) {
                    inner.waiter.busy(now);
                    return Ok(Some(found));
                }
            }
            if timers && deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(None);
            }
            if arrived {
                continue;
            }
            match inner.waiter.idle(now) {
                Step::Look => inner.spin()?,
                Step::Yield => {
                    inner.spin()?;
                    std::thread::yield_now();
                    now = self.clock.now();
                }
                Step::Sleep => {
                    inner.sleep(now, deadline)?;
                    now = self.clock.now();
                }
            }
        }
    }
}

impl Inner {
    /// When the next call has something to do though nothing arrives.
    pub(super) fn due(&self, now: Instant) -> Instant {
        if self.core.is_due(now) { now } else { self.core.deadline().min(self.rail.wake_at()) }
    }

    #[inline]
    fn set_bell(&mut self, now: impl FnOnce() -> Instant) {
        if self.bell.is_some() {
            let now = now();
            let due = self.due(now);
            if let Some(bell) = &mut self.bell {
                bell.set(now, due);
            }
        }
    }

    fn progress(&mut self, now: Instant) -> Result<usize, RailError> {
        let arrived = self.look(now, || now)?;
        self.follow_up(now)?;
        Ok(arrived)
    }

    /// Takes in what has arrived. `now` may be a few looks old; `fresh` is asked when there is something.
    fn look(&mut self, now: Instant, fresh: impl Fn() -> Instant) -> Result<usize, RailError> {
        let Inner { core, rail, looked_at, .. } = self;
        let mut at = None;
        let arrived = rail.receive(now, &mut |from, datagram| {
            core.on_datagram(*at.get_or_insert_with(&fresh), from, datagram);
        });
        let mut arrived = arrived?;
        if core.has_news() {
            arrived += 1;
            at.get_or_insert_with(&fresh);
        }
        *looked_at = at.unwrap_or(now);
        Ok(arrived)
    }

    pub(super) fn set_policy(&mut self, policy: Option<Policy>, now: Instant) {
        self.spreads |= policy.is_some();
        if let Some(policy) = policy {
            self.core.set_policy(policy);
        }
        self.look_at_nics(now);
    }

    /// Notices NICs that have come or gone since the last look.
    fn look_at_nics(&mut self, now: Instant) {
        if self.spreads && now >= self.nics_at {
            self.nics_at = now.plus(NICS_EVERY_NS);
            if let Some(nics) = self.rail.nics(now) {
                self.core.set_nics(now, self.rail.address().port(), nics);
            }
        }
    }

    /// Reads what was deposited, lets timers run, sends what may be sent.
    fn follow_up(&mut self, now: Instant) -> Result<(), RailError> {
        self.look_at_nics(now);
        self.show(now);
        let Inner { core, rail, .. } = self;
        core.drain(now);
        core.tick(now);
        core.transmit(now, &mut **rail)
    }

    /// Goes on looking without sleeping. After a while the rail need not ring for us.
    fn spin(&mut self) -> Result<(), RailError> {
        self.spins = self.spins.saturating_add(1);
        if self.spins == SPINS_UNWATCHED && !self.shown {
            self.rail.watch(false)?;
        }
        Ok(())
    }

    /// Sleeps until something arrives or a timer is due.
    fn sleep(&mut self, now: Instant, deadline: Option<Instant>) -> Result<(), RailError> {
        // Also if the bell has rung since: it rings once for each time.
        self.rail.watch(true)?;
        self.spins = 0;
        let Inner { core, rail, .. } = self;
        // Nobody should wait for an acknowledgement until we wake.
        core.flush_acks();
        core.transmit(now, &mut **rail)?;
        if core.has_news() {
            return Ok(()); // deposited before the receive path could see that we sleep
        }
        let until = core.deadline().min(rail.wake_at()).min(deadline.unwrap_or(Instant::NEVER));
        let ns = until.since(now).min(SLEEP_NS_MAX);
        if ns == 0 {
            return Ok(());
        }
        self.show_before_sleep(now);
        self.showing.set_asleep(true);
        match self.rail.descriptor() {
            Some(descriptor) => crate::wait::sleep_on(descriptor, ns),
            None => std::thread::sleep(Duration::from_nanos(ns.min(MILLISECOND_NS))),
        }
        self.showing.set_asleep(false);
        Ok(())
    }
}
