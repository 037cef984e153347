//! `tsumugi eval mpi`: what two ranks get of an MPI over Tsumugi, beside the same MPI over TCP.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tsumugi_lab::{Lab, LabError, LabGuard, Spec};

use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED};
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::interrupt::interrupted;
use tsumugi_lab::mpi::{self, Job, JobError, Mpi};
use tsumugi_mpi::settings::Transport;

mod figures;
mod table;

use figures::{Figure, Measured};
pub use figures::{FigureRow, Kind};

const HELP: &str = "\
As root this makes two labs of two nodes (network namespaces joined by veth pairs), one of them with the XDP program, \
and removes them again. In each round the same MPI program runs over libfabric's tcp provider, over Tsumugi with \
sockets, which needs no root, and over Tsumugi with the XDP receive path. There is one rank in each node, on a CPU of its \
own. Bare UDP is what two sockets give the same processes, for figures that are one datagram each way: nothing that is \
built on sockets can be quicker.

  one way   half a round trip of MPI_Send and MPI_Recv
  stream    bursts of 64 MPI_Isend; each is answered before the next
  barrier   MPI_Barrier

Figures are medians over the rounds; `×` is the median of what Tsumugi's figure is, divided by TCP's in the same round.

Examples:
  sudo tsumugi eval mpi --quick
  sudo tsumugi eval mpi --mpi openmpi --rounds 11
  sudo tsumugi eval mpi --json | jq '.rows[] | {figure, size_bytes, over, value, over_tcp}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// The program that both ranks run.
const BENCHMARK: &str = include_str!("mpi/benchmark.c");
/// How the labs are called: `evalmpi-PID-NUMBER`.
const LAB_STEM: &str = "evalmpi";
/// How much longer than what it measures a job may take.
const LONGER_MAX: Duration = Duration::from_secs(60);

/// Options of this command.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Whose MPI.
    #[arg(long, default_value = "mpich")]
    mpi: Mpi,
    /// Rounds [default: 7; with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds for each figure of a round [default: 0.3; with --quick 0.1].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<f64>,
    /// Less than a minute; figures that are less sure.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout, and nothing else there.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds from 0.01 to 60")),
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// libfabric's tcp provider.
    Tcp,
    /// Tsumugi, whose packets arrive through a socket.
    TsumugiSocket,
    /// Tsumugi, whose packets the XDP program receives.
    TsumugiXdp,
    /// Two UDP sockets, and no MPI: the floor of what is built on sockets.
    BareUdp,
}

impl Carrier {
    /// What the others are compared with comes first.
    pub(super) const ALL: [Carrier; 4] =
        [Carrier::Tcp, Carrier::TsumugiSocket, Carrier::TsumugiXdp, Carrier::BareUdp];

    pub(super) fn text(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::TsumugiSocket => "tsumugi, sockets",
            Carrier::TsumugiXdp => "tsumugi, XDP",
            Carrier::BareUdp => "bare UDP",
        }
    }
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
    #[error("building the benchmark with {}: {why}; it takes a C compiler (`apt install gcc libc6-dev`)", compiler.display())]
    Build { compiler: PathBuf, why: String },
    #[error("the benchmark over {over} printed what is not a figure: `{line}`")]
    Unreadable { over: &'static str, line: String },
}

impl From<JobError> for EvalError {
    fn from(error: JobError) -> EvalError {
        match error {
            JobError::Child(ChildError::Interrupted) => EvalError::Interrupted,
            error => EvalError::Job(error),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Evaluation {
    mpi: &'static str,
    rows: Vec<FigureRow>,
    machine: Machine,
}

pub(super) fn run(arguments: &Arguments) -> crate::CommandResult {
    let evaluation = match evaluate(arguments) {
        Ok(evaluation) => evaluation,
        Err(EvalError::Interrupted) => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        output::line(serde_json::to_string(&evaluation)?)?;
    } else {
        output::text(table::text(&evaluation))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs every round; everything that was started or made is gone afterwards, however this ends.
fn evaluate(arguments: &Arguments) -> Result<Evaluation, EvalError> {
    if !rustix::process::geteuid().is_root() {
        return Err(EvalError::NotRoot);
    }
    let machine = Machine::here();
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 7 });
    let time_s = arguments.time.unwrap_or(if arguments.quick { 0.1 } else { 0.3 });
    let program = Program::build(arguments.mpi)?;
    let (plain, with_xdp) = (lab()?, lab()?);
    mpi::attach(&with_xdp, 1)?;
    let style = ProgressStyle::with_template("{msg:28} {wide_bar} {pos}/{len} {eta}");
    let progress = ProgressBar::new(u64::from(rounds) * Carrier::ALL.len() as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut measured = Measured::default();
    for round in 1..=rounds {
        for over in Carrier::ALL {
            progress.set_message(format!("round {round}: {}", over.text()));
            let lab = if over == Carrier::TsumugiXdp { &with_xdp } else { &plain };
            measured.add(over, measure(lab, arguments.mpi, over, &program, time_s)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let wire = format!("lab ({})", plain.wire());
    Ok(Evaluation {
        mpi: arguments.mpi.into(),
        rows: measured.rows(),
        machine: Machine { wire, mtu_bytes: Some(plain.spec().mtu), ..machine },
    })
}

fn lab() -> Result<LabGuard, EvalError> {
    match Lab::up_watched(&Spec::unique(LAB_STEM), &mut |_| !interrupted()) {
        Ok(lab) => Ok(lab.guarded()),
        Err(_) if interrupted() => Err(EvalError::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// Runs the benchmark once.
fn measure(
    lab: &Lab,
    mpi: Mpi,
    over: Carrier,
    program: &Program,
    time_s: f64,
) -> Result<Vec<Figure>, EvalError> {
    let (transport, settings) = match over {
        // Without MPI the provider only says where the sockets are.
        Carrier::Tcp | Carrier::BareUdp => (Transport::Tcp, &[][..]),
        // What a user gets who is not root.
        Carrier::TsumugiSocket => (
            Transport::Tsumugi,
            &[("FI_TSUMUGI_RECEIVE_PATH", "socket"), ("FI_TSUMUGI_SEND_PATH", "udp")][..],
        ),
        Carrier::TsumugiXdp => (Transport::Tsumugi, &[("FI_TSUMUGI_RECEIVE_PATH", "xdp")][..]),
    };
    let mut arguments: Vec<OsString> = vec![program.path.clone().into(), time_s.to_string().into()];
    if over == Carrier::BareUdp {
        arguments.push("udp".into());
    }
    let job = Job {
        mpi,
        programs: &program.programs,
        over: transport,
        ranks: 2,
        settings,
        further: &[],
        program: &arguments,
    };
    let shown = format!("mpiexec -n 2 benchmark, over {}", over.text());
    let running = Running::start(job.command(lab)?, shown).map_err(JobError::from)?;
    let limit = LONGER_MAX + Duration::from_secs_f64(20.0 * time_s);
    let output = running.output(limit).map_err(JobError::from)?;
    let text = String::from_utf8_lossy(&output);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let figure = |line: &str| {
        let line = line.to_owned();
        serde_json::from_str(&line).map_err(|_| EvalError::Unreadable { over: over.text(), line })
    };
    lines.map(figure).collect()
}

/// The benchmark, built; removed when dropped.
struct Program {
    path: PathBuf,
    /// Of the MPI.
    programs: PathBuf,
}

impl Program {
    fn build(mpi: Mpi) -> Result<Program, EvalError> {
        let programs = mpi::installed(mpi, |doing| eprintln!("tsumugi: {doing}"))?;
        let compiler = programs.join("mpicc");
        let path = programs.with_file_name(format!("benchmark-{}", std::process::id()));
        let source = path.with_extension("c");
        let made = compile(&compiler, &source, &path);
        let _ = std::fs::remove_file(&source);
        made.map(|()| Program { path, programs }).map_err(|why| EvalError::Build { compiler, why })
    }
}

fn compile(compiler: &Path, source: &Path, program: &Path) -> Result<(), String> {
    std::fs::write(source, BENCHMARK).map_err(|error| error.to_string())?;
    let output = Command::new(compiler).args(["-O2", "-o"]).arg(program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(said.lines().next().unwrap_or_default().to_owned()) }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
