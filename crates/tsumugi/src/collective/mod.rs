//! Collective operations.

mod algorithms;
mod call;
mod choose;
mod element;
mod execution;
mod reduction;
mod schedule;
#[cfg(test)]
mod tests;

pub use call::{Call, Collective};
pub use element::{Element, ElementKind, Integer};
pub use reduction::{Reduction, ReductionKind};
