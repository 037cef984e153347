//! A direct write into the window leaves no record to read. Its turn passes when the owner of the memory sees that it
//! is done.
//!
//! The owner looks when it finds a packet out of its turn, and after every direct write while it holds packets. It
//! passes over a PSN without a record only when none can come any more (invariant 4 of [`tsumugi_wire::memory`]): when
//! the PSN lies before the base, no direct write is in progress, and every record has been read, checked in this order.

use super::{Core, Ended};
use crate::endpoint::schedule::Schedule;
use tsumugi_proto::{ReceiveMemory, receive_bitmap, receiver};
use tsumugi_wire::Psn;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::memory::Counter;

impl Core {
    /// Packets written directly, ever.
    #[inline]
    fn direct_writes(&self) -> u64 {
        self.memory.control().counters.0[Counter::DirectWrites as usize].load(Ordering::Acquire)
    }

    /// Whether there were direct writes since the last look.
    #[inline]
    pub(super) fn has_direct_writes(&self) -> bool {
        self.rma.window.is_there() && self.direct_writes() != self.rma.direct_writes_seen
    }

    /// Passes the turns of direct writes before `until`, as far as they are known to be done, and hands out what was
    /// waiting for them. `false` when that is not known yet.
    pub(super) fn pass_direct_writes(&mut self, index: u32, until: Psn) -> Result<bool, Ended> {
        if !self.rma.window.is_there() {
            return Ok(true);
        }
        loop {
            let peer = &self.peers[index as usize];
            let Some(flow) = peer.connection.local.and_then(|local| self.memory.flow(local.index)) else {
                return Ok(true);
            };
            // Nor over what has a record, and has to come again.
            let damaged = peer.receive.damaged.first().filter(|_| !defect!(DamagedPassedOver));
            let base = damaged.map_or(until, |psn| psn.min(until)).min(receive_bitmap::base(flow));
            if base <= peer.receive.reorder.next() {
                return Ok(true);
            }
            if !receiver::no_direct_write_in_progress(flow)
                || (!self.queue.is_all_read(&*self.memory) && !defect!(TurnPassedUnread))
            {
                return Ok(false);
            }
            self.peers[index as usize].receive.reorder.pass_to(base);
            self.catch_up(index)?;
        }
    }

    /// Looks whether held packets were waiting for direct writes, and says how far the queue has been read.
    pub(super) fn pass_all_direct_writes(&mut self) {
        if !self.rma.window.is_there() {
            return;
        }
        let direct_writes = self.direct_writes();
        if direct_writes != self.rma.direct_writes_seen || self.schedule.is_holding() {
            let mut all = true;
            for index in self.schedule.take_holding() {
                Schedule::held(&mut self.peers[index as usize].listed);
                if !defect!(DirectWriteUnseen) {
                    let outcome = self.pass_direct_writes(index, Psn(u64::MAX));
                    all &= self.apply(outcome).unwrap_or(true);
                }
                self.tell_held(index);
            }
            if all {
                self.rma.direct_writes_seen = direct_writes;
            }
        }
        self.queue.tell_read(&*self.memory);
    }

    /// Says how many packets of a peer are held: while there are any, nothing that has a turn is written directly.
    pub(super) fn tell_held(&mut self, index: u32) {
        if !self.rma.window.is_there() {
            return;
        }
        let peer = &mut self.peers[index as usize];
        let Some(flow) = peer.connection.local.and_then(|local| self.memory.flow(local.index)) else {
            return;
        };
        let held = peer.receive.reorder.held() + peer.receive.damaged.len();
        flow.direct_writes.0.held.store(held as u64, Ordering::Release);
        if held > 0 {
            self.schedule.hold(&mut peer.listed, index);
        }
    }
}
