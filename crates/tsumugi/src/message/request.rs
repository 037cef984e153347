//! What a caller asks for and what becomes of it.

use crate::buffer::Buffer;
use crate::{Failure, PeerId, Ticket};
use std::ops::Deref;
use std::time::Duration;
use tsumugi_rail::RailError;

/// Which messages a receive or a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// From whom; `None` takes anybody's.
    pub source: Option<PeerId>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Pattern {
    /// Messages of one peer with one tag.
    #[must_use]
    pub const fn of(source: PeerId, tag: u64) -> Pattern {
        Pattern { source: Some(source), tag, ignore: 0 }
    }

    /// Messages of anybody with one tag.
    #[must_use]
    pub const fn tagged(tag: u64) -> Pattern {
        Pattern { source: None, tag, ignore: 0 }
    }

    /// Every message.
    #[must_use]
    pub const fn any() -> Pattern {
        Pattern { source: None, tag: 0, ignore: u64::MAX }
    }

    /// The same, whatever these bits of the tag are.
    #[must_use]
    pub const fn ignoring(self, bits: u64) -> Pattern {
        Pattern { ignore: self.ignore | bits, ..self }
    }
}

/// What is sent with a message's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The tag, by which receives choose.
    pub tag: u64,
    /// Data that come with the message's [`Status`] and take no part in the choice.
    pub immediate: Option<u64>,
}

impl From<u64> for Envelope {
    fn from(tag: u64) -> Envelope {
        Envelope { tag, immediate: None }
    }
}

/// A message, as its receiver or sender is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The peer at the other end: of a receive the source, of a send the destination.
    pub peer: PeerId,
    /// The message's tag.
    pub tag: u64,
    /// Its immediate data.
    pub immediate: Option<u64>,
    /// Length of the message, bytes.
    pub bytes: u64,
}

impl Status {
    pub(super) fn new(peer: PeerId, Envelope { tag, immediate }: Envelope, bytes: u64) -> Status {
        Status { peer, tag, immediate, bytes }
    }
}

/// What has become of a request.
#[derive(Debug)]
pub struct Completion {
    /// The message, or why there is none.
    pub outcome: Result<Status, RequestError>,
    /// The buffer that the request had.
    pub buffer: Option<Buffer>,
    /// By which [`crate::Endpoint::status`] says of a send whether the message has arrived.
    pub ticket: Option<Ticket>,
}

impl Completion {
    pub(super) fn sent(status: Status, ticket: Option<Ticket>, buffer: Option<Buffer>) -> Completion {
        Completion { outcome: Ok(status), buffer, ticket }
    }

    /// What was received; as much as there was room for when the message was longer.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let bytes = match &self.outcome {
            Ok(status) | Err(RequestError::Truncated { status, .. }) => status.bytes,
            Err(_) => 0,
        };
        let buffer = self.buffer.as_ref().map_or(&[][..], Deref::deref);
        &buffer[..buffer.len().min(bytes as usize)]
    }
}

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The message is longer than the buffer, which has its beginning; the rest is lost.
    #[error("a message of {} bytes from {} did not fit a buffer of {room}; its end is lost", status.bytes, status.peer)]
    Truncated {
        /// The message.
        status: Status,
        /// Length of the buffer, bytes.
        room: usize,
    },
    /// It was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The buffer of a receive for several messages has not the room left that one must have. It is what is left of it.
    #[error("messages have filled the buffer but for {room} bytes")]
    Filled {
        /// Bytes that are left.
        room: usize,
    },
    /// The peer is gone.
    #[error(transparent)]
    Peer(Box<Failure>),
    /// The receiver does not take messages of this length.
    #[error(
        "{peer} takes messages of at most {limit} bytes; raise its Config::message_bytes_max, or send less"
    )]
    TooLong {
        /// The receiver.
        peer: PeerId,
        /// Its limit, bytes.
        limit: u64,
    },
    /// No peer has this number.
    #[error("{0} does not exist: no peer was added under this number")]
    NoSuchPeer(PeerId),
}

/// Waiting ended without a completion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Its completion was given out already, or its port is closed.
    #[error("the completion of this request was given out already, or its port is closed")]
    Spent,
    /// It was begun at another port, which is to be asked.
    #[error("this request was begun at another port; wait for it there")]
    OtherPort,
    /// There are no requests to wait for.
    #[error("there are no requests to wait for")]
    Nothing,
    /// The time is over. The request goes on.
    #[error("not complete within {0:?}")]
    TimedOut(Duration),
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}
