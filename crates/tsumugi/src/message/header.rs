//! What stands in front of every message of a port.
//!
//! ```text
//! eager, active   kind u8 | more u8 | bytes u48 | tag u64                          the data follow
//! offer           kind u8 | more u8 | bytes u48 | tag u64 | send u64               bytes that the sender has
//! grant           kind u8 | 0       | bytes u48 | receive u64 | send u64           bytes that the receiver takes
//! data            kind u8 | 0       | bytes u48 | receive u64                      the data follow
//! refuse          kind u8 | 0       | bytes u48 | send u64                         bytes that would be taken
//! ```
//!
//! Numbers are little-endian. `send` and `receive` are the numbers of requests, repeated by the other side. If `more` is 1,
//! the immediate data follow the header, `immediate u64`.

use arrayvec::ArrayVec;

/// Bytes in front of data without immediate data.
pub(super) const DATA_HEADER_BYTES: usize = 16;
/// Bytes of one more number.
const NUMBER_BYTES: usize = 8;
/// Bytes of the longest header.
pub(super) const HEADER_BYTES_MAX: usize = DATA_HEADER_BYTES + 2 * NUMBER_BYTES;

/// A header as it is sent.
pub(super) type Encoded = ArrayVec<u8, HEADER_BYTES_MAX>;

/// A message of a port, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Data that came at once, to be taken when they are all there.
    Eager { tag: u64, immediate: Option<u64> },
    /// Data that came at once, to be placed when their head is there.
    Active { tag: u64, immediate: Option<u64> },
    /// There would be a message of so many bytes.
    Offer { tag: u64, send: u64, bytes: u64, immediate: Option<u64> },
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
    #[inline]
    pub(super) fn encode(&self, data_bytes: usize) -> Encoded {
        let data_bytes = data_bytes as u64;
        let (kind, bytes, number, send, immediate) = match *self {
            Header::Eager { tag, immediate } => (EAGER, data_bytes, tag, None, immediate),
            Header::Active { tag, immediate } => (ACTIVE, data_bytes, tag, None, immediate),
            Header::Data { receive } => (DATA, data_bytes, receive, None, None),
            Header::Refuse { send, bytes } => (REFUSE, bytes, send, None, None),
            Header::Offer { tag, send, bytes, immediate } => (OFFER, bytes, tag, Some(send), immediate),
            Header::Grant { receive, send, bytes } => (GRANT, bytes, receive, Some(send), None),
        };
        let first = u64::from(kind) | u64::from(immediate.is_some()) << 8 | bytes << 16;
        [Some(first), Some(number), send, immediate]
            .into_iter()
            .flatten()
            .flat_map(u64::to_le_bytes)
            .collect()
    }

    /// Where the data begin behind the header of a message with or without immediate data.
    pub(super) const fn data_at(immediate: Option<u64>) -> usize {
        DATA_HEADER_BYTES + if immediate.is_some() { NUMBER_BYTES } else { 0 }
    }

    /// Reads the header of a message of `total` bytes that begins with `head`. `None` when it makes no sense.
    pub(super) fn decode(head: &[u8], total: u64) -> Option<Header> {
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + NUMBER_BYTES)?.try_into().ok()?));
        let (first, number) = (word(0)?, word(DATA_HEADER_BYTES - NUMBER_BYTES)?);
        let (kind, more, bytes) = (first as u8, (first >> 8) as u8, first >> 16);
        let mut end = DATA_HEADER_BYTES;
        let mut next = || {
            end += NUMBER_BYTES;
            word(end - NUMBER_BYTES)
        };
        let send = if kind == OFFER || kind == GRANT { next()? } else { 0 };
        let immediate = match more {
            0 => None,
            1 if matches!(kind, EAGER | ACTIVE | OFFER) => Some(next()?),
            _ => return None,
        };
        let data_bytes = if matches!(kind, EAGER | ACTIVE | DATA) { bytes } else { 0 };
        if total.checked_sub(end as u64) != Some(data_bytes) {
            return None;
        }
        match kind {
            EAGER => Some(Header::Eager { tag: number, immediate }),
            ACTIVE => Some(Header::Active { tag: number, immediate }),
            DATA => Some(Header::Data { receive: number }),
            OFFER => Some(Header::Offer { tag: number, send, bytes, immediate }),
            GRANT => Some(Header::Grant { receive: number, send, bytes }),
            REFUSE => Some(Header::Refuse { send: number, bytes }),
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
        fn a_header_comes_back(
            kind in 1u8..7, number: u64, send: u64, bytes in 0u64..1 << 48, data in 0usize..100, immediate: Option<u64>,
        ) {
            let header = match kind {
                EAGER => Header::Eager { tag: number, immediate },
                ACTIVE => Header::Active { tag: number, immediate },
                OFFER => Header::Offer { tag: number, send, bytes, immediate },
                GRANT => Header::Grant { receive: number, send, bytes },
                DATA => Header::Data { receive: number },
                _ => Header::Refuse { send: number, bytes },
            };
            let data = if matches!(kind, EAGER | ACTIVE | DATA) { data } else { 0 };
            let mut message = header.encode(data).to_vec();
            message.resize(message.len() + data, 7);
            prop_assert_eq!(Header::decode(&message, message.len() as u64), Some(header));
            // The first bytes of a long message are enough.
            let head = &message[..message.len().min(HEADER_BYTES_MAX)];
            prop_assert_eq!(Header::decode(head, message.len() as u64), Some(header));
            prop_assert_eq!(Header::decode(&message, message.len() as u64 + 1), None);
        }

        #[test]
        fn any_bytes_are_a_header_or_none(head in prop::collection::vec(any::<u8>(), 0..40), total: u64) {
            let _ = Header::decode(&head, total);
        }
    }
}
