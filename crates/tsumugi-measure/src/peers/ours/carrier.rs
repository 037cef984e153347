//! What a programming model does to carry whole messages from one side to the other.

use std::time::Duration;

use tsumugi::{Endpoint, PeerId, ReceiveError, SendError};

use super::failed;
use crate::peers::Failure;

/// A programming model in use.
pub(super) trait Carrier {
    /// Longest message that it carries, bytes.
    const BYTES_MAX: u64 = u64::MAX;

    /// Sends a message, all of which is handed to the NIC.
    fn send(&mut self, endpoint: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure>;

    /// Sends a message of a stream: it may share a packet with its neighbours.
    fn post(&mut self, endpoint: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        self.send(endpoint, peer, message)
    }

    /// Source and length of the next message; `None`: there was none for so long.
    fn next(&mut self, endpoint: &Endpoint, look_up: Duration) -> Result<Option<(PeerId, usize)>, Failure>;

    /// What arrives from now on is a stream, of which only the number matters.
    fn sink(&mut self) {}
}

/// Messages on a channel.
pub(super) struct Channel {
    pub(super) channel: tsumugi::Channel,
    /// Whether a stream is written in place, into the library's own buffers, which it never copies.
    pub(super) in_place: bool,
}

impl Carrier for Channel {
    fn send(&mut self, _: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        self.channel.send(peer, message).map(drop).map_err(failed("cannot send"))
    }

    #[inline]
    fn post(&mut self, _: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        let channel = &self.channel;
        let posted = match self.in_place {
            true => channel.send_buffer(peer, message.len()).and_then(|buffer| Ok(buffer.post()?)),
            false => channel.post(peer, message),
        };
        // The blocking form waits for room in the way that was asked for.
        let posted = match posted {
            Err(SendError::WouldBlock) if self.in_place => {
                channel.send_buffer(peer, message.len()).and_then(|buffer| Ok(buffer.send()?))
            }
            Err(SendError::WouldBlock) => channel.send(peer, message),
            posted => posted,
        };
        posted.map(drop).map_err(failed("cannot send"))
    }

    fn next(&mut self, _: &Endpoint, look_up: Duration) -> Result<Option<(PeerId, usize)>, Failure> {
        let received = match look_up.is_zero() {
            true => self.channel.try_receive(),
            false => self.channel.receive_timeout(look_up).map(Some),
        };
        match received {
            Ok(message) => Ok(message.map(|message| (message.source(), message.len()))),
            Err(ReceiveError::TimedOut(_)) => Ok(None),
            Err(error) => Err(failed("cannot receive")(error)),
        }
    }
}
