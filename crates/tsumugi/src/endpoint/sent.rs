//! Packets that were sent, kept until nobody can ask for them any more.

use super::long_message::PieceHead;
use tsumugi_wire::frame::{Frame, Frames};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::remote::Opcode;

/// Key of a packet in [`crate::endpoint::core::State::sent_packets`].
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
}

impl SentPacket {
    /// Whether the XDP program may write what it carries directly: then nobody compares it.
    pub(crate) fn may_be_direct_write(&self) -> bool {
        let Body::Packet(body) = &self.body else { return false };
        let Some(Ok(Frame::Remote(remote, _))) = Frames::new(body).next() else { return false };
        [Opcode::Write, Opcode::Piece].map(|opcode| opcode as u16).contains(&remote.opcode)
    }
}
