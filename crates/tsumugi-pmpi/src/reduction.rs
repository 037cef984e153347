//! Reductions of an MPI's types by an MPI's operations.

use crate::abi::Number;
use tsumugi::collective::{CollectiveError, Element, Group, Integer, Operation, Reduction, ReductionKind};

/// What is done with the elements of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    number: Number,
    kind: ReductionKind,
}

/// A reduction that is under way, whatever its type. The result is given as bytes.
pub(crate) trait Reducing {
    fn test(&mut self) -> Result<Option<Vec<u8>>, CollectiveError>;
}

struct Typed<T: 'static>(Operation<Vec<T>>);

impl<T: Element> Reducing for Typed<T> {
    fn test(&mut self) -> Result<Option<Vec<u8>>, CollectiveError> {
        Ok(self.0.test()?.map(|elements| bytes_of(&elements)))
    }
}

/// The bytes of elements, as the host has them.
pub(crate) fn bytes_of<T: Element>(elements: &[T]) -> Vec<u8> {
    let bytes = size_of_val(elements);
    // SAFETY: numbers have no other bytes than those of their value.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), bytes) }.to_vec()
}

/// The elements in bytes, wherever these lie.
fn elements_of<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    let length = size_of_val(&elements[..]);
    // SAFETY: of a number any bytes are a value, and there are as many.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), length) }
        .copy_from_slice(&bytes[..length]);
    elements
}

/// What is done with the result of a reduction's start.
pub(crate) trait With {
    type Result;
    fn with<T: Element>(self, data: Vec<T>, reduction: Reduction<T>) -> Self::Result;
}

impl How {
    /// How to reduce elements of a type by an operation; `None`: that is left to the MPI.
    pub(crate) fn of(number: Number, kind: ReductionKind) -> Option<How> {
        use ReductionKind::{Band, Bor, Bxor, Land, Lor, Product, Sum};
        let is_bitwise = matches!(kind, Band | Bor | Bxor);
        let is_known = match number {
            Number::Text => false,
            Number::Byte | Number::I16 | Number::U16 => is_bitwise,
            // Their sums and products have the same bits as those of unsigned ones.
            Number::I8 => is_bitwise || matches!(kind, Sum | Product | Land | Lor),
            Number::F32 | Number::F64 => !is_bitwise && !matches!(kind, Land | Lor),
            Number::U8 | Number::I32 | Number::U32 | Number::I64 | Number::U64 => true,
        };
        is_known.then_some(How { number, kind })
    }

    /// Length of an element, bytes.
    pub(crate) fn element_bytes(self) -> usize {
        self.number.bytes()
    }

    /// Does something with the elements in bytes and the reduction, of the type that they have.
    pub(crate) fn apply<W: With>(self, bytes: &[u8], with: W) -> W::Result {
        match self.number {
            Number::I32 => self.of_integers::<i32, W>(bytes, with),
            Number::U32 => self.of_integers::<u32, W>(bytes, with),
            Number::I64 => self.of_integers::<i64, W>(bytes, with),
            Number::U64 => self.of_integers::<u64, W>(bytes, with),
            Number::F32 => self.of_any::<f32, W>(bytes, with),
            Number::F64 => self.of_any::<f64, W>(bytes, with),
            // By their bits.
            Number::I8 | Number::U8 | Number::I16 | Number::U16 | Number::Byte | Number::Text => {
                self.of_integers::<u8, W>(bytes, with)
            }
        }
    }

    fn of_integers<T: Integer, W: With>(self, bytes: &[u8], with: W) -> W::Result {
        let reduction = match self.kind {
            ReductionKind::Band => Reduction::<T>::band(),
            ReductionKind::Bor => Reduction::bor(),
            ReductionKind::Bxor => Reduction::bxor(),
            ReductionKind::Land => Reduction::land(),
            ReductionKind::Lor => Reduction::lor(),
            _ => return self.of_any::<T, W>(bytes, with),
        };
        with.with(elements_of(bytes), reduction)
    }

    fn of_any<T: Element, W: With>(self, bytes: &[u8], with: W) -> W::Result {
        let reduction = match self.kind {
            ReductionKind::Product => Reduction::<T>::product(),
            ReductionKind::Min => Reduction::min(),
            ReductionKind::Max => Reduction::max(),
            _ => Reduction::sum(),
        };
        with.with(elements_of(bytes), reduction)
    }
}

/// Starts the reduction in a group.
pub(crate) struct Start<'a>(pub(crate) &'a Group);

impl With for Start<'_> {
    type Result = Result<Box<dyn Reducing>, CollectiveError>;

    fn with<T: Element>(self, data: Vec<T>, reduction: Reduction<T>) -> Self::Result {
        Ok(Box::new(Typed(self.0.start_allreduce(&data, &reduction)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_elements_wherever_they_lie() {
        let bytes = bytes_of(&[1u64 << 40, 7]);
        let mut moved = vec![0];
        moved.extend(&bytes);
        assert_eq!(elements_of::<u64>(&moved[1..]), [1 << 40, 7]);
    }

    #[test]
    fn only_what_the_library_computes_is_taken() {
        let is_taken = |number, kind| How::of(number, kind).is_some();
        assert!(is_taken(Number::F64, ReductionKind::Max) && is_taken(Number::I8, ReductionKind::Sum));
        assert!(is_taken(Number::I16, ReductionKind::Bxor) && is_taken(Number::Byte, ReductionKind::Bor));
        assert!(!is_taken(Number::I8, ReductionKind::Min) && !is_taken(Number::I16, ReductionKind::Sum));
        assert!(!is_taken(Number::F32, ReductionKind::Band) && !is_taken(Number::Text, ReductionKind::Bor));
    }
}
