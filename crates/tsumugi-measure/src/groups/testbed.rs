//! Nodes around a switch box that counts, and their processes.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::de::DeserializeOwned;
use tsumugi::{ReceiveChoice, SendChoice, Wait};
use tsumugi_lab::child::Running;
use tsumugi_lab::{LabGuard, Rate, Spec, Wire};
use tsumugi_rail::switch::Hook;

use super::process::PORT;
use super::task::Task;
use crate::choices::{any_of, words};
use crate::conditions::{Conditions, Told};
use crate::cpu;
use crate::machine::Machine;
use crate::output::Shown;
use crate::own_lab::{self, NIC, OwnLabError, PATIENCE};
use crate::progress::Progress;

/// How the lab is called: `groups-PID-NUMBER`.
const LAB_STEM: &str = "groups";

/// What a step takes besides, seconds: processes start, connect and end.
const STEP_S: f64 = 0.5;
/// What making the lab takes, seconds.
const LAB_S: f64 = 1.0;

/// Options that measurements of groups have in common.
#[derive(Args, Clone, Debug)]
pub(super) struct Common {
    /// Where the switch box's program gets frames [default: as `tsumugi switch up` chooses; tc for veths].
    #[arg(long, value_parser = PossibleValuesParser::new(words::<Hook>()).try_map(|word| word.parse::<Hook>()))]
    pub(super) hook: Option<Hook>,
    /// How the processes wait [default: spin where there is a CPU for each, else adaptive].
    #[arg(long, value_parser = any_of::<Wait>().try_map(|word| word.parse::<Wait>()))]
    pub(super) wait: Option<Wait>,
    /// How they send [default: auto].
    #[arg(long, value_parser = any_of::<SendChoice>().try_map(|word| word.parse::<SendChoice>()))]
    pub(super) send: Option<SendChoice>,
    /// Their receive path. The nodes have the XDP program unless it is `socket`.
    #[arg(long, default_value_t = ReceiveChoice::Xdp, value_parser = any_of::<ReceiveChoice>().try_map(|word| word.parse::<ReceiveChoice>()))]
    receive: ReceiveChoice,
    /// Rounds, each with new processes; figures are medians over them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) shown: Shown,
}

impl Common {
    /// How processes wait when there are so many.
    pub(super) fn wait(&self, nodes: u32) -> Wait {
        let is_room = nodes as usize <= cpu::allowed().0.len();
        self.wait.unwrap_or(if is_room { Wait::Spin } else { Wait::Adaptive })
    }

    /// How far it is, of so many steps in each round that take so many seconds; `what`, as in `3 sizes`.
    pub(super) fn progress(&self, what: &str, steps: usize, step_s: f64, measured: &Conditions) -> Progress {
        let steps = steps as u64 * u64::from(self.rounds);
        let expected_s = steps as f64 * (step_s + STEP_S) + LAB_S;
        Progress::begin(self.shown, expected_s, &format!("{what} × {}", measured.amount()), steps)
    }
}

/// The machine that all of it runs on.
pub(super) fn machine() -> Machine {
    Machine { wire: "lab (xdp-switch)".to_owned(), mtu_bytes: Some(1500), ..Machine::here() }
}

/// A lab.
pub(super) struct Testbed<'o> {
    lab: LabGuard,
    /// Where the program of the switch box runs.
    pub(super) hook: String,
    options: &'o Common,
    /// What was measured by so far.
    measured: RefCell<Conditions>,
}

impl Testbed<'_> {
    pub(super) fn make(
        nodes: u32,
        options: &Common,
        measured: Conditions,
    ) -> Result<Testbed<'_>, OwnLabError> {
        let wire = Some(Wire::XdpSwitch);
        let lab = own_lab::make(&Spec { nodes, wire, ..Spec::unique(LAB_STEM) })?;
        for node in 0..nodes as usize {
            if options.receive != ReceiveChoice::Socket {
                let port = PORT.to_string();
                // In the driver is where it is on real NICs; the switch's program there sends only to such nodes.
                let up = ["up", NIC, "--endpoints", "1", "--port", &port, "--xdp", "native"];
                own_lab::tool(&lab, node, &up)?;
            }
            if options.hook == Some(Hook::Native) {
                own_lab::settle_for_native(&lab, node)?;
            }
        }
        own_lab::switch(&lab, &["down"])?;
        let hook = own_lab::switch_up(&lab, options.hook)?;
        Ok(Testbed { lab, hook, options, measured: measured.into() })
    }

    /// What was measured by.
    pub(super) fn measured(self) -> Conditions {
        self.measured.into_inner()
    }

    /// Has the first so many nodes do and time something: the median of each task, ns.
    pub(super) fn time(&self, nodes: u32, tasks: &[Task], time_s: f64) -> Result<Vec<f64>, OwnLabError> {
        let mut arguments: Vec<String> = tasks.iter().map(|task| format!("--task={task}")).collect();
        arguments.push(format!("--time={time_s}"));
        let cpus = cpu::allowed().0;
        let cpu = |rank: usize| cpus[rank % cpus.len()];
        self.run(
            "group-member",
            nodes,
            (self.options.wait(nodes), &cpu),
            &arguments,
            time_s * tasks.len() as f64,
        )
    }

    /// Has what a node sends go through the box on another CPU than the node's, as if it came over a wire: packet by packet, and none of that
    /// in the node's time. `to`: that CPU.
    pub(super) fn keep_apart(&self, node: usize, to: usize) -> Result<(), OwnLabError> {
        for node in 0..self.lab.nodes().len() {
            let settings = ["-K", NIC, "gso", "off", "tso", "off", "tx-udp-segmentation", "off"];
            let mut told = self.lab.command(node, "ethtool")?;
            told.args(settings);
            Running::start(told, format!("ethtool {}", settings.join(" ")))?.output(PATIENCE)?;
        }
        let port = format!("/sys/class/net/n{node}-{NIC}");
        // What comes behind the driver is handed to a CPU; what comes in it, to a thread.
        let mut line = format!(
            "mount -t sysfs sysfs /sys && echo {:x} > {port}/queues/rx-0/rps_cpus",
            1u128 << to.min(127)
        );
        if self.hook == Hook::Native.to_string() {
            line = format!("{line} && echo 1 > {port}/threaded");
        }
        let mut set = self.lab.switch_command("unshare")?;
        set.args(["--mount", "sh", "-c", &line]);
        Running::start(set, "unshare --mount sh".to_owned())?.output(PATIENCE)?;
        Ok(())
    }

    /// Gives a node's link a rate, for what it sends by sockets.
    pub(super) fn limit(&self, node: usize, rate: Rate) -> Result<(), OwnLabError> {
        let rate = format!("{}bit", rate.bits_per_s);
        let shaper = [
            "qdisc", "replace", "dev", NIC, "root", "tbf", "rate", &rate, "burst", "64kb", "latency", "20ms",
        ];
        let mut told = self.lab.command(node, "tc")?;
        told.args(shaper);
        Running::start(told, format!("tc {}", shaper.join(" ")))?.output(PATIENCE)?;
        Ok(())
    }

    /// Runs one of this program's measurements in the first so many nodes, which takes about so long; returns what the first of them
    /// prints.
    pub(super) fn run<T: DeserializeOwned>(
        &self,
        command: &str,
        nodes: u32,
        (wait, cpu): (Wait, &dyn Fn(usize) -> usize),
        arguments: &[String],
        takes_s: f64,
    ) -> Result<T, OwnLabError> {
        let hosts = &self.lab.nodes()[..nodes as usize];
        let start = |rank: usize| {
            let mut all = ["perf", command].map(str::to_owned).to_vec();
            all.extend(hosts.iter().map(|node| format!("--host={}", node.nics[0].address)));
            all.push(format!("--rank={rank}"));
            all.push(format!("--receive={}", self.options.receive));
            all.push(format!("--send={}", self.options.send.unwrap_or(SendChoice::Auto)));
            all.push(format!("--wait={wait}"));
            all.extend(arguments.iter().cloned());
            all.push(format!("--cpu={}", cpu(rank)));
            Running::ours(Some((&self.lab, rank)), &all)
        };
        let members = (0..hosts.len()).map(start).collect::<Result<Vec<_>, _>>()?;
        // What is slow to begin with takes longer than is planned.
        let limit = PATIENCE + Duration::from_secs_f64(4.0 * takes_s);
        let told = members.into_iter().map(|member| member.json(limit));
        let told = told.collect::<Result<Vec<Told<T>>, _>>()?;
        self.measured.borrow_mut().add_group(&told);
        let first = told.into_iter().next().map(|told| told.found);
        first.ok_or_else(|| OwnLabError::NoFigure(format!("tsumugi perf {command}"), "figures"))
    }
}
