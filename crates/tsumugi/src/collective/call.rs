//! What an operation is, as one participant has started it; all participants have to say the same.

use super::element::ElementKind;
use super::reduction::ReductionKind;
use std::fmt;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
#[repr(u8)]
pub enum Collective {
    /// Nobody leaves before the last has entered.
    Barrier = 1,
    /// The root's data, to everybody.
    Broadcast,
    /// Everybody's data combined, at the root.
    Reduce,
    /// Everybody's data combined, at everybody.
    Allreduce,
    /// Everybody's blocks, at the root.
    Gather,
    /// The same with blocks of several lengths.
    Gatherv,
    /// Everybody's blocks, at everybody.
    Allgather,
    /// The same with blocks of several lengths.
    Allgatherv,
    /// The root's blocks, one to each.
    Scatter,
    /// The same with blocks of several lengths.
    Scatterv,
    /// Everybody's blocks, one to each.
    AllToAll,
    /// The same with blocks of several lengths.
    AllToAllv,
}

impl Collective {
    /// The operation of this number.
    pub(super) fn of(number: u8) -> Option<Collective> {
        use Collective::{
            AllToAll, AllToAllv, Allgather, Allgatherv, Allreduce, Barrier, Broadcast, Gather, Gatherv,
            Reduce, Scatter, Scatterv,
        };
        let all = [
            Barrier, Broadcast, Reduce, Allreduce, Gather, Gatherv, Allgather, Allgatherv, Scatter, Scatterv,
            AllToAll, AllToAllv,
        ];
        all.into_iter().find(|known| *known as u8 == number)
    }
}

/// An operation as one participant has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// What is done.
    pub operation: Collective,
    /// The type of the numbers that are carried; `None` of a barrier.
    pub element: Option<ElementKind>,
    /// How they are combined, in a reduction.
    pub reduction: Option<ReductionKind>,
    /// By which a function is known: a hash of its name; else 0.
    pub function: u64,
    /// The root's rank, if there is a root.
    pub root: Option<u32>,
    /// Length, bytes: of the data of a broadcast or a reduction, of one block, of all blocks of a gatherv, allgatherv or scatterv.
    /// 0 of a barrier and an all-to-allv.
    pub bytes: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(reduction) = self.reduction {
            write!(f, " by {reduction}")?;
            if reduction == ReductionKind::Function {
                write!(f, " {:016x}", self.function)?;
            }
        }
        if let Some(element) = self.element {
            write!(f, " of {} bytes of {element}", self.bytes)?;
        }
        match self.root {
            Some(root) => write!(f, " with root {root}"),
            None => Ok(()),
        }
    }
}
