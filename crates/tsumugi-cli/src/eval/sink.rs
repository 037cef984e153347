//! A receiver of the evaluation: one process with an endpoint of its own, as each of P2's receivers is a host.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tsumugi::{Channel, Config, Endpoint, Policy, ReceiveChoice, ReceiveError};

use super::flow::{BUCKET_NS, CHANNEL, END, MESSAGE_BYTES, Received};
use super::tcp;
use crate::measure::cpu::{Cpus, machine_ns, pin, process_cpu_time};
use crate::output;
use crate::peers::interrupted;
use crate::perf::EXIT_INTERRUPTED;

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

pub(super) fn run(options: &SinkOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let tell_port = |port: u16| output::line(format_args!("port {port}"));
    let counting = match options.policy {
        Some(policy) => receive(policy, tell_port)?,
        None => tcp::sink(tell_port)?,
    };
    if interrupted() {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    output::line(serde_json::to_string(&counting.received)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes one flow to its end.
fn receive(
    policy: Policy,
    tell_port: impl FnOnce(u16) -> io::Result<()>,
) -> Result<Counting, Box<dyn std::error::Error>> {
    let config = Config { policy: Some(policy), receive: ReceiveChoice::Socket, ..Config::default() };
    let endpoint = Endpoint::open(config)?;
    let mut channel = endpoint.channel(CHANNEL)?;
    tell_port(endpoint.port())?;
    let mut counting = Counting::default();
    while !counting.has_ended && !interrupted() {
        take(&mut channel, &mut counting)?;
    }
    drop(channel);
    endpoint.close()?;
    Ok(counting)
}

/// Takes what has arrived, or waits for it.
fn take(channel: &mut Channel, counting: &mut Counting) -> Result<(), ReceiveError> {
    let mut message = match channel.receive_timeout(LOOK_UP) {
        Ok(message) => message,
        Err(ReceiveError::TimedOut(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for taken in 1.. {
        if message[..] == [END] {
            // What comes behind it is that the sender has gone.
            counting.has_ended = true;
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
        counting.add(machine_ns() / BUCKET_NS, bytes, || process_cpu_time().as_nanos() as u64);
    }
    Ok(())
}

/// Bytes by the time at which they arrived.
#[derive(Default)]
pub(super) struct Counting {
    received: Received,
    has_ended: bool,
}

impl Counting {
    pub(super) fn add(&mut self, bucket: u64, bytes: u64, cpu_ns: impl FnOnce() -> u64) {
        let Received { begin, bytes: counted, cpu_ns: used } = &mut self.received;
        if counted.is_empty() {
            *begin = bucket;
        }
        let place = bucket.saturating_sub(*begin) as usize;
        if place >= counted.len() {
            counted.resize(place + 1, 0);
            // Of buckets in which nothing arrived it is not known in which of them the time was used.
            used.resize(place + 1, cpu_ns());
        }
        counted[place] += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_where_they_arrived() {
        let mut counting = Counting::default();
        for (bucket, bytes, cpu_ns) in [(70, 10, 1), (70, 10, 2), (71, 5, 3), (74, 1, 4)] {
            counting.add(bucket, bytes, || cpu_ns);
        }
        let Received { begin, bytes, cpu_ns } = counting.received;
        assert_eq!((begin, bytes, cpu_ns), (70, vec![20, 5, 0, 0, 1], vec![1, 3, 4, 4, 4]));
    }
}
