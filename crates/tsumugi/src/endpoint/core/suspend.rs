//! Turning what an endpoint knows into a context and back.

use super::Core;
use crate::checksum::crc32c;
use crate::context::{
    Context, ContextError, Saved, SavedChannel, SavedConnection, SavedEntry, SavedFlow, SavedPeer,
    SavedSending,
};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::outbox::Outbox;
use crate::endpoint::peer::receive::Receive;
use crate::endpoint::peer::table::Tenant;
use crate::endpoint::receive_queue::Payload;
use crate::endpoint::sent::{Body, PacketKey, SentPacket};
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_proto::handshake::Cookies;
use tsumugi_proto::{ReceiveMemory, Sender, answer, receive_bitmap, receiver};
use tsumugi_wire::ack::{Sack, WORDS_MAX};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;
use tsumugi_wire::memory::Flow;
use tsumugi_wire::{Instant, Kind, Psn};

fn repeat_of(number: u32) -> Repeat {
    if number == Repeat::GoBackN as u32 { Repeat::GoBackN } else { Repeat::Selective }
}

impl Core {
    /// Everything that is needed to go on. Takes what was received out of it; it is over.
    pub(crate) fn save(&mut self, now: Instant, address: SocketAddr) -> Context {
        self.drain(now);
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let outcome = self.pass_direct_writes(index, Psn(u64::MAX));
            self.apply(outcome);
        }
        let mut channels = Vec::new();
        for (number, taken) in self.channels.take_all() {
            let mut messages = Vec::new();
            for (source, payload) in taken {
                messages.push((source, self.bytes_of(&payload).to_vec()));
                self.release_message(payload);
            }
            channels.push(SavedChannel { number, messages });
        }
        let peers = self.peers.iter().map(|peer| self.save_peer(peer)).collect();
        let saved = Saved {
            address,
            epoch: self.incarnation.epoch,
            job: self.options.job,
            flows: self.peers.flows(),
            cookie_key: self.incarnation.cookies.key(),
            peers,
            channels,
            merged: self.identities.save_merged(),
        };
        Context { saved }
    }

    fn save_peer(&self, peer: &Peer) -> SavedPeer {
        SavedPeer {
            number: peer.number,
            named: peer.identity.named,
            name: peer.name.clone(),
            address: peer.address,
            aliases: peer.identity.aliases.clone(),
            same_as: peer.identity.same_as,
            epoch: peer.connection.epoch,
            connection: peer.connection.number,
            outbox: peer.outbox.save(&self.sent),
            open: self.save_flow(peer),
        }
    }

    fn save_flow(&self, peer: &Peer) -> Option<SavedFlow> {
        let connection = peer.connection.save()?;
        Some(SavedFlow {
            sending: self.save_sending(peer),
            receive: peer.receive.save(),
            entry: save_entry(self.memory.flow(connection.index)?),
            highest: peer.acks.highest().0,
            connection,
        })
    }

    fn save_sending(&self, Peer { sender, repairs, .. }: &Peer) -> SavedSending {
        let body_of = |key: &PacketKey| {
            let (head, body) = self.sent.body(*key);
            [head, body].concat()
        };
        SavedSending {
            repeat: self.options.repeat as u32,
            base: sender.base().0,
            limit: sender.limit().0,
            sent: sender.outstanding_packets().map(|key| key.map(body_of)).collect(),
            checked: repairs.unchecked.checked().0,
            unchecked: repairs.unchecked.iter().map(|(psn, key)| (psn.0, body_of(key))).collect(),
        }
    }

    /// Goes on with a context in a fresh endpoint.
    pub(crate) fn restore(&mut self, context: &Context) -> Result<(), ContextError> {
        let saved = &context.saved;
        self.incarnation.epoch = saved.epoch;
        self.options.job = saved.job;
        self.memory.control().epoch.store(saved.epoch, Ordering::Release);
        self.incarnation.cookies = Cookies::new(saved.cookie_key);
        for peer in &saved.peers {
            self.restore_peer(peer)?;
        }
        // When every entry has the address that it was made for.
        for saved in &saved.peers {
            let the = saved.same_as.unwrap_or(saved.number);
            for address in saved.aliases.iter().chain([&saved.address]) {
                self.peers.settle(*address, the);
            }
            saved.aliases.iter().for_each(|alias| self.egress.connect(*alias));
            let peer = &mut self.peers[saved.number as usize];
            (peer.identity.same_as, peer.identity.aliases) = (saved.same_as, saved.aliases.clone());
        }
        self.identities.restore_merged(&saved.merged);
        for channel in &saved.channels {
            for (source, bytes) in &channel.messages {
                self.budget.charge(bytes.len() as u64);
                self.channels.push(channel.number, *source, Payload::Owned(bytes.clone()));
            }
        }
        Ok(())
    }

    fn restore_peer(&mut self, saved: &SavedPeer) -> Result<(), ContextError> {
        let id = self
            .enter_peer(&saved.name, saved.address)
            .map_err(|error| ContextError::Damaged(error.to_string()))?;
        if !self.peers.renumber_last(saved.number) {
            return Err(ContextError::Damaged(format!("{id} cannot have been number {}", saved.number)));
        }
        let index = saved.number;
        self.peers[index as usize].identity.named = saved.named;
        let repeat = saved.open.as_ref().map_or(self.options.repeat, |flow| repeat_of(flow.sending.repeat));
        self.options.repeat = repeat;
        let peer = &mut self.peers[index as usize];
        peer.connection.epoch = saved.epoch;
        peer.connection.number = saved.connection;
        peer.outbox = Outbox::restore(&saved.outbox, &mut self.sent)?;
        match &saved.open {
            Some(flow) => self.restore_flow(index, flow),
            None if !saved.outbox.waiting.is_empty() => {
                self.start_handshake(Instant(0), index);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn restore_flow(&mut self, index: u32, saved: &SavedFlow) -> Result<(), ContextError> {
        let SavedFlow { connection, sending, receive, entry, highest } = saved;
        let damaged = |what: &str| ContextError::Damaged(what.to_owned());
        let datagram_bytes =
            usize::try_from(connection.body_bytes).unwrap_or(usize::MAX).saturating_add(HEADER_BYTES);
        if datagram_bytes < DATAGRAM_BYTES_MIN {
            return Err(damaged("packets that are shorter than any"));
        }
        if datagram_bytes > self.options.datagram_bytes {
            return Err(ContextError::Datagrams {
                context: datagram_bytes,
                here: self.options.datagram_bytes,
            });
        }
        let memory = Rc::clone(&self.memory);
        let flow = memory.flow(connection.index).ok_or_else(|| damaged("a flow beyond the table"))?;
        if self.peers.in_flow(connection.index).is_some() || entry.bitmap.len() > WORDS_MAX {
            return Err(damaged("two peers in one flow, or a receive bitmap too long"));
        }
        self.peers.set_flow(connection.index, Some(Tenant::Peer(index)));
        restore_entry(flow, entry, connection, self.peers[index as usize].connection.epoch);
        self.restore_sending(index, sending);
        let peer = &mut self.peers[index as usize];
        peer.connection.reopen(connection, peer.address.is_ipv6());
        peer.paths[0].mtu = peer.fresh_mtu(peer.address);
        peer.fit();
        peer.acks.restore_highest(Psn(*highest));
        peer.receive = Receive::restore(receive);
        self.budget.arrive(peer.receive.held_bytes());
        self.egress.connect(self.peers[index as usize].address);
        // The peer learns at once where we stand, and we what it has.
        self.peers[index as usize].acks.demand(Kind::Ack, Psn(0));
        self.schedule(index);
        self.arm(Instant(0), index);
        Ok(())
    }

    fn restore_sending(&mut self, index: u32, saved: &SavedSending) {
        let kept = &mut self.sent;
        let sent_of = |body: &Vec<u8>| SentPacket { crc: crc32c(body), body: Body::Packet(body.clone()) };
        let sent = saved.sent.iter().map(|body| body.as_ref().map(|body| kept.insert(sent_of(body))));
        let sent: Vec<_> = sent.collect();
        let Peer { sender, repairs, .. } = &mut self.peers[index as usize];
        let (base, limit) = (Psn(saved.base), Psn(saved.limit));
        *sender = Sender::resume(repeat_of(saved.repeat), 1, base, limit, sent);
        repairs.unchecked.confirm(Psn(saved.checked), |_| {});
        for (psn, body) in &saved.unchecked {
            let sent = sent_of(body);
            let may_be_direct = sent.may_be_direct_write();
            if let Some(key) = repairs.unchecked.keep(Psn(*psn), kept.insert(sent), may_be_direct) {
                kept.release(&mut self.pool, key);
            }
        }
    }
}

/// What is in the flow table of a peer's packets.
fn save_entry(flow: &Flow) -> SavedEntry {
    let (base, sack) = receive_bitmap::snapshot(flow);
    SavedEntry {
        repeat: flow.repeat.load(Ordering::Relaxed),
        base: base.0,
        limit: receiver::limit(flow).0,
        bitmap: sack.bitmap[..sack.words].to_vec(),
    }
}

fn restore_entry(flow: &Flow, saved: &SavedEntry, connection: &SavedConnection, epoch: u32) {
    let mut sack = Sack { words: saved.bitmap.len(), ..Sack::EMPTY };
    sack.bitmap[..saved.bitmap.len()].copy_from_slice(&saved.bitmap);
    receiver::open(flow, connection.token, epoch, repeat_of(saved.repeat), saved.limit);
    receive_bitmap::restore(flow, Psn(saved.base), &sack);
    answer::address(flow, connection.remote_flow, connection.remote_token);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Integrity;
    use crate::endpoint::core::EndpointOptions;
    use crate::endpoint::core::channels::Delivery;
    use proptest::prelude::*;
    use tsumugi_rail::Rail;
    use tsumugi_rail::memory::Memory;
    use tsumugi_rail::sim::{LinkOptions, Network, SimRail};
    use tsumugi_wire::memory::Geometry;

    fn fresh(seed: u64) -> Core {
        wanting(seed, Integrity::Crc32c)
    }

    fn wanting(seed: u64, integrity: Integrity) -> Core {
        let options = EndpointOptions {
            job: 0,
            accept_unknown: true,
            peers_max: 4,
            repeat: Repeat::Selective,
            peer_timeout_ns: 1 << 30,
            connect_timeout_ns: 1 << 30,
            listens: false,
            integrity,
            message_bytes_max: 1 << 20,
            receive_bytes: 1 << 20,
            send_bytes: 1 << 20,
            datagram_bytes: 1472,
            seed: Some(seed),
        };
        Core::new(options, Memory::new(Geometry::plain(4, 32 << 10)).unwrap())
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 7411))
    }

    fn call(core: &mut Core, rail: &mut SimRail, now: Instant) {
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
    }

    /// The context of an endpoint with something of everything: packets outstanding and held, messages that wait, are half there,
    /// and lie in a channel.
    fn context() -> Vec<u8> {
        let network = Network::new(1, LinkOptions { loss: 0.3, ..LinkOptions::default() });
        let (mut here, mut there) = (fresh(1), fresh(2));
        let (mut here_rail, mut there_rail) =
            (network.rail(address(1), 1472), network.rail(address(2), 1472));
        assert!(here.open_channel(1) && there.open_channel(1));
        let id = here.add_peer("there", address(2)).unwrap();
        here.post(Instant(0), id, 1, b"hello").unwrap();
        let mut now = Instant(0);
        for step in 0..400 {
            if step == 200 {
                for bytes in [100, 5000, 20_000] {
                    here.post(now, id, 1, &vec![1; bytes]).unwrap();
                    there.post(now, crate::PeerId(0), 1, &vec![2; bytes]).unwrap();
                }
            }
            call(&mut here, &mut here_rail, now);
            call(&mut there, &mut there_rail, now);
            now = now.plus(if step < 200 { 1_000_000 } else { 1000 });
        }
        here.post(now, id, 1, &[3; 9000]).unwrap();
        here.save(now, address(1)).to_bytes()
    }

    #[test]
    fn who_goes_on_for_another_keeps_to_what_that_has_agreed_on() {
        let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
        let mut cores = [1, 2].map(|seed| wanting(seed, Integrity::Wire));
        let mut rails = [1, 2].map(|number| network.rail(address(number), 1472));
        assert!(cores[1].open_channel(1));
        let id = cores[0].add_peer("there", address(2)).unwrap();
        let mut now = Instant(0);
        let mut exchange = |cores: &mut [Core; 2], rails: &mut [SimRail; 2]| {
            for _ in 0..400 {
                for (core, rail) in cores.iter_mut().zip(rails.iter_mut()) {
                    call(core, rail, now);
                }
                now = now.plus(10_000);
            }
            now
        };
        cores[0].post(Instant(0), id, 1, b"hello").unwrap();
        let now = exchange(&mut cores, &mut rails);
        // On its way, made by the process before.
        cores[0].post(now, id, 1, &[7; 5000]).unwrap();
        cores[0].transmit(now, &mut rails[0]).unwrap();
        for (number, core) in (1..).zip(&mut cores) {
            let bytes = core.save(now, address(number)).to_bytes();
            // What the next one wants counts for connections to come.
            *core = wanting(number.into(), Integrity::Crc32c);
            core.restore(&Context::from_bytes(&bytes).unwrap()).unwrap();
        }
        assert!(cores[1].open_channel(1));
        cores[0].post(now, id, 1, &[8; 5000]).unwrap();
        exchange(&mut cores, &mut rails);
        let mut lengths = Vec::new();
        while let Some(Delivery::Message { payload, .. }) = cores[1].take(1) {
            lengths.push(cores[1].bytes_of(&payload).len());
            cores[1].release_message(payload);
        }
        assert_eq!(lengths, [5, 5000, 5000]);
        assert_eq!(cores[1].counters().get("corrupt"), 0);
        assert!(cores[0].is_flushed());
    }

    #[test]
    fn a_damaged_context_is_an_error_or_is_gone_on_with() {
        let whole = context();
        let peers = Context::from_bytes(&whole).unwrap().saved.peers;
        let open = peers[0].open.as_ref().expect("packets flow");
        assert!(!open.sending.sent.is_empty() && !peers[0].outbox.waiting.is_empty(), "{open:?}");
        let mut runner = proptest::test_runner::TestRunner::default();
        let change = (0..whole.len(), any::<u8>());
        runner
            .run(&prop::collection::vec(change, 1..4), |changes| {
                let mut bytes = whole.clone();
                changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
                if let Ok(context) = Context::from_bytes(&bytes) {
                    let network = Network::new(2, LinkOptions::default());
                    let (mut core, mut rail) = (fresh(3), network.rail(address(1), 1472));
                    if core.restore(&context).is_ok() {
                        for at in 0..20 {
                            call(&mut core, &mut rail, Instant(at * 10_000_000));
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}
