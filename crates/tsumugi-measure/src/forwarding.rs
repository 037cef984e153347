//! `tsumugi perf forwarding`: the switch box beside the kernel's bridge, on the same NICs, in turn.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::Serialize;
use tsumugi_lab::child::Running;
use tsumugi_lab::{LabGuard, Spec, Wire};
use tsumugi_rail::switch::Hook;

use crate::choices::words;
use crate::conditions::Conditions;
use crate::machine::Machine;
use crate::output::Shown;
use crate::own_lab::{self, NIC, OwnLabError, PATIENCE};
use crate::progress::Progress;
use crate::ratio::Better;
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{self, Row};
use crate::seconds::seconds;
use crate::statistics::{OverRounds, median};

pub(crate) mod frames;

use frames::Delivered;

/// How the lab is called: `forwarding-PID-NUMBER`.
const LAB_STEM: &str = "forwarding";
/// What a figure takes besides, seconds: processes start, and everybody becomes known.
const STEP_S: f64 = 0.2;
/// How many times ahead of a measurement it is done for a moment, so that everybody is known to everybody.
const WARM_UP_S: f64 = 0.02;

const HELP: &str = "\
As root this makes four nodes of its own (network namespaces), joined by a Linux bridge, and removes them again. Each figure is \
taken with the switch's program on the bridge's ports (`tsumugi switch up`) and without, in turn and round by round, so that a \
disturbance meets both; the ratio is the median of the rounds' ratios.

  frames          60 B frames from one node to another, sent one by one through a packet socket, in a second
  frames, XDP     the same, and both nodes have the XDP receive path, as those that run Tsumugi do
  TCP stream      64 KiB writes. TCP hands the veth up to 64 KiB in one piece, which no wire carries
  UDP             round trip of 8 B
  ours, XDP       round trip of 8 B, and both nodes have the XDP receive path

On a veth the sender's CPU does everything up to the receiver's socket: the time of a frame is that of sending, forwarding and \
receiving together.

Examples:
  sudo tsumugi perf forwarding
  sudo tsumugi perf forwarding --hook generic --rounds 9
  sudo tsumugi perf forwarding --json | jq '.figures[] | {what, ratio}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ForwardingOptions {
    /// Where the switch's program gets frames [default: as `tsumugi switch up` chooses; tc for veths].
    #[arg(long, value_parser = PossibleValuesParser::new(words::<Hook>()).try_map(|word| word.parse::<Hook>()))]
    hook: Option<Hook>,
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds for each figure of a round.
    #[arg(long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    shown: Shown,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
enum What {
    #[strum(serialize = "frames")]
    Frames,
    #[strum(serialize = "frames, XDP")]
    FramesXdp,
    #[strum(serialize = "TCP stream")]
    Stream,
    #[strum(serialize = "UDP")]
    Udp,
    #[strum(serialize = "ours, XDP")]
    Ours,
}

impl What {
    /// From which node to which.
    const fn nodes(self) -> (usize, usize) {
        match self {
            What::Frames | What::Stream | What::Udp => (0, 1),
            What::FramesXdp | What::Ours => (2, 3),
        }
    }

    const fn better(self) -> Better {
        match self {
            What::Udp | What::Ours => Better::Lower,
            What::Frames | What::FramesXdp | What::Stream => Better::Higher,
        }
    }

    fn show(self, figure: f64) -> String {
        match self {
            What::Frames | What::FramesXdp => units::rate(figure),
            What::Stream => units::bandwidth(figure),
            What::Udp | What::Ours => units::time(figure),
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    what: String,
    /// `frames_per_s`, `gbit_s` or `round_trip_ns`.
    unit: &'static str,
    bridge: f64,
    switch: f64,
    /// The switch's by the bridge's: the median of the rounds' ratios.
    ratio: f64,
    /// How far the rounds' ratios are apart: (largest − smallest) / median.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_spread: Option<f64>,
    /// Which ratios are better.
    better: Better,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output {
    hook: String,
    figures: Vec<Figure>,
    measured: Conditions,
    machine: Machine,
}

pub(crate) fn run(options: &ForwardingOptions) -> crate::CommandResult {
    let machine = Machine { wire: "lab".to_owned(), mtu_bytes: Some(1500), ..Machine::here() };
    let output =
        measure(options).map(|(hook, figures, measured)| Output { hook, figures, measured, machine });
    own_lab::finish(output, options.shown, |output| {
        let header = output.measured.header();
        format!("{header}\n{}\n{}", table(&output.hook, &output.figures), output.machine.line())
    })
}

fn measure(options: &ForwardingOptions) -> Result<(String, Vec<Figure>, Conditions), OwnLabError> {
    use strum::VariantArray as _;
    own_lab::require_root("forwarding")?;
    let testbed = Testbed::make(options)?;
    let steps = u64::from(options.rounds) * 2 * What::VARIANTS.len() as u64;
    let mut measured = Conditions::rounds(options.rounds, options.time);
    let what = format!("{} figures × bridge and switch × {}", What::VARIANTS.len(), measured.amount());
    let expected_s = steps as f64 * (options.time + STEP_S);
    let progress = Progress::begin(options.shown, expected_s, &what, steps);
    let mut hook = String::new();
    // By what, the rounds' figures with the bridge alone and with the switch.
    let mut rounds = vec![[const { Vec::new() }; 2]; What::VARIANTS.len()];
    for round in 0..options.rounds as usize {
        // Each is first as often as the other.
        for at in [round % 2, 1 - round % 2] {
            if at == 1 {
                hook = own_lab::switch_up(&testbed.lab, options.hook)?;
            }
            for (rounds, what) in rounds.iter_mut().zip(What::VARIANTS) {
                progress.step(format!("{what}, {}", ["bridge", "switch"][at]));
                rounds[at].push(testbed.figure(*what, options.time, &mut measured)?);
            }
            if at == 1 {
                own_lab::switch(&testbed.lab, &["down"])?;
            }
        }
    }
    let figures = rounds.iter().zip(What::VARIANTS).filter_map(|(rounds, what)| Figure::of(*what, rounds));
    Ok((hook, figures.collect(), measured))
}

impl Figure {
    fn of(what: What, [bridge, switch]: &[Vec<f64>; 2]) -> Option<Figure> {
        let ratios = OverRounds::of(switch.iter().zip(bridge).map(|(switch, bridge)| switch / bridge))?;
        Some(Figure {
            what: what.to_string(),
            unit: match what {
                What::Frames | What::FramesXdp => "frames_per_s",
                What::Stream => "gbit_s",
                What::Udp | What::Ours => "round_trip_ns",
            },
            bridge: median(bridge.iter().copied())?,
            switch: median(switch.iter().copied())?,
            ratio: ratios.median,
            ratio_spread: ratios.spread,
            better: what.better(),
        })
    }
}

fn table(hook: &str, figures: &[Figure]) -> String {
    use strum::VariantArray as _;
    let mut columns = Columns::new(&["what", "bridge", "switch", "switch / bridge", "±"]);
    for figure in figures {
        let Some(what) = What::VARIANTS.iter().find(|what| what.to_string() == figure.what) else { continue };
        columns.row(vec![
            figure.what.clone(),
            what.show(figure.bridge),
            what.show(figure.switch),
            figure.better.told(figure.ratio),
            figure.ratio_spread.map_or_else(String::new, units::percent),
        ]);
    }
    format!("the kernel's bridge, alone and with the switch's program on its ports ({hook})\n{columns}")
}

/// Two nodes without the XDP receive path, and two with it, around one bridge.
struct Testbed {
    lab: LabGuard,
    /// They answer the measurements.
    _servers: Vec<Running>,
}

impl Testbed {
    fn make(options: &ForwardingOptions) -> Result<Testbed, OwnLabError> {
        let spec = Spec { nodes: 4, wire: Some(Wire::XdpSwitch), ..Spec::unique(LAB_STEM) };
        let lab = own_lab::make(&spec)?;
        for node in [2, 3] {
            // In the driver is where it is on real NICs; the switch's program there sends only to such nodes.
            own_lab::tool(&lab, node, &["up", NIC, "--endpoints", "2", "--xdp", "native"])?;
        }
        let mut servers = Vec::new();
        for node in [1, 3] {
            servers.push(Running::ours(Some((&lab, node)), &["perf", "serve"].map(str::to_owned))?);
        }
        if options.hook == Some(Hook::Native) {
            (0..4).try_for_each(|node| own_lab::settle_for_native(&lab, node))?;
        }
        own_lab::switch(&lab, &["down"])?;
        Ok(Testbed { lab, _servers: servers })
    }

    /// Measures, after a moment in which everybody becomes known.
    fn figure(&self, what: What, time_s: f64, measured: &mut Conditions) -> Result<f64, OwnLabError> {
        match what {
            What::Frames | What::FramesXdp => {
                let (from, to) = what.nodes();
                // The other way first: so the other is known.
                self.frames(to, from, WARM_UP_S)?;
                self.frames(from, to, WARM_UP_S)?;
                Ok(self.frames(from, to, time_s)?)
            }
            What::Stream => {
                let stream = ["bandwidth", "--transport", "tcp-block", "--size", "64K"];
                let row = self.row(what, &stream, time_s, measured)?;
                row.gbit_s.ok_or_else(|| OwnLabError::NoFigure("tsumugi perf bandwidth".to_owned(), "rate"))
            }
            What::Udp => {
                let bare = ["latency", "--transport", "udp", "--size", "8"];
                self.round_trip(what, &bare, time_s, measured)
            }
            What::Ours => {
                let ours = ["latency", "--size", "8", "--receive", "xdp", "--wait", "spin"];
                self.round_trip(what, &ours, time_s, measured)
            }
        }
    }

    fn round_trip(
        &self,
        what: What,
        arguments: &[&str],
        time_s: f64,
        measured: &mut Conditions,
    ) -> Result<f64, OwnLabError> {
        let row = self.row(what, arguments, time_s, measured)?;
        row.p50_ns.ok_or_else(|| OwnLabError::NoFigure("tsumugi perf latency".to_owned(), "time"))
    }

    fn row(
        &self,
        what: What,
        arguments: &[&str],
        time_s: f64,
        measured: &mut Conditions,
    ) -> Result<Row, OwnLabError> {
        let (from, to) = what.nodes();
        let (host, time) = (self.lab.nodes()[to].host.clone(), time_s.to_string());
        let mut all =
            vec!["perf", arguments[0], &host, "--json", "--quiet", "--rounds", "1", "--time", &time];
        all.extend(&arguments[1..]);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let output: row::Output = Running::ours(Some((&self.lab, from)), &all)?.json(PATIENCE)?;
        measured.add(&output.measured.sides);
        output.rows.into_iter().next().ok_or_else(|| OwnLabError::NoFigure(all.join(" "), "row"))
    }

    /// Frames that got from one node to another in a second.
    fn frames(&self, from: usize, to: usize, time_s: f64) -> Result<f64, OwnLabError> {
        let received =
            || self.node_prints(to, &["cat", &format!("/sys/class/net/{NIC}/statistics/rx_packets")]);
        let mac = self.node_prints(to, &["cat", &format!("/sys/class/net/{NIC}/address")])?;
        let arguments =
            ["perf", "forwarding-frames", mac.trim(), "--time", &time_s.to_string()].map(str::to_owned);
        let number = |text: String| text.trim().parse::<u64>().unwrap_or_default();
        let before = number(received()?);
        let delivered: Delivered = Running::ours(Some((&self.lab, from)), &arguments)?.json(PATIENCE)?;
        let after = number(received()?);
        Ok(after.saturating_sub(before) as f64 * 1e9 / delivered.time_ns.max(1) as f64)
    }

    fn node_prints(&self, node: usize, line: &[&str]) -> Result<String, OwnLabError> {
        let mut command = self.lab.command(node, line[0])?;
        command.args(&line[1..]);
        let out = Running::start(command, line.join(" "))?.output(PATIENCE)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_compared_round_by_round_and_the_table_says_what_is_better() {
        let rounds = [vec![4e5, 2e5, 4e5], vec![6e5, 3e5, 2e5]];
        let figure = Figure::of(What::Frames, &rounds).expect("rounds");
        assert_eq!((figure.ratio, figure.bridge, figure.better), (1.5, 4e5, Better::Higher));
        let other = Figure::of(What::Udp, &rounds).expect("rounds");
        let text = table("tc", &[figure, other]);
        let line = |start| text.lines().find(|line| line.starts_with(start)).expect("a line");
        assert!(line("frames").contains("1.50 × (higher is better)"), "{text}");
        assert!(line("UDP").contains("1.50 × (lower is better)"), "{text}");
    }
}
