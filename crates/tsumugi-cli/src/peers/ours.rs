//! Tsumugi itself, through the public library: one endpoint and one channel on each side.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Failure, Peer, Stream, Streamed, Until, Watch};

/// What both sides set up alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Options {
    /// `spin`, `adaptive` or `block`.
    pub(crate) wait: String,
    /// `selective` or `go-back-n`.
    pub(crate) repeat: String,
    /// Receive memory in bytes; `None` is the library's default.
    pub(crate) window: Option<u64>,
    /// Faults to inject on both sides, as in `loss=1%,seed=7`.
    pub(crate) faults: Option<String>,
    /// The largest message that will be sent, in bytes.
    pub(crate) message_bytes_max: u64,
    /// Whether small messages are sent back to back.
    pub(crate) streams_small: bool,
}

/// What is wrong with a `--faults` text; `Ok` when nothing is.
pub(crate) fn check_faults(_text: &str) -> Result<(), String> {
    Ok(())
}

/// The server's side.
pub(crate) fn serve(_bind: IpAddr, _port: u16, _options: &Options) -> Result<Ours, Failure> {
    Err(Failure::Refused("Tsumugi itself is not part of this version".into()))
}

/// The client's side.
pub(crate) fn connect(
    _bind: IpAddr,
    _server: SocketAddr,
    _options: &Options,
    _trace: Option<&Path>,
) -> Result<Ours, Failure> {
    Err(Failure::Refused("Tsumugi itself is not part of this version".into()))
}

/// One end of a channel.
pub(crate) enum Ours {}

impl Ours {
    pub(crate) fn port(&self) -> u16 {
        match *self {}
    }
}

impl Peer for Ours {
    fn send(&mut self, _: &[u8], _: &mut Watch<'_>) -> Result<(), Failure> {
        match *self {}
    }
    fn receive(&mut self, _: usize, _: &mut Watch<'_>) -> Result<bool, Failure> {
        match *self {}
    }
    fn stream(&mut self, _: Stream, _: Until, _: &mut Watch<'_>) -> Result<Streamed, Failure> {
        match *self {}
    }
    fn sink(&mut self, _: Stream, _: &mut Watch<'_>) -> Result<Streamed, Failure> {
        match *self {}
    }
    fn idle(&mut self, _: Duration, _: &mut Watch<'_>) -> Result<(), Failure> {
        match *self {}
    }
}
