//! What a port remembers of a request, and of a message that nobody has received.

use super::matching::{Posted, Wanted};
use super::parcel::{Lent, Offered};
use super::request::{Completion, RequestError, Status};
use crate::buffer::Buffer;
use crate::endpoint::core::place::Incoming;
use crate::endpoint::receive_queue::Payload;
use crate::{Failure, PeerId};

/// A request.
#[derive(Debug)]
pub(super) struct Entry {
    /// Nobody will ask for its completion.
    pub(super) is_orphan: bool,
    /// What the caller calls it in the list of completions; `None`: it is not listed there.
    pub(super) cookie: Option<u64>,
    pub(super) stage: Stage,
}

impl Entry {
    pub(super) fn new(cookie: Option<u64>, stage: Stage) -> Entry {
        Entry { is_orphan: false, cookie, stage }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    Receive(Receive),
    Many(Many),
    Send(Offered),
    /// A send that is under way in memory of the caller.
    Lent(Lent),
    Done(Completion),
}

/// A receive that is not complete.
#[derive(Debug)]
pub(super) struct Receive {
    /// `None` while it is lent.
    pub(super) buffer: Option<Buffer>,
    pub(super) at: At,
    /// The peer and the connection that something is expected of because of it.
    pub(super) expects: Option<(PeerId, u32)>,
    /// The receive for several messages that it is a part of.
    pub(super) whole: Option<u64>,
}

/// Where a receive is.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// It has not been compared with any message.
    New,
    /// It waits for such a message.
    Posted(Posted, Wanted),
    /// It has accepted so many bytes of an offered message.
    Granted { status: Status, granted: u64 },
    /// A message is arriving in its buffer.
    Placing(Status),
    /// The peer was gone while a message arrived.
    Lost(PeerId),
}

/// A message that nobody has received.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) status: Status,
    pub(super) stored: Stored,
    /// Where it waits; nowhere when it is claimed.
    pub(super) waits: Option<usize>,
}

#[derive(Debug)]
pub(super) enum Stored {
    /// All of it, with its header.
    Whole(Payload),
    /// It is arriving.
    Arriving(Incoming),
    /// The peer has it, for its request of this number.
    Offered(u64),
    /// The peer was gone before it was there; why will be known soon.
    Lost,
    /// The peer is gone.
    Gone(Box<Failure>),
}

/// A receive for several messages.
#[derive(Debug)]
pub(super) struct Many {
    /// What has not been filled.
    pub(super) rest: Buffer,
    /// Room that there must be for a message to match it, bytes.
    pub(super) least: usize,
    /// Where it waits.
    pub(super) posted: Option<(Posted, Wanted)>,
    /// Messages that have matched it and are not complete.
    pub(super) parts: usize,
    /// Why it matches no more messages.
    pub(super) ended: Option<RequestError>,
    /// The peer and the connection that something is expected of because of it.
    pub(super) expects: Option<(PeerId, u32)>,
}

impl Many {
    pub(super) fn is_posted_for(&self, peer: PeerId) -> bool {
        self.posted.is_some_and(|(_, wanted)| wanted.source == Some(peer.0))
    }
}
