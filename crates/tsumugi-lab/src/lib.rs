//! A cluster on one machine.
//!
//! A *node* is a network namespace and a UTS namespace of its own: it has its own NICs, addresses and host
//! name, so that MPI launchers and Tsumugi see different machines. NICs are veths; NIC *k* of all nodes is
//! one network, `10.77.k.0/24`, joined by a [`Wire`]:
//!
//! - [`Wire::Direct`]: one veth pair between two nodes. The default for two nodes without a rate limit,
//!   because a switch's second veth and its bridge cost time on every packet (the figures are in
//!   `tsumugi lab up --help`).
//! - [`Wire::Switch`]: a further namespace with one Linux bridge per NIC index. The default otherwise. Rates
//!   are limited by token buckets on the switch's ports and on the NICs.
//! - [`Wire::XdpSwitch`]: that switch with the program of `tsumugi switch` on its ports.
//! - [`Wire::Router`]: the same without a bridge, for kernels that have none; chosen by itself there.
//!
//! Nothing is made in the machine's own network namespace, and no process stays: namespaces are pinned as
//! files in `/run/netns/tsu-LAB-*` and `/run/tsumugi/lab/LAB/`. Removal goes by these names and needs no
//! record, so it cleans up after an interruption at any point.
//!
//! ```no_run
//! use tsumugi_lab::{Lab, Spec};
//!
//! let lab = Lab::up(&Spec::unique("example"))?.guarded();
//! let status = lab.command(0, "ping")?.args(["-c1", &lab.nodes()[1].host]).status();
//! # Ok::<(), tsumugi_lab::LabError>(())
//! ```

pub mod child;
pub mod deferred;
mod enter;
mod error;
pub mod interrupt;
pub mod kernel_log;
mod lab;
mod make;
mod maker;
pub mod mpi;
mod names;
mod remove;
mod spec;
mod state;
mod sys;
pub mod testing;
mod tools;

pub use enter::{LAB_VARIABLE, NODE_VARIABLE};
pub use error::LabError;
pub use lab::{Lab, LabGuard, Nic, Node};
pub use make::Step;
pub use maker::remove_abandoned;
pub use remove::{Removed, down, down_all};
pub use spec::{
    Loss, MTU_BYTES_MAX, MTU_BYTES_MIN, NAME_BYTES_MAX, NICS_MAX, NODES_MAX, Rate, Spec, SpecError, Wire,
};
pub use tools::find as find_tool;
