//! Collective operations.

mod algorithms;
mod arrivals;
mod call;
mod choose;
mod counted;
mod departures;
mod element;
mod error;
mod execution;
mod format;
mod group;
mod operation;
mod partner;
mod reduction;
mod schedule;
mod state;
#[cfg(test)]
mod tests;

pub use call::{Call, Collective};
pub use element::{Element, ElementKind, Integer};
pub use error::{Broken, CollectiveError, GroupError};
pub use format::Why;
pub use group::Group;
pub use operation::Operation;
pub use reduction::{Reduction, ReductionKind};
