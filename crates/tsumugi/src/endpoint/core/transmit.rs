//! Bursts: what waits for a peer becomes packets, and packets are sent, as many at once as a path takes.

use super::{Core, Ended};
use crate::checksum::{crc32c, crc32c_of_two};
use crate::endpoint::egress::{Burst, HEAD_BYTES_MAX};
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::holds::Hold;
use crate::endpoint::peer::outbox::{Outgoing, TransferCut};
use crate::endpoint::sent::{Body, SentPacket};
use arrayvec::ArrayVec;
use tsumugi_proto::path_policy::Pick;
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::defect;
use tsumugi_wire::frame::FRAGMENT_BYTES;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::remote::RemoteStatus;
use tsumugi_wire::time::MICROSECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Kind};

/// Packets of a burst, at most: as many as segmentation offload takes at once.
pub(super) const BURST_PACKETS_MAX: usize = 64;
/// Bytes of a burst, at most: what segmentation offload takes at once, the longest UDP payload.
const BURST_BYTES_MAX: usize = 65_507;
/// After this time a NIC whose queue was full is tried again, ns: some packets later.
const RETRY_NS: u64 = 20 * MICROSECOND_NS;

/// Why nothing more is sent to a peer.
enum Stop {
    Rail(RailError),
    Ended(Ended),
}

impl From<RailError> for Stop {
    fn from(error: RailError) -> Stop {
        Stop::Rail(error)
    }
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Stop {
        Stop::Ended(ended)
    }
}

impl Core {
    /// Sends what may be sent now.
    ///
    /// # Errors
    /// The rail is broken.
    pub fn transmit<R: Rail + ?Sized>(&mut self, now: Instant, rail: &mut R) -> Result<(), RailError> {
        for address in self.egress.take_connects() {
            rail.connect(address);
            self.hear_size(now, address, rail);
        }
        while let Some(address) = rail.too_long() {
            self.hear_size(now, address, rail);
        }
        self.ask_kernels(now, rail);
        while let Some(index) = self.schedule.next_to_send(|index| &mut self.peers[index as usize].listed) {
            let all_taken = match self.transmit_to(now, index, rail) {
                Ok(all_taken) => all_taken,
                Err(Stop::Ended(ended)) => self.apply(Err(ended)).unwrap_or(true),
                Err(Stop::Rail(error)) => return Err(error),
            };
            self.arm(now, index);
            self.note_hold(now, index, all_taken);
            if !all_taken {
                // The NIC's queue is full: leave the rest for the next call, and see to it that there is one. Not
                // before it can help, whatever timer is due: what that asked for cannot be sent either.
                self.schedule(index);
                self.schedule.retry(now.plus(RETRY_NS));
                break;
            }
        }
        self.transmit_groups(now, rail)?;
        self.transmit_multicasts(now, rail)?;
        for (to, packet) in self.egress.take_replies() {
            rail.send(now, to, &[Packet { head: &packet, body: &[] }])?;
            self.tally.answers_sent += 1;
        }
        for address in self.egress.take_disconnects() {
            rail.disconnect(address);
        }
        Ok(())
    }

    /// Keeps account of what makes messages for a peer wait.
    #[inline]
    fn note_hold(&mut self, now: Instant, index: u32, all_taken: bool) {
        let peer = &mut self.peers[index as usize];
        let hold = match peer.connection.phase {
            _ if !all_taken => Hold::Nic,
            _ if peer.outbox.is_empty() => Hold::Nothing,
            Phase::Open | Phase::Leaving(_) => peer.sender.barred().into(),
            Phase::Strange | Phase::Handshake(_) | Phase::Gone(_) => Hold::Handshake,
        };
        peer.holds.turn(now, hold);
    }

    fn transmit_to<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<bool, Stop> {
        if let Some(packet) = self.hello(now, index) {
            let to = self.peers[index as usize].address;
            rail.send(now, to, &[Packet { head: &packet, body: &[] }])?;
            self.ask_about_handshake(now, index, rail)?;
        }
        if !matches!(self.peers[index as usize].connection.phase, Phase::Open | Phase::Leaving(_)) {
            return Ok(true);
        }
        if self.peers[index as usize].paths.has_news() {
            self.find_paths(now, index);
        }
        if self.peers[index as usize].sender.has_lost() {
            self.suspect_size(now, index, rail)?;
        }
        if self.peers[index as usize].sizes.due() <= now {
            self.probe_sizes(now, index, rail)?;
        }
        if self.peers[index as usize].receive.damaged.due() <= now {
            self.ask_for_damaged(now, index);
        }
        if self.peers[index as usize].repairs.are_wanted() && !self.send_repairs(now, index, rail)? {
            return Ok(false);
        }
        while let Some(pick) = self.pick(now, index) {
            self.gather(now, index, pick);
            if self.egress.burst.packets.is_empty() {
                break;
            }
            let carried = self.carried(index, pick.path);
            let all = if self.burst_fits(index, carried) {
                self.send_burst(now, index, pick.path, rail)?
            } else {
                self.send_in_pieces(now, index, pick.path, carried, rail)?
            };
            if !all {
                return Ok(false);
            }
            if self.egress.burst.probed {
                self.probe_behind(now, index, pick.path, rail)?;
            }
        }
        if let Some(multicast) = self.peers[index as usize].outbox.multicast()
            && !self.transmit_multicast(now, multicast, rail)?
        {
            return Ok(false);
        }
        self.probe_paths(now, index);
        let peer = &mut self.peers[index as usize];
        if !peer.outbox.is_empty() {
            peer.sender.starve(now);
        }
        if peer.sender.take_probe() {
            self.reply_on_flow(index, Kind::Probe);
        }
        if self.peers[index as usize].acks.is_demanded() {
            return Ok(self.send_answer(now, index, rail)?);
        }
        Ok(true)
    }

    /// Collects the packets that may be sent to a peer over a path now: first again, then anew.
    fn gather(&mut self, now: Instant, index: u32, pick: Pick) {
        self.egress.burst.packets.clear();
        // After a time-out the path of the answers may be at fault, too. Only a PROBE is answered by every receiver to
        // the address that it came from.
        let peer = &self.peers[index as usize];
        self.egress.burst.probed = peer.is_multirail() && peer.sender.is_urgent() && !defect!(TriedUnasked);
        let fitting = BURST_BYTES_MAX / (HEADER_BYTES + self.body_bytes(index));
        let most = fitting.clamp(1, BURST_PACKETS_MAX).min(pick.packets as usize);
        while self.egress.burst.packets.len() < most {
            let peer = &mut self.peers[index as usize];
            if let Some((psn, &key)) = peer.sender.resend(now, pick.path) {
                let another = if defect!(BodyChangedOnResend) { self.sent.iter().next() } else { None };
                self.egress.burst.packets.push((psn, another.map_or(key, |(key, _)| key), Flags::RESENT));
                self.tally.packets_resent += 1;
            } else if peer.sender.room(pick.path) > 0
                && let Some((sent, messages)) = self.cut(index)
            {
                let key = self.sent.insert(sent);
                let peer = &mut self.peers[index as usize];
                let psn = peer.sender.send(now, pick.path, key);
                if let Some(messages) = messages {
                    peer.outbox.mark(psn, messages);
                }
                self.egress.burst.packets.push((psn, key, Flags(0)));
                self.tally.packets_sent += 1;
            } else {
                break;
            }
        }
    }

    /// The next packet of what waits for a peer, and how many messages are complete with it.
    fn cut(&mut self, index: u32) -> Option<(SentPacket, Option<u64>)> {
        let most = self.body_bytes(index);
        let data_bytes = most - FRAGMENT_BYTES;
        let peer = &mut self.peers[index as usize];
        let trusts_wire = peer.connection.trusts_wire();
        let (body, complete) = match peer.outbox.front()? {
            Outgoing::Packet { .. } => {
                let (body, messages) = peer.outbox.pop_packet()?;
                (body, Some(messages))
            }
            // It is cut for all of them at once.
            Outgoing::LongMessage { multicast: Some(_), .. } => return None,
            Outgoing::LongMessage { key, next, .. } => {
                let (key, next) = (*key, *next);
                let message = self.sent.long_messages.get_mut(key);
                let (head, at, bytes, left) = message.cut(&next, data_bytes);
                let crc = if trusts_wire { 0 } else { crc32c_of_two(&head, message.at(at, bytes)) };
                let complete = peer.outbox.cut_long_message(left as u64);
                // The part that is not cut hands its claim on to the last fragment.
                message.users += u32::from(complete.is_none() && !defect!(BufferGivenBackEarly));
                return Some((SentPacket { body: Body::Piece { head, key, at, bytes }, crc }, complete));
            }
            Outgoing::BulkTransfer { .. } => {
                let mut body = self.pool.take(most)?;
                let TransferCut { lacking, complete } = peer.outbox.cut_transfer(most, &mut body);
                if let Some(number) = lacking {
                    self.was_refused(index, number, RemoteStatus::NotMapped);
                }
                (body, complete)
            }
            Outgoing::Rails => {
                let body = self.rails_body(index)?;
                self.peers[index as usize].outbox.announced();
                (body, None)
            }
        };
        let crc = if trusts_wire { 0 } else { crc32c(&body) };
        Some((SentPacket { body: Body::Packet(body), crc }, complete))
    }

    /// Sends the collected packets. `false` when the NIC did not take them all.
    pub(super) fn send_burst<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        path: u8,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let (ack, credit) = self.credit(index);
        let has_ack = self.has_ack(index);
        let count = self.egress.burst.packets.len();
        let peer = &mut self.peers[index as usize];
        let Some(remote) = peer.connection.remote else { return Ok(true) };
        let usual = if remote.trusts_wire { has_ack.with(Flags::UNCHECKED) } else { has_ack };
        // The receiver decides when to acknowledge, except where the sender waits for it: before it has sent all that it may, after
        // a resend, where somebody wants a buffer back or said so. After a long message it may take its time: most often
        // something that it sends can carry the acknowledgement.
        let (full, needs_ack) = (peer.sender.room(path) == 0, peer.sender.needs_ack(path));
        let Burst { packets, probed, heads } = &mut self.egress.burst;
        heads.resize(heads.len().max(count), [0; HEAD_BYTES_MAX]);
        let lent_end = packets.iter().rposition(|(_, key, _)| self.sent.ends_lent(*key));
        let mut asked_at = None;
        let mut out = ArrayVec::<Packet<'_>, BURST_PACKETS_MAX>::new();
        let mut header = Header::new(Kind::Data, self.incarnation.epoch);
        (header.flow, header.token, header.path) = (remote.flow, remote.token, path);
        (header.ack, header.credit) = (ack, credit);
        for (at, ((psn, key, resent), head)) in packets.iter().zip(heads.iter_mut()).enumerate() {
            let last = at + 1 == count;
            let (frame, body) = self.sent.body(*key);
            let waits =
                *resent == Flags::RESENT || lent_end == Some(at) || last && (full || peer.outbox.wants_ack());
            let ends_long = last && (count > 1 || !frame.is_empty());
            let asked = if waits || ends_long && needs_ack {
                Flags::ACK_REQUEST
            } else if ends_long {
                Flags::ACK_REQUEST.with(Flags::AT_LEISURE)
            } else {
                Flags(0)
            };
            let ask = asked.has(Flags::ACK_REQUEST);
            if waits || ends_long && needs_ack {
                asked_at = Some(*psn);
            }
            header.flags = usual.with(*resent).with(asked);
            header.psn = *psn;
            header.body_bytes = (frame.len() + body.len()) as u16;
            let long = HEADER_BYTES + usize::from(header.body_bytes) > ONE_BUFFER_BYTES;
            // Nobody may answer it where it arrives. Who sends one again has asked in vain, maybe for that reason.
            *probed |= ask && long && (peer.connection.ask_by_probe || *resent == Flags::RESENT);
            header.body_crc = if remote.trusts_wire { 0 } else { self.sent[*key].crc };
            head[..HEADER_BYTES].copy_from_slice(&header.encode());
            head[HEADER_BYTES..HEADER_BYTES + frame.len()].copy_from_slice(frame);
            out.push(Packet { head: &head[..HEADER_BYTES + frame.len()], body });
        }
        let address = peer.paths[usize::from(path)].address;
        let taken = rail.send(now, address, &out)?;
        let bytes = peer.count_sent(path, &out[..taken]);
        self.tally.bytes_sent += bytes;
        if peer.is_multirail() {
            self.multirail.policy.on_sent(index, path, taken as u32, bytes);
            if self.multirail.policy.is_copied() && !defect!(BroadcastOverOnePath) {
                for address in peer.elsewhere(address) {
                    rail.send(now, address, &out[..taken])?;
                }
            }
        }
        for (psn, ..) in &packets[taken..] {
            peer.sender.not_taken(*psn);
        }
        if let Some(asked) = asked_at.filter(|_| taken == count) {
            peer.outbox.ask(asked.next());
        }
        if taken == count && peer.outbox.is_empty() {
            peer.outbox.on_all_sent();
        }
        if taken > 0 {
            peer.acks.on_ridden_along(ack);
        }
        Ok(taken == count)
    }

    /// Asks behind a burst for the ACK that it does not bring back. If the NIC does not take the PROBE, the packets' time-out
    /// asks again.
    fn probe_behind<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        path: u8,
        rail: &mut R,
    ) -> Result<(), RailError> {
        if let Some(packet) = self.flow_packet(index, Kind::Probe, path) {
            let address = self.peers[index as usize].paths[usize::from(path)].address;
            rail.send(now, address, &[Packet { head: &packet, body: &[] }])?;
        }
        Ok(())
    }
}
