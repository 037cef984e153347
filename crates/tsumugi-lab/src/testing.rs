//! What tests need that do to the machine what only root may do.

use crate::kernel_log::KernelLog;
use rustix::process::geteuid;
use rustix::system::uname;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tempfile::TempDir;

/// Whether a test can run here: as root, and with nothing else `missing`. Otherwise says loudly that it does not; where
/// CI=true nothing is skipped.
///
/// The test fails if the kernel complains while it holds what is returned.
///
/// # Panics
/// It cannot run, and CI=true.
#[must_use]
pub fn as_root(test: &str, missing: Option<&str>) -> Option<Watched> {
    let missing = match (is_emulated(), geteuid().is_root()) {
        (true, _) => {
            Some("needs bpf(2), AF_XDP and namespaces, which qemu-user emulates in part or not at all")
        }
        (_, false) => Some("needs root"),
        (_, true) => missing,
    };
    let Some(missing) = missing else { return Some(Watched::new(test)) };
    skip(test, missing);
    None
}

/// Whether a test can run here that needs something of the kernel that qemu-user lacks, such as an advice about memory.
/// Otherwise says loudly that it does not, as [`as_root`] does.
///
/// # Panics
/// It cannot run, and CI=true.
#[must_use]
pub fn unless_emulated(test: &str, lacks: &str) -> bool {
    let emulated = is_emulated();
    if emulated {
        skip(test, lacks);
    }
    !emulated
}

/// Copies a program to a folder of its own, where every user may run it at once: the build's may be closed to others. Returns the
/// folder, which goes when it is dropped, and the copy.
///
/// A process of its own copies: a child of another thread has what this one has open for writing, until it becomes another
/// program, and so long nobody can run it (`ETXTBSY`).
///
/// # Panics
/// It cannot be copied.
#[must_use]
pub fn copy_for_all(program: &Path) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let copy = folder.path().join(program.file_name().expect("a program has a name"));
    let copied = Command::new("install").args(["-m", "755"]).args([program, &copy]).status();
    assert!(
        copied.as_ref().is_ok_and(ExitStatus::success),
        "copying {} to {}: {copied:?}",
        program.display(),
        copy.display()
    );
    (folder, copy)
}

fn skip(test: &str, missing: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} {missing}, and CI skips nothing");
    left_out(test, missing);
}

/// Says loudly that a test does not run, for want of something that not even every machine of CI has.
pub fn left_out(test: &str, missing: &str) {
    // Not eprintln!, which the test runner keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "\n*** {test}: SKIPPED ({missing}) ***");
}

/// Whether system calls are emulated by a process under the kernel of another architecture (qemu-user). It answers uname(2) as
/// a kernel of the program's architecture would; the file (Linux 6.1) says which kernel is there.
fn is_emulated() -> bool {
    let real = std::fs::read_to_string("/proc/sys/kernel/arch");
    real.is_ok_and(|real| uname().machine().to_bytes() != real.trim_end().as_bytes())
}

/// Watches the kernel's log as long as a test runs, and fails the test if the kernel complains meanwhile.
#[derive(Debug)]
pub struct Watched {
    log: KernelLog,
    test: String,
}

impl Watched {
    /// Begins to watch for this test.
    #[must_use]
    pub fn new(test: &str) -> Watched {
        Watched { log: KernelLog::watch(), test: test.to_owned() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(complaints) = self.log.complaints() else { return };
        let verdict = format!("{}: {complaints}", self.test);
        if std::thread::panicking() {
            // The test has failed anyway, and two panics would end all tests.
            let _ = writeln!(std::io::stderr(), "{verdict}");
        } else {
            panic!("{verdict}");
        }
    }
}
