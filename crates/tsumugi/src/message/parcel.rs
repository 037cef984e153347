//! Messages that are being sent, and where their data lie.

use super::header::{DATA_HEADER_BYTES, Header};
use super::request::{RequestError, Status};
use crate::buffer::Buffer;
use crate::endpoint::core::Core;
use crate::ticket::{Ticket, TicketStatus};
use tsumugi_wire::frame::WHOLE_BYTES;

/// Bytes in front of the data in a buffer of a message.
pub(super) const FRONT_BYTES: usize = WHOLE_BYTES + DATA_HEADER_BYTES;

/// A message's data and whose memory they lie in.
#[derive(Debug, Default)]
pub(super) enum Parcel {
    /// None: they are under way.
    #[default]
    Sent,
    /// A buffer of [`PortState::buffer`]: room for headers, then the data.
    Own(Vec<u8>),
    /// The caller's.
    Lent(Buffer),
}

impl Parcel {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Parcel::Sent => 0,
            Parcel::Own(buffer) => buffer.len().saturating_sub(FRONT_BYTES),
            Parcel::Lent(buffer) => buffer.len(),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self, Parcel::Sent)
    }

    /// Only the first so many bytes of the data.
    pub(super) fn shortened(self, bytes: usize) -> Parcel {
        match self {
            Parcel::Sent => Parcel::Sent,
            Parcel::Own(mut buffer) => {
                buffer.truncate(FRONT_BYTES + bytes);
                Parcel::Own(buffer)
            }
            Parcel::Lent(buffer) => Parcel::Lent(buffer.shortened(bytes)),
        }
    }

    /// Gives the memory back: ours to the pool, the caller's to the caller.
    pub(super) fn give_back(self, core: &mut Core) -> Option<Buffer> {
        match self {
            Parcel::Sent => None,
            Parcel::Own(buffer) => {
                core.pool.give(buffer);
                None
            }
            Parcel::Lent(buffer) => Some(buffer),
        }
    }
}

/// A message that was offered.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) status: Status,
    pub(super) parcel: Parcel,
    pub(super) connection: u32,
}

impl Offered {
    /// Whether its data wait to be sent.
    pub(super) fn is_wanted(&self) -> bool {
        self.parcel.is_sent()
    }
}

/// A send that is under way in memory of the caller.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) status: Status,
    pub(super) ticket: Ticket,
    /// The memory, given back by a peer that is gone; why is said next.
    pub(super) buffer: Option<Buffer>,
    /// Why it failed, said before the memory was given back.
    pub(super) failure: Option<RequestError>,
}

impl Lent {
    /// Whether its peer is gone.
    pub(super) fn has_failed(&self, core: &Core) -> bool {
        core.status_of(self.ticket) == TicketStatus::Failed
    }
}

/// Something to be said to a peer.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A header that nothing follows.
    Header(Header),
    /// Data that a receive wants, and the send that they complete.
    Data { parcel: Parcel, receive: u64, send: u64 },
}
