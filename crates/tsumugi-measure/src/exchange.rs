//! `tsumugi perf all-to-all`: every node sends to every other at once, with the XDP receive path and with
//! the socket receive path. Two nodes are P3's figure 7 (both ways), four its figure 8 (all to all).

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tsumugi::ReceiveChoice;
use tsumugi_lab::child::Running;
use tsumugi_lab::{LabGuard, Spec};

use crate::conditions::{Conditions, Told};
use crate::cpu::{self, machine_ns};
use crate::machine::Machine;
use crate::output::Shown;
use crate::own_lab::{self, NIC, OwnLabError, PATIENCE};
use crate::progress::{Progress, count};
use crate::ratio::{self, Better};
use crate::report::columns::Columns;
use crate::report::units;
use crate::seconds::seconds;
use crate::sizes::{self, Sizes};
use crate::statistics::median;

pub(crate) mod member;

use member::{PORT, Received};

/// How the labs are called: `exchange-PID-NUMBER`.
const LAB_STEM: &str = "exchange";
/// How long processes have to connect.
const BEGIN: Duration = Duration::from_millis(700);
/// What else a measurement takes, seconds: processes start and end.
const AFTER_S: f64 = 0.2;
/// Of the ratios of what was taken.
const BETTER: Better = Better::Higher;
/// The first is compared with the second.
const RECEIVE_PATHS: [ReceiveChoice; 2] = [ReceiveChoice::Xdp, ReceiveChoice::Socket];

const HELP: &str = "\
As root this makes labs of its own (network namespaces, joined by a veth pair or a switch) and removes them again. In each \
node a process sends messages to all others in turn and takes what they send; what all of them take together is counted. The \
XDP receive path, whose program takes packets in and acknowledges them in the NIC driver's poll, is compared with the socket \
receive path, in a lab without the program, in turn and round by round. The nodes share this machine's CPUs.

The labs' NICs carry packets one by one, as a wire does. With --offloads the kernel hands up to 64 KiB over a veth pair in one \
piece where there is no program, which no wire does.

Examples:
  sudo tsumugi perf all-to-all
  sudo tsumugi perf all-to-all --nodes 2 --size 8K..256K --rounds 9
  sudo tsumugi perf all-to-all --json | jq '.figures[] | {nodes, size_bytes, ratio}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ExchangeOptions {
    /// Numbers of nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4], value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: Vec<u32>,
    /// Message sizes: `64`, `8K,64K`, or a doubling range `8K..1M`.
    #[arg(long, default_value = "1K,8K,32K,256K")]
    size: Sizes,
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    time: f64,
    /// Leave the NICs' segmentation and coalescing on.
    #[arg(long)]
    offloads: bool,
    #[command(flatten)]
    shown: Shown,
}

/// What all nodes together took in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Figure {
    nodes: u32,
    size_bytes: u64,
    xdp_gbit_s: f64,
    socket_gbit_s: f64,
    /// The median of the rounds' ratios.
    ratio: f64,
    /// Which ratios are better.
    better: Better,
    /// CPU time of the processes, ns for a KiB that was taken; what the kernel does for them elsewhere is not in it.
    xdp_cpu_ns_per_kib: f64,
    socket_cpu_ns_per_kib: f64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &ExchangeOptions) -> crate::CommandResult {
    let machine = Machine { wire: "lab".to_owned(), mtu_bytes: Some(1500), ..Machine::here() };
    let output = measure(options).map(|(figures, measured)| Output { figures, measured, machine });
    own_lab::finish(output, options.shown, |output| {
        let header = output.measured.header();
        format!("{header}\n{}\n{}", table(&output.figures), output.machine.line())
    })
}

fn measure(options: &ExchangeOptions) -> Result<(Vec<Figure>, Conditions), OwnLabError> {
    own_lab::require_root("all-to-all")?;
    let steps = options.nodes.len() * options.size.0.len() * options.rounds as usize * RECEIVE_PATHS.len();
    let mut measured = Conditions::rounds(options.rounds, options.time);
    let (nodes, sizes) = (count(options.nodes.len(), "number"), count(options.size.0.len(), "size"));
    let what = format!("{nodes} of nodes × {sizes} × 2 receive paths × {}", measured.amount());
    let expected_s = steps as f64 * (options.time + BEGIN.as_secs_f64() + AFTER_S);
    let progress = Progress::begin(options.shown, expected_s, &what, steps as u64);
    let mut figures = Vec::new();
    for &nodes in &options.nodes {
        let testbeds = [
            Testbed::make(nodes, RECEIVE_PATHS[0], options)?,
            Testbed::make(nodes, RECEIVE_PATHS[1], options)?,
        ];
        let mut rounds = vec![[const { Vec::new() }; 2]; options.size.0.len()];
        for round in 0..options.rounds as usize {
            for (rounds, &size) in rounds.iter_mut().zip(&options.size.0) {
                // Each is first as often as the other.
                for at in [round % 2, 1 - round % 2] {
                    let name = RECEIVE_PATHS[at].to_string();
                    progress.step(format!("{nodes} nodes, {}, {name}", sizes::show(size)));
                    rounds[at].push(testbeds[at].exchange(size, options.time, &mut measured)?);
                }
            }
        }
        let of_size = rounds.iter().zip(&options.size.0);
        figures.extend(of_size.filter_map(|(rounds, &size)| Figure::of(nodes, size, options.time, rounds)));
    }
    Ok((figures, measured))
}

impl Figure {
    fn of(nodes: u32, size_bytes: u64, time: f64, rounds: &[Vec<Received>; 2]) -> Option<Figure> {
        let gbit_s = |received: &Received| received.bytes as f64 * 8.0 / (time * 1e9);
        let cpu = |received: &Received| received.cpu_ns as f64 / (received.bytes.max(1) as f64 / 1024.0);
        let of = |at: usize, figure: &dyn Fn(&Received) -> f64| median(rounds[at].iter().map(figure));
        let ratios = rounds[0].iter().zip(&rounds[1]).map(|(xdp, socket)| gbit_s(xdp) / gbit_s(socket));
        Some(Figure {
            nodes,
            size_bytes,
            xdp_gbit_s: of(0, &gbit_s)?,
            socket_gbit_s: of(1, &gbit_s)?,
            ratio: median(ratios)?,
            better: BETTER,
            xdp_cpu_ns_per_kib: of(0, &cpu)?,
            socket_cpu_ns_per_kib: of(1, &cpu)?,
        })
    }
}

/// A line for each number of nodes and size.
fn table(figures: &[Figure]) -> String {
    let ratio = BETTER.heading("ratio");
    let header = ["nodes", "size", "xdp", "socket", &ratio, "CPU per KiB, xdp", "socket"];
    let mut columns = Columns::new(&header);
    for figure in figures {
        columns.row(vec![
            figure.nodes.to_string(),
            sizes::show(figure.size_bytes),
            units::bandwidth(figure.xdp_gbit_s),
            units::bandwidth(figure.socket_gbit_s),
            ratio::show(figure.ratio),
            units::time(figure.xdp_cpu_ns_per_kib),
            units::time(figure.socket_cpu_ns_per_kib),
        ]);
    }
    format!("everyone sends to everyone: what all nodes took together\n{columns}")
}

/// A lab whose nodes have the program, or have not.
struct Testbed {
    lab: LabGuard,
    receive: ReceiveChoice,
}

impl Testbed {
    fn make(
        nodes: u32,
        receive_path: ReceiveChoice,
        options: &ExchangeOptions,
    ) -> Result<Testbed, OwnLabError> {
        let spec = Spec { nodes, offloads: options.offloads, ..Spec::unique(LAB_STEM) };
        let lab = own_lab::make(&spec)?;
        if receive_path == ReceiveChoice::Xdp {
            for node in 0..nodes as usize {
                own_lab::tool(&lab, node, &["up", NIC, "--endpoints", "1", "--port", &PORT.to_string()])?;
            }
        }
        Ok(Testbed { lab, receive: receive_path })
    }

    /// Has everyone send to everyone; what all of them took.
    fn exchange(&self, size: u64, time: f64, measured: &mut Conditions) -> Result<Received, OwnLabError> {
        let cpus = cpu::allowed().0;
        let start_ns = machine_ns() + BEGIN.as_nanos() as u64;
        let address = |node: usize| self.lab.nodes()[node].nics[0].address;
        let count = self.lab.nodes().len();
        let member = |node: usize| {
            let mut arguments = vec!["perf".to_owned(), "all-to-all-member".to_owned()];
            let others = (1..count).map(|ahead| address((node + ahead) % count));
            arguments.extend(others.map(|address| format!("--to={address}")));
            arguments.push(format!("--receive={}", self.receive));
            arguments.push(format!("--size={size}"));
            arguments.push(format!("--start-ns={start_ns}"));
            arguments.push(format!("--time={time}"));
            arguments.push(format!("--cpu={}", cpus[node % cpus.len()]));
            Running::ours(Some((&self.lab, node)), &arguments)
        };
        let members = (0..count).map(member).collect::<Result<Vec<_>, _>>()?;
        let limit = PATIENCE + Duration::from_secs_f64(time);
        let told = members.into_iter().map(|member| member.json(limit));
        let told = told.collect::<Result<Vec<Told<Received>>, _>>()?;
        measured.add_group(&told);
        let sum = |of: fn(&Received) -> u64| told.iter().map(|told| of(&told.found)).sum();
        Ok(Received { bytes: sum(|received| received.bytes), cpu_ns: sum(|received| received.cpu_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_took_is_compared_round_by_round() {
        let received = |bytes| Received { bytes, cpu_ns: 2048 };
        let rounds =
            [vec![received(2 << 30), received(1 << 30), received(3 << 30)], vec![received(1 << 30); 3]];
        let figure = Figure::of(4, 1024, 2.0, &rounds).expect("rounds");
        assert_eq!((figure.ratio, figure.socket_gbit_s), (2.0, f64::from(1 << 30) * 4.0 / 1e9));
        let text = table(&[figure]);
        assert!(
            text.lines().nth(2).is_some_and(|line| line.starts_with('4') && line.contains("2.00 ×")),
            "{text}"
        );
    }
}
