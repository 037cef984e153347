//! When the MPI of a process begins and ends: with `MPI_Init` and `MPI_Finalize`, with sessions, or with both. What is here ends
//! with the last of them, and may begin once more with another session.

use crate::communicator;
use crate::mpi::{HandleOut, Mpi};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions that are open.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// `MPI_Session_init`.
///
/// # Safety
/// The arguments are as the standard wants them.
pub(crate) unsafe fn begin_session(
    mpi: &Mpi,
    info: usize,
    error_handler: usize,
    session: HandleOut,
) -> c_int {
    // SAFETY: as the caller promises.
    let code = unsafe { mpi.session_init(info, error_handler, session) };
    if code == 0 {
        SESSIONS.fetch_add(1, Ordering::Relaxed);
        communicator::begin();
    }
    code
}

/// `MPI_Session_finalize`.
///
/// # Safety
/// The argument is as the standard wants it.
pub(crate) unsafe fn end_session(mpi: &Mpi, session: HandleOut) -> c_int {
    let less = |open: usize| open.checked_sub(1);
    let open = SESSIONS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
    let is_last = open <= 1 && !mpi.has_world();
    if is_last {
        communicator::end(mpi);
    }
    // SAFETY: as the caller promises.
    let code = unsafe { mpi.session_finalize(session) };
    if is_last {
        communicator::forget_orphans();
    }
    code
}

/// `MPI_Finalize`.
///
/// # Safety
/// The program is done with the MPI, but for sessions.
pub(crate) unsafe fn end_world(mpi: &Mpi) -> c_int {
    if SESSIONS.load(Ordering::Relaxed) == 0 {
        communicator::end(mpi);
    }
    // SAFETY: as the caller promises.
    let code = unsafe { mpi.finalize() };
    communicator::forget_orphans();
    code
}
