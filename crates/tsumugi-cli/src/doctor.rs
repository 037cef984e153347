//! See the crate's `main.rs`.

use std::process::ExitCode;

/// Options of this command.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: Arguments) -> crate::Outcome {
    Ok(ExitCode::SUCCESS)
}
