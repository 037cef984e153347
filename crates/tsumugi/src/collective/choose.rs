//! Which way an operation takes: by its length and the number of participants.
//!
//! All participants must choose the same, so only what they all know may decide: what is in the [`Call`](super::Call), the number
//! of participants, and constants.

use super::algorithms::{
    binomial_broadcast, binomial_gather, binomial_reduce, binomial_scatter, bruck_all_to_all,
    bruck_allgather, dissemination, linear_gather, linear_scatter, pairwise, recursive_doubling,
    reduce_scatter_allgather, reduce_scatter_gather, ring, scatter_allgather,
};
use super::schedule::{Position, Schedule};

/// Longest data of a broadcast that go down a tree whole, bytes.
pub(super) const BROADCAST_BYTES: usize = 16 << 10;
/// Longest data of a reduction that are exchanged whole, bytes.
pub(super) const REDUCE_BYTES: usize = 4 << 10;
/// Longest block that takes other blocks along through a tree, bytes.
pub(super) const BLOCK_BYTES: usize = 2 << 10;
/// Longest result of an allgather by Bruck's algorithm, bytes.
pub(super) const ALLGATHER_BYTES: usize = 32 << 10;
/// Longest block of an all-to-all by Bruck's algorithm, bytes: a block is sent several times.
pub(super) const ALL_TO_ALL_BYTES: usize = 256;

/// An operation's lengths, bytes, and its root.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Barrier,
    Broadcast { root: usize, bytes: usize },
    Reduce { root: usize, bytes: usize, element: usize },
    Allreduce { bytes: usize, element: usize },
    Gather { root: usize, bytes: usize },
    Gatherv { root: usize, lengths: Vec<usize> },
    Allgather { bytes: usize },
    Allgatherv { lengths: Vec<usize> },
    Scatter { root: usize, bytes: usize },
    Scatterv { root: usize, lengths: Vec<usize> },
    AllToAll { bytes: usize },
    AllToAllv { sent: Vec<usize>, received: Vec<usize> },
}

/// How an operation is done. What does not go by messages from participant to participant, such as a switch that counts, is another
/// of these.
pub(super) enum Way {
    Messages(Schedule),
}

/// Chooses the way of an operation of this shape.
pub(super) fn choose(shape: &Shape, me: Position) -> Way {
    let equal = |bytes: usize| vec![bytes; me.size];
    Way::Messages(match shape {
        Shape::Barrier => dissemination(me),
        // With two there is nothing to share.
        &Shape::Broadcast { root, bytes } if bytes <= BROADCAST_BYTES || me.size <= 2 => {
            binomial_broadcast(me, root, bytes)
        }
        &Shape::Broadcast { root, bytes } => scatter_allgather(me, root, bytes),
        &Shape::Reduce { root, bytes, .. } if bytes <= REDUCE_BYTES || me.size <= 2 => {
            binomial_reduce(me, root, bytes)
        }
        &Shape::Reduce { root, bytes, element } => reduce_scatter_gather(me, root, bytes, element),
        &Shape::Allreduce { bytes, .. } if bytes <= REDUCE_BYTES => recursive_doubling(me, bytes),
        &Shape::Allreduce { bytes, element } => reduce_scatter_allgather(me, bytes, element),
        &Shape::Gather { root, bytes } if bytes <= BLOCK_BYTES => binomial_gather(me, root, bytes),
        &Shape::Gather { root, bytes } => linear_gather(me, root, &equal(bytes)),
        Shape::Gatherv { root, lengths } => linear_gather(me, *root, lengths),
        &Shape::Allgather { bytes } if bytes * me.size <= ALLGATHER_BYTES => bruck_allgather(me, bytes),
        &Shape::Allgather { bytes } => ring(me, &equal(bytes)),
        Shape::Allgatherv { lengths } => ring(me, lengths),
        &Shape::Scatter { root, bytes } if bytes <= BLOCK_BYTES => binomial_scatter(me, root, bytes),
        &Shape::Scatter { root, bytes } => linear_scatter(me, root, &equal(bytes)),
        Shape::Scatterv { root, lengths } => linear_scatter(me, *root, lengths),
        &Shape::AllToAll { bytes } if bytes <= ALL_TO_ALL_BYTES => bruck_all_to_all(me, bytes),
        &Shape::AllToAll { bytes } => pairwise(me, &equal(bytes), &equal(bytes)),
        Shape::AllToAllv { sent, received } => pairwise(me, sent, received),
    })
}
