//! BYE and RESET: how connections are left, in good order or not.

use super::{Core, Ended};
use crate::PeerId;
use crate::endpoint::peer::connection::Phase;
use crate::error::Reason;
use std::net::SocketAddr;
use tsumugi_proto::{ReceiveMemory, receive_bitmap};
use tsumugi_wire::defect;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

/// Time between two BYEs, ns.
pub(super) const BYE_INTERVAL_NS: u64 = 20 * MILLISECOND_NS;

impl Core {
    pub(super) fn on_bye(&mut self, now: Instant, index: u32, header: &Header) -> Result<(), Ended> {
        if !defect!(ByeBeforeReading) {
            self.drain(now); // what it sent before it left is still delivered
        }
        if self.peers.in_flow(header.flow) != Some(index) {
            return Ok(()); // what was read ended the connection
        }
        if !self.peers[index as usize].receive.damaged.is_empty() {
            return Ok(()); // it is still needed, and says BYE again
        }
        self.reply_on_flow(index, Kind::ByeAck);
        let peer = &self.peers[index as usize];
        let arrived =
            peer.connection.local.and_then(|local| self.memory.flow(local.index)).map(receive_bitmap::base);
        // What was sent after BYE may arrive before it. Who was dropped in the middle of a message says BYE, too.
        let is_whole =
            arrived.is_some_and(|arrived| arrived >= header.psn) && peer.receive.assemblies.is_empty();
        let reason = if is_whole { Reason::Closed } else { Reason::Aborted };
        Err(Ended(index, reason))
    }

    pub(super) fn on_bye_ack(&mut self, now: Instant, index: u32) -> Result<(), Ended> {
        self.drain(now); // as in on_bye: it may have sent something before our BYE arrived
        let peer = &self.peers[index as usize];
        if !matches!(peer.connection.phase, Phase::Leaving(_)) {
            return Ok(());
        }
        if peer.outbox.undelivered() > 0 {
            // Accepted after BYE was said, and the peer did not wait for it.
            return Err(Ended(index, Reason::Closed));
        }
        tracing::info!(peer = %peer.name, address = %peer.address, "the connection ended: this endpoint has closed it");
        self.forget(index);
        self.peers[index as usize].connection.phase = Phase::Gone(Reason::Closed);
        Ok(())
    }

    /// Tells the sender of a flow that it is not open here. The flow's token is repeated as proof.
    pub(super) fn reset(&mut self, to: SocketAddr, token: u64) {
        let mut reset = Header::new(Kind::Reset, self.incarnation.epoch);
        reset.token = token;
        self.reply(to, reset.encode().to_vec());
    }

    pub(super) fn on_reset(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        self.drain(now);
        let index = self.peers.at(from);
        let Some(index) = index.filter(|&index| {
            self.peers[index as usize]
                .connection
                .remote
                .is_some_and(|remote| remote.token == header.token || defect!(ResetNotChecked))
        }) else {
            self.memory.count(Counter::WrongToken, 1);
            return;
        };
        if matches!(self.peers[index as usize].connection.phase, Phase::Leaving(_)) {
            // It had said BYE too, and is gone.
            let outcome = self.on_bye_ack(now, index);
            self.apply(outcome);
        } else if self.peers[index as usize].is_confirmed() {
            self.end(Ended(index, Reason::Restarted));
        } else {
            self.withdraw_welcome(now, index);
        }
    }

    /// The peer had given up its handshake before WELCOME arrived. Nothing was sent in the flow: what waits is kept
    /// for the next.
    fn withdraw_welcome(&mut self, now: Instant, index: u32) {
        self.withdraw(index);
        let peer = &self.peers[index as usize];
        if !peer.outbox.is_empty() || peer.liveness.awaited() > 0 {
            self.start_handshake(now, index);
        }
    }

    /// Takes back a WELCOME that has not reached the peer.
    pub(super) fn withdraw(&mut self, index: u32) {
        self.close_flow(index);
        let peer = &mut self.peers[index as usize];
        // Neither that HELLO nor a copy of it may displace what follows.
        (peer.connection.remote, peer.connection.welcomed) = (None, None);
        peer.connection.withdrawn = peer.connection.withdrawn.wrapping_add(1);
        peer.outbox.announce_no_more();
        peer.connection.phase = Phase::Strange;
    }

    /// Says BYE to every peer that everything has been delivered to.
    pub fn leave(&mut self, now: Instant) {
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            match peer.connection.phase {
                Phase::Open if peer.sender.outstanding() == 0 && peer.outbox.is_empty() => {
                    peer.connection.phase = Phase::Leaving(now);
                    self.reply_on_flow(index, Kind::Bye);
                    self.arm(now, index);
                }
                Phase::Handshake(_) if peer.outbox.is_empty() => self.forget(index),
                _ => {}
            }
        }
    }

    /// Says BYE again to a peer that has not answered, over every path: nothing else may be in flight that would show
    /// which of them work.
    pub(super) fn repeat_bye(&mut self, index: u32) {
        for number in 0..self.peers[index as usize].paths.len() {
            let address = self.peers[index as usize].paths[number].address;
            if let Some(packet) = self.flow_packet(index, Kind::Bye, number as u8) {
                self.reply(address, packet.to_vec());
            }
        }
    }

    /// Says BYE at once to everyone, whatever is outstanding.
    pub fn abort(&mut self) {
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            if matches!(self.peers[index as usize].connection.phase, Phase::Open | Phase::Leaving(_)) {
                self.reply_on_flow(index, Kind::Bye);
            }
        }
    }

    /// Whether every peer has acknowledged BYE.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.peers.iter().all(|peer| matches!(peer.connection.phase, Phase::Strange | Phase::Gone(_)))
    }

    /// See [`crate::Endpoint::has_closed`].
    pub(crate) fn has_closed(&self, id: PeerId) -> bool {
        let peer = self.peers.get(self.canonical(id).0 as usize);
        peer.is_some_and(|peer| matches!(peer.connection.phase, Phase::Gone(Reason::Closed)))
    }

    /// Forgets that a peer is gone: the next message to it begins a new handshake.
    pub fn reset_peer(&mut self, index: u32) {
        let index = self.canonical(PeerId(index)).0;
        if let Some(peer) = self.peers.get_mut(index as usize)
            && matches!(peer.connection.phase, Phase::Gone(_))
        {
            peer.connection.phase = Phase::Strange;
        }
        self.told(|failure| failure.peer.0 == index);
    }
}
