//! The calls of a host: when the next is due, and all that happens in one.

use super::{Host, Process, watch};
use crate::addresses::PORT;
use crate::forge;
use crate::ledger::Wrong;
use crate::memory::Errand;
use crate::world::{AWAY_NS, Phase, World};
use tsumugi_rail::Rail;
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::time::MILLISECOND_NS;

/// The process of a host with XDP looks into its socket in all but one of so many calls.
const BLIND_ONE_IN: u64 = 3;
/// The process of a host with XDP computes after one in so many calls.
const COMPUTES_ONE_IN: u64 = 50;
/// Time between two looks at the NICs, ns: as an endpoint looks.
const NICS_EVERY_NS: u64 = 5 * MILLISECOND_NS;
/// See [`Process::overdue`].
const OVERDUE_MAX: u32 = 4;

impl Host {
    /// When the host will call next.
    pub(crate) fn next_call(&self, world: &World) -> Instant {
        let Some(process) = &self.process else { return Instant::NEVER };
        let mut due = process.spy.wake_at().min(process.core.deadline()).min(self.next_app(world, process));
        if process.core.has_news() {
            due = Instant(0); // the doorbell has rung
        }
        due.max(self.called_at.plus(self.plan.call_ns)).max(self.silent_until)
    }

    fn next_app(&self, world: &World, process: &Process) -> Instant {
        let mut due = if process.acted { Instant(0) } else { Instant::NEVER };
        if world.phase == Phase::Storm {
            if self.messages_left > 0 && !process.leaving {
                due = due.min(self.next_post);
            }
            for (at, _) in
                self.plan.reader.opens_at.iter().zip(&process.reading.open).filter(|(_, open)| open.is_none())
            {
                due = due.min(*at);
            }
            if let Some(kept) = process.reading.kept.front() {
                due = due.min(kept.until);
            }
        } else if !process.reading.kept.is_empty() || process.reading.open.iter().any(Option::is_none) {
            due = Instant(0);
        }
        if world.phase == Phase::Recovery && !self.has_recovered(world) {
            due = due.min(self.called_at.plus(MILLISECOND_NS));
        }
        if process.errands.iter().any(Errand::has_more) {
            due = due.min(self.called_at.plus(MILLISECOND_NS));
        }
        if process.reading.arrived {
            due = due.min(process.reading.read_at.plus(self.plan.reader.every_ns));
        }
        due
    }

    /// One call of everything, as an application would.
    pub(crate) fn call(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        self.away_ns = self.silent_until.min(now).since(self.called_at);
        self.called_at = now;
        self.get_forged(world, now)?;
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let outcome = self.call_process(&mut process, world, now);
        self.process = Some(process);
        let computes = world.phase == Phase::Storm && self.plan.computes_ns > 0;
        if computes && self.random.one_in(COMPUTES_ONE_IN) {
            self.silent_until = self.silent_until.max(now.plus(self.random.below(self.plan.computes_ns)));
        }
        if self.silent_until > now.plus(AWAY_NS) {
            let since = &mut world.hosts[self.index].present_since;
            *since = self.silent_until.max(*since);
        }
        outcome
    }

    /// Now and then a datagram arrives that nobody sent.
    fn get_forged(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let forged_one_in = world.plan.forged_one_in;
        if world.phase != Phase::Storm || forged_one_in == 0 || !self.random.one_in(forged_one_in) {
            return Ok(());
        }
        let me = world.any_address(&mut self.random, self.index);
        let forged = forge::forge(&mut self.random, &world.wire.borrow(), me, &world.addresses);
        let Some((from, bytes)) = forged else { return Ok(()) };
        world.wire.borrow_mut().note(now, || format!("{me} gets a forged datagram as from {from}"));
        if self.attached {
            return self.run_xdp_on(world, now, from, bytes);
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        process.spy.passed.push_back((from, bytes));
        Ok(())
    }

    fn call_process(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        if process.acted || self.random.one_in(2) {
            self.application(process, world, now)?;
            self.progress(process, world, now)
        } else {
            self.progress(process, world, now)?;
            self.application(process, world, now)?;
            // What it posted and released may want to be sent: a process makes progress before it sleeps.
            process.acted = true;
            Ok(())
        }
    }

    fn progress(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let me = world.addresses[self.index];
        // A long message may begin and end with what the XDP program took: credit to finish it is fair. So is credit
        // for all, as soon as what a peer was sending is forgotten with its flow, though others fill the memory before
        // the call is over.
        let mut least_held = if process.core.has_news() { 0 } else { process.core.held_bytes() };
        let Process { core, spy, heard_from, .. } = process;
        let mut arrived = usize::from(core.has_news());
        // What was deposited and what was passed on are seen in any order.
        if !spy.attached || !self.random.one_in(BLIND_ONE_IN) {
            arrived += spy.hand_over(now, |spy, from, bytes| {
                watch(core, spy, now, me, from, bytes, true);
                core.on_datagram(now, from, bytes);
                least_held = least_held.min(core.held_bytes());
                heard_from.push(from);
            })?;
        }
        process.reading.arrived |= arrived > 0;
        self.look_at_nics(process, now);
        process.core.drain(now);
        process.core.tick(now);
        if process.leaving && process.core.is_flushed() {
            process.core.leave(now);
            world.hosts[self.index].left = now;
        }
        if self.plan.flushes_acks && self.random.one_in(4) {
            process.core.flush_acks();
        }
        self.transmit(process, now)?;
        process.acted = false;
        process.core.audit()?;
        // A timer may be seen late once, not again and again: a process that sleeps until the deadline would never sleep.
        let overdue = arrived == 0 && process.core.deadline() <= now;
        process.overdue = if overdue { process.overdue + 1 } else { 0 };
        if process.overdue > OVERDUE_MAX {
            return Err(format!("host {} has a timer that is always due", self.index));
        }
        self.look_at_failures(process, world, now)?;
        let full = least_held.min(process.core.held_bytes()) > self.plan.options.receive_bytes;
        self.look_at_peers(process, world, now, full)?;
        if self.random.one_in(32) {
            process.audit_all()?;
        }
        for (counter, name) in
            [(Counter::Violation, "a violation"), (Counter::BeyondBitmap, "a PSN beyond the bitmap")]
        {
            if process.core.counted(counter) > 0 {
                return Err(format!("host {} counts {name} where everybody keeps to the rules", self.index));
            }
        }
        let wrong = world.wire.borrow_mut().wrong.take();
        wrong.map_or(Ok(()), Err)
    }

    /// Tells the endpoint of its NICs now and then, as its owner does.
    fn look_at_nics(&mut self, process: &mut Process, now: Instant) {
        if self.policy.is_none() || now < process.nics_at {
            return;
        }
        process.nics_at = now.plus(NICS_EVERY_NS);
        if let Some(nics) = process.spy.rail.nics(now) {
            process.core.set_nics(now, PORT, nics);
        }
    }
}
