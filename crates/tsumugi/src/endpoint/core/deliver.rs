//! From the receive queue into channels: in order, whole, once.

use super::{Core, Ended};
use crate::checksum::crc32c;
use crate::endpoint::peer::connection::Local;
use crate::endpoint::peer::receive::{Assembly, Held};
use crate::endpoint::receive_queue::{Payload, Taken};
use crate::error::Reason;
use std::rc::Rc;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{Fragment, Frame, Frames};
use tsumugi_wire::memory::{Counter, Record};
use tsumugi_wire::rails::CONTROL_CHANNEL;
use tsumugi_wire::{Instant, Psn};

/// Long messages of one peer that may be assembled ahead of their turn. Fragments of later ones wait as they are.
const ASSEMBLIES_AHEAD_MAX: usize = 4;

/// Where a body lies while its frames are handed out.
#[derive(Clone, Copy)]
pub(super) enum BodyPlace {
    /// In the queue, in this record.
    Queue(Taken),
    /// In a buffer that will go away.
    Passing,
}

impl Core {
    /// Reads everything that receive paths have published.
    pub fn drain(&mut self, now: Instant) {
        let memory = Rc::clone(&self.memory);
        let mut read = false;
        if self.has_direct_writes() {
            self.read_notes(now);
        }
        while let Some(record) = self.next_record() {
            let Some(taken) = self.queue.take(&*memory, &record) else {
                memory.count(Counter::Violation, 1);
                break;
            };
            read = true;
            // SAFETY: the record is published, and kept until the next line but one.
            let body = unsafe { memory.body(taken.position, 0, record.bytes as usize) };
            let outcome = self.on_record(now, &record, taken, body);
            self.apply(outcome);
            self.queue.let_go(taken.record);
        }
        if read {
            self.grant_credit();
            self.queue.release(&*memory);
            self.restore_credit();
        }
        self.pass_all_direct_writes();
        self.answer_owed();
        // Another receive path may have said XOFF to a sender since the last release.
        if !defect!(XoffByXdp) {
            self.send_xon();
        }
    }

    /// The record that was deposited next.
    #[inline]
    pub(super) fn next_record(&self) -> Option<Record> {
        self.queue.next(&*self.memory)
    }

    fn on_record(&mut self, now: Instant, record: &Record, taken: Taken, body: &[u8]) -> Result<(), Ended> {
        if let Some(seat) = self.peers.group_in_flow(record.flow) {
            if self.groups.at(seat).is_some_and(|seat| Record::stamp_of(seat.token) == record.stamp) {
                self.on_release(seat, record.body_crc, body);
            }
            return Ok(());
        }
        let Some(index) = self.peers.in_flow(record.flow) else { return Ok(()) };
        let Some(Local { token, .. }) = self.peers[index as usize].connection.local else { return Ok(()) };
        if Record::stamp_of(token) != record.stamp {
            // Deposited for a peer that is gone; its entry has a new tenant.
            return Ok(());
        }
        let psn = Psn(record.psn);
        self.tally.bytes_received += self.peers[index as usize].receive.count(1, record.bytes.into());
        if !record.checked {
            self.on_xdp_record(now, index, record)?;
            let connection = &self.peers[index as usize].connection;
            let is_unchecked = record.body_crc == 0 && connection.may_be_unchecked(self.options.integrity);
            if !is_unchecked && crc32c(body) != record.body_crc && !defect!(XdpRecordNotCompared) {
                return self.on_damage(index, psn);
            }
        }
        self.take_in(index, psn, body, BodyPlace::Queue(taken))
    }

    /// A packet has arrived whole and unaltered. Its PSN has been claimed.
    pub(super) fn take_in(
        &mut self,
        index: u32,
        psn: Psn,
        body: &[u8],
        place: BodyPlace,
    ) -> Result<(), Ended> {
        if let Some(Ok(Frame::Fragment(fragment, data))) = Frames::new(body).next() {
            return self.on_fragment(index, psn, fragment, data);
        }
        if psn != self.peers[index as usize].receive.reorder.next() {
            self.pass_direct_writes(index, psn)?;
        }
        let peer = &mut self.peers[index as usize];
        let skips = (defect!(ReorderSkips) && psn > peer.receive.reorder.next())
            || (defect!(PathsNotInOrder) && peer.is_multirail());
        if psn == peer.receive.reorder.next() || skips {
            peer.receive.reorder.pass();
            self.hand_out(index, body, place)?;
            self.catch_up(index)
        } else {
            // Copied out, so that a gap never holds the queue that must take what fills it.
            self.hold(index, psn, body)
        }
    }

    pub(super) fn hold(&mut self, index: u32, psn: Psn, body: &[u8]) -> Result<(), Ended> {
        let mut copy = self.room_for(index, body.len())?;
        copy.extend_from_slice(body);
        if self.peers[index as usize].receive.reorder.hold(psn, Held::Body(copy)) {
            self.budget.arrive(body.len() as u64);
        }
        self.tell_held(index);
        Ok(())
    }

    /// Room for what a peer has sent.
    pub(super) fn room_for(&mut self, index: u32, bytes: usize) -> Result<Vec<u8>, Ended> {
        self.pool.take(bytes).ok_or(Ended(index, Reason::NoMemory(bytes as u64)))
    }

    /// A fragment arrived, in or out of turn. Its PSN has been claimed.
    pub(super) fn on_fragment(
        &mut self,
        index: u32,
        psn: Psn,
        fragment: Fragment,
        data: &[u8],
    ) -> Result<(), Ended> {
        let receive = &mut self.peers[index as usize].receive;
        if psn == receive.reorder.next() {
            receive.reorder.pass();
            self.assemble(index, fragment, data)?;
            return self.catch_up(index);
        }
        if receive.assembly_of(&fragment).is_none() && receive.assemblies.len() >= ASSEMBLIES_AHEAD_MAX {
            let mut body = fragment.encode().to_vec();
            body.extend_from_slice(data);
            return self.hold(index, psn, &body);
        }
        let slot = self.slot_of(index, &fragment)?;
        let receive = &mut self.peers[index as usize].receive;
        receive.assemblies[slot].put(&fragment, data);
        receive.reorder.hold(psn, Held::Placed { fragment, bytes: data.len() });
        self.tell_held(index);
        Ok(())
    }

    /// A fragment has its turn, and goes to its place.
    fn assemble(&mut self, index: u32, fragment: Fragment, data: &[u8]) -> Result<(), Ended> {
        let slot = self.slot_of(index, &fragment)?;
        if fragment.offset == 0 {
            self.place(index, slot, data.len(), Some(data));
        }
        self.peers[index as usize].receive.assemblies[slot].put(&fragment, data);
        self.pass_fragment(index, fragment, data.len())
    }

    /// Where among the long messages of a peer that are arriving a fragment's is. If it is the first of them, room is made.
    fn slot_of(&mut self, index: u32, fragment: &Fragment) -> Result<usize, Ended> {
        let receive = &self.peers[index as usize].receive;
        if let Some(slot) = receive.assembly_of(fragment) {
            let assembly = &receive.assemblies[slot];
            if assembly.total != fragment.total || assembly.channel != fragment.channel {
                return Err(self.violation(index, "fragments of one message disagree"));
            }
            return Ok(slot);
        }
        if fragment.total > self.options.message_bytes_max {
            return Err(self.violation(index, "a message over the limit that was agreed"));
        }
        let room = self.room_for(index, fragment.total as usize)?;
        self.budget.arrive(fragment.total);
        let assemblies = &mut self.peers[index as usize].receive.assemblies;
        assemblies.push(Assembly::new(fragment, room));
        Ok(assemblies.len() - 1)
    }

    /// A fragment that is in its place has its turn.
    fn pass_fragment(&mut self, index: u32, fragment: Fragment, bytes: usize) -> Result<(), Ended> {
        let receive = &mut self.peers[index as usize].receive;
        let slot = receive.assembly_of(&fragment);
        let Some(slot) = slot.filter(|&slot| receive.assemblies[slot].in_order == fragment.offset) else {
            return Err(self.violation(index, "a message with a gap or an overlap"));
        };
        if fragment.offset == 0 {
            self.place(index, slot, bytes, None);
        }
        let assemblies = &mut self.peers[index as usize].receive.assemblies;
        if assemblies[slot].pass(bytes as u64) {
            let assembly = assemblies.swap_remove(slot);
            self.complete(index, assembly);
        }
        Ok(())
    }

    /// Hands out everything whose turn has come.
    pub(super) fn catch_up(&mut self, index: u32) -> Result<(), Ended> {
        let mut taken = false;
        while let Some(held) = self.peers[index as usize].receive.reorder.take() {
            match held {
                Held::Placed { fragment, bytes } => self.pass_fragment(index, fragment, bytes)?,
                Held::Body(body) => {
                    self.budget.leave(body.len() as u64);
                    let outcome = self.hand_out(index, &body, BodyPlace::Passing);
                    self.pool.give(body);
                    outcome?;
                }
            }
            taken = true;
        }
        if taken {
            self.tell_held(index);
        }
        Ok(())
    }

    /// Hands the frames of a packet whose turn it is to their channels.
    fn hand_out(&mut self, index: u32, body: &[u8], place: BodyPlace) -> Result<(), Ended> {
        for frame in Frames::new(body) {
            match frame {
                Ok(Frame::Whole { channel, at, data }) => {
                    let payload = match place {
                        BodyPlace::Queue(Taken { record, position }) if self.channels.is_open(channel) => {
                            self.queue.need(record);
                            Payload::InPlace { record, position, at: at as u32, bytes: data.len() as u32 }
                        }
                        // Nobody may ever open the channel: do not let it hold the queue.
                        BodyPlace::Queue(_) | BodyPlace::Passing => {
                            let mut copy = self.room_for(index, data.len())?;
                            copy.extend_from_slice(data);
                            self.budget.charge(data.len() as u64);
                            Payload::Owned(copy)
                        }
                    };
                    self.push(index, channel, payload);
                }
                // A fragment that had to wait as it was.
                Ok(Frame::Fragment(fragment, data)) => self.assemble(index, fragment, data)?,
                Ok(Frame::Remote(remote, data)) => self.on_remote(index, &remote, data)?,
                Err(_) => return Err(self.violation(index, "a packet that does not parse")),
            }
        }
        Ok(())
    }

    pub(super) fn push(&mut self, source: u32, channel: u16, payload: Payload) {
        if channel == CONTROL_CHANNEL {
            if let Payload::Owned(list) = &payload {
                self.on_control(source, list);
            }
            self.release_message(payload);
            return;
        }
        self.tally.messages_received += 1;
        self.channels.push(channel, source, payload);
    }

    /// Gives a message's memory back.
    pub fn release_message(&mut self, payload: Payload) {
        match payload {
            Payload::InPlace { record, .. } => {
                if self.queue.let_go(record) {
                    self.queue.release(&*self.memory);
                    self.send_xon();
                }
            }
            Payload::Owned(buffer) => {
                self.budget.discharge(if defect!(MemoryNeverFree) { 0 } else { buffer.len() as u64 });
                self.pool.give(buffer);
                self.restore_credit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EndpointOptions;
    use super::super::channels::Delivery;
    use super::super::place::{Incoming, Placer, Room};
    use std::cell::RefCell;

    use super::*;
    use crate::endpoint::peer::receive::Lent;
    use std::net::SocketAddr;
    use tsumugi_proto::xdp::{self, Fate};
    use tsumugi_rail::Rail;
    use tsumugi_rail::memory::Memory;
    use tsumugi_rail::sim::{LinkOptions, Network, SimRail};
    use tsumugi_wire::handshake::Repeat;
    use tsumugi_wire::memory::Geometry;

    /// Gives back everything that has arrived before a long message, and sees what of the queue is kept then.
    #[derive(Default)]
    struct Greedy {
        heads: usize,
        kept: Vec<usize>,
    }

    impl Placer for Greedy {
        fn on_head(&mut self, core: &mut Core, _: Incoming, _: &[u8]) -> Room {
            while let Some(Delivery::Message { payload, .. }) = core.take(1) {
                core.release_message(payload);
            }
            self.heads += 1;
            self.kept.push(core.queue.kept());
            Room::Own
        }
        fn on_placed(&mut self, _: &mut Core, _: Lent) {}
        fn on_collected(&mut self, _: usize, _: Payload) {}
        fn on_lost(&mut self, _: &mut Core, _: Room) {}
    }

    fn host(network: &Network, number: u8) -> (Core, SimRail) {
        let options = EndpointOptions {
            job: 0,
            accept_unknown: true,
            peers_max: 4,
            repeat: Repeat::Selective,
            peer_timeout_ns: 500_000_000,
            connect_timeout_ns: 500_000_000,
            listens: false,
            integrity: crate::Integrity::Crc32c,
            message_bytes_max: 1 << 20,
            receive_bytes: 1 << 20,
            send_bytes: 1 << 20,
            datagram_bytes: 1472,
            seed: Some(number.into()),
        };
        let mut core = Core::new(options, Memory::new(Geometry::plain(4, 32 << 10)).unwrap());
        assert!(core.open_channel(1));
        (core, network.rail(SocketAddr::from(([10, 0, 0, number], 7411)), 1472))
    }

    fn call(core: &mut Core, rail: &mut SimRail, now: Instant) {
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
    }

    #[test]
    fn a_record_is_not_given_back_while_it_is_read() {
        let network = Network::new(1, LinkOptions::default());
        let ((mut here, mut here_rail), (mut there, mut there_rail)) = (host(&network, 1), host(&network, 2));
        let id = here.add_peer("there", SocketAddr::from(([10, 0, 0, 2], 7411))).unwrap();
        here.post(Instant(0), id, 1, b"hello").unwrap();
        let mut now = Instant(0);
        for _ in 0..40 {
            call(&mut here, &mut here_rail, now);
            call(&mut there, &mut there_rail, now);
            now = now.plus(10_000);
        }
        assert!(here.is_flushed());
        let greedy = Rc::new(RefCell::new(Greedy::default()));
        there.set_placer(1, Rc::<RefCell<Greedy>>::clone(&greedy));
        // More than is given back at once, and then a long message, all in the queue before any is read.
        for _ in 0..4 {
            here.post(now, id, 1, &[1; 1200]).unwrap();
        }
        here.post(now, id, 1, &[2; 3000]).unwrap();
        for _ in 0..40 {
            call(&mut here, &mut here_rail, now);
            there_rail
                .receive(now, &mut |from, bytes| {
                    let (fate, _) = xdp::receive(there.receive_memory(), bytes, false, crc32c);
                    if matches!(fate, Fate::Pass) {
                        there.on_datagram(now, from, bytes);
                    }
                })
                .unwrap();
            now = now.plus(10_000);
        }
        there.drain(now);
        let Greedy { heads, kept } = &*greedy.borrow();
        assert_eq!(*heads, 1);
        assert!(
            kept.iter().all(|records| *records == 1),
            "{kept:?}: the record that is being read is not kept"
        );
    }
}
