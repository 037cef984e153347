//! What collective operations look like inside their channel's messages. Numbers are little-endian.
//!
//! ```text
//! kind u8 | operation u8 | element u8 | reduction u8 | root u32 | rank u32 | size u32 | sequence u64 | started u64
//!   | function u64 | bytes u64 | whole u64 | at u64 | data
//!
//! data      bytes `at` and following of a transfer of `whole` bytes of operation `sequence`
//! ask       "tell me when you have started operation `sequence`"; at: a number to be repeated, or 0: "this is what I wait for"
//! started   the answer; at: that number
//! without   operations from `sequence` on go by messages, if there was a switch box that counted
//! asked     "what came of operation `sequence`, which the box has counted?"
//! counted   the answer; data: the words, 8 × u64
//! to all    as data; the root of a broadcast sends them to everybody itself
//! abort     operations from `sequence` on are not done any more; operation: why; root: the rank that is to blame
//! ```
//!
//! `rank` and `size` are the sender's, `started` is how many operations it has started. `operation` to `root`, `function` and `bytes`
//! of data and ask are the sender's [`Call`].

use super::call::{Call, Collective};
use super::element::ElementKind;
use super::reduction::ReductionKind;
use tsumugi_wire::group::WORDS_MAX;

/// The words of an operation that a box has counted.
pub(super) type Words = [u64; WORDS_MAX];

/// Bytes in front of the data.
pub(super) const HEADER_BYTES: usize = 64;
/// Stands for a root where there is none.
const NO_ROOT: u32 = u32::MAX;

/// Why a participant gives the group up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Why {
    /// The participant to blame is gone.
    Gone = 1,
    /// What it has started, or sent, does not fit what others have started.
    Mismatch,
    /// It has dropped the group with operations under way, or while others had started more.
    Left,
    /// Nothing can be sent to it.
    Unsent,
}

impl Why {
    fn of(number: u8) -> Option<Why> {
        [Why::Gone, Why::Mismatch, Why::Left, Why::Unsent].into_iter().find(|known| *known as u8 == number)
    }
}

/// Where in an operation data belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) call: Call,
    /// Length of the transfer, bytes.
    pub(super) whole: u64,
    /// What of it this begins with.
    pub(super) at: u64,
    /// The root sends the same to everybody.
    pub(super) is_to_all: bool,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data(Part),
    Ask { call: Call, token: u64 },
    Started { token: u64 },
    Abort { why: Why, rank: u32 },
    DoWithout,
    Asked,
    Counted { words: Words },
}

/// What comes before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) sequence: u64,
    pub(super) started: u64,
}

/// The data of what a box has counted.
pub(super) fn words_as_data(words: &Words) -> [u8; 8 * WORDS_MAX] {
    let mut data = [0; 8 * WORDS_MAX];
    for (place, word) in data.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    data
}

fn words_in(data: &[u8]) -> Option<Words> {
    let (words, []) = data.as_chunks::<8>() else { return None };
    let words: &[[u8; 8]; WORDS_MAX] = words.try_into().ok()?;
    Some(words.map(u64::from_le_bytes))
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (kind, call, whole, at) = match self.kind {
            Kind::Data(Part { call, whole, at, is_to_all }) => {
                (if is_to_all { 8 } else { 1 }, Some(call), whole, at)
            }
            Kind::Ask { call, token } => (2, Some(call), 0, token),
            Kind::Started { token } => (3, None, 0, token),
            Kind::Abort { why, rank } => {
                bytes[1] = why as u8;
                bytes[4..8].copy_from_slice(&rank.to_le_bytes());
                (4, None, 0, 0)
            }
            Kind::DoWithout => (5, None, 0, 0),
            Kind::Asked => (6, None, 0, 0),
            Kind::Counted { .. } => (7, None, 0, 0),
        };
        bytes[0] = kind;
        if let Some(call) = call {
            bytes[1] = call.operation as u8;
            bytes[2] = call.element.map_or(0, |element| element as u8);
            bytes[3] = call.reduction.map_or(0, |reduction| reduction as u8);
            bytes[4..8].copy_from_slice(&call.root.unwrap_or(NO_ROOT).to_le_bytes());
        }
        bytes[8..12].copy_from_slice(&self.rank.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        let (function, length) = call.map_or((0, 0), |call| (call.function, call.bytes));
        let numbers = [self.sequence, self.started, function, length, whole, at];
        for (number, place) in numbers.into_iter().zip(bytes[16..].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The header and what follows it; `None` for bytes that are no message of this model.
    pub(super) fn decode(message: &[u8]) -> Option<(Header, &[u8])> {
        let (bytes, data) = message.split_first_chunk::<HEADER_BYTES>()?;
        let short = |at: usize| bytes[at..].first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
        let long =
            |at: usize| bytes[16 + 8 * at..].first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        let (whole, at) = (long(4), long(5));
        let call = || {
            let element = match bytes[2] {
                0 => None,
                element => Some(ElementKind::of(element)?),
            };
            let reduction = match bytes[3] {
                0 => None,
                reduction => Some(ReductionKind::of(reduction)?),
            };
            let root = Some(short(4)).filter(|root| *root != NO_ROOT);
            let operation = Collective::of(bytes[1])?;
            Some(Call { operation, element, reduction, function: long(2), root, bytes: long(3) })
        };
        let kind = match bytes[0] {
            kind @ (1 | 8) => Kind::Data(Part { call: call()?, whole, at, is_to_all: kind == 8 }),
            2 => Kind::Ask { call: call()?, token: at },
            3 => Kind::Started { token: at },
            4 => Kind::Abort { why: Why::of(bytes[1])?, rank: short(4) },
            5 => Kind::DoWithout,
            6 => Kind::Asked,
            7 => Kind::Counted { words: words_in(data)? },
            _ => return None,
        };
        Some((Header { kind, rank: short(8), size: short(12), sequence: long(0), started: long(1) }, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_look_like_this_on_the_wire() {
        let call = Call {
            operation: Collective::Allreduce,
            element: Some(ElementKind::U64),
            reduction: Some(ReductionKind::Sum),
            function: 5,
            root: None,
            bytes: 16,
        };
        let kind = Kind::Data(Part { call, whole: 16, at: 8, is_to_all: false });
        let header = Header { kind, rank: 2, size: 3, sequence: 0x0807_0605_0403_0201, started: 4 };
        let mut bytes = vec![1, 4, 3, 1, 255, 255, 255, 255, 2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for number in [4, 5, 16, 16, 8] {
            bytes.extend([number, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(header.encode()[..], bytes[..]);
        bytes.extend(b"data");
        assert_eq!(Header::decode(&bytes), Some((header, &b"data"[..])));
        assert_eq!(Header::decode(&bytes[..HEADER_BYTES - 1]), None);
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_the_same(
            mut bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES..=2 * HEADER_BYTES),
            (kind, operation, rest) in (0u8..10, 0u8..14, 0u8..12),
        ) {
            (bytes[0], bytes[1], bytes[2], bytes[3]) = (kind, operation, rest, rest);
            if let Some((header, data)) = Header::decode(&bytes) {
                prop_assert_eq!(data, &bytes[HEADER_BYTES..]);
                let again = [&header.encode()[..], data].concat();
                prop_assert_eq!(Header::decode(&again), Some((header, data)));
            }
        }
    }
}
