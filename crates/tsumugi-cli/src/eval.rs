//! `tsumugi eval`: the papers' evaluations on this machine, as reports, and MPI's beside TCP.

use clap::{Args, Subcommand};

mod bonding;
mod case;
mod contender;
mod flow;
mod kernel;
mod mpi;
pub(crate) mod paper;
pub(crate) mod results;
mod simulated;
mod sink;
mod source;
pub(crate) mod table;
mod tcp;
mod testbed;

pub(crate) use bonding::Evaluation;
pub(crate) use case::Case;
#[cfg(test)]
pub(crate) use contender::Contender;

/// Options of this command.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Several NICs used as one: every policy in P2's matrix of senders and NICs, beside P2's figures.
    Bonding(Box<bonding::Arguments>),
    /// MPI: what two ranks get over Tsumugi, beside the same MPI over TCP.
    Mpi(mpi::Arguments),
    /// Sends to several receivers at once: a part of `bonding`, run in a node of its lab.
    #[command(hide = true)]
    Source(source::SourceOptions),
    /// Receives from one sender: a part of `bonding`, run in a node of its lab.
    #[command(hide = true)]
    Sink(sink::SinkOptions),
}

pub(crate) fn run(arguments: Arguments) -> crate::CommandResult {
    crate::child::die_with_parent();
    crate::peers::watch_interrupts()?;
    match arguments.command {
        Command::Bonding(arguments) => bonding::run(&arguments),
        Command::Mpi(arguments) => mpi::run(&arguments),
        Command::Source(options) => source::run(&options),
        Command::Sink(options) => sink::run(&options),
    }
}
