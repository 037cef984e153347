//! The transports that are measured, one file each, behind one trait: bare TCP, bare UDP, bare Ethernet frames, and
//! Tsumugi.
//!
//! The bare ones are there to be compared with, so they are tuned as well as we know: a comparison with a
//! badly used socket would prove nothing.

pub(crate) mod frames;
mod number;
pub(crate) mod ours;
pub(crate) mod raw;
pub(crate) mod raw_write;
pub(crate) mod tcp;
pub(crate) mod udp;
mod watch;

use crate::conditions::Side;
use crate::row::{Metric, PathRow};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use thiserror::Error;
use tsumugi::Report;

pub(crate) use number::Role;
pub(crate) use watch::{StopReason, Watch};

/// What carries the messages, by the name in rows and on the command line.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Transport {
    /// Tsumugi channels.
    Tsumugi,
    /// A TCP socket that never sleeps.
    TcpSpin,
    /// A TCP socket as most programs use it.
    TcpBlock,
    /// A connected UDP socket that never sleeps.
    Udp,
    /// AF_XDP sockets that never sleep: bare Ethernet frames.
    RawXdp,
    /// Bare frames that write, from a packet socket into mapped memory: round trips only.
    RawWrite,
}

impl Transport {
    /// Whether it is bare Ethernet frames.
    pub(crate) const fn is_frames(self) -> bool {
        matches!(self, Transport::RawXdp | Transport::RawWrite)
    }

    /// Whether this can be measured of it.
    pub(crate) const fn has(self, metric: Metric) -> bool {
        !matches!(self, Transport::RawWrite) || matches!(metric, Metric::RoundTrip)
    }
}

/// Silence after which a transport without repetition takes what is on its way for lost: longer than a busy machine
/// keeps a process waiting.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// Why a measurement ended early.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Nobody's fault: Ctrl-C, the other side's word, or silence.
    #[error(transparent)]
    Stopped(#[from] StopReason),
    /// A system call failed.
    #[error("{what}: {cause}")]
    System { what: String, cause: io::Error },
    /// What was asked for cannot be done by this transport.
    #[error("{0}")]
    Refused(String),
    /// The library said no.
    #[error("{what}: {cause}")]
    Ours { what: String, cause: String },
}

impl Failure {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        let what = what.into();
        move |cause| Failure::System { what, cause }
    }
}

/// What one side of a stream did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streamed {
    /// Messages that arrived, as far as this side knows.
    pub(crate) messages: u64,
    /// Payload bytes that arrived.
    pub(crate) bytes: u64,
    /// From the first message to the last acknowledgement (sender) or arrival (receiver).
    pub(crate) elapsed_ns: u64,
    /// CPU time this process used meanwhile.
    pub(crate) cpu_ns: u64,
    /// Payload bytes that were sent and never arrived (bare UDP and bare frames only).
    pub(crate) lost_bytes: u64,
}

/// What a stream consists of; both sides have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Payload bytes of one message.
    pub(crate) message_bytes: u64,
    /// The receiver acknowledges every so many messages; the sender stops only after a whole batch.
    pub(crate) batch_messages: u64,
}

impl Stream {
    /// Batches of about 1 MiB, of at most 16,384 messages: acknowledgements are rare, stopping is prompt.
    pub(crate) fn of(message_bytes: u64) -> Stream {
        Stream { message_bytes, batch_messages: ((1 << 20) / message_bytes.max(1)).clamp(1, 16_384) }
    }

    pub(crate) fn batch_bytes(self) -> u64 {
        self.message_bytes * self.batch_messages
    }
}

/// How long the sending side of a stream goes on: both limits hold, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) time: Duration,
    pub(crate) messages: u64,
}

/// One side of a measurement: what every transport can do.
pub(crate) trait Peer {
    /// What it uses here, where that is a choice.
    fn report(&self) -> Option<Report> {
        None
    }

    /// This side; `ip` is the address that the other reaches it by, and `wait` how it waits if that is a choice.
    fn side(&self, ip: IpAddr, wait: &str) -> Side {
        self.report().map_or_else(|| Side::at(ip), |report| Side::reported(&report, wait, ip))
    }

    /// The paths to the other side, where there are several.
    fn paths(&self) -> Vec<PathRow> {
        Vec::new()
    }

    /// Sends one message. A transport without repetition writes a number to its beginning.
    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure>;

    /// Receives one message of `bytes` bytes. `Ok(false)` when a transport without repetition lost it.
    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure>;

    /// Sends messages one after the other until the limit, then waits until all of them have arrived.
    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure>;

    /// Receives such a stream until `watch` stops it, which is the orderly end.
    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure>;

    /// Waits for `time` for a message that never comes, in the transport's way of waiting.
    fn idle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<(), Failure>;

    /// The sending side will send nothing more. The default has nothing to do.
    fn finish(&mut self) {}

    /// An orderly end. The default has nothing to do.
    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
