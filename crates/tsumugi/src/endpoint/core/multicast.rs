//! Sending one message to several peers: who keeps step, and the packets that a switch box makes one of for each.

use super::{Core, transmit};
use crate::checksum::crc32c_of_two;
use crate::endpoint::long_message::{LongMessage, PieceHead};
use crate::endpoint::multicast::{Multicast, MulticastId, PATIENCE_NS, Receiver, Role, Transfer};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::outbox::Outgoing;
use crate::endpoint::sent::{Body, SentPacket};
use crate::{PeerId, SendError};
use arrayvec::ArrayVec;
use rand::RngExt as _;
use std::collections::VecDeque;
use tsumugi_proto::group::lease::{Lease, Standing};
use tsumugi_proto::group::member::Membership;
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::frame::{FRAGMENT_BYTES, Fragment};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::multicast::{Entry, RECEIVERS_MAX, Table, check, receivers_behind, table_bytes};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Psn};

/// A receiver without a connection to the sender looks for one after so long, ns.
const NO_FLOW_NS: u64 = 20 * MILLISECOND_NS;
/// The path over which multicasts go: that of the address that a peer was added by.
const PATH: u8 = 0;

/// Receivers that keep step: their places, and the numbers of their peers.
type InStep = ArrayVec<(usize, u32), RECEIVERS_MAX>;

/// The entries of a table.
struct Entries([Entry; RECEIVERS_MAX], usize);

impl Entries {
    fn new(count: usize) -> Entries {
        Entries([Entry::ABSENT; RECEIVERS_MAX], count)
    }

    /// As many, and no fewer.
    fn resize(&mut self, count: usize) {
        self.1 = count;
    }
}

impl std::ops::Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.0[..self.1]
    }
}

/// A fragment that was cut off a message.
struct Piece {
    head: PieceHead,
    at: usize,
    bytes: usize,
    crc: u32,
}

/// Who may join a multicast group, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastGroup {
    /// What all members know, and nobody else.
    pub key: u64,
    /// Its number in the job. No two groups of a job have the same, whoever sends in them.
    pub number: u64,
    /// Its members: the receivers, and the sender.
    pub size: u16,
}

impl Core {
    fn membership(&self, group: MulticastGroup, member: u16, flow: u32, token: u64) -> Membership {
        Membership {
            job: self.options.job,
            key: group.key,
            group: group.number,
            size: group.size,
            member,
            epoch: self.incarnation.epoch,
            flow,
            token,
        }
    }

    /// Joins a multicast group as its sender.
    pub fn send_multicasts(
        &mut self,
        now: Instant,
        group: MulticastGroup,
        receivers: &[PeerId],
    ) -> MulticastId {
        // Nothing comes in this flow: it only tells what a box says to us from what it says to others.
        let token = self.incarnation.random.random_range(1..=u64::MAX);
        let lease = Lease::new(now, self.membership(group, 0, u32::MAX, token));
        let receivers = receivers.iter().map(|peer| Receiver::new(*peer)).collect();
        let role = Role::Sender { receivers, transfers: VecDeque::new() };
        self.multicasts.put(Multicast::new(lease, role))
    }

    /// Joins a multicast group as its receiver number `member` − 1.
    pub fn receive_multicasts(
        &mut self,
        now: Instant,
        group: MulticastGroup,
        member: u16,
        sender: PeerId,
    ) -> MulticastId {
        let lease = Lease::new(now, self.membership(group, member, u32::MAX, 0));
        self.multicasts.put(Multicast::new(lease, Role::Receiver(sender)))
    }

    /// Leaves a multicast group. What was accepted for receivers goes on to each by itself.
    pub fn leave_multicast(&mut self, id: MulticastId) {
        let Some(mut multicast) = self.multicasts.take(id) else { return };
        let to = match &multicast.role {
            Role::Receiver(sender) => Some(*sender),
            Role::Sender { receivers, .. } => receivers.first().map(|receiver| receiver.peer),
        };
        if let Role::Sender { receivers, transfers } = &multicast.role {
            for transfer in transfers {
                self.go_alone(receivers, transfer.key, &transfer.in_step);
            }
        }
        if let (Some((header, body)), Some(to)) =
            (multicast.lease.leave(), to.and_then(|to| self.address_of(to)))
        {
            self.egress.reply(to, [&header.encode()[..], &body].concat());
        }
    }

    /// How it stands with a multicast group; `None`: it was left.
    #[must_use]
    pub fn multicast_standing(&self, id: MulticastId) -> Option<Standing> {
        self.multicasts.get(id).map(|multicast| multicast.lease.standing())
    }

    /// The peers that it sends to.
    pub(crate) fn multicast_receivers(&self, id: MulticastId) -> Vec<PeerId> {
        match self.multicasts.get(id).map(|multicast| &multicast.role) {
            Some(Role::Sender { receivers, .. }) => receivers.iter().map(|receiver| receiver.peer).collect(),
            _ => Vec::new(),
        }
    }

    /// Packets that were sent once for several receivers, and how many of theirs a box was to make of them.
    #[must_use]
    pub fn multicast_packets(&self, id: MulticastId) -> (u64, u64) {
        self.multicasts.get(id).map_or((0, 0), |multicast| (multicast.packets, multicast.parts))
    }

    /// Accepts a message in two parts for all receivers of a group, or for none of them. Returns its number for each.
    ///
    /// # Errors
    /// See [`Core::may_post`], of the first receiver that does not take it.
    pub fn post_multicast(
        &mut self,
        now: Instant,
        id: MulticastId,
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<Vec<(PeerId, u64)>, (PeerId, SendError)> {
        let Some(Multicast { lease, role: Role::Sender { receivers, .. }, .. }) = self.multicasts.get(id)
        else {
            return Ok(Vec::new());
        };
        let peers: Vec<PeerId> = receivers.iter().map(|receiver| self.canonical(receiver.peer)).collect();
        let keeps_step = |(place, receiver): (usize, &Receiver)| {
            let may = receiver.may_keep_step(now) && self.may_get_multicasts(peers[place]);
            may.then_some(place)
        };
        let mut in_step = Vec::new();
        let bytes = (parts[0].len() + parts[1].len()) as u64;
        if lease.header().is_some() && bytes > 0 {
            in_step = receivers.iter().enumerate().filter_map(keeps_step).collect();
        }
        peers.iter().try_for_each(|peer| self.may_post(*peer, bytes).map_err(|error| (*peer, error)))?;
        let of_all = |error| (peers[0], error);
        if in_step.len() < 2 {
            let numbers = self.post_to_all(now, &peers, channel, parts).map_err(of_all)?;
            return Ok(peers.into_iter().zip(numbers).collect());
        }
        let buffer = self.long_buffer(parts).map_err(of_all)?;
        let key = self.sent.long_messages.insert(LongMessage::shared(buffer, peers.len() as u32));
        let numbers = peers.iter().map(|peer| self.peers[peer.0 as usize].outbox.next_fragmented());
        let message = numbers.max().unwrap_or_default();
        for (place, peer) in peers.iter().enumerate() {
            let its = in_step.contains(&place).then_some(id);
            self.peers[peer.0 as usize].outbox.push_shared_by(its, channel, key, message, bytes);
        }
        if let Some(Role::Sender { transfers, .. }) = self.multicasts.get_mut(id).map(|its| &mut its.role) {
            transfers.push_back(Transfer { key, in_step, since: now });
        }
        self.multicasts.wake_at(now.plus(PATIENCE_NS));
        Ok(peers.into_iter().map(|peer| (peer, self.accepted(now, peer.0))).collect())
    }

    /// Whether a peer can be sent to together with others.
    fn may_get_multicasts(&self, peer: PeerId) -> bool {
        let peer = &self.peers[peer.0 as usize];
        let tag = peer.connection.remote.map_or(0, |remote| remote.token as u32);
        matches!(peer.connection.phase, Phase::Open) && tag != 0
    }

    /// Receivers get the rest of a message, each by itself.
    fn go_alone(&mut self, receivers: &[Receiver], key: usize, who: &[usize]) {
        for place in who {
            let index = self.canonical(receivers[*place].peer).0;
            self.peers[index as usize].outbox.leave_multicast(key);
            self.schedule(index);
        }
    }

    /// Renews leases, and has transfers go on that have waited for somebody.
    pub(super) fn transmit_multicasts<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        rail: &mut R,
    ) -> Result<(), RailError> {
        if now < self.multicasts.deadline() {
            return Ok(());
        }
        for id in self.multicasts.ids() {
            self.transmit_multicast(now, id, rail)?;
            let Some(to) = self.look_after_lease(now, id) else { continue };
            let Some(multicast) = self.multicasts.get_mut(id) else { continue };
            if let (Some((header, body)), Some(to)) = (multicast.lease.transmit(now), to) {
                rail.send(now, to, &[Packet { head: &header.encode(), body: &body }])?;
                self.tally.packets_sent += 1;
            }
        }
        self.multicasts.wake_when_due();
        Ok(())
    }

    /// Finds out to where a JOIN is to go, if one is due, and that it names the right flow.
    fn look_after_lease(&mut self, now: Instant, id: MulticastId) -> Option<Option<std::net::SocketAddr>> {
        let multicast = self.multicasts.get(id).filter(|multicast| now >= multicast.lease.deadline())?;
        let sender = match &multicast.role {
            Role::Sender { receivers, .. } => {
                let first = receivers.first().map(|receiver| receiver.peer);
                return Some(first.and_then(|first| self.address_of(first)));
            }
            Role::Receiver(sender) => self.canonical(*sender),
        };
        let flow = multicast.lease.flow();
        let peer = self.peers.get(sender.0 as usize)?;
        let local = peer.connection.local.filter(|_| matches!(peer.connection.phase, Phase::Open));
        let address = peer.address;
        let Some(local) = local else {
            self.start_handshake(now, sender.0);
            self.multicasts.get_mut(id)?.lease.postpone(now.plus(NO_FLOW_NS));
            return None;
        };
        if flow != (local.index, local.token) {
            self.multicasts.get_mut(id)?.lease.follow(now, local.index, local.token);
        }
        Some(Some(address))
    }

    /// Sends as much as may be sent now of what a group's receivers get together. `false` when the NIC did not take it all.
    pub(super) fn transmit_multicast<R: Rail + ?Sized>(
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
                let is_ready = |place: &usize| self.ready(id, transfer.key, receivers[*place].peer).is_some();
                let (ready, late): (Vec<usize>, Vec<usize>) =
                    transfer.in_step.iter().partition(|place| is_ready(place));
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
            let way = (multicast.is_apart, &mut *rail);
            let (sent, taken) = self.send_step(now, (receivers, transfer), header, step, way)?;
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
        header: Header,
        (mut next, room): (Fragment, u64),
        (is_apart, rail): (bool, &mut R),
    ) -> Result<(u64, bool), RailError> {
        let peers: InStep =
            transfer.in_step.iter().map(|place| (*place, self.canonical(receivers[*place].peer).0)).collect();
        let Some((_, first)) = peers.first() else { return Ok((0, true)) };
        let to = self.peers[*first as usize].paths[usize::from(PATH)].address;
        let longest = peers.iter().map(|(_, index)| self.body_bytes(*index)).min().unwrap_or_default();
        let longest = longest.min(ONE_BUFFER_BYTES - HEADER_BYTES - table_bytes(receivers.len()));
        let most = (longest - FRAGMENT_BYTES) / 8 * 8;
        let (base, mut entries) = self.entries(&peers, receivers.len());
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
        entries.resize(receivers_behind(frame_bytes, receivers.len()));
        let mut bytes = std::mem::take(&mut self.egress.multicast);
        bytes.clear();
        let mut ends = ArrayVec::<usize, { transmit::BURST_PACKETS_MAX }>::new();
        let waits = self.wants_ack(&peers, next.offset == next.total);
        for (at, piece) in pieces.iter().enumerate() {
            let asks = (at + 1 == pieces.len()).then_some(waits).unwrap_or(Flags(0));
            let header = Header { flags: Flags::MIXED.with(asks), ..header };
            let data = self.sent.long_messages.get(transfer.key).at(piece.at, piece.bytes);
            let table = Table { crc: piece.crc, base: base.plus(at as u64), entries: &entries };
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

    /// What tells the receivers' packets apart, of those that are sent next; and the number that they count from.
    fn entries(&self, peers: &InStep, receivers: usize) -> (Psn, Entries) {
        let next = |index: u32| self.peers[index as usize].sender.next();
        let base = peers.iter().map(|(_, index)| next(*index)).min().unwrap_or_default();
        let mut entries = Entries::new(receivers);
        for (place, index) in peers {
            let token = self.peers[*index as usize].connection.remote.map_or(0, |remote| remote.token);
            entries.0[*place] = Entry::new(token, base, next(*index));
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
