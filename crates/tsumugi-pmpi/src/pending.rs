//! Collectives that were started: each is a generalized request of the MPI's, which is completed in the program's later calls.
//!
//! Only a call of the program's completes a request or writes its data, for the MPI may be one that a single thread may call.

use crate::abi::Abi;
use crate::collective::{BROADCAST_BYTES_MAX, Reduce};
use crate::communicator::{self, Taken};
use crate::data::Data;
use crate::engine::{self, Held};
use crate::mpi::{HandleOut, IntOut, Mpi, Place};
use crate::reduction::{How, Reducing, Start};
use crate::say;
use std::ffi::{c_int, c_void};
use tsumugi::collective::Operation;

/// One that was started.
pub(crate) struct Pending {
    operation: Started,
    promise: Promise,
}

/// What is under way.
enum Started {
    Barrier(Operation<()>),
    Broadcast(Operation<Vec<u64>>),
    Reduction(Box<dyn Reducing>),
}

/// What comes of it.
enum Came {
    Nothing,
    Words(Vec<u64>),
    Bytes(Vec<u8>),
}

/// What is to be done when it is complete.
struct Promise {
    request: usize,
    outcome: *mut Outcome,
    into: Into,
}

/// Where the result goes.
enum Into {
    Nowhere,
    Data(Data),
    Place(*mut u8),
}

/// What the MPI asks a request for when it is complete.
struct Outcome {
    code: c_int,
    source_at: usize,
    tag_at: usize,
    any_source: c_int,
    any_tag: c_int,
}

impl Pending {
    /// What has come of it, if it is complete.
    fn test(&mut self) -> Option<Result<Came, String>> {
        let came = match &mut self.operation {
            Started::Barrier(operation) => operation.test().map(|done| done.map(|()| Came::Nothing)),
            Started::Broadcast(operation) => operation.test().map(|done| done.map(Came::Words)),
            Started::Reduction(operation) => operation.test().map(|done| done.map(Came::Bytes)),
        };
        came.map_err(|error| error.to_string()).transpose()
    }
}

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
    let outcome = Box::into_raw(Box::new(Outcome {
        code: 0,
        source_at: abi.source_at,
        tag_at: abi.tag_at,
        any_source: abi.any_source,
        any_tag: abi.any_tag,
    }));
    let mut made = 0;
    // SAFETY: functions that do what the standard wants, and room for a handle.
    let code = unsafe { mpi.grequest_start(query, free, cancel, outcome.cast(), &raw mut made) };
    let mut engine = engine::lock();
    if code != 0 {
        drop(operation);
        return code;
    }
    // SAFETY: the program has room for a handle.
    unsafe { request.cast::<u8>().copy_from_nonoverlapping((&raw const made).cast(), abi.handle_bytes) };
    engine.counts.started += 1;
    engine.pending.push(Pending { operation, promise: Promise { request: made, outcome, into } });
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
                Some(came) => {
                    let Pending { promise, .. } = engine.pending.remove(at);
                    ended.push((promise, came));
                }
                None => at += 1,
            }
        }
    }
    for (promise, came) in ended {
        promise.keep(mpi, abi, came);
    }
}

impl Promise {
    fn keep(self, mpi: &Mpi, abi: &Abi, came: Result<Came, String>) {
        // SAFETY: the program keeps the places until the request is complete, and so is the outcome there.
        let is_well = unsafe {
            match (came, &self.into) {
                (Ok(Came::Words(words)), Into::Data(data)) => data.put(mpi, abi, &words),
                (Ok(Came::Bytes(bytes)), Into::Place(to)) => {
                    to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                    true
                }
                (Ok(_), _) => true,
                (Err(error), _) => {
                    say::error(error);
                    false
                }
            }
        };
        if let Into::Data(data) = self.into {
            data.end(mpi);
        }
        if !is_well {
            // SAFETY: as above.
            unsafe { (*self.outcome).code = abi.err_other };
        }
        // SAFETY: made by `promise`, and not complete before.
        unsafe { mpi.grequest_complete(self.request) };
    }
}

unsafe extern "C" fn query(outcome: *mut c_void, status: IntOut) -> c_int {
    // SAFETY: the MPI gives what it was given, and a status.
    unsafe {
        let outcome = &*outcome.cast::<Outcome>();
        if let Some(mpi) = Mpi::get() {
            mpi.status_set_cancelled(status, 0);
            if let Some(abi) = &mpi.abi {
                mpi.status_set_elements(status, abi.byte, 0);
            }
        }
        *status.add(outcome.source_at) = outcome.any_source;
        *status.add(outcome.tag_at) = outcome.any_tag;
        outcome.code
    }
}

unsafe extern "C" fn free(outcome: *mut c_void) -> c_int {
    // SAFETY: made by `promise`, and the MPI frees it once.
    drop(unsafe { Box::from_raw(outcome.cast::<Outcome>()) });
    0
}

unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    0
}
