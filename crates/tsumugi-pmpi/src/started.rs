//! What was started, and what is to be done when it is complete.
//!
//! Only a call of the program's completes a request or writes its data, for the MPI may be one that a single thread may call. Where the
//! MPI asks for that in all of its own functions that wait, as MPICH does, it need not be one that is taken here: Fortran's are not.

use crate::abi::Abi;
use crate::data::Data;
use crate::mpi::{IntOut, Mpi, Poll, WaitFor};
use crate::reduction::Reducing;
use crate::say;
use std::ffi::{c_int, c_void};
use tsumugi::collective::Operation;

/// One that was started.
pub(crate) struct Pending {
    operation: Started,
    promise: Promise,
}

/// What is under way.
pub(crate) enum Started {
    Barrier(Operation<()>),
    Broadcast(Operation<Vec<u64>>),
    Reduction(Box<dyn Reducing>),
}

/// What comes of it.
pub(crate) enum Came {
    Nothing,
    Words(Vec<u64>),
    Bytes(Vec<u8>),
}

/// What is to be done when it is complete.
pub(crate) struct Promise {
    request: usize,
    outcome: *mut Outcome,
    into: Into,
}

/// Where the result goes.
pub(crate) enum Into {
    Nowhere,
    Data(Data),
    Place(*mut u8),
}

/// What the MPI asks a request for when it is complete.
pub(crate) struct Outcome {
    pub(crate) request: usize,
    code: c_int,
    source_at: usize,
    tag_at: usize,
    any_source: c_int,
    any_tag: c_int,
}

impl Pending {
    pub(crate) fn new(operation: Started, promise: Promise) -> Pending {
        Pending { operation, promise }
    }

    /// What is to be done when it is complete. The operation is dropped: only who has the engine may do that.
    pub(crate) fn promise(self) -> Promise {
        self.promise
    }

    /// What has come of it, if it is complete.
    pub(crate) fn test(&mut self) -> Option<Result<Came, String>> {
        let came = match &mut self.operation {
            Started::Barrier(operation) => operation.test().map(|done| done.map(|()| Came::Nothing)),
            Started::Broadcast(operation) => operation.test().map(|done| done.map(Came::Words)),
            Started::Reduction(operation) => operation.test().map(|done| done.map(Came::Bytes)),
        };
        came.map_err(|error| error.to_string()).transpose()
    }
}

impl Outcome {
    /// Has the MPI make a request: its code, the request, and where the outcome goes. The MPI calls these functions with that to ask
    /// for the request, and to wait for several, if it does so at all.
    pub(crate) fn request(
        mpi: &Mpi,
        abi: &Abi,
        (poll, wait): (Poll, WaitFor),
    ) -> (c_int, usize, *mut Outcome) {
        let outcome = Box::into_raw(Box::new(Outcome {
            request: 0,
            code: 0,
            source_at: abi.source_at,
            tag_at: abi.tag_at,
            any_source: abi.any_source,
            any_tag: abi.any_tag,
        }));
        let mut made = 0;
        // SAFETY: functions that do what the standard wants, and room for a handle. Nobody asks for it before it is made.
        let code = unsafe {
            let code = if mpi.polls_requests() {
                mpi.grequest_start_polled(query, free, cancel, poll, wait, outcome.cast(), &raw mut made)
            } else {
                mpi.grequest_start(query, free, cancel, outcome.cast(), &raw mut made)
            };
            (*outcome).request = made;
            code
        };
        (code, made, outcome)
    }
}

impl Promise {
    pub(crate) fn new(request: usize, outcome: *mut Outcome, into: Into) -> Promise {
        Promise { request, outcome, into }
    }

    /// Puts the result where it belongs, and completes the request.
    pub(crate) fn keep(self, mpi: &Mpi, abi: &Abi, came: Result<Came, String>) {
        // SAFETY: the program keeps the places until the request is complete, and so is the outcome there.
        let is_well = unsafe {
            match (came, &self.into) {
                (Ok(Came::Words(words)), Into::Data(data)) => data.put(mpi, &words),
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
        // SAFETY: made by `request`, and not complete before.
        unsafe { mpi.grequest_complete(self.request) };
    }
}

unsafe extern "C" fn query(outcome: *mut c_void, status: IntOut) -> c_int {
    // SAFETY: the MPI gives what it was given, and a status.
    unsafe {
        let outcome = &*outcome.cast::<Outcome>();
        if let Some(mpi) = Mpi::get() {
            mpi.status_set_cancelled(status, 0);
            if let Some(abi) = mpi.abi() {
                mpi.status_set_elements(status, abi.byte, 0);
            }
        }
        *status.add(outcome.source_at) = outcome.any_source;
        *status.add(outcome.tag_at) = outcome.any_tag;
        outcome.code
    }
}

unsafe extern "C" fn free(outcome: *mut c_void) -> c_int {
    // SAFETY: made by `request`, and the MPI frees it once.
    drop(unsafe { Box::from_raw(outcome.cast::<Outcome>()) });
    0
}

unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    0
}
