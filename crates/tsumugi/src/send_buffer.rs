//! Buffers to write a message into, which is then sent without a copy.

use crate::PeerId;
use crate::endpoint::shared::Shared;
use crate::error::Unsent;
use crate::ticket::Ticket;
use std::fmt;
use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use tsumugi_wire::frame::WHOLE_BYTES;

/// A buffer to write a message to one peer into; see [`Channel::send_buffer`](crate::Channel::send_buffer). There may be any
/// number at once. Dropping it unsent gives it back.
pub struct SendBuffer {
    shared: Rc<Shared>,
    peer: PeerId,
    channel: u16,
    /// Room for a frame header, then the message.
    buffer: Vec<u8>,
}

impl SendBuffer {
    pub(crate) fn new(shared: Rc<Shared>, peer: PeerId, channel: u16, buffer: Vec<u8>) -> SendBuffer {
        SendBuffer { shared, peer, channel, buffer }
    }

    /// As [`Channel::post`](crate::Channel::post), without a copy.
    ///
    /// # Errors
    /// As [`Channel::post`](crate::Channel::post), with the buffer, so that it can be posted again.
    pub fn post(mut self) -> Result<Ticket, Unsent<SendBuffer>> {
        let mut buffer = take(&mut self.buffer);
        let (peer, channel) = (self.peer, self.channel);
        let posted = self.shared.post_with(peer, |core, now| {
            match core.post_buffer(now, peer, channel, take(&mut buffer)) {
                Ok(number) => Ok(core.ticket(peer, number)),
                Err((error, back)) => {
                    buffer = back;
                    Err(error)
                }
            }
        });
        posted.map_err(|error| {
            self.buffer = buffer;
            Unsent { error, buffer: self }
        })
    }

    /// As [`Channel::send`](crate::Channel::send), without a copy.
    ///
    /// # Errors
    /// As [`Channel::send`](crate::Channel::send), with the buffer if it was not accepted; otherwise that is empty.
    pub fn send(self) -> Result<Ticket, Unsent<SendBuffer>> {
        let (shared, peer, channel) = (Rc::clone(&self.shared), self.peer, self.channel);
        if let Err(error) = shared.wait_for_room(peer, self.len()) {
            return Err(Unsent { error, buffer: self });
        }
        let ticket = self.post()?;
        let gone =
            |error| Unsent { error, buffer: SendBuffer::new(Rc::clone(&shared), peer, channel, Vec::new()) };
        shared.hand_over(peer).map_err(gone)?;
        Ok(ticket)
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuffer of {} bytes to {}", self.len(), self.peer)
    }
}

impl Deref for SendBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.get(WHOLE_BYTES..).unwrap_or_default()
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(WHOLE_BYTES..).unwrap_or_default()
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        let buffer = take(&mut self.buffer);
        self.shared.inner.borrow_mut().core.pool.give(buffer);
    }
}
