//! Sending a message to all that keep step: who does, the packets that they get together, and what tells theirs apart.

use super::super::{Core, transmit};
use crate::PeerId;
use crate::checksum::crc32c_of_two;
use crate::endpoint::long_message::PieceHead;
use crate::endpoint::multicast::{Multicast, MulticastId, PATIENCE_NS, Receiver, Role, Transfer};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::outbox::Outgoing;
use crate::endpoint::sent::{Body, SentPacket};
use arrayvec::ArrayVec;
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::frame::{FRAGMENT_BYTES, Fragment};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::multicast::{Entry, RECEIVERS_MAX, Table, check, receivers_behind, table_bytes};
use tsumugi_wire::{Flags, Header, Instant, Psn};

/// The path over which multicasts go: that of the address that a peer was added by.
const PATH: u8 = 0;

/// Less of a message is not worth a packet to several receivers, bytes.
const DATA_BYTES_MIN: usize = 64;

/// Receivers that keep step: their places, and the numbers of their peers.
type InStep = ArrayVec<(usize, u32), RECEIVERS_MAX>;

/// A fragment that was cut off a message.
struct Piece {
    head: PieceHead,
    at: usize,
    bytes: usize,
    crc: u32,
}

impl Core {
    /// Sends as much as may be sent now of what a group's receivers get together. `false` when the NIC did not take it all.
    pub(in crate::endpoint::core) fn transmit_multicast<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        id: MulticastId,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        // Taken out meanwhile: it is about peers, and they are the core's, too.
        let Some(mut multicast) = self.multicasts.take(id) else { return Ok(true) };
        let outcome = self.go_on(now, id, &mut multicast, rail);
        self.multicasts.give_back(id, multicast);
        outcome
    }

    fn go_on<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        id: MulticastId,
        multicast: &mut Multicast,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let Role::Sender { receivers, transfers } = &mut multicast.role else { return Ok(true) };
        while let Some(transfer) = transfers.front_mut() {
            let Some(header) = multicast.lease.header() else {
                // Without a box all are sent to by themselves.
                for transfer in transfers.drain(..) {
                    self.go_alone(receivers, transfer.key, &transfer.in_step);
                }
                return Ok(true);
            };
            let Some(step) = self.step(receivers, transfer, id) else {
                if now < transfer.since.plus(PATIENCE_NS) {
                    self.multicasts.wake_at(transfer.since.plus(PATIENCE_NS));
                    return Ok(true);
                }
                let next = |place: &usize| Some(self.ready(id, transfer.key, receivers[*place].peer)?.0);
                let first = transfer.in_step.iter().find_map(next);
                let (ready, late): (Vec<usize>, Vec<usize>) =
                    transfer.in_step.iter().partition(|place| first.is_some() && next(place) == first);
                late.iter().for_each(|place| receivers[*place].set_aside(now));
                transfer.in_step = ready;
                self.go_alone(receivers, transfer.key, &late);
                if transfer.in_step.len() < 2 {
                    self.go_alone(receivers, transfer.key, &transfer.in_step);
                    transfers.pop_front();
                }
                continue;
            };
            transfer.since = now;
            let Some(most) = self.data_bytes(receivers, transfer) else {
                self.go_alone(receivers, transfer.key, &transfer.in_step);
                transfers.pop_front();
                continue;
            };
            let way = (multicast.is_apart, &mut *rail);
            let (sent, taken) = self.send_step(now, (receivers, transfer), (header, most), step, way)?;
            multicast.sends_runs |= sent > 1;
            multicast.packets += sent;
            multicast.parts += sent * transfer.in_step.len() as u64;
            if self.is_cut(receivers, transfer, id) {
                transfer.in_step.iter().for_each(|place| receivers[*place].has_kept_step());
                transfers.pop_front();
                if let Some(next) = transfers.front_mut() {
                    next.since = now;
                }
            }
            if !taken {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a receiver gets next, if that is of this message, and how many packets it may be sent now; `None`: it is not ready.
    fn ready(&self, id: MulticastId, key: usize, peer: PeerId) -> Option<(Fragment, u64)> {
        let peer: &Peer = self.peers.get(self.canonical(peer).0 as usize)?;
        let Some(Outgoing::LongMessage { key: its, next, multicast, .. }) = peer.outbox.front() else {
            return None;
        };
        let room = peer.sender.room(PATH);
        let is_it = *its == key && *multicast == Some(id) && matches!(peer.connection.phase, Phase::Open);
        (is_it && room > 0).then_some((*next, room))
    }

    /// What all that keep step get next, and how many packets each may be sent now; `None`: not all of them are ready.
    fn step(&self, receivers: &[Receiver], transfer: &Transfer, id: MulticastId) -> Option<(Fragment, u64)> {
        let mut step: Option<(Fragment, u64)> = None;
        for place in &transfer.in_step {
            let (next, room) = self.ready(id, transfer.key, receivers[*place].peer)?;
            step = match step {
                None => Some((next, room)),
                Some((others, least)) if others == next => Some((others, least.min(room))),
                Some(_) => return None,
            };
        }
        step
    }

    /// Whether nobody who keeps step gets any more of a message.
    fn is_cut(&self, receivers: &[Receiver], transfer: &Transfer, id: MulticastId) -> bool {
        transfer.in_step.iter().all(|place| {
            let peer = &self.peers[self.canonical(receivers[*place].peer).0 as usize];
            let front = peer.outbox.front();
            !matches!(front, Some(Outgoing::LongMessage { key, multicast, .. })
                if *key == transfer.key && *multicast == Some(id))
        })
    }

    /// Cuts packets off a message and sends them, as many as all may be sent. Returns how many, and whether the NIC took all of them.
    fn send_step<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        (receivers, transfer): (&[Receiver], &Transfer),
        (header, most): (Header, usize),
        (mut next, room): (Fragment, u64),
        (is_apart, rail): (bool, &mut R),
    ) -> Result<(u64, bool), RailError> {
        let peers: InStep =
            transfer.in_step.iter().map(|place| (*place, self.canonical(receivers[*place].peer).0)).collect();
        let Some((_, first)) = peers.first() else { return Ok((0, true)) };
        let to = self.peers[*first as usize].paths[usize::from(PATH)].address;
        let (base, entries) = self.entries(&peers);
        let mut pieces = ArrayVec::<Piece, { transmit::BURST_PACKETS_MAX }>::new();
        while (pieces.len() as u64) < room && !pieces.is_full() && next.offset < next.total {
            let (head, at, bytes, left) = self.sent.long_messages.get_mut(transfer.key).cut(&next, most);
            next.offset += left as u64;
            let crc = crc32c_of_two(&head, self.sent.long_messages.get(transfer.key).at(at, bytes));
            for (_, index) in &peers {
                let peer = &mut self.peers[*index as usize];
                let complete = peer.outbox.cut_long_message(left as u64);
                let body = Body::Piece { head: head.clone(), key: transfer.key, at, bytes };
                let psn = peer.sender.send(now, PATH, self.sent.insert(SentPacket { body, crc }));
                if let Some(messages) = complete {
                    peer.outbox.mark(psn, messages);
                }
                // The part that is not cut hands its claim on to the last fragment.
                self.sent.long_messages.get_mut(transfer.key).users += u32::from(complete.is_none());
            }
            pieces.push(Piece { head, at, bytes, crc });
        }
        // All are of one length but, where the table must be longer for it, the last.
        let frame_bytes = pieces.iter().map(|piece| piece.head.len() + piece.bytes).min().unwrap_or_default();
        let entries = &entries[..receivers_behind(frame_bytes, receivers.len())];
        let mut bytes = std::mem::take(&mut self.egress.multicast);
        bytes.clear();
        let mut ends = ArrayVec::<usize, { transmit::BURST_PACKETS_MAX }>::new();
        let waits = self.wants_ack(&peers, next.offset == next.total);
        for (at, piece) in pieces.iter().enumerate() {
            let asks = if at + 1 == pieces.len() { waits } else { Flags(0) };
            let header = Header { flags: Flags::MIXED.with(asks), ..header };
            let data = self.sent.long_messages.get(transfer.key).at(piece.at, piece.bytes);
            let table = Table { crc: piece.crc, base: base.plus(at as u64), entries };
            put_packet(&mut bytes, header, &piece.head, data, &table);
            ends.push(bytes.len());
        }
        let starts = [0].into_iter().chain(ends.iter().copied());
        let packets: ArrayVec<Packet<'_>, { transmit::BURST_PACKETS_MAX }> =
            starts.zip(&ends).map(|(start, end)| Packet { head: &bytes[start..*end], body: &[] }).collect();
        let mut taken = 0;
        for run in packets.chunks(if is_apart { 1 } else { packets.len().max(1) }) {
            let of_run = rail.send(now, to, run)?;
            taken += of_run;
            if of_run < run.len() {
                break;
            }
        }
        let count = packets.len();
        drop(packets);
        self.egress.multicast = bytes;
        self.tally.packets_sent += count as u64;
        for (_, index) in &peers {
            let peer = &mut self.peers[*index as usize];
            let end = peer.sender.next();
            for back in 0..count - taken {
                peer.sender.not_taken(Psn(end.0 - 1 - back as u64));
            }
            if waits.has(Flags::ACK_REQUEST) && !waits.has(Flags::AT_LEISURE) && taken == count {
                peer.outbox.ask(end);
            }
            if taken == count && peer.outbox.is_empty() {
                peer.outbox.on_all_sent();
            }
            // What is lost, and what waits behind the message, each gets by itself.
            if taken < count || !peer.outbox.is_empty() && peer.outbox.multicast().is_none() {
                self.schedule(*index);
            }
            self.arm(now, *index);
        }
        Ok((count as u64, taken == count))
    }

    /// How many bytes of a message a packet carries that all who keep step may get: with the table it must not be longer than what is
    /// carried to any of them. `None`: hardly any would be left.
    fn data_bytes(&self, receivers: &[Receiver], transfer: &Transfer) -> Option<usize> {
        let carried = |place: &usize| {
            let index = self.canonical(receivers[*place].peer).0;
            self.carried(index, PATH).min(self.body_bytes(index) + HEADER_BYTES)
        };
        let datagram = transfer.in_step.iter().map(carried).min()?.min(ONE_BUFFER_BYTES);
        let behind = HEADER_BYTES + FRAGMENT_BYTES + table_bytes(receivers.len());
        datagram.checked_sub(behind).map(|bytes| bytes / 8 * 8).filter(|bytes| *bytes >= DATA_BYTES_MIN)
    }

    /// What tells the receivers' packets apart, of those that are sent next; and the number that they count from. The first entries are the table's.
    fn entries(&self, peers: &InStep) -> (Psn, [Entry; RECEIVERS_MAX]) {
        let next = |index: u32| self.peers[index as usize].sender.next();
        let base = peers.iter().map(|(_, index)| next(*index)).min().unwrap_or_default();
        let mut entries = [Entry::ABSENT; RECEIVERS_MAX];
        for (place, index) in peers {
            let token = self.peers[*index as usize].connection.remote.map_or(0, |remote| remote.token);
            entries[*place] = Entry::new(token, base, next(*index));
        }
        (base, entries)
    }

    /// How the last packet of a burst asks for an acknowledgement, if it ends a message or all may be sent no more.
    fn wants_ack(&self, peers: &InStep, ends: bool) -> Flags {
        let any =
            |what: &dyn Fn(&Peer) -> bool| peers.iter().any(|(_, index)| what(&self.peers[*index as usize]));
        let is_full = any(&|peer| peer.sender.room(PATH) == 0);
        let is_needed = any(&|peer| peer.sender.needs_ack(PATH) || ends && peer.outbox.wants_ack());
        match (is_full || ends, is_full || is_needed) {
            (true, true) => Flags::ACK_REQUEST,
            (true, false) => Flags::ACK_REQUEST.with(Flags::AT_LEISURE),
            (false, _) => Flags(0),
        }
    }
}

/// Adds a packet for several receivers to others.
fn put_packet(room: &mut Vec<u8>, mut header: Header, head: &[u8], data: &[u8], table: &Table<'_>) {
    let start = room.len();
    room.extend_from_slice(&[0; HEADER_BYTES]);
    room.extend_from_slice(head);
    room.extend_from_slice(data);
    let frames_end = room.len();
    room.extend_from_slice(&table.encode_head());
    room.extend_from_slice(table.entry_bytes());
    header.credit = table.entries.len() as u16;
    header.body_bytes = (room.len() - start - HEADER_BYTES) as u16;
    header.body_crc = check(&room[frames_end..]);
    room[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
}
