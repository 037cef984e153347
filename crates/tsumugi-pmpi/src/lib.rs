//! A PMPI library: collectives of MPI programs that know nothing of Tsumugi, done by Tsumugi.
//!
//! `tsumugi-mpiexec --collectives` has it loaded before the MPI (`LD_PRELOAD`). It takes `MPI_Barrier`, `MPI_Bcast` and `MPI_Allreduce`, and
//! their forms that do not wait, where communicator, type and operation allow, and leaves everything else to the MPI by its
//! `PMPI_` functions. It is linked with no MPI: it finds the one of its process when it is first called, and which of the three binary
//! interfaces that has. A file needs only files further down:
//!
//! | module | |
//! |---|---|
//! | `exports` | the functions that programs call |
//! | `collective`, `pending`, `requests` | collectives that wait; those that were started; waiting for requests |
//! | `lifetime` | when the MPI begins and ends |
//! | `communicator`, `setup` | what is known of a communicator, and how its ranks come to a group |
//! | `engine`, `helper` | the endpoint and the groups of a process; the thread that makes progress for them now and then |
//! | `started` | what was started, and what is to be done when it is complete |
//! | `data`, `reduction` | a program's data as bytes; types and operations |
//! | `settings`, `say` | what users set; what they are told |
//! | `mpi`, `abi`, `library` | the MPI's own functions; what interfaces differ in; the library that has them |

mod abi;
mod collective;
mod communicator;
mod data;
mod engine;
mod exports;
mod helper;
mod library;
mod lifetime;
mod mpi;
mod pending;
mod reduction;
mod requests;
mod say;
mod settings;
mod setup;
mod started;

use tsumugi_wire::limits::MARKED_VERSION;

/// Which version of the protocol this speaks.
#[used]
static PROTOCOL: [u8; MARKED_VERSION.len()] = MARKED_VERSION;
