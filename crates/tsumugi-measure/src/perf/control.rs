//! The control connection: one line of JSON per word, strictly in turn, over TCP to the server's port.
//!
//! TCP, because it works whatever the transport under measurement does, and because its end tells each side at
//! once that the other one has gone.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thiserror::Error;
use tsumugi_rail::ether::Mac;

use crate::conditions::Side;
use crate::peers::{Failure, Streamed, Transport, frames, ours, tcp};
use crate::row::Metric;
use tsumugi_lab::interrupt::interrupted;

/// Changes whenever the words below change their meaning.
pub(crate) const VERSION: u32 = 5;

/// A longer line is not one of ours.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How long the other side may take to hear the last word.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

/// Bytes of the message that asks for another one (metric `overlap`).
pub(super) const OVERLAP_QUESTION_BYTES: usize = 8;

/// How often a waiting side looks for Ctrl-C.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(100);

/// What the client wants measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// [`VERSION`] of the client.
    pub(crate) tsumugi_perf: u32,
    pub(crate) metric: Metric,
    pub(crate) transport: Transport,
    pub(crate) message_bytes: u64,
    /// The client's UDP port (transport `udp`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) udp_port: Option<u16>,
    /// TCP's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tuning: Option<tcp::Tuning>,
    /// UDP's limit of bytes in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight: Option<u64>,
    /// How to exchange bare frames (transports `raw-xdp` and `raw-write`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw: Option<frames::RawOptions>,
    /// Tsumugi's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ours: Option<ours::TsumugiOptions>,
    /// How long to wait for nothing (metric `idle`).
    #[serde(default)]
    pub(crate) idle_ms: u64,
    /// Silence after which the server gives the measurement up.
    pub(crate) silence_max_ms: u64,
}

impl Request {
    /// How to exchange bare frames, which it must say for these transports.
    pub(super) fn frames(&self) -> Result<&frames::RawOptions, Failure> {
        let silent = || Failure::Refused("the request says nothing about bare frames".to_owned());
        self.raw.as_ref().ok_or_else(silent)
    }
}

/// The client's last word on a measurement; the server answers with [`Reply::Done`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finish {
    pub(crate) finish: bool,
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Go ahead; `port`, or the NIC with this hardware address, is where the data goes.
    Ready {
        port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// What the server's side did, and by what.
    Done { did: Streamed, side: Box<Side> },
    /// Why not.
    Refused { why: String },
}

impl Reply {
    /// Go ahead; `port` is where the data goes.
    pub(crate) const fn ready(port: u16) -> Reply {
        Reply::Ready { port, mac: None }
    }
}

/// Why the control connection is of no use.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    #[error("interrupted")]
    Interrupted,
    #[error("the other side closed the control connection")]
    Closed,
    #[error("the other side said nothing for {0:?}")]
    Silent(Duration),
    #[error("the other side does not speak `tsumugi perf` (it said {0:?})")]
    NotOurs(String),
    #[error("the control connection broke: {0}")]
    Io(#[from] io::Error),
}

/// Prepares a connection for [`say`] and [`hear`].
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    stream.set_read_timeout(Some(LOOK_UP))
}

/// Says one word.
pub(crate) fn say(mut stream: &TcpStream, word: &impl Serialize) -> Result<(), ControlError> {
    let mut line = serde_json::to_vec(word).map_err(io::Error::from)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ControlError::Closed,
        _ => error.into(),
    })
}

/// Says the last word, and waits a moment for the other side to take it and leave. A connection that is closed while
/// something of the other side's is unread is reset, and what was said last may be lost.
pub(crate) fn end(mut stream: &TcpStream, word: &impl Serialize) {
    // Who is gone need not be told.
    if say(stream, word).is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < LAST_WORD_MAX && !interrupted() {
        match stream.read(&mut [0; 4096]) {
            Ok(1..) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Waits for one word; `silence_max` of `None` waits until the other side speaks or goes.
pub(crate) fn hear<Word: DeserializeOwned>(
    mut stream: &TcpStream,
    silence_max: Option<Duration>,
) -> Result<Word, ControlError> {
    let start = Instant::now();
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    while line.last() != Some(&b'\n') {
        match stream.read(&mut piece) {
            Ok(0) => return Err(ControlError::Closed),
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset => return Err(ControlError::Closed),
                _ => return Err(error.into()),
            },
        }
        if interrupted() {
            return Err(ControlError::Interrupted);
        }
        if let Some(silence_max) = silence_max.filter(|&limit| start.elapsed() > limit) {
            return Err(ControlError::Silent(silence_max));
        }
        if line.len() > LINE_BYTES_MAX {
            break;
        }
    }
    serde_json::from_slice(&line).map_err(|_| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).trim_end().to_owned();
        ControlError::NotOurs(shown)
    })
}

/// The same host (and, for IPv6, scope), another port.
pub(super) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (far, _) = listener.accept().expect("accept");
        prepare(&near).expect("prepare");
        prepare(&far).expect("prepare");
        (near, far)
    }

    #[test]
    fn words_arrive_as_said() {
        let (near, far) = pair();
        say(&near, &Reply::ready(7)).expect("say");
        assert!(matches!(hear(&far, None), Ok(Reply::Ready { port: 7, mac: None })));
    }

    #[test]
    fn strangers_and_silence_are_told_apart() {
        let (mut near, far) = pair();
        near.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("write");
        let error = hear::<Reply>(&far, None).expect_err("not a word of ours");
        assert!(error.to_string().contains("HTTP/1.1 400"), "{error}");
        let limit = Duration::from_millis(1);
        assert!(matches!(hear::<Reply>(&far, Some(limit)), Err(ControlError::Silent(_))));
        drop(near);
        assert!(matches!(hear::<Reply>(&far, None), Err(ControlError::Closed)));
    }

    #[test]
    fn an_endless_line_is_given_up() {
        let (near, far) = pair();
        let writer = std::thread::spawn(move || {
            let _ = (&near).write_all(&vec![b'x'; 2 * LINE_BYTES_MAX]);
        });
        assert!(matches!(hear::<Reply>(&far, None), Err(ControlError::NotOurs(_))));
        drop(far);
        writer.join().expect("writer");
    }
}
