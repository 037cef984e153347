//! Answers: what tells a peer how far its packets have arrived, and how many more may come.

use super::Core;
use crate::checksum::crc32c;
use arrayvec::ArrayVec;
use tsumugi_proto::{ReceiveMemory, answer, receive_bitmap};
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::ack::{BODY_BYTES_MAX, Sack};
use tsumugi_wire::defect;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

/// A whole answer.
pub(super) type AnswerPacket = ArrayVec<u8, { HEADER_BYTES + BODY_BYTES_MAX }>;

impl Core {
    /// Answers everyone who waits for an ACK, because nobody may call for a while.
    pub fn flush_acks(&mut self) {
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            if peer.acks.hurry(Instant::NEVER) {
                self.schedule(index);
            }
        }
    }

    /// Sends the answer that is due. `false` when the NIC did not take it.
    pub(super) fn send_answer<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let Some((kind, psn)) = self.peers[index as usize].acks.take_answer() else { return Ok(true) };
        let Some(packet) = self.answer_packet(now, index, kind, psn, Flags(0)) else { return Ok(true) };
        let peer = &mut self.peers[index as usize];
        peer.acks.on_answered();
        let taken = rail.send(now, peer.acks.address(), &[Packet { head: &packet, body: &[] }])?;
        if taken == 0 {
            peer.acks.put_back((kind, psn));
            return Ok(false);
        }
        self.tally.answers_sent += 1;
        // The sender sends nothing before it has this. The packet that was refused may have come by a path that only
        // the XDP program knows; whether the one that we know still works is uncertain. So XON goes to every address.
        if kind == Kind::Xon {
            for address in peer.elsewhere(peer.acks.address()) {
                rail.send(now, address, &[Packet { head: &packet, body: &[] }])?;
            }
        }
        Ok(true)
    }

    /// An answer of `kind` about `psn` with everything that was deposited; `None` before the peer has said where to.
    pub(super) fn answer_packet(
        &mut self,
        now: Instant,
        index: u32,
        kind: Kind,
        psn: Psn,
        more: Flags,
    ) -> Option<AnswerPacket> {
        let (read, credit) = self.credit(index);
        let peer = &self.peers[index as usize];
        let remote = peer.connection.remote?;
        let ((base, mut sack), flags) =
            match peer.connection.local.and_then(|local| self.memory.flow(local.index)) {
                Some(flow) => (receive_bitmap::snapshot(flow), answer::flags(flow)),
                None => ((Psn(0), Sack::EMPTY), Flags::HAS_ACK),
            };
        // The credit counts from what was read, the answer from what was deposited, which may be more.
        let unread = if defect!(CreditFromElsewhere) { 0 } else { base.since(read).unwrap_or(0) };
        let credit = u64::from(credit).saturating_sub(unread) as u16;
        sack.delay_ns = now.since(peer.acks.deposited_at()).min(u64::from(u32::MAX)) as u32;
        let mut buffer = [0; BODY_BYTES_MAX];
        let body = sack.encode(&mut buffer);
        let mut header = Header::new(kind, self.incarnation.epoch);
        (header.flow, header.token) = (remote.flow, remote.token);
        header.flags = flags.with(more);
        // What was read has been compared, and nothing else.
        let compared = if defect!(CheckedTooEarly) { base } else { read };
        header.psn = if kind == Kind::Xoff { psn } else { compared };
        (header.ack, header.credit) = (base, credit);
        header.body_bytes = body.len() as u16;
        header.body_crc = crc32c(body);
        let mut packet = AnswerPacket::new();
        for part in [&header.encode()[..], body] {
            packet.try_extend_from_slice(part).expect("an answer has room for its header and body");
        }
        Some(packet)
    }
}
