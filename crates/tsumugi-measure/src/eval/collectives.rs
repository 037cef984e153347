//! `tsumugi eval collectives`: what an unmodified MPI program's collectives gain by `tsumugi-mpiexec --collectives`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tsumugi::ReceiveChoice;
use tsumugi_lab::child::Running;
use tsumugi_lab::mpi::{Job, JobError, Mpi};
use tsumugi_lab::{LabGuard, Spec, Wire};
use tsumugi_mpi::settings::Transport;

use super::mpi::programs::{BuildError, Programs};
use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::output::{self, Shown};
use crate::own_lab::{self, OwnLabError};
use crate::progress::Progress;
use crate::ratio::{self, Better};
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::rounded;
use crate::seconds::seconds;
use crate::side;
use crate::statistics::OverRounds;

const HELP: &str = "\
As root this makes a lab of nodes (network namespaces) around a switch box (`tsumugi switch`), and removes it again. An MPI program \
that knows nothing of Tsumugi, bench/collectives, times MPI_Barrier and MPI_Allreduce on one rank of each node, in each round in turn:

  MPI            the MPI's own algorithms, its messages over Tsumugi
  by messages    --collectives without a box: Tsumugi's algorithms, by messages among the nodes
  by the box     --collectives: the box counts

A ratio is the median of the rounds' ratios. Where there are more ranks than CPUs an MPI's ranks take turns and look in vain most of \
the time, and Tsumugi's sleep: part of the gain is that. On a cluster, with a CPU for each rank, only the network's part is left.

Examples:
  sudo tsumugi eval collectives
  sudo tsumugi eval collectives --mpi openmpi --nodes 4 --rounds 9
  sudo tsumugi eval collectives --json | jq '.figures[] | {figure, way, time_us, gain}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// The operations, with what is measured of each.
const FIGURES: [&str; 2] = ["barrier", "allreduce"];
/// Bytes of the reduction.
const REDUCTION_BYTES: u32 = 8;
/// What a job takes besides what it measures, seconds: ranks start, connect and end.
const JOB_S: f64 = 1.5;
/// How much longer than what it measures a job may take.
const LONGER_MAX: Duration = Duration::from_secs(120);

/// Options of this command.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Whose MPI.
    #[arg(long, default_value = "mpich")]
    mpi: Mpi,
    /// How many nodes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: u32,
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    shown: Shown,
}

/// Who does the collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
enum Way {
    #[strum(serialize = "MPI")]
    Mpi,
    #[strum(serialize = "by messages")]
    Messages,
    #[strum(serialize = "by the box")]
    Box,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    figure: &'static str,
    way: String,
    time_us: f64,
    /// (largest − smallest) / median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    /// The MPI's time divided by this one, in the same round: the median.
    gain: f64,
    /// Which gains are better.
    better: Better,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain_spread: Option<f64>,
    /// This time divided by that of the barrier in the same round: the median.
    beside_barrier: f64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    mpi: &'static str,
    nodes: u32,
    rounds: u32,
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

/// Why there are no figures.
#[derive(Debug, Error)]
enum EvalError {
    #[error(transparent)]
    Lab(#[from] OwnLabError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("the job has told no time of {0}")]
    NoFigure(&'static str),
}

pub(super) fn run(arguments: &Arguments) -> crate::CommandResult {
    let (figures, measured) = match measure(arguments) {
        Ok(found) => found,
        Err(EvalError::Lab(error)) => {
            return own_lab::finish::<()>(Err(error), arguments.shown, |()| String::new());
        }
        Err(error) => return Err(error.into()),
    };
    let Arguments { mpi, nodes, rounds, .. } = *arguments;
    let machine = Machine { wire: "lab (xdp-switch)".to_owned(), mtu_bytes: Some(1500), ..Machine::here() };
    let report = Output { mpi: mpi.into(), nodes, rounds, figures, measured, machine };
    if arguments.shown.json {
        output::line(serde_json::to_string(&report)?)?;
    } else {
        let header = report.measured.header();
        output::line(format!("{header}\n{}\n{}", table(&report), report.machine.line()))?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

fn measure(arguments: &Arguments) -> Result<(Vec<Figure>, Conditions), EvalError> {
    use strum::VariantArray as _;
    own_lab::require_root("collectives")?;
    let programs = Programs::build(arguments.mpi)?;
    let spec = Spec { nodes: arguments.nodes, wire: Some(Wire::XdpSwitch), ..Spec::unique("evalcoll") };
    let lab = own_lab::make(&spec)?;
    let ways = Way::VARIANTS;
    let mut measured = Conditions::rounds(arguments.rounds, arguments.time);
    measured.add(&side::of_lab(&lab, Some(ReceiveChoice::Auto)).map_err(OwnLabError::from)?);
    let steps = u64::from(arguments.rounds) * ways.len() as u64;
    let what = format!("{} figures × {} ways × {}", FIGURES.len(), ways.len(), measured.amount());
    let expected_s = steps as f64 * (JOB_S + arguments.time * FIGURES.len() as f64);
    let progress = Progress::begin(arguments.shown, expected_s, &what, steps);
    // By figure and way, the rounds' times.
    let mut times = vec![vec![Vec::new(); ways.len()]; FIGURES.len()];
    for round in 0..arguments.rounds as usize {
        for at in 0..ways.len() {
            // Each is first as often as the others.
            let way = ways[(at + round) % ways.len()];
            progress.step(way.to_string());
            let measured = time(arguments, &lab, &programs, way)?;
            times.iter_mut().zip(measured).for_each(|(times, time)| times[way as usize].push(time));
        }
    }
    Ok((figures(&times), measured))
}

/// Has a job measure both, µs.
fn time(
    arguments: &Arguments,
    lab: &LabGuard,
    programs: &Programs,
    way: Way,
) -> Result<[f64; FIGURES.len()], EvalError> {
    #[derive(Deserialize)]
    struct Line {
        figure: String,
        value: f64,
    }
    let words =
        format!("--only {} --size {REDUCTION_BYTES} --time {} --json", FIGURES.join(","), arguments.time);
    let mut program: Vec<OsString> = vec![programs.path("collectives").into()];
    program.extend(words.split(' ').map(OsString::from));
    let no_box: &[(&str, &str)] = &[("TSUMUGI_COLLECTIVES_BOX", "off")];
    let job = Job {
        mpi: arguments.mpi,
        programs: &programs.mpi,
        over: Transport::Tsumugi,
        collectives: way != Way::Mpi,
        ranks: arguments.nodes,
        settings: if way == Way::Messages { no_box } else { &[] },
        further: &[],
        program: &program,
    };
    let shown = format!("mpiexec -n {} collectives, {way}", arguments.nodes);
    let running = Running::start(job.command(lab)?, shown).map_err(OwnLabError::from)?;
    let limit = LONGER_MAX + Duration::from_secs_f64(20.0 * arguments.time);
    let output = running.output(limit).map_err(OwnLabError::from)?;
    let text = String::from_utf8_lossy(&output);
    let lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut measured = [0.0; FIGURES.len()];
    for (name, time) in FIGURES.into_iter().zip(&mut measured) {
        let line = lines.iter().find(|line| line.figure == name).ok_or(EvalError::NoFigure(name))?;
        *time = line.value;
    }
    Ok(measured)
}

/// What the rounds' times, by figure and way, come to.
fn figures(times: &[Vec<Vec<f64>>]) -> Vec<Figure> {
    use strum::VariantArray as _;
    let ratios = |one: &[f64], other: &[f64]| OverRounds::of(one.iter().zip(other).map(|(a, b)| a / b));
    let of = |(figure, of_ways): (&'static str, &Vec<Vec<f64>>), way: Way| {
        let own = &of_ways[way as usize];
        let time = OverRounds::of(own.iter().copied())?;
        let gain = ratios(&of_ways[Way::Mpi as usize], own)?;
        let beside = ratios(own, &times[0][way as usize])?;
        Some(Figure {
            figure,
            way: way.to_string(),
            time_us: rounded(time.median),
            spread: time.spread.map(rounded),
            gain: rounded(gain.median),
            better: Better::Higher,
            gain_spread: gain.spread.map(rounded),
            beside_barrier: rounded(beside.median),
        })
    };
    let all = FIGURES.into_iter().zip(times);
    all.flat_map(|figure| Way::VARIANTS.iter().filter_map(move |way| of(figure, *way))).collect()
}

fn table(report: &Output) -> String {
    let (gain, beside) = (Better::Higher.heading("gain"), Better::Lower.heading("to barrier"));
    let mut columns = Columns::new(&["operation", "who", "time", "±", &gain, "±", &beside]);
    for figure in &report.figures {
        columns.row(vec![
            figure.figure.to_owned(),
            figure.way.clone(),
            units::time(figure.time_us * 1e3),
            figure.spread.map_or_else(String::new, units::percent),
            ratio::show(figure.gain),
            figure.gain_spread.map_or_else(String::new, units::percent),
            ratio::show(figure.beside_barrier),
        ]);
    }
    let Output { mpi, nodes, rounds, .. } = report;
    format!(
        "MPI_Barrier, and MPI_Allreduce of {REDUCTION_BYTES} B, of {mpi} on {nodes} nodes ({rounds} rounds)\n{columns}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_of_the_same_round() {
        let barrier = vec![vec![40.0, 20.0, 90.0], vec![20.0, 10.0, 30.0], vec![10.0, 10.0, 10.0]];
        let allreduce = vec![vec![40.0; 3], vec![40.0; 3], vec![12.0, 11.0, 10.0]];
        let figures = figures(&[barrier, allreduce]);
        let [.., by_box] = &figures[..3] else { panic!("{figures:?}") };
        assert_eq!((by_box.gain, by_box.beside_barrier), (4.0, 1.0));
        assert_eq!(figures[1].gain, 2.0);
        let [.., last] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!((last.way.as_str(), last.beside_barrier), ("by the box", 1.1));
    }
}
