//! Whether receiving and sending harm other kernels than this machine's: `tools/second-kernel` boots them on an emulated
//! machine and reads their logs.

use crate::built;
use crate::tally::Tally;

/// Debian's packages: the oldest kernel that programs are written for, and one with frames in several buffers.
const KERNELS: [&str; 2] = ["linux-image-amd64", "linux-image-6.12-amd64"];
/// Exit status of `tools/second-kernel/run` when the machine lacks something and nothing was tried.
const LACKS: i32 = 77;

/// Tries every kernel, and counts what was tried. A kernel that is left out is told of, and is a failure where CI is set.
pub(crate) fn run(tally: &mut Tally) {
    let Some(program) = program() else {
        tally.spoil("the command was not built, so no other kernel was tried");
        return;
    };
    // At once: an emulated machine waits as much as it computes.
    let runs =
        KERNELS.map(|kernel| (kernel, vec!["--kernel", kernel, "--program", &program, "--trial", "harm"]));
    let statuses = tally.statuses("tools/second-kernel/run", &runs);
    for (kernel, status) in KERNELS.into_iter().zip(statuses) {
        match status {
            Some(0) => {}
            Some(LACKS) if std::env::var_os("CI").is_none_or(|ci| ci != "true") => {
                eprintln!("xtask: LEFT OUT: {kernel} on an emulated machine, see above");
            }
            Some(LACKS) => {
                tally.spoil(&format!(
                    "{kernel} on an emulated machine is left out, and CI leaves nothing out"
                ));
            }
            _ => tally.spoil(&format!("{kernel} on an emulated machine")),
        }
    }
}

/// The `tsumugi` command as the workspace's tests have it, so that nothing is built twice.
fn program() -> Option<String> {
    built::program(&["test", "--workspace"], &[], "tsumugi")
}
