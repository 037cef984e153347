//! Removing a lab. Goes by names and mounts alone, so it works whatever state the lab is in.

use crate::deferred;
use crate::error::{Context, LabError};
use crate::names;
use crate::state::Lock;
use crate::sys::Process;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Signal, geteuid};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process may take to end itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// How long the kernel may take to end one after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often processes are looked for again, in case they forked meanwhile.
const ROUNDS: u32 = 8;

/// What [`down`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Network namespaces.
    pub namespaces: usize,
    /// Processes that still ran in a node and were ended.
    pub processes: usize,
}

/// Removes a lab and whatever is left of one, also one that was never completed or whose state is gone:
/// ends the processes that run in its nodes (SIGTERM, a second later SIGKILL), then takes away namespaces,
/// mounts and files.
pub fn down(name: &str) -> Result<Removed, LabError> {
    crate::spec::check_name(name)?;
    if !geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    let lock = Lock::take()?;
    let result = remove(name);
    lock.release();
    result
}

/// Removes every lab; see [`down`]. Goes on after a failure and reports the first.
pub fn down_all() -> Result<Vec<(String, Removed)>, LabError> {
    if !geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    let mut removed = Vec::new();
    let mut failure = None;
    for name in names::labs() {
        match down(&name) {
            Ok(what) => removed.push((name, what)),
            // Somebody else was faster.
            Err(LabError::NotFound { .. }) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(removed), Err)
}

/// The work of [`down`], for callers that hold the lock.
pub(crate) fn remove(name: &str) -> Result<Removed, LabError> {
    let namespaces = names::netns_of(name);
    let folder = names::folder(name);
    if namespaces.is_empty() && !folder.exists() {
        let known = names::labs();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(LabError::NotFound { name: name.to_owned(), known });
    }
    let identities: Vec<_> = namespaces.iter().filter_map(|n| identity(&names::netns_path(n))).collect();
    if identity(Path::new("/proc/self/ns/net")).is_some_and(|own| identities.contains(&own)) {
        return Err(LabError::Inside { name: name.to_owned() });
    }
    let processes = end_processes(name, &identities)?;
    for namespace in &namespaces {
        unpin(&names::netns_path(namespace))?;
    }
    for mount in mounts_below(&folder)? {
        unmount(&mount)?;
    }
    // Removing files through a mount that refused to go would destroy what is not ours.
    if let Some(left) = mounts_below(&folder)?.first() {
        return Err(io::Error::from(io::ErrorKind::ResourceBusy)).context("unmount", left);
    }
    // The nodes' NICs go, and nobody is left who reads what they received.
    deferred::give_back();
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", &folder),
        _ => Ok(Removed { namespaces: namespaces.len(), processes }),
    }
}

/// Which namespace a file of /proc/PID/ns or a pin stands for.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The processes whose network namespace is one of these.
fn processes_in(namespaces: &[(u64, u64)]) -> Vec<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_in(*pid, namespaces)).collect()
}

fn is_in(pid: i32, namespaces: &[(u64, u64)]) -> bool {
    identity(Path::new(&format!("/proc/{pid}/ns/net"))).is_some_and(|net| namespaces.contains(&net))
}

/// The processes that run in a lab's node.
pub(crate) fn processes_of_node(lab: &str, node: u32) -> Vec<i32> {
    let namespace = identity(&names::netns_path(&names::netns(lab, node)));
    namespace.map_or_else(Vec::new, |namespace| processes_in(&[namespace]))
}

fn end_processes(name: &str, namespaces: &[(u64, u64)]) -> Result<usize, LabError> {
    let mut ended = 0;
    for round in 0..ROUNDS {
        let mut found = Vec::new();
        for pid in processes_in(namespaces) {
            let Ok(process) = Process::open(pid) else { continue };
            // The number may have passed to another process before the descriptor was opened.
            if is_in(pid, namespaces) {
                found.push((pid, process));
            }
        }
        if found.is_empty() {
            return Ok(ended);
        }
        ended += found.len();
        // Only the first round is polite: what appears later was forked by something that was told to end.
        let signals = if round == 0 { &[Signal::TERM, Signal::KILL][..] } else { &[Signal::KILL][..] };
        for &signal in signals {
            for (pid, process) in &found {
                process.signal(signal).context("end process", pid.to_string())?;
            }
            let deadline = Instant::now() + if signal == Signal::TERM { GRACE } else { PATIENCE };
            let mut running = Vec::new();
            for (pid, process) in found {
                let left = deadline.saturating_duration_since(Instant::now());
                if !process.ended(left).context("wait for process", pid.to_string())? {
                    running.push((pid, process));
                }
            }
            found = running;
        }
    }
    let pids = processes_in(namespaces);
    if pids.is_empty() { Ok(ended) } else { Err(LabError::Stubborn { name: name.to_owned(), pids }) }
}

/// Takes a pinned namespace away. A pin whose making was interrupted is an ordinary file.
fn unpin(path: &Path) -> Result<(), LabError> {
    unmount(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", path),
        _ => Ok(()),
    }
}

fn unmount(path: &Path) -> Result<(), LabError> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // Nothing is mounted there (any more).
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        other => other.context("unmount", path),
    }
}

/// What is mounted inside a folder, the latest first.
fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("read", "/proc/self/mountinfo")?;
    // Field 5 is the mount point (proc(5)). Names of ours contain nothing that would be escaped there.
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(folder)).collect();
    below.reverse();
    Ok(below)
}
