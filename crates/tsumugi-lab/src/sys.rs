//! System calls behind a lab that are more than one.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::Timespec;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// CPUs of this machine, also those that are not there now or that this process may not use.
pub(crate) fn cpus() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

/// Has the calling thread run on one CPU, and nowhere else.
pub(crate) fn move_to(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling process die with its parent. Allocates nothing. `parent` is what getppid said before
/// the fork's child could lose it.
pub(crate) fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if Pid::as_raw(rustix::process::getppid()).cast_unsigned() == parent {
        Ok(())
    } else {
        // The parent was gone before the request was made, so nothing will ever signal us.
        Err(Errno::SRCH.into())
    }
}

/// A process, by a descriptor that never means another one.
pub(crate) struct Process(OwnedFd);

impl Process {
    pub(crate) fn open(pid: i32) -> io::Result<Process> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Process(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Sends a signal; a process that is gone already is no error.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has ended, after waiting for that at most so long.
    pub(crate) fn ended(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience.min(Duration::from_secs(60))).ok();
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], patience.as_ref())? > 0)
    }
}
