//! The functions that programs call. Each is either done here or handed to the MPI's own of the same name behind a P.
//!
//! What the MPI calls of these itself, while it does something for us, is left to it.

use crate::abi::Abi;
use crate::collective::Reduce;
use crate::communicator::free_orphans;
use crate::mpi::{ConstPlace, HandleOut, IntOut, Mpi, Place};
use crate::{collective, lifetime, pending, requests, say};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// This thread is in a function of ours.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs what must not unwind into the program.
fn guarded(run: impl FnOnce(&'static Mpi) -> c_int) -> c_int {
    let Some(mpi) = Mpi::get() else { return -1 };
    catch_unwind(AssertUnwindSafe(|| run(mpi))).unwrap_or_else(|_| {
        IS_INSIDE.set(false);
        say::error("a defect of this library; please report the lines above");
        mpi.err_other()
    })
}

/// Runs `ours` if it may be done here; what gives `None` is done by the MPI.
fn either(
    ours: impl FnOnce(&'static Mpi, &'static Abi) -> Option<c_int>,
    theirs: impl FnOnce(&'static Mpi) -> c_int,
) -> c_int {
    guarded(|mpi| {
        let abi = mpi.abi().filter(|_| !IS_INSIDE.get());
        let done = abi.and_then(|abi| {
            IS_INSIDE.set(true);
            pending::progress(mpi, abi);
            let done = ours(mpi, abi);
            IS_INSIDE.set(false);
            done
        });
        done.unwrap_or_else(|| theirs(mpi))
    })
}

/// Defines functions of C's whose safety is the standard's.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the MPI standard.")]
            $(#[$meta])*
            ///
            /// # Safety
            /// The arguments are as the standard wants them.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the standard's")]
            #[allow(clippy::too_many_arguments, reason = "the standard's")]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: as the caller promises.
                unsafe { $body }
            }
        )*
    };
}

exports! {
    fn MPI_Barrier(comm: usize) {
        either(|mpi, abi| collective::barrier(mpi, abi, abi.handle(comm)), |mpi| mpi.barrier(comm))
    }

    fn MPI_Bcast(data: Place, count: c_int, datatype: usize, root: c_int, comm: usize) {
        either(
            |mpi, abi| {
                let of = (data, i64::from(count), abi.handle(datatype));
                collective::broadcast(mpi, abi, of, root, abi.handle(comm))
            },
            |mpi| mpi.bcast(data, count, datatype, root, comm),
        )
    }

    fn MPI_Bcast_c(data: Place, count: i64, datatype: usize, root: c_int, comm: usize) {
        either(
            |mpi, abi| {
                let of = (data, count, abi.handle(datatype));
                collective::broadcast(mpi, abi, of, root, abi.handle(comm))
            },
            |mpi| match mpi.small(count) {
                Some(count) => mpi.bcast(data, count, datatype, root, comm),
                None => mpi.bcast_c(data, count, datatype, root, comm),
            },
        )
    }

    fn MPI_Allreduce(
        from: ConstPlace, to: Place, count: c_int, datatype: usize, operation: usize, comm: usize
    ) {
        either(
            |mpi, abi| {
                let reduce = reduce(abi, from, to, i64::from(count), datatype, operation);
                collective::allreduce(mpi, abi, reduce, abi.handle(comm))
            },
            |mpi| mpi.allreduce(from, to, count, datatype, operation, comm),
        )
    }

    fn MPI_Allreduce_c(
        from: ConstPlace, to: Place, count: i64, datatype: usize, operation: usize, comm: usize
    ) {
        either(
            |mpi, abi| {
                let reduce = reduce(abi, from, to, count, datatype, operation);
                collective::allreduce(mpi, abi, reduce, abi.handle(comm))
            },
            |mpi| match mpi.small(count) {
                Some(count) => mpi.allreduce(from, to, count, datatype, operation, comm),
                None => mpi.allreduce_c(from, to, count, datatype, operation, comm),
            },
        )
    }

    fn MPI_Ibarrier(comm: usize, request: HandleOut) {
        either(
            |mpi, abi| pending::barrier(mpi, abi, abi.handle(comm), request),
            |mpi| mpi.ibarrier(comm, request),
        )
    }

    fn MPI_Ibcast(data: Place, count: c_int, datatype: usize, root: c_int, comm: usize, request: HandleOut) {
        either(
            |mpi, abi| {
                let of = (data, i64::from(count), abi.handle(datatype));
                pending::broadcast(mpi, abi, of, root, abi.handle(comm), request)
            },
            |mpi| mpi.ibcast(data, count, datatype, root, comm, request),
        )
    }

    fn MPI_Ibcast_c(data: Place, count: i64, datatype: usize, root: c_int, comm: usize, request: HandleOut) {
        either(
            |mpi, abi| {
                let of = (data, count, abi.handle(datatype));
                pending::broadcast(mpi, abi, of, root, abi.handle(comm), request)
            },
            |mpi| match mpi.small(count) {
                Some(count) => mpi.ibcast(data, count, datatype, root, comm, request),
                None => mpi.ibcast_c(data, count, datatype, root, comm, request),
            },
        )
    }

    fn MPI_Iallreduce(
        from: ConstPlace, to: Place, count: c_int, datatype: usize, operation: usize, comm: usize, request: HandleOut
    ) {
        either(
            |mpi, abi| {
                let reduce = reduce(abi, from, to, i64::from(count), datatype, operation);
                pending::allreduce(mpi, abi, reduce, abi.handle(comm), request)
            },
            |mpi| mpi.iallreduce(from, to, count, datatype, operation, comm, request),
        )
    }

    fn MPI_Iallreduce_c(
        from: ConstPlace, to: Place, count: i64, datatype: usize, operation: usize, comm: usize, request: HandleOut
    ) {
        either(
            |mpi, abi| {
                let reduce = reduce(abi, from, to, count, datatype, operation);
                pending::allreduce(mpi, abi, reduce, abi.handle(comm), request)
            },
            |mpi| match mpi.small(count) {
                Some(count) => mpi.iallreduce(from, to, count, datatype, operation, comm, request),
                None => mpi.iallreduce_c(from, to, count, datatype, operation, comm, request),
            },
        )
    }

    fn MPI_Wait(request: HandleOut, status: IntOut) {
        guarded(|mpi| {
            requests::wait(mpi, || mpi.wait(request, status), |flag| mpi.test(request, flag, status))
        })
    }

    fn MPI_Waitall(count: c_int, all: HandleOut, statuses: IntOut) {
        guarded(|mpi| {
            let wait = || mpi.waitall(count, all, statuses);
            requests::wait(mpi, wait, |flag| mpi.testall(count, all, flag, statuses))
        })
    }

    fn MPI_Waitany(count: c_int, all: HandleOut, index: IntOut, status: IntOut) {
        guarded(|mpi| {
            let wait = || mpi.waitany(count, all, index, status);
            requests::wait(mpi, wait, |flag| mpi.testany(count, all, index, flag, status))
        })
    }

    fn MPI_Waitsome(count: c_int, all: HandleOut, done: IntOut, indices: IntOut, statuses: IntOut) {
        guarded(|mpi| {
            let wait = || mpi.waitsome(count, all, done, indices, statuses);
            requests::wait(mpi, wait, |flag| {
                let code = mpi.testsome(count, all, done, indices, statuses);
                *flag = c_int::from(requests::some_are_done(*done));
                code
            })
        })
    }

    fn MPI_Test(request: HandleOut, flag: IntOut, status: IntOut) {
        guarded(|mpi| requests::test(mpi, || mpi.test(request, flag, status)))
    }

    fn MPI_Testall(count: c_int, all: HandleOut, flag: IntOut, statuses: IntOut) {
        guarded(|mpi| requests::test(mpi, || mpi.testall(count, all, flag, statuses)))
    }

    fn MPI_Testany(count: c_int, all: HandleOut, index: IntOut, flag: IntOut, status: IntOut) {
        guarded(|mpi| requests::test(mpi, || mpi.testany(count, all, index, flag, status)))
    }

    fn MPI_Testsome(count: c_int, all: HandleOut, done: IntOut, indices: IntOut, statuses: IntOut) {
        guarded(|mpi| requests::test(mpi, || mpi.testsome(count, all, done, indices, statuses)))
    }

    fn MPI_Request_get_status(request: usize, flag: IntOut, status: IntOut) {
        guarded(|mpi| requests::test(mpi, || mpi.request_get_status(request, flag, status)))
    }

    fn MPI_Comm_free(comm: HandleOut) {
        guarded(|mpi| {
            let code = mpi.comm_free(comm);
            free_orphans(mpi);
            code
        })
    }

    fn MPI_Comm_disconnect(comm: HandleOut) {
        guarded(|mpi| {
            let code = mpi.comm_disconnect(comm);
            free_orphans(mpi);
            code
        })
    }

    fn MPI_Session_init(info: usize, error_handler: usize, session: HandleOut) {
        guarded(|mpi| lifetime::begin_session(mpi, info, error_handler, session))
    }

    fn MPI_Session_finalize(session: HandleOut) {
        guarded(|mpi| lifetime::end_session(mpi, session))
    }

    fn MPI_Finalize() {
        guarded(|mpi| lifetime::end_world(mpi))
    }

    // Fortran's call these.

    fn PMPI_Session_init(info: usize, error_handler: usize, session: HandleOut) {
        guarded(|mpi| lifetime::begin_session(mpi, info, error_handler, session))
    }

    fn PMPI_Session_finalize(session: HandleOut) {
        guarded(|mpi| lifetime::end_session(mpi, session))
    }

    fn PMPI_Finalize() {
        guarded(|mpi| lifetime::end_world(mpi))
    }
}

/// What stands for a name of the standard's in the binary interface that was found; of a name that is not known -77. Tests compare it
/// with what the MPI's header says.
///
/// # Safety
/// The name is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tsumugi_collectives_constant(name: *const c_char) -> usize {
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    let abi = Mpi::get().and_then(Mpi::abi);
    let value = abi.zip(name.to_str().ok()).and_then(|(abi, name)| abi.named(name));
    value.unwrap_or(-77isize as usize)
}

/// What a reduction is called with, as the program holds it.
fn reduce(abi: &Abi, from: ConstPlace, to: Place, count: i64, datatype: usize, operation: usize) -> Reduce {
    Reduce { from, to, count, datatype: abi.handle(datatype), operation: abi.handle(operation) }
}
