//! Collective operations of processes in the nodes of a lab whose switch box counts: `tsumugi perf barrier`,
//! `tsumugi perf multicast` and `tsumugi perf collectives`.

pub(crate) mod barrier;
pub(crate) mod collectives;
pub(crate) mod member;
pub(crate) mod multicast;
mod process;
pub(crate) mod stream;
mod task;
mod testbed;
