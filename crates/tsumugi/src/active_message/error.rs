//! What can go wrong with a request, before it is sent and after.

use crate::PeerId;
use crate::error::{Failure, SendError};
use std::time::Duration;
use tsumugi_rail::RailError;

/// A request was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// As many requests as the peer takes are outstanding, or the queue to it is full.
    #[error(
        "as many requests are outstanding with this peer as it takes, or the queue to it is full; poll and try again"
    )]
    WouldBlock,
    /// More data than [`super::ActiveMessageOptions::bulk_bytes`].
    #[error(
        "{bytes} bytes of data are over the limit of {limit}; raise ActiveMessageOptions::bulk_bytes on both sides"
    )]
    TooLong {
        /// What was to be sent.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The peer cannot be sent to.
    #[error(transparent)]
    Send(SendError),
}

impl From<SendError> for RequestError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::WouldBlock => RequestError::WouldBlock,
            other => RequestError::Send(other),
        }
    }
}

impl From<RailError> for RequestError {
    fn from(error: RailError) -> Self {
        RequestError::Send(SendError::Rail(error))
    }
}

/// A request that was sent and has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// Nothing is registered under this name there.
    #[error("{peer} has no handler '{name}'; register it there before requests arrive")]
    UnknownHandler {
        /// Who was asked.
        peer: PeerId,
        /// The handler's name.
        name: &'static str,
    },
    /// Nothing is registered under this name there.
    #[error("{peer} has no segment '{name}'; register it there before it is used")]
    UnknownSegment {
        /// Who was asked.
        peer: PeerId,
        /// The segment's name.
        name: &'static str,
    },
    /// A range that is not in the segment.
    #[error("the segment '{name}' of {peer} has {bytes} bytes, and some of the range lies outside")]
    OutOfBounds {
        /// Who was asked.
        peer: PeerId,
        /// The segment's name.
        name: &'static str,
        /// The segment's length.
        bytes: u64,
    },
    /// The peer takes less data.
    #[error(
        "{peer} takes requests with at most {limit} bytes of data; raise ActiveMessageOptions::bulk_bytes there"
    )]
    TooLong {
        /// Who was asked.
        peer: PeerId,
        /// Its limit.
        limit: u64,
    },
    /// The reply was too long, for the one side or the other.
    #[error(
        "the reply of {peer} has more than the {limit} bytes that are allowed; raise ActiveMessageOptions::bulk_bytes"
    )]
    ReplyTooLong {
        /// Who was asked.
        peer: PeerId,
        /// The limit that it exceeds.
        limit: u64,
    },
    /// The peer answered, but not so that it makes sense.
    #[error("{0} refused the request for a reason that this version does not know")]
    Nonsense(PeerId),
    /// The peer is gone. The request may have been handled or not.
    #[error(transparent)]
    Peer(Box<Failure>),
}

/// A reply was not sent. The requester is told that there is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// More data than [`super::ActiveMessageOptions::bulk_bytes`].
    #[error(
        "a reply of {bytes} bytes is over the limit of {limit}; raise ActiveMessageOptions::bulk_bytes on both sides"
    )]
    TooLong {
        /// What was to be sent.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The requester cannot be sent to. Nobody is told.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A request that was waited for has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not sent.
    #[error(transparent)]
    NotSent(#[from] RequestError),
    /// It was sent.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// There is no answer yet, or there was no room for the request: the peer is there and does not answer.
    #[error(
        "{peer} has not answered within {timeout:?}; its process may be stopped, computing, or not calling into the library"
    )]
    TimedOut {
        /// Who was asked.
        peer: PeerId,
        /// How long was waited.
        timeout: Duration,
    },
}
