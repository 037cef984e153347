//! What waits to be sent to a peer, and how far what was accepted for it has got.

use super::operations::BulkTransfer;
use crate::context::{ContextError, SavedOutbox, SavedOutgoing};
use crate::endpoint::long_message::LongMessage;
use crate::endpoint::multicast::MulticastId;
use crate::endpoint::sent::Sent;
use std::collections::VecDeque;
use tsumugi_wire::Psn;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{Fragment, WHOLE_BYTES};

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
        /// The multicast whose fragments it gets as they are cut for several peers at once, while it keeps up with them.
        multicast: Option<MulticastId>,
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

/// What waits to be sent to it, and how far what was accepted for it has got.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Outgoing>,
    /// Bytes of messages that wait, but for replies.
    bytes: u64,
    next_fragmented: u32,
    /// Replies to its long reads that wait.
    replies: usize,
    /// Somebody waits for something in it to arrive.
    wants_ack: bool,
    /// Packets before this one have been sent with a request for an ACK, or before one.
    asked: Psn,
    /// Messages accepted, ever.
    accepted: u64,
    /// Messages acknowledged by it in this connection.
    delivered: u64,
    /// The same of the connection before this one: what the peer had acknowledged does not fail with that.
    delivered_before: u64,
    /// PSN of a packet, and messages complete when everything up to it is acknowledged.
    marks: VecDeque<(Psn, u64)>,
}

/// What came of [`Outbox::cut_transfer`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferCut {
    /// Number of the message whose memory was not there any more.
    pub(crate) lacking: Option<u64>,
    /// Messages that are complete with it.
    pub(crate) complete: Option<u64>,
}

impl Outbox {
    /// That of the next connection with the peer.
    pub(crate) fn after(former: &Outbox) -> Outbox {
        Outbox { delivered_before: former.delivered, ..Outbox::default() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of messages that wait, but for replies.
    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Replies to its long reads that wait.
    pub(crate) const fn replies(&self) -> usize {
        self.replies
    }

    /// Messages accepted, ever.
    #[inline]
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Number that the next message to be accepted will have.
    #[inline]
    pub(crate) const fn next_number(&self) -> u64 {
        self.accepted + 1
    }

    /// A message is accepted. Returns its number.
    #[inline]
    pub(crate) fn accept(&mut self) -> u64 {
        self.accepted += 1;
        self.accepted
    }

    /// Messages accepted and not acknowledged.
    #[inline]
    pub(crate) const fn undelivered(&self) -> u64 {
        self.accepted - self.delivered
    }

    /// Whether a message of this connection is acknowledged.
    #[inline]
    pub(crate) const fn has_delivered(&self, number: u64) -> bool {
        self.delivered >= number
    }

    /// Whether a message of the connection before was acknowledged.
    pub(crate) const fn had_delivered(&self, number: u64) -> bool {
        self.delivered_before >= number
    }

    /// Somebody waits for something in it to arrive.
    pub(crate) fn want_ack(&mut self) {
        self.wants_ack = true;
    }

    /// Whether somebody waits for what is sent to arrive.
    #[inline]
    pub(crate) const fn wants_ack(&self) -> bool {
        self.wants_ack
    }

    /// All that waited has been sent, and its ACK asked for if somebody wants it.
    pub(crate) fn on_all_sent(&mut self) {
        self.wants_ack = false;
    }

    /// What was sent before `next` is acknowledged at once, as far as it arrives. Returns whether that was not asked for before.
    pub(crate) fn ask(&mut self, next: Psn) -> bool {
        let is_news = self.asked < next;
        self.asked = self.asked.max(next);
        is_news
    }

    /// Adds a frame to the packet that is still being filled, if there is one with room.
    #[inline]
    pub(crate) fn append(&mut self, room: usize, frame: &[u8], parts: [&[u8]; 2], complete: u64) -> bool {
        let Some(Outgoing::Packet { body, messages }) = self.waiting.back_mut() else { return false };
        let start = body.len().next_multiple_of(8);
        if start + frame.len() + parts[0].len() + parts[1].len() > room {
            return false;
        }
        let before = body.len();
        body.resize(start, 0);
        body.extend_from_slice(frame);
        parts.iter().for_each(|part| body.extend_from_slice(part));
        self.bytes += (body.len() - before) as u64;
        *messages = complete;
        true
    }

    pub(crate) fn push_packet(&mut self, body: Vec<u8>, messages: u64) {
        self.bytes += body.len() as u64;
        self.waiting.push_back(Outgoing::Packet { body, messages });
    }

    /// Adds a long message of so many bytes, the next to be accepted, of which one use is meant for this peer.
    pub(crate) fn push_long_message(&mut self, channel: u16, key: usize, total: u64) {
        let next = Fragment { channel, message: self.number_fragmented(), offset: 0, total };
        self.bytes += total;
        let messages = self.next_number();
        self.waiting.push_back(Outgoing::LongMessage { key, next, messages, multicast: None });
    }

    /// The number that the next long message has.
    pub(crate) const fn next_fragmented(&self) -> u32 {
        self.next_fragmented
    }

    /// The same with a long message that others get, too, under the same number, which is no earlier than any here.
    pub(crate) fn push_shared_by(
        &mut self,
        multicast: Option<MulticastId>,
        channel: u16,
        key: usize,
        message: u32,
        total: u64,
    ) {
        self.next_fragmented = message;
        self.push_long_message(channel, key, total);
        if let Some(Outgoing::LongMessage { multicast: its, .. }) = self.waiting.back_mut() {
            *its = multicast;
        }
    }

    /// The multicast that what waits first belongs to.
    #[inline]
    pub(crate) fn multicast(&self) -> Option<MulticastId> {
        match self.front() {
            Some(Outgoing::LongMessage { multicast, .. }) => *multicast,
            _ => None,
        }
    }

    /// A long message goes on for this peer alone.
    pub(crate) fn leave_multicast(&mut self, its: usize) {
        for outgoing in &mut self.waiting {
            if let Outgoing::LongMessage { key, multicast, .. } = outgoing
                && *key == its
            {
                *multicast = None;
            }
        }
    }

    fn number_fragmented(&mut self) -> u32 {
        let number = self.next_fragmented;
        self.next_fragmented = number.wrapping_add(1);
        number
    }

    pub(crate) fn push_transfer(&mut self, transfer: BulkTransfer, messages: u64) {
        self.bytes += transfer.waiting_bytes();
        self.replies += usize::from(transfer.is_reply());
        self.waiting.push_back(Outgoing::BulkTransfer { transfer, messages });
    }

    /// Has the peer told of our NICs before anything else that waits.
    pub(crate) fn announce(&mut self) {
        if !self.waiting.iter().any(|outgoing| matches!(outgoing, Outgoing::Rails)) {
            self.waiting.push_front(Outgoing::Rails);
        }
    }

    /// It need not be told of our NICs.
    pub(crate) fn announce_no_more(&mut self) {
        self.waiting.retain(|outgoing| !matches!(outgoing, Outgoing::Rails));
    }

    /// Whether a message of more than `limit` bytes waits.
    pub(crate) fn has_longer_than(&self, limit: u64) -> bool {
        let is = |outgoing: &Outgoing| matches!(outgoing, Outgoing::LongMessage { next, .. } if next.total > limit);
        self.waiting.iter().any(is)
    }

    /// What waits first.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.waiting.front()
    }

    /// Takes the packet that waits first, with the messages that are complete with it.
    #[inline]
    pub(crate) fn pop_packet(&mut self) -> Option<(Vec<u8>, u64)> {
        if !matches!(self.front(), Some(Outgoing::Packet { .. })) {
            return None;
        }
        let Some(Outgoing::Packet { body, messages }) = self.waiting.pop_front() else { return None };
        self.bytes -= body.len() as u64;
        Some((body, messages))
    }

    /// A fragment of so many bytes was cut off the long message that waits first. Returns the messages that are complete with it,
    /// if it was the last.
    pub(crate) fn cut_long_message(&mut self, bytes: u64) -> Option<u64> {
        let Some(Outgoing::LongMessage { next, messages, .. }) = self.waiting.front_mut() else {
            return None;
        };
        let messages = *messages;
        next.offset += bytes;
        let is_last = next.offset == next.total;
        self.bytes -= bytes;
        if is_last {
            self.waiting.pop_front();
        }
        is_last.then_some(messages)
    }

    /// Cuts the next packet of at most `most` bytes off the transfer that waits first, into `body`.
    pub(crate) fn cut_transfer(&mut self, most: usize, body: &mut Vec<u8>) -> TransferCut {
        let Some(Outgoing::BulkTransfer { transfer, messages }) = self.waiting.front_mut() else {
            return TransferCut { lacking: None, complete: None };
        };
        let messages = *messages;
        let before = transfer.waiting_bytes();
        let was_there = transfer.next(most, body);
        self.bytes -= before - transfer.waiting_bytes();
        let lacking = (!was_there && !transfer.is_reply()).then(|| transfer.number());
        let is_last = transfer.is_cut();
        if is_last {
            self.replies -= usize::from(transfer.is_reply());
            self.waiting.pop_front();
        }
        TransferCut { lacking, complete: is_last.then_some(messages) }
    }

    /// The peer is told of our NICs.
    pub(crate) fn announced(&mut self) {
        if matches!(self.front(), Some(Outgoing::Rails)) {
            self.waiting.pop_front();
        }
    }

    /// Messages are complete when everything up to this packet is acknowledged.
    #[inline]
    pub(crate) fn mark(&mut self, psn: Psn, messages: u64) {
        self.marks.push_back((psn, messages));
    }

    /// Puts what waits under another name of the same peer behind what waits here, where `before` messages had been accepted.
    pub(crate) fn absorb(&mut self, other: Outbox, before: u64) {
        self.accepted += other.accepted;
        self.bytes += other.bytes;
        self.replies += other.replies;
        for mut outgoing in other.waiting {
            match &mut outgoing {
                Outgoing::Packet { messages, .. } | Outgoing::BulkTransfer { messages, .. } => {
                    *messages += before
                }
                Outgoing::LongMessage { next, messages, multicast, .. } => {
                    *messages += before;
                    next.message = self.number_fragmented();
                    *multicast = None;
                }
                Outgoing::Rails => continue,
            }
            self.waiting.push_back(outgoing);
        }
    }

    /// Everything that waits.
    pub(crate) fn into_waiting(self) -> VecDeque<Outgoing> {
        self.waiting
    }

    /// What is needed to go on. Whoever does will say by which NICs it is reached.
    pub(crate) fn save(&self, sent: &Sent) -> SavedOutbox {
        let waiting = self.waiting.iter().filter_map(|outgoing| match outgoing {
            Outgoing::Packet { body, messages } => {
                Some(SavedOutgoing::Packet { body: body.clone(), messages: *messages })
            }
            Outgoing::BulkTransfer { transfer, messages } => Some(transfer.save(*messages)),
            Outgoing::LongMessage { key, next, messages, .. } => Some(SavedOutgoing::LongMessage {
                data: sent.long_messages.get(*key).to_vec(),
                channel: next.channel,
                message: next.message,
                offset: next.offset,
                messages: *messages,
            }),
            Outgoing::Rails => None,
        });
        SavedOutbox {
            accepted: self.accepted,
            delivered: self.delivered,
            next_fragmented: self.next_fragmented,
            marks: self.marks.iter().map(|(psn, messages)| (psn.0, *messages)).collect(),
            waiting: waiting.collect(),
        }
    }

    /// What was [saved](Outbox::save).
    pub(crate) fn restore(saved: &SavedOutbox, sent: &mut Sent) -> Result<Outbox, ContextError> {
        let mut outbox = Outbox {
            accepted: saved.accepted,
            delivered: saved.delivered,
            next_fragmented: saved.next_fragmented,
            marks: saved.marks.iter().map(|&(psn, messages)| (Psn(psn), messages)).collect(),
            ..Outbox::default()
        };
        for outgoing in &saved.waiting {
            match outgoing {
                SavedOutgoing::Packet { body, messages } => outbox.push_packet(body.clone(), *messages),
                SavedOutgoing::LongMessage { data, channel, message, offset, messages } => {
                    let total = data.len() as u64;
                    if *offset > total {
                        return Err(ContextError::Damaged("an offset beyond its message".to_owned()));
                    }
                    let buffer = [&[0; WHOLE_BYTES][..], data].concat();
                    let key = sent.long_messages.insert(LongMessage::new(buffer));
                    let next = Fragment { channel: *channel, message: *message, offset: *offset, total };
                    outbox.bytes += total - offset;
                    let (messages, multicast) = (*messages, None);
                    outbox.waiting.push_back(Outgoing::LongMessage { key, next, messages, multicast });
                }
                SavedOutgoing::BulkTransfer { opcode, key, address, operation, data, messages } => {
                    let transfer = BulkTransfer::restore(*opcode, *key, *address, *operation, data)?;
                    outbox.push_transfer(transfer, *messages);
                }
            }
        }
        Ok(outbox)
    }

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
