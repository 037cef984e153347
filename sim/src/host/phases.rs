//! What each phase of a run wants of a host, and whether it is so.

use super::Host;
use crate::ledger::Wrong;
use crate::world::{Phase, World};
use tsumugi::PeerId;
use tsumugi::internal::PeerView;
use tsumugi_wire::Instant;

impl Host {
    /// What the host does from here on when the phase changes.
    pub(crate) fn enter(&mut self, phase: Phase, now: Instant) {
        self.silent_until = self.silent_until.min(now);
        if let Some(process) = &mut self.process {
            process.reading.arrived = true;
            process.leaving |= phase == Phase::Closing;
        }
    }

    /// Whether everything is as the phase wants it, or what is not.
    pub(crate) fn is_done(&self, world: &World) -> Result<(), Wrong> {
        let Some(process) = &self.process else { return Ok(()) };
        let core = &process.core;
        let unlike = |what: &str| Err(format!("host {} {what}", self.index));
        for index in 0..core.peers() {
            let Some(view) = core.view(PeerId(index)) else { continue };
            if view.waiting {
                let PeerView { held, assembling, .. } = view;
                return Err(format!(
                    "host {} still waits for peer {index} ({held} packets held, assembling: {assembling})",
                    self.index
                ));
            }
            if view.open && world.wire.borrow().owes_xon((view.local_token, view.epoch)) {
                return Err(format!("host {} has said XOFF to peer {index} and never XON", self.index));
            }
        }
        if !core.is_flushed() {
            return unlike("has messages that are not delivered");
        }
        if !process.reading.kept.is_empty()
            || process.reading.arrived
            || process.reading.open.iter().any(Option::is_none)
        {
            return unlike("has not read everything");
        }
        if let Some(exhausted) = core.exhausted() {
            return Err(format!("host {} is exhausted with nothing kept: {exhausted:?}", self.index));
        }
        if !process.errands.is_empty() {
            return unlike("waits for what comes of its errands");
        }
        if world.phase == Phase::Recovery && !self.has_recovered(world) {
            return unlike("has not reached everybody");
        }
        if world.phase == Phase::Closing && !core.has_left() {
            return unlike("has not left");
        }
        Ok(())
    }

    /// What must hold when everything is settled and read.
    pub(crate) fn audit_at_rest(&self) -> Result<(), Wrong> {
        let Some(process) = &self.process else { return Ok(()) };
        process.audit_all()?;
        if process.core.held_bytes() != 0 {
            return Err(format!("host {} holds {} bytes of nothing", self.index, process.core.held_bytes()));
        }
        for (channel, (failures, heard)) in
            process.reading.open.iter().zip(&process.reading.heard).enumerate()
        {
            if *failures != Some(*heard) {
                return Err(format!(
                    "host {} was told {heard} of {failures:?} failures on channel {}",
                    self.index,
                    channel + 1
                ));
            }
        }
        Ok(())
    }

    /// Whether the host has reached every other, and every path to them is used.
    pub(super) fn has_recovered(&self, world: &World) -> bool {
        let Some(process) = &self.process else { return false };
        let reached = process.known.values().filter(|peer| peer.reached).count();
        reached + 1 == world.address_plan.hosts() && process.paths_back
    }
}
