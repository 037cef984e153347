//! Running the plan: rounds, rotation, and one process after the other.

use std::time::Duration;

use super::entry::{Entry, Program};
use super::plan::{FAULTS, Plan};
use super::results::{Measured, Results, Series};
use super::test::{Kind, Test};
use super::testbed::{Site, Testbed, two_cpus};
use super::{Arguments, CompareError};
use crate::conditions::Conditions;
use crate::cpu;
use crate::machine::Machine;
use crate::peers::Transport;
use crate::progress::{Progress, count};
use crate::report::words::LOAD_QUIET;
use crate::row::{Metric, Output, Row};
use crate::sizes;
use tsumugi_lab::child::{ChildError, Running};

/// Runs every round; everything that was started or made is gone afterwards, however this ends.
pub(super) fn run(
    arguments: &Arguments,
    plan: &Plan,
    in_lab: bool,
) -> Result<(Results, Conditions, Machine), CompareError> {
    let mut testbeds = Testbeds::new(plan, in_lab)?;
    let machine = Machine {
        wire: testbeds.any().wire(),
        mtu_bytes: in_lab.then(|| arguments.mtu()),
        ..Machine::here()
    };
    if !in_lab {
        let why = if arguments.loopback { "as asked" } else { "not root: no lab of two nodes can be made" };
        eprintln!("measuring over loopback ({why})");
    }
    if machine.load_average > LOAD_QUIET {
        eprintln!(
            "other processes are busy (load average {:.1} on {} CPUs): expect a large spread",
            machine.load_average, machine.cpus
        );
    }
    let mut results = Results::default();
    for test in &plan.tests {
        let copies = if test.kind == Kind::Pairs { 2 } else { 1 };
        let entries = test.entries.iter().flat_map(|entry| std::iter::repeat_n(entry, copies));
        let series = entries.map(|entry| Series { entry: entry.clone(), rounds: Vec::new() }).collect();
        results.tests.push(Measured { test: test.clone(), series });
    }
    let (tests, rounds) = (count(plan.tests.len(), "test"), count(plan.rounds as usize, "round"));
    let what = format!("{tests} × {rounds}, {}", count(plan.steps() as usize, "measurement"));
    let progress = Progress::begin(arguments.shown, plan.expected_s(), &what, plan.steps());
    for round in 0..plan.rounds as usize {
        for measured in &mut results.tests {
            let count = measured.test.entries.len();
            for turn in 0..count {
                // Rotated, so that nobody always runs after the same neighbour.
                let index = (turn + round) % count;
                let entry = &measured.test.entries[index];
                progress.step(message(round, &measured.test, entry));
                if measured.test.kind == Kind::Pairs {
                    let rows = testbeds.pairs(&measured.test, entry)?;
                    for (series, row) in measured.series.iter_mut().zip(rows) {
                        series.rounds.push(row);
                    }
                } else {
                    let row = testbeds.one(&measured.test, entry)?;
                    measured.series[index].rounds.push(row);
                }
            }
        }
    }
    Ok((results, testbeds.measured, machine))
}

fn message(round: usize, test: &Test, entry: &Entry) -> String {
    let what = match test.kind {
        Kind::Idle => "idle".to_owned(),
        Kind::Pairs => "two pairs".to_owned(),
        _ => format!("{} of {}", command(test.metric), sizes::show(test.size_bytes)),
    };
    format!("round {}: {what}, {}", round + 1, entry.name())
}

/// The subcommand of `tsumugi perf` that measures it.
fn command(metric: Metric) -> &'static str {
    match metric {
        Metric::RoundTrip => "latency",
        Metric::Bandwidth => "bandwidth",
        Metric::Rate => "rate",
        Metric::Overhead => "overhead",
        Metric::Idle => "idle",
        Metric::Overlap => "overlap",
    }
}

/// A lab of each kind that the plan needs; over loopback, one testbed for everything.
struct Testbeds {
    testbeds: Vec<(Site, Testbed)>,
    in_lab: bool,
    client_cpu: Option<String>,
    /// What was measured by so far.
    measured: Conditions,
}

/// Server 0 is pinned to a CPU of its own; 1 and 2 serve the two pairs that share two CPUs.
const PAIR_SERVERS: [usize; 2] = [1, 2];

/// The server of the round trips that keep the program busy beside another transport; shares two CPUs with it.
const BUSY_SERVER: usize = 1;

/// How long those round trips would go on, seconds: longer than any measurement beside them.
const BUSY_S: u32 = 600;

/// How long nothing may arrive of the longest messages, seconds: to get and to fill their memory takes some, one way or the other.
const LONG_TIMEOUT_S: u32 = 30;

/// How long they take to begin: processes start and connect.
const BUSY_BEGINS: Duration = Duration::from_millis(200);

/// Where an entry of a test is measured.
fn site(test: &Test, entry: &Entry) -> Site {
    Site { offloads: test.offloads, mtu_bytes: test.mtu_bytes, attached: entry.is_attached() }
}

impl Testbeds {
    fn new(plan: &Plan, in_lab: bool) -> Result<Testbeds, CompareError> {
        let (client_cpu, server_cpu) = two_cpus();
        let mut testbeds: Vec<(Site, Testbed)> = Vec::new();
        let wanted = |test: &Test| test.entries.iter().map(|entry| site(test, entry)).collect::<Vec<_>>();
        for site in plan.tests.iter().flat_map(wanted) {
            if testbeds.iter().any(|(made, _)| *made == site) {
                continue;
            }
            let mut testbed = if in_lab { Testbed::lab(site)? } else { Testbed::loopback() };
            testbed.serve(server_cpu.clone())?;
            let shares = |test: &Test| matches!(test.kind, Kind::Pairs | Kind::Coexistence);
            if plan.tests.iter().any(|test| shares(test) && wanted(test).contains(&site)) {
                for _ in PAIR_SERVERS {
                    testbed.serve(shared_cpus())?;
                }
            }
            testbeds.push((site, testbed));
        }
        let time_s = plan.tests.first().map(|test| test.time_s);
        let measured = Conditions { rounds: plan.rounds, time_s, ..Conditions::default() };
        Ok(Testbeds { testbeds, in_lab, client_cpu, measured })
    }

    fn any(&self) -> &Testbed {
        &self.testbeds.first().expect("a plan has tests, and a test has a testbed").1
    }

    fn testbed(&self, test: &Test, entry: &Entry) -> &Testbed {
        let wanted = site(test, entry);
        let found = self.testbeds.iter().find(|(site, _)| *site == wanted);
        &found.expect("a testbed was made for every entry of the plan").1
    }

    fn one(&mut self, test: &Test, entry: &Entry) -> Result<Row, CompareError> {
        let options = options(test, entry, self.client_cpu.as_deref());
        let busy = (entry.program == Some(Program::Busy)).then(|| self.busy(test, entry)).transpose()?;
        let process = self.testbed(test, entry).perf(command(test.metric), 0, &options)?;
        let mut row = self.row(test, process)?;
        row.program = entry.program.map(|program| program.into_str().to_owned());
        if let Some(mut busy) = busy {
            busy.check_running()?;
        }
        Ok(row)
    }

    /// Round trips through the XDP receive path, until they are dropped.
    fn busy(&self, test: &Test, entry: &Entry) -> Result<Running, CompareError> {
        let ours = Entry { wait: "adaptive", ..Entry::ours("udp", "xdp") };
        let time_s = f64::from(BUSY_S);
        let test =
            Test { kind: Kind::Main, metric: Metric::RoundTrip, size_bytes: 64, time_s, ..test.clone() };
        let options = options(&test, &ours, shared_cpus().as_deref());
        let mut busy = self.testbed(&test, entry).perf(command(test.metric), BUSY_SERVER, &options)?;
        std::thread::sleep(BUSY_BEGINS);
        busy.check_running()?;
        Ok(busy)
    }

    /// Two pairs at once on the same two CPUs.
    fn pairs(&mut self, test: &Test, entry: &Entry) -> Result<[Row; 2], CompareError> {
        let options = options(test, entry, shared_cpus().as_deref());
        let testbed = self.testbed(test, entry);
        let first = testbed.perf(command(test.metric), PAIR_SERVERS[0], &options)?;
        let second = testbed.perf(command(test.metric), PAIR_SERVERS[1], &options)?;
        Ok([self.row(test, first)?, self.row(test, second)?])
    }

    fn row(&mut self, test: &Test, process: Running) -> Result<Row, CompareError> {
        let shown = process.command().to_owned();
        // A TCP stream tries up to eight settings, each with warm-up and connection.
        let limit = Duration::from_secs_f64(30.0 + 16.0 * test.time_s);
        let output: Output = process.json(limit)?;
        self.measured.add(&output.measured.sides);
        let no_rows = || serde::de::Error::custom("it has no rows");
        let row = output.rows.into_iter().next();
        let mut row = row.ok_or_else(|| ChildError::Unreadable { command: shown, cause: no_rows() })?;
        if self.in_lab {
            row.offloads = Some(if test.offloads { "on" } else { "off" }.to_owned());
            row.mtu_bytes = Some(test.mtu_bytes);
        }
        Ok(row)
    }
}

/// The two CPUs that two pairs share.
fn shared_cpus() -> Option<String> {
    match cpu::allowed().0[..] {
        [first, second, ..] => Some(format!("{first},{second}")),
        _ => None,
    }
}

/// The options of `tsumugi perf` for one measurement.
fn options(test: &Test, entry: &Entry, cpus: Option<&str>) -> Vec<String> {
    let mut options: Vec<String> = ["--json", "--quiet", "--rounds", "1"].map(str::to_owned).into();
    if entry.in_place {
        options.push("--in-place".to_owned());
    }
    let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
    option("--time", test.time_s.to_string());
    option("--transport", entry.transport.into_str().to_owned());
    if let Some(mode) = entry.mode {
        option("--mode", mode.to_string());
    }
    if test.metric != Metric::Idle {
        option("--size", entry.size_bytes.unwrap_or(test.size_bytes).to_string());
    }
    if entry.transport == Transport::Tsumugi {
        option("--send", entry.send.to_owned());
        option("--receive", entry.receive.to_owned());
        option("--wait", entry.wait.to_owned());
        // Not every measurement has a choice of these.
        if entry.repeat != "selective" {
            option("--repeat", entry.repeat.to_owned());
        }
        if let Some(model) = entry.model.name() {
            option("--model", model);
        }
        if entry.size_bytes.is_some() {
            option("--timeout", LONG_TIMEOUT_S.to_string());
        }
        if entry.faults {
            option("--faults", FAULTS.to_owned());
        }
    }
    if let Some(cpus) = cpus {
        option("--cpu", cpus.to_owned());
    }
    options
}
