//! Files as locks, the BPF file system, and waiting for the kernel's receive path.

use super::Own;
use rustix::fs::{Access, FlockOperation, access, flock, statfs};
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Locks an open file or folder exclusively; the kernel unlocks it when it is closed for the last time. Fails
/// rather than waits unless `wait`. No child of this process has it.
pub(crate) fn lock(file: &Own<File>, wait: bool) -> io::Result<()> {
    let operation =
        if wait { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
    Ok(flock(file, operation)?)
}

/// Opens a folder and locks it as [`lock`] does. `None`: it is not there, or not any more, because who had it locked has
/// removed it.
pub(crate) fn lock_folder(path: &Path, wait: bool) -> io::Result<Option<Own<File>>> {
    let folder = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => Own::new(other?),
    };
    lock(&folder, wait)?;
    Ok(is_linked(&folder)?.then_some(folder))
}

/// Whether somebody else has an open file or folder locked.
pub(crate) fn lock_is_held(file: &Own<File>) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}

/// Whether an open file or folder still has a name.
pub(crate) fn is_linked(file: &File) -> io::Result<bool> {
    file.metadata().map(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) > 0)
}

/// Whether a BPF file system is mounted there.
pub(crate) fn is_bpf_fs(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.f_type as u32 == BPF_FS_MAGIC)
}

/// Whether the caller may make files in a folder.
pub(crate) fn is_writable(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK).is_ok()
}

/// Returns when every run of the kernel's receive path that had begun before the call is over.
///
/// `MEMBARRIER_CMD_GLOBAL` waits for a grace period of RCU (Linux: kernel/sched/membarrier.c), and XDP programs
/// run in read-side sections of it. Where the kernel refuses (`nohz_full`), a time that is long for a packet.
pub(crate) fn wait_for_softirqs() {
    if membarrier(MembarrierCommand::Global).is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether grace periods can be waited for; the error is why [`wait_for_softirqs`] only lets time pass.
pub(crate) fn grace_periods() -> io::Result<()> {
    if membarrier_query().contains_command(MembarrierCommand::Global) {
        return Ok(());
    }
    // The query does not say why; the command itself does.
    match membarrier(MembarrierCommand::Global) {
        Err(Errno::INVAL) | Ok(()) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
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
    }
}
