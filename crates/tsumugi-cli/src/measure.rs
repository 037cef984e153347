//! What every measurement shares: sizes, statistics, clocks, the machine, and the row all reports are made of.

pub(crate) mod cpu;
pub(crate) mod machine;
pub(crate) mod row;
pub(crate) mod sizes;
pub(crate) mod statistics;
