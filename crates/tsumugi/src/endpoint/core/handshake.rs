//! How connections begin: HELLO, CHALLENGE and WELCOME.

use super::{Core, Ended};
use crate::checksum::crc32c;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::{Address, Local, Phase, over_ipv6};
use crate::endpoint::peer::table::Tenant;
use crate::error::Reason;
use crate::{Integrity, PeerId};
use rand::RngExt;
use std::net::SocketAddr;
use tsumugi_proto::handshake::Handshake;
use tsumugi_proto::{ReceiveMemory, Sender, answer, receiver};
use tsumugi_wire::defect;
use tsumugi_wire::handshake::{Challenge, Offer, Refusal};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::{Header, Instant, Kind, Psn};

/// Credit that a new flow begins with, packets.
pub(super) const CREDIT_PACKETS_INITIAL: u16 = 256;

/// What a cookie for a HELLO of `epoch` from a known peer is bound to beside the HELLO: which connection it would
/// follow. See [`tsumugi_proto::handshake::Cookies::make`].
fn standing(peer: &Peer, epoch: u32, nonce: u64) -> u32 {
    match peer.connection.welcomed {
        // A copy of a HELLO that led to this connection gets the challenge that it got then: another would say
        // that the cookie is not good any more.
        Some((welcomed, standing)) if welcomed == nonce && peer.connection.epoch == epoch => standing,
        _ if defect!(CookieWithoutStanding) => 0,
        _ => {
            let another = if peer.connection.epoch == epoch { 0 } else { peer.connection.epoch };
            // The standing differs between a handshake that led to a connection and one that has led to nothing yet.
            let nth = peer
                .connection
                .number
                .wrapping_mul(2)
                .wrapping_add(u32::from(peer.connection.remote.is_some()));
            let withdrawn = peer.connection.withdrawn.wrapping_mul(0x85eb_ca6b);
            let used = u32::from(peer.is_used_unheard()).wrapping_mul(0xc2b2_ae35);
            // So that two hardly ever agree.
            another ^ nth.wrapping_add(withdrawn).wrapping_add(used).wrapping_mul(0x9e37_79b1)
        }
    }
}

impl Core {
    /// Begins the handshake with a peer that something is to be sent to.
    pub(super) fn start_handshake(&mut self, now: Instant, index: u32) {
        if !matches!(self.peers[index as usize].connection.phase, Phase::Strange) {
            return;
        }
        let nonce = self.incarnation.random.random();
        let peer = &mut self.peers[index as usize];
        peer.connection.phase = Phase::Handshake(Handshake::new(now, nonce));
        tracing::debug!(peer = %peer.name, address = %peer.address, "asked for a connection");
        // Errors that the kernel reports for packets to it must reach us.
        self.egress.connect(peer.address);
        self.schedule(index);
        self.arm(now, index);
    }

    /// Begins the handshake with a peer if there was none yet. Returns whether what is sent to it goes out at once: not
    /// during the handshake.
    pub(crate) fn connect(&mut self, now: Instant, id: PeerId) -> bool {
        let index = self.canonical(id).0;
        match self.peers[index as usize].connection.phase {
            Phase::Strange => {
                self.start_handshake(now, index);
                false
            }
            Phase::Handshake(_) => false,
            Phase::Open | Phase::Leaving(_) | Phase::Gone(_) => true,
        }
    }

    /// The HELLO that is due to a peer, if one is.
    pub(super) fn hello(&mut self, now: Instant, index: u32) -> Option<Vec<u8>> {
        let Phase::Handshake(handshake) = &self.peers[index as usize].connection.phase else { return None };
        if now < handshake.due {
            return None;
        }
        if handshake.is_refused() {
            self.restart_handshake(now, index);
        }
        let Phase::Handshake(handshake) = &self.peers[index as usize].connection.phase else { return None };
        let (nonce, cookie) = (handshake.nonce, handshake.cookie);
        // Nothing is offered before the peer has answered.
        let local = if cookie == 0 { Some(Local { index: 0, token: 0 }) } else { self.local_flow(index) };
        let offer = self.offer(self.peers[index as usize].address, local?, nonce, cookie);
        if let Phase::Handshake(handshake) = &mut self.peers[index as usize].connection.phase {
            handshake.said(now);
        }
        Some(self.packet(Kind::Hello, &offer.encode()))
    }

    /// The peer has forgotten what our HELLO offered, or never accepted it: another flow and another handshake, so that
    /// no late packet of the old one is taken for one of the new.
    fn restart_handshake(&mut self, now: Instant, index: u32) {
        if self.end_used_unheard(index) {
            return;
        }
        self.close_flow(index);
        let nonce = self.incarnation.random.random();
        self.peers[index as usize].connection.phase = Phase::Handshake(Handshake::new(now, nonce));
    }

    /// Ends the connection to a peer that has sent something in the flow that we still offer it; `false` if it has not. It has
    /// given up since, and what it sends from now on must not be taken for what it sent then.
    fn end_used_unheard(&mut self, index: u32) -> bool {
        let is = self.peers[index as usize].is_used_unheard();
        if is {
            self.end(Ended(index, Reason::Restarted));
        }
        is
    }

    /// A HELLO that asks no more than who is there.
    pub(super) fn question(&self, to: SocketAddr, nonce: u64) -> Vec<u8> {
        self.packet(Kind::Hello, &self.offer(to, Local { index: 0, token: 0 }, nonce, 0).encode())
    }

    /// Longest datagram of ours to or from a peer that we talk with at this address, bytes.
    fn datagram_bytes_at(&self, address: SocketAddr) -> usize {
        let bytes = self.options.datagram_bytes;
        if self.multirail.is_shorter_over_ipv6 && address.is_ipv6() { over_ipv6(bytes) } else { bytes }
    }

    fn offer(&self, to: SocketAddr, local: Local, nonce: u64, cookie: u64) -> Offer {
        Offer {
            job: self.options.job,
            nonce,
            cookie,
            token: local.token,
            flow: local.index,
            repeat: self.options.repeat,
            listens: self.options.listens,
            trusts_wire: self.options.integrity == Integrity::Wire,
            datagram_bytes: self.datagram_bytes_at(to) as u16,
            message_bytes_max: self.options.message_bytes_max,
        }
    }

    /// A whole packet of no flow.
    pub(super) fn packet(&self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut header = Header::new(kind, self.incarnation.epoch);
        header.body_bytes = body.len() as u16;
        header.body_crc = crc32c(body);
        let mut packet = header.encode().to_vec();
        packet.extend_from_slice(body);
        packet
    }

    pub(super) fn reply(&mut self, to: SocketAddr, packet: Vec<u8>) {
        self.egress.reply(to, packet);
    }

    /// Queues a packet without body on the flow to a peer.
    pub(super) fn reply_on_flow(&mut self, index: u32, kind: Kind) {
        let address = self.peers[index as usize].usual_address();
        if let Some(packet) = self.flow_packet(index, kind, 0) {
            self.reply(address, packet.to_vec());
        }
    }

    /// A packet without body on the flow to a peer; `None` before the peer has said which that is.
    pub(super) fn flow_packet(&mut self, index: u32, kind: Kind, path: u8) -> Option<[u8; HEADER_BYTES]> {
        let psn = if kind == Kind::Bye { self.peers[index as usize].sender.next() } else { Psn(0) };
        self.flow_packet_about(index, kind, path, psn)
    }

    /// The same about a packet.
    pub(super) fn flow_packet_about(
        &mut self,
        index: u32,
        kind: Kind,
        path: u8,
        psn: Psn,
    ) -> Option<[u8; HEADER_BYTES]> {
        let (ack, credit) = self.credit(index);
        let peer = &self.peers[index as usize];
        let remote = peer.connection.remote?;
        let mut header = Header::new(kind, self.incarnation.epoch);
        (header.flow, header.token, header.path) = (remote.flow, remote.token, path);
        (header.flags, header.psn) = (self.has_ack(index), psn);
        (header.ack, header.credit) = (ack, credit);
        Some(header.encode())
    }

    /// Our entry in the flow table for a peer, made when there is none yet.
    fn local_flow(&mut self, index: u32) -> Option<Local> {
        if let Some(local) = self.peers[index as usize].connection.local {
            return Some(local);
        }
        let free = self.peers.free_flow()?;
        let local = Local { index: free, token: self.incarnation.random.random_range(1..=u64::MAX) };
        self.peers.set_flow(free, Some(Tenant::Peer(index)));
        self.peers[index as usize].connection.local = Some(local);
        Some(local)
    }

    /// Whether the offer is of our job and leaves room for something to send.
    fn is_acceptable(&self, offer: &Offer) -> bool {
        offer.job == self.options.job && usize::from(offer.datagram_bytes) >= DATAGRAM_BYTES_MIN
    }

    /// Closes our entry in the flow table for a peer.
    pub(super) fn close_flow(&mut self, index: u32) {
        if let Some(local) = self.peers[index as usize].connection.local.take() {
            if let Some(flow) = self.memory.flow(local.index) {
                receiver::close(flow);
            }
            self.peers.set_flow(local.index, None);
        }
    }

    pub(super) fn on_hello(&mut self, now: Instant, from: SocketAddr, header: &Header, offer: &Offer) {
        // First of all: what was deposited before it may change how things stand with the peer.
        self.drain(now);
        let known = self.peers.at(from);
        let same = if known.is_none() { self.recognise(header.epoch, offer.token, from) } else { None };
        let listed = known.or(same).is_some() || self.options.accept_unknown;
        let refusal = if offer.job != self.options.job {
            Some(Refusal::Job(self.options.job))
        } else if !listed {
            Some(Refusal::Stranger)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.refuse_peer(from, offer.nonce, refusal);
            return;
        }
        if !self.is_acceptable(offer) {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        }
        let peer = known.map(|index| &self.peers[index as usize]);
        // The HELLO that was accepted, again: its WELCOME was lost.
        let again = known.or(same).map(|index| &self.peers[index as usize]).is_some_and(|peer| {
            peer.connection.epoch == header.epoch
                && peer.connection.remote.is_some_and(|remote| remote.token == offer.token)
        });
        let standing = peer.map_or(0, |peer| standing(peer, header.epoch, offer.nonce));
        let proved = again
            || self.incarnation.cookies.check(now, from, header.epoch, offer.nonce, standing, offer.cookie)
            || (offer.cookie != 0 && defect!(CookieNotChecked));
        if !proved {
            let cookie = self.incarnation.cookies.make(now, from, header.epoch, offer.nonce, standing);
            let packet = self.packet(Kind::Challenge, &Challenge { nonce: offer.nonce, cookie }.encode());
            self.reply(from, packet);
            return;
        }
        // Only a question names no flow.
        if offer.token == 0 {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        }
        if known.or(same).is_none() && self.is_kept_waiting(now, from, header, offer) {
            return;
        }
        let entered = match same {
            Some(index) => Ok(PeerId(index)),
            None => self.enter_peer(&from.to_string(), from),
        };
        let Ok(id) = entered else {
            self.turn_away(from, offer.nonce);
            return;
        };
        let index = id.0;
        if same.is_some() {
            self.add_alias(index, from);
        }
        // It was challenged after it had sent that, so it had given up by then.
        self.end_used_unheard(index);
        let peer = &self.peers[index as usize];
        let another_epoch = peer.connection.epoch != 0 && peer.connection.epoch != header.epoch;
        let another_flow = peer.connection.remote.is_some_and(|remote| remote.token != offer.token);
        match peer.connection.phase {
            // It, or an incarnation before it, gave up before WELCOME arrived. Nothing was sent to either.
            Phase::Open if (another_epoch || another_flow) && !peer.is_confirmed() => self.withdraw(index),
            // A new incarnation. What was outstanding with the former is lost, and the caller is told.
            Phase::Open | Phase::Leaving(_) if another_epoch || another_flow => {
                if defect!(RestartUnnoticed) {
                    self.forget(index);
                } else {
                    self.end(Ended(index, Reason::Restarted));
                }
                self.peers[index as usize].connection.phase = Phase::Strange;
            }
            Phase::Gone(_) => self.peers[index as usize].connection.phase = Phase::Strange,
            // What waits here was never sent to anyone: it goes to the new incarnation.
            _ => {}
        }
        let Some(local) = self.local_flow(index) else {
            self.turn_away(from, offer.nonce);
            return;
        };
        let accepted = self.accept(now, index, from, header.epoch, offer, 0);
        if self.apply(accepted).is_none() {
            return;
        }
        self.peers[index as usize].connection.welcomed = Some((offer.nonce, standing));
        let welcome = self.offer(from, local, offer.nonce, 0);
        let packet = self.packet(Kind::Welcome, &welcome.encode());
        self.reply(from, packet);
    }

    pub(super) fn on_challenge(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        challenge: Challenge,
    ) {
        let Some(index) = self.peers.at(from) else {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        };
        self.drain(now);
        if matches!(self.peers[index as usize].connection.phase, Phase::Strange) {
            return self.on_introduction(now, index, header, challenge);
        }
        let peer = &mut self.peers[index as usize];
        let Phase::Handshake(handshake) = &mut peer.connection.phase else { return };
        let said_at = handshake.said_at;
        if handshake.refused(challenge.nonce, challenge.cookie) {
            peer.liveness.hear(now);
            return;
        }
        let is_first = challenge.nonce == handshake.nonce && handshake.cookie == 0;
        if is_first && self.is_suspect(now, index, from, header.epoch) {
            self.peers[index as usize].liveness.hear(now);
            return;
        }
        let peer = &mut self.peers[index as usize];
        let Phase::Handshake(handshake) = &mut peer.connection.phase else { return };
        if !handshake.challenged(now, challenge.nonce, challenge.cookie) {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        }
        peer.liveness.hear(now);
        peer.sender.sample(0, now.since(said_at).max(1));
        self.schedule(index);
        // It may ask by PROBE as soon as it has our next HELLO, and overtake its own WELCOME.
        if let Some(local) = self.local_flow(index) {
            self.open_flow(index, local, header.epoch, None);
        }
        self.let_in(now, header.epoch);
    }

    pub(super) fn on_welcome(&mut self, now: Instant, from: SocketAddr, header: &Header, offer: &Offer) {
        if let Some(refusal) = offer.refusal() {
            self.on_refusal(now, from, offer.nonce, refusal);
            return;
        }
        // A WELCOME that accepts us names a flow.
        if !self.is_acceptable(offer) || offer.token == 0 {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        }
        let index = self.peers.at(from);
        let expected = index.is_some_and(|index| match &self.peers[index as usize].connection.phase {
            Phase::Handshake(handshake) => handshake.nonce == offer.nonce && handshake.cookie != 0,
            _ => false,
        });
        match index {
            // We gave up a connection after we had sent something in this flow, and the peer does not know that. What we
            // send in the flow from PSN 0 on would be taken for copies of what we sent then.
            Some(index)
                if expected
                    && self.peers[index as usize].connection.former_token == offer.token
                    && !defect!(FormerFlowTaken) =>
            {
                self.restart_handshake(now, index);
                self.schedule(index);
            }
            Some(index) if expected => {
                let accepted = self.accept(now, index, from, header.epoch, offer, CREDIT_PACKETS_INITIAL);
                self.apply(accepted);
            }
            // A second WELCOME after a HELLO that was sent twice, or its answer to ours that crossed its own.
            Some(index) if matches!(self.peers[index as usize].connection.phase, Phase::Open) => {
                let peer = &mut self.peers[index as usize];
                if peer.connection.remote.is_some_and(|remote| remote.token == offer.token) {
                    peer.sender.grant(CREDIT_PACKETS_INITIAL);
                    self.schedule(index);
                }
            }
            _ => self.memory.count(Counter::HandshakeRefused, 1),
        }
    }

    /// Takes the peer's offer: from now on packets flow. The side that says WELCOME has no credit before the peer has
    /// sent something in the flow, or has answered a PROBE: it may have given up and not know of the flow.
    fn accept(
        &mut self,
        now: Instant,
        index: u32,
        from: SocketAddr,
        epoch: u32,
        offer: &Offer,
        credit: u16,
    ) -> Result<(), Ended> {
        let Some(local) = self.peers[index as usize].connection.local else { return Ok(()) };
        self.open_flow(index, local, epoch, Some(offer));
        let own_bytes = self.datagram_bytes_at(from);
        let repeat = self.options.repeat;
        let peer = &mut self.peers[index as usize];
        let fresh = peer.connection.remote.is_none();
        if fresh {
            tracing::info!(peer = %peer.name, %from, epoch = %format_args!("{epoch:08x}"), "connected");
        }
        peer.liveness.hear(now);
        peer.connection.remote = Some(Address {
            flow: offer.flow,
            token: offer.token,
            body_bytes: own_bytes.min(usize::from(offer.datagram_bytes)) - HEADER_BYTES,
            over_ipv6: from.is_ipv6(),
            listens: offer.listens,
            trusts_wire: offer.trusts_wire && self.options.integrity == Integrity::Wire,
        });
        peer.connection.message_bytes_max = offer.message_bytes_max;
        if fresh {
            let rtt_ns = peer.sender.paths()[0].rtt.srtt_ns;
            peer.sender = Sender::new(repeat, 1, credit);
            peer.sender.sample(0, rtt_ns);
            // What it told of its NICs may have overtaken this.
            peer.paths.keep_first();
            peer.paths[0].mtu = peer.fresh_mtu(peer.paths[0].address);
            peer.fit();
            self.egress.connect(peer.address);
            self.find_paths(now, index);
        }
        let peer = &mut self.peers[index as usize];
        if !matches!(peer.connection.phase, Phase::Leaving(_)) {
            peer.connection.phase = Phase::Open;
        }
        let limit = offer.message_bytes_max;
        if self.peers[index as usize].outbox.has_longer_than(limit) {
            // It was accepted before the peer had said its limit. The peer would take it for a violation.
            self.peers[index as usize].connection.phase = Phase::Leaving(now);
            self.reply_on_flow(index, Kind::Bye);
            return Err(Ended(index, Reason::TooLong(limit)));
        }
        if fresh && self.has_several_nics() {
            self.announce(index);
        }
        self.schedule(index);
        self.arm(now, index);
        self.watch_soon(now);
        Ok(())
    }

    /// Opens the entry of the flow table, unless it is open for this epoch already.
    fn open_flow(&mut self, index: u32, local: Local, epoch: u32, offer: Option<&Offer>) {
        let memory = &self.memory;
        let Some(flow) = memory.flow(local.index) else { return };
        let peer = &mut self.peers[index as usize];
        use tsumugi_wire::atomic::Ordering::{Acquire, Relaxed};
        let open = flow.token.load(Acquire) == local.token && flow.epoch.load(Relaxed) == epoch;
        if !open {
            receiver::open(
                flow,
                local.token,
                epoch,
                tsumugi_wire::handshake::Repeat::Selective,
                u64::from(CREDIT_PACKETS_INITIAL),
            );
            peer.connection.epoch = epoch;
        }
        if let Some(offer) = offer {
            flow.repeat.store(offer.repeat as u32, Relaxed);
            answer::address(flow, offer.flow, offer.token);
        }
    }
}
