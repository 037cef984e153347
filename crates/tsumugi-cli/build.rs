//! Tells the version with the commit that it is built from, as in `0.1.0 (7ab49ee 2026-11-29)`; without a repository, the
//! version alone.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let commit = commit().map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=TSUMUGI_VERSION={version}{commit}");
}

/// The commit, and its day.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // An unpacked archive within somebody else's repository has no commit of its own.
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    watch("HEAD");
    watch("packed-refs");
    if let Some(branch) = git(&["symbolic-ref", "--quiet", "HEAD"]) {
        // While the branch is among the packed ones it has no file of its own: the next commit makes one in its folder.
        if !watch(&branch) {
            branch.rsplit_once('/').map(|(folder, _)| watch(folder));
        }
    }
    git(&["log", "-1", "--no-show-signature", "--abbrev=7", "--format=%h %cs"])
}

/// Has cargo run this again when a file of the repository changes. Whether there is that file.
fn watch(name: &str) -> bool {
    let Some(path) = git(&["rev-parse", "--git-path", name]).map(PathBuf::from) else { return false };
    // What is not there would count as changed each time.
    let is_there = path.exists();
    if is_there {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    is_there
}

/// What git prints in this folder.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
