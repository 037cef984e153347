//! `tsumugi eval`: the papers' evaluations on this machine, as reports, and MPI's beside TCP.

use clap::{Args, Subcommand};

pub mod bonding;
mod collectives;
pub mod mpi;

/// Options of this command.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Several NICs used as one: every policy in the matrix of senders and NICs of P2 (Yoshida et al., several NICs
    /// together, 2014), beside its figures.
    Bonding(Box<bonding::Arguments>),
    /// MPI: what two ranks get over Tsumugi, beside the same MPI over TCP.
    Mpi(mpi::Arguments),
    /// MPI's collectives: what a program gains by `tsumugi-mpiexec --collectives`, by messages and by a switch box.
    Collectives(collectives::Arguments),
    /// Sends to several receivers at once: a part of `bonding`, run in a node of its lab.
    #[command(hide = true)]
    Source(bonding::source::SourceOptions),
    /// Receives from one sender: a part of `bonding`, run in a node of its lab.
    #[command(hide = true)]
    Sink(bonding::sink::SinkOptions),
}

/// Runs it.
pub fn run(arguments: Arguments) -> crate::CommandResult {
    tsumugi_lab::child::die_with_parent();
    tsumugi_lab::interrupt::watch_interrupts()?;
    match arguments.command {
        Command::Bonding(arguments) => bonding::run(&arguments),
        Command::Mpi(arguments) => mpi::run(&arguments),
        Command::Collectives(arguments) => collectives::run(&arguments),
        Command::Source(options) => bonding::source::run(&options),
        Command::Sink(options) => bonding::sink::run(&options),
    }
}
