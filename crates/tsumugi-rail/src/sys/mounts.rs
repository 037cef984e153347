//! Mounting and unmounting, here and in the mount namespace of another process.

use super::checked;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `OPEN_TREE_CLONE` of linux/mount.h.
const OPEN_TREE_CLONE: libc::c_int = 1;
/// `MOVE_MOUNT_F_EMPTY_PATH` of linux/mount.h.
const MOVE_MOUNT_EMPTY_PATH: libc::c_int = 4;

/// A mount of a BPF file system that is not attached to any folder yet.
#[derive(Debug)]
pub(crate) struct BpfMount(OwnedFd);

impl BpfMount {
    /// Another mount of what is mounted there.
    pub(crate) fn of(path: &Path) -> io::Result<BpfMount> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the path ends in 0 and outlives the call; the descriptor returned is new and nobody else's.
        unsafe {
            let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC;
            let opened = checked(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags))?;
            Ok(BpfMount(OwnedFd::from_raw_fd(opened as i32)))
        }
    }

    /// Attaches it to a folder as the calling thread sees it.
    pub(crate) fn attach(self, to: &Path) -> io::Result<()> {
        let (to, nothing) = (CString::new(to.as_os_str().as_bytes())?, c"");
        let (from, flags) = (self.0.as_raw_fd(), MOVE_MOUNT_EMPTY_PATH);
        // SAFETY: both paths end in 0 and outlive the call.
        let moved = unsafe {
            let (nothing, to) = (nothing.as_ptr(), to.as_ptr());
            libc::syscall(libc::SYS_move_mount, from, nothing, libc::AT_FDCWD, to, flags)
        };
        checked(moved).map(drop)
    }
}

/// Mounts a BPF file system that everybody may look into.
pub(crate) fn mount_bpf_fs(on: &Path) -> io::Result<()> {
    let on = CString::new(on.as_os_str().as_bytes())?;
    let (bpf, options): (&CStr, &CStr) = (c"bpf", c"mode=0755");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: the four texts end in 0 and outlive the call.
    checked(unsafe { libc::mount(bpf.as_ptr(), on.as_ptr(), bpf.as_ptr(), flags, options.as_ptr().cast()) })
        .map(drop)
}

/// Takes a mount away that nobody uses.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends in 0 and outlives the call.
    checked(unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW) }).map(drop)
}

/// Another process, and how its mounts are to the calling thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elder {
    pub(crate) process: u32,
    /// It sees the same mounts as the calling thread.
    pub(crate) shares_mounts: bool,
}

impl Elder {
    /// The eldest of those that this process descends from whose mounts it may look at: the first process of the machine
    /// or container, or, where that one is out of reach, the one nearest to it.
    pub(crate) fn find() -> io::Result<Elder> {
        let namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/mnt")).map(|about| about.ino());
        let here = namespace("thread-self")?;
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for process in ancestors() {
            match namespace(&process.to_string()) {
                Ok(there) => return Ok(Elder { process, shares_mounts: there == here }),
                Err(error) => outcome = outcome.or(Err(error)),
            }
        }
        outcome
    }
}

/// Those that this process descends from, the eldest first. The first process is one of them even where it is not seen to be.
fn ancestors() -> Vec<u32> {
    const FIRST: u32 = 1;
    let parent_of = |process: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    // A process whose parent is outside has 0 there.
    let next = |process: &u32| parent_of(*process).filter(|parent| *parent > FIRST);
    let parent = Some(std::os::unix::process::parent_id()).filter(|parent| *parent > FIRST);
    let mut all: Vec<u32> = std::iter::successors(parent, next).collect();
    all.push(FIRST);
    all.reverse();
    all
}

/// Does something where a process sees its mounts, on a thread of its own that ends with it.
pub(crate) fn within_mounts_of<T: Send>(
    process: u32,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = File::open(format!("/proc/{process}/ns/mnt"))?;
    let entered = || {
        // A thread that shares its working directory with others may not leave them.
        // SAFETY: no memory is passed.
        checked(unsafe { libc::unshare(libc::CLONE_FS) })?;
        // SAFETY: the descriptor is open; no memory is passed.
        checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) })?;
        work()
    };
    std::thread::scope(|scope| match scope.spawn(entered).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
