//! `tsumugi perf multicast`: one message to all of several receivers, sent once and sent to each.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use strum::VariantArray as _;
use tsumugi::{SendChoice, Wait};
use tsumugi_lab::Rate;

use super::stream::{Stream, Streamed, Way};
use super::testbed::{self, Common, Testbed};
use crate::conditions::Conditions;
use crate::cpu;
use crate::machine::Machine;
use crate::own_lab::{self, OwnLabError};
use crate::progress::count;
use crate::ratio::{self, Better};
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::rounded;
use crate::seconds::seconds;
use crate::sizes::{self, Sizes};
use crate::statistics::OverRounds;

const HELP: &str = "\
As root this makes nodes of its own (network namespaces), joined by a switch box (`tsumugi switch`), and removes them again. In \
each a process, on one CPU; the first sends, and the others receive. These are measured in turn and round by round, so that a \
disturbance meets all of them; a ratio is the median of the rounds' ratios.

  one          messages to one of the receivers
  one-by-one   each message to all of them, to each by itself
  multicast    each message to all of them, each packet once: the box makes one for each receiver out of it

The sender's CPU time is for a message of a batch of 32 (fewer, where they would be more than 128 KiB), until all receivers have them: all that its \
process does, acknowledgements included. The sender has a CPU for itself, and all else happens on the others: the box too, which gets \
packets one by one as over a wire (no segmentation offload). Delivered is what arrives at all receivers together of a stream of messages. All \
wait by sleeping.

Examples:
  sudo tsumugi perf multicast
  sudo tsumugi perf multicast --receivers 3 --size 1K,64K --rounds 9
  sudo tsumugi perf multicast --rate 200mbit              where the link is what is short, and not CPUs
  sudo tsumugi perf multicast --json | jq '.figures[] | {way, size_bytes, cpu_ratio, delivered_ratio}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct MulticastOptions {
    /// How many receivers.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=15))]
    receivers: u32,
    /// Sizes of messages: `64`, `8K,64K`, or a doubling range `8..1M`.
    #[arg(long, default_value = "64,1K,8K,64K,1M")]
    size: Sizes,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    time: f64,
    /// Rate of the sender's link in bits per second, for example 200mbit or 1G: then it sends by sockets [default: as fast as the
    /// CPUs are].
    #[arg(long, value_name = "BITS")]
    rate: Option<Rate>,
    #[command(flatten)]
    common: Common,
}

/// A line of the table. Keys that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    size_bytes: u64,
    way: String,
    /// Sender's CPU time for a message, ns.
    cpu_ns: f64,
    /// How far the rounds' are apart: (largest − smallest) / median.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_spread: Option<f64>,
    /// To that of a message to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ratio: Option<f64>,
    /// Which of these are better.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_better: Option<Better>,
    /// Messages that arrive in a second, at all receivers together.
    delivered: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_spread: Option<f64>,
    /// To what arrives when each is sent to by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_ratio: Option<f64>,
    /// Which of these are better.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_better: Option<Better>,
    /// Packets for a message that left once for several.
    packets: f64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    receivers: u32,
    wait: String,
    hook: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &MulticastOptions) -> crate::CommandResult {
    let mut options = options.clone();
    if options.rate.is_some() {
        // Frames of other send paths pass by what limits it.
        if options.common.send.is_some_and(|send_path| send_path != SendChoice::Udp) {
            eprintln!(
                "tsumugi: --rate limits what is sent by sockets: it needs --send udp, or leave --send out"
            );
            return Ok(ExitCode::from(2));
        }
        options.common.send = Some(SendChoice::Udp);
    }
    let options = &options;
    let (receivers, machine) = (options.receivers, testbed::machine());
    let wait = options.wait().to_string();
    let output = measure(options).map(|(hook, figures, measured)| {
        let rate = options.rate.map(|rate| rate.to_string());
        Output { receivers, wait, hook, rate, figures, measured, machine }
    });
    own_lab::finish(output, options.common.shown, |output| {
        let rate = options.rate.map_or_else(String::new, |rate| format!(", sender's link of {rate}"));
        let setting = format!("{receivers} receivers, switch box at {}{rate}", output.hook);
        let (header, table) = (output.measured.header(), table(&setting, &output.figures));
        format!("{header}\n{table}\n{}", output.machine.line())
    })
}

impl MulticastOptions {
    fn wait(&self) -> Wait {
        self.common.wait.unwrap_or(Wait::Block)
    }
}

fn measure(options: &MulticastOptions) -> Result<(String, Vec<Figure>, Conditions), OwnLabError> {
    own_lab::require_root("multicast")?;
    let (common, ways, nodes) = (&options.common, Way::VARIANTS, options.receivers + 1);
    let sizes = &options.size.0;
    let measured = Conditions::rounds(common.rounds, options.time);
    let what = format!("{} × {} ways", count(sizes.len(), "size"), ways.len());
    let progress = common.progress(&what, sizes.len(), options.time * ways.len() as f64, &measured);
    let testbed = Testbed::make(nodes, common, measured)?;
    options.rate.map_or(Ok(()), |rate| testbed.limit(0, rate))?;
    // The first CPU is the sender's, the others are the receivers' and the box's.
    let cpus = cpu::allowed().0;
    let others = if cpus.len() > 1 { &cpus[1..] } else { &cpus[..] };
    let cpu = |rank: usize| if rank == 0 { cpus[0] } else { others[rank % others.len()] };
    testbed.keep_apart(0, others[0])?;
    // By size and way, what came of each round.
    let mut rounds = vec![vec![Vec::new(); ways.len()]; sizes.len()];
    for round in 0..common.rounds as usize {
        for (of_size, &bytes) in rounds.iter_mut().zip(sizes) {
            progress.step(sizes::show(bytes));
            // Each is first as often as the others.
            let order: Vec<usize> = (0..ways.len()).map(|at| (at + round) % ways.len()).collect();
            let mut arguments: Vec<String> =
                order.iter().map(|&at| format!("--stream={}", Stream { way: ways[at], bytes })).collect();
            arguments.push(format!("--time={}", options.time));
            let takes_s = options.time * ways.len() as f64;
            let streamed: Vec<Streamed> =
                testbed.run("multicast-member", nodes, (options.wait(), &cpu), &arguments, takes_s)?;
            order.into_iter().zip(streamed).for_each(|(at, streamed)| of_size[at].push(streamed));
        }
    }
    let figures = rounds.iter().zip(sizes).flat_map(|(rounds, &bytes)| {
        ways.iter().filter_map(move |&way| Figure::of(way, bytes, options.receivers, rounds))
    });
    Ok((testbed.hook.clone(), figures.collect(), testbed.measured()))
}

impl Figure {
    fn of(way: Way, size_bytes: u64, receivers: u32, rounds: &[Vec<Streamed>]) -> Option<Figure> {
        let cpu =
            |way: Way| rounds[way as usize].iter().map(|of| of.cpu_ns as f64 / of.batched.max(1) as f64);
        let delivered = |way: Way| {
            let each = f64::from(if way == Way::One { 1 } else { receivers });
            rounds[way as usize]
                .iter()
                .map(move |of| of.messages as f64 * each * 1e9 / of.wall_ns.max(1) as f64)
        };
        let ratio = |ratios: Option<OverRounds>| ratios.map(|ratios| rounded(ratios.median));
        let (own_cpu, own_delivered) = (OverRounds::of(cpu(way))?, OverRounds::of(delivered(way))?);
        let ratio_of_cpu = OverRounds::of(cpu(way).zip(cpu(Way::One)).map(|(own, one)| own / one));
        let ratio_of_delivered =
            OverRounds::of(delivered(way).zip(delivered(Way::OneByOne)).map(|(own, others)| own / others));
        let packets = rounds[way as usize]
            .iter()
            .map(|of| of.packets as f64 / (of.batched + of.messages).max(1) as f64);
        Some(Figure {
            size_bytes,
            way: way.to_string(),
            cpu_ns: rounded(own_cpu.median),
            cpu_spread: own_cpu.spread.map(rounded),
            cpu_ratio: ratio(ratio_of_cpu.filter(|_| way != Way::One)),
            cpu_better: (way != Way::One).then_some(Better::Lower),
            delivered: rounded(own_delivered.median),
            delivered_spread: own_delivered.spread.map(rounded),
            delivered_ratio: ratio(ratio_of_delivered.filter(|_| way == Way::Multicast)),
            delivered_better: (way == Way::Multicast).then_some(Better::Higher),
            packets: OverRounds::of(packets).map_or(0.0, |packets| rounded(packets.median)),
        })
    }
}

fn table(setting: &str, figures: &[Figure]) -> String {
    let (to_one, to_each) = (Better::Lower.heading("to one"), Better::Higher.heading("to one-by-one"));
    let header =
        ["size", "way", "sender's CPU", "±", &to_one, "delivered", "±", &to_each, "packets sent once"];
    let mut columns = Columns::new(&header);
    for figure in figures {
        let bytes_a_second = figure.delivered * figure.size_bytes as f64;
        columns.row(vec![
            sizes::show(figure.size_bytes),
            figure.way.clone(),
            units::time(figure.cpu_ns),
            figure.cpu_spread.map_or_else(String::new, units::percent),
            ratio::or_empty(figure.cpu_ratio),
            format!("{:.0} /s, {:.2} Gb/s", figure.delivered, bytes_a_second * 8.0 / 1e9),
            figure.delivered_spread.map_or_else(String::new, units::percent),
            ratio::or_empty(figure.delivered_ratio),
            if figure.packets > 0.0 { format!("{:.1}", figure.packets) } else { String::new() },
        ]);
    }
    format!("messages to all of several receivers ({setting})\n{columns}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multicast_stands_beside_a_message_to_one_and_messages_to_each() {
        let streamed = |messages, cpu_ns| Streamed {
            batched: messages,
            messages,
            wall_ns: 1_000_000_000,
            cpu_ns,
            packets: 0,
            parts: 0,
        };
        let rounds = [vec![streamed(100, 1000)], vec![streamed(20, 1400)], vec![streamed(80, 960)]];
        let figure = |way| Figure::of(way, 64, 7, &rounds).expect("rounds");
        let multicast = figure(Way::Multicast);
        assert_eq!(
            (multicast.cpu_ratio, multicast.delivered, multicast.delivered_ratio),
            (Some(1.2), 560.0, Some(4.0))
        );
        assert_eq!((figure(Way::OneByOne).cpu_ratio, figure(Way::One).cpu_ratio), (Some(7.0), None));
        assert!(table("7 receivers", &[multicast]).contains("1.20 ×"));
    }
}
