//! Groups, and what their participants can do together.

use super::call::{Call, Collective};
use super::choose::Shape;
use super::element::{Element, elements_in, get_all, put_all};
use super::error::{CollectiveError, GroupError};
use super::format::HEADER_BYTES;
use super::operation::{self, Operation};
use super::reduction::{Combine, Reduction};
use super::schedule::Position;
use super::state::{Output, State};
use crate::{Endpoint, PeerId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Longest data of one message, bytes: longer transfers are cut.
const PIECE_BYTES: u64 = 64 << 10;
/// Shortest that may be, bytes.
const PIECE_BYTES_MIN: u64 = 64;

/// One participant's hold on a group: an ordered list of participants, each with an endpoint of its own, over one channel.
///
/// Any number of groups may be there at once, on channels of their own. When a group is dropped, operations that were started and
/// are not waited for any more go on only as long as there is an [`Operation`] of it; those that nobody holds are given up, and
/// the others are told.
pub struct Group {
    pub(super) state: Rc<RefCell<State>>,
    position: Position,
}

impl Group {
    /// Opens a channel for a group. `peers` are the participants in the order of their ranks, which is the same at all of
    /// them; this participant's own entry, at `rank`, is `None`. A group of one needs no peer.
    ///
    /// [`Config::message_bytes_max`](crate::Config::message_bytes_max), if it is less than 64 KiB anywhere, is best the same
    /// everywhere: what is sent to a participant that has not said its limit yet is cut by our own.
    ///
    /// # Errors
    /// The channel is taken, or the list says something that cannot be.
    pub fn open(
        endpoint: &Endpoint,
        channel: u16,
        rank: usize,
        peers: &[Option<PeerId>],
    ) -> Result<Group, GroupError> {
        let size = peers.len();
        check(endpoint, rank, peers)?;
        let needed = HEADER_BYTES as u64 + PIECE_BYTES_MIN;
        let limit = endpoint.shared.inner.borrow().core.message_bytes_max();
        if limit < needed {
            return Err(GroupError::MessageBytes { needed, limit });
        }
        let piece_bytes = (limit - HEADER_BYTES as u64).min(PIECE_BYTES) as usize;
        let channel = endpoint.channel(channel)?.hear_closes();
        let position = Position { rank, size };
        let state = State::new(channel, position, peers, piece_bytes);
        Ok(Group { state: Rc::new(RefCell::new(state)), position })
    }

    /// Another hold on the same group.
    pub(super) fn again(&self) -> Group {
        Group { state: Rc::clone(&self.state), position: self.position }
    }

    /// This participant's rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.position.rank
    }

    /// How many participants there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.position.size
    }

    /// Takes in what has arrived and goes on with every operation, once, without waiting. So does every other call.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn progress(&self) -> Result<(), CollectiveError> {
        operation::progress(&self.state)
    }

    /// How many operations were started and are not complete, those included whose [`Operation`] was dropped.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.state.borrow().running.len()
    }

    /// Waits until every participant has called this.
    ///
    /// # Errors
    /// The group is broken, or the NIC is.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.start_barrier()?.wait()
    }

    /// As [`Group::barrier`], without waiting: complete when every participant has started it.
    ///
    /// # Errors
    /// The group is broken, or the NIC is.
    pub fn start_barrier(&self) -> Result<Operation<()>, CollectiveError> {
        let call = Call {
            operation: Collective::Barrier,
            element: None,
            reduction: None,
            function: 0,
            root: None,
            bytes: 0,
        };
        self.start(call, &Shape::Barrier, None, |_| {}, |_| ())
    }

    /// Gives the root's data to everybody: `data` has the same length everywhere, and at the end the same contents.
    ///
    /// # Errors
    /// There is no such root, the group is broken, or the NIC is. Then `data` is as it was.
    pub fn broadcast<T: Element>(&self, root: usize, data: &mut [T]) -> Result<(), CollectiveError> {
        let output = self.start_broadcast(root, data)?.wait_for_output(None)?;
        if self.rank() != root {
            read(&output, data);
        }
        Ok(())
    }

    /// As [`Group::broadcast`], without waiting. Of `data` only the length matters where the root is not; the result is the root's.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn start_broadcast<T: Element>(
        &self,
        root: usize,
        data: &[T],
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        self.check_root(root)?;
        let bytes = size_of_val(data);
        let call = call::<T>(Collective::Broadcast, Some(root), bytes);
        let data = if self.rank() == root { data } else { &[] };
        self.start(call, &Shape::Broadcast { root, bytes }, None, |place| put_all(data, place), vector)
    }

    /// Combines everybody's `data`, element by element; the result is the root's alone. `data` has the same length everywhere.
    ///
    /// # Errors
    /// There is no such root, the group is broken, or the NIC is.
    pub fn reduce<T: Element>(
        &self,
        root: usize,
        data: &[T],
        reduction: &Reduction<T>,
    ) -> Result<Option<Vec<T>>, CollectiveError> {
        self.start_reduce(root, data, reduction)?.wait()
    }

    /// As [`Group::reduce`], without waiting.
    ///
    /// # Errors
    /// As [`Group::reduce`].
    pub fn start_reduce<T: Element>(
        &self,
        root: usize,
        data: &[T],
        reduction: &Reduction<T>,
    ) -> Result<Operation<Option<Vec<T>>>, CollectiveError> {
        self.check_root(root)?;
        let bytes = size_of_val(data);
        let call = reduction_call(Collective::Reduce, Some(root), bytes, reduction);
        let shape = Shape::Reduce { root, bytes, element: T::BYTES };
        self.start(call, &shape, Some(reduction.combine()), |place| put_all(data, place), at_root)
    }

    /// Combines everybody's `data`, element by element, and gives the result to everybody, in the place of `data`, which has the
    /// same length everywhere.
    ///
    /// # Errors
    /// The group is broken, or the NIC is. Then `data` is as it was.
    pub fn allreduce<T: Element>(
        &self,
        data: &mut [T],
        reduction: &Reduction<T>,
    ) -> Result<(), CollectiveError> {
        let output = self.start_allreduce(data, reduction)?.wait_for_output(None)?;
        read(&output, data);
        Ok(())
    }

    /// As [`Group::allreduce`], without waiting.
    ///
    /// # Errors
    /// As [`Group::allreduce`].
    pub fn start_allreduce<T: Element>(
        &self,
        data: &[T],
        reduction: &Reduction<T>,
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        let bytes = size_of_val(data);
        let call = reduction_call(Collective::Allreduce, None, bytes, reduction);
        let shape = Shape::Allreduce { bytes, element: T::BYTES };
        self.start(call, &shape, Some(reduction.combine()), |place| put_all(data, place), vector)
    }

    /// Puts everybody's `data` one behind the other, in the order of ranks, at the root. `data` has the same length everywhere.
    ///
    /// # Errors
    /// There is no such root, the group is broken, or the NIC is.
    pub fn gather<T: Element>(&self, root: usize, data: &[T]) -> Result<Option<Vec<T>>, CollectiveError> {
        self.start_gather(root, data)?.wait()
    }

    /// As [`Group::gather`], without waiting.
    ///
    /// # Errors
    /// As [`Group::gather`].
    pub fn start_gather<T: Element>(
        &self,
        root: usize,
        data: &[T],
    ) -> Result<Operation<Option<Vec<T>>>, CollectiveError> {
        self.check_root(root)?;
        let bytes = size_of_val(data);
        let call = call::<T>(Collective::Gather, Some(root), bytes);
        self.start(call, &Shape::Gather { root, bytes }, None, |place| put_all(data, place), at_root)
    }

    /// As [`Group::gather`], with data of any length: `lengths` has everybody's, in elements, and is the same everywhere.
    ///
    /// # Errors
    /// As [`Group::gather`]; the lengths are not one for each participant, or not that of `data` for this one.
    pub fn gatherv<T: Element>(
        &self,
        root: usize,
        data: &[T],
        lengths: &[usize],
    ) -> Result<Option<Vec<T>>, CollectiveError> {
        self.start_gatherv(root, data, lengths)?.wait()
    }

    /// As [`Group::gatherv`], without waiting.
    ///
    /// # Errors
    /// As [`Group::gatherv`].
    pub fn start_gatherv<T: Element>(
        &self,
        root: usize,
        data: &[T],
        lengths: &[usize],
    ) -> Result<Operation<Option<Vec<T>>>, CollectiveError> {
        self.check_root(root)?;
        let lengths = self.check_lengths::<T>(lengths)?;
        check_data(data.len(), lengths[self.rank()] / T::BYTES)?;
        let call = call::<T>(Collective::Gatherv, Some(root), lengths.iter().sum());
        self.start(call, &Shape::Gatherv { root, lengths }, None, |place| put_all(data, place), at_root)
    }

    /// Puts everybody's `data` one behind the other, in the order of ranks, at everybody. `data` has the same length everywhere.
    ///
    /// # Errors
    /// The group is broken, or the NIC is.
    pub fn allgather<T: Element>(&self, data: &[T]) -> Result<Vec<T>, CollectiveError> {
        self.start_allgather(data)?.wait()
    }

    /// As [`Group::allgather`], without waiting.
    ///
    /// # Errors
    /// As [`Group::allgather`].
    pub fn start_allgather<T: Element>(&self, data: &[T]) -> Result<Operation<Vec<T>>, CollectiveError> {
        let bytes = size_of_val(data);
        let call = call::<T>(Collective::Allgather, None, bytes);
        self.start(call, &Shape::Allgather { bytes }, None, |place| put_all(data, place), vector)
    }

    /// As [`Group::allgather`], with data of any length: `lengths` has everybody's, in elements, and is the same everywhere.
    ///
    /// # Errors
    /// As [`Group::allgather`]; the lengths are not one for each participant, or not that of `data` for this one.
    pub fn allgatherv<T: Element>(&self, data: &[T], lengths: &[usize]) -> Result<Vec<T>, CollectiveError> {
        self.start_allgatherv(data, lengths)?.wait()
    }

    /// As [`Group::allgatherv`], without waiting.
    ///
    /// # Errors
    /// As [`Group::allgatherv`].
    pub fn start_allgatherv<T: Element>(
        &self,
        data: &[T],
        lengths: &[usize],
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        let lengths = self.check_lengths::<T>(lengths)?;
        check_data(data.len(), lengths[self.rank()] / T::BYTES)?;
        let call = call::<T>(Collective::Allgatherv, None, lengths.iter().sum());
        self.start(call, &Shape::Allgatherv { lengths }, None, |place| put_all(data, place), vector)
    }

    /// Cuts the root's `data` into blocks of `count` elements and gives one to each, in the order of ranks. `count` is the same
    /// everywhere; `data` matter at the root alone, where they are all blocks.
    ///
    /// # Errors
    /// There is no such root, its data are not that long, the group is broken, or the NIC is.
    pub fn scatter<T: Element>(
        &self,
        root: usize,
        data: &[T],
        count: usize,
    ) -> Result<Vec<T>, CollectiveError> {
        self.start_scatter(root, data, count)?.wait()
    }

    /// As [`Group::scatter`], without waiting.
    ///
    /// # Errors
    /// As [`Group::scatter`].
    pub fn start_scatter<T: Element>(
        &self,
        root: usize,
        data: &[T],
        count: usize,
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        self.check_root(root)?;
        let data = self.of_root(root, data, count.saturating_mul(self.size()))?;
        let bytes = count * T::BYTES;
        let call = call::<T>(Collective::Scatter, Some(root), bytes);
        self.start(call, &Shape::Scatter { root, bytes }, None, |place| put_all(data, place), vector)
    }

    /// As [`Group::scatter`], with blocks of any length: `lengths` has everybody's, in elements, and is the same everywhere.
    ///
    /// # Errors
    /// As [`Group::scatter`]; the lengths are not one for each participant.
    pub fn scatterv<T: Element>(
        &self,
        root: usize,
        data: &[T],
        lengths: &[usize],
    ) -> Result<Vec<T>, CollectiveError> {
        self.start_scatterv(root, data, lengths)?.wait()
    }

    /// As [`Group::scatterv`], without waiting.
    ///
    /// # Errors
    /// As [`Group::scatterv`].
    pub fn start_scatterv<T: Element>(
        &self,
        root: usize,
        data: &[T],
        lengths: &[usize],
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        self.check_root(root)?;
        let needed = lengths.iter().sum();
        let lengths = self.check_lengths::<T>(lengths)?;
        let data = self.of_root(root, data, needed)?;
        let call = call::<T>(Collective::Scatterv, Some(root), lengths.iter().sum());
        self.start(call, &Shape::Scatterv { root, lengths }, None, |place| put_all(data, place), vector)
    }

    /// Gives everybody a block of everybody: `data` are blocks of equal length, one for each participant, in the order of ranks; the
    /// result is one block of each. `data` have the same length everywhere.
    ///
    /// # Errors
    /// The data cannot be cut so, the group is broken, or the NIC is.
    pub fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>, CollectiveError> {
        self.start_all_to_all(data)?.wait()
    }

    /// As [`Group::all_to_all`], without waiting.
    ///
    /// # Errors
    /// As [`Group::all_to_all`].
    pub fn start_all_to_all<T: Element>(&self, data: &[T]) -> Result<Operation<Vec<T>>, CollectiveError> {
        if !data.len().is_multiple_of(self.size()) {
            return Err(CollectiveError::Uneven { given: data.len(), size: self.size() });
        }
        let bytes = data.len() / self.size() * T::BYTES;
        let call = call::<T>(Collective::AllToAll, None, bytes);
        self.start(call, &Shape::AllToAll { bytes }, None, |place| put_all(data, place), vector)
    }

    /// As [`Group::all_to_all`], with blocks of any length: `sent` has the lengths of the blocks in `data`, `received` those of the blocks
    /// that come, both in elements and in the order of ranks. What one participant sends another is what that expects of it.
    ///
    /// # Errors
    /// As [`Group::all_to_all`]; the lengths are not one for each participant, or not those of `data`, or of the own block.
    pub fn all_to_allv<T: Element>(
        &self,
        data: &[T],
        sent: &[usize],
        received: &[usize],
    ) -> Result<Vec<T>, CollectiveError> {
        self.start_all_to_allv(data, sent, received)?.wait()
    }

    /// As [`Group::all_to_allv`], without waiting.
    ///
    /// # Errors
    /// As [`Group::all_to_allv`].
    pub fn start_all_to_allv<T: Element>(
        &self,
        data: &[T],
        sent: &[usize],
        received: &[usize],
    ) -> Result<Operation<Vec<T>>, CollectiveError> {
        let (sent, received) = (self.check_lengths::<T>(sent)?, self.check_lengths::<T>(received)?);
        check_data(data.len(), sent.iter().sum::<usize>() / T::BYTES)?;
        check_data(sent[self.rank()] / T::BYTES, received[self.rank()] / T::BYTES)?;
        let call = call::<T>(Collective::AllToAllv, None, 0);
        self.start(call, &Shape::AllToAllv { sent, received }, None, |place| put_all(data, place), vector)
    }

    fn start<R>(
        &self,
        call: Call,
        shape: &Shape,
        combine: Option<Combine>,
        fill: impl FnOnce(&mut [u8]),
        convert: fn(Output) -> R,
    ) -> Result<Operation<R>, CollectiveError> {
        let mut state = self.state.borrow_mut();
        if state.is_searching {
            return Err(CollectiveError::Searching);
        }
        let sequence = state.start(call, shape, combine, fill)?;
        drop(state);
        Ok(Operation::new(&self.state, sequence, convert))
    }

    fn check_root(&self, root: usize) -> Result<(), CollectiveError> {
        let size = self.size();
        if root < size { Ok(()) } else { Err(CollectiveError::NoSuchRoot { root, size }) }
    }

    /// Lengths in bytes.
    fn check_lengths<T: Element>(&self, lengths: &[usize]) -> Result<Vec<usize>, CollectiveError> {
        if lengths.len() != self.size() {
            return Err(CollectiveError::Lengths { given: lengths.len(), size: self.size() });
        }
        Ok(lengths.iter().map(|count| count * T::BYTES).collect())
    }

    /// The data if this is the root, where they have to have a length.
    fn of_root<'a, T>(&self, root: usize, data: &'a [T], needed: usize) -> Result<&'a [T], CollectiveError> {
        if self.rank() != root {
            return Ok(&[]);
        }
        check_data(data.len(), needed).map(|()| data)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Whether a list of participants is one.
fn check(endpoint: &Endpoint, rank: usize, peers: &[Option<PeerId>]) -> Result<(), GroupError> {
    let size = peers.len();
    if u32::try_from(size).is_err() {
        return Err(GroupError::TooMany(size));
    }
    match peers.get(rank) {
        None => return Err(GroupError::NoSuchRank { rank, size }),
        Some(Some(peer)) => return Err(GroupError::OwnPeer { rank, peer: *peer }),
        Some(None) => {}
    }
    let core = &endpoint.shared.inner.borrow().core;
    let mut known = BTreeMap::new();
    for (at, peer) in peers.iter().enumerate().filter(|(at, _)| *at != rank) {
        let peer = peer.ok_or(GroupError::NoPeer { rank: at })?;
        if !core.has_peer(peer) {
            return Err(GroupError::NoSuchPeer { rank: at, peer });
        }
        if let Some(other) = known.insert(core.canonical(peer), at) {
            return Err(GroupError::Twice { peer, ranks: (other, at) });
        }
    }
    Ok(())
}

fn check_data(given: usize, needed: usize) -> Result<(), CollectiveError> {
    if given == needed { Ok(()) } else { Err(CollectiveError::DataLength { given, needed }) }
}

fn call<T: Element>(operation: Collective, root: Option<usize>, bytes: usize) -> Call {
    let root = root.map(|root| root as u32);
    let element = Some(T::KIND);
    Call { operation, element, reduction: None, function: 0, root, bytes: bytes as u64 }
}

fn reduction_call<T: Element>(
    operation: Collective,
    root: Option<usize>,
    bytes: usize,
    reduction: &Reduction<T>,
) -> Call {
    let (kind, function) = (Some(reduction.kind()), reduction.hash());
    Call { reduction: kind, function, ..call::<T>(operation, root, bytes) }
}

fn vector<T: Element>(output: Output) -> Vec<T> {
    at_root(output).unwrap_or_default()
}

fn at_root<T: Element>(output: Output) -> Option<Vec<T>> {
    output.range.map(|range| elements_in(&output.buffer[range]))
}

fn read<T: Element>(output: &Output, data: &mut [T]) {
    if let Some(range) = output.range.clone() {
        get_all(&output.buffer[range], data);
    }
}
