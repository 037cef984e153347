//! The system calls behind a lab; the only unsafe code of this crate besides entering a node.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

fn check(result: c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The machine's architecture, as uname(2) calls it.
pub(crate) fn machine() -> Option<String> {
    // SAFETY: all zeroes are texts.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes texts into the struct, which end in a NUL.
    let machine = unsafe {
        check(libc::uname(&raw mut names)).ok()?;
        CStr::from_ptr(names.machine.as_ptr())
    };
    machine.to_str().ok().map(str::to_owned)
}

/// Moves the calling thread into a namespace. Allocates nothing, so it may run between fork and exec.
pub(crate) fn setns(fd: BorrowedFd<'_>, kind: c_int) -> io::Result<()> {
    // SAFETY: the borrowed descriptor is open for the duration of the call; no memory is passed.
    check(unsafe { libc::setns(fd.as_raw_fd(), kind) })
}

/// Gives the calling thread namespaces of its own. Allocates nothing.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(flags) })
}

/// mount(2). Allocates nothing.
pub(crate) fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the three texts end in a NUL and outlive the call; no data is passed.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, ptr::null()) })
}

/// Takes a mount away, also while it is in use.
pub(crate) fn unmount(target: &CStr) -> io::Result<()> {
    // SAFETY: the text ends in a NUL and outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) })
}

/// CPUs of this machine, also those that are not there now or that this process may not use.
pub(crate) fn cpus() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

/// Has the calling thread run on one CPU, and nowhere else.
pub(crate) fn move_to(cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is as long as is said, and outlives the call; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

pub(crate) fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length describe `name`, which outlives the call.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
}

/// Lets the calling process die with its parent. Allocates nothing. `parent` is what getppid said before
/// the fork's child could lose it.
pub(crate) fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
    // SAFETY: getppid takes nothing and cannot fail.
    if unsafe { libc::getppid() } as u32 == parent {
        Ok(())
    } else {
        // The parent was gone before the request was made, so nothing will ever signal us.
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Keeps a descriptor open across exec. Allocates nothing.
pub(crate) fn keep_across_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes an integer and no memory; a wrong descriptor is an error, not undefined.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })
}

/// A process, by a descriptor that never means another one.
pub(crate) struct Process(OwnedFd);

impl Process {
    pub(crate) fn open(pid: i32) -> io::Result<Process> {
        // SAFETY: pidfd_open takes two integers and no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor and nobody else knows it.
        Ok(Process(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Sends a signal; a process that is gone already is no error.
    pub(crate) fn signal(&self, signal: c_int) -> io::Result<()> {
        let nothing = ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed and means "as kill(2)"; the descriptor is ours and open.
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, nothing, 0) };
        match check(result as c_int) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }

    /// Whether it has ended, after waiting for that at most so long.
    pub(crate) fn ended(&self, patience: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = patience.as_millis().min(60_000) as c_int;
        // SAFETY: one pollfd, owned by this frame, is passed with the count 1.
        match unsafe { libc::poll(&mut poll, 1, ms) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }
}
