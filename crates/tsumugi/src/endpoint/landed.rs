//! What has landed in the window left no record, and nobody has read it: its turn passes when its owner sees that it has
//! landed.
//!
//! The owner looks when it meets a packet out of its turn, and whenever something has landed while it holds packets. It
//! passes over a PSN without a record only when none can come any more (invariant 4 of [`tsumugi_wire::memory`]): when the
//! PSN lies before the base, nothing is on its way to its place, and every record has been read, in this order.

use super::state::State;
use tsumugi_proto::{ReceiveMemory, receiver, window};
use tsumugi_wire::Psn;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::memory::Counter;

impl State {
    /// Packets that have landed, ever.
    #[inline]
    fn landed(&self) -> u64 {
        self.memory.control().counters.0[Counter::Landed as usize].load(Ordering::Acquire)
    }

    /// Whether something has landed since the last look.
    #[inline]
    pub(super) fn has_landed(&self) -> bool {
        self.window.is_there() && self.landed() != self.landed_seen
    }

    /// Passes the turns of what has landed before `until`, as far as that can be said now, and hands out what was waiting
    /// for them. `false` when it cannot be said.
    pub(super) fn pass_landed(&mut self, index: u32, until: Psn) -> bool {
        if !self.window.is_there() {
            return true;
        }
        loop {
            let peer = &self.peers[index as usize];
            let Some(flow) = peer.local.and_then(|local| self.memory.flow(local.index)) else { return true };
            // Nor over what has a record, and has to come again.
            let damaged = peer.damaged.first().filter(|_| !defect!(DamagedPassedOver));
            let base = damaged.map_or(until, |psn| psn.min(until)).min(window::base(flow));
            if base <= peer.reorder.next() {
                return true;
            }
            if !receiver::is_settled(flow)
                || (self.memory.control().ring_head.0.load(Ordering::Acquire) != self.ring_read
                    && !defect!(TurnPassedUnread))
            {
                return false;
            }
            self.peers[index as usize].reorder.pass_to(base);
            self.catch_up(index);
        }
    }

    /// Looks whether what is held was waiting for what has landed, and says how far the queue has been read.
    pub(super) fn pass_all_landed(&mut self) {
        if !self.window.is_there() {
            return;
        }
        let landed = self.landed();
        if landed != self.landed_seen || !self.holders.is_empty() {
            let mut all = true;
            for index in std::mem::take(&mut self.holders) {
                self.peers[index as usize].holds = false;
                all &= defect!(LandingUnseen) || self.pass_landed(index, Psn(u64::MAX));
                self.tell_held(index);
            }
            if all {
                self.landed_seen = landed;
            }
        }
        self.memory.control().ring_read.0.store(self.ring_read, Ordering::Release);
    }

    /// Says how many packets of a peer are held: as long as there are any, nothing that has a turn lands.
    pub(super) fn tell_held(&mut self, index: u32) {
        if !self.window.is_there() {
            return;
        }
        let peer = &mut self.peers[index as usize];
        let Some(flow) = peer.local.and_then(|local| self.memory.flow(local.index)) else { return };
        let held = peer.reorder.held() + peer.damaged.len();
        flow.landing.0.held.store(held as u64, Ordering::Release);
        if held > 0 && !std::mem::replace(&mut peer.holds, true) {
            self.holders.push(index);
        }
    }
}
