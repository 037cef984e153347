//! What the rail is to be asked for and to send beside the packets of flows, and room to put bursts together.

use super::long_message::FRONT_BYTES_MAX;
use super::sent::PacketKey;
use std::net::SocketAddr;
use std::vec::Drain;
use tsumugi_wire::frame::FRAGMENT_BYTES;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::{Flags, Psn};

/// Stateless replies that may wait at once; more are not sent, the peer will ask again.
pub(crate) const REPLIES_MAX: usize = 256;
/// Longest head of a packet: header, frame header, and the beginning of a message that lies elsewhere, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = HEADER_BYTES + FRAGMENT_BYTES + FRONT_BYTES_MAX;

/// Room to put a burst together, kept so that nothing is allocated for it.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    pub(crate) packets: Vec<(Psn, PacketKey, Flags)>,
    /// A PROBE goes behind it: its packets do not bring back the answer that it needs.
    pub(crate) probed: bool,
    pub(crate) heads: Vec<[u8; HEAD_BYTES_MAX]>,
}

/// What is to go out.
#[derive(Debug, Default)]
pub(crate) struct Egress {
    /// Addresses that peers have taken up or left.
    connects: Vec<SocketAddr>,
    disconnects: Vec<SocketAddr>,
    /// Stateless answers: to whom, and the whole packet.
    replies: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) burst: Burst,
    /// Room for a packet that several peers get.
    pub(crate) multicast: Vec<u8>,
}

impl Egress {
    /// There will be traffic with an address.
    pub(crate) fn connect(&mut self, address: SocketAddr) {
        self.connects.push(address);
    }

    /// There will be no more.
    pub(crate) fn disconnect(&mut self, address: SocketAddr) {
        self.disconnects.push(address);
    }

    /// A packet is to be sent by itself.
    pub(crate) fn reply(&mut self, to: SocketAddr, packet: Vec<u8>) {
        // Once is enough. Equal packets in a row may be coalesced before the XDP program sees them, which then answers
        // none.
        let waits = self.replies.iter().any(|(other, reply)| *other == to && *reply == packet);
        if self.replies.len() < REPLIES_MAX && !waits {
            self.replies.push((to, packet));
        }
    }

    /// Packets that are to be sent by themselves.
    pub(crate) fn replies(&self) -> usize {
        self.replies.len()
    }

    #[inline]
    pub(crate) fn take_connects(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.connects)
    }

    #[inline]
    pub(crate) fn take_disconnects(&mut self) -> Drain<'_, SocketAddr> {
        self.disconnects.drain(..)
    }

    #[inline]
    pub(crate) fn take_replies(&mut self) -> Drain<'_, (SocketAddr, Vec<u8>)> {
        self.replies.drain(..)
    }
}
