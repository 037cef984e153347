//! What departs: messages are accepted, and wait as packets or whole until [`super::transmit`] sends them.

use super::Core;
use crate::buffer::Buffer;
use crate::endpoint::long_message::{Lender, LongMessage, PADDING_BYTES};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::outbox::Outgoing;
use crate::endpoint::sent::PacketKey;
use crate::error::SendError;
use crate::{Failure, PeerId};
use tsumugi_rail::copy;
use tsumugi_wire::frame::{self, WHOLE_BYTES};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;
use tsumugi_wire::{Instant, Psn};

impl Core {
    /// The peer has compared everything before `checked`.
    #[inline]
    pub(super) fn confirm(&mut self, index: u32, checked: Psn) {
        let (sent, pool) = (&mut self.sent, &mut self.pool);
        let unchecked = &mut self.peers[index as usize].repairs.unchecked;
        unchecked.confirm(checked, |key| sent.release(pool, key));
    }

    pub(super) fn release_packet(&mut self, key: PacketKey) {
        self.sent.release(&mut self.pool, key);
    }

    /// Drops something that has not become packets.
    pub(super) fn discard(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Packet { body, .. } => self.pool.give(body),
            Outgoing::LongMessage { key, .. } => self.sent.long_messages.release(&mut self.pool, key),
            Outgoing::BulkTransfer { .. } | Outgoing::Rails => {}
        }
    }

    /// Whether a message of `bytes` would be accepted for a peer now.
    ///
    /// # Errors
    /// Says why not.
    pub fn may_post(&self, id: PeerId, bytes: u64) -> Result<(), SendError> {
        let peer = self.recipient(self.canonical(id), bytes)?;
        if peer.outbox.bytes() > 0 && peer.outbox.bytes() + bytes > self.options.send_bytes {
            return Err(SendError::WouldBlock);
        }
        Ok(())
    }

    /// The peer, if it can take a message of `bytes` at all, sooner or later.
    fn recipient(&self, id: PeerId, bytes: u64) -> Result<&Peer, SendError> {
        let peer = self.peers.get(id.0 as usize).ok_or(SendError::NoSuchPeer(id))?;
        if let Phase::Gone(reason) = peer.connection.phase {
            return Err(SendError::Peer(Box::new(Failure {
                peer: id,
                name: peer.name.clone(),
                address: peer.address,
                reason,
                undelivered: 0,
            })));
        }
        let limit = self.options.message_bytes_max.min(peer.connection.message_bytes_max);
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        Ok(peer)
    }

    /// Accepts a message for a peer and returns its number, for [`Core::is_delivered`].
    ///
    /// # Errors
    /// See [`Core::may_post`].
    pub fn post(&mut self, now: Instant, id: PeerId, channel: u16, data: &[u8]) -> Result<u64, SendError> {
        self.post_parts(now, id, channel, [data, &[]])
    }

    /// As [`Core::post`], for a message in two parts, even when the queue to the peer is full. How much may be
    /// accepted like this is for the caller to bound.
    ///
    /// # Errors
    /// As [`Core::post`], but never [`SendError::WouldBlock`].
    pub(crate) fn post_reserved(
        &mut self,
        now: Instant,
        id: PeerId,
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<u64, SendError> {
        let id = self.canonical(id);
        self.recipient(id, (parts[0].len() + parts[1].len()) as u64)?;
        self.accept_parts(now, id, channel, parts)
    }

    /// As [`Core::post`], for a message in two parts.
    ///
    /// # Errors
    /// See [`Core::may_post`].
    pub(crate) fn post_parts(
        &mut self,
        now: Instant,
        id: PeerId,
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<u64, SendError> {
        let id = self.canonical(id);
        self.may_post(id, (parts[0].len() + parts[1].len()) as u64)?;
        self.accept_parts(now, id, channel, parts)
    }

    #[inline]
    fn accept_parts(
        &mut self,
        now: Instant,
        id: PeerId,
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<u64, SendError> {
        let bytes = parts[0].len() + parts[1].len();
        if self.is_short(id, bytes) {
            let messages = self.peers[id.0 as usize].outbox.next_number();
            let frame = frame::encode_whole(channel, bytes as u32);
            self.queue_frame(id.0, &frame, parts, messages)?;
        } else {
            let buffer = self.long_buffer(parts)?;
            self.queue_long_message(id.0, channel, buffer);
        }
        Ok(self.accepted(now, id.0))
    }

    /// Accepts one message for several peers, or for none of them. A long one is kept once for all.
    ///
    /// # Errors
    /// See [`Core::may_post`], of the first peer that does not take it.
    pub(crate) fn post_to_all(
        &mut self,
        now: Instant,
        ids: &[PeerId],
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<Vec<u64>, SendError> {
        let bytes = parts[0].len() + parts[1].len();
        // Nearly always nobody has two names.
        let renamed: Option<Vec<PeerId>> = ids
            .iter()
            .any(|id| self.canonical(*id) != *id)
            .then(|| ids.iter().map(|id| self.canonical(*id)).collect());
        let ids = renamed.as_deref().unwrap_or(ids);
        ids.iter().try_for_each(|id| self.may_post(*id, bytes as u64))?;
        // All memory is found before anything is queued.
        let short: Vec<PeerId> = ids.iter().filter(|id| self.is_short(**id, bytes)).copied().collect();
        let long = (ids.len() - short.len()) as u32;
        let buffer = if long > 0 { Some(self.long_buffer(parts)?) } else { None };
        let spares = short.iter().map(|id| self.spare_packet(id.0)).collect::<Result<Vec<_>, _>>()?;
        let mut spares = spares.into_iter();
        let key = buffer.map(|buffer| self.sent.long_messages.insert(LongMessage::shared(buffer, long)));
        let frame = frame::encode_whole(channel, bytes as u32);
        let post = |id: &PeerId| {
            let messages = self.peers[id.0 as usize].outbox.next_number();
            match key {
                Some(key) if !self.is_short(*id, bytes) => self.queue_shared(id.0, channel, key),
                _ => {
                    let spare = spares.next().unwrap_or_default();
                    self.queue_frame_in(id.0, &frame, parts, messages, spare);
                }
            }
            self.accepted(now, id.0)
        };
        Ok(ids.iter().map(post).collect())
    }

    /// Accepts a message that was written in place: `buffer` came from [`Core::buffer`].
    ///
    /// # Errors
    /// See [`Core::may_post`]; the buffer comes back with the error.
    pub(crate) fn post_buffer(
        &mut self,
        now: Instant,
        id: PeerId,
        channel: u16,
        mut buffer: Vec<u8>,
    ) -> Result<u64, (SendError, Vec<u8>)> {
        let id = self.canonical(id);
        let bytes = buffer.len() - WHOLE_BYTES;
        if let Err(error) = self.may_post(id, bytes as u64) {
            return Err((error, buffer));
        }
        if self.is_short(id, bytes) {
            let messages = self.peers[id.0 as usize].outbox.next_number();
            let frame = frame::encode_whole(channel, bytes as u32);
            if self.append(id.0, &frame, [&buffer[WHOLE_BYTES..], &[]], messages) {
                self.pool.give(buffer);
            } else {
                buffer[..WHOLE_BYTES].copy_from_slice(&frame);
                self.queue_packet(id.0, buffer, messages);
            }
        } else {
            self.queue_long_message(id.0, channel, buffer);
        }
        Ok(self.accepted(now, id.0))
    }

    /// Accepts a message of which all but the beginning lies where the application has it. That memory comes back from
    /// [`Core::take_lent`] under `key` when it is needed no more; at once, if the message is short.
    ///
    /// # Errors
    /// See [`Core::may_post`]; the buffer comes back with the error.
    pub(crate) fn post_lent(
        &mut self,
        now: Instant,
        id: PeerId,
        lender: Lender,
        front: &[u8],
        rest: Buffer,
    ) -> Result<(u64, Option<Buffer>), (SendError, Buffer)> {
        let id = self.canonical(id);
        let bytes = front.len() + rest.len();
        if let Err(error) = self.may_post(id, bytes as u64) {
            return Err((error, rest));
        }
        if self.is_short(id, bytes) {
            return match self.accept_parts(now, id, lender.channel, [front, &rest]) {
                Ok(number) => Ok((number, Some(rest))),
                Err(error) => Err((error, rest)),
            };
        }
        let key = self.sent.long_messages.insert(LongMessage::lent(front, rest, lender));
        self.queue_shared(id.0, lender.channel, key);
        Ok((self.accepted(now, id.0), None))
    }

    /// Takes memory that a channel has lent for messages and that is needed no more, with the key it was lent under.
    #[inline]
    pub(crate) fn take_lent(&mut self, channel: u16) -> Option<(u64, Buffer)> {
        self.sent.long_messages.take_back(channel)
    }

    /// A long message in a buffer, with room for a frame header in front.
    pub(super) fn long_buffer(&mut self, parts: [&[u8]; 2]) -> Result<Vec<u8>, SendError> {
        let all = WHOLE_BYTES + parts[0].len() + parts[1].len();
        let mut buffer = self.pool.take(all + PADDING_BYTES).ok_or(SendError::NoMemory(all))?;
        buffer.extend_from_slice(&[0; WHOLE_BYTES]);
        parts.iter().for_each(|part| copy::append(part, &mut buffer));
        Ok(buffer)
    }

    /// A buffer for a message of `bytes`, with room for a frame header in front. Its bytes are arbitrary.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn buffer(&mut self, bytes: usize) -> Result<Vec<u8>, SendError> {
        let all = WHOLE_BYTES + bytes;
        self.pool.take_filled(all, PADDING_BYTES).ok_or(SendError::NoMemory(bytes))
    }

    #[inline]
    pub(super) fn accepted(&mut self, now: Instant, index: u32) -> u64 {
        self.tally.messages_sent += 1;
        let peer = &mut self.peers[index as usize];
        let number = peer.outbox.accept();
        match peer.connection.phase {
            Phase::Strange => self.start_handshake(now, index),
            Phase::Open | Phase::Leaving(_) => self.schedule(index),
            _ => {}
        }
        number
    }

    /// Longest packet body to this peer for now, bytes; what every peer takes while it has not said.
    #[inline]
    pub(super) fn body_bytes(&self, index: u32) -> usize {
        let unknown = (DATAGRAM_BYTES_MIN - HEADER_BYTES).min(self.own_body_bytes());
        let peer = &self.peers[index as usize];
        if peer.connection.remote.is_some() { peer.sizes.cut_bytes() } else { unknown }
    }

    /// Longest packet body that both sides take, bytes; as long as the peer has not said, what every one does.
    pub(super) fn agreed_body_bytes(&self, index: u32) -> usize {
        self.peers[index as usize]
            .connection
            .remote
            .map_or_else(|| self.body_bytes(index), |remote| remote.body_bytes)
    }

    fn is_short(&self, id: PeerId, bytes: usize) -> bool {
        frame::whole_frame_bytes(bytes) <= self.body_bytes(id.0)
    }

    /// Queues a frame that fits in a packet: its header, and its data in two parts. With it, so many messages of the
    /// flow are complete.
    pub(super) fn queue_frame(
        &mut self,
        index: u32,
        frame: &[u8],
        parts: [&[u8]; 2],
        messages: u64,
    ) -> Result<(), SendError> {
        if !self.append(index, frame, parts, messages) {
            let spare = self.spare_packet(index)?;
            self.fill_packet(index, frame, parts, messages, spare);
        }
        Ok(())
    }

    /// As [`Core::queue_frame`], but never fails: `spare` is there for a packet of its own.
    pub(super) fn queue_frame_in(
        &mut self,
        index: u32,
        frame: &[u8],
        parts: [&[u8]; 2],
        messages: u64,
        spare: Vec<u8>,
    ) {
        if self.append(index, frame, parts, messages) {
            self.pool.give(spare);
        } else {
            self.fill_packet(index, frame, parts, messages, spare);
        }
    }

    fn fill_packet(&mut self, index: u32, frame: &[u8], parts: [&[u8]; 2], messages: u64, mut body: Vec<u8>) {
        body.extend_from_slice(frame);
        parts.iter().for_each(|part| body.extend_from_slice(part));
        self.queue_packet(index, body, messages);
    }

    /// Room for a packet's body.
    pub(super) fn spare_packet(&mut self, index: u32) -> Result<Vec<u8>, SendError> {
        let bytes = self.body_bytes(index);
        self.pool.take(bytes).ok_or(SendError::NoMemory(bytes))
    }

    /// Adds a frame to the packet that is still being filled, if there is one with room.
    #[inline]
    fn append(&mut self, index: u32, frame: &[u8], parts: [&[u8]; 2], complete: u64) -> bool {
        let room = self.body_bytes(index);
        self.peers[index as usize].outbox.append(room, frame, parts, complete)
    }

    fn queue_packet(&mut self, index: u32, body: Vec<u8>, messages: u64) {
        self.peers[index as usize].outbox.push_packet(body, messages);
    }

    fn queue_long_message(&mut self, index: u32, channel: u16, buffer: Vec<u8>) {
        let key = self.sent.long_messages.insert(LongMessage::new(buffer));
        self.queue_shared(index, channel, key);
    }

    /// Queues a long message of which one use is meant for this peer.
    fn queue_shared(&mut self, index: u32, channel: u16, key: usize) {
        let total = self.sent.long_messages.get(key).bytes() as u64;
        self.peers[index as usize].outbox.push_long_message(channel, key, total);
    }

    /// Whether everything accepted for a peer has been handed to the NIC at least once.
    #[must_use]
    pub fn is_handed_over(&self, id: PeerId) -> bool {
        self.peers.get(self.canonical(id).0 as usize).is_none_or(|peer| peer.outbox.is_empty())
    }

    /// What waits for the peer, and what is accepted for it before all of that has left, is to be acknowledged at once.
    pub(crate) fn want_ack(&mut self, id: PeerId) {
        let id = self.canonical(id);
        if let Some(peer) = self.peers.get_mut(id.0 as usize) {
            peer.outbox.want_ack();
        }
    }

    /// Somebody waits for the peer to acknowledge what has been accepted for it, and it may not have been asked to do so at once.
    pub fn hasten_ack(&mut self, id: PeerId) {
        let id = self.canonical(id);
        let Some(peer) = self.peers.get_mut(id.0 as usize) else { return };
        if !peer.outbox.is_empty() {
            peer.outbox.want_ack();
        } else if peer.sender.outstanding() > 0 && peer.outbox.ask(peer.sender.next()) {
            peer.sender.want_probe();
            self.schedule(id.0);
        }
    }

    /// The same, of every peer.
    pub fn hasten_acks(&mut self) {
        for place in 0..self.peers.len() {
            self.hasten_ack(PeerId(self.peers.number_at(place)));
        }
    }

    /// Whether nothing is in flight to the peer, so that a lone message should leave at once.
    #[must_use]
    #[inline]
    pub fn is_quiet(&mut self, now: Instant, id: PeerId) -> bool {
        self.has_at_most(now, id, 0)
    }

    /// Whether no more than so many packets are in flight to the peer.
    #[inline]
    #[must_use]
    pub(crate) fn has_at_most(&mut self, now: Instant, id: PeerId, packets: usize) -> bool {
        let id = self.canonical(id);
        let few =
            |core: &Core| core.peers.get(id.0 as usize).map(|peer| peer.sender.outstanding() <= packets);
        match few(self) {
            // Direct writes may have carried its acknowledgements.
            Some(false) if self.has_direct_writes() => self.take_noted(now, id.0) && few(self) == Some(true),
            known => known == Some(true),
        }
    }

    /// Takes what direct writes have acknowledged; returns whether the connection goes on.
    #[inline(never)]
    fn take_noted(&mut self, now: Instant, index: u32) -> bool {
        let outcome = self.on_noted(now, index);
        self.apply(outcome).is_some()
    }

    /// Which connection with the peer this is; tickets of earlier ones have failed.
    #[must_use]
    pub fn connection(&self, id: PeerId) -> u32 {
        self.peers.get(self.canonical(id).0 as usize).map_or(0, |peer| peer.connection.number)
    }

    /// Whether message `number` of the present connection is acknowledged.
    #[must_use]
    pub fn is_delivered(&self, id: PeerId, number: u64) -> bool {
        self.peers.get(id.0 as usize).is_some_and(|peer| peer.outbox.has_delivered(number))
    }

    /// Whether message `number` of the connection before the present one had been acknowledged when it ended.
    #[must_use]
    pub fn was_delivered(&self, id: PeerId, number: u64) -> bool {
        self.peers.get(id.0 as usize).is_some_and(|peer| peer.outbox.had_delivered(number))
    }

    /// Whether everything accepted for every peer is acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.peers.iter().all(|peer| peer.outbox.undelivered() == 0)
    }

    /// Packets acknowledged in the connections that there are, and connections that have ended: while neither changes, nothing
    /// that was accepted gets on.
    pub(crate) fn acknowledged(&self) -> (u64, u64) {
        let packets = self.peers.iter().map(|peer| peer.sender.next().0 - peer.sender.outstanding() as u64);
        (packets.sum(), self.peers.ends())
    }

    /// Names and addresses of the peers that have not acknowledged everything, and how many messages of each.
    pub(crate) fn undelivered(&self) -> impl Iterator<Item = (&str, std::net::SocketAddr, u64)> {
        let lacks = |peer: &&Peer| peer.outbox.undelivered() > 0;
        self.peers.iter().filter(lacks).map(|peer| (&*peer.name, peer.address, peer.outbox.undelivered()))
    }
}
