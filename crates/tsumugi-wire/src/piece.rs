//! Pieces of a packet: how a DATA packet that was cut for a longer path travels over a shorter one.
//!
//! A packet is numbered and its payload fixed once and for all, but how much a path carries may change while it is
//! under way. Then it is sent again in pieces, all under its PSN, and whoever receives them puts it together. Pieces
//! begin at multiples of [`PIECE_ALIGN`], so that those of different transmissions, cut for different paths, fit
//! together.
//!
//! ```text
//! packet_bytes u16 | at u16 | packet_crc u32 | data
//! ```

use crate::header::HEADER_BYTES;
use crate::limits::DATAGRAM_BYTES_MAX;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in front of a piece's data.
pub const PIECE_BYTES: usize = 8;
/// Pieces begin at multiples of so many bytes, and all but the last of a packet end at one.
pub const PIECE_ALIGN: usize = 64;
/// Longest body of a packet, bytes.
pub const PACKET_BODY_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    packet_bytes: U16,
    at: U16,
    packet_crc: U32,
}

const _: () = assert!(size_of::<Layout>() == PIECE_BYTES);

/// Which part of its packet's body a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Length of the packet's body.
    pub packet_bytes: u16,
    /// Place of the piece's first byte in it.
    pub at: u16,
    /// CRC32C of the packet's body.
    pub packet_crc: u32,
}

/// A body that is no piece of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a piece of {bytes} bytes that fits nowhere in its packet")]
pub struct MalformedPiece {
    /// Length of the body, bytes.
    pub bytes: usize,
}

impl Piece {
    /// What goes before the piece's data.
    #[must_use]
    pub fn encode(&self) -> [u8; PIECE_BYTES] {
        zerocopy::transmute!(Layout {
            packet_bytes: U16::new(self.packet_bytes),
            at: U16::new(self.at),
            packet_crc: U32::new(self.packet_crc),
        })
    }

    /// Reads a PIECE's body: which piece it is, and its data.
    ///
    /// # Errors
    /// It is empty, begins or ends where no piece does, or is not within a packet that there may be.
    pub fn decode(body: &[u8]) -> Result<(Piece, &[u8]), MalformedPiece> {
        let malformed = MalformedPiece { bytes: body.len() };
        let (layout, data) = Layout::ref_from_prefix(body).map_err(|_| malformed)?;
        let piece = Piece {
            packet_bytes: layout.packet_bytes.get(),
            at: layout.at.get(),
            packet_crc: layout.packet_crc.get(),
        };
        let (all, at) = (usize::from(piece.packet_bytes), usize::from(piece.at));
        let end = at + data.len();
        let ends = end == all || end < all && end.is_multiple_of(PIECE_ALIGN);
        if data.is_empty() || all > PACKET_BODY_BYTES_MAX || !at.is_multiple_of(PIECE_ALIGN) || !ends {
            return Err(malformed);
        }
        Ok((piece, data))
    }
}

/// Bytes of data in a piece, all but the last of a packet, in datagrams of at most `datagram_bytes`.
#[must_use]
pub const fn piece_data_bytes(datagram_bytes: usize) -> usize {
    let room = datagram_bytes.saturating_sub(HEADER_BYTES + PIECE_BYTES) / PIECE_ALIGN * PIECE_ALIGN;
    if room == 0 { PIECE_ALIGN } else { room }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn a_packet_cut_into_pieces_is_whole_and_every_piece_fits(body in proptest::collection::vec(any::<u8>(), 1..=PACKET_BODY_BYTES_MAX), datagram_bytes in 120usize..=DATAGRAM_BYTES_MAX) {
            let step = piece_data_bytes(datagram_bytes);
            let mut whole = Vec::new();
            for at in (0..body.len()).step_by(step) {
                let data = &body[at..body.len().min(at + step)];
                let piece = Piece { packet_bytes: body.len() as u16, at: at as u16, packet_crc: 7 };
                let mut bytes = piece.encode().to_vec();
                bytes.extend_from_slice(data);
                prop_assert!(HEADER_BYTES + bytes.len() <= datagram_bytes);
                prop_assert_eq!(Piece::decode(&bytes), Ok((piece, data)));
                whole.extend_from_slice(data);
            }
            prop_assert_eq!(whole, body);
        }

        #[test]
        fn any_bytes_are_a_piece_within_its_packet_or_none(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((piece, data)) = Piece::decode(&body) {
                prop_assert!(usize::from(piece.at) + data.len() <= usize::from(piece.packet_bytes));
            }
        }
    }

    #[test]
    fn what_fits_nowhere_is_refused() {
        let body = |packet_bytes, at, bytes| {
            let mut body = Piece { packet_bytes, at, packet_crc: 0 }.encode().to_vec();
            body.resize(PIECE_BYTES + bytes, 0);
            Piece::decode(&body).is_ok()
        };
        assert!(body(100, 0, 64) && body(100, 64, 36) && body(100, 0, 100));
        assert!(!body(100, 0, 63), "it ends within a unit");
        assert!(!body(100, 32, 68), "it begins within a unit");
        assert!(!body(100, 64, 37), "it ends beyond its packet");
        assert!(!body(100, 64, 0), "it is empty");
        assert!(!body(PACKET_BODY_BYTES_MAX as u16 + 1, 0, 64), "there is no such packet");
    }
}
