//! Where commands are typed: a folder, programs in `PATH`, and the nodes of a lab.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tsumugi_lab::{Lab, LabGuard, Spec};

use crate::mpi::{Mpi, TSUMUGI};

const MPIEXEC: &str = env!("CARGO_BIN_EXE_tsumugi-mpiexec");
/// Longest that a command may take.
const PATIENCE_S: &str = "60";
/// What the page of administrators calls hello.c.
const HELLO: &str = r#"#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
"#;

/// Everything is gone when it is dropped.
pub(crate) struct Sandbox {
    folder: TempDir,
    root: PathBuf,
    path: String,
    /// Whether an MPI is there, for the commands that need one.
    pub(crate) has_mpi: bool,
    lab: LabGuard,
    /// The lab that the pages make by themselves.
    own: String,
    background: Vec<Child>,
}

impl Sandbox {
    /// Three nodes with three NICs each: the second answers measurements, the NICs of the third have no addresses.
    pub(crate) fn new(root: &Path) -> Sandbox {
        let folder = tempfile::tempdir().unwrap();
        let lab = Lab::up(&Spec { nodes: 3, nics: 3, ..Spec::unique("pages") }).unwrap().guarded();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(TSUMUGI, bin.join("tsumugi")).unwrap();
        symlink(MPIEXEC, bin.join("tsumugi-mpiexec")).unwrap();
        symlink(lab.write_launcher(Path::new(TSUMUGI)).unwrap(), bin.join("ssh")).unwrap();
        // Whoever types is root already.
        symlink("/usr/bin/env", bin.join("sudo")).unwrap();
        let mpi = Mpi::installed("mpich").map(|mpi| mpi.programs);
        let has_mpi = mpi.is_some();
        let before = std::env::var("PATH").unwrap_or_default();
        let path = [Some(bin), mpi].into_iter().flatten().map(|folder| folder.display().to_string());
        let path = path.chain([before]).collect::<Vec<_>>().join(":");
        let own = format!("{}-own", lab.name());
        let root = root.to_owned();
        let mut sandbox = Sandbox { folder, root, path, has_mpi, lab, own, background: Vec::new() };
        for nic in ["nic0", "nic1", "nic2"] {
            sandbox.shell("", Some(2), &format!("ip address flush dev {nic}")).status().unwrap();
        }
        assert_eq!(sandbox.type_in("", Some(1), "tsumugi perf serve &", "", &["port"]), None);
        sandbox
    }

    /// Where the commands of a page find their files, and those that it takes for granted.
    fn folder(&self, page: &str) -> PathBuf {
        let folder = self.folder.path().join(page);
        if !folder.exists() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("hello.c"), HELLO).unwrap();
            if page.starts_with("docs/") && self.has_mpi {
                let built = "mpicc hello.c -o program && cp program hello";
                assert!(self.shell(page, None, built).status().unwrap().success());
            }
        }
        folder
    }

    /// Puts a file beside those of a page.
    pub(crate) fn write(&self, page: &str, name: &str, text: &str) {
        fs::write(self.folder(page).join(name), self.here(text)).unwrap();
    }

    /// A shell that runs this line, in a node or on the machine itself.
    fn shell(&self, page: &str, node: Option<usize>, line: &str) -> Command {
        let mut command = match node {
            Some(node) => self.lab.command(node, "timeout").unwrap(),
            None => Command::new("timeout"),
        };
        command.args([PATIENCE_S, "sh", "-c", line]).current_dir(self.folder(page)).env("PATH", &self.path);
        // Who called sudo would own the endpoints.
        command.env_remove("SUDO_UID").stdin(Stdio::null());
        command
    }

    /// The line with this machine's names in place of the page's.
    fn here(&self, line: &str) -> String {
        let examples = PathBuf::from(TSUMUGI).with_file_name("examples");
        let examples = examples.display();
        let mut line = line.to_owned();
        for (theirs, ours) in [
            ("/shared/mpi/bin/", String::new()),
            ("target/release/tsumugi", "tsumugi".to_owned()),
            ("target/debug/examples", examples.to_string()),
            ("cargo run --example ", format!("{examples}/")),
            ("--paths HOST", "--paths n1".to_owned()),
            ("--group mpi", "--group root".to_owned()),
            ("--path crates", format!("--path {}/crates", self.root.display())),
            ("group = \"mpi\"", "group = \"root\"".to_owned()),
            ("eth1", "nic0".to_owned()),
            ("eth2", "nic1".to_owned()),
            ("eth3", "nic2".to_owned()),
            ("lab up", format!("lab up --name {}", self.own)),
            ("lab exec", format!("lab exec --name {}", self.own)),
            ("lab down", format!("lab down --name {}", self.own)),
        ] {
            line = line.replace(theirs, &ours);
        }
        line
    }

    /// Types a line with more words behind it; it is to end well, and to say these words. One that ends with `&` goes on. Returns what
    /// is wrong.
    pub(crate) fn type_in(
        &mut self,
        page: &str,
        node: Option<usize>,
        line: &str,
        more: &str,
        says: &[&str],
    ) -> Option<String> {
        let line = self.here(line);
        let file = self.folder.path().join(format!("said-{}", self.background.len()));
        let said = || fs::read_to_string(&file).unwrap_or_default();
        let missing = |said: &str| says.iter().find(|word| !said.contains(**word)).copied();
        let (begun, goes_on) = (Instant::now(), line.ends_with('&'));
        let line = match line.strip_suffix('&') {
            Some(line) => format!("exec {line}"),
            None if more.is_empty() => line,
            None => format!("{line} {more}"),
        };
        let output = fs::File::create(&file).unwrap();
        let mut shell = self.shell(page, node, &line);
        let mut child = shell.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let status = if goes_on {
            while missing(&said()).is_some() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.background.push(child);
            None
        } else {
            Some(child.wait().unwrap())
        };
        if begun.elapsed() > Duration::from_secs(1) {
            println!("{:.1} s: {line}", begun.elapsed().as_secs_f64());
        }
        let complaint = match (status.filter(|status| !status.success()), missing(&said())) {
            (Some(status), _) => status.to_string(),
            (None, Some(word)) => format!("it does not say '{word}'"),
            (None, None) => return None,
        };
        Some(format!("{page}: {line}: {complaint}: {}", said()))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for child in &mut self.background {
            // It may have ended; both are no harm then.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Ok(own) = Lab::open(&self.own) {
            drop(own.guarded());
        }
    }
}
