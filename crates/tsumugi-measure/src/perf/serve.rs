//! `tsumugi perf serve`: does what a client's request says, one client at a time.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::time::Timespec;
use thiserror::Error;
use tsumugi::{Config, Endpoint, ReceiveChoice, Wait};
use tsumugi_rail::copy::Staging;
use tsumugi_rail::family::canonical;
use tsumugi_rail::port::when_free;

use super::control::{
    self, ControlError, Finish, LOOK_UP, OVERLAP_QUESTION_BYTES, Reply, Request, with_port,
};
use crate::cpu::process_cpu_time;
use crate::output;
use crate::peers::raw::Raw;
use crate::peers::raw_write::RawWrite;
use crate::peers::tcp::{Tcp, Tuning};
use crate::peers::udp::Udp;
use crate::peers::{Failure, Peer, Role, StopReason, Stream, Streamed, Transport, Watch, ours};
use crate::row::Metric;
use tsumugi_lab::interrupt::interrupted;

/// How long a client may say nothing between two measurements: others may be waiting for their turn.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long its first word may take while the endpoint that is there for others still answers.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// Why the server cannot serve.
#[derive(Debug, Error)]
enum ServeError {
    #[error("cannot answer on TCP port {port}: {cause}; is another `tsumugi perf serve` running? Use --port")]
    Bind { port: u16, cause: io::Error },
    #[error("cannot accept connections on port {port}: {cause}")]
    Accept { port: u16, cause: io::Error },
}

pub(crate) fn run(serve: &super::Serve) -> crate::CommandResult {
    let listener = listen(serve.port).map_err(|cause| ServeError::Bind { port: serve.port, cause })?;
    let port = listener.local_addr()?.port();
    output::line(format_args!("tsumugi perf: answering on port {port} (TCP and UDP); Ctrl-C ends"))?;
    let server = Server { listener: Arc::new(listener), port, serve };
    loop {
        match next_client(&server.listener, server.present()) {
            Ok(control) => server.session(&control, SILENCE_MAX),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(ServeError::Accept { port, cause }.into()),
        }
        if interrupted() {
            return Ok(ExitCode::from(crate::output::EXIT_INTERRUPTED));
        }
        if serve.once {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Listens on both address families, or on IPv4 alone where the kernel has no IPv6.
fn listen(port: u16) -> io::Result<TcpListener> {
    let bind = || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(error),
            _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        })
    };
    when_free(bind, |error| error.kind() == ErrorKind::AddrInUse)
}

/// The next connection of a client. `ErrorKind::Interrupted` on Ctrl-C.
///
/// Who asks this host's kernel whether the endpoint's port is there connects to it and resets the connection at once.
fn next_client(listener: &TcpListener, present: Option<Endpoint>) -> io::Result<TcpStream> {
    loop {
        let control = accept(listener, None, present.as_ref())?;
        match wait_for(&control, Some(FIRST_WORD), present.as_ref()) {
            Ok(()) if control.peek(&mut [0]).is_err() => {}
            // Who has said nothing yet is told so by the session.
            Err(error) if error.kind() != ErrorKind::TimedOut => return Err(error),
            _ => return Ok(control),
        }
    }
}

/// Waits for a connection; errors as [`wait_for`]'s.
fn accept(
    listener: &TcpListener,
    limit: Option<Duration>,
    present: Option<&Endpoint>,
) -> io::Result<TcpStream> {
    loop {
        wait_for(listener, limit, present)?;
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            // The client has gone again before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until there is something to read, and has `present` answer meanwhile; `ErrorKind::Interrupted` on Ctrl-C, `TimedOut`
/// after `limit`.
fn wait_for(what: &impl AsFd, limit: Option<Duration>, present: Option<&Endpoint>) -> io::Result<()> {
    let start = Instant::now();
    let look_up = Timespec::try_from(LOOK_UP).unwrap_or_default();
    let descriptor = present.and_then(Endpoint::descriptor);
    loop {
        if interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut watched: Vec<PollFd<'_>> = std::iter::once(what.as_fd())
            .chain(descriptor)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        match poll(&mut watched, Some(&look_up)) {
            Err(error) if error != Errno::INTR => return Err(error.into()),
            _ => {}
        }
        if let Some(endpoint) = present {
            endpoint.progress().map_err(io::Error::other)?;
        }
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
    }
}

/// Why a session ended before its client had finished.
#[derive(Debug, Error)]
enum SessionError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
}

impl SessionError {
    /// Whether somebody ended it on purpose: the client, in the middle of a measurement, or Ctrl-C here.
    fn is_end(&self) -> bool {
        matches!(
            self,
            SessionError::Control(ControlError::Closed | ControlError::Interrupted)
                | SessionError::Failed(Failure::Stopped(StopReason::Control | StopReason::Interrupted))
        )
    }
}

/// What it takes to serve.
struct Server<'a> {
    /// Who has the TCP port of an endpoint's number tells for it that its process is there.
    listener: Arc<TcpListener>,
    port: u16,
    serve: &'a super::Serve,
}

/// What a client has had measured.
#[derive(Default)]
struct Served {
    measurements: u32,
    /// What the latest was.
    latest: Option<(Metric, Transport)>,
}

impl Server<'_> {
    /// An endpoint that is there while nobody measures, so that others can ask which paths lead here. `None` where the UDP port
    /// is somebody else's.
    fn present(&self) -> Option<Endpoint> {
        let config = Config::default().port(self.port).receive(ReceiveChoice::Socket).wait(Wait::Block);
        Endpoint::open(config.listener(Arc::clone(&self.listener))).ok()
    }

    /// Serves one client, and tells of it.
    fn session(&self, control: &TcpStream, silence_max: Duration) {
        let client =
            control.peer_addr().map_or("unknown".to_owned(), |address| canonical(address).to_string());
        let (start, mut served) = (Instant::now(), Served::default());
        let ended = self.measurements(control, &client, silence_max, &mut served);
        let measurements = served.measurements;
        let seconds = format!("{:.1}", start.elapsed().as_secs_f32());
        match ended {
            Ok(()) => tracing::info!(%client, measurements, %seconds, "a client has finished"),
            Err(error) if error.is_end() => {
                let who = if interrupted() { "Ctrl-C here" } else { "the client left" };
                tracing::info!(%client, measurements, %seconds, "a measurement was cut short: {who}");
            }
            Err(error) => tracing::warn!(%client, measurements, %seconds, "a client was given up: {error}"),
        }
    }

    /// One client's measurements, one after the other, until it closes its control connection.
    fn measurements(
        &self,
        control: &TcpStream,
        client: &str,
        silence_max: Duration,
        served: &mut Served,
    ) -> Result<(), SessionError> {
        control::prepare(control)?;
        loop {
            let ended = match control::hear::<Request>(control, Some(silence_max)) {
                Ok(request) => {
                    let what = (request.metric, request.transport);
                    if served.latest.replace(what) != Some(what) {
                        let (metric, transport): (&str, &str) =
                            (request.metric.into(), request.transport.into());
                        tracing::info!(%client, metric, transport, bytes = request.message_bytes, "a client measures");
                    }
                    served.measurements += 1;
                    self.measurement(control, request)
                }
                Err(ControlError::Closed) => return Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = ended {
                // The client learns why, if it is still there, and nothing more is expected of it.
                control::end(control, &Reply::Refused { why: error.to_string() });
                return Err(error);
            }
        }
    }

    fn measurement(&self, control: &TcpStream, mut request: Request) -> Result<(), SessionError> {
        if request.tsumugi_perf != control::VERSION {
            return Err(Failure::Refused(format!(
                "this server speaks version {} of the perf protocol, the client version {}: install the same \
                 tsumugi on both hosts",
                control::VERSION,
                request.tsumugi_perf
            ))
            .into());
        }
        if let Some(options) = &mut request.ours {
            options.wait = self.serve.wait.clone().unwrap_or_else(|| options.wait.clone());
            options.receive = self.serve.receive.clone().unwrap_or_else(|| options.receive.clone());
        }
        let mut peer = self.open(control, &request)?;
        let silence_max = Duration::from_millis(request.silence_max_ms) + Duration::from_secs(1);
        let mut watch = Watch::new(Some(control), silence_max);
        let stream = Stream::of(request.message_bytes);
        let done = match request.metric {
            Metric::RoundTrip | Metric::Overhead => {
                answer(peer.as_mut(), request.message_bytes as usize, request.message_bytes, &mut watch)?
            }
            Metric::Bandwidth | Metric::Rate => peer.as_mut().sink(stream, &mut watch)?,
            Metric::Overlap => {
                answer(peer.as_mut(), OVERLAP_QUESTION_BYTES, request.message_bytes, &mut watch)?
            }
            Metric::Idle => idle(peer.as_mut(), Duration::from_millis(request.idle_ms), control)?,
        };
        let _: Finish = control::hear(control, Some(silence_max))?;
        let wait = request.ours.as_ref().map_or("", |options| options.wait.as_str());
        let side = peer.side(canonical(control.local_addr()?).ip(), wait);
        control::say(control, &Reply::Done { did: done, side: Box::new(side) })?;
        Ok(peer.close()?)
    }

    /// Opens this side of the data path, and tells the client that it may open the other.
    fn open(&self, control: &TcpStream, request: &Request) -> Result<Box<dyn Peer>, SessionError> {
        let here = canonical(control.local_addr()?);
        let there = canonical(control.peer_addr()?);
        match request.transport {
            Transport::TcpSpin | Transport::TcpBlock => {
                let tuning = request.tuning.unwrap_or(Tuning::PROMPT);
                let listener = TcpListener::bind(with_port(here, 0))?;
                // Before the connection is made, so that its window scale allows for the buffer.
                if let Some(bytes) = tuning.buffer_bytes
                    && sockopt::set_socket_recv_buffer_size_force(&listener, bytes).is_err()
                {
                    let _ = sockopt::set_socket_recv_buffer_size(&listener, bytes);
                }
                control::say(control, &Reply::ready(listener.local_addr()?.port()))?;
                let stream = loop {
                    let stream = accept(&listener, Some(Duration::from_secs(5)), None)?;
                    if canonical(stream.peer_addr()?).ip() == there.ip() {
                        break stream;
                    }
                };
                Ok(Box::new(Tcp::new(stream, request.transport == Transport::TcpSpin, tuning)?))
            }
            Transport::Udp => {
                let peer_port = request.udp_port.unwrap_or(0);
                let socket = UdpSocket::bind(with_port(here, self.port))
                    .map_err(Failure::system(format!("the server cannot use its UDP port {}", self.port)))?;
                socket.connect(with_port(there, peer_port)).map_err(Failure::system(format!(
                    "the server cannot reach UDP port {peer_port} of {there}"
                )))?;
                let udp = Udp::new(socket, request.in_flight, Role::Answers)?;
                control::say(control, &Reply::ready(self.port))?;
                Ok(Box::new(udp))
            }
            Transport::RawXdp => {
                let options = request.frames()?;
                let mut raw = Raw::open(here, there, options.mode()?, Role::Answers)?;
                raw.connect(options.mac);
                control::say(control, &Reply::Ready { port: self.port, mac: Some(raw.mac()) })?;
                Ok(Box::new(raw))
            }
            Transport::RawWrite => {
                let options = request.frames()?;
                let mut raw = RawWrite::open(here, there, options.mode()?, Role::Answers)?;
                raw.connect(options.mac);
                control::say(control, &Reply::Ready { port: self.port, mac: Some(raw.mac()) })?;
                Ok(Box::new(raw))
            }
            Transport::Tsumugi => {
                let options = request.ours.as_ref().ok_or_else(|| {
                    Failure::Refused("the request says nothing about Tsumugi's settings".to_owned())
                })?;
                // The XDP receive path has ports of its own; the client is told which it is.
                let port = if options.receive == "xdp" { 0 } else { self.port };
                let (port, ours) = ours::serve(here.ip(), port, &self.listener, options)?;
                control::say(control, &Reply::ready(port))?;
                Ok(ours)
            }
        }
    }
}

/// Answers each message of `question_bytes` by one of `bytes`, until the client says that it has finished.
fn answer(
    peer: &mut dyn Peer,
    question_bytes: usize,
    bytes: u64,
    watch: &mut Watch<'_>,
) -> Result<Streamed, Failure> {
    let mut message = Staging::new(bytes as usize, 0xa5);
    let mut answered = Streamed::default();
    let end = loop {
        match peer.receive(question_bytes, watch) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => break error,
        }
        if let Err(error) = peer.send(&mut message, watch) {
            break error;
        }
        answered.messages += 1;
        answered.bytes += bytes;
    };
    match end {
        Failure::Stopped(StopReason::Control) => Ok(answered),
        error => Err(error),
    }
}

/// Waits for nothing, and says what that cost.
fn idle(peer: &mut dyn Peer, time: Duration, control: &TcpStream) -> Result<Streamed, Failure> {
    let (start, cpu) = (Instant::now(), process_cpu_time());
    // Silence is what is measured here: only Ctrl-C and the client's end may cut it short.
    match peer.idle(time, &mut Watch::new(Some(control), Duration::MAX)) {
        Ok(()) | Err(Failure::Stopped(StopReason::Control)) => {}
        Err(error) => return Err(error),
    }
    Ok(Streamed {
        elapsed_ns: start.elapsed().as_nanos() as u64,
        cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
        ..Streamed::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Both ends of a control connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        control::prepare(&client).expect("prepare");
        (client, server)
    }

    #[test]
    fn a_client_that_says_nothing_for_too_long_is_told_before_it_is_left() {
        let (mut client, server) = pair();
        let serve = super::super::Serve { port: 0, once: true, wait: None, receive: None, cpu: None };
        let session = std::thread::spawn(move || {
            let listener = Arc::new(listen(0).expect("a port"));
            let here = Server { listener, port: 0, serve: &serve };
            let mut served = Served::default();
            let ended = here.measurements(&server, "somebody", Duration::from_millis(50), &mut served);
            ended.expect_err("a silent client").to_string()
        });
        let mut said = String::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !said.ends_with('\n') && Instant::now() < deadline {
            let mut piece = [0; 1024];
            match client.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => said.push_str(&String::from_utf8_lossy(&piece[..count])),
                Err(_) => {}
            }
        }
        assert!(said.contains("refused") && said.contains("said nothing"), "{said:?}");
        drop(client);
        assert!(session.join().expect("the session").contains("said nothing"));
    }
}
