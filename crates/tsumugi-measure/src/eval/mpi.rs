//! `tsumugi eval mpi`: what programs get of an MPI over Tsumugi, beside the same MPI over TCP.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use thiserror::Error;
use tsumugi::ReceiveChoice;
use tsumugi_lab::{Lab, LabError, LabGuard, Loss, Spec};

use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED, Shown};
use crate::progress::{Progress, count};
use crate::report::file::ReportFile;
use crate::seconds;
use crate::side;
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::interrupt::interrupted;
use tsumugi_lab::mpi::{self, Job, JobError, Mpi};

mod carrier;
mod figures;
mod floor;
mod page;
mod paper;
mod plan;
pub(super) mod programs;
mod short;
mod show;
mod summary;
mod table;

pub use carrier::Carrier;
use figures::{Figure, Measured};
pub use figures::{FigureRow, Key};
use plan::{Task, Wanted};
use programs::{BuildError, Programs};

#[cfg(test)]
pub(crate) use page::samples::page as sample_page;

const HELP: &str = "\
As root this makes labs of nodes (network namespaces), half of them with the XDP program on every NIC, and removes them again. In each \
round the same MPI programs run over libfabric's tcp provider, over UCX on TCP (MPICH), over Tsumugi with sockets, which needs no \
root, and over Tsumugi with the XDP receive path. There is one rank in each node; where there are CPUs enough, each has one of its own. The \
programs are those of bench/, built by the MPI's own compiler.

  latency      half a round trip
  bandwidth    windows of MPI_Isend, one way and both ways
  collectives  each operation by itself, on each number of nodes
  overlap      how much of MPI_Isend and MPI_Irecv passes while the program computes: 0 nothing, 1 all
  is           the integer sort of the NAS Parallel Benchmarks, and its time in communication, beside figure 6 of P1 \
               (Sumimoto et al., PM/Ethernet, 2000)

Latency, bandwidth both ways and the sort stand beside what two bare UDP sockets give the same processes, cut up and joined by the kernel: the \
floor of what is built on sockets. `bare UDP beside XDP` is the same on NICs that have the XDP program, where a veth pair must cut up what is \
sent before it crosses.

Figures are medians over the rounds; `×` is the median of the figure divided by tcp's in the same round. Busy polling has no row: the NICs \
of a lab are veth pairs, which have no interrupt to do without.

Examples:
  sudo tsumugi eval mpi --short
  sudo tsumugi eval mpi --quick
  sudo tsumugi eval mpi --class C --nodes 2 --html mpi.html
  sudo tsumugi eval mpi --mpi openmpi --loss 0.1%
  sudo tsumugi eval mpi --json | jq '.rows[] | {figure, size_bytes, ranks, over, value, unit, over_tcp}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// How the labs are called: `evalmpi-PID-NUMBER`.
const LAB_STEM: &str = "evalmpi";
/// What a job takes besides what it measures, seconds: ranks start, connect and end.
const JOB_S: f64 = 1.0;
/// How much longer than what it measures a job may take.
const LONGER_MAX: Duration = Duration::from_secs(180);
/// How many figures a job measures at most.
const FIGURES_MAX: f64 = 200.0;

/// Options of this command.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Whose MPI.
    #[arg(long, default_value = "mpich")]
    mpi: Mpi,
    /// How many nodes collectives and the sort run on, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4], value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: Vec<u32>,
    /// Class of the sort: S, W, A, B or C [default: A; with --quick W].
    #[arg(long, value_parser = ["S", "W", "A", "B", "C"], ignore_case = true)]
    class: Option<String>,
    /// Share of the packets that every link loses, for example 0.1%. The NICs do without offloads then: what the kernel has not cut up
    /// yet would be lost as one.
    #[arg(long)]
    loss: Option<Loss>,
    /// Rounds [default: 5; with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds for each figure of a round [default: 0.2; with --quick 0.03].
    #[arg(long, value_name = "SECONDS", value_parser = seconds::within(0.01..=60.0))]
    time: Option<f64>,
    /// Two or three minutes; fewer sizes, and figures that are less sure.
    #[arg(long)]
    quick: bool,
    /// Half a minute; one short table: what there is today, and what Tsumugi gives.
    #[arg(long, conflicts_with_all = ["nodes", "html"])]
    short: bool,
    #[command(flatten)]
    shown: Shown,
    /// Also write a report to this file: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Why there is no evaluation.
#[derive(Debug, Error)]
enum EvalError {
    #[error("interrupted")]
    Interrupted,
    #[error("only root can make the labs that this is measured in: `sudo tsumugi eval mpi`")]
    NotRoot,
    #[error("cannot make a lab to measure in: {0}")]
    Lab(#[from] LabError),
    #[error(transparent)]
    Job(JobError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl From<JobError> for EvalError {
    fn from(error: JobError) -> EvalError {
        match error {
            JobError::Child(ChildError::Interrupted) => EvalError::Interrupted,
            error => EvalError::Job(error),
        }
    }
}

/// A job that failed.
#[derive(Serialize)]
struct Failure {
    round: u32,
    job: String,
    over: Carrier,
    why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}: {} over {}: {}", self.round, self.job, self.over.text(), self.why)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Evaluation {
    mpi: &'static str,
    /// Of the sort.
    class: char,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<String>,
    rows: Vec<FigureRow>,
    /// P1's figure 6.
    paper: &'static [paper::SpeedUp],
    /// Their figures are missing.
    failures: Vec<Failure>,
    /// What was measured.
    measured: Conditions,
    machine: Machine,
    #[serde(skip)]
    carriers: Vec<Carrier>,
}

pub(super) fn run(arguments: &Arguments) -> crate::CommandResult {
    // A file that cannot be written is found out before minutes of measuring.
    let file = match ReportFile::probe(arguments.html.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(error.wrong_usage()),
    };
    let evaluation = match evaluate(arguments) {
        Ok(evaluation) => evaluation,
        Err(EvalError::Interrupted) => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error) => return Err(error.into()),
    };
    if let Some(file) = &file {
        file.write(&page::page(&evaluation))?;
    }
    if arguments.shown.json {
        output::line(serde_json::to_string(&evaluation)?)?;
    } else {
        let text = if arguments.short { short::text(&evaluation) } else { table::text(&evaluation) };
        output::text(format!("{}\n{text}", evaluation.measured.header()))?;
    }
    let is_well = !evaluation.failures.iter().any(|failure| failure.over.is_ours());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The labs of a number of nodes.
struct Labs {
    nodes: u32,
    plain: LabGuard,
    with_xdp: LabGuard,
}

/// Runs every round; everything that was started or made is gone afterwards, however this ends.
fn evaluate(arguments: &Arguments) -> Result<Evaluation, EvalError> {
    if !rustix::process::geteuid().is_root() {
        return Err(EvalError::NotRoot);
    }
    let machine = Machine::here();
    let Arguments { mpi, quick, loss, .. } = *arguments;
    let short = arguments.short;
    let rounds = arguments.rounds.unwrap_or(if quick || short { 3 } else { 5 });
    let class = arguments.class.as_deref().and_then(|class| class.to_ascii_uppercase().chars().next());
    let class = class.unwrap_or(if quick { 'W' } else { 'A' });
    let mut nodes = arguments.nodes.clone();
    nodes.sort_unstable();
    nodes.dedup();
    let seconds = arguments.time.unwrap_or(if quick { 0.03 } else { 0.2 });
    let wanted = Wanted { nodes: &nodes, class, seconds, quick };
    let mut tasks = if short { plan::short(&wanted) } else { plan::tasks(&wanted) };
    // A datagram that is lost does not come again.
    tasks.retain(|task| !task.is_floor || loss.is_none());
    let mut carriers = Carrier::of(mpi);
    carriers.retain(|over| !short || *over != Carrier::Ucx);
    let programs = Programs::build(mpi)?;
    let mut wanted: Vec<u32> = tasks.iter().map(|task| task.nodes.max(2)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let labs = wanted.into_iter().map(|nodes| labs(nodes, loss)).collect::<Result<Vec<Labs>, EvalError>>()?;
    let jobs: Vec<(&Task, Carrier)> = tasks
        .iter()
        .flat_map(|task| {
            // Without others there is nothing to carry; and bare sockets are what they are.
            let over = if task.is_floor {
                &Carrier::FLOORS[..]
            } else if task.nodes == 1 {
                &carriers[..1]
            } else {
                &carriers
            };
            over.iter().map(move |over| (task, *over)).collect::<Vec<_>>()
        })
        .collect();
    let mut conditions = Conditions::rounds(rounds, seconds);
    for Labs { plain, with_xdp, .. } in &labs {
        conditions.add(&side::of_lab(plain, Some(ReceiveChoice::Socket)).map_err(JobError::from)?);
        conditions.add(&side::of_lab(with_xdp, Some(ReceiveChoice::Xdp)).map_err(JobError::from)?);
    }
    let expected_s =
        f64::from(rounds) * jobs.iter().map(|(task, _)| JOB_S + task.seconds(seconds)).sum::<f64>();
    let what = format!("{} × {}", count(jobs.len(), "job"), count(rounds as usize, "round"));
    let steps = u64::from(rounds) * jobs.len() as u64;
    let progress = Progress::begin(arguments.shown, expected_s, &what, steps);
    let (mut measured, mut failures) = (Measured::default(), Vec::new());
    for round in 1..=rounds {
        for &(task, over) in &jobs {
            progress.step(format!("round {round}: {}, {}", task.text(), over.text()));
            let labs = labs.iter().find(|labs| labs.nodes == task.nodes.max(2));
            let Some(Labs { plain, with_xdp, .. }) = labs else { continue };
            let lab = if over.has_xdp() { with_xdp } else { plain };
            match measure(lab, mpi, over, &programs, task, seconds) {
                Ok(figures) => measured.add(round, over, figures),
                Err(EvalError::Job(JobError::Child(why))) => {
                    failures.push(Failure { round, job: task.text(), over, why: why.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
    }
    let mut wires: Vec<String> =
        labs.iter().map(|labs| format!("{} of {} nodes", labs.plain.wire(), labs.nodes)).collect();
    wires.dedup();
    let wire = format!("labs ({})", wires.join(", "));
    let mtu_bytes = labs.first().map(|labs| labs.plain.spec().mtu);
    Ok(Evaluation {
        mpi: mpi.into(),
        class,
        loss: loss.map(|loss| loss.to_string()),
        rows: measured.rows(&carriers),
        paper: &paper::FIGURE_6,
        failures,
        measured: conditions,
        machine: Machine { wire, mtu_bytes, ..machine },
        carriers,
    })
}

fn labs(nodes: u32, loss: Option<Loss>) -> Result<Labs, EvalError> {
    let make = || {
        let spec = Spec { nodes, loss, offloads: loss.is_none(), ..Spec::unique(LAB_STEM) };
        match Lab::up_watched(&spec, &mut |_| !interrupted()) {
            Ok(lab) => Ok(lab.guarded()),
            Err(_) if interrupted() => Err(EvalError::Interrupted),
            Err(error) => Err(error.into()),
        }
    };
    let (plain, with_xdp) = (make()?, make()?);
    mpi::attach(&with_xdp, 1)?;
    Ok(Labs { nodes, plain, with_xdp })
}

/// Runs a benchmark once.
fn measure(
    lab: &Lab,
    mpi: Mpi,
    over: Carrier,
    programs: &Programs,
    task: &Task,
    seconds: f64,
) -> Result<Vec<Figure>, EvalError> {
    let (transport, settings) = over.settings();
    let mut program: Vec<OsString> = vec![programs.path(task.program).into()];
    program.extend(task.arguments.iter().map(OsString::from));
    program.push("--json".into());
    let job = Job {
        collectives: false,
        mpi,
        programs: &programs.mpi,
        over: transport,
        ranks: task.nodes,
        settings,
        further: &[],
        program: &program,
    };
    let shown = format!("mpiexec -n {} {}", task.nodes, task.program);
    let running = Running::start(job.command(lab)?, shown).map_err(JobError::from)?;
    let limit = LONGER_MAX + Duration::from_secs_f64(FIGURES_MAX * seconds);
    let output = running.output(limit).map_err(JobError::from)?;
    // Launchers and libraries have something to say, too.
    Ok(String::from_utf8_lossy(&output).lines().filter_map(figures::read).flatten().collect())
}
