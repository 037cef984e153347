//! Toolchains beside the one that builds: the oldest that the project promises, and nightly for tools that only it has.

use std::path::Path;
use std::process::{Command, Stdio};

/// Builds what users build with the oldest Rust that `Cargo.toml` promises. `true` also where there is no such toolchain to
/// be had, which is told.
pub(crate) fn check_oldest(root: &Path) -> bool {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let Some(version) = promised(&manifest) else {
        eprintln!("xtask: Cargo.toml names no rust-version");
        return false;
    };
    let install = ["toolchain", "install", version, "--profile", "minimal"];
    if !is_there(&[&format!("+{version}"), "--version"], &install) {
        return true;
    }
    // Apart, because each toolchain builds everything anew.
    let arguments = [&format!("+{version}"), "check", "--workspace", "--target-dir", "target/oldest"];
    crate::run("cargo", &arguments, &[])
}

/// Whether nightly's Miri is there.
pub(crate) fn has_miri() -> bool {
    let has_nightly = answers(&["+nightly", "--version"]);
    let components: &[&str] = if has_nightly {
        &["component", "add", "miri", "rust-src", "--toolchain", "nightly"]
    } else {
        &["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"]
    };
    is_there(&["+nightly", "miri", "--version"], components)
}

/// Whether `cargo` does something. If not, it is installed in CI, elsewhere told of: a user's toolchains are the user's.
fn is_there(cargo: &[&str], rustup: &[&str]) -> bool {
    if answers(cargo) {
        return true;
    }
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    if is_ci && crate::run("rustup", rustup, &[]) && answers(cargo) {
        return true;
    }
    eprintln!("xtask: LEFT OUT: `cargo {}` is not there: rustup {}", cargo.join(" "), rustup.join(" "));
    false
}

fn answers(cargo: &[&str]) -> bool {
    let mut command = Command::new("cargo");
    command.args(cargo).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The oldest Rust that a manifest promises.
fn promised(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix("rust-version"))?;
    line.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promised_version_is_found() {
        assert_eq!(
            promised("[workspace.package]\nedition = \"2024\"\nrust-version = \"1.89\"\n"),
            Some("1.89")
        );
        assert_eq!(promised("[package]\nname = \"a\"\n"), None);
    }
}
