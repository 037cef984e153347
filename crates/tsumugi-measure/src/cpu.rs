//! The clocks of this process and of the machine, and the CPUs the process may run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// CPU time this process has used so far, in user mode and in the kernel.
pub(crate) fn process_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Monotonic time of the machine, the same for all of its processes, ns.
pub(crate) fn machine_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default().as_nanos() as u64
}

/// Why a process could not be pinned.
#[derive(Debug, Error)]
pub(crate) enum PinError {
    #[error("`{0}` is not a list of CPUs; write numbers as in `1` or `0,2-3`")]
    NotAList(String),
    #[error("cannot run on CPU {cpus}: {cause}; this process may use {allowed}")]
    Refused { cpus: String, allowed: String, cause: io::Error },
}

/// A list of CPU numbers, as in `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

impl FromStr for Cpus {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Cpus, PinError> {
        let wrong = || PinError::NotAList(text.to_owned());
        let number = |part: &str| part.trim().parse::<usize>().ok().filter(|&cpu| cpu < CpuSet::MAX_CPU);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
            if last < first {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, cpu) in self.0.iter().enumerate() {
            write!(formatter, "{}{cpu}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The CPUs this process may run on.
pub(crate) fn allowed() -> Cpus {
    let set = sched_getaffinity(None).unwrap_or_default();
    Cpus((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Lets this process (and what it starts) run only on `cpus`.
pub(crate) fn pin(cpus: &Cpus) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    cpus.0.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(|cause| PinError::Refused {
        cpus: cpus.to_string(),
        allowed: allowed().to_string(),
        cause: cause.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!("0,2-3".parse::<Cpus>().expect("a list").0, [0, 2, 3]);
        assert_eq!("1".parse::<Cpus>().expect("a list").to_string(), "1");
        for wrong in ["", "a", "3-1", "1,", "99999"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_busy_process_uses_cpu_time() {
        let before = process_cpu_time();
        let mut sum = 0_u64;
        while process_cpu_time() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let missing = Cpus(vec![CpuSet::MAX_CPU - 1]);
        if allowed().0.contains(&(CpuSet::MAX_CPU - 1)) {
            return;
        }
        let text = pin(&missing).expect_err("no such CPU").to_string();
        assert!(text.contains("may use"), "{text}");
    }
}
