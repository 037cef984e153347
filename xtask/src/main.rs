//! The project's own chores: `cargo xtask ci|test|loom|miri|races|aarch64|kernels|defects|tidy|circles|oldest|fuzz|targets|setup`.
//!
//! Depends on nothing, so that it builds at once on a machine that has just been set up.

use beside::Beside;
use defects::Which;
use kernel_log::KernelLog;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use tally::Tally;

mod aarch64;
mod beside;
mod built;
mod defects;
#[path = "../../crates/tsumugi-lab/src/kernel_log.rs"]
#[allow(dead_code, unreachable_pub, reason = "the lab and its tests use more of it, and from outside")]
mod kernel_log;
mod kernels;
mod packages;
mod tally;
mod targets;
mod tidy;
mod toolchain;

const USAGE: &str = "\
cargo xtask COMMAND

  setup   install what building, testing and the demo need (Debian; without root: say what is left out)
  tidy    check the project's style beyond what rustfmt and clippy know
  circles see whether source files need each other in a circle
  oldest  build with the oldest Rust that the project promises (rust-version in Cargo.toml)
  fuzz    build the fuzz targets, without running them
  test    run every test of the workspace: the simulation, the interleavings, Miri, other kernels and defects included
  loom    run every interleaving of writers and owner of receive memory, within bounds
  miri    run what shares memory under Miri, which sees undefined behaviour (a nightly toolchain with miri and rust-src)
  races   run the libfabric provider's tests under ThreadSanitizer (a nightly toolchain with rust-src; x86-64; not a part of ci)
  aarch64 [--help]
          build for 64-bit Arm, and run the libraries' tests under qemu-user (not a part of ci); --help says what that shows
  kernels boot other kernels on an emulated machine, and see whether they complain (root, x86-64)
  defects [--only NAME|--controls]
          break the protocol on purpose, in one way at a time, and see the simulation complain. --controls: before that, see
          it not complain of the protocol as it is, as its tests do
  targets [--check] [FILE...]
          measure what the project has set itself as targets, and say which are met; some ten minutes; MPIs only as root. FILE is the output
          of `tsumugi compare --json`, `tsumugi eval bonding --json` or `tsumugi eval mpi --json`, measured before. --check: fail
          when one is missed
  wheel [--quick|--help]
          make a wheel of the commands and the provider, in target/wheel (python3 with venv, and PyPI)
  deb     make the Debian package of what `make build` has built, in target/debian (cargo-deb)
  ci      formatting, style, lints, documentation, then all tests, and beside them the fuzz targets and the oldest Rust";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // A script, because this program cannot be built before a linker is installed.
        ["setup"] => run("sh", &["xtask/setup.sh"], &[]),
        ["tidy"] => tidy(),
        ["circles"] => run("cargo", &["run", "--quiet", "--package", "xtask-circles"], &[]),
        ["test"] => test(),
        ["loom"] => concluded(interleave),
        ["races"] => races(),
        ["aarch64"] => concluded(aarch64::run),
        ["aarch64", "--help"] => {
            println!("{}", aarch64::HELP);
            true
        }
        ["kernels"] => concluded(kernels::run),
        ["wheel"] => packages::wheel(false),
        ["wheel", "--quick"] => packages::wheel(true),
        ["wheel", "--help"] => {
            println!("{}", packages::WHEEL_HELP);
            true
        }
        ["deb"] => packages::deb(),
        ["oldest"] => concluded(|tally| tally.note(toolchain::check_oldest(&root()))),
        ["fuzz"] => concluded(|tally| tally.note(fuzz())),
        ["miri"] => concluded(miri),
        ["defects"] => concluded(|tally| defects::run(tally, Which::All)),
        ["defects", "--controls"] => concluded(|tally| defects::run(tally, Which::AllAndControls)),
        ["defects", "--only", name] => concluded(|tally| defects::run(tally, Which::Only(name))),
        ["targets", ref options @ ..]
            if options.iter().all(|it| *it == "--check" || !it.starts_with('-')) =>
        {
            targets::run(&root(), options)
        }
        ["ci"] => ci(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The project's folder.
fn root() -> PathBuf {
    // Cargo sets it for programs that it runs; a copy of this program is run in the project's folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|package| package.parent().map(Path::to_owned)).unwrap_or_else(|| PathBuf::from("."))
}

/// Shows a command, runs it in the project's folder, and says whether it succeeded.
fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let settings: String = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    eprintln!("+ {settings}{program} {}", arguments.join(" "));
    let begun = Instant::now();
    let mut command = Command::new(program);
    match command.args(arguments).envs(environment.iter().copied()).current_dir(root()).status() {
        Ok(status) => {
            tell_time(begun, program, arguments);
            status.success()
        }
        Err(error) => {
            eprintln!("xtask: cannot run '{program}': {error}");
            false
        }
    }
}

/// Says how long a step took: where the time of a whole run goes.
fn tell_time(begun: Instant, program: &str, arguments: &[&str]) {
    let step = arguments.first().unwrap_or(&"");
    eprintln!("xtask: {program} {step} took {:.0} s", begun.elapsed().as_secs_f64());
}

fn tidy() -> bool {
    let complaints = tidy::complaints(&root());
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    eprintln!("tidy: {} complaints", complaints.len());
    complaints.is_empty()
}

/// One cargo call for the workspace, so that nothing is built twice; `--no-fail-fast`, so that one failure hides
/// no other.
fn test() -> bool {
    let mut tally = Tally::default();
    // Tests look at the log themselves; what the kernel says between two of them, or later, is seen here.
    let mut kernel = KernelLog::watch_but_for("tsumugi-test");
    // Built first, with the processors to itself.
    tally.run(&["test", "--workspace", "--no-run"], &[]);
    // Tests leave the processors idle while they wait.
    let beside = Beside::start(std::env::var_os("CI").is_some_and(|ci| ci == "true"));
    // Most of them wait more than they compute.
    let threads = (2 * std::thread::available_parallelism().map_or(1, usize::from)).to_string();
    tally.run(&["test", "--workspace", "--no-fail-fast"], &[("RUST_TEST_THREADS", &threads)]);
    kernels::run(&mut tally);
    beside.conclude(&mut tally);
    if let Some(complaints) = kernel.complaints() {
        tally.spoil(&complaints.to_string());
    }
    tally.conclude()
}

/// Threads share what the provider opens for them; ThreadSanitizer sees every access that no lock orders. The provider is loaded
/// by libfabric, so it finds the sanitizer's functions in the test program.
fn races() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Clink-arg=-rdynamic";
    let folder = root().join("target/races");
    let environment = [("RUSTFLAGS", flags), ("CARGO_TARGET_DIR", folder.to_str().unwrap_or_default())];
    let tests = ["--package", "tsumugi-ofi", "--test", "provider"];
    let arguments = [&["+nightly", "test", "-Zbuild-std", "--target", TARGET][..], &tests].concat();
    let done = run("cargo", &arguments, &environment);
    if !done {
        eprintln!("xtask: if it could not be built: rustup toolchain install nightly --component rust-src");
    }
    done
}

/// What Miri runs: code with `unsafe` in it that needs no system call but to map memory.
const MIRI: [&[&str]; 2] = [
    &["--package", "tsumugi-rail", "--lib", "--", "memory::", "words::", "region::", "xsk::shared::"],
    &["--package", "tsumugi", "--lib", "--", "buffer::"],
];

/// Miri sees undefined behaviour. Formats and protocol forbid `unsafe`; Miri knows neither sockets nor libfabric.
fn miri(tally: &mut Tally) {
    if toolchain::has_miri() {
        for arguments in MIRI {
            let isolated = ("MIRIFLAGS", "-Zmiri-disable-isolation");
            let folder = ("CARGO_TARGET_DIR", "target/miri");
            tally.run(&[&["+nightly", "miri", "test"], arguments].concat(), &[isolated, folder]);
        }
    }
}

/// The fuzz targets lie in a workspace of their own, which nothing else builds. libFuzzer itself, in C++, is not needed to see
/// that they still fit.
fn fuzz() -> bool {
    let arguments =
        ["check", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"];
    run("cargo", &arguments, &[("CUSTOM_LIBFUZZER_PATH", "/none")])
}

/// Runs tests of one kind and sums them up.
fn concluded(run: impl FnOnce(&mut Tally)) -> bool {
    let mut tally = Tally::default();
    run(&mut tally);
    tally.conclude()
}

/// The models in `tests/loom`. Built apart, because the flag changes what atomics are everywhere, and optimised,
/// because they run some hundred thousand times.
fn interleave(tally: &mut Tally) {
    let flags = std::env::var("RUSTFLAGS").map_or_else(|_| "--cfg loom".to_owned(), |it| it + " --cfg loom");
    let arguments = ["test", "--release", "--package", "tsumugi-proto", "--test", "loom"];
    let quickly = ("CARGO_PROFILE_RELEASE_LTO", "off");
    tally.run(&arguments, &[("RUSTFLAGS", &flags), ("CARGO_TARGET_DIR", "target/loom"), quickly]);
}

/// Every step runs even if an earlier one failed: one look at the output shows everything. The tests come
/// last, so that the output ends with their own summary.
fn ci() -> bool {
    // Tests that need root fail instead of being skipped where this is set.
    let ci = ("CI", "true");
    let steps = [
        ("fmt", run("cargo", &["fmt", "--all", "--check"], &[ci])),
        ("tidy", tidy()),
        ("clippy", run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[ci])),
        ("doc", run("cargo", &["doc", "--no-deps", "--workspace"], &[ci, ("RUSTDOCFLAGS", "-D warnings")])),
    ];
    let failed: Vec<_> = steps.iter().filter(|(_, passed)| !passed).map(|(name, _)| *name).collect();
    if failed.is_empty() {
        eprintln!("xtask: passed so far; now the tests");
    } else {
        eprintln!("xtask: FAILED: {}; now the tests, whose outcome does not mend that", failed.join(", "));
    }
    let passed = run("make", &["test"], &[ci]);
    if !failed.is_empty() {
        // Again, because the beginning of a long output may be lost.
        eprintln!("xtask: FAILED before the tests: {}", failed.join(", "));
    }
    passed && failed.is_empty()
}
