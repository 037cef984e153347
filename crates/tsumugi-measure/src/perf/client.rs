//! The measuring side of `tsumugi perf`: rounds, sizes, and what is said to the server.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use thiserror::Error;
use tsumugi_rail::family::canonical;
use tsumugi_rail::xdp::Mode;

use super::control::{self, ControlError, Finish, Reply, Request, with_port};
use super::options::UsageError;
use super::{Measure, PORT, over_rounds, sample};
use crate::conditions::Conditions;
use crate::nics;
use crate::peers::raw::{self, Raw};
use crate::peers::raw_write::RawWrite;
use crate::peers::tcp::{Tcp, Tuning};
use crate::peers::udp::{self, Udp};
use crate::peers::{Failure, Peer, Role, StopReason, Transport, Until, frames, ours};
use crate::progress;
use crate::row::{Metric, Row};
use crate::sizes;

/// Why there is no measurement.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("unknown host `{host}`: {cause}; check the spelling, /etc/hosts and the name service")]
    UnknownHost { host: String, cause: io::Error },
    #[error(
        "no `tsumugi perf serve` answers at {address}: {cause}; start it there, and check the port and the firewall"
    )]
    NobodyThere { address: String, cause: io::Error },
    #[error("the server at {address} is not of use: {cause}")]
    Control { address: String, cause: ControlError },
    #[error("the server at {address} refused: {why}")]
    Refused { address: String, why: String },
    #[error(
        "the server at {address} ended without a word{here}: see what `tsumugi perf serve` printed there, or whether \
         it was killed (`dmesg` tells if memory was short), and start it again"
    )]
    Gone { address: String, here: String },
    #[error("measuring {transport} with {address} failed: {cause}")]
    Failed { transport: &'static str, address: String, cause: Failure },
}

/// How a transport is set up for one session.
struct Setting {
    tuning: Option<Tuning>,
    /// Limit of bytes in flight.
    in_flight: Option<u64>,
    /// Limit of frames in flight, for bare ones.
    frames: Option<u64>,
    /// Empty when there is no choice.
    name: String,
}

/// This side of a session before the server has opened its own.
enum Prepared {
    Udp(UdpSocket),
    Raw(Box<Raw>),
    RawWrite(Box<RawWrite>),
    /// Its side comes second.
    Nothing,
}

/// A connection to a server, on which one measurement after the other is made.
pub(super) struct Client<'a> {
    measure: &'a Measure,
    metric: Metric,
    control: TcpStream,
    server: SocketAddr,
    address: String,
}

/// Measures all sizes in all rounds: one row per size.
pub(super) fn run(metric: Metric, measure: &Measure) -> Result<(Vec<Row>, Conditions), ClientError> {
    let sizes = measure.size.as_ref().map_or(vec![IDLE_BYTES], |sizes| sizes.0.clone());
    check_usage(metric, measure, &sizes)?;
    let client = Client::connect(metric, measure)?;
    let sizes = client.carried(sizes)?;
    client.warn_of_mtus();
    let what = progress::count(sizes.len(), "size");
    let what = if metric == Metric::Idle { "" } else { &what };
    let progress = measure.progress(what, sizes.len(), client.tries(sizes.first().copied().unwrap_or(0)));
    let mut rounds: Vec<Vec<Row>> = vec![Vec::new(); sizes.len()];
    let mut measured = measure.measured();
    // Round by round, not size by size: a disturbance hits one round of every size, not one size.
    for _ in 0..measure.rounds {
        for (size, rows) in sizes.iter().zip(&mut rounds) {
            progress.step(format!("{} {}", measure.transport.into_str(), sizes::show(*size)));
            rows.push(client.round(*size, &mut measured)?);
        }
    }
    Ok((rounds.iter().filter_map(|rows| over_rounds(rows)).collect(), measured))
}

/// What would fail anyway, said before anything is done.
pub(super) fn check_usage(metric: Metric, measure: &Measure, sizes: &[u64]) -> Result<(), ClientError> {
    let usage = |text: String| Err(UsageError(text).into());
    if measure.transport == Transport::Udp && is_whole(metric) {
        for &size in sizes {
            Udp::check_size(size).map_err(|failure| UsageError(failure.to_string()))?;
        }
    }
    if measure.in_place && !matches!(measure.model, ours::Model::Channel | ours::Model::Message) {
        return usage("--in-place is for messages: it needs --model channel or --model message".into());
    }
    if let Some(size) = sizes.iter().find(|size| **size > measure.model.bytes_max()) {
        let (size, most) = (sizes::show(*size), sizes::show(measure.model.bytes_max()));
        return usage(format!("this model carries messages of up to {most}, not {size}"));
    }
    if measure.model != ours::Model::Message && measure.protocol != ours::Protocol::Auto {
        return usage("--protocol is how tagged messages travel: it needs --model message".into());
    }
    if let Some(faults) = &measure.faults {
        ours::check_faults(faults).map_err(|why| UsageError(format!("--faults `{faults}`: {why}")))?;
    }
    Ok(())
}

/// Bytes of the messages that may come to an endpoint that waits in vain.
const IDLE_BYTES: u64 = 64;

/// How fast messages are prepared at least: a virtual machine was seen to get memory that nobody has used yet at 250 MB/s, and a
/// side prepares several messages.
const PREPARED_BYTES_PER_S_MIN: f64 = 20e6;

/// Whether a message is one datagram or one frame for a transport that does not cut messages.
const fn is_whole(metric: Metric) -> bool {
    matches!(metric, Metric::RoundTrip | Metric::Overhead | Metric::Overlap)
}

/// `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
fn host_and_port(text: &str) -> Result<(&str, u16), UsageError> {
    let wrong = |port: &str| UsageError(format!("`{port}` in `{text}` is not a port (1 to 65535)"));
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(UsageError(format!("`{text}` names no host; write HOST or HOST:PORT")));
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(|| wrong(port))?,
    };
    Ok((host, port))
}

impl<'a> Client<'a> {
    pub(super) fn connect(metric: Metric, measure: &'a Measure) -> Result<Client<'a>, ClientError> {
        let (host, port) = host_and_port(&measure.host)?;
        let unknown = |cause| ClientError::UnknownHost { host: host.to_owned(), cause };
        let addresses = (host, port).to_socket_addrs().map_err(unknown)?;
        let mut refusal = io::Error::from(io::ErrorKind::NotFound);
        for server in addresses {
            match TcpStream::connect_timeout(&server, measure.timeout) {
                Ok(control) => {
                    let address = format!("{host}:{port}");
                    control::prepare(&control).map_err(|cause| ClientError::Control {
                        address: address.clone(),
                        cause: cause.into(),
                    })?;
                    return Ok(Client { measure, metric, control, server: canonical(server), address });
                }
                Err(_) if tsumugi_lab::interrupt::interrupted() => return Err(ClientError::Interrupted),
                Err(cause) => refusal = cause,
            }
        }
        Err(ClientError::NobodyThere { address: format!("{host}:{port}"), cause: refusal })
    }

    /// Says once that packets are shorter than one of the NICs takes.
    fn warn_of_mtus(&self) {
        let spreads = self.measure.transport == Transport::Tsumugi && self.measure.policy != "single";
        if !spreads || self.server.ip().is_loopback() {
            return;
        }
        if let Some((what, _)) = tsumugi_rail::nics::survey().ok().and_then(|found| nics::uneven_mtus(&found))
        {
            eprintln!("tsumugi perf: note: {what}");
        }
    }

    /// The sizes that the transport carries. Those that only the NIC is too small for are left out, and named.
    fn carried(&self, sizes: Vec<u64>) -> Result<Vec<u64>, ClientError> {
        let transport = self.measure.transport;
        if !transport.is_frames() || !is_whole(self.metric) {
            return Ok(sizes);
        }
        let here = self.here().map_err(|cause| self.failed(cause))?;
        let nic = frames::nic(here, self.server).map_err(|cause| self.failed(cause))?;
        let most = frames::payload_bytes_max(transport, nic.mtu_bytes);
        let (carried, over): (Vec<u64>, Vec<u64>) = sizes.into_iter().partition(|size| *size <= most as u64);
        if over.is_empty() {
            return Ok(carried);
        }
        let over: Vec<String> = over.into_iter().map(sizes::show).collect();
        let why = format!("a bare frame carries at most {most} bytes on {}", nic.name);
        if carried.is_empty() {
            let over = over.join(", ");
            return Err(UsageError(format!("{why}, not {over}: choose a smaller --size")).into());
        }
        eprintln!("left out: {}: {why}", over.join(", "));
        Ok(carried)
    }

    /// This side's address, as the server sees it.
    fn here(&self) -> Result<SocketAddr, Failure> {
        self.control.local_addr().map(canonical).map_err(Failure::system("no local address"))
    }

    /// One round of one size; what it was measured by is added to `measured`.
    pub(super) fn round(&self, size: u64, measured: &mut Conditions) -> Result<Row, ClientError> {
        // What a bare transport is worth is what it does at its best setting.
        let settings = self.settings(size);
        let time = self.measure.time() / (settings.len() as u32).min(2);
        let mut best: Option<Row> = None;
        for setting in &settings {
            let mut row = self.session(size, setting, time, measured)?;
            row.setting = (settings.len() > 1).then(|| setting.name.clone());
            if best.as_ref().is_none_or(|best| best.value() < row.value()) {
                best = Some(row);
            }
        }
        let row = best.unwrap_or_default();
        let size_bytes = if self.metric == Metric::Idle { 0 } else { size };
        Ok(Row { metric: self.metric, size_bytes, ..self.describe(row) })
    }

    /// How often the time that was asked for is taken in a round of a size.
    fn tries(&self, size: u64) -> f64 {
        let settings = self.settings(size).len();
        settings as f64 / settings.min(2) as f64
    }

    /// The settings to try: for streams over bare transports several, otherwise one.
    fn settings(&self, size: u64) -> Vec<Setting> {
        let streams = matches!(self.metric, Metric::Bandwidth | Metric::Rate);
        let in_flight = self.measure.in_flight;
        let plain = Setting { tuning: None, in_flight, frames: None, name: String::new() };
        match self.measure.transport {
            Transport::TcpSpin | Transport::TcpBlock if streams => {
                let tunings = Tuning::for_stream(size, in_flight).into_iter();
                tunings
                    .map(|tuning| Setting { tuning: Some(tuning), name: tuning.name(size), ..plain })
                    .collect()
            }
            Transport::TcpSpin | Transport::TcpBlock => {
                vec![Setting { tuning: Some(Tuning::PROMPT), ..plain }]
            }
            Transport::Udp if streams && in_flight.is_none() => {
                let name = |bytes| format!("{} in flight", sizes::show(bytes));
                let limits = udp::IN_FLIGHT_BYTES.into_iter();
                limits.map(|bytes| Setting { in_flight: Some(bytes), name: name(bytes), ..plain }).collect()
            }
            Transport::RawXdp if streams && in_flight.is_none() => {
                let limits = raw::IN_FLIGHT_FRAMES.into_iter();
                limits
                    .map(|frames| Setting {
                        frames: Some(frames),
                        name: format!("{frames} frames in flight"),
                        ..plain
                    })
                    .collect()
            }
            _ => vec![plain],
        }
    }

    fn describe(&self, row: Row) -> Row {
        let ours = self.measure.transport == Transport::Tsumugi;
        let integrity = (self.measure.integrity != "crc32c").then(|| self.measure.integrity.clone());
        let repeat = (self.measure.repeat != "selective").then(|| self.measure.repeat.clone());
        Row {
            transport: self.measure.transport.into_str().to_owned(),
            mode: self.measure.transport.is_frames().then(|| self.mode().to_string()),
            wait: ours.then(|| self.measure.wait.clone()),
            model: self.measure.model.name().filter(|_| ours),
            protocol: self.measure.protocol.name(),
            one_by_one: self.measure.mix.one_by_one,
            repeat: repeat.filter(|_| ours),
            integrity: integrity.filter(|_| ours),
            faults: self.measure.faults.clone(),
            setting: if self.measure.in_place { Some("in place".to_owned()) } else { row.setting.clone() },
            ..row
        }
    }

    fn mode(&self) -> Mode {
        self.measure.mode.unwrap_or(Mode::Native)
    }

    /// Opens both sides, measures, and closes them again.
    fn session(
        &self,
        size: u64,
        setting: &Setting,
        time: Duration,
        by: &mut Conditions,
    ) -> Result<Row, ClientError> {
        let mut peer = self.open(size, setting, time)?;
        let until = Until { time, messages: self.measure.count.unwrap_or(u64::MAX) };
        let silence_max = self.silence_max(size);
        let measured = sample::measure(self.metric, peer.as_mut(), size, until, &self.control, silence_max)
            .map_err(|cause| self.failed(cause))?;
        self.say(&Finish { finish: true })?;
        peer.finish();
        let Reply::Done { did: theirs, side: there } = self.hear(size)? else {
            return Err(self.out_of_step());
        };
        let here = peer.side(self.here().map_err(|cause| self.failed(cause))?.ip(), &self.measure.wait);
        let resolved = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
        let row = Row {
            send: resolved(&here.send),
            receive: resolved(&here.receive),
            paths: peer.paths(),
            ..sample::row(self.metric, size, &measured, &theirs)
        };
        by.add([&here, &there]);
        peer.close().map_err(|cause| self.failed(cause))?;
        Ok(row)
    }

    /// Silence after which a measurement of messages of `size` bytes is given up: a side says nothing while it prepares them.
    fn silence_max(&self, size: u64) -> Duration {
        self.measure.timeout + Duration::from_secs_f64(size as f64 / PREPARED_BYTES_PER_S_MIN)
    }

    fn open(&self, size: u64, setting: &Setting, time: Duration) -> Result<Box<dyn Peer>, ClientError> {
        let transport = self.measure.transport;
        let options = ours::TsumugiOptions {
            wait: self.measure.wait.clone(),
            repeat: self.measure.repeat.clone(),
            integrity: self.measure.integrity.clone(),
            in_flight: self.measure.in_flight,
            faults: self.measure.faults.clone(),
            message_bytes_max: size,
            in_place: self.measure.in_place,
            send: self.measure.send.clone(),
            receive: self.measure.receive.clone(),
            policy: self.measure.policy.clone(),
            model: self.measure.model,
            protocol: self.measure.protocol,
            mix: self.measure.mix,
            datagram_bytes: self.measure.datagram,
            peer_timeout_ms: self.measure.timeout.as_millis() as u64,
        };
        let prepared = self.prepare().map_err(|cause| self.failed(cause))?;
        self.say(&Request {
            tsumugi_perf: control::VERSION,
            metric: self.metric,
            transport,
            message_bytes: size,
            udp_port: match &prepared {
                Prepared::Udp(socket) => socket.local_addr().ok().map(|address| address.port()),
                _ => None,
            },
            raw: match &prepared {
                Prepared::Raw(raw) => Some(raw.mac()),
                Prepared::RawWrite(raw) => Some(raw.mac()),
                _ => None,
            }
            .map(|mac| frames::RawOptions { mode: self.mode().to_string(), mac }),
            tuning: setting.tuning,
            in_flight: setting.in_flight,
            ours: (transport == Transport::Tsumugi).then(|| options.clone()),
            idle_ms: if self.metric == Metric::Idle { time.as_millis() as u64 } else { 0 },
            silence_max_ms: self.silence_max(size).as_millis() as u64,
        })?;
        let Reply::Ready { port, mac } = self.hear(size)? else {
            return Err(self.out_of_step());
        };
        let server = with_port(self.server, port);
        let opened = match (prepared, setting.tuning) {
            (Prepared::Udp(socket), _) => socket
                .connect(server)
                .map_err(Failure::system(format!("cannot reach UDP port {port}")))
                .and_then(|()| Udp::new(socket, setting.in_flight, Role::Asks))
                .map(|udp| Box::new(udp) as Box<dyn Peer>),
            (Prepared::Raw(mut raw), _) => {
                raw.connect(mac.ok_or_else(|| self.out_of_step())?);
                match (setting.frames, setting.in_flight) {
                    (Some(frames), _) => raw.limit(frames),
                    (None, Some(bytes)) => raw.limit_bytes(bytes, size),
                    (None, None) => {}
                }
                Ok(raw as Box<dyn Peer>)
            }
            (Prepared::RawWrite(mut raw), _) => {
                raw.connect(mac.ok_or_else(|| self.out_of_step())?);
                Ok(raw as Box<dyn Peer>)
            }
            (Prepared::Nothing, Some(tuning)) => TcpStream::connect_timeout(&server, self.measure.timeout)
                .map_err(Failure::system(format!("cannot connect to TCP port {port}")))
                .and_then(|stream| Tcp::new(stream, transport == Transport::TcpSpin, tuning))
                .map(|tcp| Box::new(tcp) as Box<dyn Peer>),
            (Prepared::Nothing, None) => self
                .here()
                .and_then(|here| ours::connect(here.ip(), server, &options, self.measure.trace.as_deref())),
        };
        opened.map_err(|cause| self.failed(cause))
    }

    /// Opens what the server must know of before it opens its own side.
    fn prepare(&self) -> Result<Prepared, Failure> {
        let here = self.here()?;
        Ok(match self.measure.transport {
            Transport::Udp => Prepared::Udp(
                UdpSocket::bind(with_port(here, 0)).map_err(Failure::system("cannot open a UDP socket"))?,
            ),
            Transport::RawXdp => {
                let raw = Raw::open(here, self.server, self.mode(), Role::Asks)?;
                Prepared::Raw(Box::new(raw))
            }
            Transport::RawWrite => {
                let raw = RawWrite::open(here, self.server, self.mode(), Role::Asks)?;
                Prepared::RawWrite(Box::new(raw))
            }
            Transport::TcpSpin | Transport::TcpBlock | Transport::Tsumugi => Prepared::Nothing,
        })
    }

    fn say(&self, word: &impl serde::Serialize) -> Result<(), ClientError> {
        control::say(&self.control, word).map_err(|cause| {
            // It may have said why before it went.
            match control::hear(&self.control, Some(control::LOOK_UP)) {
                Ok(Reply::Refused { why }) => ClientError::Refused { address: self.address.clone(), why },
                _ => self.control_failed(cause),
            }
        })
    }

    /// The server's next word; a refusal is an error.
    fn hear(&self, size: u64) -> Result<Reply, ClientError> {
        // The server may first have to notice that nothing more arrives.
        let limit = self.silence_max(size) + Duration::from_secs(2);
        match control::hear(&self.control, Some(limit)) {
            Ok(Reply::Refused { why }) => Err(ClientError::Refused { address: self.address.clone(), why }),
            Ok(reply) => Ok(reply),
            Err(cause) => Err(self.control_failed(cause)),
        }
    }

    fn control_failed(&self, cause: ControlError) -> ClientError {
        match cause {
            ControlError::Interrupted => ClientError::Interrupted,
            ControlError::Closed => self.gone(String::new()),
            cause => ClientError::Control { address: self.address.clone(), cause },
        }
    }

    fn gone(&self, here: String) -> ClientError {
        ClientError::Gone { address: self.address.clone(), here }
    }

    fn out_of_step(&self) -> ClientError {
        self.control_failed(ControlError::NotOurs("a word out of turn".to_owned()))
    }

    /// A failure here often has its cause at the server: then the server's word is the better explanation.
    fn failed(&self, cause: Failure) -> ClientError {
        if tsumugi_lab::interrupt::interrupted() || matches!(cause, Failure::Stopped(StopReason::Interrupted))
        {
            return ClientError::Interrupted;
        }
        match control::hear::<Reply>(&self.control, Some(control::LOOK_UP)) {
            Ok(Reply::Refused { why }) => ClientError::Refused { address: self.address.clone(), why },
            Err(ControlError::Closed) => match cause {
                // Its end was noticed, and nothing else.
                Failure::Stopped(_) => self.gone(String::new()),
                cause => {
                    self.gone(format!(" ({} failed here with: {cause})", self.measure.transport.into_str()))
                }
            },
            _ => ClientError::Failed {
                transport: self.measure.transport.into_str(),
                address: self.address.clone(),
                cause,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        options: super::super::options::Bandwidth,
    }

    #[test]
    fn what_a_server_said_before_it_went_is_told_though_nothing_can_be_said_to_it() {
        use clap::Parser;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let measure = Command::parse_from(["perf", "127.0.0.1"]).options.measure().expect("sound options");
        for (word, shown) in
            [(Some("the loom is broken"), "the loom is broken"), (None, "`tsumugi perf serve`")]
        {
            let server = listener.local_addr().expect("address");
            let control = TcpStream::connect(server).expect("connect");
            control::prepare(&control).expect("prepare");
            let address = server.to_string();
            let client = Client { measure: &measure, metric: Metric::Bandwidth, control, server, address };
            let (far, _) = listener.accept().expect("accept");
            if let Some(why) = word {
                control::say(&far, &Reply::Refused { why: why.to_owned() }).expect("say");
            }
            // Closed with a reset, as when something is unread.
            rustix::net::sockopt::set_socket_linger(&far, Some(Duration::ZERO)).expect("linger");
            drop(far);
            std::thread::sleep(Duration::from_millis(100));
            let error = client.say(&Finish { finish: true }).expect_err("nobody is there").to_string();
            assert!(error.contains(shown), "{error}");
        }
    }

    #[test]
    fn hosts_with_and_without_ports() {
        for (text, host, port) in [
            ("node1", "node1", PORT),
            ("node1:80", "node1", 80),
            ("10.0.0.1:7500", "10.0.0.1", 7500),
            ("::1", "::1", PORT),
            ("[::1]", "::1", PORT),
            ("[fe80::1]:7500", "fe80::1", 7500),
        ] {
            assert_eq!(host_and_port(text).expect(text), (host, port));
        }
        for wrong in ["node1:", "node1:0", "node1:http", ":7411", "node1:70000"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }
}
