//! `tsumugi perf translate`: what it costs to write pages of another process's window, with and without their
//! translations in the XDP program (P5's figure 1), and whether a process that is stopped is written as fast.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser as _;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tsumugi::Replacement;
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::{LabGuard, Spec};

use crate::choices::any_of;
use crate::conditions::{Conditions, Side, Told};
use crate::cpu::{self, machine_ns};
use crate::machine::Machine;
use crate::output::Shown;
use crate::own_lab::{self, NIC, OwnLabError, PATIENCE};
use crate::progress::{Progress, count};
use crate::ratio::Better;
use crate::seconds::seconds;
use crate::statistics::median;

mod table;
pub(crate) mod target;
pub(crate) mod writer;

use writer::{Acknowledged, Written};

/// How the lab is called: `translate-PID-NUMBER`.
const LAB_STEM: &str = "translate";
/// The nodes.
const WRITING: usize = 0;
const WRITTEN: usize = 1;
/// What making a target takes, seconds.
const TARGET_S: f64 = 1.0;
/// How often the target is stopped, and for how long it is and is not each time.
const STOPS: u32 = 4;
const STOPPED: Duration = Duration::from_millis(150);
/// What is left out at each end of a stop, ns: the target stops and goes on a little later than it is told.
const EDGE_NS: u64 = 20_000_000;

const HELP: &str = "\
As root this makes two nodes of its own (network namespaces joined by a veth pair) and removes them again. A process in one \
writes pages of a window in the other, each transfer with a fence behind it, so that it counts as done when all of it is in \
place. The target's XDP program has translations of --translations pages at a time and writes those directly; what comes for \
another page waits for the target's process, which puts its translation in the place of another. 0 is without translations.

Pages are written in their order, again and again: as long as they are no more than translations, none is missing; by `fifo` \
and `lru` every one is as soon as they are one more.

Last, the target has as many translations as pages and is stopped (SIGSTOP) every 150 ms for as long, while it is \
written without a pause: 'stopped' is the bandwidth of what is acknowledged meanwhile.

Examples:
  sudo tsumugi perf translate
  sudo tsumugi perf translate --translations 0,15 --replacement fifo
  sudo tsumugi perf translate --json | jq '.figures[] | {pages, translations, transfer_ns}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TranslateOptions {
    /// Translations that are kept at a time, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 4, 15, 64])]
    translations: Vec<u32>,
    /// Pages (4 KiB) of a transfer, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 12, 15, 16, 24, 32],
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pages: Vec<u32>,
    /// Which translation makes room for another. That of P5 (Kunisawa et al., about 1998) is `fifo`.
    #[arg(long, default_value_t = Replacement::Fifo, value_parser = any_of::<Replacement>().try_map(|word| word.parse::<Replacement>()))]
    replacement: Replacement,
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    shown: Shown,
}

/// Transfers of so many pages to a target with so many translations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) pages: u32,
    pub(crate) translations: u32,
    /// Time of a transfer, ns.
    pub(crate) transfer_ns: f64,
    /// Share of the packets that the XDP program wrote directly, without the process.
    pub(crate) direct_share: f64,
}

/// Bandwidth of what is acknowledged, Gb/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stopped {
    pub(crate) running_gbit_s: f64,
    pub(crate) stopped_gbit_s: f64,
    /// The median of the rounds' ratios.
    pub(crate) ratio: f64,
    /// Which ratios are better.
    pub(crate) better: Better,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) replacement: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) stopped: Option<Stopped>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    report: Report,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &TranslateOptions) -> crate::CommandResult {
    let machine = Machine { wire: "lab (direct)".to_owned(), mtu_bytes: Some(1500), ..Machine::here() };
    let output = measure(options).map(|(report, measured)| Output { report, measured, machine });
    own_lab::finish(output, options.shown, |output| {
        let header = output.measured.header();
        format!("{header}\n{}{}", table::page(&output.report), output.machine.line())
    })
}

fn measure(options: &TranslateOptions) -> Result<(Report, Conditions), OwnLabError> {
    own_lab::require_root("translate")?;
    let steps = u64::from(options.rounds) * (1 + options.translations.len() as u64);
    let measured = Conditions::rounds(options.rounds, options.time);
    let (tables, lengths) = (options.translations.len(), options.pages.len());
    let what = format!(
        "{} of translations × {} × {}",
        count(tables, "number"),
        count(lengths, "length"),
        measured.amount()
    );
    let step_s = TARGET_S + options.time * lengths as f64;
    let expected_s = f64::from(options.rounds) * (step_s * tables as f64 + TARGET_S + stopping_s());
    let progress = Progress::begin(options.shown, expected_s, &what, steps);
    let lab = own_lab::make(&Spec::unique(LAB_STEM))?;
    let testbed = Testbed { lab, options, measured: measured.into() };
    // A veth pair takes the answers of a program at one end only if there is one at the other, too.
    testbed.tool(WRITING, &["up", NIC, "--endpoints", "1"])?;
    let mut rounds = vec![Vec::new(); options.translations.len()];
    let mut stopped = Vec::new();
    for _ in 0..options.rounds {
        for (written, &translations) in rounds.iter_mut().zip(&options.translations) {
            progress.step(format!("{translations} translations"));
            let target = testbed.target(translations)?;
            written.push(testbed.write(&target)?);
        }
        progress.step("stopped");
        let target = testbed.target(testbed.most())?;
        stopped.push(testbed.stop(&target)?);
    }
    let figures = options.translations.iter().zip(&rounds);
    let report = Report {
        replacement: options.replacement.to_string(),
        figures: figures.flat_map(|(&translations, rounds)| figures_of(translations, rounds)).collect(),
        stopped: over_rounds(&stopped),
    };
    Ok((report, testbed.measured.into_inner()))
}

/// How long the target is written to while it is stopped now and then, seconds.
fn stopping_s() -> f64 {
    f64::from(2 * STOPS + 4) * STOPPED.as_secs_f64()
}

/// The medians over rounds.
fn figures_of(translations: u32, rounds: &[Vec<Written>]) -> Vec<Figure> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let figure = |(at, written): (usize, &Written)| {
        let of = |figure: fn(&Written) -> f64| {
            median(rounds.iter().filter_map(|round| round.get(at)).map(figure)).unwrap_or(f64::NAN)
        };
        let direct_share = |written: &Written| {
            written.direct_writes as f64 / (written.direct_writes + written.untranslated).max(1) as f64
        };
        let (transfer_ns, direct_share) = (of(|written| written.transfer_ns), of(direct_share));
        Figure { pages: written.pages, translations, transfer_ns, direct_share }
    };
    first.iter().enumerate().map(figure).collect()
}

fn over_rounds(rounds: &[(f64, f64)]) -> Option<Stopped> {
    Some(Stopped {
        running_gbit_s: median(rounds.iter().map(|(running, _)| *running))?,
        stopped_gbit_s: median(rounds.iter().map(|(_, stopped)| *stopped))?,
        ratio: median(rounds.iter().map(|(running, stopped)| stopped / running))?,
        better: Better::Higher,
    })
}

/// The lab.
struct Testbed<'o> {
    lab: LabGuard,
    options: &'o TranslateOptions,
    /// What was measured by so far.
    measured: RefCell<Conditions>,
}

/// A process with a window, in a node whose XDP program writes it.
struct Target<'t> {
    process: Running,
    /// Arguments that say where it is.
    there: Vec<String>,
    side: Side,
    testbed: &'t Testbed<'t>,
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        let _ = self.process.signal(Signal::KILL);
        // The next one has another number of translations.
        let _ = self.testbed.tool(WRITTEN, &["down"]);
    }
}

impl Testbed<'_> {
    fn tool(&self, node: usize, arguments: &[&str]) -> Result<(), ChildError> {
        own_lab::tool(&self.lab, node, arguments)
    }

    /// Starts this command's other half in a node, on a CPU of its own if there are two.
    fn start(&self, node: usize, arguments: &[String]) -> Result<Running, OwnLabError> {
        let cpus = cpu::allowed().0;
        let mut all = vec!["perf".to_owned()];
        all.extend_from_slice(arguments);
        all.extend(cpus.get(node).filter(|_| cpus.len() > 1).map(|cpu| format!("--cpu={cpu}")));
        Ok(Running::ours(Some((&self.lab, node)), &all)?)
    }

    /// Pages of the longest transfer.
    fn most(&self) -> u32 {
        self.options.pages.iter().copied().max().unwrap_or(1)
    }

    fn target(&self, translations: u32) -> Result<Target<'_>, OwnLabError> {
        let pages = self.most();
        let (translations, window) = (translations.to_string(), (u64::from(pages) * 4096).to_string());
        let up = ["up", NIC, "--endpoints", "1", "--translations", &translations, "--window", &window];
        self.tool(WRITTEN, &up)?;
        let replacement = format!("--replacement={}", self.options.replacement);
        let arguments = ["translate-target".to_owned(), format!("--pages={pages}"), replacement];
        let mut process = self.start(WRITTEN, &arguments)?;
        let said = process.first_line(PATIENCE)?;
        let mut words = said.splitn(4, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (Some(port), Some(key), Some(address)) = (number(), number(), number()) else {
            return Err(OwnLabError::Target(said));
        };
        let side = words.next().and_then(|side| serde_json::from_str(side).ok()).unwrap_or_default();
        let host = self.lab.nodes()[WRITTEN].nics[0].address;
        let there =
            vec![format!("--to={host}:{port}"), format!("--key={key}"), format!("--address={address}")];
        Ok(Target { process, there, side, testbed: self })
    }

    fn writer(&self, target: &Target<'_>, options: &[String]) -> Result<Running, OwnLabError> {
        let arguments = [&["translate-writer".to_owned()], &target.there[..], options].concat();
        self.start(WRITING, &arguments)
    }

    fn write(&self, target: &Target<'_>) -> Result<Vec<Written>, OwnLabError> {
        let pages: Vec<String> = self.options.pages.iter().map(u32::to_string).collect();
        let options = [format!("--time={}", self.options.time), format!("--pages={}", pages.join(","))];
        let writer = self.writer(target, &options)?;
        let limit = Duration::from_secs_f64(2.0 * self.options.time * self.options.pages.len() as f64);
        self.heard(target, writer.json(limit + PATIENCE)?)
    }

    /// What a writer found, once it is noted what it is.
    fn heard<T>(&self, target: &Target<'_>, told: Told<T>) -> Result<T, OwnLabError> {
        self.measured.borrow_mut().add([&told.side, &target.side]);
        Ok(told.found)
    }

    /// Stops the target again and again while it is written: the bandwidths while it runs and while it is stopped, Gb/s.
    fn stop(&self, target: &Target<'_>) -> Result<(f64, f64), OwnLabError> {
        let time = stopping_s();
        let options = [format!("--time={time}"), format!("--pages={}", self.most()), "--steadily".to_owned()];
        let mut writer = self.writer(target, &options)?;
        writer.first_line(PATIENCE)?;
        std::thread::sleep(STOPPED);
        let mut stops = Vec::new();
        for _ in 0..STOPS {
            target.process.signal(Signal::STOP).map_err(OwnLabError::Stop)?;
            let from = machine_ns();
            std::thread::sleep(STOPPED);
            let to = machine_ns();
            target.process.signal(Signal::CONT).map_err(OwnLabError::Stop)?;
            stops.push((from + EDGE_NS, to));
            std::thread::sleep(STOPPED);
        }
        let acknowledged: Acknowledged = self.heard(target, writer.json(PATIENCE)?)?;
        let between = stops.windows(2).map(|pair| (pair[0].1 + EDGE_NS, pair[1].0 - EDGE_NS));
        let running = acknowledged.bandwidth(between);
        Ok((running, acknowledged.bandwidth(stops.iter().copied())))
    }
}
