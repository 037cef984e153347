//! `tsumugi perf barrier`: a barrier that the switch box counts, beside one by messages and a single message (P3's table 2).

use clap::Args;
use serde::Serialize;

use super::task::{By, Task, Timing, What};
use super::testbed::{self, Common, Testbed};
use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::own_lab::{self, OwnLabError};
use crate::progress::count;
use crate::ratio::{self, Better};
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::rounded;
use crate::seconds::seconds;
use crate::statistics::OverRounds;

/// Bytes of the message, which has as long a body as what members and box tell each other: 88 B, with what is in front of it.
const MESSAGE_BYTES: u64 = 80;
/// Bytes of the reduction: one number.
const REDUCTION_BYTES: u64 = 8;
/// P3, table 2: nodes, and the time of a barrier.
const P3_NS: [(u32, f64); 3] = [(2, 9_700.0), (4, 10_700.0), (8, 13_800.0)];
/// … and of a message of 32 B.
const P3_MESSAGE_NS: f64 = 9_000.0;

const HELP: &str = "\
As root this makes nodes of its own (network namespaces), joined by a switch box (`tsumugi switch`), and removes them again. In \
each a process, on one CPU, is a member of a group. For each number of nodes these are measured in turn and round by round, so \
that a disturbance meets all of them; a ratio is the median of the rounds' ratios.

  message             80 B one way between two of the nodes, through the same box: half of a round trip. Its body is as long as \
that of what members and box tell each other, 88 B
  barrier, box        all wait for all, and the box counts them: one packet from each and one to each
  barrier, messages   the same without the box, by messages among the nodes (dissemination)
  allreduce, box      the sum of a number of each, by the box

Barriers follow one another without a pause, and the time of one is from one to the next. Where there are more nodes than CPUs \
they take turns, so that the time is that of as many processes, and not of a network.

P3 is Aoki et al., MMP on Maestro2, 2006. Its figures are those of table 2: 9.7, 10.7 and 13.8 µs on 2, 4 and 8 nodes, beside \
9.0 µs for a message of 32 B.

Examples:
  sudo tsumugi perf barrier
  sudo tsumugi perf barrier --nodes 2 --rounds 9 --hook generic
  sudo tsumugi perf barrier --json | jq '.figures[] | {nodes, what, time_ns, ratio}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct BarrierOptions {
    /// Numbers of nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: Vec<u32>,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    common: Common,
}

/// What is measured, and beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
enum Measured {
    #[strum(serialize = "message")]
    Message,
    #[strum(serialize = "barrier, box")]
    Counted,
    #[strum(serialize = "barrier, messages")]
    ByMessages,
    #[strum(serialize = "allreduce, box")]
    Allreduce,
}

impl Measured {
    fn task(self) -> Task {
        let (what, bytes, by) = match self {
            Measured::Message => (What::Message, MESSAGE_BYTES, By::Messages),
            Measured::Counted => (What::Barrier, 0, By::Box),
            Measured::ByMessages => (What::Barrier, 0, By::Messages),
            Measured::Allreduce => (What::Allreduce, REDUCTION_BYTES, By::Box),
        };
        Task { what, bytes, by, timing: Timing::InARow }
    }

    const fn beside(self) -> Option<Measured> {
        match self {
            Measured::Message => None,
            Measured::Counted => Some(Measured::Message),
            Measured::ByMessages | Measured::Allreduce => Some(Measured::Counted),
        }
    }

    /// What P3 has, ns.
    fn p3_ns(self, nodes: u32) -> Option<f64> {
        match self {
            Measured::Message => Some(P3_MESSAGE_NS),
            Measured::Counted => P3_NS.iter().find(|(of, _)| *of == nodes).map(|(_, ns)| *ns),
            Measured::ByMessages | Measured::Allreduce => None,
        }
    }
}

/// A line of the table. Keys that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    nodes: u32,
    /// How the processes wait.
    wait: String,
    what: String,
    time_ns: f64,
    /// How far the rounds' times are apart: (largest − smallest) / median.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    /// What `ratio` is to.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<String>,
    /// The median of the rounds' ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_spread: Option<f64>,
    /// Which ratios are better.
    #[serde(skip_serializing_if = "Option::is_none")]
    better: Option<Better>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p3_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p3_ratio: Option<f64>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    hook: String,
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &BarrierOptions) -> crate::CommandResult {
    let machine = testbed::machine();
    let output =
        measure(options).map(|(hook, figures, measured)| Output { hook, figures, measured, machine });
    own_lab::finish(output, options.common.shown, |output| {
        let (header, table) = (output.measured.header(), table(&output.hook, &output.figures));
        format!("{header}\n{table}\n{}", output.machine.line())
    })
}

fn measure(options: &BarrierOptions) -> Result<(String, Vec<Figure>, Conditions), OwnLabError> {
    use strum::VariantArray as _;
    own_lab::require_root("barrier")?;
    let (common, all) = (&options.common, Measured::VARIANTS);
    let measured = Conditions::rounds(common.rounds, options.time);
    let what = format!("{} of nodes × {}", count(options.nodes.len(), "number"), count(all.len(), "figure"));
    let progress = common.progress(&what, options.nodes.len(), options.time * all.len() as f64, &measured);
    let testbed = Testbed::make(options.nodes.iter().copied().max().unwrap_or(2), common, measured)?;
    // By number of nodes and what, the rounds' times.
    let mut rounds = vec![vec![Vec::new(); all.len()]; options.nodes.len()];
    for round in 0..common.rounds as usize {
        for (rounds, &nodes) in rounds.iter_mut().zip(&options.nodes) {
            progress.step(format!("{nodes} nodes"));
            // Each is first as often as the others.
            let order: Vec<usize> = (0..all.len()).map(|at| (at + round) % all.len()).collect();
            let tasks: Vec<Task> = order.iter().map(|&at| all[at].task()).collect();
            let times = testbed.time(nodes, &tasks, options.time)?;
            order.into_iter().zip(times).for_each(|(at, time)| rounds[at].push(time));
        }
    }
    let figures = rounds.iter().zip(&options.nodes).flat_map(|(rounds, &nodes)| {
        let wait = common.wait(nodes).to_string();
        all.iter().filter_map(move |&what| Figure::of(what, nodes, wait.clone(), rounds))
    });
    Ok((testbed.hook.clone(), figures.collect(), testbed.measured()))
}

impl Figure {
    fn of(what: Measured, nodes: u32, wait: String, rounds: &[Vec<f64>]) -> Option<Figure> {
        let times = &rounds[what as usize];
        let time = OverRounds::of(times.iter().copied())?;
        let ratios = what.beside().and_then(|beside| {
            OverRounds::of(times.iter().zip(&rounds[beside as usize]).map(|(time, other)| time / other))
        });
        let p3_ns = what.p3_ns(nodes);
        let p3_beside_ns = what.beside().and_then(|beside| beside.p3_ns(nodes));
        Some(Figure {
            nodes,
            wait,
            what: what.to_string(),
            time_ns: rounded(time.median),
            spread: time.spread.map(rounded),
            beside: what.beside().map(|beside| beside.to_string()),
            ratio: ratios.map(|ratios| rounded(ratios.median)),
            ratio_spread: ratios.and_then(|ratios| ratios.spread).map(rounded),
            better: ratios.map(|_| Better::Lower),
            p3_ns,
            p3_ratio: p3_ns.zip(p3_beside_ns).map(|(ns, beside_ns)| rounded(ns / beside_ns)),
        })
    }
}

fn table(hook: &str, figures: &[Figure]) -> String {
    let ratio = Better::Lower.heading("ratio");
    let header = ["nodes", "wait", "what", "time", "±", &ratio, "±", "beside", "P3", "P3's ratio"];
    let mut columns = Columns::new(&header);
    for figure in figures {
        columns.row(vec![
            figure.nodes.to_string(),
            figure.wait.clone(),
            figure.what.clone(),
            units::time(figure.time_ns),
            figure.spread.map_or_else(String::new, units::percent),
            ratio::or_empty(figure.ratio),
            figure.ratio_spread.map_or_else(String::new, units::percent),
            figure.beside.clone().unwrap_or_default(),
            figure.p3_ns.map_or_else(String::new, units::time),
            ratio::or_empty(figure.p3_ratio),
        ]);
    }
    format!(
        "a barrier by the switch box and by messages, and a message (switch box at {hook}); P3 is Aoki et al., 2006\n{columns}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_compared_round_by_round_and_stand_beside_those_of_the_paper() {
        let rounds = [vec![4e3, 2e3, 4e3], vec![6e3, 3e3, 2e3], vec![12e3, 6e3, 8e3], vec![6e3, 3e3, 3e3]];
        let figure = |what| Figure::of(what, 8, "spin".into(), &rounds).expect("rounds");
        let counted = figure(Measured::Counted);
        assert_eq!(
            (counted.time_ns, counted.ratio, counted.spread),
            (3e3, Some(1.5), Some(rounded(4.0 / 3.0)))
        );
        assert_eq!((counted.p3_ns, counted.p3_ratio), (Some(13.8e3), Some(rounded(13.8 / 9.0))));
        let by_messages = figure(Measured::ByMessages);
        assert_eq!((by_messages.ratio, by_messages.p3_ns), (Some(2.0), None));
        assert_eq!(figure(Measured::Message).ratio, None);
        let text = table("tc", &[counted, by_messages]);
        assert!(
            text.lines().nth(2).is_some_and(|line| line.trim_end().ends_with("13.8 µs      1.53 ×")),
            "{text}"
        );
    }
}
