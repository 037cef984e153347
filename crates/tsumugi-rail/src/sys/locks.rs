//! Files as locks, the BPF file system, and waiting for the kernel's receive path.

use super::{Own, checked};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// `MEMBARRIER_CMD_QUERY` of linux/membarrier.h.
const MEMBARRIER_QUERY: i32 = 0;
/// `MEMBARRIER_CMD_GLOBAL` of linux/membarrier.h.
const MEMBARRIER_GLOBAL: i32 = 1;

/// Locks an open file or folder exclusively; the kernel unlocks it when it is closed for the last time. Fails
/// rather than waits unless `wait`. No child of this process has it.
pub(crate) fn lock(file: &Own<File>, wait: bool) -> io::Result<()> {
    flock(file, libc::LOCK_EX | if wait { 0 } else { libc::LOCK_NB })
}

/// Whether somebody else has an open file or folder locked.
pub(crate) fn lock_is_held(file: &Own<File>) -> bool {
    flock(file, libc::LOCK_SH | libc::LOCK_NB).is_err()
}

fn flock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open; no memory is passed.
    checked(unsafe { libc::flock(file.as_raw_fd(), operation) }).map(drop)
}

/// Whether an open file or folder still has a name.
pub(crate) fn is_linked(file: &File) -> io::Result<bool> {
    file.metadata().map(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) > 0)
}

/// Whether a BPF file system is mounted there.
pub(crate) fn is_bpf_fs(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid `statfs`: numbers only.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in 0, and the call writes `about`; both outlive it.
    checked(unsafe { libc::statfs(path.as_ptr(), &raw mut about) })?;
    Ok(about.f_type as u32 == BPF_FS_MAGIC)
}

/// Whether the caller may make files in a folder.
pub(crate) fn is_writable(folder: &Path) -> bool {
    let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path ends in 0 and outlives the call.
    unsafe { libc::access(folder.as_ptr(), libc::W_OK) == 0 }
}

/// Returns when every run of the kernel's receive path that had begun before the call is over.
///
/// `MEMBARRIER_CMD_GLOBAL` waits for a grace period of RCU (Linux: kernel/sched/membarrier.c), and XDP programs
/// run in read-side sections of it. Where the kernel refuses (`nohz_full`), a time that is long for a packet.
pub(crate) fn wait_for_softirqs() {
    // SAFETY: three integers, no memory.
    if unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether grace periods can be waited for; the error is why [`wait_for_softirqs`] only lets time pass.
pub(crate) fn grace_periods() -> io::Result<()> {
    // SAFETY: three integers, no memory.
    let known = checked(unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0) })?;
    if known & libc::c_long::from(MEMBARRIER_GLOBAL) == 0 {
        Err(io::ErrorKind::Unsupported.into())
    } else {
        Ok(())
    }
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_s_own_and_goes_with_its_file() {
        let path = std::env::temp_dir().join(format!("tsumugi-lock-{}", std::process::id()));
        let open = || Own::new(File::open(&path).unwrap());
        let (one, other) = (Own::new(File::create(&path).unwrap()), open());
        assert!(!lock_is_held(&other));
        drop(other);
        let other = open();
        lock(&one, false).unwrap();
        assert!(lock(&other, false).is_err() && lock_is_held(&other));
        drop(one);
        lock(&other, false).unwrap();
        assert!(is_linked(&other).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!is_linked(&other).unwrap());
    }

    #[test]
    fn what_is_no_bpf_file_system_is_told_apart() {
        assert!(!is_bpf_fs(Path::new("/proc")).unwrap());
        assert!(is_bpf_fs(Path::new("/does/not/exist")).is_err());
    }

    #[test]
    fn waiting_for_the_receive_path_ends() {
        wait_for_softirqs();
        assert!(page_bytes().is_power_of_two());
    }
}
