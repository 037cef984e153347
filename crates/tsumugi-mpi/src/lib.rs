//! MPI programs over Tsumugi: the MPIs that a host has, what each needs to use our libfabric provider, and whether the nodes of a job
//! have what it takes.
//!
//! | module | what is there |
//! |---|---|
//! | [`installation`] | an MPI: whose it is, and whether it can use libfabric; those of this host |
//! | [`provider`] | where our provider lies, and which version of the protocol it speaks |
//! | [`settings`] | the environment and the arguments with which an MPI uses what is to carry its messages |
//! | [`nodes`] | the hosts that the arguments of `mpiexec` name, and what is found on each |
//! | [`shell`] | words as a shell reads them |
//! | [`libfabric`] | a libfabric, asked whether it loads our provider |

pub mod installation;
pub mod libfabric;
pub mod nodes;
pub mod provider;
pub mod settings;
pub mod shell;
