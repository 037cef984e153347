//! Long messages that are being sent: whose memory they lie in, and how they are cut.
//!
//! A message lies in a buffer of the endpoint, or, lent, where the application has it. Its fragments name their places
//! there until every one has been acknowledged and, if the peer's XDP program took it in, compared with its CRC. Then
//! the memory goes back: to the pool, or to the lender.

use crate::buffer::Buffer;
use crate::pool::Pool;
use arrayvec::ArrayVec;
use slab::Slab;
use tsumugi_wire::frame::{FRAGMENT_BYTES, Fragment, WHOLE_BYTES};

/// Room kept behind a long message for the padding of its last fragment, bytes: what messages of up to 44
/// fragments need. A longer one that needs more is moved: small cost at such a length.
pub(crate) const PADDING_BYTES: usize = 8 * 44;
/// Longest beginning of a message that lies elsewhere than the rest, bytes.
pub(crate) const FRONT_BYTES_MAX: usize = 32;

/// A fragment's frame header and, of the first fragment of a lent message, the beginning that lies elsewhere.
pub(crate) type PieceHead = ArrayVec<u8, { FRAGMENT_BYTES + FRONT_BYTES_MAX }>;

/// Who has lent memory: a channel, and its owner's name for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lender {
    pub(crate) channel: u16,
    pub(crate) key: u64,
}

#[derive(Debug)]
enum Memory {
    /// Ours: [`WHOLE_BYTES`] of room for a frame header, the message, and the padding of its last fragment.
    Own(Vec<u8>),
    /// The application's: the message without its beginning, which is here.
    Lent { front: ArrayVec<u8, FRONT_BYTES_MAX>, rest: Buffer, lender: Option<Lender> },
}

/// A long message that is being sent.
#[derive(Debug)]
pub(crate) struct LongMessage {
    memory: Memory,
    /// Length of the message, bytes.
    bytes: usize,
    /// Fragments under way, and one for the part that is not cut yet.
    pub(crate) users: u32,
}

impl LongMessage {
    /// A long message in `buffer`, none of it cut yet.
    pub(crate) fn new(buffer: Vec<u8>) -> LongMessage {
        LongMessage { bytes: buffer.len() - WHOLE_BYTES, memory: Memory::Own(buffer), users: 1 }
    }

    /// The same for so many users.
    pub(crate) fn shared(buffer: Vec<u8>, users: u32) -> LongMessage {
        LongMessage { users, ..LongMessage::new(buffer) }
    }

    /// A long message in memory of the application.
    pub(crate) fn lent(front: &[u8], rest: Buffer, lender: Lender) -> LongMessage {
        let bytes = front.len() + rest.len();
        let front = front.iter().copied().collect();
        LongMessage { memory: Memory::Lent { front, rest, lender: Some(lender) }, bytes, users: 1 }
    }

    /// Length of the message, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether somebody waits to have the memory back, and it ends there.
    pub(crate) fn lends_up_to(&self, end: usize) -> bool {
        matches!(&self.memory, Memory::Lent { rest, .. } if rest.len() == end)
    }

    /// A copy of the message.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        match &self.memory {
            Memory::Own(buffer) => buffer[WHOLE_BYTES..WHOLE_BYTES + self.bytes].to_vec(),
            Memory::Lent { front, rest, .. } => [front, &rest[..]].concat(),
        }
    }

    /// Cuts the next fragment off, when a packet takes `most` bytes of it: its head, where the rest lies, and how many bytes
    /// of the message it has, beside padding.
    ///
    /// A message is cut evenly, and the last fragment of one of ours padded to the same length: a run of equal packets goes
    /// through segmentation offload as one, and so do the messages behind it.
    pub(crate) fn cut(&mut self, next: &Fragment, most: usize) -> (PieceHead, usize, usize, usize) {
        let offset = next.offset as usize;
        let fragments = self.bytes.div_ceil(most);
        let even = self.bytes.div_ceil(fragments).next_multiple_of(8).min(most);
        let left = even.min(self.bytes - offset);
        let mut head = PieceHead::from_iter(next.encode());
        match &mut self.memory {
            Memory::Own(buffer) => {
                let at = WHOLE_BYTES + offset;
                if at + even > buffer.len() {
                    buffer.resize(at + even, 0);
                }
                (head, at, even, left)
            }
            Memory::Lent { front, .. } if offset == 0 => {
                let bytes = left - front.len();
                head.extend(front.iter().copied());
                (head, 0, bytes, left)
            }
            Memory::Lent { front, .. } => (head, offset - front.len(), left, left),
        }
    }

    /// The place of a fragment.
    #[inline]
    pub(crate) fn at(&self, at: usize, bytes: usize) -> &[u8] {
        match &self.memory {
            Memory::Own(buffer) => &buffer[at..at + bytes],
            Memory::Lent { rest, .. } => &rest[at..at + bytes],
        }
    }
}

/// The long messages of an endpoint, and the memory that goes back to who has lent it.
#[derive(Debug, Default)]
pub(crate) struct LongMessages {
    messages: Slab<LongMessage>,
    given_back: Vec<(Lender, Buffer)>,
}

impl LongMessages {
    pub(crate) fn insert(&mut self, message: LongMessage) -> usize {
        self.messages.insert(message)
    }

    #[inline]
    pub(crate) fn get(&self, key: usize) -> &LongMessage {
        &self.messages[key]
    }

    pub(crate) fn get_mut(&mut self, key: usize) -> &mut LongMessage {
        &mut self.messages[key]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &LongMessage)> {
        self.messages.iter()
    }

    /// A message is needed for one thing less.
    pub(crate) fn release(&mut self, pool: &mut Pool, key: usize) {
        let message = &mut self.messages[key];
        message.users -= 1;
        if message.users > 0 {
            return;
        }
        match self.messages.remove(key).memory {
            Memory::Own(buffer) => pool.give(buffer),
            Memory::Lent { rest, lender: Some(lender), .. } => self.given_back.push((lender, rest)),
            Memory::Lent { .. } => {}
        }
    }

    /// Takes what goes back to a channel.
    #[inline]
    pub(crate) fn take_back(&mut self, channel: u16) -> Option<(u64, Buffer)> {
        if self.given_back.is_empty() {
            return None;
        }
        let at = self.given_back.iter().position(|(lender, _)| lender.channel == channel)?;
        let (lender, buffer) = self.given_back.swap_remove(at);
        Some((lender.key, buffer))
    }

    /// A channel closes: what it has lent is copied, because the application has its memory back.
    pub(crate) fn redeem(&mut self, channel: u16) {
        self.given_back.retain(|(lender, _)| lender.channel != channel);
        for (_, message) in &mut self.messages {
            if let Memory::Lent { rest, lender, .. } = &mut message.memory
                && lender.is_some_and(|lender| lender.channel == channel)
            {
                *rest = Buffer::from(rest.to_vec());
                *lender = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The message as the receiver puts it together, and the lengths of the fragments.
    fn put_together(message: &mut LongMessage, most: usize) -> (Vec<u8>, Vec<usize>) {
        let total = message.bytes() as u64;
        let mut next = Fragment { channel: 1, message: 0, offset: 0, total };
        let (mut whole, mut lengths) = (Vec::new(), Vec::new());
        while next.offset < total {
            let (head, at, bytes, left) = message.cut(&next, most);
            let data = [&head[FRAGMENT_BYTES..], message.at(at, bytes)].concat();
            assert!(data.len() <= most && left <= data.len());
            whole.extend_from_slice(&data[..left]);
            lengths.push(data.len());
            next.offset += left as u64;
        }
        (whole, lengths)
    }

    proptest! {
        #[test]
        fn what_is_lent_is_cut_as_what_is_ours(
            front in prop::collection::vec(any::<u8>(), 0..FRONT_BYTES_MAX),
            rest in prop::collection::vec(any::<u8>(), 500..20_000),
            most in 60usize..1500,
        ) {
            let most = most / 8 * 8;
            let whole = [&front[..], &rest].concat();
            let mut own = LongMessage::new([&[0; WHOLE_BYTES][..], &whole].concat());
            let lender = Lender { channel: 1, key: 7 };
            let mut lent = LongMessage::lent(&front, Buffer::from(rest), lender);
            let (ours, even) = put_together(&mut own, most);
            let (theirs, mut lengths) = put_together(&mut lent, most);
            prop_assert_eq!(&ours, &whole);
            prop_assert_eq!(&theirs, &whole);
            prop_assert_eq!(own.to_vec(), lent.to_vec());
            // Only the last fragment may be shorter: nothing lies behind memory of somebody else.
            lengths.pop();
            prop_assert!(lengths.iter().all(|bytes| *bytes == even[0]), "{lengths:?} and {even:?}");
        }
    }

    #[test]
    fn memory_goes_back_to_who_has_lent_it() {
        let (mut long_messages, mut pool) = (LongMessages::default(), Pool::default());
        let lender = Lender { channel: 1, key: 7 };
        let key = long_messages.insert(LongMessage::lent(&[1], Buffer::from(vec![2; 100]), lender));
        assert!(long_messages.take_back(1).is_none());
        long_messages.release(&mut pool, key);
        assert!(long_messages.take_back(2).is_none(), "another's");
        let (key, buffer) = long_messages.take_back(1).expect("it is not needed");
        assert_eq!((key, buffer.len()), (7, 100));
        assert!(long_messages.take_back(1).is_none(), "twice");

        let mut memory = vec![3u8; 100];
        let start = std::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: `redeem` drops the buffer, and nobody touches the memory before.
        let foreign = unsafe { Buffer::from_raw_parts(start, 100) };
        let key = long_messages.insert(LongMessage::lent(&[1], foreign, lender));
        long_messages.redeem(1);
        memory.fill(4);
        assert_eq!(long_messages.get(key).at(0, 100), [3; 100], "it is a copy");
        long_messages.release(&mut pool, key);
        assert!(long_messages.take_back(1).is_none(), "nobody has lent it");
    }
}
