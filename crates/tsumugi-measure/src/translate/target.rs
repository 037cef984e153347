//! The process that has the window.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tsumugi::{Config, Endpoint, ReceiveChoice, ReceiveError, Replacement, Rights, Wait};

use crate::conditions::Side;
use crate::cpu::{Cpus, pin};
use crate::output;
use tsumugi_lab::interrupt::interrupted;

/// The channel on which the target is asked for its counters.
pub(super) const CHANNEL: u16 = 1;
/// What it is asked for, and answers in this order.
const COUNTERS: [&str; 2] = ["direct_writes", "untranslated"];
/// How often it looks for Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Options of this command.
#[derive(Args)]
pub(crate) struct TargetOptions {
    /// Pages of the window.
    #[arg(long)]
    pages: u32,
    #[arg(long)]
    replacement: Replacement,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

/// Says where the window is, and answers for ever.
pub(crate) fn run(options: &TargetOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let (wait, replacement) = (Wait::Spin, options.replacement);
    let endpoint = Endpoint::open(
        Config::default()
            .wait(wait)
            .replacement(replacement)
            .receive(ReceiveChoice::Xdp)
            .accept_unknown(true),
    )?;
    let channel = endpoint.channel(CHANNEL)?;
    let remote = endpoint.remote();
    let region = remote.window(options.pages as usize * 4096)?;
    let registration = remote.register(&region.all(), Rights::WRITE)?;
    let target = registration.target();
    let side = serde_json::to_string(&Side::of(&endpoint, wait))?;
    output::line(format_args!("{} {} {} {side}", endpoint.port(), target.key, target.address))?;
    while !interrupted() {
        match channel.receive_timeout(LOOK_UP) {
            Ok(question) => {
                let counters = endpoint.counters();
                let answer = COUNTERS.map(|name| counters.get(name).to_le_bytes()).concat();
                channel.send(question.source(), &answer)?;
            }
            Err(ReceiveError::TimedOut(_) | ReceiveError::Peer(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}
