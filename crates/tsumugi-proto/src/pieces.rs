//! Puts packets together that arrive in pieces, because they are too long for their path (`tsumugi_wire::piece`).
//!
//! Which packets are in pieces is forgotten at will: what was not acknowledged is sent again, all of it. So the
//! memory is bounded, and the packet that is needed first stays.

use alloc::vec;
use alloc::vec::Vec;
use tsumugi_wire::Psn;
use tsumugi_wire::piece::{PACKET_BODY_BYTES_MAX, PIECE_ALIGN, Piece};

/// Packets of a flow that may be in pieces at once.
pub const JOINS_MAX: usize = 32;

/// Words of bits, one for each [`PIECE_ALIGN`] bytes of the longest body.
const WORDS: usize = PACKET_BODY_BYTES_MAX.div_ceil(PIECE_ALIGN).div_ceil(64);

#[derive(Clone, Debug)]
struct Join {
    psn: Psn,
    crc: u32,
    body: Vec<u8>,
    /// Which units of the body are there.
    have: [u64; WORDS],
    /// How many are not.
    missing: usize,
}

impl Join {
    fn new(psn: Psn, piece: &Piece) -> Join {
        let bytes = usize::from(piece.packet_bytes);
        Join {
            psn,
            crc: piece.packet_crc,
            body: vec![0; bytes],
            have: [0; WORDS],
            missing: bytes.div_ceil(PIECE_ALIGN),
        }
    }
}

/// The packets of a flow of which pieces are here.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    joins: Vec<Join>,
}

impl Pieces {
    /// A piece of packet `psn` arrived. The packet's body, if it is whole with it. Packets before `base` have been
    /// deposited, and nothing is kept of them.
    pub fn put(&mut self, base: Psn, psn: Psn, piece: &Piece, data: &[u8]) -> Option<Vec<u8>> {
        self.joins.retain(|join| join.psn >= base);
        let at = self.place_of(psn, piece)?;
        let join = &mut self.joins[at];
        let first = usize::from(piece.at) / PIECE_ALIGN;
        for unit in first..first + data.len().div_ceil(PIECE_ALIGN) {
            let (word, bit) = (unit / 64, 1 << (unit % 64));
            join.missing -= usize::from(join.have[word] & bit == 0);
            join.have[word] |= bit;
        }
        join.body[usize::from(piece.at)..][..data.len()].copy_from_slice(data);
        (join.missing == 0).then(|| self.joins.swap_remove(at).body)
    }

    /// Where the packet is put together; `None`: others are needed first, and there is no room.
    fn place_of(&mut self, psn: Psn, piece: &Piece) -> Option<usize> {
        if let Some(at) = self.joins.iter().position(|join| join.psn == psn) {
            let join = &mut self.joins[at];
            if join.crc != piece.packet_crc || join.body.len() != usize::from(piece.packet_bytes) {
                *join = Join::new(psn, piece); // no packet changes: one of the two is not the sender's
            }
            return Some(at);
        }
        if self.joins.len() >= JOINS_MAX {
            let (last, furthest) = self.joins.iter().enumerate().max_by_key(|(_, join)| join.psn)?;
            if furthest.psn < psn {
                return None;
            }
            self.joins.swap_remove(last);
        }
        self.joins.push(Join::new(psn, piece));
        Some(self.joins.len() - 1)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.joins.clear();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use tsumugi_wire::piece::piece_data_bytes;

    fn body_of(psn: u64, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at as u64 * 31 + psn * 7) as u8).collect()
    }

    /// The pieces of a packet for a path that takes so many bytes.
    fn cut(psn: u64, body: &[u8], datagram_bytes: usize) -> Vec<(Psn, Piece, Vec<u8>)> {
        let piece =
            |at: usize| Piece { packet_bytes: body.len() as u16, at: at as u16, packet_crc: psn as u32 };
        let step = piece_data_bytes(datagram_bytes);
        let cut = |at: usize| (Psn(psn), piece(at), body[at..body.len().min(at + step)].to_vec());
        (0..body.len()).step_by(step).map(cut).collect()
    }

    proptest! {
        /// Two transmissions, cut for different paths, in any order and with copies: the packet comes out whole, as soon
        /// as every byte is there, and no sooner.
        #[test]
        fn pieces_of_several_transmissions_fit_together(
            bytes in 1..=PACKET_BODY_BYTES_MAX,
            lengths in proptest::collection::vec(120usize..9000, 1..4),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..400),
        ) {
            let body = body_of(3, bytes);
            let all: Vec<_> = lengths.iter().flat_map(|length| cut(3, &body, *length)).collect();
            let mut pieces = Pieces::default();
            let mut there = vec![false; bytes];
            // At random, and then all that there is.
            let random: Vec<usize> = order.iter().map(|index| index.index(all.len())).collect();
            for at in random.into_iter().chain(0..all.len()) {
                let (psn, piece, data) = &all[at];
                let from = usize::from(piece.at);
                there[from..from + data.len()].fill(true);
                let whole = pieces.put(Psn(0), *psn, piece, data);
                prop_assert_eq!(whole.is_some(), there.iter().all(|byte| *byte));
                if let Some(whole) = whole {
                    prop_assert_eq!(whole, body);
                    return Ok(());
                }
            }
            prop_assert!(false, "never whole");
        }
    }

    #[test]
    fn what_is_needed_first_stays_and_the_rest_is_bounded() {
        let mut pieces = Pieces::default();
        let first = |psn| cut(psn, &body_of(psn, 1000), 600).swap_remove(0);
        for psn in (100..100 + 2 * JOINS_MAX as u64).rev() {
            let (psn, piece, data) = first(psn);
            assert_eq!(pieces.put(Psn(0), psn, &piece, &data), None);
            assert!(pieces.joins.len() <= JOINS_MAX);
        }
        let kept: Vec<u64> = pieces.joins.iter().map(|join| join.psn.0).collect();
        assert!(kept.iter().all(|psn| *psn < 100 + JOINS_MAX as u64), "{kept:?}");
        let (_, last, rest) = cut(100, &body_of(100, 1000), 600).swap_remove(1);
        assert_eq!(pieces.put(Psn(0), Psn(100), &last, &rest), Some(body_of(100, 1000)));
        // What has been deposited meanwhile is forgotten.
        let (psn, piece, data) = first(500);
        assert_eq!(pieces.put(Psn(500), psn, &piece, &data), None);
        assert_eq!(pieces.joins.len(), 1);
    }

    #[test]
    fn pieces_that_disagree_about_their_packet_are_never_mixed() {
        let mut pieces = Pieces::default();
        let (psn, piece, data) = cut(1, &body_of(1, 1000), 600).swap_remove(0);
        assert_eq!(pieces.put(Psn(0), psn, &piece, &data), None);
        for (_, piece, data) in cut(2, &body_of(2, 1000), 600).into_iter().skip(1) {
            assert_eq!(pieces.put(Psn(0), psn, &piece, &data), None);
        }
    }
}
