//! Waiting for requests and testing them, while some of them may be ours.

use crate::mpi::Mpi;
use crate::{engine, pending};
use std::ffi::c_int;

/// The MPIs' `MPI_UNDEFINED`, which they have in common.
const UNDEFINED: c_int = -32766;

/// Waits by `wait` if nothing of ours is pending, else tests until there is a result.
pub(crate) fn wait(
    mpi: &Mpi,
    wait: impl FnOnce() -> c_int,
    mut test: impl FnMut(&mut c_int) -> c_int,
) -> c_int {
    let Some(abi) = mpi.abi().filter(|_| engine::has_pending()) else { return wait() };
    let mut looks = 0;
    loop {
        pending::progress(mpi, abi);
        let mut flag = 0;
        let code = pending::looking(|| test(&mut flag));
        if code != 0 || flag != 0 {
            return code;
        }
        pending::pause(&mut looks);
    }
}

/// Makes progress, and tests.
pub(crate) fn test(mpi: &Mpi, test: impl FnOnce() -> c_int) -> c_int {
    if let Some(abi) = mpi.abi() {
        pending::progress(mpi, abi);
    }
    pending::looking(test)
}

/// Whether a test for some has a result: some are done, or there is nothing to wait for.
pub(crate) fn some_are_done(done: c_int) -> bool {
    done > 0 || done == UNDEFINED
}
