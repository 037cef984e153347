//! Whether what an endpoint says of its peers is so: that one is gone and why, what it has delivered, how long it waits.

use super::{Host, Process};
use crate::check::paths::PathsKnown;
use crate::check::silence;
use crate::ledger::{Ledger, Wrong};
use crate::world::{Phase, World};
use tsumugi::{Failure, PeerId, Reason};
use tsumugi_wire::Instant;

impl Host {
    pub(super) fn look_at_failures(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
    ) -> Result<(), Wrong> {
        while let Some(failure) = process.core.take_failure() {
            world.wire.borrow_mut().note(now, || format!("host {}: {failure}", self.index));
            let other = world.address_plan.host_of(failure.address)?;
            process.reading.arrived = true;
            self.judge(process, world, now, other, &failure)?;
            world.ledger.damage(other, self.index, process.damaged(failure.peer));
            for count in process.reading.open.iter_mut().flatten() {
                *count += 1;
            }
            let known = process.known.entry(failure.peer.0).or_default();
            known.failed_at = Some(now);
            match known.stretch.take() {
                Some(stretch) => world.ledger.fail(stretch, failure.undelivered)?,
                None if failure.undelivered > 0 => {
                    return Err(format!("{failure}, but nothing had been accepted"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Whether a peer may be called gone for this reason.
    fn judge(
        &self,
        process: &Process,
        world: &World,
        now: Instant,
        other: usize,
        failure: &Failure,
    ) -> Result<(), Wrong> {
        let since = world.hosts[self.index].changed[other];
        let (its_change, its_leave) = (world.hosts[other].changed[self.index], world.hosts[other].left);
        let closing = world.phase == Phase::Closing;
        let known = process.known.get(&failure.peer.0);
        let view = known.and_then(|known| known.view);
        let timeout_ns = self.plan.options.peer_timeout_ns;
        let of_the_past = view.is_some_and(|view| view.epoch != world.hosts[other].epoch);
        let fair = match failure.reason {
            // All hosts of a run have the same limits.
            Reason::Violation(_) | Reason::NoMemory(_) | Reason::TooLong(_) => false,
            // Every simulated network carries what every one should. But whoever repeats short packets of a process
            // that is stopped makes it look as if it heard nothing else.
            Reason::Narrow(_) => world.plan.has_kernels && world.plan.forged_one_in > 0,
            // There is always a route.
            Reason::NoRoute(_) => false,
            Reason::Gone | Reason::LinkDown(..) if !world.plan.has_kernels => false,
            Reason::Gone | Reason::LinkDown(..) => {
                silence::has_evidence(&self.subject(), world, now, other, view, failure.reason)
            }
            Reason::Silent(..) if world.plan.has_kernels => {
                silence::has_evidence(&self.subject(), world, now, other, view, failure.reason)
            }
            // Everybody has room for all, in the same job.
            Reason::Refused(_) => false,
            // It would have answered, or its XDP program for it, unless the program was not told how in time: it can
            // answer no peer whose WELCOME its process has not read.
            Reason::Silent(..) if world.plan.patient => {
                let open_since = view.and_then(|view| world.hosts[other].doors.get(&view.remote_token));
                open_since.is_none_or(|since| now.since(*since) <= timeout_ns)
            }
            Reason::Silent(..) if known.is_some_and(|known| known.paths.is_sound_for(now, timeout_ns)) => {
                false
            }
            Reason::Silent(..) | Reason::Unreachable(..) | Reason::OtherVersion(_) => {
                !world.plan.calm && !closing
            }
            // Words of a former incarnation may have arrived after it was no more.
            Reason::Restarted => (its_change >= since || of_the_past) && !world.plan.calm,
            Reason::Closed => (its_leave > Instant(0) && its_leave >= since) || process.leaving,
            Reason::Aborted => its_leave > Instant(0) && its_leave >= since && !closing,
            // What has no rule here is never fair.
            _ => false,
        };
        if fair { Ok(()) } else { Err(format!("host {}: {failure}; that is not so", self.index)) }
    }

    pub(super) fn look_at_peers(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        full: bool,
    ) -> Result<(), Wrong> {
        let Process { core, known, heard_from, .. } = process;
        let doors_before = std::mem::take(&mut world.hosts[self.index].doors);
        for index in 0..core.peers() {
            let id = PeerId(index);
            let address = core.address_of(id).ok_or("a peer without address")?;
            let other = world.address_plan.host_of(address)?;
            let peer = known.entry(index).or_default();
            let connection = core.connection(id);
            if connection != peer.connection {
                peer.connection = connection;
                peer.quiet_since = None;
                peer.paths = PathsKnown::default();
                world.hosts[self.index].changed[other] = now;
                if let Some(stretch) = peer.stretch.take() {
                    // No failure was reported: nothing may have been outstanding but what BYE_ACK acknowledged.
                    let before = world.ledger.stretch(stretch).connection;
                    if before != connection {
                        if before.wrapping_add(1) == connection {
                            report(&mut world.ledger, stretch, |number| core.was_delivered(id, number))?;
                        }
                        if world.ledger.unreported(stretch) > 0 {
                            return Err(format!("host {} forgot host {other} and told nobody", self.index));
                        }
                        world.ledger.end(stretch);
                    } else {
                        peer.stretch = Some(stretch);
                    }
                }
            }
            if let Some(stretch) = peer.stretch {
                let reported = report(&mut world.ledger, stretch, |number| core.is_delivered(id, number))?;
                if core.is_delivered(id, reported + 1) {
                    return Err(format!(
                        "message {} reported delivered that was never accepted",
                        reported + 1
                    ));
                }
            }
            let view = core.view(id).ok_or("a peer that cannot be seen")?;
            // It has begun its flow anew, as good as a new connection.
            if peer.view.is_some_and(|before| ![0, view.local_token].contains(&before.local_token)) {
                world.hosts[self.index].changed[other] = now;
            }
            if let Some(before) = peer.view.filter(|before| before.local_token == view.local_token) {
                if full && !before.assembling && !view.assembling && view.limit > before.limit {
                    return Err(format!(
                        "host {} gave credit with {} bytes held",
                        self.index,
                        core.held_bytes()
                    ));
                }
                // What was damaged comes again when more has been taken.
                let repairs = before.damaged + view.damaged > 0;
                if before.goes_back && view.goes_back && view.held > before.held && !repairs {
                    return Err(format!("host {} took a Go-back-N flow out of order", self.index));
                }
            }
            if view.open {
                let since = doors_before.get(&view.local_token).copied().unwrap_or(now);
                world.hosts[self.index].doors.insert(view.local_token, since);
            }
            let has_waited = view.waiting && peer.view.is_some_and(|before| before.waiting);
            // A host that was away for long has to ask first.
            let was_away = self.away_ns > self.plan.options.peer_timeout_ns / 10;
            let heard = heard_from.iter().any(|from| world.address_plan.find(*from) == Some(other));
            if !has_waited || heard || was_away {
                peer.quiet_since = Some(now);
            }
            peer.quiet_since = Some(peer.quiet_since.unwrap_or(now).plus(self.away_ns).min(now));
            let quiet_since = peer.quiet_since.unwrap_or(now);
            if view.waiting && now > silence::told_by(&self.subject(), world, now, other, &view, quiet_since)
            {
                let quiet_ns = now.since(quiet_since);
                return Err(format!("host {} has waited for host {other} for {quiet_ns} ns", self.index));
            }
            if world.plan.multirail.is_some() {
                peer.paths.look(&self.subject(), core, world, now, (other, index), &view)?;
            }
            peer.view = Some(view);
        }
        heard_from.clear();
        Ok(())
    }
}

/// Enters the messages that are delivered, as the endpoint says. Returns how many are now.
fn report(ledger: &mut Ledger, stretch: u32, is_delivered: impl Fn(u64) -> bool) -> Result<u64, Wrong> {
    let mut reported = ledger.reported(stretch);
    while ledger.unreported(stretch) > 0 && is_delivered(reported + 1) {
        reported += 1;
        ledger.report(stretch, reported)?;
    }
    Ok(reported)
}
