//! Collective operations: what a list of participants does together (MPI's collectives; `MMP_Sync` of P3: Aoki et al., *Message Passing
//! Library for Maestro2 Cluster Network*, 2006).
//!
//! A [`Group`] is an ordered list of participants over one channel. All of them start the same operations in the same order; each
//! operation carries slices of numbers ([`Element`]) and is there in two forms, one that waits and one that is started, `start_…`,
//! and gives an [`Operation`] to test, to wait for or to await. Any number of operations may be under way.
//!
//! ```
//! use tsumugi::collective::{Group, Reduction};
//! use tsumugi::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let there = Endpoint::open(Config::loopback())?;
//! let here = Endpoint::open(Config::loopback())?;
//! let [first, second] = [&here, &there].map(|of| format!("127.0.0.1:{}", of.port()));
//! // Everybody lists the others in the order of ranks; its own entry is None.
//! let one = Group::open(&here, 1, 0, &[None, Some(here.add_peer(second)?)])?;
//! let other = Group::open(&there, 1, 1, &[Some(there.add_peer(first)?), None])?;
//!
//! let mut a = one.start_allreduce(&[20u64, 1], &Reduction::sum())?;
//! let mut b = other.start_allreduce(&[22u64, 2], &Reduction::sum())?;
//! # // One thread plays both sides here.
//! # let sums = loop {
//! #     other.progress()?;
//! #     if let Some(sums) = a.test()? {
//! #         break sums;
//! #     }
//! # };
//! # /*
//! let sums = a.wait()?; // or one.allreduce(&mut numbers, &Reduction::sum())? at once
//! # */
//! assert_eq!(sums, [42, 3]);
//! # while b.test()?.is_none() {
//! #     one.progress()?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! # The operations
//!
//! | operation | short data | long data |
//! |---|---|---|
//! | [`barrier`](Group::barrier) | dissemination | |
//! | [`broadcast`](Group::broadcast) | binomial tree | scatter and ring allgather (van de Geijn) |
//! | [`reduce`](Group::reduce) | binomial tree | reduce-scatter and gather (Rabenseifner) |
//! | [`allreduce`](Group::allreduce) | recursive doubling | reduce-scatter and allgather (Rabenseifner) |
//! | [`gather`](Group::gather), [`scatter`](Group::scatter) | binomial tree | linear |
//! | [`allgather`](Group::allgather) | Bruck | ring |
//! | [`all_to_all`](Group::all_to_all) | Bruck | pairwise exchange |
//! | [`gatherv`](Group::gatherv), [`scatterv`](Group::scatterv), [`allgatherv`](Group::allgatherv), [`all_to_allv`](Group::all_to_allv) | linear, ring, pairwise | the same |
//!
//! Any number of participants will do; one is enough.
//!
//! # What a reduction guarantees
//!
//! The order in which values are combined follows from the number of participants alone. So the result is the same to the last
//! bit at all participants, each time, whatever the order of arrival, the length, the root and the algorithm, of floating-point sums too,
//! as long as their processors and compilers compute the function alike, as they do for the [built-in](Element) ones. Lower
//! ranks are the left operand: a function ([`Reduction::new`]) has to be associative, and need not be commutative.
//!
//! # Progress and memory
//!
//! An operation goes on in any call of its group or of one of its group's [`Operation`]s; a process that computes for long calls
//! [`Group::progress`] now and then. An [`Operation`] that is dropped goes on all the same, because the others need it.
//!
//! An operation has a buffer for everything that arrives for it. What arrives for one that was not started here is kept: at most 256 KiB
//! of each participant, because nobody sends more ahead. Who has more to send waits until the operation was started here.
//!
//! # When something does not fit, or somebody is gone
//!
//! Whoever notices that a participant does something else (another operation, reduction, root, type or length), or that one that an
//! operation needs is gone, gives the group up: from that operation on the group is [`Broken`], here and, because they are told, at the
//! others. What was complete before stays so. There is no mending; whoever is left opens another group, on another channel.
//!
//! Two participants that wait for each other in vain, each having started something in which the other is to speak first, notice it
//! after a quarter of a second. In tasks that takes until the endpoint has looked for signs of life.
//!
//! A participant that closes its endpoint in good order, having done its part in everything that the others have started, breaks
//! nothing.

mod algorithms;
mod arrivals;
mod call;
mod choose;
mod counted;
mod counting;
mod departures;
mod element;
mod error;
mod execution;
mod format;
mod group;
mod joining;
mod multicasts;
mod operation;
mod partner;
mod reduction;
mod schedule;
mod state;
mod switch_box;
#[cfg(test)]
mod tests;

pub use call::{Call, Collective};
pub use element::{Element, ElementKind, Integer};
pub use error::{Broken, CollectiveError, GroupError};
pub use format::Why;
pub use group::Group;
pub use joining::SwitchBoxSearch;
pub use operation::Operation;
pub use reduction::{Reduction, ReductionKind};
