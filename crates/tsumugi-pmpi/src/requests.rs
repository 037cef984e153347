//! Waiting for requests and testing them, while some of them may be ours.

use crate::abi::Abi;
use crate::mpi::Mpi;
use crate::{engine, pending};
use std::ffi::c_int;
use std::time::Duration;

/// Looks that follow each other at once, giving way to others, before the first pause.
const LOOKS_MAX: u32 = 1000;
/// Between later looks.
const PAUSE: Duration = Duration::from_micros(50);
/// The MPIs' `MPI_UNDEFINED`, which they have in common.
const UNDEFINED: c_int = -32766;

/// Waits by `wait` if nothing of ours is pending, else tests until there is a result.
pub(crate) fn wait(
    mpi: &Mpi,
    wait: impl FnOnce() -> c_int,
    mut test: impl FnMut(&mut c_int) -> c_int,
) -> c_int {
    let Some(abi) = mpi.abi.as_ref().filter(|_| engine::has_pending()) else { return wait() };
    let mut looks = 0;
    loop {
        pending::progress(mpi, abi);
        let mut flag = 0;
        let code = test(&mut flag);
        if code != 0 || flag != 0 {
            return code;
        }
        looks += 1;
        if looks < LOOKS_MAX { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
    }
}

/// Makes progress, and tests.
pub(crate) fn test(mpi: &Mpi, test: impl FnOnce() -> c_int) -> c_int {
    if let Some(abi) = &mpi.abi {
        progress(mpi, abi);
    }
    test()
}

fn progress(mpi: &Mpi, abi: &Abi) {
    pending::progress(mpi, abi);
}

/// Whether a test for some has a result: some are done, or there is nothing to wait for.
pub(crate) fn some_are_done(done: c_int) -> bool {
    done > 0 || done == UNDEFINED
}
