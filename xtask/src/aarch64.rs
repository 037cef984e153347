//! The library's tests on another architecture: built for 64-bit Arm, run under qemu-user by `xtask/aarch64.sh`.

use crate::built;
use crate::tally::Tally;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const HELP: &str = "\
cargo xtask aarch64

  Compiles the whole workspace for 64-bit Arm (aarch64-unknown-linux-gnu), with all targets, then runs the tests of the library
  crates and of the simulation for it under qemu-user.

  It tries what differs in the compiler and in the C library: layouts of structs, the sign of c_char, numbers of system calls,
  atomics as they are compiled for Arm, and the C side of the format with Arm's compiler. It does not try Arm's weak memory
  order: qemu-user translates into this machine's instructions, and x86-64 orders more than Arm promises; a barrier that is
  missing goes unnoticed (loom looks for those). Nor alignment beyond what Rust checks itself, since x86-64 takes any, nor
  pages of another size, nor the kernel: system calls go to this one.

  Tests run as an ordinary user. Those that need root leave themselves out and say so, since qemu-user knows neither bpf(2)
  nor AF_XDP, and so do those of memory that is unmapped under way or wiped by fork, since it takes MADV_POPULATE_READ and
  MADV_WIPEONFORK without doing anything. Of the simulation's thousands of seeds, which would take more than ten minutes, 200
  clusters and 100 of all programming models are run. PROPTEST_CASES is 64 unless set. On two processors some nine minutes
  from nothing, three of them the tests.

  Needs Linux 6.7 (programs of Arm that tests start, see xtask/aarch64.sh) with user namespaces, Debian's packages qemu-user,
  gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, and Rust's standard library for the target. As root, or with CI=true, what
  is missing is installed; otherwise it is said what to install.";

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Those whose tests need no machine of their own. Of one call, so that nothing is built twice.
const TEST: [&str; 9] = [
    "test",
    "--target",
    TARGET,
    "--no-fail-fast",
    "--package=tsumugi-wire",
    "--package=tsumugi-proto",
    "--package=tsumugi-rail",
    "--package=tsumugi",
    "--package=tsumugi-sim",
];
/// The simulation's tests that run thousands of seeds; some seeds are run instead.
const LONG: [&str; 3] = ["--", "--skip=_seeds_", "--skip=seeds_that_"];
const SEEDS: [&[&str]; 2] = [&["--seeds=0..200"], &["--seeds=0..100", "--models"]];

/// A program or file, and Debian's package that brings it.
const NEEDED: [(&str, &str); 4] = [
    ("/usr/bin/qemu-aarch64", "qemu-user"),
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"),
    ("/usr/bin/unshare", "util-linux"),
];

/// Compiles everything, runs the tests, and counts them.
pub(crate) fn run(tally: &mut Tally) {
    if std::env::consts::ARCH == "aarch64" {
        eprintln!("xtask: this machine is of the architecture itself: cargo xtask test");
        return tally.spoil("nothing was emulated");
    }
    if !(has_packages() && has_target()) {
        return tally.spoil("something is not installed, see above");
    }
    let script = crate::root().join("xtask/aarch64.sh");
    let runner = format!("sh {}", script.display());
    let cases = std::env::var("PROPTEST_CASES").unwrap_or_else(|_| "64".to_owned());
    let environment = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &runner),
        // For what tests compile themselves.
        ("TARGET_CC", "aarch64-linux-gnu-gcc"),
        ("PROPTEST_CASES", &cases),
        // Where it is true, tests leave nothing out.
        ("CI", "false"),
    ];
    tally.run(&["check", "--target", TARGET, "--workspace", "--all-targets"], &environment);
    tally.run(&[&TEST[..], &LONG].concat(), &environment);
    let Some(simulation) = built::program(&TEST, &environment, "tsumugi-sim") else {
        return tally.spoil("the simulation was not built");
    };
    let script = script.to_string_lossy();
    for seeds in SEEDS {
        let run = [&[&*script, &simulation], seeds].concat();
        let done = tally.status("sh", &run, &environment) == Some(0);
        tally.note(done);
    }
}

/// Packages of [`NEEDED`] that are not installed.
fn missing() -> Vec<&'static str> {
    NEEDED.iter().filter(|(file, _)| !Path::new(file).exists()).map(|(_, package)| *package).collect()
}

fn has_packages() -> bool {
    let packages = missing();
    if packages.is_empty() {
        return true;
    }
    let install =
        [&["install", "-qq", "-y", "--no-install-recommends", "--no-remove"], &packages[..]].concat();
    let quietly = [("DEBIAN_FRONTEND", "noninteractive")];
    if may_install() {
        // The lists of packages are fetched only if needed.
        let _ = crate::run("apt-get", &install, &quietly)
            || crate::run("apt-get", &["update", "-qq"], &[]) && crate::run("apt-get", &install, &quietly);
    }
    let packages = missing();
    if !packages.is_empty() {
        eprintln!("xtask: not installed: sudo apt-get install {}", packages.join(" "));
    }
    packages.is_empty()
}

/// Whether the toolchain that builds has the standard library for the target.
fn has_target() -> bool {
    let there = || {
        let folder = printed("rustc", &["--print", "target-libdir", "--target", TARGET]);
        folder.is_some_and(|folder| Path::new(&folder).is_dir())
    };
    if there() || may_install() && crate::run("rustup", &["target", "add", TARGET], &[]) && there() {
        return true;
    }
    eprintln!("xtask: Rust's standard library for {TARGET} is not there: rustup target add {TARGET}");
    eprintln!(
        "xtask: without rustup: unpack https://static.rust-lang.org/dist/rust-std-VERSION-{TARGET}.tar.xz, of the"
    );
    eprintln!(
        "xtask: same version as `rustc --version`, and run its install.sh --prefix=$(rustc --print sysroot)"
    );
    false
}

/// As root, as `xtask/setup.sh` does, and in CI; elsewhere a user's programs are the user's.
fn may_install() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
        || printed("id", &["-u"]).is_some_and(|user| user == "0")
}

fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
