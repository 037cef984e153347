//! The algorithms: functions from a participant's rank and the operation's lengths to its schedule.
//!
//! Names are those of the field; see R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations
//! in MPICH* (2005), and for the barrier D. Hensgen, R. Finkel, U. Manber (1988). Each serves any number of participants.

mod all_to_all;
mod allgather;
mod barrier;
mod broadcast;
mod fold;
mod gather;
mod reduce;
mod scatter;

pub(super) use all_to_all::{bruck_all_to_all, pairwise};
pub(super) use allgather::{bruck_allgather, ring};
pub(super) use barrier::dissemination;
pub(super) use broadcast::{binomial_broadcast, flat_broadcast, scatter_allgather};
pub(super) use fold::fold_all;
pub(super) use gather::{binomial_gather, linear_gather};
pub(super) use reduce::{
    binomial_reduce, recursive_doubling, reduce_scatter_allgather, reduce_scatter_gather,
};
pub(super) use scatter::{binomial_scatter, linear_scatter};

/// The part of a binomial tree that hangs below a place: its distance from its parent, which is also how many places its part
/// has at most. The root's is as large as the tree.
fn reach(place: usize, size: usize) -> usize {
    match place {
        0 => size.next_power_of_two(),
        place => 1 << place.trailing_zeros(),
    }
}

/// Distances of the children of a place in a binomial tree, the one with the largest part first.
fn children(place: usize, size: usize) -> impl Iterator<Item = usize> {
    let mut distance = reach(place, size);
    std::iter::from_fn(move || {
        while distance > 1 {
            distance /= 2;
            if place + distance < size {
                return Some(distance);
            }
        }
        None
    })
}

/// How many places the part of the tree has that hangs below a place, itself included.
fn part(place: usize, size: usize) -> usize {
    reach(place, size).min(size - place)
}
