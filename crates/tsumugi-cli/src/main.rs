//! The `tsumugi` command: a cluster in a box, its measurements, and what this machine can do.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod compare;
mod doctor;
mod lab;
mod measure;
mod peers;
mod perf;
mod report;

/// Microsecond messages on ordinary Ethernet.
#[derive(Parser)]
#[command(name = "tsumugi", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this machine can do, what is missing, and the command that mends it.
    Doctor(doctor::Arguments),
    /// Make, enter and remove a cluster on this machine (namespaces joined by a switch node; root).
    Lab(lab::Arguments),
    /// Measure latency, bandwidth, message rate and overhead between two hosts.
    Perf(Box<perf::Arguments>),
    /// Measure Tsumugi beside TCP and UDP on one wire, interleaved, in one table.
    Compare(Box<compare::Arguments>),
}

fn main() -> ExitCode {
    // clap exits with 2 on wrong usage by itself; a command that ran and failed exits with 1.
    let outcome = match Arguments::parse().command {
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Perf(arguments) => perf::run(*arguments),
        Command::Compare(arguments) => compare::run(*arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tsumugi: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// What every command returns: its exit code, or an error that `main` prints.
type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;
