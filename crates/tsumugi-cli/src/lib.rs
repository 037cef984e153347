//! The commands: `tsumugi` (a cluster in a box, its measurements, what this machine can do, the XDP receive path) and
//! `tsumugi-mpiexec`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tsumugi::Networks;
use tsumugi_lab::child;
use tsumugi_lab::kernel_log::KernelLog;
use tsumugi_measure::log::{self, Level};
use tsumugi_measure::{compare, eval, machine, output, perf};

/// As the standard library's, but that nobody hears it is no reason to die.
macro_rules! eprintln {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

mod command_line;
mod doctor;
mod lab;
mod layout;
pub mod mpiexec;
pub mod pages;
mod status;
mod switch;
mod top;
mod xdp;

/// The heading of options that each command takes.
const OF_ALL: &str = "Options of all commands";

/// Microsecond messages on ordinary Ethernet.
#[derive(Parser)]
#[command(name = "tsumugi", version = command_line::VERSION, propagate_version = true)]
struct Arguments {
    /// NICs and networks to use, with ! before what not to use: names (eth0, ib*), addresses, networks (10.1.0.0/16), and
    /// commas between them. As the environment variable TSUMUGI_NETWORKS.
    #[arg(long, global = true, help_heading = OF_ALL, value_name = "LIST", allow_hyphen_values = true)]
    networks: Option<Networks>,
    /// Write to standard error what the library does, up to this level: off, error, warn, info, debug or trace.
    #[arg(long, global = true, help_heading = OF_ALL, value_name = "LEVEL", env = log::VARIABLE, hide_env_values = true)]
    log: Option<log::Verbosity>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this machine can do, what is missing, and the command that mends it.
    Doctor(doctor::Arguments),
    /// Put the XDP receive path on NICs, for unprivileged processes to use (root).
    Up(xdp::Up),
    /// Take the XDP receive path off NICs (root).
    Down(xdp::Down),
    /// Show the NICs with the XDP receive path, its endpoints with who may use them and what they counted, and what processes
    /// with endpoints are doing.
    Status(status::StatusArguments),
    /// Show what processes with endpoints are doing, on a screen that refreshes: rates, peers, paths, and what limits them.
    Top(top::TopArguments),
    /// Make this host a switch box: forward frames between NICs by XDP or tc, as an Ethernet switch does (root).
    Switch(switch::Arguments),
    /// Make, enter and remove a cluster on this machine (namespaces joined by a switch node; root).
    Lab(lab::Arguments),
    /// Measure latency, bandwidth, message rate and overhead between two hosts.
    Perf(Box<perf::Arguments>),
    /// Measure Tsumugi beside TCP, UDP and bare Ethernet frames on one wire, interleaved, in one table.
    Compare(Box<compare::Arguments>),
    /// Repeat evaluations of the papers that Tsumugi builds on, beside their figures.
    Eval(eval::Arguments),
    /// Print what completes this command's words in a shell.
    Completions(pages::Completions),
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    ManPages(pages::ManPages),
}

impl Command {
    /// Whether it may make labs, and so removes first what others that were killed have left.
    fn makes_labs(&self) -> bool {
        let may = match self {
            Command::Doctor(_) | Command::Perf(_) | Command::Compare(_) | Command::Eval(_) => true,
            Command::Lab(arguments) => arguments.looks_at_labs(),
            Command::Up(_) | Command::Down(_) | Command::Status(_) | Command::Top(_) | Command::Switch(_) => {
                false
            }
            Command::Completions(_) | Command::ManPages(_) => false,
        };
        may && rustix::process::geteuid().is_root()
    }

    /// Whether it does to the machine what only root may do, so that the kernel's complaints are its failure.
    fn is_watched(&self) -> bool {
        let only_looks = match self {
            Command::Switch(arguments) => arguments.only_looks(),
            Command::Doctor(_)
            | Command::Status(_)
            | Command::Top(_)
            | Command::Completions(_)
            | Command::ManPages(_) => true,
            _ => false,
        };
        !only_looks && rustix::process::geteuid().is_root()
    }
}

/// Runs `tsumugi`.
#[must_use]
pub fn main() -> ExitCode {
    // `doctor` has started this process to load a library that is not ours.
    if let Some(answer) = tsumugi_mpi::libfabric::answer() {
        println!("{answer}");
        return ExitCode::SUCCESS;
    }
    // clap exits with 2 on wrong usage by itself; a command that ran and failed exits with 1.
    let Arguments { networks, log: verbosity, command } = command_line::parse();
    machine::name_version(command_line::VERSION);
    let networks = networks.map(|networks| (Networks::VARIABLE, networks.to_string()));
    let said = verbosity.map(|verbosity| (log::VARIABLE, verbosity.to_string()));
    for (variable, value) in networks.into_iter().chain(said) {
        // Every endpoint of this process asks the environment, and so do those of its children.
        // SAFETY: this is the only thread yet.
        unsafe { std::env::set_var(variable, value) };
    }
    log::start(verbosity);
    if command.makes_labs() && !child::has_parent() {
        lab::remove_abandoned();
    }
    let mut kernel = command.is_watched().then(KernelLog::watch);
    let result = match command {
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Up(arguments) => xdp::up(&arguments),
        Command::Down(arguments) => xdp::down(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Perf(arguments) => perf::run(*arguments),
        Command::Compare(arguments) => compare::run(*arguments),
        Command::Eval(arguments) => eval::run(arguments),
        Command::Completions(arguments) => pages::completions(&arguments),
        Command::ManPages(arguments) => pages::man_pages(&arguments),
    };
    let complaints = kernel.as_mut().and_then(KernelLog::complaints);
    if let Some(complaints) = &complaints {
        log::say(Level::ERROR, complaints);
    }
    match result {
        // Whatever came of it: a kernel that complains may be using memory that it has given away.
        Ok(_) if complaints.is_some() => ExitCode::FAILURE,
        Ok(code) => code,
        Err(error) if output::is_closed(&*error) => ExitCode::FAILURE,
        Err(error) => {
            let causes = std::iter::successors(error.source(), |cause| cause.source());
            let causes: String = causes.map(|cause| format!("\n  because: {cause}")).collect();
            log::say(Level::ERROR, format_args!("{error}{causes}"));
            ExitCode::FAILURE
        }
    }
}

/// Does something to its end, whatever the user types meanwhile: signals wait.
fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    let mut before = SigSet::empty();
    // Failing would only mean that signals do not wait.
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before));
    let done = work();
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    done
}
