//! What can go wrong with a stream, on either side.

use crate::PeerId;
use crate::error::{Failure, SendError};
use std::time::Duration;
use tsumugi_rail::RailError;

/// A message cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It has ended, and more was asked for.
    #[error("the message ended {missing} bytes before what was to be read")]
    Ended {
        /// Bytes that are missing.
        missing: usize,
    },
    /// Its sender gave it up in the middle.
    #[error("{0} gave up the message in the middle")]
    Broken(PeerId),
    /// Its sender is gone.
    #[error(transparent)]
    Peer(Box<Failure>),
    /// The port is gone, and takes nothing in any more.
    #[error("the port that the message arrived at is closed")]
    Closed,
}

/// A message cannot be sent, or not on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Too many messages to this peer have been begun and not ended.
    #[error("{limit} messages to {peer} are begun and not ended; end some first")]
    Unfinished {
        /// The peer.
        peer: PeerId,
        /// How many there may be.
        limit: usize,
    },
    /// The peer was gone for a while, and what is there now does not know the message's beginning.
    #[error("{0} has restarted since the message was begun; begin it anew")]
    Lost(PeerId),
    /// The port is gone.
    #[error("the port that the message was begun at is closed")]
    Closed,
    /// The peer cannot be sent to.
    #[error(transparent)]
    Send(SendError),
    /// Waiting is of no use.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl From<SendError> for WriteError {
    fn from(error: SendError) -> Self {
        WriteError::Send(error)
    }
}

/// A call that waits cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Handlers do not read what waits for them, and nothing more may be taken in until they do.
    #[error(
        "handlers leave {held} bytes of {limit} unread and wait for something else, which cannot arrive; let them read, or raise StreamOptions::buffered_bytes"
    )]
    Stuck {
        /// Bytes that are held.
        held: u64,
        /// As many as may be.
        limit: u64,
    },
    /// The time is over.
    #[error("not over within {0:?}")]
    TimedOut(Duration),
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}
