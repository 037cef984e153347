//! Tsumugi itself, through the public library: one endpoint on each side, used by one of the programming models.

use std::error::Error;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tsumugi::{
    Config, Endpoint, FaultOptions, Integrity, PathReport, PeerId, Policy, Reason, Repeat, Report, SendError,
    UnknownPolicy,
};

use super::{Failure, Peer, StopReason, Stream, Streamed, Until, Watch};
use crate::cpu::process_cpu_time;
use crate::row::PathRow;

mod carrier;
mod pieces;
mod requests;
mod tagged;
mod written;

use carrier::{Carrier, Channel};
use pieces::Pieces;
use requests::Requests;
use tagged::Tagged;
use written::Written;

/// The channel that measurements use.
const CHANNEL: u16 = 1;

/// How often a waiting call looks up to see whether it should stop.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The same for an endpoint whose idleness is measured: rarely enough not to be what is measured.
const LOOK_UP_IDLE: Duration = Duration::from_millis(500);

/// What the models put before a message's data, bytes, at most.
const HEADER_BYTES_MAX: u64 = 64;

/// A programming model of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Model {
    /// Messages on a channel.
    #[default]
    Channel,
    /// Remote writes into the other side's memory, which looks whether they are there.
    Write,
    /// Tagged messages, received by requests that are posted ahead.
    Message,
    /// Requests with data, to a handler that replies.
    ActiveMessage,
    /// Messages of one piece, read by a handler while they arrive.
    Stream,
}

impl Model {
    /// Every one, in the order of a table.
    pub(crate) const ALL: [Model; 5] =
        [Model::Channel, Model::ActiveMessage, Model::Stream, Model::Write, Model::Message];

    /// Longest message, bytes.
    pub(crate) const fn bytes_max(self) -> u64 {
        match self {
            Model::ActiveMessage => Requests::BYTES_MAX,
            _ => u64::MAX,
        }
    }

    /// As `--model` has it; nothing for the default.
    pub(crate) fn name(self) -> Option<String> {
        (self != Model::Channel).then(|| self.to_string())
    }
}

/// How tagged messages travel: [`tsumugi::message::Protocol`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Protocol {
    /// Active zero-copy up to 1 MiB, rendezvous above.
    #[default]
    Auto,
    /// At once; copied if nobody waits for them yet.
    Eager,
    /// At once up to 8 KiB; longer ones when the receiver has asked for them.
    Rendezvous,
    /// The head and the data at once; the receiver supplies the buffer when the head arrives.
    ActiveZeroCopy,
}

impl Protocol {
    /// As `--protocol` has it; nothing for the default.
    pub(crate) fn name(self) -> Option<String> {
        (self != Protocol::Auto).then(|| self.to_string())
    }
}

/// What a stream is made of, and how it flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mix {
    /// Lengths are random up to the message's size, the same ones in every stream.
    pub(crate) random: bool,
    /// The next message leaves when the one before was acknowledged by the other side's program.
    pub(crate) one_by_one: bool,
}

impl Mix {
    /// Lengths of the messages of a stream, bytes.
    fn lengths(self, most: usize) -> impl FnMut() -> usize {
        let mut state = 7u64;
        move || {
            if !self.random {
                return most;
            }
            // A linear congruential generator, of which the upper bits are the good ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % (most + 1)
        }
    }

    /// Messages of a stream that are acknowledged together.
    fn batch(self, stream: Stream) -> u64 {
        if self.one_by_one { 1 } else { stream.batch_messages }
    }
}

/// What both sides set up alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TsumugiOptions {
    /// `spin`, `adaptive`, `block` or `busy-poll`.
    pub(crate) wait: String,
    /// `selective` or `go-back-n`.
    pub(crate) repeat: String,
    /// `crc32c` or `wire`.
    #[serde(default = "crc32c")]
    pub(crate) integrity: String,
    /// Receive memory in bytes; `None` is the library's default.
    pub(crate) in_flight: Option<u64>,
    /// The send path of both sides: `auto`, `udp`, `packet` or `xsk`.
    pub(crate) send: String,
    /// The receive path of both sides: `auto`, `xdp` or `socket`.
    pub(crate) receive: String,
    /// How packets are spread over several NICs, on both sides; see [`policy`].
    pub(crate) policy: String,
    /// Faults to inject on both sides, as in `loss=1%,seed=7`.
    pub(crate) faults: Option<String>,
    /// The largest message that will be sent, in bytes.
    pub(crate) message_bytes_max: u64,
    /// Whether a stream is written in place, into the library's own buffers, which it never copies.
    pub(crate) in_place: bool,
    /// How the library is used, on both sides.
    #[serde(default)]
    pub(crate) model: Model,
    /// How tagged messages travel.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// What streams are made of, and how they flow.
    #[serde(default)]
    pub(crate) mix: Mix,
    /// Longest datagram payload, bytes; `None` takes it from the NIC.
    #[serde(default)]
    pub(crate) datagram_bytes: Option<u16>,
    /// Silence after which the other side counts as dead.
    pub(crate) peer_timeout_ms: u64,
}

/// What those have that do not know of anything else.
fn crc32c() -> String {
    Integrity::Crc32c.to_string()
}

impl TsumugiOptions {
    fn config(&self, bind: IpAddr, port: u16) -> Result<Config, Failure> {
        let refused = |what: &str, why: &dyn std::fmt::Display| Failure::Refused(format!("{what}: {why}"));
        let policy = policy(&self.policy).map_err(|why| refused("--policy", &why))?;
        // The library refuses time-outs that would kill healthy peers.
        let timeout = Duration::from_millis(self.peer_timeout_ms).max(Config::PEER_TIMEOUT_MIN);
        let mut config = Config::default()
            .port(port)
            .bind(if policy.is_some() && !bind.is_loopback() { EVERY_NIC } else { bind })
            .accept_unknown(true)
            .wait(self.wait.parse().map_err(|why| refused("--wait", &why))?)
            .repeat(match self.repeat.as_str() {
                "selective" => Repeat::Selective,
                "go-back-n" => Repeat::GoBackN,
                other => return Err(Failure::Refused(format!("`{other}` is no way of repeating"))),
            })
            .integrity(self.integrity.parse::<Integrity>().map_err(|why| refused("--integrity", &why))?)
            .datagram_bytes(self.datagram_bytes)
            .send(self.send.parse().map_err(|why| refused("--send", &why))?)
            .receive(self.receive.parse().map_err(|why| refused("--receive", &why))?)
            .policy(policy)
            .peer_timeout(timeout)
            .connect_timeout(timeout);
        if let Some(faults) = &self.faults {
            config.faults = Some(faults.parse::<FaultOptions>().map_err(|why| refused("--faults", &why))?);
        }
        config.message_bytes_max = config.message_bytes_max.max(self.message_bytes_max + HEADER_BYTES_MAX);
        if let Some(in_flight) = self.in_flight {
            // The receive queue is part of the receive memory.
            let queue_max = 1 << in_flight.max(Config::QUEUE_BYTES_MIN).ilog2();
            config.queue_bytes = config.queue_bytes.min(queue_max);
            config.receive_bytes = in_flight.max(config.queue_bytes);
        }
        // Two messages: one that is being received, and one that is being assembled.
        config.receive_bytes = config.receive_bytes.max(2 * self.message_bytes_max);
        Ok(config)
    }

    /// This side, with the model that was asked for; `peer`: the other side, if this is the client.
    fn side(&self, endpoint: Endpoint, peer: Option<PeerId>) -> Result<Box<dyn Peer>, Failure> {
        let (is_client, bytes_max, mix) = (peer.is_some(), self.message_bytes_max, self.mix);
        Ok(match self.model {
            Model::Channel => {
                let channel = endpoint.channel(CHANNEL).map_err(failed("cannot open a channel"))?;
                let carrier = Channel { channel, in_place: self.in_place };
                Box::new(Ours { carrier, endpoint, peer, is_client, mix })
            }
            Model::Message => {
                let carrier = Tagged::new(&endpoint, bytes_max, self.protocol, self.in_place && is_client)?;
                Box::new(Ours { carrier, endpoint, peer, is_client, mix })
            }
            Model::ActiveMessage => {
                let carrier = Requests::new(&endpoint, is_client)?;
                Box::new(Ours { carrier, endpoint, peer, is_client, mix })
            }
            Model::Stream => {
                let carrier = Pieces::new(&endpoint)?;
                Box::new(Ours { carrier, endpoint, peer, is_client, mix })
            }
            Model::Write => Box::new(Written::new(endpoint, peer, bytes_max)?),
        })
    }
}

/// The policy called `name`; `None` for `single`: everything takes one NIC.
pub(crate) fn policy(name: &str) -> Result<Option<Policy>, UnknownPolicy> {
    if name == "single" { Ok(None) } else { name.parse().map(Some) }
}

/// What to bind to, so that NICs beside the one of the server's address are used as well.
const EVERY_NIC: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// What is wrong with a `--faults` text; `Ok` when nothing is.
pub(crate) fn check_faults(text: &str) -> Result<(), String> {
    text.parse::<FaultOptions>().map(drop).map_err(|why| why.to_string())
}

/// The server's side, and its UDP port: whoever sends first is the peer.
pub(crate) fn serve(
    bind: IpAddr,
    port: u16,
    listener: &Arc<TcpListener>,
    options: &TsumugiOptions,
) -> Result<(u16, Box<dyn Peer>), Failure> {
    let endpoint = open(options.config(bind, port)?.listener(Arc::clone(listener)))?;
    Ok((endpoint.port(), options.side(endpoint, None)?))
}

/// The client's side.
pub(crate) fn connect(
    bind: IpAddr,
    server: SocketAddr,
    options: &TsumugiOptions,
    trace: Option<&Path>,
) -> Result<Box<dyn Peer>, Failure> {
    let mut config = options.config(bind, 0)?;
    config.trace = trace.map(Path::to_owned);
    let endpoint = open(config)?;
    let peer = endpoint.add_peer(server).map_err(failed("cannot add the server as a peer"))?;
    options.side(endpoint, Some(peer))
}

fn open(config: Config) -> Result<Endpoint, Failure> {
    static SAID: Once = Once::new();
    let endpoint = Endpoint::open(config).map_err(failed("cannot open an endpoint"))?;
    SAID.call_once(|| {
        let report = endpoint.report();
        if !report.given_up.is_empty() {
            eprintln!("tsumugi perf: note: {report}");
        }
    });
    Ok(endpoint)
}

/// One end of a conversation in a programming model.
struct Ours<C> {
    // Before the endpoint, so that it is dropped first.
    carrier: C,
    endpoint: Endpoint,
    /// The other side; the server learns it from the first message.
    peer: Option<PeerId>,
    is_client: bool,
    mix: Mix,
}

impl<C: Carrier> Ours<C> {
    fn peer(&self) -> Result<PeerId, Failure> {
        self.peer.ok_or_else(|| Failure::Refused("nothing has arrived yet that could be answered".to_owned()))
    }

    /// The length of the next message.
    fn next(&mut self, watch: &mut Watch<'_>) -> Result<usize, Failure> {
        loop {
            match self.carrier.next(&self.endpoint, LOOK_UP) {
                Ok(Some((source, bytes))) => {
                    watch.progress()?;
                    self.peer = Some(source);
                    return Ok(bytes);
                }
                Ok(None) => watch.check_moved(moved(&self.endpoint))?,
                Err(error) => return Err(receive_failed(error, watch)),
            }
        }
    }
}

/// Packets of messages that were taken in, and that were sent for the first time: a side that waits for either is not idle.
fn moved(endpoint: &Endpoint) -> u64 {
    let counters = endpoint.counters();
    ["deposited", "direct_writes", "packets_sent"].map(|name| counters.get(name)).iter().sum()
}

/// The error of a failed library call, with all its causes.
fn failed<E: Error>(what: &str) -> impl FnOnce(E) -> Failure {
    let what = what.to_owned();
    move |cause| {
        let mut text = cause.to_string();
        let mut next = cause.source();
        while let Some(cause) = next {
            text.push_str(&format!(": {cause}"));
            next = cause.source();
        }
        Failure::Ours { what, cause: text }
    }
}

/// A peer that has gone may have said on the control connection that it would.
fn receive_failed(error: Failure, watch: &mut Watch<'_>) -> Failure {
    match watch.check() {
        Err(stop) => stop.into(),
        Ok(()) => error,
    }
}

/// What is told of the paths to a peer, if there are several.
fn paths(endpoint: &Endpoint, peer: Option<PeerId>) -> Vec<PathRow> {
    let paths = peer.map_or(Vec::new(), |peer| endpoint.paths(peer));
    if paths.len() < 2 {
        return Vec::new();
    }
    let row = |path: &PathReport| PathRow {
        address: path.address.ip().to_string(),
        usable: path.is_usable,
        delivered: path.delivered,
        lost: path.lost,
        srtt_ns: path.srtt_ns,
    };
    paths.iter().map(row).collect()
}

/// Closes in good order. The other side, which has finished too, may have closed before it acknowledged the last word.
fn close(endpoint: Endpoint) -> Result<(), Failure> {
    match endpoint.close() {
        Ok(()) => Ok(()),
        Err(SendError::Peer(failure)) if failure.reason == Reason::Closed => Ok(()),
        Err(error) => Err(failed("cannot close the endpoint")(error)),
    }
}

impl<C: Carrier> Peer for Ours<C> {
    fn report(&self) -> Option<Report> {
        Some(self.endpoint.report())
    }

    fn paths(&self) -> Vec<PathRow> {
        paths(&self.endpoint, self.peer)
    }

    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        let peer = self.peer()?;
        self.carrier.send(&self.endpoint, peer, message)?;
        watch.progress()?;
        Ok(())
    }

    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        let length = self.next(watch)?;
        if length != bytes {
            return Err(Failure::Refused(format!("a message of {length} bytes arrived instead of {bytes}")));
        }
        Ok(true)
    }

    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let peer = self.peer()?;
        let message = vec![0x5a; stream.message_bytes as usize];
        let (mut length, batch) = (self.mix.lengths(message.len()), self.mix.batch(stream));
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let (mut batches, mut acknowledged, mut bytes) = (0, 0, 0);
        while batches == 0 || start.elapsed() < until.time && batches * batch < until.messages {
            for _ in 0..batch {
                let message = &message[..length()];
                self.carrier.post(&self.endpoint, peer, message)?;
                bytes += message.len() as u64;
            }
            batches += 1;
            while self.mix.one_by_one && acknowledged < batches {
                self.next(watch)?;
                acknowledged += 1;
            }
            watch.progress()?;
            while self.carrier.next(&self.endpoint, Duration::ZERO)?.is_some() {
                acknowledged += 1;
            }
            if tsumugi_lab::interrupt::interrupted() {
                return Err(StopReason::Interrupted.into());
            }
        }
        while acknowledged < batches {
            self.next(watch)?;
            acknowledged += 1;
        }
        Ok(Streamed {
            messages: batches * batch,
            bytes,
            elapsed_ns: start.elapsed().as_nanos() as u64,
            cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
            lost_bytes: 0,
        })
    }

    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        self.carrier.sink();
        let mut done = Streamed::default();
        let mut first: Option<(Instant, Duration)> = None;
        loop {
            match self.next(watch) {
                Ok(bytes) => done.bytes += bytes as u64,
                Err(Failure::Stopped(StopReason::Control)) => return Ok(done),
                Err(error) => return Err(error),
            }
            done.messages += 1;
            let (start, cpu) = *first.get_or_insert_with(|| (Instant::now(), process_cpu_time()));
            if done.messages.is_multiple_of(self.mix.batch(stream)) {
                self.send(&mut [0], watch)?;
                done.elapsed_ns = start.elapsed().as_nanos() as u64;
                done.cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
            }
        }
    }

    fn idle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<(), Failure> {
        // An endpoint that knows a peer: it might have something to do on its behalf.
        if self.is_client {
            self.send(&mut [0], watch)?;
        } else {
            self.next(watch)?;
        }
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            match self.carrier.next(&self.endpoint, left.min(LOOK_UP_IDLE)) {
                Ok(Some((source, _))) => self.peer = Some(source),
                Ok(None) => watch.check()?,
                Err(error) => return Err(receive_failed(error, watch)),
            }
        }
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Ours { carrier, endpoint, .. } = *self;
        drop(carrier);
        close(endpoint)
    }
}
