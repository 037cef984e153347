//! Names of messages that were accepted.

use crate::PeerId;

/// Names a message that was accepted, to ask later what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    peer: PeerId,
    connection: u32,
    number: u64,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketStatus {
    /// Under way.
    Pending,
    /// Acknowledged: it lies in the receiver's memory.
    Delivered,
    /// Its peer is gone, and it is not known whether it had arrived. For a message that had, too, once the peer
    /// is gone for the second time since.
    Failed,
}

impl Ticket {
    pub(crate) fn new(peer: PeerId, connection: u32, number: u64) -> Ticket {
        Ticket { peer, connection, number }
    }

    /// The peer that the message is for.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// In which connection with its peer it was accepted.
    pub(crate) fn connection(&self) -> u32 {
        self.connection
    }

    /// Its number among the messages accepted in that connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
