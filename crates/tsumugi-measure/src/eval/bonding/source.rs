//! The sender of the evaluation: one endpoint with a flow to each receiver.
//!
//! P2's senders are processes whose connections one bond spreads. What spreads flows in Tsumugi is the endpoint's policy,
//! so what stands for P2's bond is an endpoint, and what stands for its sending processes are the endpoint's flows. They
//! do not wait for each other: whichever has room goes on.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use thiserror::Error;
use tsumugi::{Channel, Config, Endpoint, PeerId, Policy, ReceiveChoice, ReceiveError, SendError};

use super::flow::{BUCKET_NS, CHANNEL, END, HELLO, MESSAGE_BYTES, Sent, SentFlow};
use super::tcp;
use crate::conditions::Side;
use crate::cpu::{Cpus, machine_ns, pin, process_cpu_time};
use crate::output::{self, EXIT_INTERRUPTED};
use crate::row::PathRow;
use tsumugi_lab::interrupt::interrupted;

/// Messages that a flow may send before it is the next one's turn.
const TURN_MESSAGES: u32 = 16;
/// How long to wait when no flow has room: shorter than any NIC of the evaluation needs to send all that waits.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the paths may take to be found.
const PATHS_MAX: Duration = Duration::from_secs(10);

/// Options of this command.
#[derive(Args)]
pub(crate) struct SourceOptions {
    /// A receiver; one flow for each.
    #[arg(long = "to", required = true)]
    to: Vec<SocketAddr>,
    /// How packets are spread over the NICs; without it the messages go over TCP.
    #[arg(long)]
    policy: Option<Policy>,
    /// NICs that must carry packets before anything is sent.
    #[arg(long, default_value_t = 1)]
    nics: usize,
    /// Seconds for which the first flow sends alone.
    #[arg(long, default_value_t = 0.0)]
    alone: f64,
    /// Seconds for which all flows send.
    #[arg(long)]
    time: f64,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

/// Why nothing could be sent, beside what the library says.
#[derive(Debug, Error)]
enum SourceError {
    #[error("only {found} of {wanted} NICs carry packets to {to} after {PATHS_MAX:?}")]
    Paths { found: usize, wanted: usize, to: SocketAddr },
}

pub(crate) fn run(options: &SourceOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let sent = match options.policy {
        Some(policy) => send(policy, options)?,
        None => tcp::source(&options.to, options.alone, options.time)?,
    };
    if interrupted() {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    output::line(serde_json::to_string(&sent)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends in one flow to each receiver.
fn send(policy: Policy, options: &SourceOptions) -> Result<Sent, Box<dyn std::error::Error>> {
    let config =
        Config::default().policy(Some(Policy::Adaptive)).receive(ReceiveChoice::Socket).accept_unknown(false);
    let wait = config.wait;
    let endpoint = Endpoint::open(config)?;
    let channel = endpoint.channel(CHANNEL)?;
    let peers = options.to.iter().map(|to| endpoint.add_peer(*to));
    let peers = peers.collect::<Result<Vec<PeerId>, _>>()?;
    let mut source = Source { channel, messages: vec![0; peers.len()], peers };
    source.open_paths(&endpoint, options)?;
    // Only now: a policy that ties flows to NICs must have seen all of them first.
    endpoint.set_policy(policy);
    let begin = machine_ns() / BUCKET_NS + 1;
    source.rest(Duration::from_nanos((begin * BUCKET_NS).saturating_sub(machine_ns())))?;
    if options.alone > 0.0 {
        source.send_for(1, options.alone)?;
    }
    let (cpu, before) = (process_cpu_time(), source.flows(&endpoint));
    source.send_for(source.peers.len(), options.time)?;
    let cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
    let flows =
        source.flows(&endpoint).iter().zip(&before).map(|(flow, before)| flow.since(before)).collect();
    for &peer in &source.peers {
        source.channel.send(peer, &[END])?;
    }
    let side = Side::of(&endpoint, wait);
    drop(source);
    endpoint.close()?;
    Ok(Sent { begin, cpu_ns, send: side.send.join(","), flows, side })
}

/// A flow to each of several receivers.
struct Source {
    channel: Channel,
    peers: Vec<PeerId>,
    messages: Vec<u64>,
}

impl Source {
    /// Says hello to everyone, and waits until every NIC carries packets to each.
    fn open_paths(
        &mut self,
        endpoint: &Endpoint,
        options: &SourceOptions,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let start = Instant::now();
        for (&peer, &to) in self.peers.clone().iter().zip(&options.to) {
            loop {
                // Paths are looked for while there is something to send.
                self.channel.post(peer, &[HELLO])?;
                self.rest(PAUSE)?;
                let found = endpoint.paths(peer).iter().filter(|path| path.is_usable).count();
                if found >= options.nics || interrupted() {
                    break;
                }
                if start.elapsed() > PATHS_MAX {
                    return Err(SourceError::Paths { found, wanted: options.nics, to }.into());
                }
            }
        }
        Ok(())
    }

    /// Makes progress for a while. Nothing is expected to arrive.
    fn rest(&mut self, time: Duration) -> Result<(), ReceiveError> {
        match self.channel.receive_timeout(time) {
            Ok(_) | Err(ReceiveError::TimedOut(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lets the first so many flows send, back to back.
    fn send_for(&mut self, flows: usize, seconds: f64) -> Result<(), Box<dyn std::error::Error>> {
        let message = [0x5a; MESSAGE_BYTES];
        let (start, time) = (Instant::now(), Duration::from_secs_f64(seconds));
        while start.elapsed() < time && !interrupted() {
            let mut posted = 0;
            for flow in 0..flows {
                let peer = self.peers[flow];
                for _ in 0..TURN_MESSAGES {
                    match self.channel.post(peer, &message) {
                        Ok(_) => posted += 1,
                        Err(SendError::WouldBlock) => break,
                        Err(error) => return Err(error.into()),
                    }
                    self.messages[flow] += 1;
                }
            }
            if posted == 0 {
                self.rest(PAUSE)?;
            }
        }
        Ok(())
    }

    /// What each flow has done so far.
    fn flows(&self, endpoint: &Endpoint) -> Vec<SentFlow> {
        let row = |path: &tsumugi::PathReport| PathRow {
            address: path.address.ip().to_string(),
            usable: path.is_usable,
            delivered: path.delivered,
            lost: path.lost,
            srtt_ns: path.srtt_ns,
        };
        let paths = |peer: PeerId| endpoint.paths(peer).iter().map(row).collect();
        let flows = self.peers.iter().zip(&self.messages);
        flows.map(|(&peer, &messages)| SentFlow { messages, paths: paths(peer) }).collect()
    }
}

impl SentFlow {
    /// What was done since.
    fn since(&self, before: &SentFlow) -> SentFlow {
        let since = |(path, before): (&PathRow, &PathRow)| PathRow {
            delivered: path.delivered.saturating_sub(before.delivered),
            lost: path.lost.saturating_sub(before.lost),
            ..path.clone()
        };
        SentFlow {
            messages: self.messages - before.messages,
            paths: self.paths.iter().zip(&before.paths).map(since).collect(),
        }
    }
}
