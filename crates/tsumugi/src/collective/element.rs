//! What operations carry: slices of numbers. On the wire they are little-endian.

use std::fmt;

/// A type of numbers that operations carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
#[repr(u8)]
pub enum ElementKind {
    /// Bytes.
    U8 = 1,
    /// Unsigned integers of 32 bits.
    U32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 64 bits.
    I64,
    /// Floating-point numbers of 32 bits.
    F32,
    /// Floating-point numbers of 64 bits.
    F64,
}

impl ElementKind {
    /// Length of a number, bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            ElementKind::U8 => 1,
            ElementKind::U32 | ElementKind::I32 | ElementKind::F32 => 4,
            ElementKind::U64 | ElementKind::I64 | ElementKind::F64 => 8,
        }
    }

    /// The type of this number.
    pub(super) fn of(number: u8) -> Option<ElementKind> {
        use ElementKind::{F32, F64, I32, I64, U8, U32, U64};
        [U8, U32, U64, I32, I64, F32, F64].into_iter().find(|known| *known as u8 == number)
    }
}

mod sealed {
    /// Only this crate says which types are carried.
    pub trait Sealed {}
}

/// A number that operations carry: `u8`, `u32`, `u64`, `i32`, `i64`, `f32` or `f64`.
///
/// Integers wrap around in sums and products. Of floating-point numbers everything is defined to the last bit: a result that is
/// not a number is the one `NAN` of its type, whatever the operands were; the minimum and the maximum of anything and NaN are NaN;
/// −0.0 is less than +0.0.
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + fmt::Debug + 'static {
    /// Which type it is.
    #[doc(hidden)]
    const KIND: ElementKind;
    /// Its length, bytes.
    #[doc(hidden)]
    const BYTES: usize;
    /// Writes it into `BYTES` bytes.
    #[doc(hidden)]
    fn put(self, place: &mut [u8]);
    /// Reads it from `BYTES` bytes.
    #[doc(hidden)]
    fn get(place: &[u8]) -> Self;
    #[doc(hidden)]
    fn sum(self, other: Self) -> Self;
    #[doc(hidden)]
    fn product(self, other: Self) -> Self;
    #[doc(hidden)]
    fn least(self, other: Self) -> Self;
    #[doc(hidden)]
    fn greatest(self, other: Self) -> Self;
}

/// An [`Element`] that is an integer, and so has bits.
pub trait Integer: Element {
    #[doc(hidden)]
    fn bits_and(self, other: Self) -> Self;
    #[doc(hidden)]
    fn bits_or(self, other: Self) -> Self;
    #[doc(hidden)]
    fn bits_xor(self, other: Self) -> Self;
    #[doc(hidden)]
    fn truth(is_true: bool) -> Self;
}

macro_rules! element {
    ($type:ty, $kind:ident) => {
        const KIND: ElementKind = ElementKind::$kind;
        const BYTES: usize = size_of::<$type>();
        #[inline]
        fn put(self, place: &mut [u8]) {
            place.copy_from_slice(&self.to_le_bytes());
        }
        #[inline]
        fn get(place: &[u8]) -> $type {
            place.first_chunk().map_or_else(Default::default, |bytes| <$type>::from_le_bytes(*bytes))
        }
    };
}

macro_rules! integers {
    ($($type:ty: $kind:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            element!($type, $kind);
            #[inline]
            fn sum(self, other: $type) -> $type {
                self.wrapping_add(other)
            }
            #[inline]
            fn product(self, other: $type) -> $type {
                self.wrapping_mul(other)
            }
            #[inline]
            fn least(self, other: $type) -> $type {
                self.min(other)
            }
            #[inline]
            fn greatest(self, other: $type) -> $type {
                self.max(other)
            }
        }
        impl Integer for $type {
            #[inline]
            fn bits_and(self, other: $type) -> $type {
                self & other
            }
            #[inline]
            fn bits_or(self, other: $type) -> $type {
                self | other
            }
            #[inline]
            fn bits_xor(self, other: $type) -> $type {
                self ^ other
            }
            #[inline]
            fn truth(is_true: bool) -> $type {
                <$type>::from(is_true)
            }
        }
    )*};
}

/// Which NaN an operation makes is not defined, so that there is one.
macro_rules! one_nan {
    ($type:ty, $value:expr) => {{
        let value = $value;
        if value.is_nan() { <$type>::NAN } else { value }
    }};
}

macro_rules! floats {
    ($($type:ty: $kind:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            element!($type, $kind);
            #[inline]
            fn sum(self, other: $type) -> $type {
                one_nan!($type, self + other)
            }
            #[inline]
            fn product(self, other: $type) -> $type {
                one_nan!($type, self * other)
            }
            #[inline]
            fn least(self, other: $type) -> $type {
                if self.is_nan() || other.is_nan() {
                    <$type>::NAN
                } else if self < other || self == other && self.is_sign_negative() {
                    self
                } else {
                    other
                }
            }
            #[inline]
            fn greatest(self, other: $type) -> $type {
                if self.is_nan() || other.is_nan() {
                    <$type>::NAN
                } else if self > other || self == other && self.is_sign_positive() {
                    self
                } else {
                    other
                }
            }
        }
    )*};
}

integers!(u8: U8, u32: U32, u64: U64, i32: I32, i64: I64);
floats!(f32: F32, f64: F64);

/// Writes elements into as many bytes as they need.
pub(super) fn put_all<T: Element>(elements: &[T], bytes: &mut [u8]) {
    for (element, place) in elements.iter().zip(bytes.chunks_exact_mut(T::BYTES)) {
        element.put(place);
    }
}

/// Reads as many elements as there are.
pub(super) fn get_all<T: Element>(bytes: &[u8], elements: &mut [T]) {
    for (element, place) in elements.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
        *element = T::get(place);
    }
}

/// The elements in bytes.
pub(super) fn elements_in<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::BYTES).map(T::get).collect()
}
