//! Atomic changes of words in a region, for remote atomics.

use super::{OutOfRegion, Region};
use crate::sys::Access;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tsumugi_wire::remote::{Atomic, AtomicOperation, Word};

/// A word was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AtomicError {
    /// It does not lie within the region.
    #[error(transparent)]
    Outside(#[from] OutOfRegion),
    /// Its address is no multiple of its size.
    #[error("a word of {bytes} bytes at address {address:#x} is not aligned")]
    Misaligned {
        /// Where it would be.
        address: u64,
        /// Its size.
        bytes: usize,
    },
}

impl Region {
    /// Changes the word at `at`, and returns what it was, in the lower bits.
    ///
    /// Atomic towards everybody on this machine who uses atomics of the same size.
    ///
    /// # Errors
    /// There is no such word.
    pub fn atomic(&self, at: usize, atomic: &Atomic) -> Result<u64, AtomicError> {
        let bytes = atomic.word.bytes();
        let place = self.at(at, bytes, Access::Write)?.as_ptr();
        let address = place.addr();
        if !address.is_multiple_of(bytes) {
            return Err(AtomicError::Misaligned { address: address as u64, bytes });
        }
        let new = |old: u64| changed(atomic, old);
        // As strong as can be: what is done to the word orders nothing else by itself, but who counts arrivals in it
        // will read what arrived.
        macro_rules! update {
            ($atomic:ty, $integer:ty) => {{
                // SAFETY: within the region and aligned, as just found; the region lives as long as `self`, and nobody has
                // a reference to it but as an atomic.
                let word = unsafe { <$atomic>::from_ptr(place.cast()) };
                let update = |old: $integer| new(u64::from(old)).map(|new| new as $integer);
                u64::from(word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).unwrap_or_else(|old| old))
            }};
        }
        Ok(match bytes {
            1 => update!(AtomicU8, u8),
            2 => update!(AtomicU16, u16),
            4 => update!(AtomicU32, u32),
            _ => update!(AtomicU64, u64),
        })
    }
}

/// What the word becomes; `None`: it stays.
#[expect(
    clippy::cast_lossless,
    reason = "one macro for signed integers, which are extended, and unsigned ones"
)]
fn changed(atomic: &Atomic, old: u64) -> Option<u64> {
    let operand = atomic.operand;
    match atomic.operation {
        AtomicOperation::Load => return None,
        AtomicOperation::Swap => return Some(operand),
        AtomicOperation::CompareSwap => {
            let mask = u64::MAX >> (64 - 8 * atomic.word.bytes());
            return (old == atomic.compare & mask).then_some(operand);
        }
        AtomicOperation::And => return Some(old & operand),
        AtomicOperation::Or => return Some(old | operand),
        AtomicOperation::Xor => return Some(old ^ operand),
        AtomicOperation::Add | AtomicOperation::Min | AtomicOperation::Max | AtomicOperation::Multiply => {}
    }
    macro_rules! integer {
        ($type:ty) => {{
            let (old, operand) = (old as $type, operand as $type);
            (match atomic.operation {
                AtomicOperation::Add => old.wrapping_add(operand),
                AtomicOperation::Multiply => old.wrapping_mul(operand),
                AtomicOperation::Min => old.min(operand),
                _ => old.max(operand),
            }) as u64
        }};
    }
    macro_rules! float {
        ($type:ty, $bits:ty) => {{
            let (old, operand) = (<$type>::from_bits(old as $bits), <$type>::from_bits(operand as $bits));
            u64::from(
                (match atomic.operation {
                    AtomicOperation::Add => old + operand,
                    AtomicOperation::Multiply => old * operand,
                    AtomicOperation::Min => old.min(operand),
                    _ => old.max(operand),
                })
                .to_bits(),
            )
        }};
    }
    Some(match atomic.word {
        Word::U8 => integer!(u8),
        Word::U16 => integer!(u16),
        Word::U32 => integer!(u32),
        Word::U64 => integer!(u64),
        Word::I8 => integer!(i8),
        Word::I16 => integer!(i16),
        Word::I32 => integer!(i32),
        Word::I64 => integer!(i64),
        Word::F32 => float!(f32, u32),
        Word::F64 => float!(f64, u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use AtomicOperation::*;
    use Word::*;

    /// What a word was and became.
    fn step(word: Word, operation: AtomicOperation, start: u64, operand: u64, compare: u64) -> (u64, u64) {
        let region = Region::new(16).unwrap();
        region.write(8, &start.to_le_bytes()).unwrap();
        let was = region.atomic(8, &Atomic { operation, word, operand, compare }).unwrap();
        let mut now = [0; 8];
        region.read(8, &mut now).unwrap();
        (was, u64::from_le_bytes(now))
    }

    #[test]
    fn each_change_is_what_its_name_says() {
        assert_eq!(step(U64, Load, 5, 9, 0), (5, 5));
        assert_eq!(step(U64, Swap, 5, 9, 0), (5, 9));
        assert_eq!(step(U64, CompareSwap, 5, 9, 5), (5, 9));
        assert_eq!(step(U64, CompareSwap, 5, 9, 6), (5, 5));
        assert_eq!(step(U64, Add, u64::MAX, 2, 0), (u64::MAX, 1));
        assert_eq!(step(U64, Multiply, 5, 9, 0), (5, 45));
        assert_eq!(step(U64, And, 0b1100, 0b1010, 0), (0b1100, 0b1000));
        assert_eq!(step(U64, Or, 0b1100, 0b1010, 0), (0b1100, 0b1110));
        assert_eq!(step(U64, Xor, 0b1100, 0b1010, 0), (0b1100, 0b0110));
        assert_eq!(step(I64, Min, 5, -9i64 as u64, 0), (5, -9i64 as u64));
        assert_eq!(step(U64, Min, 5, -9i64 as u64, 0), (5, 5));
        assert_eq!(step(I32, Max, u64::from(-3i32 as u32), 2, 0), (u64::from(-3i32 as u32), 2));
        assert_eq!(
            step(F64, Add, 1.5f64.to_bits(), 2.0f64.to_bits(), 0),
            (1.5f64.to_bits(), 3.5f64.to_bits())
        );
        let (one, two) = (u64::from(1f32.to_bits()), u64::from(2f32.to_bits()));
        assert_eq!(step(F32, Max, one, two, 0), (one, two));
    }

    #[test]
    fn only_the_word_itself_changes() {
        let rest = 0x1122_3344_5566_7700;
        assert_eq!(step(U8, Add, rest | 0xff, 2, 0), (0xff, rest | 0x01));
        assert_eq!(step(I8, CompareSwap, rest | 0x80, 1, 0xffff_ff80), (0x80, rest | 0x01));
        assert_eq!(step(U16, Swap, 0x1122_3344_5566_7788, 0xdead_beef, 0), (0x7788, 0x1122_3344_5566_beef));
    }

    #[test]
    fn words_that_are_not_there_are_refused() {
        let region = Region::new(16).unwrap();
        let atomic = |word| Atomic { operation: Add, word, operand: 1, compare: 0 };
        assert!(matches!(region.atomic(9, &atomic(U64)), Err(AtomicError::Outside(_))));
        assert!(matches!(region.atomic(4, &atomic(U64)), Err(AtomicError::Misaligned { bytes: 8, .. })));
        assert!(matches!(region.atomic(15, &atomic(U16)), Err(AtomicError::Outside(_))));
        assert!(region.atomic(15, &atomic(U8)).is_ok());
    }
}
