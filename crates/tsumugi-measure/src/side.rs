//! `tsumugi perf side`: what a node of a lab is, for measurements whose processes are not ours.

use std::process::ExitCode;

use clap::Args;
use tsumugi::{Config, Endpoint, ReceiveChoice};
use tsumugi_lab::Lab;
use tsumugi_lab::child::{ChildError, Running};

use crate::conditions::Side;
use crate::output;
use crate::own_lab::PATIENCE;

/// Options of this command.
#[derive(Args)]
pub(crate) struct SideOptions {
    /// Tell what an endpoint with this receive path uses, too.
    #[arg(long)]
    receive: Option<ReceiveChoice>,
}

pub(crate) fn run(options: &SideOptions) -> crate::CommandResult {
    let side = match options.receive {
        None => Side::here(),
        Some(receive) => {
            let endpoint = Endpoint::open(Config::default().receive(receive))?;
            // How others wait is not known.
            Side { wait: Vec::new(), ..Side::of(&endpoint, "") }
        }
    };
    output::line(serde_json::to_string(&side)?)?;
    Ok(ExitCode::SUCCESS)
}

/// What the first and the last node of a lab are, whose endpoints have this receive path if they have any.
pub(crate) fn of_lab(lab: &Lab, receive: Option<ReceiveChoice>) -> Result<[Side; 2], ChildError> {
    let arguments = ["perf", "side"].map(str::to_owned).into_iter();
    let arguments: Vec<String> = arguments.chain(receive.map(|path| format!("--receive={path}"))).collect();
    let of = |node: usize| Running::ours(Some((lab, node)), &arguments)?.json(PATIENCE);
    Ok([of(0)?, of(lab.nodes().len() - 1)?])
}
