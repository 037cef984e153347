//! The kernel's own statistics of how long programs run.

use super::error::chain;
use super::{Attached, XdpError};
use crate::sys::Own;
use aya::programs::ProgramInfo;
use aya::programs::links::PinnedLink;
use aya::sys::{Stats, enable_stats};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Has the kernel count every run of every program on this machine, and its time, until this is dropped
/// (`BPF_ENABLE_STATS`, Linux 5.8). What `kernel.bpf_stats_enabled` says is not touched.
///
/// Counting costs two looks at the clock a run; about one of them is in the time that is counted.
#[derive(Debug)]
pub struct Counting(#[expect(dead_code, reason = "closing it ends the counting")] Own<OwnedFd>);

impl Counting {
    /// Begins.
    ///
    /// # Errors
    /// Not permitted, or an old kernel.
    pub fn begin() -> Result<Counting, XdpError> {
        enable_stats(Stats::RunTime)
            .map(|counting| Counting(Own::new(counting)))
            .map_err(|error| XdpError::Runs(chain(&error)))
    }
}

/// What was counted of a program so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// How often it ran.
    pub count: u64,
    /// Time of all runs.
    pub time: Duration,
}

impl Runs {
    /// Mean time of the runs since `before`, ns; `None` when there were none.
    #[must_use]
    pub fn mean_ns_since(&self, before: Runs) -> Option<f64> {
        let count = self.count.checked_sub(before.count).filter(|count| *count > 0)?;
        Some(self.time.saturating_sub(before.time).as_nanos() as f64 / count as f64)
    }
}

/// What was counted of a program.
pub(super) fn of(program: &ProgramInfo) -> Runs {
    Runs { count: program.run_count(), time: program.run_time() }
}

impl Attached {
    /// How often the program that is attached to this NIC has run while runs were [counted](Counting), and how long
    /// that took; at all the NICs together that it was attached to at once.
    ///
    /// # Errors
    /// The program is not attached any more, or not permitted.
    pub fn runs(&self) -> Result<Runs, XdpError> {
        let unknown = |reason: &dyn std::error::Error| XdpError::Runs(chain(reason));
        let link = PinnedLink::from_pin(&self.pin).map_err(|error| unknown(&error))?;
        let id =
            aya::programs::links::FdLink::from(link).info().map_err(|error| unknown(&error))?.program_id();
        let mut programs = aya::programs::loaded_programs().filter_map(Result::ok);
        let program = programs.find(|program| program.id() == id);
        program.as_ref().map(of).ok_or_else(|| XdpError::Runs("the program is gone".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_over_what_came_since() {
        let runs = |count, ns| Runs { count, time: Duration::from_nanos(ns) };
        assert_eq!(runs(30, 900).mean_ns_since(runs(10, 300)), Some(30.0));
        assert_eq!(runs(10, 300).mean_ns_since(runs(10, 300)), None);
        assert_eq!(runs(0, 0).mean_ns_since(runs(10, 300)), None);
    }
}
