//! How two values become one.

use super::element::{Element, Integer};
use super::schedule::Order;
use crate::registry;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// Which reduction it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
#[repr(u8)]
pub enum ReductionKind {
    /// The sum; integers wrap around.
    Sum = 1,
    /// The product; integers wrap around.
    Product,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The bits that all have.
    Band,
    /// The bits that some have.
    Bor,
    /// The bits that an odd number of them have.
    Bxor,
    /// 1 if none is 0, else 0.
    Land,
    /// 0 if all are 0, else 1.
    Lor,
    /// A function of the program's.
    Function,
}

impl ReductionKind {
    /// The reduction of this number.
    pub(super) fn of(number: u8) -> Option<ReductionKind> {
        use ReductionKind::{Band, Bor, Bxor, Function, Land, Lor, Max, Min, Product, Sum};
        let all = [Sum, Product, Min, Max, Band, Bor, Bxor, Land, Lor, Function];
        all.into_iter().find(|known| *known as u8 == number)
    }
}

/// Combines what has arrived into what is there, both as many bytes.
pub(super) type Combine = Rc<dyn Fn(&mut [u8], &[u8], Order)>;

/// How two values of a type become one, in a reduction.
///
/// Values are combined in the order of ranks, along a tree that the number of participants alone decides: not the length, the
/// root, the algorithm or the order in which messages arrive. So the same reduction of the same values is the same to the last bit, at all
/// participants, though a floating-point sum depends on how it is bracketed.
pub struct Reduction<T> {
    kind: ReductionKind,
    /// By which a function is known to the others.
    name: &'static str,
    combine: Combine,
    element: PhantomData<T>,
}

impl<T> Clone for Reduction<T> {
    fn clone(&self) -> Self {
        Reduction {
            kind: self.kind,
            name: self.name,
            combine: Rc::clone(&self.combine),
            element: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Reduction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction").field("kind", &self.kind).field("name", &self.name).finish()
    }
}

impl<T: Element> Reduction<T> {
    /// A function of the program's, which is to be the same at all participants and associative: `f(f(a, b), c)` as good as
    /// `f(a, f(b, c))`. It need not be commutative: the left operand is always of lower ranks than the right one.
    ///
    /// By its name, participants that reduce by different functions notice it.
    #[must_use]
    pub fn new(name: &'static str, function: impl Fn(T, T) -> T + 'static) -> Reduction<T> {
        Reduction::with(ReductionKind::Function, name, function)
    }

    fn with(kind: ReductionKind, name: &'static str, function: impl Fn(T, T) -> T + 'static) -> Reduction<T> {
        let combine = move |own: &mut [u8], arrived: &[u8], order: Order| {
            let pairs = own.chunks_exact_mut(T::BYTES).zip(arrived.chunks_exact(T::BYTES));
            // The order is asked for once, so that what is in the loop can be done for several at once.
            match order {
                Order::OwnFirst => {
                    pairs.for_each(|(own, arrived)| function(T::get(own), T::get(arrived)).put(own))
                }
                Order::ArrivedFirst => {
                    pairs.for_each(|(own, arrived)| function(T::get(arrived), T::get(own)).put(own));
                }
            }
        };
        Reduction { kind, name, combine: Rc::new(combine), element: PhantomData }
    }

    /// The sum; integers wrap around.
    #[must_use]
    pub fn sum() -> Reduction<T> {
        Reduction::with(ReductionKind::Sum, "", T::sum)
    }

    /// The product; integers wrap around.
    #[must_use]
    pub fn product() -> Reduction<T> {
        Reduction::with(ReductionKind::Product, "", T::product)
    }

    /// The least value; NaN if there is one, and −0.0 is less than +0.0.
    #[must_use]
    pub fn min() -> Reduction<T> {
        Reduction::with(ReductionKind::Min, "", T::least)
    }

    /// The greatest value; NaN if there is one, and +0.0 is greater than −0.0.
    #[must_use]
    pub fn max() -> Reduction<T> {
        Reduction::with(ReductionKind::Max, "", T::greatest)
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> ReductionKind {
        self.kind
    }

    pub(super) fn combine(&self) -> Combine {
        Rc::clone(&self.combine)
    }

    /// What tells functions apart on the wire.
    pub(super) fn hash(&self) -> u64 {
        match self.kind {
            ReductionKind::Function => registry::hash(self.name),
            _ => 0,
        }
    }
}

impl<T: Integer> Reduction<T> {
    /// The bits that all have.
    #[must_use]
    pub fn band() -> Reduction<T> {
        Reduction::with(ReductionKind::Band, "", T::bits_and)
    }

    /// The bits that some have.
    #[must_use]
    pub fn bor() -> Reduction<T> {
        Reduction::with(ReductionKind::Bor, "", T::bits_or)
    }

    /// The bits that an odd number of them have.
    #[must_use]
    pub fn bxor() -> Reduction<T> {
        Reduction::with(ReductionKind::Bxor, "", T::bits_xor)
    }

    /// 1 if none is 0, else 0.
    #[must_use]
    pub fn land() -> Reduction<T> {
        Reduction::with(ReductionKind::Land, "", |a, b| T::truth(is_true(a) && is_true(b)))
    }

    /// 0 if all are 0, else 1.
    #[must_use]
    pub fn lor() -> Reduction<T> {
        Reduction::with(ReductionKind::Lor, "", |a, b| T::truth(is_true(a) || is_true(b)))
    }
}

fn is_true<T: Integer>(value: T) -> bool {
    value != T::truth(false)
}
