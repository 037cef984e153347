//! Timers: which peers are to be looked at, when, and what is done then.

use super::{Core, Ended, leaving};
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::schedule::Schedule;
use tsumugi_wire::Instant;

impl Core {
    pub(super) fn schedule(&mut self, index: u32) {
        self.schedule.send(&mut self.peers[index as usize].listed, index);
    }

    /// Lets timers that are due run.
    pub fn tick(&mut self, now: Instant) {
        self.pool.tick(now);
        if now < self.schedule.deadline() {
            return;
        }
        // Nobody is silent who sent something that was not read yet.
        self.drain(now);
        // Only peers with something going on are looked at, however many there are.
        let Self { schedule, peers, .. } = self;
        let timed = schedule.tick();
        for &index in &timed {
            Schedule::ticks(&mut peers[index as usize].listed);
        }
        for &index in &timed {
            let outcome = self.tick_peer(now, index);
            self.apply(outcome);
            // For whom something is sent, that is seen to then: sending is what a timer may be waiting for.
            if !self.peers[index as usize].listed.is_to_send() {
                let due = self.due(index);
                self.schedule_at(index, due);
            }
        }
        if self.schedule.is_watch_due(now) {
            self.watch_all(now);
        }
        self.schedule.tock(timed);
    }

    /// Sees to it that the peer is looked at when `due`.
    #[inline]
    pub(super) fn schedule_at(&mut self, index: u32, due: Instant) {
        self.schedule.set_timer(&mut self.peers[index as usize].listed, index, due);
    }

    /// When the peer's next timer is due.
    pub(super) fn due(&self, index: u32) -> Instant {
        let peer = &self.peers[index as usize];
        let mut due = peer.acks.due();
        if !matches!(peer.connection.phase, Phase::Handshake(_)) {
            // Before the peer has answered, nothing can be asked for.
            due = due.min(peer.receive.damaged.due());
        }
        match &peer.connection.phase {
            Phase::Handshake(handshake) => due = due.min(handshake.due),
            // Who watches has a timer for all: see `Core::watch`.
            Phase::Open if !peer.is_busy() && !peer.sizes.searches() => {
                return due.min(peer.sender.timeout());
            }
            Phase::Open if peer.liveness.waiting_since().is_some() || peer.sizes.searches() => {
                due = due.min(peer.sender.timeout()).min(peer.probe_due()).min(peer.sizes.due());
            }
            Phase::Open => due = due.min(peer.sender.timeout()),
            // BYE may not have reached the peer, which may ask for something and wait for the reply.
            Phase::Leaving(said_at) => {
                due = due.min(peer.sender.timeout()).min(peer.probe_due()).min(peer.sizes.due());
                due = due.min(said_at.plus(leaving::BYE_INTERVAL_NS));
            }
            Phase::Strange | Phase::Gone(_) => return Instant::NEVER,
        }
        due = due.min(self.liveness_due(peer));
        due
    }

    /// Makes sure that the peer's next timer will be seen.
    pub(super) fn arm(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        if peer.is_waiting() {
            peer.liveness.wait(now);
        } else {
            peer.liveness.wait_no_more();
        }
        let due = self.due(index);
        self.schedule_at(index, due);
    }

    fn tick_peer(&mut self, now: Instant, index: u32) -> Result<(), Ended> {
        self.on_noted(now, index)?;
        self.is_alive(now, index)?;
        let peer = &mut self.peers[index as usize];
        let mut wants_to_send = peer.probe_due().min(peer.sizes.due()).min(peer.receive.damaged.due()) <= now;
        wants_to_send |= peer.acks.hurry(now);
        if matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)) && peer.sender.timeout() <= now {
            let packets = peer.sender.outstanding();
            tracing::debug!(peer = %peer.name, packets, "no acknowledgement came in time");
            peer.sender.on_timeout(now);
            wants_to_send = true;
        }
        match &mut peer.connection.phase {
            Phase::Handshake(handshake) => wants_to_send |= now >= handshake.due,
            Phase::Leaving(said_at) if now >= said_at.plus(leaving::BYE_INTERVAL_NS) => {
                *said_at = now;
                self.repeat_bye(index);
            }
            _ => {}
        }
        if wants_to_send {
            self.schedule(index);
        }
        Ok(())
    }
}
