//! Mounting and unmounting, here and in the mount namespace of another process.

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A mount of a BPF file system that is not attached to any folder yet.
#[derive(Debug)]
pub(crate) struct BpfMount(OwnedFd);

impl BpfMount {
    /// Another mount of what is mounted there.
    pub(crate) fn of(path: &Path) -> io::Result<BpfMount> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(BpfMount(open_tree(CWD, path, flags)?))
    }

    /// Attaches it to a folder as the calling thread sees it.
    pub(crate) fn attach(self, to: &Path) -> io::Result<()> {
        Ok(move_mount(self.0, c"", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    }
}

/// Mounts a BPF file system that everybody may look into.
pub(crate) fn mount_bpf_fs(on: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(c"bpf", on, c"bpf", flags, c"mode=0755")?)
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
        // SAFETY: descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        work()
    };
    std::thread::scope(|scope| match scope.spawn(entered).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
