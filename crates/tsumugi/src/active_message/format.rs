//! What active messages look like inside their channel's messages. Numbers are little-endian.
//!
//! ```text
//! kind u8 | code u8 | grant u16 | 0 u32 | number u64 | handler u64 | words 4 × u64 | data
//!
//! request   handler, words, data
//! store     handler, words, data: segment u64 | offset u64 | what is to be stored
//! get       handler = segment, words: offset, bytes
//! reply     words, data; grant: how many requests may be outstanding
//! refusal   code: why; words: what the reason needs to be understood; grant
//! ```
//!
//! `number` is the requester's, repeated in the answer.

/// Bytes in front of the data.
pub(super) const HEAD_BYTES: usize = 56;
/// Bytes in front of what is stored.
pub(super) const SEGMENT_PLACE_BYTES: usize = 16;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request = 1,
    Store = 2,
    Get = 3,
    Reply = 4,
    Refusal = 5,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// No handler of this name.
    Handler = 1,
    /// More data than are taken; word 0 is the limit.
    TooLong = 2,
    /// The reply would have had more data than are allowed; word 0 is the limit.
    ReplyTooLong = 3,
    /// No segment of this name.
    Segment = 4,
    /// Outside the segment; word 0 is its length.
    Bounds = 5,
}

/// What comes before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) code: u8,
    pub(super) grant: u16,
    pub(super) number: u64,
    pub(super) handler: u64,
    pub(super) words: [u64; 4],
}

/// Where stored data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPlace {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Code {
    pub(super) fn of(code: u8) -> Option<Code> {
        use Code::{Bounds, Handler, ReplyTooLong, Segment, TooLong};
        [Handler, TooLong, ReplyTooLong, Segment, Bounds].into_iter().find(|known| *known as u8 == code)
    }
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        (bytes[0], bytes[1]) = (self.kind as u8, self.code);
        bytes[2..4].copy_from_slice(&self.grant.to_le_bytes());
        let numbers = [self.number, self.handler].into_iter().chain(self.words);
        for (number, place) in numbers.zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The head and what follows it; `None` for bytes that are no active message.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, data) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let kinds = [Kind::Request, Kind::Store, Kind::Get, Kind::Reply, Kind::Refusal];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == head[0])?;
        let number = |at: usize| {
            head[8 + 8 * at..].first_chunk().map_or(0, |number: &[u8; 8]| u64::from_le_bytes(*number))
        };
        let words = [number(2), number(3), number(4), number(5)];
        let grant = u16::from_le_bytes([head[2], head[3]]);
        Some((Head { kind, code: head[1], grant, number: number(0), handler: number(1), words }, data))
    }
}

impl SegmentPlace {
    pub(super) fn encode(&self) -> [u8; SEGMENT_PLACE_BYTES] {
        let mut bytes = [0; SEGMENT_PLACE_BYTES];
        bytes[..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The place and what is to be stored there.
    pub(super) fn decode(data: &[u8]) -> Option<(SegmentPlace, &[u8])> {
        let (segment, rest) = data.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        Some((
            SegmentPlace { segment: u64::from_le_bytes(*segment), offset: u64::from_le_bytes(*offset) },
            rest,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_looks_like_this_on_the_wire() {
        let head = Head {
            kind: Kind::Request,
            code: 0,
            grant: 0x0201,
            number: 3,
            handler: 0x0807_0605_0403_0201,
            words: [4, 5, 6, 7],
        };
        let mut bytes = vec![1, 0, 1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for word in 4..8 {
            bytes.extend([word, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(head.encode()[..], bytes[..]);
        bytes.extend(b"data");
        assert_eq!(Head::decode(&bytes), Some((head, &b"data"[..])));
        assert_eq!(Head::decode(&bytes[..HEAD_BYTES - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_what_is_read_is_written_the_same(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            kind in 0..8u8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some((head, data)) = Head::decode(&bytes) {
                prop_assert_eq!(data, &bytes[HEAD_BYTES..]);
                let again = head.encode();
                prop_assert_eq!(&again[..4], &bytes[..4]);
                prop_assert_eq!(&again[8..], &bytes[8..HEAD_BYTES]);
                if let Some((place, rest)) = SegmentPlace::decode(data) {
                    prop_assert_eq!(&[&place.encode()[..], rest].concat(), data);
                }
            }
        }
    }
}
