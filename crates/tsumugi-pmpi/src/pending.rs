//! Collectives that are started. Each is a generalized request of the MPI's, which is completed in the program's later calls.

use crate::abi::Abi;
use crate::collective::{BROADCAST_BYTES_MAX, Reduce};
use crate::data::Data;
use crate::engine::{self, Held};
use crate::mpi::{HandleOut, IntOut, Mpi, Place};
use crate::reduction::{How, Start};
use crate::setup::Taken;
use crate::started::{Into, Outcome, Pending, Promise, Started};
use crate::{communicator, say};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

/// Looks that follow each other at once, giving way to others, before the first pause.
const LOOKS_MAX: u32 = 1000;
/// Between later looks.
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// This thread looks after what is pending itself, and no function that the MPI calls has to.
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs what makes progress by itself.
pub(crate) fn looking<T>(run: impl FnOnce() -> T) -> T {
    let before = IS_LOOKING.replace(true);
    let done = run();
    IS_LOOKING.set(before);
    done
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
    let data = Data::of(mpi, abi, place, count, datatype, (comm, BROADCAST_BYTES_MAX))?;
    let (group, taken) = ready(mpi, comm)?;
    let root = usize::try_from(root).ok().filter(|root| *root < taken.places.len())?;
    let is_root = taken.rank as usize == root;
    let (of_root, _) = taken.places[root];
    // SAFETY: as the caller promises.
    let words = if is_root { unsafe { data.words(mpi) } } else { Some(data.room()) };
    let into = if is_root { Some(Into::Nowhere) } else { data.lasting(mpi, abi).map(Into::Data) };
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
    let (code, made, outcome) = Outcome::request(mpi, abi, (poll, wait));
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

/// What is done between looks, of which there were so many.
pub(crate) fn pause(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS_MAX { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
}

/// Goes on with what is pending, and has the MPI do so. Whether this request is complete.
unsafe fn look(outcome: *const c_void) -> bool {
    let Some((mpi, abi)) = Mpi::get().and_then(|mpi| Some((mpi, mpi.abi()?))) else { return true };
    looking(|| {
        progress(mpi, abi);
        let mut flag = 0;
        let ignored = ptr::without_provenance_mut(abi.status_ignore);
        // SAFETY: the MPI gives what it was given, of a request that is there, and there is room for a flag.
        let code = unsafe {
            let request = (*outcome.cast::<Outcome>()).request;
            mpi.request_get_status(request, &raw mut flag, ignored)
        };
        code != 0 || flag != 0
    })
}

/// The MPI tests a request or waits for it.
unsafe extern "C" fn poll(outcome: *mut c_void, _: IntOut) -> c_int {
    // SAFETY: as the MPI promises.
    if !IS_LOOKING.get() && !unsafe { look(outcome) } {
        std::thread::yield_now();
    }
    0
}

/// The MPI waits for requests.
unsafe extern "C" fn wait(count: c_int, outcomes: *mut *mut c_void, _: f64, _: IntOut) -> c_int {
    for at in 0..count as usize {
        let mut looks = 0;
        // SAFETY: there are as many, and else as the MPI promises.
        while !unsafe { look(*outcomes.add(at)) } {
            pause(&mut looks);
        }
    }
    0
}
