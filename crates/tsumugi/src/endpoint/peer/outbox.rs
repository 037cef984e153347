//! What waits to be sent to a peer, and how far what was accepted for it has got.

use super::operations::BulkTransfer;
use std::collections::VecDeque;
use tsumugi_wire::Psn;
use tsumugi_wire::defect;
use tsumugi_wire::frame::Fragment;

/// Something that waits to become packets.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A packet's body, complete or still being filled with small messages.
    Packet {
        body: Vec<u8>,
        /// Messages of the flow up to and including the last in this body.
        messages: u64,
    },
    /// A message that is cut into fragments as room appears.
    LongMessage {
        /// Key in [`crate::endpoint::sent::Sent::long_messages`].
        key: usize,
        /// The fragment to be cut next.
        next: Fragment,
        /// Messages of the flow up to and including this one.
        messages: u64,
    },
    /// Data from or for remote memory that leave packet by packet.
    BulkTransfer {
        transfer: BulkTransfer,
        /// Messages of the flow up to and including this one.
        messages: u64,
    },
    /// The list of our NICs, as it will be when its turn comes. It is none of the messages that were accepted.
    Rails,
}

impl Outgoing {
    /// Length of the long message; 0 for what every peer takes.
    pub(crate) fn message_bytes(&self) -> u64 {
        match self {
            Outgoing::Packet { .. } | Outgoing::BulkTransfer { .. } | Outgoing::Rails => 0,
            Outgoing::LongMessage { next, .. } => next.total,
        }
    }
}

/// What waits to be sent to it, and how far what was accepted for it has got.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) waiting: VecDeque<Outgoing>,
    /// Bytes of messages in it.
    pub(crate) bytes: u64,
    pub(crate) next_fragmented: u32,
    /// Replies to its long reads in it.
    pub(crate) replies: usize,
    /// Somebody waits for something in it to arrive; and somebody may ask whether something in it has.
    pub(crate) wants_ack: bool,
    pub(crate) may_ask: bool,
    /// Messages accepted, ever.
    pub(crate) accepted: u64,
    /// Messages acknowledged by it in this connection.
    pub(crate) delivered: u64,
    /// The same of the connection before this one: what the peer had acknowledged does not fail with that.
    pub(crate) delivered_before: u64,
    /// PSN of a packet, and messages complete when everything up to it is acknowledged.
    pub(crate) marks: VecDeque<(Psn, u64)>,
}

impl Outbox {
    /// The peer has acknowledged every packet before `base`.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, base: Psn) {
        while let Some(&(psn, messages)) = self.marks.front()
            && (psn < base || (psn == base && defect!(DeliveredTooEarly)))
        {
            self.delivered = messages;
            self.marks.pop_front();
        }
    }

    /// What must hold.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let (mut bytes, mut replies) = (0, 0);
        for outgoing in &self.waiting {
            match outgoing {
                Outgoing::Packet { body, .. } => bytes += body.len() as u64,
                Outgoing::LongMessage { next, .. } => bytes += next.total - next.offset,
                Outgoing::BulkTransfer { transfer, .. } => {
                    replies += usize::from(transfer.is_reply());
                    bytes += transfer.waiting_bytes();
                }
                Outgoing::Rails => {}
            }
        }
        if replies != self.replies {
            return Err(format!("{} replies counted, {replies} are", self.replies));
        }
        if bytes != self.bytes {
            return Err(format!("outbox: {} bytes counted, {bytes} are", self.bytes));
        }
        Ok(())
    }

    /// Keys of the long messages in it.
    pub(crate) fn long_messages(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().filter_map(|outgoing| match outgoing {
            Outgoing::LongMessage { key, .. } => Some(*key),
            _ => None,
        })
    }
}
