//! Collectives that are started. Each is a generalized request of the MPI's, which is completed in the program's later calls.

use crate::abi::Abi;
use crate::collective::{BROADCAST_BYTES_MAX, Reduce};
use crate::data::Data;
use crate::engine::{self, Held};
use crate::mpi::{HandleOut, Mpi, Place};
use crate::reduction::{How, Start};
use crate::setup::Taken;
use crate::started::{Into, Outcome, Pending, Promise, Started};
use crate::{communicator, say};
use std::ffi::c_int;

/// `MPI_Ibarrier`. `None`: it is left to the MPI.
pub(crate) fn barrier(mpi: &Mpi, abi: &Abi, comm: usize, request: HandleOut) -> Option<c_int> {
    let (group, _) = ready(mpi, comm)?;
    let mut engine = engine::lock();
    engine.counts.barriers += 1;
    let started = engine.start(group, |group| group.start_barrier()).map(Started::Barrier);
    Some(promise(engine, mpi, abi, comm, started, Into::Nowhere, request))
}

/// `MPI_Ibcast`.
///
/// # Safety
/// The data are as the standard wants them.
pub(crate) unsafe fn broadcast(
    mpi: &Mpi,
    abi: &Abi,
    (place, count, datatype): (Place, i64, usize),
    root: c_int,
    comm: usize,
    request: HandleOut,
) -> Option<c_int> {
    let data = Data::of(mpi, abi, place, count, datatype, BROADCAST_BYTES_MAX)?;
    let (group, taken) = ready(mpi, comm)?;
    let root = usize::try_from(root).ok().filter(|root| *root < taken.places.len())?;
    let is_root = taken.rank as usize == root;
    let (of_root, _) = taken.places[root];
    // SAFETY: as the caller promises.
    let words = if is_root { unsafe { data.words(mpi, abi) } } else { Some(data.room()) };
    let into = if is_root { Some(Into::Nowhere) } else { data.lasting(mpi).map(Into::Data) };
    let (Some(words), Some(into)) = (words, into) else {
        return Some(fail(mpi, abi, comm, "the MPI does not pack the data"));
    };
    let mut engine = engine::lock();
    engine.counts.broadcasts += 1;
    let start = engine.start(group, |group| group.start_broadcast(of_root as usize, &words));
    Some(promise(engine, mpi, abi, comm, start.map(Started::Broadcast), into, request))
}

/// `MPI_Iallreduce`.
///
/// # Safety
/// The data are as the standard wants them.
pub(crate) unsafe fn allreduce(
    mpi: &Mpi,
    abi: &Abi,
    reduce: Reduce,
    comm: usize,
    request: HandleOut,
) -> Option<c_int> {
    let (how, bytes): (How, usize) = reduce.how(abi)?;
    let (group, _) = ready(mpi, comm)?;
    // SAFETY: as the caller promises.
    let own = unsafe { std::slice::from_raw_parts(reduce.own(abi).cast::<u8>(), bytes) };
    let into = Into::Place(reduce.to.cast());
    let mut engine = engine::lock();
    engine.counts.reductions += 1;
    let started = engine.start(group, |group| how.apply(own, Start(group))).map(Started::Reduction);
    Some(promise(engine, mpi, abi, comm, started, into, request))
}

/// The group of a communicator that was set up, with one rank on each node.
fn ready(mpi: &Mpi, comm: usize) -> Option<(u64, &'static Taken)> {
    let taken = communicator::if_set_up(mpi, comm).filter(|taken| taken.node.is_none())?;
    Some((taken.group?, taken))
}

fn fail(mpi: &Mpi, abi: &Abi, comm: usize, error: &str) -> c_int {
    say::error(error);
    // SAFETY: a communicator of the program's.
    unsafe { mpi.comm_call_errhandler(comm, abi.err_other) };
    abi.err_other
}

/// Gives the program a request for what was started.
fn promise(
    engine: Held,
    mpi: &Mpi,
    abi: &Abi,
    comm: usize,
    started: Result<Started, String>,
    into: Into,
    request: HandleOut,
) -> c_int {
    // It is only moved while somebody else may have the engine.
    drop(engine);
    let operation = match started {
        Ok(operation) => operation,
        Err(error) => return fail(mpi, abi, comm, &error),
    };
    let (code, made, outcome) = Outcome::request(mpi, abi);
    let mut engine = engine::lock();
    if code != 0 {
        drop(operation);
        return code;
    }
    // SAFETY: the program has room for a handle.
    unsafe { request.cast::<u8>().copy_from_nonoverlapping((&raw const made).cast(), abi.handle_bytes) };
    engine.counts.started += 1;
    engine.pending.push(Pending::new(operation, Promise::new(made, outcome, into)));
    engine.hurry();
    0
}

/// Goes on with everything that was started, and completes the requests of what has ended.
pub(crate) fn progress(mpi: &Mpi, abi: &Abi) {
    if !engine::has_pending() {
        return;
    }
    let mut ended = Vec::new();
    {
        let mut engine = engine::lock();
        engine.progress();
        let mut at = 0;
        while at < engine.pending.len() {
            match engine.pending[at].test() {
                Some(came) => ended.push((engine.pending.remove(at).promise(), came)),
                None => at += 1,
            }
        }
    }
    for (promise, came) in ended {
        promise.keep(mpi, abi, came);
    }
}
