//! The MPI's own functions, by which everything goes that is not done here.
//!
//! Handles are passed as `usize`, whatever they are to the MPI: in the registers that arguments are in, an `int` is the lower half
//! of it. Where the MPI writes a handle there is room for either, cleared before, and hosts are little-endian.

use crate::abi::{Abi, Kind};
use crate::library::Library;
use crate::say;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("handles are passed as the lower half of a register: this needs a 64-bit little-endian host");

/// What a program passes for data.
pub(crate) type Place = *mut c_void;
pub(crate) type ConstPlace = *const c_void;
/// A handle that the MPI or a program writes.
pub(crate) type HandleOut = *mut usize;
pub(crate) type IntOut = *mut c_int;

type CopyAttribute = unsafe extern "C" fn(usize, c_int, Place, Place, Place, IntOut) -> c_int;
type DeleteAttribute = unsafe extern "C" fn(usize, c_int, Place, Place) -> c_int;
type Query = unsafe extern "C" fn(Place, IntOut) -> c_int;
type Free = unsafe extern "C" fn(Place) -> c_int;
type Cancel = unsafe extern "C" fn(Place, c_int) -> c_int;
/// What an MPI that polls requests calls to ask for one, and to wait for several: for their outcomes.
pub(crate) type Poll = unsafe extern "C" fn(Place, IntOut) -> c_int;
pub(crate) type WaitFor = unsafe extern "C" fn(c_int, *mut Place, f64, IntOut) -> c_int;

macro_rules! functions {
    ($($field:ident $name:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The MPI's functions; `None`: it has it not.
        struct Functions {
            $($field: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
        }

        impl Functions {
            fn of(library: &Library) -> Functions {
                Functions {
                    $($field: library.symbol($name).map(|place| {
                        // SAFETY: the function of this name has these arguments, as the standard says.
                        unsafe {
                            std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(place)
                        }
                    }),)*
                }
            }
        }

        /// Each calls the MPI's own.
        ///
        /// # Safety
        /// The arguments are as the standard wants them.
        impl Mpi {
            $(
                #[allow(clippy::too_many_arguments, reason = "the MPI's")]
                pub(crate) unsafe fn $field(&self, $($argument: $type),*) -> c_int {
                    // SAFETY: as the caller promises.
                    self.functions.$field.map_or(self.err_other(), |function| unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

functions! {
    barrier c"PMPI_Barrier" (comm: usize);
    bcast c"PMPI_Bcast" (data: Place, count: c_int, datatype: usize, root: c_int, comm: usize);
    bcast_c c"PMPI_Bcast_c" (data: Place, count: i64, datatype: usize, root: c_int, comm: usize);
    allreduce c"PMPI_Allreduce" (from: ConstPlace, to: Place, count: c_int, datatype: usize, operation: usize, comm: usize);
    allreduce_c c"PMPI_Allreduce_c" (from: ConstPlace, to: Place, count: i64, datatype: usize, operation: usize, comm: usize);
    reduce c"PMPI_Reduce" (from: ConstPlace, to: Place, count: c_int, datatype: usize, operation: usize, root: c_int, comm: usize);
    allgather c"PMPI_Allgather" (from: ConstPlace, count: c_int, datatype: usize, to: Place, each: c_int, of: usize, comm: usize);
    ibarrier c"PMPI_Ibarrier" (comm: usize, request: HandleOut);
    ibcast c"PMPI_Ibcast" (data: Place, count: c_int, datatype: usize, root: c_int, comm: usize, request: HandleOut);
    ibcast_c c"PMPI_Ibcast_c" (data: Place, count: i64, datatype: usize, root: c_int, comm: usize, request: HandleOut);
    iallreduce c"PMPI_Iallreduce" (from: ConstPlace, to: Place, count: c_int, datatype: usize, operation: usize, comm: usize, request: HandleOut);
    iallreduce_c c"PMPI_Iallreduce_c" (from: ConstPlace, to: Place, count: i64, datatype: usize, operation: usize, comm: usize, request: HandleOut);
    wait c"PMPI_Wait" (request: HandleOut, status: IntOut);
    waitall c"PMPI_Waitall" (count: c_int, requests: HandleOut, statuses: IntOut);
    waitany c"PMPI_Waitany" (count: c_int, requests: HandleOut, index: IntOut, status: IntOut);
    waitsome c"PMPI_Waitsome" (count: c_int, requests: HandleOut, done: IntOut, indices: IntOut, statuses: IntOut);
    test c"PMPI_Test" (request: HandleOut, flag: IntOut, status: IntOut);
    testall c"PMPI_Testall" (count: c_int, requests: HandleOut, flag: IntOut, statuses: IntOut);
    testany c"PMPI_Testany" (count: c_int, requests: HandleOut, index: IntOut, flag: IntOut, status: IntOut);
    testsome c"PMPI_Testsome" (count: c_int, requests: HandleOut, done: IntOut, indices: IntOut, statuses: IntOut);
    request_get_status c"PMPI_Request_get_status" (request: usize, flag: IntOut, status: IntOut);
    comm_free c"PMPI_Comm_free" (comm: HandleOut);
    comm_disconnect c"PMPI_Comm_disconnect" (comm: HandleOut);
    finalize c"PMPI_Finalize" ();
    initialized c"PMPI_Initialized" (flag: IntOut);
    finalized c"PMPI_Finalized" (flag: IntOut);
    session_init c"PMPI_Session_init" (info: usize, error_handler: usize, session: HandleOut);
    session_finalize c"PMPI_Session_finalize" (session: HandleOut);
    iprobe c"PMPI_Iprobe" (source: c_int, tag: c_int, comm: usize, flag: IntOut, status: IntOut);
    comm_size c"PMPI_Comm_size" (comm: usize, size: IntOut);
    comm_rank c"PMPI_Comm_rank" (comm: usize, rank: IntOut);
    comm_test_inter c"PMPI_Comm_test_inter" (comm: usize, flag: IntOut);
    comm_split_type c"PMPI_Comm_split_type" (comm: usize, kind: c_int, key: c_int, info: usize, made: HandleOut);
    comm_create_keyval c"PMPI_Comm_create_keyval" (copy: CopyAttribute, delete: DeleteAttribute, key: IntOut, extra: Place);
    comm_free_keyval c"PMPI_Comm_free_keyval" (key: IntOut);
    comm_get_attr c"PMPI_Comm_get_attr" (comm: usize, key: c_int, value: *mut Place, flag: IntOut);
    comm_set_attr c"PMPI_Comm_set_attr" (comm: usize, key: c_int, value: Place);
    comm_call_errhandler c"PMPI_Comm_call_errhandler" (comm: usize, code: c_int);
    type_size c"PMPI_Type_size" (datatype: usize, bytes: IntOut);
    type_dup c"PMPI_Type_dup" (datatype: usize, made: HandleOut);
    type_free c"PMPI_Type_free" (datatype: HandleOut);
    pack c"PMPI_Pack" (from: ConstPlace, count: c_int, datatype: usize, to: Place, room: c_int, at: IntOut, comm: usize);
    unpack c"PMPI_Unpack" (from: ConstPlace, bytes: c_int, at: IntOut, to: Place, count: c_int, datatype: usize, comm: usize);
    grequest_start c"PMPI_Grequest_start" (query: Query, free: Free, cancel: Cancel, extra: Place, request: HandleOut);
    grequest_start_polled c"MPIX_Grequest_start" (query: Query, free: Free, cancel: Cancel, poll: Poll, wait: WaitFor, extra: Place, request: HandleOut);
    grequest_complete c"PMPI_Grequest_complete" (request: usize);
    status_set_cancelled c"PMPI_Status_set_cancelled" (status: IntOut, flag: c_int);
    status_set_elements c"PMPI_Status_set_elements" (status: IntOut, datatype: usize, count: c_int);
    get_library_version c"PMPI_Get_library_version" (text: *mut c_char, length: IntOut);
}

/// The MPI of this process.
pub(crate) struct Mpi {
    functions: Functions,
    library: Library,
    abi: OnceLock<Option<Abi>>,
}

/// The tag of messages that are looked for so that the MPI makes progress; every MPI has it.
const LOOK_TAG: c_int = 32767;
/// Longest text of a library's version, bytes: of those that are known MPICH's is the longest, 8 KiB.
const VERSION_BYTES_MAX: usize = 16 << 10;

impl Mpi {
    /// The MPI of this process, found at the first call. `None`: there is none.
    pub(crate) fn get() -> Option<&'static Mpi> {
        static MPI: OnceLock<Option<Mpi>> = OnceLock::new();
        MPI.get_or_init(|| {
            let Some(library) = Library::find() else {
                say::error("this process has no MPI library, and calls one");
                return None;
            };
            Some(Mpi { functions: Functions::of(&library), library, abi: OnceLock::new() })
        })
        .as_ref()
    }

    /// Its binary interface, found when the MPI has begun. `None`: it is none of those that are known, and everything is left to it.
    pub(crate) fn abi(&self) -> Option<&Abi> {
        let find = || {
            let library = &self.library;
            let abi = Kind::of(library, &self.version()).and_then(|kind| Abi::of(kind, library));
            let Some(mut abi) = abi else {
                say::warn(format_args!(
                    "left to the MPI: {} is none whose binary interface is known (MPICH, Open MPI, Intel MPI, MPI 5)",
                    library.file()
                ));
                return None;
            };
            let size_of = self.functions.type_size;
            abi.keep_types(|datatype| {
                let mut bytes = 0;
                // SAFETY: a predefined type, and room for a number.
                (unsafe { size_of?(datatype, &raw mut bytes) } == 0).then_some(bytes as usize)
            });
            Some(abi)
        };
        self.abi.get_or_init(find).as_ref()
    }

    fn version(&self) -> String {
        let (mut text, mut length) = (vec![0u8; VERSION_BYTES_MAX], 0);
        // SAFETY: there is room for the longest.
        unsafe { self.get_library_version(text.as_mut_ptr().cast(), &raw mut length) };
        CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Has the MPI make progress: others may wait for what it has to send again or to take in. Nothing is received.
    pub(crate) fn make_progress(&self, abi: &Abi, comm: usize) {
        let mut flag = 0;
        let ignored = std::ptr::without_provenance_mut(abi.status_ignore);
        // SAFETY: a communicator of the program's, and room for a flag.
        unsafe { self.iprobe(abi.any_source, LOOK_TAG, comm, &raw mut flag, ignored) };
    }

    /// Whether `MPI_Init` was called, and `MPI_Finalize` not yet. Without, there is no `MPI_COMM_SELF`.
    pub(crate) fn has_world(&self) -> bool {
        let (mut began, mut ended) = (0, 0);
        // SAFETY: room for flags.
        let code = unsafe { self.initialized(&raw mut began) | self.finalized(&raw mut ended) };
        code == 0 && began != 0 && ended == 0
    }

    /// Whether it asks for what has come of requests, whoever waits for them.
    pub(crate) fn polls_requests(&self) -> bool {
        self.functions.grequest_start_polled.is_some()
    }

    /// The count as the functions of before MPI 4 take it, if the MPI has no others. Programs that look for those with large counts
    /// find ours.
    pub(crate) fn small(&self, count: i64) -> Option<c_int> {
        c_int::try_from(count).ok().filter(|_| self.functions.bcast_c.is_none())
    }

    /// The class of errors that are no other.
    pub(crate) fn err_other(&self) -> c_int {
        self.abi.get().and_then(Option::as_ref).map_or(16, |abi| abi.err_other)
    }
}
