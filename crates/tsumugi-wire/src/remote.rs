//! Remote memory: what one side does to the other's memory, and what comes back.
//!
//! Each is a frame of a DATA packet ([`crate::frame::RemoteFrame`]), so it is done once, and lost with its flow only.
//!
//! | opcode | key, address | data | is done |
//! |---|---|---|---|
//! | write | where to | what is written: all of a short write | in its turn |
//! | piece | where to | what is written: a part of a long write | when the packet arrives |
//! | read | where from | `bytes u64`: how many | in its turn |
//! | atomic | where | [`Atomic`] | in its turn |
//! | fence | none | none | in its turn: everything before it has been done |
//! | notify | what was written first | [`Notice`] | in its turn |
//! | reply | [`RemoteStatus`], place of the data | what was read | in its turn |
//! | part | [`RemoteStatus`], place of the data | a part of what was read | when the packet arrives |
//!
//! In its turn: in the order of the flow, when everything before it has been done, long writes and replies too. Pieces
//! and parts are done when they arrive, before what was sent earlier if that was lost.
//!
//! The word that a write ends with is stored last: it may be a flag for the rest of it. Where the XDP program writes it, that can be
//! counted on only on CPUs that keep loads and stores in their order, as x86 does.

use crate::numbered::numbered;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

numbered! {
    /// What is to be done.
    pub enum Opcode: u16 {
        /// Write the data: a write that fits in a packet. Answered only when it is refused.
        Write = 1,
        /// Write the data: one packet of a longer write. Answered as a write is, once for all of it.
        Piece = 2,
        /// Read. The data come back in replies.
        Read = 3,
        /// Change one word, and say what it was.
        Atomic = 4,
        /// Say that everything before has been done.
        Fence = 5,
        /// Tell the process that memory was written.
        Notify = 6,
        /// What came of an operation of the other side.
        Reply = 7,
        /// One packet of a longer reply.
        Part = 8,
    }
}

numbered! {
    /// How an operation went.
    pub enum RemoteStatus: u64 {
        /// It was done.
        Done = 0,
        /// No memory has this key: it was guessed, or the memory is registered no more.
        NoSuchKey = 1,
        /// It reaches beyond the memory that was registered.
        OutOfBounds = 2,
        /// The key does not give the right to do this.
        NotPermitted = 3,
        /// The word is not aligned to its size.
        Misaligned = 4,
        /// More operations wait for replies than the other side takes.
        TooMany = 5,
        /// The request itself makes no sense.
        Malformed = 6,
        /// The memory is registered, but its owner has unmapped it.
        NotMapped = 7,
    }
}

numbered! {
    /// How wide a word is, and how its bits are to be understood.
    pub enum Word: u8 {
        /// Unsigned, 8 bits.
        U8 = 1,
        /// Unsigned, 16 bits.
        U16 = 2,
        /// Unsigned, 32 bits.
        U32 = 3,
        /// Unsigned, 64 bits.
        U64 = 4,
        /// Two's complement, 8 bits.
        I8 = 5,
        /// Two's complement, 16 bits.
        I16 = 6,
        /// Two's complement, 32 bits.
        I32 = 7,
        /// Two's complement, 64 bits.
        I64 = 8,
        /// IEEE 754, 32 bits.
        F32 = 9,
        /// IEEE 754, 64 bits.
        F64 = 10,
    }
}

impl Word {
    /// Its width, bytes; and what its address is a multiple of.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Word::U8 | Word::I8 => 1,
            Word::U16 | Word::I16 => 2,
            Word::U32 | Word::I32 | Word::F32 => 4,
            Word::U64 | Word::I64 | Word::F64 => 8,
        }
    }
}

numbered! {
    /// What is done to a word. Its former value comes back, whatever is done.
    pub enum AtomicOperation: u8 {
        /// Nothing: an atomic load.
        Load = 1,
        /// It becomes the operand: a swap, or an atomic store.
        Swap = 2,
        /// It becomes the operand if it equals `compare`, bit for bit.
        CompareSwap = 3,
        /// The operand is added; integers wrap around.
        Add = 4,
        /// It becomes the lesser of it and the operand.
        Min = 5,
        /// It becomes the greater of it and the operand.
        Max = 6,
        /// Bitwise and; not of floating point.
        And = 7,
        /// Bitwise or; not of floating point.
        Or = 8,
        /// Bitwise exclusive or; not of floating point.
        Xor = 9,
        /// The operand is multiplied; integers wrap around.
        Multiply = 10,
    }
}

/// The data of an atomic operation. Words are in the lower bytes of their 64 bits, and so is the word that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// What is done.
    pub operation: AtomicOperation,
    /// To what.
    pub word: Word,
    /// With what.
    pub operand: u64,
    /// [`AtomicOperation::CompareSwap`]: what the word must be; otherwise 0.
    pub compare: u64,
}

/// Bytes of an [`Atomic`].
pub const ATOMIC_BYTES: usize = 24;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct AtomicLayout {
    operation: u8,
    word: u8,
    reserved: [u8; 6],
    operand: U64,
    compare: U64,
}

const _: () = assert!(size_of::<AtomicLayout>() == ATOMIC_BYTES);

impl Atomic {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ATOMIC_BYTES] {
        zerocopy::transmute!(AtomicLayout {
            operation: self.operation as u8,
            word: self.word as u8,
            reserved: [0; 6],
            operand: U64::new(self.operand),
            compare: U64::new(self.compare),
        })
    }

    /// Reads it; `None` if there is no such operation on such a word.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Atomic> {
        let layout = AtomicLayout::ref_from_bytes(bytes).ok()?;
        let (operation, word) =
            (AtomicOperation::from_number(layout.operation)?, Word::from_number(layout.word)?);
        let bitwise = matches!(operation, AtomicOperation::And | AtomicOperation::Or | AtomicOperation::Xor);
        if bitwise && matches!(word, Word::F32 | Word::F64) {
            return None;
        }
        Some(Atomic { operation, word, operand: layout.operand.get(), compare: layout.compare.get() })
    }
}

/// The data of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which of the receiver's handlers the sender has chosen.
    pub handler: u64,
    /// How much was written, bytes.
    pub bytes: u64,
}

/// Bytes of a [`Notice`].
pub const NOTICE_BYTES: usize = 16;

impl Notice {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; NOTICE_BYTES] {
        zerocopy::transmute!([U64::new(self.handler), U64::new(self.bytes)])
    }

    /// Reads it; `None` if the length is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Notice> {
        let [handler, bytes] = <[U64; 2]>::ref_from_bytes(bytes).ok()?;
        Some(Notice { handler: handler.get(), bytes: bytes.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u16), Some(opcode));
        }
        for status in RemoteStatus::ALL {
            assert_eq!(RemoteStatus::from_number(status as u64), Some(status));
        }
        for word in Word::ALL {
            assert_eq!(Word::from_number(word as u8), Some(word));
        }
        for operation in AtomicOperation::ALL {
            assert_eq!(AtomicOperation::from_number(operation as u8), Some(operation));
        }
        assert_eq!(Opcode::from_number(0).or(Opcode::from_number(9)), None);
        assert_eq!(RemoteStatus::from_number(8), None);
        assert_eq!(Word::from_number(0).or(Word::from_number(11)), None);
        assert_eq!(AtomicOperation::from_number(0).or(AtomicOperation::from_number(11)), None);
    }

    #[test]
    fn atomics_and_notices_come_back_and_nonsense_does_not() {
        let atomic = Atomic {
            operation: AtomicOperation::CompareSwap,
            word: Word::I16,
            operand: 1,
            compare: u64::MAX,
        };
        assert_eq!(Atomic::decode(&atomic.encode()), Some(atomic));
        let nonsense = Atomic { operation: AtomicOperation::Xor, word: Word::F32, ..atomic };
        assert_eq!(Atomic::decode(&nonsense.encode()), None);
        assert_eq!(Atomic::decode(&atomic.encode()[1..]), None);
        let notice = Notice { handler: 7, bytes: 1 << 40 };
        assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        assert_eq!(Notice::decode(&[0; 15]), None);
    }
}
