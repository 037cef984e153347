//! Damage to packets, repeatable from a seed.

use super::exercise::seal;
use tsumugi_wire::Header;
use tsumugi_wire::header::HEADER_BYTES;

/// The splitmix64 generator: what a seed gives is the same for ever, whatever a crate's next version does.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Values at which comparisons turn.
const EDGES: [u8; 8] = [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff];

/// A packet made from `packets` by one to four changes; half of them with header check, length and CRC made
/// right again, so that the damage reaches what lies behind those.
pub(crate) fn mutant(random: &mut Random, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = packets[random.below(packets.len())].clone();
    for _ in 0..=random.below(4) {
        change(random, &mut bytes, packets);
    }
    if random.below(2) == 0 && bytes.len() >= HEADER_BYTES {
        if random.below(4) != 0 {
            let body_bytes = (bytes.len() - HEADER_BYTES).min(usize::from(u16::MAX)) as u16;
            bytes[42..44].copy_from_slice(&body_bytes.to_le_bytes());
            seal(&mut bytes);
            // Of a header that is refused nobody reads the body.
            if let Some(crc) =
                Header::decode(&bytes).ok().map(|(header, body, _)| super::body_check(&header, body))
            {
                bytes[44..48].copy_from_slice(&crc.to_le_bytes());
            }
        }
        seal(&mut bytes);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, packets: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes[at] = EDGES[random.below(EDGES.len())],
        // A word of one to eight bytes, all of one edge: lengths and offsets at their limits.
        3 => {
            let end = (at + (1 << random.below(4))).min(bytes.len());
            bytes[at..end].fill(EDGES[random.below(EDGES.len())]);
        }
        4 => bytes.truncate(at),
        5 => (0..=random.below(40)).for_each(|_| bytes.push(random.next() as u8)),
        6 => {
            bytes.remove(at);
        }
        // The end of another packet behind the beginning of this one.
        _ => {
            let other = &packets[random.below(packets.len())];
            bytes.truncate(at);
            if !other.is_empty() {
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
}
