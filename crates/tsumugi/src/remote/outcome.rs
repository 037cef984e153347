//! What becomes of operations on remote memory, at either end.

use crate::PeerId;
use crate::ticket::Ticket;
use std::time::Duration;
use tsumugi_rail::{RailError, Slice};
use tsumugi_wire::remote::RemoteStatus;

/// Why the owner of memory refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It was guessed, or is revoked, or its owner has restarted.
    #[error("no memory has this key: it was never handed out, or is registered no more")]
    NoSuchKey,
    /// It reaches beyond the memory that was registered.
    #[error("it reaches beyond the memory that is registered under this key")]
    OutOfBounds,
    /// The key does not give the right.
    #[error("the key does not permit this; ask the memory's owner for the right")]
    NotPermitted,
    /// Words lie at multiples of their size.
    #[error("the word's address is no multiple of its size")]
    Misaligned,
    /// The other side has too much to do.
    #[error("too many operations wait there; wait for some first")]
    TooMany,
    /// The memory went away while others could reach it.
    #[error(
        "the memory is registered, but was unmapped or protected by the process that it is of; it must stay until it is registered no more"
    )]
    NotMapped,
    /// The request is not of this version's making.
    #[error("the other side does not understand the request")]
    Malformed,
}

/// What became of an operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The memory's owner refused it, and nothing was done.
    #[error("the operation on remote memory was refused: {0}")]
    Refused(Refused),
    /// The peer is gone, and it is not known whether it was done. [`crate::Endpoint::take_failure`] says why.
    #[error("{0} is gone before it answered")]
    PeerGone(PeerId),
}

/// Waiting ended without what was waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("nothing came within {0:?}")]
    TimedOut(Duration),
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}

/// What became of an operation that was waited for and has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// It has failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// It is still under way, as far as is known.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl RemoteError {
    pub(crate) fn refused(status: RemoteStatus) -> RemoteError {
        RemoteError::Refused(match status {
            RemoteStatus::NoSuchKey => Refused::NoSuchKey,
            RemoteStatus::OutOfBounds => Refused::OutOfBounds,
            RemoteStatus::NotPermitted => Refused::NotPermitted,
            RemoteStatus::Misaligned => Refused::Misaligned,
            RemoteStatus::TooMany => Refused::TooMany,
            RemoteStatus::NotMapped => Refused::NotMapped,
            RemoteStatus::Malformed | RemoteStatus::Done => Refused::Malformed,
        })
    }
}

/// A write or a notification that was refused. Nobody waits for those, so they are told here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which one.
    pub ticket: Ticket,
    /// Why.
    pub error: RemoteError,
}

impl Refusal {
    pub(crate) fn new(ticket: Ticket, status: RemoteStatus) -> Refusal {
        Refusal { ticket, error: RemoteError::refused(status) }
    }
}

/// Memory of ours was written, and the writer wants us to know.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Who wrote.
    pub source: PeerId,
    /// The handler that the writer has chosen.
    pub handler: u64,
    /// What was written.
    pub slice: Slice,
}
