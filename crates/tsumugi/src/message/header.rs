//! What stands in front of every message of a port.
//!
//! ```text
//! eager, active   kind u8 | 0 | bytes u48 | tag u64                  the data follow
//! offer           kind u8 | 0 | bytes u48 | tag u64 | send u64       bytes that the sender has
//! grant           kind u8 | 0 | bytes u48 | receive u64 | send u64   bytes that the receiver takes
//! data            kind u8 | 0 | bytes u48 | receive u64              the data follow
//! refuse          kind u8 | 0 | bytes u48 | send u64                 bytes that would be taken
//! ```
//!
//! Numbers are little-endian. `send` and `receive` are the numbers of requests, repeated by the other side.

/// Bytes in front of data.
pub(super) const DATA_HEADER_BYTES: usize = 16;
/// Bytes of a header with two numbers, which nothing follows.
const LONG_HEADER_BYTES: usize = 24;

/// A message of a port, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Data that came at once, to be taken when they are all there.
    Eager { tag: u64 },
    /// Data that came at once, to be placed when their head is there.
    Active { tag: u64 },
    /// There would be a message of so many bytes.
    Offer { tag: u64, send: u64, bytes: u64 },
    /// So many bytes of an offered message are wanted.
    Grant { receive: u64, send: u64, bytes: u64 },
    /// The data that were granted.
    Data { receive: u64 },
    /// An offered message is too long.
    Refuse { send: u64, bytes: u64 },
}

const EAGER: u8 = 1;
const ACTIVE: u8 = 2;
const OFFER: u8 = 3;
const GRANT: u8 = 4;
const DATA: u8 = 5;
const REFUSE: u8 = 6;

impl Header {
    /// The header in front of so many bytes of data.
    pub(super) fn encode(&self, data_bytes: usize) -> [u8; DATA_HEADER_BYTES] {
        let (kind, number, bytes) = match *self {
            Header::Eager { tag } => (EAGER, tag, data_bytes as u64),
            Header::Active { tag } => (ACTIVE, tag, data_bytes as u64),
            Header::Data { receive } => (DATA, receive, data_bytes as u64),
            Header::Refuse { send, bytes } => (REFUSE, send, bytes),
            Header::Offer { tag, bytes, .. } => (OFFER, tag, bytes),
            Header::Grant { receive, bytes, .. } => (GRANT, receive, bytes),
        };
        let mut header = [0; DATA_HEADER_BYTES];
        header[..8].copy_from_slice(&(u64::from(kind) | bytes << 16).to_le_bytes());
        header[8..].copy_from_slice(&number.to_le_bytes());
        header
    }

    /// What stands behind the first part of a header that no data follow.
    pub(super) fn rest(&self) -> Option<[u8; LONG_HEADER_BYTES - DATA_HEADER_BYTES]> {
        match self {
            Header::Offer { send, .. } | Header::Grant { send, .. } => Some(send.to_le_bytes()),
            _ => None,
        }
    }

    /// Reads the header of a message of `total` bytes that begins with `head`. `None` when it makes no sense.
    pub(super) fn decode(head: &[u8], total: u64) -> Option<Header> {
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (first, number) = (word(0)?, word(8)?);
        let (kind, reserved, bytes) = (first as u8, (first >> 8) as u8, first >> 16);
        let holds_data = total.checked_sub(DATA_HEADER_BYTES as u64) == Some(bytes);
        let is_long = total == LONG_HEADER_BYTES as u64;
        match kind {
            _ if reserved != 0 => None,
            EAGER if holds_data => Some(Header::Eager { tag: number }),
            ACTIVE if holds_data => Some(Header::Active { tag: number }),
            DATA if holds_data => Some(Header::Data { receive: number }),
            OFFER if is_long => Some(Header::Offer { tag: number, send: word(16)?, bytes }),
            GRANT if is_long => Some(Header::Grant { receive: number, send: word(16)?, bytes }),
            REFUSE if total == DATA_HEADER_BYTES as u64 => Some(Header::Refuse { send: number, bytes }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_comes_back(kind in 1u8..7, number: u64, send: u64, bytes in 0u64..1 << 48, data in 0usize..100) {
            let header = match kind {
                EAGER => Header::Eager { tag: number },
                ACTIVE => Header::Active { tag: number },
                OFFER => Header::Offer { tag: number, send, bytes },
                GRANT => Header::Grant { receive: number, send, bytes },
                DATA => Header::Data { receive: number },
                _ => Header::Refuse { send: number, bytes },
            };
            let data = if kind == EAGER || kind == ACTIVE || kind == DATA { data } else { 0 };
            let mut message = header.encode(data).to_vec();
            message.extend(header.rest().into_iter().flatten());
            message.resize(message.len() + data, 7);
            prop_assert_eq!(Header::decode(&message, message.len() as u64), Some(header));
            // The first bytes of a long message are enough.
            let head = &message[..message.len().min(LONG_HEADER_BYTES)];
            prop_assert_eq!(Header::decode(head, message.len() as u64), Some(header));
            prop_assert_eq!(Header::decode(&message, message.len() as u64 + 1), None);
        }

        #[test]
        fn any_bytes_are_a_header_or_none(head in prop::collection::vec(any::<u8>(), 0..30), total: u64) {
            let _ = Header::decode(&head, total);
        }
    }
}
