//! Collective operations of processes in the nodes of a lab whose switch box counts: `tsumugi perf barrier` and
//! `tsumugi perf collectives`.

pub(crate) mod barrier;
pub(crate) mod collectives;
pub(crate) mod member;
mod task;
mod testbed;
