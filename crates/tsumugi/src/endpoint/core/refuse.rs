//! Peers that are refused, and peers that refuse.

use super::{Core, Ended};
use crate::endpoint::peer::connection::Phase;
use crate::error::Reason;
use std::net::SocketAddr;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::handshake::{Offer, Refusal};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::time::SECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

/// How long a peer that refuses is asked again, ns.
const REFUSED_NS: u64 = SECOND_NS;

impl Core {
    /// Says why a HELLO is refused. It costs less than the HELLO that it answers, and nothing is remembered.
    pub(super) fn refuse_peer(&mut self, from: SocketAddr, nonce: u64, refusal: Refusal) {
        self.memory.count(Counter::HandshakeRefused, 1);
        tracing::debug!(%from, "a connection was refused: {refusal}");
        let refused = Offer::refusing(self.options.job, nonce, refusal);
        let packet = self.packet(Kind::Welcome, &refused.encode());
        self.reply(from, packet);
    }

    /// A packet of another version of the protocol has come, of which nothing can be read but its kind. A HELLO is answered, so
    /// that its sender learns our version; nothing else is, or two versions would answer each other for ever.
    pub(super) fn on_other_version(&mut self, from: SocketAddr, version: u8, packet: &[u8]) {
        let connects = Header::kind_in_any_version(packet) == Some(Kind::Hello);
        let known = self.peers.at(from);
        if connects && packet.len() >= HEADER_BYTES {
            let packet = self.packet(Kind::Reset, &[]);
            self.reply(from, packet);
        }
        if let Some(index) = known {
            self.peers[index as usize].liveness.hear_version(version);
        }
        if (connects || known.is_some()) && !std::mem::replace(&mut self.identities.has_told_of_version, true)
        {
            tracing::warn!(
                %from,
                "a peer speaks version {version} of the protocol, and this is version {VERSION}: install the same version of Tsumugi \
                 on both hosts"
            );
        }
    }

    /// There is no room for another peer.
    pub(super) fn turn_away(&mut self, from: SocketAddr, nonce: u64) {
        let peers_max = self.options.peers_max;
        let count = self.identities.turned_away.map_or(0, |(count, _)| count) + 1;
        self.identities.turned_away = Some((count, from));
        if count == 1 {
            tracing::warn!(
                %from,
                "a peer was refused: there is room for {peers_max}, and all are there; raise Config::peers_max"
            );
        }
        // Some of those that have a place may have been killed without our noticing.
        self.watch();
        self.refuse_peer(from, nonce, Refusal::Full(u64::from(peers_max)));
    }

    /// How many HELLOs were refused for want of room, the last one's sender, and how many peers there may be.
    pub(crate) fn turned_away(&self) -> Option<(u64, SocketAddr, u32)> {
        self.identities.turned_away.map(|(count, from)| (count, from, self.options.peers_max))
    }

    /// The peer refuses the connection. A while later it may accept: when another has left, or it was started anew.
    pub(super) fn on_refusal(&mut self, now: Instant, from: SocketAddr, nonce: u64, refusal: Refusal) {
        let Some(index) = self.peers.at(from) else {
            self.memory.count(Counter::HandshakeRefused, 1);
            return;
        };
        let patience_ns = REFUSED_NS.min(self.options.connect_timeout_ns / 2);
        let peer = &self.peers[index as usize];
        match &peer.connection.phase {
            Phase::Handshake(handshake) if handshake.nonce == nonce => {
                if peer.liveness.waiting_since().is_some_and(|since| now.since(since) >= patience_ns) {
                    self.end(Ended(index, Reason::Refused(refusal)));
                }
            }
            _ => self.memory.count(Counter::HandshakeRefused, 1),
        }
    }
}
