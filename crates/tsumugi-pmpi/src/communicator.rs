//! What is known of a communicator: it hangs on it as an attribute, and goes with it.

use crate::abi::Abi;
use crate::engine;
use crate::mpi::{IntOut, Mpi, Place};
use crate::setup::{self, Taken};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What became of a communicator.
enum State {
    Taken(Taken),
    /// Left to the MPI.
    Left,
}

/// Communicators of nodes whose own communicators are gone.
static ORPHANS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The key of the attribute.
static KEY: AtomicI64 = AtomicI64::new(NO_KEY);
const NO_KEY: i64 = i64::MIN;

/// The MPI is at its end, and everything is left to it.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The key of the attribute; `None`: the MPI gives none.
fn key(mpi: &Mpi) -> Option<c_int> {
    static MAKING: Mutex<()> = Mutex::new(());
    let known = || c_int::try_from(KEY.load(Ordering::Acquire)).ok();
    known().or_else(|| {
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        known().or_else(|| {
            let mut key = 0;
            // SAFETY: functions that do what the standard wants, and room for a number.
            let code = unsafe { mpi.comm_create_keyval(copy_nothing, delete, &raw mut key, ptr::null_mut()) };
            (code == 0).then(|| {
                KEY.store(key.into(), Ordering::Release);
                key
            })
        })
    })
}

/// Whoever duplicates a communicator gets one of which nothing is known.
unsafe extern "C" fn copy_nothing(_: usize, _: c_int, _: Place, _: Place, _: Place, flag: IntOut) -> c_int {
    // SAFETY: the MPI has room for a flag.
    unsafe { *flag = 0 };
    0
}

unsafe extern "C" fn delete(_: usize, _: c_int, value: Place, _: Place) -> c_int {
    // SAFETY: made by `remember`, and the MPI deletes it once.
    let state = unsafe { Box::from_raw(value.cast::<State>()) };
    if let State::Taken(taken) = *state {
        if let Some(group) = taken.group {
            engine::lock().close(group);
        }
        if let Some(node) = taken.node {
            orphans().push(node.comm);
        }
    }
    0
}

fn orphans() -> std::sync::MutexGuard<'static, Vec<usize>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees what communicators that were freed have left.
pub(crate) fn free_orphans(mpi: &Mpi) {
    let all = std::mem::take(&mut *orphans());
    for mut comm in all {
        // SAFETY: made by `setup`, and not freed before.
        unsafe { mpi.comm_free(&raw mut comm) };
    }
}

/// The MPI begins, perhaps once more.
pub(crate) fn begin() {
    IS_OVER.store(false, Ordering::Relaxed);
}

/// Closes everything before the MPI ends. What is called from then on, by a function that the program has the MPI call at its end, is left
/// to it.
pub(crate) fn end(mpi: &Mpi) {
    IS_OVER.store(true, Ordering::Relaxed);
    engine::close();
    free_orphans(mpi);
    if let Ok(mut key) = c_int::try_from(KEY.swap(NO_KEY, Ordering::AcqRel)) {
        // SAFETY: made by `key`. The MPI keeps it as long as attributes have it.
        unsafe { mpi.comm_free_keyval(&raw mut key) };
    }
}

/// The MPI has freed what it had when it ended.
pub(crate) fn forget_orphans() {
    orphans().clear();
}

/// What is known of a communicator.
fn known(mpi: &Mpi, key: c_int, comm: usize) -> Option<&'static State> {
    let (mut value, mut flag): (*mut c_void, c_int) = (ptr::null_mut(), 0);
    // SAFETY: room for a pointer and a flag.
    let code = unsafe { mpi.comm_get_attr(comm, key, &raw mut value, &raw mut flag) };
    if code != 0 || flag == 0 {
        return None;
    }
    // SAFETY: made by `remember`. It is there as long as the communicator, which nobody frees while it is used.
    unsafe { value.cast::<State>().as_ref() }
}

fn remember(mpi: &Mpi, key: c_int, comm: usize, state: State) {
    let state = Box::into_raw(Box::new(state));
    // SAFETY: `delete` takes it back.
    unsafe { mpi.comm_set_attr(comm, key, state.cast()) };
}

/// The communicator, if its collectives are done here and it was set up already.
pub(crate) fn if_set_up(mpi: &Mpi, comm: usize) -> Option<&'static Taken> {
    if IS_OVER.load(Ordering::Relaxed) {
        return None;
    }
    match known(mpi, key(mpi)?, comm)? {
        State::Taken(taken) => Some(taken),
        State::Left => None,
    }
}

/// The communicator, if its collectives are done here. The first time all its ranks come here together.
pub(crate) fn taken(mpi: &Mpi, abi: &Abi, comm: usize) -> Option<&'static Taken> {
    if IS_OVER.load(Ordering::Relaxed) {
        return None;
    }
    let key = key(mpi)?;
    if known(mpi, key, comm).is_none() {
        let taken = setup::set_up(mpi, abi, comm);
        remember(mpi, key, comm, taken.map_or(State::Left, State::Taken));
    }
    if_set_up(mpi, comm)
}
