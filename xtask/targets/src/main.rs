//! Judges what `tsumugi compare`, `eval bonding` and `eval mpi` measured by the project's targets.
//!
//! A package of its own, because it reads rows as the command writes them, and `xtask` depends on nothing. `cargo xtask targets`
//! runs it.

use std::process::ExitCode;

use measured::{Measured, Rows};
use target::Target;
use tsumugi_measure::machine::Machine;

mod bonding;
mod comparison;
mod lengths;
mod measured;
mod mpi;
mod table;
mod target;

const USAGE: &str = "\
cargo xtask targets [--check] [FILE...]

FILE is the output of `tsumugi compare --json`, `tsumugi eval bonding --json` or `tsumugi eval mpi --json`. Without one, all are
measured; without root, no MPI.

  --check   exit with 1 when a target is missed";

fn main() -> ExitCode {
    let (options, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    if files.is_empty() || options.iter().any(|option| option != "--check") {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let (mut missed, mut unreadable) = (false, false);
    for file in &files {
        match read(file) {
            Ok(measured) => {
                let targets = evaluate(&measured.rows);
                missed |= targets.iter().any(|target| target.met() == Some(false));
                let Machine { wire, cpu, load_average, .. } = measured.machine;
                println!(
                    "{file}: {wire}; {cpu}; load average {load_average:.1} before\n{}",
                    table::text(&targets)
                );
            }
            Err(error) => {
                eprintln!("targets: cannot read {file}: {error}");
                unreadable = true;
            }
        }
    }
    let failed = unreadable || missed && !options.is_empty();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(file: &str) -> Result<Measured, Box<dyn std::error::Error>> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

fn evaluate(rows: &Rows) -> Vec<Target> {
    match rows {
        Rows::Comparison(rows) => [comparison::evaluate(rows), lengths::evaluate(rows)].concat(),
        Rows::Bonding(rows) => bonding::evaluate(rows),
        Rows::Mpi(rows) => mpi::evaluate(rows),
    }
}
