//! `tsumugi perf collectives`: every collective operation by size, by messages and, where it can count them, by the switch box.

use clap::Args;
use serde::Serialize;
use tsumugi_wire::group::WORDS_MAX;

use super::task::{By, Task, Timing, What};
use super::testbed::{self, Common, Testbed};
use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::own_lab::{self, OwnLabError};
use crate::progress::count;
use crate::ratio::{self, Better};
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{is_zero, rounded};
use crate::seconds::seconds;
use crate::sizes::{self, Sizes};
use crate::statistics::OverRounds;

/// Bytes of a number.
const NUMBER_BYTES: u64 = 8;
/// Longest reduction that a box counts, bytes.
const COUNTED_BYTES_MAX: u64 = WORDS_MAX as u64 * NUMBER_BYTES;

/// All of them, in the order of the table.
const OPERATIONS: [What; 8] = [
    What::Barrier,
    What::Broadcast,
    What::Reduce,
    What::Allreduce,
    What::Gather,
    What::Allgather,
    What::Scatter,
    What::AllToAll,
];

const HELP: &str = "\
As root this makes nodes of its own (network namespaces), joined by a switch box (`tsumugi switch`), and removes them again. In \
each a process, on one CPU, is a member of a group. All wait for all, then all do the operation; its time is from the first that \
begins to the last that is done. Barriers and sums of up to 64 B are measured with the box counting, too; the ratio is the median of \
the rounds' ratios.

A size is that of what each member gives (broadcast, reduce, allreduce, gather, allgather), gets (scatter), or gives each of the \
others (all-to-all): numbers of 8 B, which reductions add. The root is the first member. Where there are more nodes than CPUs they \
take turns, so that the time is that of as many processes, and not of a network.

Examples:
  sudo tsumugi perf collectives
  sudo tsumugi perf collectives --nodes 2 --size 8..64K --rounds 9
  sudo tsumugi perf collectives --json | jq '.figures[] | {operation, size_bytes, messages_ns}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CollectivesOptions {
    /// How many nodes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: u32,
    /// Sizes: `64`, `8K,64K`, or a doubling range `8..1M`; rounded up to whole numbers of 8 B.
    #[arg(long, default_value = "8,64,1K,8K,64K,1M")]
    size: Sizes,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    common: Common,
}

/// A line of the table. Keys that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    operation: String,
    #[serde(skip_serializing_if = "is_zero")]
    size_bytes: u64,
    messages_ns: f64,
    /// How far the rounds' times are apart: (largest − smallest) / median.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    /// With the box counting.
    #[serde(skip_serializing_if = "Option::is_none")]
    box_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    box_spread: Option<f64>,
    /// By messages to by the box: the median of the rounds' ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Which ratios are better.
    #[serde(skip_serializing_if = "Option::is_none")]
    better: Option<Better>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    nodes: u32,
    /// How the processes wait.
    wait: String,
    hook: String,
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &CollectivesOptions) -> crate::CommandResult {
    let (nodes, machine) = (options.nodes, testbed::machine());
    let wait = options.common.wait(nodes).to_string();
    let output = measure(options);
    let output =
        output.map(|(hook, figures, measured)| Output { nodes, wait, hook, figures, measured, machine });
    own_lab::finish(output, options.common.shown, |output| {
        let setting = format!("{nodes} nodes, switch box at {}", output.hook);
        let (header, table) = (output.measured.header(), table(&setting, &output.figures));
        format!("{header}\n{table}\n{}", output.machine.line())
    })
}

fn measure(options: &CollectivesOptions) -> Result<(String, Vec<Figure>, Conditions), OwnLabError> {
    own_lab::require_root("collectives")?;
    let compared = compared(&options.size);
    let measured = Conditions::rounds(options.common.rounds, options.time);
    let figures: usize = compared.iter().map(Vec::len).sum();
    let step_s = options.time * figures as f64 / OPERATIONS.len() as f64;
    let what = count(figures, "figure");
    let progress = options.common.progress(&what, OPERATIONS.len(), step_s, &measured);
    let testbed = Testbed::make(options.nodes, &options.common, measured)?;
    // By what is compared, the rounds' times.
    let mut rounds = vec![[const { Vec::new() }; 2]; compared.len()];
    for round in 0..options.common.rounds as usize {
        for operation in OPERATIONS {
            progress.step(operation.to_string());
            let mut of_operation = Vec::new();
            for (at, of_one) in compared.iter().enumerate().filter(|(_, of_one)| of_one[0].what == operation)
            {
                // Each is first as often as the other.
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                let tasks = order.iter().filter_map(|&by| Some((at, by, *of_one.get(by)?)));
                of_operation.extend(tasks);
            }
            let tasks: Vec<Task> = of_operation.iter().map(|(.., task)| *task).collect();
            let times = testbed.time(options.nodes, &tasks, options.time)?;
            of_operation.iter().zip(times).for_each(|(&(at, by, _), time)| rounds[at][by].push(time));
        }
    }
    let figures = compared.iter().zip(&rounds).filter_map(|(of_one, rounds)| Figure::of(of_one[0], rounds));
    Ok((testbed.hook.clone(), figures.collect(), testbed.measured()))
}

/// The same by messages and, if it counts such, by the box; for all operations and sizes.
fn compared(sizes: &Sizes) -> Vec<Vec<Task>> {
    let mut all = Vec::new();
    for what in OPERATIONS {
        let sizes = if what == What::Barrier { &[0][..] } else { &sizes.0 };
        for &bytes in sizes {
            let task = |by| Task { what, bytes, by, timing: Timing::Apart };
            let is_counted = match what {
                What::Barrier => true,
                What::Allreduce => bytes <= COUNTED_BYTES_MAX,
                _ => false,
            };
            all.push(
                [By::Messages, By::Box].into_iter().take(1 + usize::from(is_counted)).map(task).collect(),
            );
        }
    }
    all
}

impl Figure {
    /// By messages, and by the box if it counts such.
    fn of(task: Task, [messages, counted]: &[Vec<f64>; 2]) -> Option<Figure> {
        let by_messages = OverRounds::of(messages.iter().copied())?;
        let by_box = OverRounds::of(counted.iter().copied());
        let ratios =
            OverRounds::of(messages.iter().zip(counted).map(|(messages, counted)| messages / counted));
        Some(Figure {
            operation: task.what.to_string(),
            size_bytes: task.bytes,
            messages_ns: rounded(by_messages.median),
            spread: by_messages.spread.map(rounded),
            box_ns: by_box.map(|by_box| rounded(by_box.median)),
            box_spread: by_box.and_then(|by_box| by_box.spread).map(rounded),
            ratio: ratios.map(|ratios| rounded(ratios.median)),
            better: ratios.map(|_| Better::Higher),
        })
    }
}

fn table(setting: &str, figures: &[Figure]) -> String {
    let ratio = Better::Higher.heading("messages / box");
    let header = ["operation", "size", "messages", "±", "box", "±", &ratio];
    let mut columns = Columns::new(&header);
    let or_nothing = |text: Option<String>| text.unwrap_or_default();
    for figure in figures {
        columns.row(vec![
            figure.operation.clone(),
            if figure.size_bytes == 0 { String::new() } else { sizes::show(figure.size_bytes) },
            units::time(figure.messages_ns),
            figure.spread.map_or_else(String::new, units::percent),
            or_nothing(figure.box_ns.map(units::time)),
            or_nothing(figure.box_spread.map(units::percent)),
            ratio::or_empty(figure.ratio),
        ]);
    }
    format!("collective operations ({setting})\n{columns}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_compared_where_it_counts() {
        let compared = compared(&"8,64,65".parse().expect("sizes"));
        let counted = |of_one: &&Vec<Task>| of_one.len() == 2;
        let shown: Vec<String> =
            compared.iter().filter(counted).map(|of_one| of_one[1].to_string()).collect();
        assert_eq!(shown, ["barrier/0/box/apart", "allreduce/8/box/apart", "allreduce/64/box/apart"]);
        assert_eq!(compared.len(), 1 + 3 * (OPERATIONS.len() - 1));
    }

    #[test]
    fn a_figure_without_a_box_has_no_ratio() {
        let task = Task { what: What::Barrier, bytes: 0, by: By::Messages, timing: Timing::Apart };
        let figure = Figure::of(task, &[vec![6e3, 4e3, 9e3], vec![3e3, 4e3, 3e3]]).expect("rounds");
        assert_eq!((figure.messages_ns, figure.box_ns, figure.ratio), (6e3, Some(3e3), Some(2.0)));
        let without = Figure::of(Task { what: What::Scatter, bytes: 64, ..task }, &[vec![6e3], vec![]]);
        let without = without.expect("rounds");
        assert_eq!((without.box_ns, without.ratio), (None, None));
        let text = table("4 nodes", &[figure, without]);
        assert!(text.lines().nth(3).is_some_and(|line| line.ends_with("64 B   6.00 µs")), "{text}");
    }
}
