//! The BPF file systems that things are pinned in.
//!
//! The machine's own, `/sys/fs/bpf`, is used as it was found and never mounted or changed. systemd mounts it for root
//! alone (mode 700), so that nobody else could reach what is pinned in it, whatever its permissions; and `ip netns exec`
//! hides it behind a fresh `/sys`. Where it is not there, or shut to those whom `up` is to serve, `up` mounts one of its
//! own, which everybody may look into. It is attached where the first process of the machine (or container) sees it, or the
//! eldest ancestor that can be looked at, and to the caller's folder as well, if the caller sees other mounts: what is seen
//! by the caller alone would go with it.

use super::XdpError;
use super::access::Access;
use super::error::failed;
use crate::sys::{self, BpfMount, Elder, Own};
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The machine's.
const SYSTEM: &str = "/sys/fs/bpf";
/// Our own, and the folder whose lock guards mounting and unmounting it.
const OWN: &str = "/run/tsumugi/bpf";
const OWN_PARENT: &str = "/run/tsumugi";

/// Where things may be pinned, in the order in which they are looked for.
pub(super) fn all() -> [&'static Path; 2] {
    [SYSTEM, OWN].map(Path::new)
}

/// A BPF file system that things may be pinned in, as the calling user finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfFs {
    /// Where it is mounted.
    pub path: PathBuf,
    /// Whether this user may look into it.
    pub is_open: bool,
}

/// The BPF file systems that are mounted where this library looks for them.
#[must_use]
pub fn bpf_file_systems() -> Vec<BpfFs> {
    let mounted = all().into_iter().filter(|path| sys::is_bpf_fs(path).unwrap_or(false));
    mounted.map(|path| BpfFs { path: path.to_owned(), is_open: fs::read_dir(path).is_ok() }).collect()
}

/// Chooses where to pin what is for `access`, and mounts what is missing. The place stays there while the file is open.
pub(super) fn choose(access: Access) -> Result<(&'static Path, Option<Own<File>>), XdpError> {
    let [system, own] = all();
    if is_usable(system) && is_reachable(system, access) {
        return Ok((system, None));
    }
    let guard = loop {
        make_public(Path::new(OWN_PARENT)).map_err(failed("making", Path::new(OWN_PARENT)))?;
        if let Some(guard) = guard()? {
            break guard;
        }
    };
    mount_own(own)?;
    if is_reachable(own, access) { Ok((own, Some(guard))) } else { Err(XdpError::OutOfReach(own.to_owned())) }
}

/// Unmounts our own file system when nothing is left in it. Who still uses it keeps it.
pub(crate) fn clear() {
    let Ok(Some(_guard)) = guard() else { return };
    let remove = || {
        let own = Path::new(OWN);
        // Some kernels put files of their own beside ours.
        if sys::is_bpf_fs(own)? && !own.join("tsumugi").exists() {
            rustix::mount::unmount(own, UnmountFlags::NOFOLLOW)?;
            fs::remove_dir(own)?;
        }
        Ok(())
    };
    // What cannot be removed is empty, and harms nobody.
    let _: io::Result<()> = remove();
    if let Ok(Elder { process, shares_mounts: false }) = Elder::find() {
        let _: io::Result<()> = sys::within_mounts_of(process, remove);
    }
}

/// Locks the folder that our own file system is mounted in. `None`: the folder is not there, or not any more: a command
/// that finds it empty removes it.
fn guard() -> Result<Option<Own<File>>, XdpError> {
    let parent = Path::new(OWN_PARENT);
    sys::lock_folder(parent, true).map_err(failed("locking", parent))
}

/// Whether a BPF file system is there that can be written to.
fn is_usable(place: &Path) -> bool {
    sys::is_bpf_fs(place).unwrap_or(false) && sys::is_writable(place)
}

fn mount_own(own: &Path) -> Result<(), XdpError> {
    let there = |path: &Path| sys::is_bpf_fs(path).unwrap_or(false);
    let make = || {
        make_public(own)?;
        if there(own) { Ok(()) } else { sys::mount_bpf_fs(own) }
    };
    if there(own) {
        return Ok(());
    }
    let elder = Elder::find().map_err(XdpError::Hidden)?;
    if elder.shares_mounts {
        return make().map_err(failed("mounting a BPF file system on", own));
    }
    let mount = || {
        make()?;
        BpfMount::of(own)
    };
    let mount = sys::within_mounts_of(elder.process, mount).map_err(XdpError::Hidden)?;
    // It may have come here by itself, from a mount that both share.
    if there(own) {
        return Ok(());
    }
    make_public(own).and_then(|()| mount.attach(own)).map_err(failed("mounting a BPF file system on", own))
}

/// Makes a folder and those above it that are not there, for everyone to look into, whatever the caller's umask.
pub(super) fn make_public(path: &Path) -> io::Result<()> {
    while !path.is_dir() {
        if let Some(parent) = path.parent() {
            make_public(parent)?;
        }
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            // Another command has just removed the folder above, which was empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(()) => return fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
        }
    }
    Ok(())
}

/// Whether everybody to whom `access` gives something can come to what lies in a folder.
pub(super) fn is_reachable(place: &Path, access: Access) -> bool {
    place.ancestors().all(|folder: &Path| match fs::metadata(folder) {
        Ok(about) => lets_in(about.mode(), about.uid(), about.gid(), access),
        Err(_) => false,
    })
}

/// Whether a folder of this mode, owner and group lets everybody through whom `access` gives something.
fn lets_in(mode: u32, uid: u32, gid: u32, access: Access) -> bool {
    let (owner, group) = (access.owner.unwrap_or(0), access.group.unwrap_or(0));
    let [by_owner, by_group, by_others] = [0o100, 0o010, 0o001].map(|bit| mode & bit != 0);
    let owner_passes =
        owner == 0 || if uid == owner { by_owner } else { by_others || by_group && gid == group };
    let group_passes = if gid == group { by_group } else { by_others };
    (access.mode & 0o600 == 0 || owner_passes)
        && (access.mode & 0o060 == 0 || group_passes)
        && (access.mode & 0o006 == 0 || by_others)
}

/// The place that a path lies in.
pub(super) fn of(path: &Path) -> PathBuf {
    all().into_iter().find(|place| path.starts_with(place)).unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lets_in_whom_its_mode_names() {
        let access = |owner: Option<u32>, mode| Access { owner, group: owner, mode };
        // As systemd mounts it.
        assert!(lets_in(0o700, 0, 0, access(None, 0o600)), "root");
        assert!(!lets_in(0o700, 0, 0, access(Some(1000), 0o600)), "an owner");
        assert!(!lets_in(0o700, 0, 0, access(None, 0o666)), "everybody");
        // As the kernel does when nothing is said.
        assert!(lets_in(0o1777, 0, 0, access(Some(1000), 0o666)));
        let group = Access { owner: None, group: Some(100), mode: 0o660 };
        assert!(lets_in(0o750, 0, 100, group) && !lets_in(0o750, 0, 0, group));
        assert!(lets_in(0o700, 1000, 1000, access(Some(1000), 0o600)));
    }

    #[test]
    fn a_path_says_in_which_place_it_lies() {
        assert_eq!(of(Path::new("/run/tsumugi/bpf/tsumugi/7")), Path::new(OWN));
        assert_eq!(of(Path::new("/sys/fs/bpf/tsumugi")), Path::new(SYSTEM));
    }
}
