//! Packets that are too long for their path, in pieces: sent, and put together.
//!
//! A packet is cut once and keeps its number and its body: the receiver may have it already, and only its ACK be lost.
//! So when a path carries less than it was cut for, the same packet is sent in several datagrams
//! (`tsumugi_wire::piece`).

use super::arrive::Arrival;
use super::{Core, Ended};
use crate::checksum::{crc32c, crc32c_of_two};
use crate::endpoint::sent::{PacketKey, Sent};
use std::net::SocketAddr;
use tsumugi_proto::{ReceiveMemory, receive_bitmap};
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::BITMAP_PACKETS;
use tsumugi_wire::memory::{Counter, Flow};
use tsumugi_wire::piece::{PIECE_BYTES, Piece, piece_data_bytes};
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

impl Core {
    /// Longest datagram that everything carries which packets picked for a path are sent over, bytes.
    pub(super) fn carried(&self, index: u32, path: u8) -> usize {
        let peer = &self.peers[index as usize];
        let carried = peer.paths[usize::from(path)].mtu.bytes();
        if self.multirail.policy.is_copied() {
            carried.min(peer.sizes.cut_bytes() + HEADER_BYTES)
        } else {
            carried
        }
    }

    /// Whether none of the collected packets is longer than that.
    pub(super) fn burst_fits(&self, index: u32, carried: usize) -> bool {
        let agreed = self.peers[index as usize].connection.remote.map_or(0, |remote| remote.datagram_bytes());
        let fits = |(_, key, _): &(_, PacketKey, _)| self.sent[*key].datagram_bytes() <= carried;
        carried >= agreed || self.egress.burst.packets.iter().all(fits)
    }

    /// Sends the collected packets over a path that carries `carried` bytes, too few for some of them. `false` when the NIC
    /// did not take them all.
    pub(super) fn send_in_pieces<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        path: u8,
        carried: usize,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let mut packets = std::mem::take(&mut self.egress.burst.packets);
        let mut all = true;
        let fits = |sent: &Sent, key: PacketKey| sent[key].datagram_bytes() <= carried;
        let sent = &self.sent;
        let runs = packets.chunk_by(|(_, one, _), (_, next, _)| fits(sent, *one) && fits(sent, *next));
        for run in runs.map(<[_]>::to_vec).collect::<Vec<_>>() {
            all = if !all {
                run.iter().for_each(|(psn, ..)| self.peers[index as usize].sender.not_taken(*psn));
                false
            } else if fits(&self.sent, run[0].1) {
                self.egress.burst.packets.clone_from(&run);
                self.send_burst(now, index, path, rail)?
            } else {
                self.send_pieces_of(now, index, path, carried, run[0], rail)?
            };
        }
        packets.clear();
        self.egress.burst.packets = packets; // for its room
        Ok(all)
    }

    pub(super) fn send_pieces_of<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        path: u8,
        carried: usize,
        (psn, key, flags): (Psn, PacketKey, Flags),
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let (ack, credit) = self.credit(index);
        let flags = flags.with(self.has_ack(index));
        let peer = &mut self.peers[index as usize];
        let Some(remote) = peer.connection.remote else { return Ok(true) };
        let (head, body) = self.sent.body(key);
        let whole = [head, body].concat();
        let packet_crc = if peer.connection.trusts_wire() { crc32c(&whole) } else { self.sent[key].crc };
        let step = piece_data_bytes(carried);
        let count = whole.len().div_ceil(step);
        let mut header = Header::new(Kind::Piece, self.incarnation.epoch);
        (header.flow, header.token, header.path, header.psn) = (remote.flow, remote.token, path, psn);
        (header.ack, header.credit) = (ack, credit);
        let mut heads = Vec::with_capacity(count);
        for (nth, data) in whole.chunks(step).enumerate() {
            let piece = Piece { packet_bytes: whole.len() as u16, at: (nth * step) as u16, packet_crc };
            let piece = piece.encode();
            let last = nth + 1 == count;
            header.flags = flags.with(if last { Flags::ACK_REQUEST } else { Flags(0) });
            header.body_bytes = (PIECE_BYTES + data.len()) as u16;
            header.body_crc = crc32c_of_two(&piece, data);
            let mut head = [0; HEADER_BYTES + PIECE_BYTES];
            head[..HEADER_BYTES].copy_from_slice(&header.encode());
            head[HEADER_BYTES..].copy_from_slice(&piece);
            heads.push(head);
        }
        let pieces = heads.iter().zip(whole.chunks(step));
        let pieces: Vec<_> = pieces.map(|(head, body)| Packet { head, body }).collect();
        let address = peer.paths[usize::from(path)].address;
        let all = rail.send(now, address, &pieces)? == count;
        if all {
            self.tally.bytes_sent += peer.count_sent(path, &pieces);
            if peer.is_multirail() {
                self.multirail.policy.on_sent(index, path, 1, whole.len() as u64);
                if self.multirail.policy.is_copied() {
                    for address in peer.elsewhere(address) {
                        rail.send(now, address, &pieces)?;
                    }
                }
            }
        } else {
            peer.sender.not_taken(psn);
        }
        Ok(all)
    }

    /// A piece of a packet arrived. When the packet is whole, it is as if it had come in one.
    pub(super) fn on_piece(
        &mut self,
        now: Instant,
        index: u32,
        from: SocketAddr,
        flow: &Flow,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Ended> {
        let Ok((piece, data)) = Piece::decode(body) else {
            self.memory.count(Counter::Violation, 1);
            return Ok(());
        };
        let peer = &mut self.peers[index as usize];
        peer.acks.answer_to(from);
        peer.liveness.set_away(false);
        let base = peer
            .receive
            .damaged
            .first()
            .map_or_else(|| receive_bitmap::base(flow), |psn| psn.min(receive_bitmap::base(flow)));
        if header.psn < receive_bitmap::base(flow) && !peer.receive.damaged.has(header.psn) {
            if header.flags.has(Flags::ACK_REQUEST) {
                peer.acks.demand(Kind::Ack, Psn(0)); // its ACK is lost
                self.schedule(index);
            }
            return Ok(());
        }
        if header.psn >= receive_bitmap::base(flow).plus(BITMAP_PACKETS) {
            return Ok(());
        }
        let Some(whole) = peer.receive.pieces.put(base, header.psn, &piece, data) else { return Ok(()) };
        if crc32c(&whole) != piece.packet_crc {
            self.memory.count(Counter::Corrupt, 1);
            return Ok(());
        }
        let header = Header {
            kind: Kind::Data,
            body_bytes: piece.packet_bytes,
            body_crc: piece.packet_crc,
            ..*header
        };
        let packet = Arrival::new(header, &whole);
        self.on_data(now, index, flow, &packet, &[packet])?;
        Ok(())
    }
}
