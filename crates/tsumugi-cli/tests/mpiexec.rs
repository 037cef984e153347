//! `tsumugi-mpiexec`: jobs of MPIs as PyPI has them across the nodes of a lab, and what keeps a job from being started.

#[path = "common/mpi.rs"]
mod mpi;

use mpi::{ALONE, Mpi, TSUMUGI, one_on_each, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::PoisonError;
use tempfile::TempDir;
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, LabGuard, Spec};

const MPIEXEC: &str = env!("CARGO_BIN_EXE_tsumugi-mpiexec");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tsumugi-ofi/tests/mpi");

/// Everything that a command has said, which must have failed.
fn refusal(output: &Output) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// A folder with programs that say what an MPI's say.
fn pretended(programs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, says) in programs {
        let script = folder.path().join(format!("{name}.sh"));
        fs::write(&script, format!("#!/bin/sh\ncat <<'SAYS'\n{says}\nSAYS\n")).unwrap();
        // By another process: a file that any process has open for writing is not run, and a thread may be starting one.
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).args([&script, &folder.path().join(name)]).status();
        assert!(status.unwrap().success());
    }
    folder
}

/// A lab whose nodes are reached by its own ssh.
struct Cluster {
    lab: LabGuard,
    ssh: PathBuf,
}

impl Cluster {
    fn new() -> Cluster {
        let lab = Lab::up(&Spec::unique("mpiexec")).unwrap().guarded();
        let ssh = lab.write_launcher(Path::new(TSUMUGI)).unwrap();
        Cluster { lab, ssh }
    }

    /// Runs `tsumugi-mpiexec` in the first node.
    fn run(&self, mpi: &Mpi, ours: &[&str], hosts: &str, program: &Path) -> Output {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = self.lab.command(0, "timeout").unwrap();
        command
            .env("FI_LOG_LEVEL", "info")
            .args(["120", MPIEXEC])
            .arg("--mpiexec")
            .arg(mpi.programs.join("mpiexec"))
            .args(ours);
        command.args(one_on_each(mpi.name, &self.ssh, hosts)).arg(program).output().unwrap()
    }
}

fn built(mpi: &Mpi, name: &str) -> PathBuf {
    let program = mpi.built.join(format!("mpiexec-{name}-{}", std::process::id()));
    let source = Path::new(PROGRAMS).join(format!("{name}.c"));
    let mut compiler = Command::new(mpi.programs.join("mpicc"));
    let output = compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

#[test]
fn jobs_run_over_what_is_asked_for() {
    let Some(_watch) = as_root("jobs_run_over_what_is_asked_for", None) else { return };
    let cluster = Cluster::new();
    for mpi in Mpi::all() {
        let program = built(&mpi, "collectives");
        for (ours, used) in [(&[][..], true), (&["--over", "tcp"], false)] {
            let output = cluster.run(&mpi, ours, "n0,n1", &program);
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(
                output.status.success() && said.contains("collectives: ok"),
                "{}, {ours:?}: {said}",
                mpi.name
            );
            assert_eq!(said.contains(": receive path "), used, "{}, {ours:?}: {said}", mpi.name);
        }
        let _ = fs::remove_file(&program);
    }
}

#[test]
fn nodes_that_cannot_take_part_are_named_before_the_job_starts() {
    let Some(_watch) = as_root("nodes_that_cannot_take_part_are_named", None) else { return };
    let cluster = Cluster::new();
    for mpi in Mpi::all() {
        let said = refusal(&cluster.run(&mpi, &[], "n0,n1,n7", Path::new("/bin/true")));
        assert!(said.contains("n7 true` does not work") && said.contains("no node 'n7'"), "{said}");
        assert!(!said.contains("n1 true`") && said.contains("--no-check"), "{said}");
    }
    let Some(mpi) = Mpi::installed("mpich") else { return };
    // Another version on every node: the file is the same there, and the one here says another number.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libtsumugi-fi.so");
    let ask = |hosts: &str| {
        let mut command = cluster.lab.command(0, MPIEXEC).unwrap();
        command.env("FI_PROVIDER_PATH", folder.path()).arg("--mpiexec").arg(mpi.programs.join("mpiexec"));
        refusal(&command.args(one_on_each(mpi.name, &cluster.ssh, hosts)).arg("/bin/true").output().unwrap())
    };
    fs::write(&file, "no such words").unwrap();
    assert!(ask("n0,n1").contains("is no provider of Tsumugi's"));
    // The node's own view of the folder: another provider, or none.
    fs::write(&file, "tsumugi wire protocol 1\0").unwrap();
    let other = cluster.ssh.with_file_name("other-ssh");
    for (done, words) in
        [("echo tsumugi wire protocol 9 >", "speaks version 9 of the protocol"), ("rm -f", "n1 has no ")]
    {
        let script = format!("{done} '{0}'\nexec '{1}' \"$@\"\n", file.display(), cluster.ssh.display());
        fs::write(&other, script).unwrap();
        let mut command = cluster.lab.command(0, MPIEXEC).unwrap();
        command.env("FI_PROVIDER_PATH", folder.path()).arg("--mpiexec").arg(mpi.programs.join("mpiexec"));
        let agent = format!("sh {}", other.display());
        let output = command
            .args(["-launcher-exec", &agent, "-hosts", "n1", "-n", "1", "/bin/true"])
            .output()
            .unwrap();
        let said = refusal(&output);
        assert!(said.contains(words), "{said}");
        fs::write(&file, "tsumugi wire protocol 1\0").unwrap();
    }
}

#[test]
fn what_is_missing_here_is_said_with_the_remedy() {
    let nowhere = pretended(&[]);
    let ucx_only = pretended(&[
        ("mpiexec", "HYDRA build details:\n    Version:                                 4.0.2"),
        ("mpichversion", "MPICH Version:    4.0.2\nMPICH Device:     ch4:ucx"),
    ]);
    let stranger = pretended(&[("mpiexec", "Slurm 23.11")]);
    let mpich = pretended(&[
        ("mpiexec", "HYDRA build details:\n    Version:                                 5.0.2"),
        ("mpichversion", "MPICH Device:     ch4:ucx ofi"),
    ]);
    for (path, arguments, words) in [
        (&nowhere, &["-n", "2", "true"][..], "pip install mpich"),
        (&ucx_only, &["-n", "2", "true"], "MPICH 4.0.2"),
        (&ucx_only, &["-n", "2", "true"], "built for ch4:ucx, and Tsumugi is used through libfabric"),
        (&ucx_only, &["--over", "tcp", "-n", "2", "true"], "pip install mpich"),
        (&stranger, &["-n", "2", "true"], "says `Slurm 23.11`"),
        (&mpich, &["-f", "/nonexistent/hosts", "true"], "the file of hosts /nonexistent/hosts"),
    ] {
        // `cat`, behind it.
        let output = Command::new(MPIEXEC)
            .env("PATH", format!("{}:/bin", path.path().display()))
            .env("FI_PROVIDER_PATH", provider_in(&mpich))
            .args(arguments)
            .output()
            .unwrap();
        let said = refusal(&output);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let mut command = Command::new(MPIEXEC);
    command.env("PATH", format!("{}:/bin", mpich.path().display())).env("FI_PROVIDER_PATH", "/nonexistent");
    let said = refusal(&command.args(["-n", "1", "true"]).output().unwrap());
    assert!(
        said.contains("there is no libtsumugi-fi.so in /nonexistent, which FI_PROVIDER_PATH names"),
        "{said}"
    );
    let none = Command::new(MPIEXEC).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
}

/// A folder with a provider, as far as can be seen without loading it.
fn provider_in(folder: &TempDir) -> PathBuf {
    fs::write(folder.path().join("libtsumugi-fi.so"), "tsumugi wire protocol 1\0").unwrap();
    folder.path().to_owned()
}

#[test]
fn it_says_what_it_would_do() {
    let mpich = pretended(&[
        ("mpiexec", "HYDRA build details:\n    Version:                                 5.0.2"),
        ("mpichversion", "MPICH Device:     ch4:ucx ofi"),
    ]);
    let run_in = |job: Option<&str>, arguments: &[&str]| {
        let mut command = Command::new(MPIEXEC);
        command.env_remove("SLURM_JOB_ID").envs(job.map(|job| ("SLURM_JOB_ID", job)));
        command
            .env("PATH", format!("{}:/bin", mpich.path().display()))
            .env("FI_PROVIDER_PATH", provider_in(&mpich));
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let run = |arguments: &[&str]| run_in(None, arguments);
    let said = run(&["--dry-run", "-n", "2", "./it's"]);
    assert!(said.contains("FI_PROVIDER=tsumugi \\\n") && said.contains("MPIR_CVAR_CH4_NETMOD=ofi"), "{said}");
    assert!(said.ends_with(&format!("{}/mpiexec -n 2 './it'\\''s'\n", mpich.path().display())), "{said}");
    let said = run(&["--export"]);
    assert!(said.contains("export FI_PROVIDER=tsumugi\n"), "{said}");
    assert!(run(&["--over", "ucx", "--export"]).contains("export UCX_TLS=tcp,self\n"));
    // Ranks load the PMPI library; there has to be one.
    let program = ["--collectives", "-n", "2", "./a"];
    let file = mpich.path().join("libtsumugi-pmpi.so");
    fs::write(&file, "tsumugi wire protocol 1\0").unwrap();
    let preload = |words: &[&str]| run(&[&["--over", "tcp"], words].concat());
    let said = preload(&[&["--dry-run"], &program[..]].concat());
    assert!(said.contains(&format!("/mpiexec -genv LD_PRELOAD {} -n 2 ./a", file.display())), "{said}");
    let said = preload(&["--collectives", "--export"]);
    assert!(said.contains(&format!("export LD_PRELOAD={}\n", file.display())), "{said}");
    // The launcher's own srun is not that of a program.
    let [dry, export] = [&["--dry-run", "./a"][..], &["--export"]].map(|words| run_in(Some("7"), words));
    assert!(dry.contains("SLURM_MPI_TYPE=none \\\n") && !export.contains("SLURM"), "{dry}{export}");
}
