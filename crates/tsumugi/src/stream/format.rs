//! What streams look like inside their channel's messages: chunks. Numbers are little-endian.
//!
//! ```text
//! flags u8 | 0 u8 | 0 u16 | message u32 | with the head: handler u64 | bytes of the message
//! ```
//!
//! The head is a message's first chunk, the tail its last; a short message is both in one. A chunk with *broken* is
//! the last of a message that its sender gave up.

/// Bytes in front of a chunk that is not the head.
pub(super) const BODY_BYTES: usize = 8;
/// Bytes in front of a head.
pub(super) const HEAD_BYTES: usize = 16;

const HEAD: u8 = 1;
const TAIL: u8 = 2;
const BROKEN: u8 = 4;

/// What comes before a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Number of the message among its sender's.
    pub(super) message: u32,
    /// Hash of the handler's name, in the head.
    pub(super) handler: Option<u64>,
    pub(super) end: Option<End>,
}

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    Broken,
}

impl Chunk {
    /// Length of what [`Chunk::encode`] writes.
    pub(super) fn bytes(&self) -> usize {
        if self.handler.is_some() { HEAD_BYTES } else { BODY_BYTES }
    }

    /// Writes it to the beginning of `bytes`, of which there are enough.
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        let end = match self.end {
            None => 0,
            Some(End::Whole) => TAIL,
            Some(End::Broken) => BROKEN,
        };
        let head = if self.handler.is_some() { HEAD } else { 0 };
        bytes[..BODY_BYTES].copy_from_slice(&[[head | end, 0, 0, 0], self.message.to_le_bytes()].concat());
        if let Some(handler) = self.handler {
            bytes[BODY_BYTES..HEAD_BYTES].copy_from_slice(&handler.to_le_bytes());
        }
    }

    /// The chunk's head; `None` for bytes that are no chunk.
    pub(super) fn decode(bytes: &[u8]) -> Option<Chunk> {
        let (front, rest) = bytes.split_first_chunk::<BODY_BYTES>()?;
        let [flags, 0, 0, 0, number @ ..] = *front else { return None };
        let handler = match flags & HEAD {
            0 => None,
            _ => Some(u64::from_le_bytes(*rest.first_chunk()?)),
        };
        let end = match flags & !HEAD {
            0 => None,
            TAIL => Some(End::Whole),
            BROKEN => Some(End::Broken),
            _ => return None,
        };
        Some(Chunk { message: u32::from_le_bytes(number), handler, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_look_like_this_on_the_wire() {
        let mut bytes = [0xff; HEAD_BYTES];
        let head =
            Chunk { message: 0x0403_0201, handler: Some(0x0c0b_0a09_0807_0605), end: Some(End::Whole) };
        head.encode(&mut bytes);
        assert_eq!(bytes, [3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(Chunk::decode(&bytes), Some(head));
        assert_eq!(Chunk::decode(&bytes[..15]), None);
        let broken = Chunk { message: 1, handler: None, end: Some(End::Broken) };
        broken.encode(&mut bytes);
        assert_eq!(bytes[..BODY_BYTES], [4, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Chunk::decode(&[6, 0, 0, 0, 1, 0, 0, 0]), None, "whole and broken");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_what_is_read_is_written_the_same(
            mut bytes in prop::collection::vec(any::<u8>(), 0..24),
            flags in 0..9u8,
        ) {
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[flags, 0, 0, 0]);
            }
            if let Some(chunk) = Chunk::decode(&bytes) {
                let mut again = vec![0; chunk.bytes()];
                chunk.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..chunk.bytes()]);
            }
        }
    }
}
