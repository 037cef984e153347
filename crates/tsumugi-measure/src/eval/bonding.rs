//! `tsumugi eval bonding`: P2's evaluation of several NICs used as one, for every policy.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use thiserror::Error;

use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED, Shown};
use crate::progress::{Progress, count};
use crate::report::file::ReportFile;
use crate::seconds;
use case::Case;
use paper::Figure;
use simulated::SimulatedError;
use testbed::Testbed;
use tsumugi_lab::child::ChildError;

mod case;
mod contender;
mod flow;
mod kernel;
mod page;
mod paper;
mod results;
mod simulated;
pub(super) mod sink;
pub(super) mod source;
mod summary;
mod table;
mod tcp;
mod testbed;

pub use contender::{Bond, Contender, UnknownContender};
pub use results::CaseRow;

#[cfg(test)]
pub(crate) use page::samples::page as sample_page;

/// How the labs are called: `evalbond-PID-NUMBER`.
const LAB_STEM: &str = "evalbond";
/// What a policy in a case takes besides, seconds: processes start and find their paths.
const STEP_S: f64 = 0.7;
/// What a second of a Gb/s takes to simulate, seconds.
const SIMULATED_S: f64 = 0.5;
const HELP: &str = "\
P2 (Yoshida et al., Evaluation of existing methods that control several NICs together, 2014) measured Linux bonding: \
K processes that send 1 kB messages to K receivers, back to back, over N NICs. A case is written KxN@RATE. Here K flows of one endpoint stand for the K processes, because one endpoint's policy spreads them \
as one bond does; the receivers are K processes.

As root this makes, for each case, a lab of two nodes with N NICs each (network namespaces; the rates are enforced on the \
ports of the switch between them) and removes it again. The case `uneven` is that of P2's figure 10: four senders on two \
NICs of 100 Mb/s, of which one begins ten seconds before the others; balance-tlb leaves it alone on one NIC. With the \
defaults the whole takes about six minutes. --simulated needs neither root nor a lab: the same in virtual time, one to two \
minutes; there is no CPU use in it.

`kernel-rr` and `kernel-tlb` are TCP over a bond of the kernel, as in P2. They are left out where the kernel has no \
bonding driver.

Examples:
  sudo tsumugi eval bonding --html bonding.html         everything, with P2's figures 8 to 10 redrawn
  sudo tsumugi eval bonding --case 2x4@100M,uneven      P2's two findings about balance-tlb; two and a half minutes
  sudo tsumugi eval bonding --policy adaptive,tlb --case 4x2@1G --time 10
  tsumugi eval bonding --simulated --json | jq '.rows[] | {case, policy, gbit_s}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Policies, separated by commas: adaptive, round-robin, tlb, active-backup, hash, broadcast, kernel-rr, kernel-tlb
    /// [default: all].
    #[arg(long, value_delimiter = ',', value_name = "POLICY,…")]
    pub(crate) policy: Vec<Contender>,
    /// Cases, separated by commas: SENDERSxNICS@RATE, as in 2x4@100M, or uneven [default: P2's six, and uneven].
    #[arg(long, value_delimiter = ',', value_name = "CASE,…")]
    pub(crate) case: Vec<Case>,
    /// Seconds for each policy in a case; the rest of the case `uneven` takes three times as long.
    #[arg(long, default_value = "4", value_name = "SECONDS", value_parser = seconds::within(0.2..=600.0))]
    pub(crate) time: f64,
    /// In simulated time.
    #[arg(long)]
    pub(crate) simulated: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Also write a report with P2's figures redrawn to this file: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Why there is no evaluation.
#[derive(Debug, Error)]
pub(crate) enum EvalError {
    #[error("interrupted")]
    Interrupted,
    #[error(
        "only root can make the labs that this is measured in: `sudo tsumugi eval bonding`, or --simulated, which needs none"
    )]
    NotRoot,
    #[error("nothing is left to evaluate")]
    Nothing,
    #[error("`{command}` failed: {said}")]
    Tool { command: String, said: String },
    #[error("cannot make a lab to measure in: {0}; --simulated needs none")]
    Lab(#[from] tsumugi_lab::LabError),
    #[error(transparent)]
    Child(ChildError),
    #[error(transparent)]
    Simulated(SimulatedError),
}

impl From<SimulatedError> for EvalError {
    fn from(error: SimulatedError) -> EvalError {
        match error {
            SimulatedError::Interrupted => EvalError::Interrupted,
            error => EvalError::Simulated(error),
        }
    }
}

impl From<ChildError> for EvalError {
    fn from(error: ChildError) -> EvalError {
        match error {
            ChildError::Interrupted => EvalError::Interrupted,
            error => EvalError::Child(error),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Evaluation {
    /// Every case with every policy, in the row format of all measurements.
    pub(crate) rows: Vec<CaseRow>,
    /// P2's figures 8 and 9.
    pub(crate) paper: &'static [Figure],
    /// What was measured.
    pub(crate) measured: Conditions,
    pub(crate) machine: Machine,
    #[serde(skip)]
    cases: Vec<Case>,
}

impl Evaluation {
    /// Puts it together.
    pub(crate) fn new(
        cases: Vec<Case>,
        rows: Vec<CaseRow>,
        measured: Conditions,
        machine: Machine,
    ) -> Evaluation {
        Evaluation { rows, paper: &paper::FIGURES, measured, machine, cases }
    }

    /// The cases, in order.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter()
    }

    /// What was measured in a case.
    pub(crate) fn rows_of(&self, case: &Case) -> impl Iterator<Item = &CaseRow> {
        let name = case.to_string();
        self.rows.iter().filter(move |row| row.case == name)
    }
}

pub(super) fn run(arguments: &Arguments) -> crate::CommandResult {
    let report = match ReportFile::probe(arguments.html.as_deref()) {
        Ok(report) => report,
        Err(error) => return Ok(error.wrong_usage()),
    };
    let evaluation = match evaluate(arguments) {
        Ok(evaluation) => evaluation,
        Err(EvalError::Interrupted) => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error) => return Err(error.into()),
    };
    if let Some(report) = report {
        report.write(&page::page(&evaluation))?;
    }
    if arguments.shown.json {
        output::line(serde_json::to_string(&evaluation)?)?;
    } else {
        output::text(table::text(&evaluation))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs every case with every contender; everything that was started or made is gone afterwards, however this ends.
fn evaluate(arguments: &Arguments) -> Result<Evaluation, EvalError> {
    let cases = if arguments.case.is_empty() { Case::ALL.to_vec() } else { arguments.case.clone() };
    let machine = Machine::here();
    let contenders = contenders(arguments)?;
    let steps = cases.len() * contenders.len();
    let what = format!(
        "{} × {}, {} s and longer each",
        count(cases.len(), "case"),
        count(contenders.len(), "policy").replace("policys", "policies"),
        arguments.time
    );
    let progress = Progress::begin(
        arguments.shown,
        expected_s(arguments, &cases, contenders.len()),
        &what,
        steps as u64,
    );
    let measured = RefCell::new(Conditions::rounds(1, arguments.time));
    let (rows, wire) = if arguments.simulated {
        (simulate(&cases, &contenders, arguments.time, &progress)?, "simulated time".to_owned())
    } else {
        measure(&cases, &contenders, arguments.time, &progress, &measured)?
    };
    Ok(Evaluation::new(cases, rows, measured.into_inner(), Machine { wire, ..machine }))
}

/// How long it takes, about, seconds.
fn expected_s(arguments: &Arguments, cases: &[Case], contenders: usize) -> f64 {
    let of = |case: &Case| {
        let (alone_s, time_s) = case.times_s(arguments.time);
        match arguments.simulated {
            // Packets are what takes time to simulate.
            true => (alone_s + time_s) * case.gbit_s() * SIMULATED_S,
            false => alone_s + time_s + STEP_S,
        }
    };
    contenders as f64 * cases.iter().map(of).sum::<f64>()
}

/// What is evaluated: what was asked for, without what is impossible here, of which it is said why.
fn contenders(arguments: &Arguments) -> Result<Vec<Contender>, EvalError> {
    if !arguments.simulated && !rustix::process::geteuid().is_root() {
        return Err(EvalError::NotRoot);
    }
    let mut contenders =
        if arguments.policy.is_empty() { Contender::all() } else { arguments.policy.clone() };
    let is_kernel = |contender: &Contender| matches!(contender, Contender::Kernel(_));
    if contenders.iter().any(is_kernel) {
        let missing = if arguments.simulated {
            Some("the kernel's bonding cannot be simulated".to_owned())
        } else {
            kernel::missing()?
        };
        if let Some(why) = missing {
            eprintln!("left out: kernel-rr and kernel-tlb: {why}");
            contenders.retain(|contender| !is_kernel(contender));
        }
    }
    if contenders.is_empty() { Err(EvalError::Nothing) } else { Ok(contenders) }
}

/// In virtual time.
fn simulate(
    cases: &[Case],
    contenders: &[Contender],
    time_s: f64,
    progress: &Progress,
) -> Result<Vec<CaseRow>, EvalError> {
    let mut rows = Vec::new();
    for &case in cases {
        for contender in contenders {
            progress.step(format!("{case}, {contender}"));
            if let Contender::Ours(policy) = contender {
                rows.push(simulated::run(case, *policy, time_s)?.row());
            }
        }
    }
    Ok(rows)
}

/// In labs, one for each case.
fn measure(
    cases: &[Case],
    contenders: &[Contender],
    time_s: f64,
    progress: &Progress,
    measured: &RefCell<Conditions>,
) -> Result<(Vec<CaseRow>, String), EvalError> {
    let (mut rows, mut wire) = (Vec::new(), String::new());
    for &case in cases {
        let testbed = Testbed::make(case, measured)?;
        wire = testbed.wire();
        for contender in contenders {
            progress.step(format!("{case}, {contender}"));
            let run = match contender {
                Contender::Ours(policy) => testbed.ours(*policy, time_s)?,
                Contender::Kernel(bond) => Testbed::make(case, measured)?.kernel(*bond, time_s)?,
            };
            rows.push(run.row());
        }
    }
    Ok((rows, wire))
}
