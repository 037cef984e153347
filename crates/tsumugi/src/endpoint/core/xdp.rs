//! What the XDP program does without us, as the owner of the receive memory finds it.
//!
//! The program deposits and acknowledges. What the peer has acknowledged lies in the record beside the body, or is
//! noted in the flow's entry when there is no record. Left to the owner: to read all that, to grant credit ahead, and
//! to acknowledge what nobody has asked about.

use super::{Core, Ended};
use tsumugi_proto::sender::Answer;
use tsumugi_proto::{ReceiveMemory, answer};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::Record;
use tsumugi_wire::{Instant, Psn};

impl Core {
    /// Whether something was deposited that has not been read, or was written directly, or an answer was left to us.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.next_record().is_some() || self.has_direct_writes() || self.owes()
    }

    /// A packet of the peer was deposited by the XDP program.
    pub(super) fn on_xdp_record(&mut self, now: Instant, index: u32, record: &Record) -> Result<(), Ended> {
        self.tally.packets_by_xdp += 1;
        if record.has_ack {
            self.on_answer(now, index, Answer::Piggyback, Psn(record.ack), record.credit, None)?;
        }
        let peer = &mut self.peers[index as usize];
        peer.liveness.hear(now);
        peer.liveness.set_away(false);
        if peer.is_multirail() {
            peer.acks.answer_to(peer.usual_address()); // a record does not say over which path it came
        }
        self.schedule.grant(&mut peer.listed, index);
        // Who waits for an ACK has got it from the program, or is owed it.
        self.on_deposited(now, index, Psn(record.psn), 1, false);
        Ok(())
    }

    /// Takes in what the XDP program noted of the peer's acknowledgements.
    pub(super) fn on_noted(&mut self, now: Instant, index: u32) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        let Some(local) = peer.connection.local else { return Ok(()) };
        let Some(flow) = self.memory.flow(local.index) else { return Ok(()) };
        let ack = flow.acknowledged.0.ack.load(Ordering::Acquire);
        let limit = flow.acknowledged.0.limit.load(Ordering::Acquire);
        if !peer.acks.note(ack, limit) {
            return Ok(());
        }
        peer.liveness.hear(now);
        let credit = u16::try_from(limit.saturating_sub(ack)).unwrap_or(u16::MAX);
        self.on_answer(now, index, Answer::Piggyback, Psn(ack), credit, None)
    }

    /// Takes in what was noted of the acknowledgements of all peers that owe us some: those rode on direct writes.
    pub(super) fn read_notes(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(index) = self.schedule.timed(at) {
            let outcome = self.on_noted(now, index);
            self.apply(outcome);
            at += 1;
        }
    }

    /// Whether the XDP program left an answer to us that it could not send.
    #[inline]
    fn owes(&self) -> bool {
        self.memory.control().owed.0.load(Ordering::Relaxed) != 0
    }

    /// Answers the long packets that the XDP program could not answer where they arrived, unless it has by now.
    pub(super) fn answer_owed(&mut self) {
        if !self.owes() {
            return;
        }
        // Acquire, and before the flows are looked at: whoever owes meanwhile says so again.
        self.memory.control().owed.0.swap(0, Ordering::AcqRel);
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            let Some(flow) = peer.connection.local.and_then(|local| self.memory.flow(local.index)) else {
                continue;
            };
            if let Some(kind) = answer::take_owed(flow, None) {
                peer.acks.demand(kind, Psn(0));
                self.schedule(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::core::EndpointOptions;
    use tsumugi_rail::memory::Memory;
    use tsumugi_wire::handshake::Repeat;
    use tsumugi_wire::memory::Geometry;

    #[test]
    fn a_queue_found_full_between_two_looks_is_not_exhausted() {
        let options = EndpointOptions {
            job: 0,
            accept_unknown: true,
            peers_max: 1,
            repeat: Repeat::Selective,
            peer_timeout_ns: 1,
            connect_timeout_ns: 1,
            listens: false,
            integrity: crate::Integrity::Crc32c,
            message_bytes_max: 0,
            receive_bytes: 0,
            send_bytes: 0,
            datagram_bytes: 1472,
            seed: Some(1),
        };
        let memory = Memory::new(Geometry::plain(1, 32 << 10)).unwrap();
        let mut core = Core::new(options, memory);
        core.memory.control().xoff.0.store(1, Ordering::Release);
        assert_eq!(core.exhausted(), None);
        core.drain(Instant(0));
        assert_eq!(core.memory.control().xoff.0.load(Ordering::Acquire), 0);
    }
}
