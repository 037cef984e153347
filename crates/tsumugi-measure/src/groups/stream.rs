//! One of the processes of which the first sends to the others.

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tsumugi::collective::Group;
use tsumugi::multicast::MulticastGroup;
use tsumugi::{Endpoint, PeerId};

use super::process::{Boxed, Process};
use crate::cpu::process_cpu_time;
use crate::output;

const SYNCHRONIZING: u16 = 1;
const STREAM: u16 = 2;
/// First byte of a message, and of the last one of a task.
const MORE: u8 = 0;
const LAST: u8 = 1;
/// Messages of a batch, and how many bytes they have at most.
const BATCH: u64 = 32;
const BATCH_BYTES: u64 = 128 << 10;
/// So long may a box take to know all members.
const JOINING: Duration = Duration::from_secs(5);

/// To whom the first process sends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Way {
    /// To the second alone.
    One,
    /// To all, to each by itself.
    OneByOne,
    /// To all, once.
    Multicast,
}

/// A stream of messages: `multicast/1024`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) way: Way,
    pub(super) bytes: u64,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.way, self.bytes)
    }
}

/// A text that is none.
#[derive(Debug, Error)]
#[error("`{0}` is no stream of messages")]
pub(crate) struct StreamError(String);

impl FromStr for Stream {
    type Err = StreamError;

    fn from_str(text: &str) -> Result<Stream, StreamError> {
        let parsed = text
            .split_once('/')
            .and_then(|(way, bytes)| Some(Stream { way: way.parse().ok()?, bytes: bytes.parse().ok()? }));
        parsed.ok_or_else(|| StreamError(text.to_owned()))
    }
}

/// What came of a stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Streamed {
    /// Messages that were sent in batches, each when all receivers had the one before.
    pub(super) batched: u64,
    /// CPU time of the sender for these, ns.
    pub(super) cpu_ns: u64,
    /// Messages that were sent one behind the other.
    pub(super) messages: u64,
    /// Until all receivers had all of these, ns.
    pub(super) wall_ns: u64,
    /// Packets that left once for several, and parts that were to be made of them.
    pub(super) packets: u64,
    pub(super) parts: u64,
}

/// Options of this command.
#[derive(Args)]
pub(crate) struct StreamOptions {
    #[command(flatten)]
    process: Process,
    /// What is sent, one behind the other.
    #[arg(long = "stream", required = true)]
    streams: Vec<Stream>,
}

#[derive(Debug, Error)]
enum StreamFailure {
    #[error("no switch box makes a packet for each receiver out of one")]
    NoBox,
    #[error("nearly nothing of {0} left once for all: {1} packets, {2} parts")]
    NotTogether(Stream, u64, u64),
}

pub(crate) fn run(options: &StreamOptions) -> crate::CommandResult {
    let (endpoint, peers) = options.process.open()?;
    let all = Group::open(&endpoint, SYNCHRONIZING, options.process.rank, &peers)?;
    all.barrier()?;
    let streamed = if options.process.rank == 0 {
        send(options, &endpoint, &peers)?
    } else {
        receive(options, &endpoint, &peers)?;
        Vec::new()
    };
    all.barrier()?;
    output::line(serde_json::to_string(&options.process.told(&endpoint, streamed))?)?;
    Ok(ExitCode::SUCCESS)
}

fn group(options: &StreamOptions) -> MulticastGroup {
    MulticastGroup { key: 1, number: 1, size: options.process.hosts.len() as u16 }
}

fn send(
    options: &StreamOptions,
    endpoint: &Endpoint,
    peers: &[Option<PeerId>],
) -> Result<Vec<Streamed>, Boxed> {
    let channel = endpoint.channel(STREAM)?;
    let receivers: Vec<PeerId> = peers.iter().flatten().copied().collect();
    let sender = endpoint.multicast_to(group(options), &receivers)?;
    if options.streams.iter().any(|stream| stream.way == Way::Multicast) && !sender.wait_for_box(JOINING)? {
        return Err(StreamFailure::NoBox.into());
    }
    let mut streamed = Vec::new();
    for stream in &options.streams {
        let mut message = vec![MORE; stream.bytes as usize];
        let to = if stream.way == Way::One { &receivers[..1] } else { &receivers };
        let before = sender.packets();
        // Nothing may come to who still waits for something else.
        for _ in &receivers {
            channel.receive()?;
        }
        let send = |message: &[u8]| -> Result<(), Boxed> {
            if stream.way == Way::Multicast {
                sender.send(&channel, message)?;
            } else {
                to.iter().try_for_each(|peer| channel.send(*peer, message).map(|_| ()))?;
            }
            Ok(())
        };
        let (start, cpu_start) = (Instant::now(), process_cpu_time());
        let batch = (BATCH_BYTES / stream.bytes.max(1)).clamp(1, BATCH);
        let mut batched = 0;
        while start.elapsed().as_secs_f64() < options.process.time / 2.0 {
            for _ in 0..batch {
                send(&message)?;
            }
            endpoint.flush()?;
            batched += batch;
        }
        let cpu_ns = (process_cpu_time() - cpu_start).as_nanos() as u64;
        let (start, mut messages) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < options.process.time / 2.0 {
            send(&message)?;
            messages += 1;
        }
        endpoint.flush()?;
        let wall_ns = start.elapsed().as_nanos() as u64;
        message[0] = LAST;
        for peer in &receivers {
            channel.send(*peer, &message)?;
        }
        let after = sender.packets();
        let (packets, parts) = (after.0 - before.0, after.1 - before.1);
        if stream.way == Way::Multicast && packets < (batched + messages) / 2 {
            return Err(StreamFailure::NotTogether(*stream, packets, parts).into());
        }
        streamed.push(Streamed { batched, cpu_ns, messages, wall_ns, packets, parts });
    }
    Ok(streamed)
}

fn receive(options: &StreamOptions, endpoint: &Endpoint, peers: &[Option<PeerId>]) -> Result<(), Boxed> {
    let channel = endpoint.channel(STREAM)?;
    let sender = peers[0].ok_or("the first is no peer of its own")?;
    let _member = endpoint.hear_multicast(group(options), options.process.rank as u16, sender)?;
    // Also who gets nothing says nothing before the end: what waits in another's receive queue to be asked for stops what comes behind it.
    for _ in &options.streams {
        channel.send(sender, b"ready")?;
        while channel.receive()?[0] != LAST {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads_back() {
        for text in ["one/8", "one-by-one/1048576", "multicast/1024"] {
            assert_eq!(text.parse::<Stream>().expect("a stream").to_string(), text);
        }
        assert!("both/8".parse::<Stream>().is_err());
    }
}
