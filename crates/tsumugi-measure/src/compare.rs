//! `tsumugi compare`: Tsumugi beside TCP, UDP and bare frames on one wire, interleaved, in one table.
//!
//! Every figure comes from `tsumugi perf` processes, or from what `tsumugi perf costs` does, so that whatever is shown here can be
//! repeated by hand.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use thiserror::Error;
use tsumugi_rail::xdp::{self, AttachError, WriteTarget};
use tsumugi_rail::xsk::{self, Redirect};

use crate::conditions::Conditions;
use crate::costs;
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED, Shown};
use crate::peers::Transport;
use crate::report::file::ReportFile;
use crate::row::Row;
use crate::sizes::{self, Sizes};
use tsumugi_lab::child::ChildError;
use tsumugi_lab::interrupt::watch_interrupts;

mod entry;
mod models;
mod page;
mod plan;
mod results;
mod run;
mod summary;
mod table;
mod test;
mod testbed;

#[cfg(test)]
pub(crate) use page::samples::page as sample_page;

/// Which settings of the NIC's segmentation, coalescing and checksum offloads to compare on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Offloads {
    /// As the kernel gives them.
    On,
    /// Everything off: what a NIC without them would do.
    Off,
    /// One after the other.
    Both,
}

/// Options of this command.
#[derive(Args)]
#[command(after_help = "\
As root this makes two nodes of its own (network namespaces joined by a veth pair) and removes them again; \
otherwise it measures over loopback, and says so.

Each round runs every transport once, in a rotated order, each in fresh processes pinned to different CPUs. \
A ratio is the median over the rounds of (this transport / Tsumugi with the spinning wait, send path udp and receive \
path socket) within a round.

Tsumugi's other rows are named by send and receive path, as in udp+xdp. Rows with xdp, and no others, have labs of \
their own with the XDP program attached, because on a veth pair it takes TCP's segmentation offload away. With \
busy-poll processes run the NICs' polls themselves, which spares interrupts where a NIC has any: a veth has none. \
raw-xdp streams full frames and limits how many are in flight; raw-write makes round trips only. Unless --mtu is 9000 or \
--offloads on, a section of bandwidth at MTU 9000 is added.

After the table it says in a few sentences what Tsumugi gives on this machine; a report has them on top.

Where the time of a 64 B message goes, part by part, is what `tsumugi perf costs` measures; its help tells how.

Remote writes are measured beside messages of their length, and streams of tagged messages of up to 1 GiB beside those of 1 MiB.

TCP is also measured through NICs that the program is attached to: idle, and busy with round trips of Tsumugi's \
(udp+xdp, adaptive) that share the NICs and the CPUs with it.

Examples:
  tsumugi compare --quick                   a third of a minute
  sudo tsumugi compare                      the whole table; about ten minutes
  sudo tsumugi compare --html report.html   with plots of latency and bandwidth against size
  sudo tsumugi compare --json --offloads on --mtu 9000 > compare.json
  tsumugi compare --loopback --transports udp,tsumugi

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")]
pub struct Arguments {
    /// How often every transport is measured [default: 5; 2 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    /// Sizes of the curves of latency and bandwidth against size; measured with --html or when given.
    #[arg(long)]
    pub(crate) sizes: Option<Sizes>,
    /// Largest IP packet of the lab's NICs, in bytes [default: 1500].
    #[arg(long, value_name = "BYTES", value_parser = sizes::mtu)]
    pub(crate) mtu: Option<u32>,
    /// NIC offloads of the lab [default: both].
    #[arg(long, value_enum)]
    pub(crate) offloads: Option<Offloads>,
    /// Which transports to compare, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Transport::TcpBlock, Transport::TcpSpin, Transport::Udp, Transport::RawXdp,
                              Transport::RawWrite, Transport::Tsumugi])]
    pub(crate) transports: Vec<Transport>,
    /// Shorter and fewer rounds: a first impression.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure over loopback even as root.
    #[arg(long)]
    pub(crate) loopback: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Also write a report with plots to this file: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Arguments {
    /// Largest IP packet of the lab's NICs, bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(1500)
    }

    /// What has no effect over loopback, and was asked for.
    fn without_effect(&self) -> Option<&'static str> {
        self.mtu.map(|_| "--mtu").or(self.offloads.map(|_| "--offloads"))
    }
}

/// Why there is no comparison.
#[derive(Debug, Error)]
pub(crate) enum CompareError {
    #[error("interrupted")]
    Interrupted,
    #[error("nothing is left to compare: {0}")]
    Nothing(String),
    #[error("cannot make a lab to compare in: {0}; --loopback needs none")]
    Lab(#[from] tsumugi_lab::LabError),
    #[error(transparent)]
    Child(ChildError),
}

impl From<ChildError> for CompareError {
    fn from(error: ChildError) -> CompareError {
        match error {
            ChildError::Interrupted => CompareError::Interrupted,
            error => CompareError::Child(error),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Comparison {
    /// Every figure, in the row format of all measurements.
    pub(crate) rows: Vec<Row>,
    /// What was measured.
    pub(crate) measured: Conditions,
    pub(crate) machine: Machine,
    /// What they say, in sentences.
    pub(crate) summary: Vec<String>,
    /// Where the time of a short message goes, where that can be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) costs: Option<costs::Report>,
}

/// Why bare frames cannot be measured here.
fn no_bare_frames(in_lab: bool) -> Option<String> {
    if !in_lab {
        return Some("bare frames need NICs and root, and so a lab".to_owned());
    }
    for (program, is_compiled) in [("redirect", Redirect::IS_COMPILED), ("write", WriteTarget::IS_COMPILED)] {
        if !is_compiled {
            return Some(AttachError::NotCompiled(program).to_string());
        }
    }
    xsk::supported().err().map(|error| error.to_string())
}

/// What cannot be measured here, and why.
fn missing(in_lab: bool) -> test::Missing {
    let needs_lab = |what: &str| (!in_lab).then(|| format!("{what} needs NICs and root, and so a lab"));
    let not_compiled = || (!xdp::IS_COMPILED).then(|| xdp::XdpError::NotCompiled.to_string());
    test::Missing {
        raw: no_bare_frames(in_lab),
        xdp: needs_lab("it").or_else(not_compiled),
        packet: needs_lab("it"),
        memory_bytes: crate::machine::memory_bytes(),
    }
}

/// Rounds of the cost table: short ones, a few tenths of a second each.
const COST_ROUNDS: u32 = 7;
const COST_ROUNDS_QUICK: u32 = 3;

/// The cost table, where the XDP receive path can be measured. Without it the comparison is still one.
fn costs(arguments: &Arguments, in_lab: bool) -> Result<Option<costs::Report>, CompareError> {
    let is_ours = arguments.transports.contains(&Transport::Tsumugi);
    if !is_ours || missing(in_lab).xdp.is_some() {
        return Ok(None);
    }
    let options = costs::CostsOptions {
        sizes: None,
        send_paths: costs::SEND_PATHS.map(str::to_owned).into(),
        rounds: if arguments.quick { COST_ROUNDS_QUICK } else { COST_ROUNDS },
        shown: Shown { json: false, quiet: true },
    };
    match costs::report(&options) {
        Ok(report) => Ok(Some(report)),
        Err(costs::CostsError::Interrupted) => Err(CompareError::Interrupted),
        Err(error) => {
            eprintln!("left out: the cost table: {error}");
            Ok(None)
        }
    }
}

/// Runs it.
pub fn run(arguments: Arguments) -> crate::CommandResult {
    watch_interrupts()?;
    let report = match ReportFile::probe(arguments.html.as_deref()) {
        Ok(report) => report,
        Err(error) => return Ok(error.wrong_usage()),
    };
    let in_lab = !arguments.loopback && rustix::process::geteuid().is_root();
    if let Some(option) = arguments.without_effect().filter(|_| !in_lab) {
        let why = if arguments.loopback { "leave out --loopback" } else { "only root can make it" };
        eprintln!("tsumugi: {option} is of the lab's NICs and has no effect over loopback: {why}");
        return Ok(ExitCode::from(2));
    }
    let plan = plan::Plan::new(&arguments, in_lab, &missing(in_lab));
    for left_out in &plan.left_out {
        eprintln!("left out: {left_out}");
    }
    if plan.steps() == 0 {
        return Err(CompareError::Nothing(plan.left_out.join("; ")).into());
    }
    let done = run::run(&arguments, &plan, in_lab).and_then(|(results, measured, machine)| {
        Ok((results, measured, machine, costs(&arguments, in_lab)?))
    });
    let (results, measured, machine, costs) = match done {
        Ok(done) => done,
        Err(CompareError::Interrupted) => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error) => return Err(error.into()),
    };
    let summary = summary::paragraphs(&results, &machine);
    let comparison = Comparison { rows: results.rows(), measured, machine, summary, costs };
    if let Some(report) = report {
        report.write(&page::page(&results, &comparison))?;
    }
    if arguments.shown.json {
        output::line(serde_json::to_string(&comparison)?)?;
    } else {
        output::text(table::text(&results, &comparison))?;
    }
    Ok(ExitCode::SUCCESS)
}
