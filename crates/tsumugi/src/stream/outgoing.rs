//! A message that is being sent, piece by piece.

use super::error::WriteError;
use super::format::{Chunk, End};
use super::hub::Hub;
use crate::error::SendError;
use crate::ticket::Ticket;
use crate::{PeerId, registry};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use tsumugi_wire::frame::WHOLE_BYTES;

/// A message that is being sent. Its pieces are gathered until they fill a packet, or until it ends. Dropped before
/// its end, it is given up, and its reader is told.
pub struct Outgoing {
    hub: Rc<Hub>,
    peer: PeerId,
    /// The connection with the peer in which it was begun. In another the peer does not know of its beginning.
    connection: u32,
    message: u32,
    /// Hash of the handler's name.
    handler: u64,
    /// Room for a frame header and the chunk's, then gathered bytes; empty while nothing is gathered.
    buffer: Vec<u8>,
    /// How long `buffer` may become.
    buffer_bytes_max: usize,
    /// The head has left.
    is_begun: bool,
}

impl Outgoing {
    pub(super) fn begin(hub: &Rc<Hub>, peer: PeerId, handler: &str) -> Result<Outgoing, WriteError> {
        let (connection, message) = hub.begin(peer)?;
        Ok(Outgoing {
            hub: Rc::clone(hub),
            peer,
            connection,
            message,
            handler: registry::hash(handler),
            buffer: Vec::new(),
            buffer_bytes_max: 0,
            is_begun: false,
        })
    }

    /// The peer that it is for.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Adds as much of a piece as there is room for now; returns how many bytes that was.
    ///
    /// # Errors
    /// The peer or the port is gone.
    pub fn try_piece(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        self.check()?;
        let mut taken = 0;
        while taken < data.len() {
            self.prepare()?;
            let room = self.buffer_bytes_max.saturating_sub(self.buffer.len());
            let bytes = room.min(data.len() - taken);
            self.buffer.extend_from_slice(&data[taken..taken + bytes]);
            taken += bytes;
            if self.buffer.len() >= self.buffer_bytes_max && self.leave(None)?.is_none() {
                break;
            }
        }
        Ok(taken)
    }

    /// Adds a piece, and waits for room where there is none. For handlers; others use [`super::Streams::piece`].
    ///
    /// # Errors
    /// The peer or the port is gone.
    pub async fn piece(&mut self, data: &[u8]) -> Result<(), WriteError> {
        let mut taken = 0;
        poll_fn(|context| {
            taken += self.try_piece(&data[taken..])?;
            if taken == data.len() { Poll::Ready(Ok(())) } else { self.pending(context) }
        })
        .await
    }

    /// Sends what is gathered, though it does not fill a packet.
    ///
    /// # Errors
    /// As [`Outgoing::piece`].
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        poll_fn(|context| {
            if self.buffer.is_empty() || self.leave(None)?.is_some() {
                return Poll::Ready(Ok(()));
            }
            self.pending(context)
        })
        .await
    }

    /// Ends the message. The ticket tells when all of it has arrived.
    ///
    /// # Errors
    /// As [`Outgoing::piece`].
    pub async fn end(mut self) -> Result<Ticket, WriteError> {
        poll_fn(|context| {
            self.check()?;
            self.prepare()?;
            match self.leave(Some(End::Whole))? {
                Some(ticket) => Poll::Ready(Ok(ticket)),
                None => self.pending(context),
            }
        })
        .await
    }

    fn pending<T>(&self, context: &Context<'_>) -> Poll<T> {
        self.hub.want(self.peer, self.message, self.chunk_bytes() as u64, context.waker());
        Poll::Pending
    }

    /// Length of the chunk that is being gathered.
    fn chunk_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(WHOLE_BYTES)
    }

    fn chunk(&self, end: Option<End>) -> Chunk {
        Chunk { message: self.message, handler: (!self.is_begun).then_some(self.handler), end }
    }

    /// Whether the message can be sent on.
    fn check(&self) -> Result<(), WriteError> {
        if self.hub.closed.get() {
            return Err(WriteError::Closed);
        }
        let inner = self.hub.shared.inner.borrow();
        if inner.core.is_connection(self.peer, self.connection) {
            return Ok(());
        }
        match inner.core.may_post(self.peer, 0) {
            Err(error @ SendError::Peer(_)) => Err(error.into()),
            _ => Err(WriteError::Lost(self.peer)),
        }
    }

    /// Makes a buffer to gather into, unless there is one.
    fn prepare(&mut self) -> Result<(), WriteError> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        let front = WHOLE_BYTES + self.chunk(None).bytes();
        let core = &mut self.hub.shared.inner.borrow_mut().core;
        // As many as one packet takes: all packets of a long message are equal then, and none is cut.
        self.buffer_bytes_max = (WHOLE_BYTES + core.packet_message_bytes(self.peer)).max(front + 1);
        let bytes = self.buffer_bytes_max;
        self.buffer = core.pool.take(bytes).ok_or(SendError::NoMemory(bytes))?;
        self.buffer.resize(front, 0);
        Ok(())
    }

    /// Sends the chunk that was gathered; `None` when there is no room.
    fn leave(&mut self, end: Option<End>) -> Result<Option<Ticket>, WriteError> {
        self.check()?;
        let chunk = self.chunk(end);
        chunk.encode(&mut self.buffer[WHOLE_BYTES..]);
        let buffer = std::mem::take(&mut self.buffer);
        let (peer, channel) = (self.peer, self.hub.channel);
        let posted =
            self.hub.shared.post_with(peer, |core, now| match core.post_buffer(now, peer, channel, buffer) {
                Ok(number) => Ok(core.ticket(peer, number)),
                Err((error, buffer)) => {
                    self.buffer = buffer;
                    Err(error)
                }
            });
        match posted {
            Ok(ticket) => {
                if !self.is_begun {
                    self.is_begun = true;
                    self.hub.opened(self.message, (self.peer, self.connection));
                }
                if end.is_some() {
                    self.hub.ended(self.message);
                }
                Ok(Some(ticket))
            }
            Err(SendError::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.hub.over(self.peer, self.message);
        let buffer = std::mem::take(&mut self.buffer);
        self.hub.shared.inner.borrow_mut().core.pool.give(buffer);
    }
}
