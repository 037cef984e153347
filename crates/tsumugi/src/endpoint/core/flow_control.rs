//! How many packets peers may send: credit while there is room, XOFF where a receive path finds none, XON when there is again.
//!
//! Credit counts packets of one flow, and is granted for what is free of the receive queue and of the memory for messages. The
//! queue is everyone's, so credit may promise too much: then XOFF stops whoever found it full.

use super::Core;
use crate::endpoint::peer::connection::Phase;
use std::rc::Rc;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::receive_bitmap::{self, REACH_PACKETS};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::frame::FRAGMENT_BYTES;
use tsumugi_wire::{Flags, Kind, Psn};

/// A sender with more credit than this gets the next only in steps.
const CREDIT_PACKETS_PLENTY: u64 = 256;
const CREDIT_PACKETS_STEP: u64 = 64;

impl Core {
    /// How many packets the peer may send from a PSN on, and that PSN: everything before it has arrived and been compared.
    pub(super) fn credit(&mut self, index: u32) -> (Psn, u16) {
        let full = self.budget.is_full() && !defect!(CreditWithoutMemory);
        // What the peer sends is no longer than both take; what our packets to it are does not matter here.
        let body_bytes = self.agreed_body_bytes(index) as u64;
        let free_bytes = self.queue.unused_bytes(&*self.memory);
        let peer = &mut self.peers[index as usize];
        let Some(flow) = peer.connection.local.and_then(|local| self.memory.flow(local.index)) else {
            return (Psn(0), 0);
        };
        use tsumugi_wire::atomic::Ordering::Relaxed;
        let done = flow.direct_writes.0.done.load(Relaxed);
        // What we have read, which is all that was deposited or a little less. The flow entry's own word is in the
        // cache of a receive path's CPU; but only that word tells of direct writes.
        let next = peer.receive.reorder.next();
        let (base, checked) = match done {
            0 => (next, next),
            _ => {
                let base = peer
                    .receive
                    .damaged
                    .first()
                    .map_or(receive_bitmap::base(flow), |psn| psn.min(receive_bitmap::base(flow)));
                // Nor has what lies in the queue been compared. The base was read first.
                let all = self.queue.is_all_read(&*self.memory);
                (next.max(base), if all { next.max(base) } else { next })
            }
        };
        let limit = flow.limit.load(Relaxed).saturating_add(done);
        let packets = if !full {
            peer.acks.withhold_credit(false);
            // Generous: many peers share the queue, and XOFF stops them when it was too much.
            (free_bytes / body_bytes).clamp(32, REACH_PACKETS)
        } else if let Some(assembly) = peer.receive.assemblies.iter().find(|assembly| assembly.in_order > 0) {
            // The memory is full, but a message that has begun must be able to end, or nothing would ever be freed.
            peer.acks.withhold_credit(true);
            // And not the head of the next: it would have begun, too.
            let left = assembly.total - assembly.in_order;
            match assembly.step {
                0 => (left.div_ceil(body_bytes - FRAGMENT_BYTES as u64) + 1).min(REACH_PACKETS),
                step => left.div_ceil(step).min(REACH_PACKETS),
            }
        } else {
            peer.acks.withhold_credit(true);
            0
        };
        if peer.acks.is_credit_withheld() {
            self.budget.withhold();
        }
        let wanted = base.0 + if defect!(BitmapNotLimited) { 4 * packets } else { packets };
        // In steps while there is plenty, because receive paths read this with every packet.
        let plenty = limit > base.0 + CREDIT_PACKETS_PLENTY && wanted < limit + CREDIT_PACKETS_STEP;
        let limit = if wanted > limit && !plenty {
            flow.checked.store(checked.0, Relaxed);
            let told = if defect!(CreditNotKept) { limit } else { wanted };
            flow.limit.store(told - done, Relaxed);
            wanted
        } else {
            limit
        };
        (checked, limit.saturating_sub(checked.0).min(u64::from(u16::MAX)) as u16)
    }

    /// The flags that go with [`Core::credit`].
    pub(super) fn has_ack(&self, index: u32) -> Flags {
        if self.peers[index as usize].connection.local.is_some() { Flags::HAS_ACK } else { Flags(0) }
    }

    /// Grants credit ahead to the peers whose packets have just been read: what they send next is acknowledged
    /// without us, as far as the credit reaches.
    pub(super) fn grant_credit(&mut self) {
        while let Some(index) = self.schedule.next_to_grant(|index| &mut self.peers[index as usize].listed) {
            self.credit(index);
        }
    }

    /// Grants credit again to everyone it was withheld from, once there is memory. To be called wherever memory
    /// has become free: for a message that was released, a peer that is gone, what waited for its turn.
    pub(super) fn restore_credit(&mut self) {
        if !self.budget.take_restoration() {
            return;
        }
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            if peer.acks.is_credit_withheld() && matches!(peer.connection.phase, Phase::Open) {
                peer.acks.withhold_credit(false);
                peer.acks.demand(Kind::Ack, Psn(0));
                self.schedule(index);
            }
        }
    }

    /// Says XON to every peer that had XOFF, once enough of the queue is free.
    pub(super) fn send_xon(&mut self) {
        if self.memory.control().xoff.0.load(Ordering::Acquire) == 0 {
            return;
        }
        let memory = Rc::clone(&self.memory);
        let control = memory.control();
        if !self.queue.make_room(&*memory) {
            return;
        }
        control.xoff.0.store(0, Ordering::Release);
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            let Some(flow) = peer.connection.local.and_then(|local| memory.flow(local.index)) else {
                continue;
            };
            if flow.received.0.xoff.swap(0, Ordering::AcqRel) != 0 {
                // An XOFF that has not gone out yet is out of date.
                peer.acks.take_answer();
                peer.acks.demand(if defect!(XonNeverSent) { Kind::Ack } else { Kind::Xon }, Psn(0));
                self.schedule(index);
            }
        }
    }

    /// Bytes of received messages that are held, and how many there may be, when either kind of memory is
    /// full so that nothing more can arrive.
    #[must_use]
    pub fn exhausted(&self) -> Option<(u64, u64)> {
        if self.memory.control().xoff.0.load(Ordering::Relaxed) != 0 {
            // A receive path may have found the queue full since it was last read. While reading it makes enough room
            // for XON, nobody has to release anything.
            let exhausted = self.queue.exhausted(&*self.memory);
            if exhausted.is_some() {
                return exhausted;
            }
        }
        let credit_withheld = self.peers.iter().any(|peer| peer.acks.is_credit_withheld());
        self.budget.exhausted().filter(|_| credit_withheld)
    }
}
