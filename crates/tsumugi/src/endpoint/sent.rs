//! Packets that were sent, kept until nobody can ask for them any more.

use super::long_message::{LongMessages, PieceHead};
use crate::pool::Pool;
use slab::Slab;
use std::ops::Index;
use tsumugi_wire::frame::{Frame, Frames};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::remote::Opcode;

/// Key of a packet in [`Sent`].
pub(crate) type PacketKey = usize;

/// What a packet carries.
#[derive(Debug)]
pub(crate) enum Body {
    /// Frames, one behind the other.
    Packet(Vec<u8>),
    /// A fragment: what it begins with here, its data in a long message.
    Piece { head: PieceHead, key: usize, at: usize, bytes: usize },
}

/// A packet that was sent, kept until the peer has it and has compared it.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) body: Body,
    pub(crate) crc: u32,
}

impl SentPacket {
    /// Length of the datagram that carries it, bytes.
    pub(crate) fn datagram_bytes(&self) -> usize {
        HEADER_BYTES
            + match &self.body {
                Body::Packet(body) => body.len(),
                Body::Piece { head, bytes, .. } => head.len() + bytes,
            }
    }

    /// Whether the XDP program may write what it carries directly: then nobody compares it.
    pub(crate) fn may_be_direct_write(&self) -> bool {
        let Body::Packet(body) = &self.body else { return false };
        let Some(Ok(Frame::Remote(remote, _))) = Frames::new(body).next() else { return false };
        [Opcode::Write, Opcode::Piece].map(|opcode| opcode as u16).contains(&remote.opcode)
    }
}

/// The packets, and the long messages that they are fragments of.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    packets: Slab<SentPacket>,
    pub(crate) long_messages: LongMessages,
}

impl Index<PacketKey> for Sent {
    type Output = SentPacket;

    #[inline]
    fn index(&self, key: PacketKey) -> &SentPacket {
        &self.packets[key]
    }
}

impl Sent {
    /// Keeps a packet.
    pub(crate) fn insert(&mut self, packet: SentPacket) -> PacketKey {
        self.packets.insert(packet)
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PacketKey, &SentPacket)> {
        self.packets.iter()
    }

    /// A packet's body in the two parts that it lies in: what a fragment begins with, which is nothing for other packets, and the
    /// rest.
    #[inline]
    pub(crate) fn body(&self, key: PacketKey) -> (&[u8], &[u8]) {
        match &self.packets[key].body {
            Body::Packet(body) => (&[], body),
            Body::Piece { head, key, at, bytes } => (head, self.long_messages.get(*key).at(*at, *bytes)),
        }
    }

    /// Whether it ends a message whose memory somebody waits to have back.
    #[inline]
    pub(crate) fn ends_lent(&self, key: PacketKey) -> bool {
        let Body::Piece { key, at, bytes, .. } = &self.packets[key].body else { return false };
        self.long_messages.get(*key).lends_up_to(*at + *bytes)
    }

    /// Gives a packet up, and its memory back.
    pub(crate) fn release(&mut self, pool: &mut Pool, key: PacketKey) {
        match self.packets.remove(key).body {
            Body::Packet(body) => pool.give(body),
            Body::Piece { key, .. } => self.long_messages.release(pool, key),
        }
    }

    /// What must hold of the long messages, of which so many are waiting to be cut besides, by key.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn audit(&self, waiting: impl Iterator<Item = usize>) -> Result<(), String> {
        let mut users = vec![0; self.long_messages.iter().map(|(key, _)| key + 1).max().unwrap_or(0)];
        let fragments = self.packets.iter().filter_map(|(_, packet)| match packet.body {
            Body::Piece { key, .. } => Some(key),
            Body::Packet(_) => None,
        });
        fragments.chain(waiting).for_each(|key| users[key] += 1);
        match self.long_messages.iter().find(|(key, message)| message.users != users[*key]) {
            Some((key, message)) => {
                Err(format!("long message {key} has {} users, {} are", message.users, users[key]))
            }
            None => Ok(()),
        }
    }
}
