//! Turning what an endpoint knows into a context and back.

use super::Core;
use crate::checksum::crc32c;
use crate::context::{Context, ContextError, Saved, SavedChannel, SavedFlow, SavedPeer};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::{Address, Local, Phase};
use crate::endpoint::peer::outbox::Outbox;
use crate::endpoint::peer::receive::Receive;
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
use tsumugi_wire::{Instant, Psn};

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
        let (Phase::Open, Some(remote), Some(local)) =
            (&peer.connection.phase, peer.connection.remote, peer.connection.local)
        else {
            return None;
        };
        let flow = self.memory.flow(local.index)?;
        let (base, sack) = receive_bitmap::snapshot(flow);
        let body_of = |key: &PacketKey| {
            let (head, body) = self.sent.body(*key);
            [head, body].concat()
        };
        let sent = peer.sender.outstanding_packets().map(|key| key.map(body_of));
        let unchecked = peer.repairs.unchecked.iter().map(|(psn, key)| (psn.0, body_of(key)));
        Some(SavedFlow {
            remote_flow: remote.flow,
            remote_token: remote.token,
            body_bytes: remote.body_bytes as u64,
            listens: remote.listens,
            message_bytes_max: peer.connection.message_bytes_max,
            repeat: self.options.repeat as u32,
            sent_base: peer.sender.base().0,
            sent_limit: peer.sender.limit().0,
            sent: sent.collect(),
            checked: peer.repairs.unchecked.checked().0,
            unchecked: unchecked.collect(),
            index: local.index,
            token: local.token,
            peer_repeat: flow.repeat.load(Ordering::Relaxed),
            base: base.0,
            limit: receiver::limit(flow).0,
            bitmap: sack.bitmap[..sack.words].to_vec(),
            highest: peer.acks.highest().0,
            receive: peer.receive.save(),
        })
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
        let repeat = saved.open.as_ref().map_or(self.options.repeat, |flow| repeat_of(flow.repeat));
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
        let body_bytes = saved.body_bytes as usize;
        if body_bytes + HEADER_BYTES > self.options.datagram_bytes {
            let (context, here) = (body_bytes + HEADER_BYTES, self.options.datagram_bytes);
            return Err(ContextError::Datagrams { context, here });
        }
        let damaged = |what: &str| ContextError::Damaged(what.to_owned());
        let memory = Rc::clone(&self.memory);
        let flow = memory.flow(saved.index).ok_or_else(|| damaged("a flow beyond the table"))?;
        if self.peers.in_flow(saved.index).is_some() || saved.bitmap.len() > WORDS_MAX {
            return Err(damaged("two peers in one flow, or a receive bitmap too long"));
        }
        self.peers.set_flow(saved.index, Some(index));
        let mut sack = Sack { words: saved.bitmap.len(), ..Sack::EMPTY };
        sack.bitmap[..saved.bitmap.len()].copy_from_slice(&saved.bitmap);
        let epoch = self.peers[index as usize].connection.epoch;
        receiver::open(flow, saved.token, epoch, repeat_of(saved.peer_repeat), saved.limit);
        receive_bitmap::restore(flow, Psn(saved.base), &sack);
        answer::address(flow, saved.remote_flow, saved.remote_token);

        let kept = &mut self.sent;
        let sent = saved.sent.iter().map(|body| {
            body.as_ref()
                .map(|body| kept.insert(SentPacket { crc: crc32c(body), body: Body::Packet(body.clone()) }))
        });
        let sent: Vec<_> = sent.collect();
        let peer = &mut self.peers[index as usize];
        peer.repairs.unchecked.confirm(Psn(saved.checked), |_| {});
        for (psn, body) in &saved.unchecked {
            let sent = SentPacket { crc: crc32c(body), body: Body::Packet(body.clone()) };
            let may_be_direct = sent.may_be_direct_write();
            if let Some(key) = peer.repairs.unchecked.keep(Psn(*psn), kept.insert(sent), may_be_direct) {
                kept.release(&mut self.pool, key);
            }
        }
        let (base, limit) = (Psn(saved.sent_base), Psn(saved.sent_limit));
        peer.sender = Sender::resume(repeat_of(saved.repeat), 1, base, limit, sent);
        peer.connection.phase = Phase::Open;
        peer.connection.remote = Some(Address {
            flow: saved.remote_flow,
            token: saved.remote_token,
            body_bytes,
            over_ipv6: peer.address.is_ipv6(),
            listens: saved.listens,
        });
        peer.paths[0].mtu = peer.fresh_mtu(peer.address);
        peer.fit();
        peer.connection.message_bytes_max = saved.message_bytes_max;
        peer.connection.local = Some(Local { index: saved.index, token: saved.token });
        peer.acks.restore_highest(Psn(saved.highest));
        peer.receive = Receive::restore(&saved.receive);
        self.budget.arrive(peer.receive.held_bytes());
        self.egress.connect(self.peers[index as usize].address);
        // The peer learns at once where we stand, and we what it has.
        self.peers[index as usize].acks.demand(tsumugi_wire::Kind::Ack, Psn(0));
        self.schedule(index);
        self.arm(Instant(0), index);
        Ok(())
    }
}
