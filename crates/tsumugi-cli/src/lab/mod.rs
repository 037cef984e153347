//! `tsumugi lab`: a cluster on one machine.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use tsumugi_lab::interrupt::{interrupted, watch_interrupts};
use tsumugi_lab::{Lab, LabError, Loss, NICS_MAX, NODES_MAX, Node, Rate, Removed, Spec, Wire};
use tsumugi_measure::output::output;
use tsumugi_measure::sizes;

pub(crate) mod mpiexec;
mod ssh;

/// The lab that is meant when none is named.
const DEFAULT_NAME: &str = "lab";
/// What the switch of a lab is called where nodes have names.
const SWITCH: &str = "switch";
/// What shells return for a command that does not exist, and for one that cannot be run.
const NO_SUCH_COMMAND: u8 = 127;
const CANNOT_RUN: u8 = 126;

/// Options of this command.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a lab.
    #[command(after_help = UP_HELP)]
    Up(Up),
    /// Run a command in a node; its exit code is returned.
    Exec(Exec),
    /// Say which labs there are, with their nodes, addresses and processes.
    Status(StatusArguments),
    /// Remove a lab, also a half-made one, and end whatever still runs in it.
    Down(Down),
    /// Run an MPI job across the nodes of a lab.
    #[command(after_help = mpiexec::HELP)]
    Mpiexec(mpiexec::Mpiexec),
    /// Run a command in a node, with ssh's arguments: for mpiexec and other launchers.
    #[command(disable_help_flag = true, after_help = ssh::HELP)]
    Ssh(ssh::Ssh),
}

const UP_HELP: &str = "\
The nodes are called n0, n1, …; NIC k of node i is 'nick' with the address 10.77.k.(i+1), MTU as given, no \
IPv6. Everything is reached by name inside: n1, or n1-nic1 for the second NIC. 'hosts' in the lab's folder \
lists every node with its addresses, 'ssh' there is a launcher for mpiexec.

The wire is direct for two nodes without --rate, a switch otherwise; 'lab status' shows which it is. --rate shapes the \
switch's port (token bucket, 4 ms of queue) and the NIC, in each direction. --wire xdp-switch is the switch with the program \
of `tsumugi switch`; it is a node of its own, as in `tsumugi lab exec switch -- tsumugi switch status`.

64 B UDP round trip, both ends spinning (2-core VM, Linux 6.18, median of three runs' medians): direct 5.3 µs, \
as a veth pair made by hand; switch 6.8 µs; router 6.8 µs.";

/// What to make.
#[derive(Args)]
struct Up {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// How many nodes (1 to 64).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: u32,
    /// How many NICs per node (1 to 8), each on a network of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(NICS_MAX)))]
    nics: u32,
    /// MTU of the NICs, in bytes (576 to 65535).
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = sizes::mtu)]
    mtu: u32,
    /// Rate of every link in bits per second, for example 1gbit, 2.5G or 100M; as fast as it goes if left out.
    #[arg(long, value_name = "BITS")]
    rate: Option<Rate>,
    /// Share of the packets that every link loses in each direction, for example 0.1%; none if left out.
    #[arg(long)]
    loss: Option<Loss>,
    /// Whether NICs segment, coalesce and checksum for the stack, as real ones do.
    #[arg(long, default_value = "on")]
    offloads: Switch,
    /// How the NICs are joined; see below for the default.
    #[arg(long)]
    wire: Option<Wire>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// What to run where.
#[derive(Args)]
struct Exec {
    /// The lab's name; inside a node, the lab of that node.
    #[arg(long, env = tsumugi_lab::LAB_VARIABLE, hide_env = true, default_value = DEFAULT_NAME)]
    name: String,
    /// The node's name, such as n0, or one of its addresses; `switch`: the switch of a lab with an xdp-switch.
    node: String,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Args)]
struct StatusArguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Down {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME, conflicts_with = "all")]
    name: String,
    /// Remove every lab on this machine.
    #[arg(long)]
    all: bool,
}

impl Arguments {
    /// Whether it is about labs as such, rather than about one.
    pub(crate) fn looks_at_labs(&self) -> bool {
        matches!(self.action, Action::Up(_) | Action::Status(_))
    }
}

/// Removes labs that were to end with processes which have been killed.
pub(crate) fn remove_abandoned() {
    for (name, removed) in tsumugi_lab::remove_abandoned() {
        match removed {
            Ok(_) => eprintln!("tsumugi: removed the lab {name} of a process that was killed"),
            Err(error) => eprintln!("tsumugi: removing the lab {name} of a process that was killed: {error}"),
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> tsumugi_measure::CommandResult {
    let result = match arguments.action {
        Action::Up(options) => up(options),
        Action::Exec(options) => return Ok(exec(&options)),
        Action::Status(options) => return status(&options),
        Action::Down(options) => down(&options),
        Action::Mpiexec(options) => return Ok(mpiexec::run(&options)),
        Action::Ssh(options) => return Ok(ssh::run(options)),
    };
    match result {
        Ok(code) => Ok(code),
        Err(error) => Ok(complain(&error)),
    }
}

/// Prints an error; impossible wishes are wrong usage, everything else is failed work.
fn complain(error: &LabError) -> ExitCode {
    eprintln!("tsumugi lab: {error}");
    ExitCode::from(if matches!(error, LabError::Spec(_)) { 2 } else { 1 })
}

fn up(options: Up) -> Result<ExitCode, LabError> {
    let spec = Spec {
        name: options.name,
        nodes: options.nodes,
        nics: options.nics,
        mtu: options.mtu,
        rate: options.rate,
        loss: options.loss,
        offloads: options.offloads == Switch::On,
        wire: options.wire,
        temporary: false,
    };
    // From here on signals ask instead of killing; the lab is undone at the next step.
    if let Err(source) = watch_interrupts() {
        return Err(LabError::System { what: "watch", path: "signals".into(), source });
    }
    let lab = Lab::up_watched(&spec, &mut |_| !interrupted());
    // A child that the same Ctrl-C ended fails before the flag is looked at: it was an interruption too.
    let lab = match lab {
        Err(LabError::Tool { .. }) if interrupted() => {
            return Err(LabError::Interrupted { name: spec.name });
        }
        other => other?,
    };
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tsumugi"));
    let launcher = lab.write_launcher(&program)?;
    let name = if lab.name() == DEFAULT_NAME { String::new() } else { format!(" --name {}", lab.name()) };
    eprintln!("Lab '{}' is up: {}.", lab.name(), describe(&lab));
    eprintln!("  run     tsumugi lab exec{name} n0 -- ping -c1 {}", lab.nodes()[lab.nodes().len() - 1].host);
    eprintln!("  launch  mpiexec -launcher-exec {}", launcher.display());
    eprintln!("  remove  tsumugi lab down{name}");
    Ok(ExitCode::SUCCESS)
}

/// The lab in one line.
fn describe(lab: &Lab) -> String {
    let spec = lab.spec();
    let count = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let rate = spec.rate.map_or_else(String::new, |rate| format!(", {rate}"));
    let loss = spec.loss.map_or_else(String::new, |loss| format!(", {loss} lost"));
    format!(
        "{}, {} each, wire {}, MTU {} B{rate}{loss}, offloads {}",
        count(spec.nodes, "node"),
        count(spec.nics, "NIC"),
        lab.wire(),
        spec.mtu,
        if spec.offloads { "on" } else { "off" }
    )
}

fn exec(options: &Exec) -> ExitCode {
    let prepared = Lab::open(&options.name).and_then(|lab| {
        // `required` makes clap refuse an empty command.
        let program = &options.command[0];
        let mut command = match options.node.as_str() {
            SWITCH => lab.switch_command(program)?,
            node => lab.command(lab.find_node(node)?, program)?,
        };
        command.args(&options.command[1..]);
        Ok(command)
    });
    match prepared {
        // Replaces this process, so that signals and the exit code are the command's own.
        Ok(mut command) => cannot_run(&options.command[0], &command.exec()),
        Err(error) => complain(&error),
    }
}

/// What a shell says of a command that could not be started.
fn cannot_run(program: &OsString, error: &io::Error) -> ExitCode {
    eprintln!("tsumugi lab: cannot run '{}' in the node: {error}", program.to_string_lossy());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NO_SUCH_COMMAND } else { CANNOT_RUN })
}

/// One lab in the answer of `status --json`.
#[derive(Serialize)]
struct LabStatus {
    name: String,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire: Option<Wire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Spec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launcher: Option<PathBuf>,
    nodes: Vec<NodeStatus>,
}

#[derive(Serialize)]
struct NodeStatus {
    #[serde(flatten)]
    node: Node,
    processes: Vec<i32>,
}

#[derive(Serialize)]
struct AllStatus {
    labs: Vec<LabStatus>,
}

fn status_of(name: String) -> (LabStatus, String) {
    match Lab::open(&name) {
        Ok(lab) => {
            let with_processes = |(index, node): (usize, &Node)| NodeStatus {
                node: node.clone(),
                processes: lab.processes(index),
            };
            let status = LabStatus {
                name,
                complete: true,
                problem: None,
                wire: Some(lab.wire()),
                spec: Some(lab.spec().clone()),
                host_file: Some(lab.host_file()),
                launcher: Some(lab.launcher()),
                nodes: lab.nodes().iter().enumerate().map(with_processes).collect(),
            };
            (status, describe(&lab))
        }
        Err(error) => {
            let problem = Some(error.to_string());
            let (wire, spec, host_file, launcher, nodes) = (None, None, None, None, Vec::new());
            let status = LabStatus { name, complete: false, problem, wire, spec, host_file, launcher, nodes };
            (status, "not complete".to_owned())
        }
    }
}

fn status(options: &StatusArguments) -> tsumugi_measure::CommandResult {
    let labs: Vec<_> = Lab::list().into_iter().map(status_of).collect();
    let mut out = output();
    if options.json {
        let all = AllStatus { labs: labs.into_iter().map(|(status, _)| status).collect() };
        writeln!(out, "{}", serde_json::to_string(&all)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if labs.is_empty() {
        writeln!(out, "No labs. Make one with: tsumugi lab up")?;
    }
    for (lab, summary) in labs {
        writeln!(out, "{}: {summary}", lab.name)?;
        if let Some(problem) = lab.problem {
            writeln!(out, "  {problem}")?;
        }
        for NodeStatus { node, processes } in lab.nodes {
            let nics: Vec<_> = node.nics.iter().map(|nic| format!("{} {}", nic.name, nic.address)).collect();
            let running = match processes.len() {
                0 => String::new(),
                1 => "  (1 process)".to_owned(),
                more => format!("  ({more} processes)"),
            };
            writeln!(out, "  {:<4} {}{running}", node.host, nics.join("  "))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn down(options: &Down) -> Result<ExitCode, LabError> {
    let report = |name: &str, removed: Removed| {
        let ended = match removed.processes {
            0 => String::new(),
            1 => ", 1 process ended".to_owned(),
            more => format!(", {more} processes ended"),
        };
        eprintln!("Lab '{name}' is removed{ended}.");
    };
    if !options.all {
        report(&options.name, tsumugi_lab::down(&options.name)?);
        return Ok(ExitCode::SUCCESS);
    }
    let removed = tsumugi_lab::down_all()?;
    if removed.is_empty() {
        eprintln!("No labs.");
    }
    removed.into_iter().for_each(|(name, what)| report(&name, what));
    Ok(ExitCode::SUCCESS)
}
