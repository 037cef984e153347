//! Tagged messages: sends and receives as requests, of which some are posted ahead.

use std::collections::VecDeque;
use std::time::Duration;

use tsumugi::message::{self, MessageOptions, Pattern, Port, Request, WaitError};
use tsumugi::{Endpoint, PeerId, SendError, Unsent};

use super::carrier::Carrier;
use super::{CHANNEL, Protocol, failed};
use crate::peers::Failure;

/// The tag of all messages.
const TAG: u64 = 1;
/// Bytes of buffers that are posted ahead, and how many at most.
const AHEAD_BYTES: usize = 8 << 20;
const AHEAD_MAX: usize = 64;
/// Messages of a stream in place that are under way at once: one that is sent, and one that is built.
const IN_PLACE: usize = 2;

pub(super) struct Tagged {
    port: Port,
    /// Receives that were posted, in order.
    posted: VecDeque<Request>,
    /// Whether a stream is written in place, into the library's own buffers, which it never copies.
    in_place: bool,
}

impl Tagged {
    pub(super) fn new(
        endpoint: &Endpoint,
        message_bytes_max: u64,
        protocol: Protocol,
        in_place: bool,
    ) -> Result<Tagged, Failure> {
        let protocol = match protocol {
            Protocol::Auto => message::Protocol::Auto,
            Protocol::Eager => message::Protocol::Eager,
            Protocol::Rendezvous => message::Protocol::Rendezvous,
            Protocol::ActiveZeroCopy => message::Protocol::ActiveZeroCopy,
        };
        let options = MessageOptions::default().protocol(protocol);
        let port = Port::open_with(endpoint, CHANNEL, options).map_err(failed("cannot open a port"))?;
        let mut tagged = Tagged { port, posted: VecDeque::new(), in_place };
        let bytes = (message_bytes_max as usize).max(1);
        // Not zeroes, which the system would bring in when the first message comes: 1 GiB of them takes seconds.
        for _ in 0..(AHEAD_BYTES / bytes).clamp(2, AHEAD_MAX) {
            tagged.receive(vec![1; bytes]);
        }
        if in_place {
            let buffers = [(); IN_PLACE].map(|()| tagged.port.buffer(bytes));
            drop(buffers); // to the pool, where the stream finds them
        }
        Ok(tagged)
    }

    fn receive(&mut self, buffer: Vec<u8>) {
        let request = self.port.receive(Pattern::tagged(TAG), buffer.into());
        self.posted.push_back(request);
    }
}

impl Carrier for Tagged {
    fn send(&mut self, _: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        loop {
            match self.port.send(peer, TAG, message) {
                // What becomes of it, its receiver tells.
                Ok(_) => return Ok(()),
                Err(SendError::WouldBlock) => {
                    self.port.wait_for_room(peer, message.len()).map_err(failed("cannot send"))?;
                }
                Err(error) => return Err(failed("cannot send")(error)),
            }
        }
    }

    fn post(&mut self, endpoint: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        if !self.in_place {
            return self.send(endpoint, peer, message);
        }
        let mut buffer = self.port.buffer(message.len()).map_err(failed("cannot get a buffer"))?;
        loop {
            match self.port.send_buffer(peer, TAG, buffer) {
                Ok(_) => return Ok(()),
                Err(Unsent { error: SendError::WouldBlock, buffer: unsent }) => {
                    self.port.wait_for_room(peer, message.len()).map_err(failed("cannot send"))?;
                    buffer = unsent;
                }
                Err(Unsent { error, .. }) => return Err(failed("cannot send")(error)),
            }
        }
    }

    fn next(&mut self, _: &Endpoint, look_up: Duration) -> Result<Option<(PeerId, usize)>, Failure> {
        let Some(request) = self.posted.front_mut() else { return Ok(None) };
        let completion = match look_up.is_zero() {
            true => self.port.test(request).map_err(failed("cannot receive"))?,
            false => match self.port.wait_timeout(request, look_up) {
                Ok(completion) => Some(completion),
                Err(WaitError::TimedOut(_)) => None,
                Err(error) => return Err(failed("cannot receive")(error)),
            },
        };
        let Some(completion) = completion else { return Ok(None) };
        self.posted.pop_front();
        let status = completion.outcome.map_err(failed("cannot receive"))?;
        if let Some(buffer) = completion.buffer {
            self.receive(buffer.into_vec());
        }
        Ok(Some((status.peer, status.bytes as usize)))
    }
}
