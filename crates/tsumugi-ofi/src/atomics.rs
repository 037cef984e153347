//! The arithmetic of atomics, `fi_atomic(3)`: which operations there are on which types, and what they do.
//!
//! Who does them on the peer's side is `endpoint::atomics`. They are atomic towards each other, within the domain whose memory it
//! is; not towards what the peer's own program does to the same words meanwhile.

use crate::abi::*;
use std::ffi::c_int;

/// Longest operand of one operation, bytes.
pub(crate) const OPERAND_BYTES_MAX: usize = 16 << 10;

/// What sort of operation it is, by what it takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Takes an operand.
    Write,
    /// Gives what was there as well.
    Fetch,
    /// Takes something to compare with, too.
    Compare,
}

/// A type's size in bytes, and whether an operation of a sort is there for it; `None`: it is not.
pub(crate) fn size_of_type(datatype: fi_datatype, op: fi_op, sort: Sort) -> Option<usize> {
    let (size, numbers) = match datatype {
        FI_INT8 | FI_UINT8 => (1, Numbers::Whole),
        FI_INT16 | FI_UINT16 => (2, Numbers::Whole),
        FI_INT32 | FI_UINT32 => (4, Numbers::Whole),
        FI_INT64 | FI_UINT64 => (8, Numbers::Whole),
        FI_INT128 | FI_UINT128 => (16, Numbers::Whole),
        FI_FLOAT => (4, Numbers::Real),
        FI_DOUBLE => (8, Numbers::Real),
        FI_FLOAT_COMPLEX => (8, Numbers::Complex),
        FI_DOUBLE_COMPLEX => (16, Numbers::Complex),
        // The length of a long double, and so its arithmetic, is the machine's.
        _ => return None,
    };
    let compares = matches!(op, FI_CSWAP..=FI_MSWAP);
    let is_there = match op {
        FI_SUM | FI_PROD | FI_LOR | FI_LAND | FI_LXOR | FI_ATOMIC_WRITE | FI_CSWAP | FI_CSWAP_NE => true,
        FI_ATOMIC_READ => sort == Sort::Fetch,
        FI_MIN | FI_MAX | FI_CSWAP_LE | FI_CSWAP_LT | FI_CSWAP_GE | FI_CSWAP_GT => {
            numbers != Numbers::Complex
        }
        FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP => numbers == Numbers::Whole,
        _ => false,
    };
    (is_there && compares == (sort == Sort::Compare)).then_some(size)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Whole,
    Real,
    Complex,
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query(
    _: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let sort = match flags & (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) {
        0 => Sort::Write,
        FI_FETCH_ATOMIC => Sort::Fetch,
        FI_COMPARE_ATOMIC => Sort::Compare,
        _ => return -FI_EINVAL,
    };
    match size_of_type(datatype, op, sort) {
        Some(size) => {
            // SAFETY: the host's call.
            unsafe { *attr = fi_atomic_attr { count: OPERAND_BYTES_MAX / size, size } };
            FI_SUCCESS
        }
        None => -FI_EOPNOTSUPP,
    }
}

/// What the words at a place become. `place` is changed; operand and comparison are as long, or empty where the operation
/// takes none. The operation is there for the type.
pub(crate) fn apply(datatype: fi_datatype, op: fi_op, place: &mut [u8], operand: &[u8], compare: &[u8]) {
    match datatype {
        FI_INT8 => whole::<i8, 1>(op, place, operand, compare),
        FI_UINT8 => whole::<u8, 1>(op, place, operand, compare),
        FI_INT16 => whole::<i16, 2>(op, place, operand, compare),
        FI_UINT16 => whole::<u16, 2>(op, place, operand, compare),
        FI_INT32 => whole::<i32, 4>(op, place, operand, compare),
        FI_UINT32 => whole::<u32, 4>(op, place, operand, compare),
        FI_INT64 => whole::<i64, 8>(op, place, operand, compare),
        FI_UINT64 => whole::<u64, 8>(op, place, operand, compare),
        FI_INT128 => whole::<i128, 16>(op, place, operand, compare),
        FI_UINT128 => whole::<u128, 16>(op, place, operand, compare),
        FI_FLOAT => each::<f32, 4>(place, operand, compare, |was, operand, compare| {
            ordered(op, was, operand, compare)
        }),
        FI_DOUBLE => each::<f64, 8>(place, operand, compare, |was, operand, compare| {
            ordered(op, was, operand, compare)
        }),
        FI_FLOAT_COMPLEX => each::<Complex<f32>, 8>(place, operand, compare, |was, operand, compare| {
            any(op, was, operand, compare)
        }),
        FI_DOUBLE_COMPLEX => {
            each::<Complex<f64>, 16>(place, operand, compare, |was, operand, compare| {
                any(op, was, operand, compare)
            });
        }
        _ => {}
    }
}

/// A number, as it lies in memory.
trait Number<const N: usize>: Copy + PartialEq {
    const ZERO: Self;
    const ONE: Self;
    fn load(bytes: [u8; N]) -> Self;
    fn store(self) -> [u8; N];
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

/// One of whose kind there is a lesser and a greater.
trait Ordered<const N: usize>: Number<N> + PartialOrd {}

/// One that is bits.
trait Bits<const N: usize>: Ordered<N> {
    fn or(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $bytes:literal, $zero:literal, $one:literal, $sum:expr, $product:expr;)*) => {$(
        impl Number<$bytes> for $type {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            fn load(bytes: [u8; $bytes]) -> Self {
                <$type>::from_ne_bytes(bytes)
            }
            fn store(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            fn product(self, other: Self) -> Self {
                $product(self, other)
            }
        }
        impl Ordered<$bytes> for $type {}
    )*};
}

macro_rules! whole_numbers {
    ($($type:ty, $bytes:literal;)*) => {
        numbers! { $($type, $bytes, 0, 1, <$type>::wrapping_add, <$type>::wrapping_mul;)* }
        $(impl Bits<$bytes> for $type {
            fn or(self, other: Self) -> Self {
                self | other
            }
            fn and(self, other: Self) -> Self {
                self & other
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn not(self) -> Self {
                !self
            }
        })*
    };
}

whole_numbers! { i8, 1; u8, 1; i16, 2; u16, 2; i32, 4; u32, 4; i64, 8; u64, 8; i128, 16; u128, 16; }
numbers! {
    f32, 4, 0.0, 1.0, |a: f32, b: f32| a + b, |a: f32, b: f32| a * b;
    f64, 8, 0.0, 1.0, |a: f64, b: f64| a + b, |a: f64, b: f64| a * b;
}

/// A complex number as C has it: the real part, then the imaginary one.
#[derive(Clone, Copy, PartialEq)]
struct Complex<T>(T, T);

macro_rules! complex_numbers {
    ($($part:ty, $half:literal, $bytes:literal;)*) => {$(
        impl Number<$bytes> for Complex<$part> {
            const ZERO: Self = Complex(0.0, 0.0);
            const ONE: Self = Complex(1.0, 0.0);
            fn load(bytes: [u8; $bytes]) -> Self {
                let part = |at: usize| {
                    let mut part = [0; $half];
                    part.copy_from_slice(&bytes[at..at + $half]);
                    <$part>::from_ne_bytes(part)
                };
                Complex(part(0), part($half))
            }
            fn store(self) -> [u8; $bytes] {
                let mut bytes = [0; $bytes];
                bytes[..$half].copy_from_slice(&self.0.to_ne_bytes());
                bytes[$half..].copy_from_slice(&self.1.to_ne_bytes());
                bytes
            }
            fn sum(self, other: Self) -> Self {
                Complex(self.0 + other.0, self.1 + other.1)
            }
            fn product(self, other: Self) -> Self {
                Complex(self.0 * other.0 - self.1 * other.1, self.0 * other.1 + self.1 * other.0)
            }
        }
    )*};
}

complex_numbers! { f32, 4, 8; f64, 8, 16; }

/// Changes each of the numbers at a place.
fn each<T: Number<N>, const N: usize>(
    place: &mut [u8],
    operand: &[u8],
    compare: &[u8],
    change: impl Fn(T, T, T) -> T,
) {
    let (operands, compares) = (operand.as_chunks::<N>().0, compare.as_chunks::<N>().0);
    for (at, was) in place.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        let other = |of: &[[u8; N]]| of.get(at).map_or(T::ZERO, |bytes| T::load(*bytes));
        *was = change(T::load(*was), other(operands), other(compares)).store();
    }
}

/// What every number can become.
fn any<T: Number<N>, const N: usize>(op: fi_op, was: T, operand: T, compare: T) -> T {
    let truth = |holds: bool| if holds { T::ONE } else { T::ZERO };
    let (left, right) = (was != T::ZERO, operand != T::ZERO);
    match op {
        FI_SUM => was.sum(operand),
        FI_PROD => was.product(operand),
        FI_LOR => truth(left || right),
        FI_LAND => truth(left && right),
        FI_LXOR => truth(left != right),
        FI_ATOMIC_WRITE => operand,
        FI_CSWAP if compare == was => operand,
        FI_CSWAP_NE if compare != was => operand,
        _ => was,
    }
}

/// What a number can become besides where there is a lesser and a greater: the comparison is the left side.
fn ordered<T: Ordered<N>, const N: usize>(op: fi_op, was: T, operand: T, compare: T) -> T {
    let if_so = |holds: bool| if holds { operand } else { was };
    match op {
        FI_MIN => if_so(operand < was),
        FI_MAX => if_so(operand > was),
        FI_CSWAP_LE => if_so(compare <= was),
        FI_CSWAP_LT => if_so(compare < was),
        FI_CSWAP_GE => if_so(compare >= was),
        FI_CSWAP_GT => if_so(compare > was),
        _ => any(op, was, operand, compare),
    }
}

/// What a whole number can become besides: the comparison of a masked swap is the mask.
fn whole<T: Bits<N>, const N: usize>(op: fi_op, place: &mut [u8], operand: &[u8], compare: &[u8]) {
    each::<T, N>(place, operand, compare, |was, operand, compare| match op {
        FI_BOR => was.or(operand),
        FI_BAND => was.and(operand),
        FI_BXOR => was.xor(operand),
        FI_MSWAP => operand.and(compare).or(was.and(compare.not())),
        _ => ordered(op, was, operand, compare),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed<const N: usize, T: Number<N>>(
        datatype: fi_datatype,
        op: fi_op,
        was: T,
        operand: T,
        compare: T,
    ) -> T {
        let mut place = was.store();
        apply(datatype, op, &mut place, &operand.store(), &compare.store());
        T::load(place)
    }

    #[test]
    fn words_become_what_the_manual_says() {
        let whole = |op, was: i32, operand, compare| changed(FI_INT32, op, was, operand, compare);
        assert_eq!(whole(FI_MIN, 3, -4, 0), -4);
        assert_eq!(whole(FI_MAX, 3, -4, 0), 3);
        assert_eq!(whole(FI_SUM, i32::MAX, 1, 0), i32::MIN);
        assert_eq!(whole(FI_PROD, 3, -4, 0), -12);
        assert_eq!((whole(FI_LOR, 0, 9, 0), whole(FI_LAND, 0, 9, 0), whole(FI_LXOR, 5, 9, 0)), (1, 0, 0));
        assert_eq!((whole(FI_BOR, 5, 2, 0), whole(FI_BAND, 7, 2, 0), whole(FI_BXOR, 7, 2, 0)), (7, 2, 5));
        assert_eq!((whole(FI_ATOMIC_READ, 5, 0, 0), whole(FI_ATOMIC_WRITE, 5, 6, 0)), (5, 6));
        assert_eq!((whole(FI_CSWAP, 5, 6, 5), whole(FI_CSWAP, 5, 6, 4)), (6, 5));
        assert_eq!((whole(FI_CSWAP_NE, 5, 6, 5), whole(FI_CSWAP_NE, 5, 6, 4)), (5, 6));
        assert_eq!((whole(FI_CSWAP_LE, 5, 6, 5), whole(FI_CSWAP_LT, 5, 6, 5)), (6, 5));
        assert_eq!((whole(FI_CSWAP_GE, 5, 6, 5), whole(FI_CSWAP_GT, 5, 6, 5)), (6, 5));
        assert_eq!(whole(FI_MSWAP, 0x1234, 0xabcd, 0x00ff), 0x12cd);
        assert_eq!(changed(FI_UINT8, FI_MAX, 200u8, 100, 0), 200);
        assert_eq!(changed(FI_INT8, FI_MAX, -56i8, 100, 0), 100);
        assert_eq!(changed(FI_DOUBLE, FI_SUM, 1.5f64, 2.25, 0.0), 3.75);
        let product =
            changed(FI_FLOAT_COMPLEX, FI_PROD, Complex(1.0f32, 2.0), Complex(3.0, 4.0), Complex(0.0, 0.0));
        assert!(product == Complex(-5.0, 10.0));
    }

    #[test]
    fn every_word_is_changed_by_its_own_operand() {
        let mut place: Vec<u8> = [1u16, 2, 3].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let operand: Vec<u8> = [10u16, 20, 30].iter().flat_map(|word| word.to_ne_bytes()).collect();
        apply(FI_UINT16, FI_SUM, &mut place, &operand, &[]);
        let words: Vec<u16> = place.as_chunks::<2>().0.iter().map(|word| u16::from_ne_bytes(*word)).collect();
        assert_eq!(words, [11, 22, 33]);
    }

    #[test]
    fn what_makes_no_sense_is_not_there() {
        assert_eq!(size_of_type(FI_INT64, FI_SUM, Sort::Write), Some(8));
        assert_eq!(size_of_type(FI_INT64, FI_CSWAP, Sort::Compare), Some(8));
        for (datatype, op, sort) in [
            (FI_DOUBLE, FI_BOR, Sort::Write),
            (FI_DOUBLE_COMPLEX, FI_MIN, Sort::Fetch),
            (FI_LONG_DOUBLE, FI_SUM, Sort::Write),
            (FI_INT32, FI_ATOMIC_READ, Sort::Write),
            (FI_INT32, FI_SUM, Sort::Compare),
            (FI_INT32, FI_CSWAP, Sort::Fetch),
            (99, FI_SUM, Sort::Write),
            (FI_INT32, 99, Sort::Write),
        ] {
            assert_eq!(size_of_type(datatype, op, sort), None, "{datatype} {op} {sort:?}");
        }
    }
}
