//! Entering a node: running a command, or a piece of code, in its namespaces.

use crate::error::{Context, LabError};
use crate::names;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

/// Names the lab in the environment of every process started in a node.
pub const LAB_VARIABLE: &str = "TSUMUGI_LAB";
/// Names the node in the environment of every process started in it.
pub const NODE_VARIABLE: &str = "TSUMUGI_NODE";

/// A mount to make in the process that enters. Everything is prepared beforehand, because between fork and
/// exec nothing may be allocated.
struct Overlay {
    source: CString,
    target: CString,
    /// Whether the node works without it.
    optional: bool,
}

/// What entering a node takes.
struct Entry {
    network: File,
    host_name: File,
    overlays: Vec<Overlay>,
    sysfs: CString,
}

impl Entry {
    fn prepare(lab: &str, host: &str) -> Result<Entry, LabError> {
        let open = |path: &Path| File::open(path).context("open the namespace", path);
        let folder = names::folder(lab);
        let network = open(&names::netns_path(&names::netns_of_host(lab, host)))?;
        let host_name = open(&folder.join(format!("uts-{host}")))?;
        let sysfs = folder.join("sys");
        let mut overlays = Vec::new();
        let mut overlay = |source: &Path, target: &str, optional: bool| {
            if Path::new(target).exists() && (source.exists() || source.starts_with(&sysfs)) {
                overlays.push(Overlay {
                    source: c_text(source)?,
                    target: c_text(Path::new(target))?,
                    optional,
                });
            }
            Ok::<(), LabError>(())
        };
        overlay(&folder.join("etc-hosts"), names::HOSTS, false)?;
        overlay(&folder.join(format!("shm-{host}")), "/dev/shm", false)?;
        overlay(&folder.join(format!("bpf-{host}")), "/sys/fs/bpf", false)?;
        // Only these two folders of sysfs differ between network namespaces. A whole new /sys would hide
        // what is mounted inside it (cgroups, the BPF file system).
        overlay(&sysfs.join("class/net"), "/sys/class/net", true)?;
        overlay(&sysfs.join("devices/virtual/net"), "/sys/devices/virtual/net", true)?;
        Ok(Entry { network, host_name, overlays, sysfs: c_text(&sysfs)? })
    }

    /// Moves the calling thread, and so a process that has only this one, into the node. Makes bare system calls only: it runs between fork and
    /// exec.
    fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
        move_into_link_name_space(self.host_name.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
        // SAFETY: descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        // What is mounted from here on stays here; what others unmount goes away here too.
        mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        // Refused in some containers; then the machine's own list of NICs stays visible, and only that.
        let _ = mount(c"sysfs", &self.sysfs, c"sysfs", MountFlags::empty(), None);
        for overlay in &self.overlays {
            match mount_bind(&overlay.source, &overlay.target) {
                Err(error) if !overlay.optional => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A command that will run in a node of a lab.
pub(crate) fn command(lab: &str, host: &str, program: &OsStr) -> Result<Command, LabError> {
    if !geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    let entry = Entry::prepare(lab, host)?;
    let mut command = Command::new(program);
    command.env(LAB_VARIABLE, lab).env(NODE_VARIABLE, host);
    // SAFETY: `enter` runs between fork and exec and makes bare system calls on descriptors and texts that
    // the closure owns; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(move || entry.enter()) };
    Ok(command)
}

/// Moves the calling thread into a node of a lab.
pub(crate) fn thread(lab: &str, host: &str) -> Result<(), LabError> {
    if !geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    Entry::prepare(lab, host)?.enter().context("enter the node", host)
}

/// Runs code in a network namespace, on a thread of its own that ends with it.
pub(crate) fn inside<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    let path = names::netns_path(namespace);
    let handle = File::open(&path).context("open the namespace", &path)?;
    let entered = || {
        move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))
            .context("enter the namespace", &path)?;
        work()
    };
    thread::scope(|scope| match scope.spawn(entered).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn c_text(path: &Path) -> Result<CString, LabError> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from).context("name", path)
}
