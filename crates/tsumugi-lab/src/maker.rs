//! Labs that end with the process that made them, however that ends.
//!
//! The maker holds a lock on a file in the lab's folder until it dies: the kernel's word, which neither a process number that
//! is used again nor a PID namespace can make wrong.

use crate::error::{Context, LabError};
use crate::names;
use crate::remove::{self, Removed};
use rustix::process::geteuid;
use std::fs::{self, File, TryLockError};
use std::sync::{Mutex, PoisonError};

/// Name of the file in a lab's folder.
const FILE: &str = "maker";

/// The locks of this process; they end with it.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Says in a lab's folder that this process made it.
pub(crate) fn sign(lab: &str) -> Result<(), LabError> {
    let folder = names::folder(lab);
    let (scratch, path) = (folder.join("maker.new"), folder.join(FILE));
    let file = File::create(&scratch).context("make", &scratch)?;
    file.lock().context("lock", &scratch)?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    // Nobody finds it before it is locked.
    fs::rename(&scratch, &path).context("rename", &scratch)
}

/// Whether a lab's maker has died. A lab that was not to end with it has none.
fn is_abandoned(lab: &str) -> bool {
    let Ok(file) = File::open(names::folder(lab).join(FILE)) else { return false };
    !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock | TryLockError::Error(_)))
}

/// Removes labs that were to end with their makers, which have died; see [`crate::down`]. Says which, and why one could not be
/// removed.
pub fn remove_abandoned() -> Vec<(String, Result<Removed, LabError>)> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let abandoned = names::labs().into_iter().filter(|lab| is_abandoned(lab));
    let removed = abandoned.map(|lab| {
        let removed = remove::down(&lab);
        (lab, removed)
    });
    // Somebody else may have been faster.
    removed.filter(|(_, removed)| !matches!(removed, Err(LabError::NotFound { .. }))).collect()
}
