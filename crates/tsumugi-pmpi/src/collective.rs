//! The collectives that wait. Each gives the MPI's code, or `None`: it is left to the MPI, which is so at all ranks.
//!
//! What decides is only what the standard has the same at all ranks: the communicator, the length of the data, and of a reduction
//! the type and the operation.

use crate::abi::Abi;
use crate::communicator;
use crate::data::Data;
use crate::engine::{self, Counts};
use crate::mpi::{ConstPlace, Mpi, Place};
use crate::reduction::{How, With, bytes_of};
use crate::say;
use crate::setup::{Node, Taken};
use std::ffi::c_int;
use std::ptr;
use tsumugi::collective::{Element, Reduction};

/// Longest data that are broadcast here, bytes. With roots in turn on four nodes MPICH and Open MPI take as long up to here, and half
/// as long from 64 KiB on.
pub(crate) const BROADCAST_BYTES_MAX: usize = 16 << 10;
/// Longest data that are reduced here, bytes: on four nodes up to here the MPIs take longer, or as long.
pub(crate) const REDUCTION_BYTES_MAX: usize = 1 << 20;
/// What a reduction is called with.
#[derive(Clone, Copy)]
pub(crate) struct Reduce {
    pub(crate) from: ConstPlace,
    pub(crate) to: Place,
    pub(crate) count: i64,
    pub(crate) datatype: usize,
    pub(crate) operation: usize,
}

/// A call on a communicator that is done here.
struct Call<'a> {
    mpi: &'a Mpi,
    abi: &'a Abi,
    comm: usize,
    taken: &'a Taken,
}

/// How a node's leader tells the others that all is well.
const WELL: u64 = 1;

/// `MPI_Barrier`.
pub(crate) fn barrier(mpi: &Mpi, abi: &Abi, comm: usize) -> Option<c_int> {
    let taken = communicator::taken(mpi, abi, comm)?;
    let call = Call { mpi, abi, comm, taken };
    Some(call.end(call.barrier()))
}

/// `MPI_Bcast`.
///
/// # Safety
/// The data are as the standard wants them.
pub(crate) unsafe fn broadcast(
    mpi: &Mpi,
    abi: &Abi,
    (place, count, datatype): (Place, i64, usize),
    root: c_int,
    comm: usize,
) -> Option<c_int> {
    let data = Data::of(mpi, abi, place, count, datatype, (comm, BROADCAST_BYTES_MAX))?;
    let taken = communicator::taken(mpi, abi, comm)?;
    let root = usize::try_from(root).ok().filter(|root| *root < taken.places.len())?;
    let call = Call { mpi, abi, comm, taken };
    // SAFETY: as the caller promises.
    Some(call.end(unsafe { call.broadcast(&data, root) }))
}

/// `MPI_Allreduce`.
///
/// # Safety
/// The data are as the standard wants them.
pub(crate) unsafe fn allreduce(mpi: &Mpi, abi: &Abi, reduce: Reduce, comm: usize) -> Option<c_int> {
    let (how, bytes) = reduce.how(abi)?;
    let taken = communicator::taken(mpi, abi, comm)?;
    let call = Call { mpi, abi, comm, taken };
    // SAFETY: as the caller promises.
    Some(call.end(unsafe { call.allreduce(&reduce, how, bytes) }))
}

impl Reduce {
    /// How it is done, and the length of the data, bytes; `None`: it is left to the MPI.
    pub(crate) fn how(&self, abi: &Abi) -> Option<(How, usize)> {
        let how = How::of(abi.number(self.datatype)?, abi.reduction(self.operation)?)?;
        let bytes = usize::try_from(self.count).ok()?.checked_mul(how.element_bytes())?;
        c_int::try_from(self.count).ok()?;
        (1..=REDUCTION_BYTES_MAX).contains(&bytes).then_some((how, bytes))
    }

    /// Where this rank's own data are.
    pub(crate) fn own(&self, abi: &Abi) -> ConstPlace {
        if self.from as usize == abi.in_place { self.to } else { self.from }
    }
}

impl Call<'_> {
    /// What the MPI's caller is told.
    fn end(&self, result: Result<(), String>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(error) => {
                say::error(error);
                let code = self.abi.err_other;
                // SAFETY: a communicator of the program's.
                unsafe { self.mpi.comm_call_errhandler(self.comm, code) };
                code
            }
        }
    }

    fn look(&self) {
        self.mpi.make_progress(self.abi, self.comm);
    }

    fn barrier(&self) -> Result<(), String> {
        let count = |counts: &mut Counts| counts.barriers += 1;
        let all = |group: u64| engine::wait(group, count, |group| group.start_barrier(), || self.look());
        let Some(node) = &self.taken.node else { return self.taken.group.map_or(Ok(()), all) };
        // SAFETY: the node's own communicator.
        well(unsafe { self.mpi.barrier(node.comm) })?;
        let result = self.taken.group.map_or(Ok(()), all);
        self.tell_node(node, result, &mut [])
    }

    unsafe fn broadcast(&self, data: &Data, root: usize) -> Result<(), String> {
        let mpi = self.mpi;
        let (of_root, root_in_node) = self.taken.places[root];
        let in_node = |node: &Node, root: u32| {
            // SAFETY: as the caller of the whole promises.
            well(unsafe { mpi.bcast(data.place, data.count, data.datatype, root as c_int, node.comm) })
        };
        let here = self.taken.node.as_ref();
        let is_of_roots_node = here.map_or(self.taken.rank as usize == root, |node| node.number == of_root);
        if let Some(node) = here.filter(|_| is_of_roots_node) {
            in_node(node, root_in_node)?;
        }
        let mut result = Ok(());
        if let Some(group) = self.taken.group {
            let words = if is_of_roots_node {
                // SAFETY: as the caller promises.
                unsafe { data.words(mpi) }.ok_or("the MPI does not pack the data")?
            } else {
                data.room()
            };
            let count = |counts: &mut Counts| counts.broadcasts += 1;
            let start = |group: &tsumugi::collective::Group| group.start_broadcast(of_root as usize, &words);
            result = engine::wait(group, count, start, || self.look()).and_then(|words| {
                // SAFETY: as the caller promises.
                let is_put = is_of_roots_node || unsafe { data.put(mpi, &words) };
                if is_put { Ok(()) } else { Err("the MPI does not unpack the data".to_owned()) }
            });
        }
        let Some(node) = here else { return result };
        self.tell_node(node, result, &mut [])?;
        if is_of_roots_node { Ok(()) } else { in_node(node, 0) }
    }

    unsafe fn allreduce(&self, reduce: &Reduce, how: How, bytes: usize) -> Result<(), String> {
        let mut own = reduce.own(self.abi);
        if let Some(node) = &self.taken.node {
            // The first of the node has the node's in the place of the result.
            let is_first = node.rank == 0;
            let is_in_place = reduce.from as usize == self.abi.in_place;
            let from = if is_first && is_in_place { reduce.from } else { own };
            let to = if is_first { reduce.to } else { ptr::null_mut() };
            let Reduce { count, datatype, operation, .. } = *reduce;
            // SAFETY: as the caller promises.
            well(unsafe { self.mpi.reduce(from, to, count as c_int, datatype, operation, 0, node.comm) })?;
            own = reduce.to;
        }
        let mut result = Ok(Vec::new());
        if let Some(group) = self.taken.group {
            // SAFETY: as the caller promises, or the MPI has just written them.
            let own = unsafe { std::slice::from_raw_parts(own.cast::<u8>(), bytes) };
            result = how.apply(own, Waiting { call: self, group });
        }
        let to: *mut u8 = reduce.to.cast();
        match &self.taken.node {
            None => {
                let result = result?;
                // SAFETY: as the caller promises; the result is as long as the data.
                unsafe { to.copy_from_nonoverlapping(result.as_ptr(), bytes) };
            }
            Some(node) => {
                let mut data = result.clone().unwrap_or_default();
                data.resize(bytes, 0);
                self.tell_node(node, result.map(drop), &mut data)?;
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(data.as_ptr(), bytes) };
            }
        }
        Ok(())
    }

    /// The leader tells its node whether all is well, and the data.
    fn tell_node(&self, node: &Node, result: Result<(), String>, data: &mut [u8]) -> Result<(), String> {
        let mut told = u64::from(result.is_ok()).to_le_bytes().to_vec();
        told.extend_from_slice(data);
        let (bytes, byte) = (told.len() as c_int, self.abi.byte);
        // SAFETY: the node's own communicator, and so many bytes.
        well(unsafe { self.mpi.bcast(told.as_mut_ptr().cast(), bytes, byte, 0, node.comm) })?;
        result?;
        let (first, rest) = told.split_at(size_of::<u64>());
        if first != WELL.to_le_bytes() {
            return Err("the rank that stands for this node could not do it".to_owned());
        }
        data.copy_from_slice(rest);
        Ok(())
    }
}

/// A reduction that is waited for.
struct Waiting<'a> {
    call: &'a Call<'a>,
    group: u64,
}

impl With for Waiting<'_> {
    type Result = Result<Vec<u8>, String>;

    fn with<T: Element>(self, data: Vec<T>, reduction: Reduction<T>) -> Self::Result {
        let count = |counts: &mut Counts| counts.reductions += 1;
        let start = |group: &tsumugi::collective::Group| group.start_allreduce(&data, &reduction);
        engine::wait(self.group, count, start, || self.call.look()).map(|result| bytes_of(&result))
    }
}

/// A code of the MPI's.
fn well(code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("the MPI says {code} within a node")) }
}
