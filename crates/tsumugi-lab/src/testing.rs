//! What tests need that do to the machine what only root may do.

use crate::kernel_log::KernelLog;
use rustix::process::geteuid;
use std::io::Write;

/// Whether a test can run here: as root, and with nothing else `missing`. Otherwise says loudly that it does not; where
/// CI=true nothing is skipped.
///
/// The test fails if the kernel complains while it holds what is returned.
///
/// # Panics
/// It cannot run, and CI=true.
#[must_use]
pub fn as_root(test: &str, missing: Option<&str>) -> Option<Watched> {
    let missing = if geteuid().is_root() { missing } else { Some("needs root") };
    let Some(missing) = missing else { return Some(Watched::new(test)) };
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} {missing}, and CI skips nothing");
    // Not eprintln!, which the test runner keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "\n*** {test}: SKIPPED ({missing}) ***");
    None
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
