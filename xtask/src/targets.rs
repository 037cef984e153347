//! Measures what the project's targets ask for, and has it judged.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the measurements are kept, to be judged again.
const FOLDER: &str = "target/targets";

/// Judges the files, or, without any, what is measured now. Only with `--check` is a missed target a failure.
pub(crate) fn run(root: &Path, options: &[&str]) -> bool {
    let mut arguments: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let has_files = options.iter().any(|option| !option.starts_with('-'));
    let measured = if has_files { Vec::new() } else { measure(root) };
    let is_complete = has_files || measured.len() == measurements().len();
    arguments.extend(measured);
    if arguments.iter().all(|argument| argument.starts_with('-')) {
        return false;
    }
    // In the user's folder, where the files' names mean what they say.
    let mut judge = cargo(root, "xtask-targets", &[]);
    let judged = judge.args(arguments).status().is_ok_and(|status| status.success());
    judged && is_complete
}

/// What is measured: the name of its file, and the arguments of `tsumugi`.
fn measurements() -> Vec<(&'static str, Vec<&'static str>)> {
    let bonding = ["eval", "bonding", "--json", "--case", "2x4@100M,uneven", "--policy", "adaptive,tlb"];
    let mut bonding: Vec<&str> = bonding.into();
    // Only root can make labs; this process's entry belongs to its user.
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        bonding.push("--simulated");
    }
    let compare = vec!["compare", "--json", "--sizes", "8,256,1K,4K,16K,64K,256K,1M"];
    let mut all = vec![("compare.json", compare), ("bonding.json", bonding)];
    if is_root {
        all.push(("mpi.json", vec!["eval", "mpi", "--rounds", "3", "--time", "0.05", "--json"]));
    }
    all
}

/// Runs the release command; the names of the files with what succeeded.
fn measure(root: &Path) -> Vec<String> {
    let folder = root.join(FOLDER);
    let mut files = Vec::new();
    // What MPIs load is no dependency of the command.
    let mut provider = Command::new("cargo");
    provider.args(["build", "--quiet", "--release", "--package", "tsumugi-ofi", "--manifest-path"]);
    if !provider.arg(root.join("Cargo.toml")).status().is_ok_and(|status| status.success()) {
        eprintln!("xtask: the provider could not be built");
        return files;
    }
    for (name, arguments) in measurements() {
        let file = folder.join(name);
        eprintln!("+ tsumugi {} > {}", arguments.join(" "), file.display());
        let run = || {
            fs::create_dir_all(&folder)?;
            let output = File::create(&file)?;
            cargo(root, "tsumugi-cli", &["--release"]).args(arguments).stdout(Stdio::from(output)).status()
        };
        match run() {
            Ok(status) if status.success() => files.push(file.display().to_string()),
            Ok(status) => eprintln!("xtask: not measured: {status}"),
            Err(error) => eprintln!("xtask: not measured: {error}"),
        }
    }
    files
}

/// Builds and runs a program of the project.
fn cargo(root: &Path, package: &str, options: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", package, "--manifest-path"]);
    command.arg(root.join("Cargo.toml")).args(options).arg("--");
    command
}
