//! A receiver of the evaluation: one process with an endpoint of its own, as each of P2's receivers is a host.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tsumugi::{Channel, Config, Endpoint, Policy, ReceiveChoice, ReceiveError};

use super::flow::{BUCKET_NS, CHANNEL, END, MESSAGE_BYTES, Received};
use super::tcp;
use crate::conditions::Side;
use crate::cpu::{Cpus, machine_ns, pin, process_cpu_time};
use crate::output::{self, EXIT_INTERRUPTED};
use tsumugi_lab::interrupt::interrupted;

/// How often a waiting receiver looks for Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(200);
/// Messages that are taken between two looks at the clock, at most.
const BATCH_MESSAGES: u32 = 64;

/// Options of this command.
#[derive(Args)]
pub(crate) struct SinkOptions {
    /// How packets are spread over the NICs; without it the messages come over TCP.
    #[arg(long)]
    policy: Option<Policy>,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

pub(crate) fn run(options: &SinkOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let tell_port = |port: u16| output::line(format_args!("port {port}"));
    let received = match options.policy {
        Some(policy) => receive(policy, tell_port)?,
        None => tcp::sink(tell_port)?,
    };
    if interrupted() {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    output::line(serde_json::to_string(&received)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes one flow to its end.
fn receive(
    policy: Policy,
    tell_port: impl FnOnce(u16) -> io::Result<()>,
) -> Result<Received, Box<dyn std::error::Error>> {
    let config = Config::default().policy(Some(policy)).receive(ReceiveChoice::Socket);
    let wait = config.wait;
    let endpoint = Endpoint::open(config)?;
    let mut channel = endpoint.channel(CHANNEL)?;
    tell_port(endpoint.port())?;
    let mut received = Received::default();
    let mut has_ended = false;
    while !has_ended && !interrupted() {
        has_ended = take(&mut channel, &mut received)?;
    }
    received.side = Side::of(&endpoint, wait);
    drop(channel);
    endpoint.close()?;
    Ok(received)
}

/// Takes what has arrived, or waits for it; whether that was the flow's end.
fn take(channel: &mut Channel, received: &mut Received) -> Result<bool, ReceiveError> {
    let mut message = match channel.receive_timeout(LOOK_UP) {
        Ok(message) => message,
        Err(ReceiveError::TimedOut(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    let (mut bytes, mut has_ended) = (0, false);
    for taken in 1.. {
        if message[..] == [END] {
            // What comes behind it is that the sender has gone.
            has_ended = true;
            break;
        }
        bytes += if message.len() == MESSAGE_BYTES { MESSAGE_BYTES as u64 } else { 0 };
        drop(message);
        if taken == BATCH_MESSAGES {
            break;
        }
        message = match channel.try_receive()? {
            Some(message) => message,
            None => break,
        };
    }
    if bytes > 0 {
        received.count(machine_ns() / BUCKET_NS, bytes, || process_cpu_time().as_nanos() as u64);
    }
    Ok(has_ended)
}
