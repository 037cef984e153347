//! `tsumugi lab mpiexec`: an MPI job across the nodes of a lab.

use super::complain;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::process::{Child, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tsumugi_lab::interrupt::{interrupted, watch_interrupts};
use tsumugi_lab::mpi::{self, Job, JobError, Mpi};
use tsumugi_lab::{Lab, Loss, NICS_MAX, NODES_MAX, Rate, Spec};
use tsumugi_measure::sizes;
use tsumugi_mpi::settings::Transport;

pub(super) const HELP: &str = "\
Each node is a host of its own to the MPI, so what ranks of different nodes say goes over the lab's wire. Ranks of one node \
use the MPI's shared memory.

The MPI is taken from PyPI and put into a virtual environment, once; PROGRAM must be built with its mpicc, whose folder \
is printed by --where, or be its python.

  tsumugi lab mpiexec -- ./hello
  tsumugi lab mpiexec --mpi openmpi -n 8 --nodes 4 -- python3 program.py
  tsumugi lab mpiexec --over tcp -- ./hello            to compare with
  FI_TSUMUGI_FAULTS=loss=1% tsumugi lab mpiexec -- ./hello";

/// Options of this command.
#[derive(Args)]
pub(super) struct Mpiexec {
    /// Whose MPI.
    #[arg(long, default_value = "mpich")]
    mpi: Mpi,
    /// What carries messages between nodes.
    #[arg(long, default_value = "tsumugi")]
    over: Transport,
    /// Have collectives done by Tsumugi itself, as `tsumugi-mpiexec --collectives`.
    #[arg(long)]
    collectives: bool,
    /// How many nodes (1 to 64).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: u32,
    /// How many ranks, dealt out to the nodes in turn; one for each node if left out.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// How many NICs per node (1 to 8).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(NICS_MAX)))]
    nics: u32,
    /// MTU of the NICs, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = sizes::mtu)]
    mtu: u32,
    /// Rate of every link in bits per second, for example 1gbit or 100M.
    #[arg(long, value_name = "BITS")]
    rate: Option<Rate>,
    /// Share of the packets that every link loses, for example 0.1%.
    #[arg(long)]
    loss: Option<Loss>,
    /// Use this lab, which is left as it is, instead of one that is made for the job.
    #[arg(long, conflicts_with_all = ["nodes", "nics", "mtu", "rate", "loss"])]
    name: Option<String>,
    /// Attach the XDP program to every node's NICs, for the XDP receive path.
    #[arg(long)]
    xdp: bool,
    /// Give the MPI's own mpiexec this argument, too; may be repeated.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pass: Vec<OsString>,
    /// Print the folder with the MPI's programs, installing it if need be, and run nothing.
    #[arg(long = "where")]
    only_where: bool,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "only_where")]
    command: Vec<OsString>,
}

/// How long a job that was asked to end has for it.
const END_MAX: Duration = Duration::from_secs(10);

pub(super) fn run(options: &Mpiexec) -> ExitCode {
    match attempt(options) {
        Ok(code) => code,
        Err(JobError::Lab(error)) => complain(&error),
        Err(error) => {
            eprintln!("tsumugi lab mpiexec: {error}");
            ExitCode::FAILURE
        }
    }
}

fn attempt(options: &Mpiexec) -> Result<ExitCode, JobError> {
    let programs = mpi::installed(options.mpi, |doing| eprintln!("tsumugi: {doing}"))?;
    if options.only_where {
        println!("{}", programs.display());
        return Ok(ExitCode::SUCCESS);
    }
    let _ = watch_interrupts();
    let (kept, made);
    let lab: &Lab = match &options.name {
        Some(name) => {
            kept = Lab::open(name)?;
            &kept
        }
        None => {
            let Mpiexec { nodes, nics, mtu, rate, loss, .. } = *options;
            made =
                Lab::up_watched(&Spec { nodes, nics, mtu, rate, loss, ..Spec::unique("mpi") }, &mut |_| {
                    !interrupted()
                })?
                .guarded();
            &made
        }
    };
    let ranks = options.ranks.unwrap_or(lab.spec().nodes);
    if options.xdp {
        mpi::attach(lab, ranks.div_ceil(lab.spec().nodes))?;
    }
    let Mpiexec { mpi, over, pass, command, .. } = options;
    let (mpi, over, collectives) = (*mpi, *over, options.collectives);
    let job = Job {
        mpi,
        programs: &programs,
        over,
        collectives,
        ranks,
        settings: &[],
        further: pass,
        program: command,
    };
    let path = programs.join("mpiexec");
    let child =
        job.command(lab)?.spawn().map_err(|cause| JobError::System { what: "running", path, cause })?;
    Ok(wait(child))
}

/// Waits for a job. Whoever interrupts this ends the job: the terminal has told it, too, but who sends a signal tells only us.
fn wait(mut job: Child) -> ExitCode {
    let mut told: Option<Instant> = None;
    loop {
        match job.try_wait() {
            Ok(Some(status)) => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return code.map_or(ExitCode::FAILURE, ExitCode::from);
            }
            Ok(None) => sleep(Duration::from_millis(10)),
            Err(_) => return ExitCode::FAILURE,
        }
        match told {
            None if interrupted() => {
                told = Some(Instant::now());
                let _ = kill_process(Pid::from_child(&job), Signal::TERM);
            }
            Some(when) if when.elapsed() > END_MAX => drop(job.kill()),
            _ => {}
        }
    }
}
