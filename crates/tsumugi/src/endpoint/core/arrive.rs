//! What arrives: from the bytes of a datagram to the receive half, and answers to the sending half.

use super::{Core, Ended};
use crate::checksum::crc32c;
use crate::endpoint::peer::acks::AckDue;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::sent::PacketKey;
use arrayvec::ArrayVec;
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_proto::sender::Answer;
use tsumugi_proto::{ReceiveMemory, Verdict, receive_bitmap, receiver};
use tsumugi_wire::ack::Sack;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{Frame, Frames, remote_frame_bytes};
use tsumugi_wire::group::mix;
use tsumugi_wire::handshake::{Challenge, Offer};
use tsumugi_wire::header::MalformedHeader;
use tsumugi_wire::memory::{Counter, Flow};
use tsumugi_wire::multicast;
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

/// Packets that are taken in at once, at most: as many as a burst has.
const RUN_PACKETS_MAX: usize = 64;

/// A packet that arrived whole and unaltered.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'d> {
    header: Header,
    body: &'d [u8],
    /// The first frame in it, if it brings data.
    frame: Option<Frame<'d>>,
}

impl<'d> Arrival<'d> {
    #[inline]
    pub(super) fn new(header: Header, body: &'d [u8]) -> Arrival<'d> {
        let frame =
            if header.kind == Kind::Data { Frames::new(body).next().and_then(Result::ok) } else { None };
        Arrival { header, body, frame }
    }

    /// Whether it is the next of a run: fragments, one PSN behind the other, in the same flow and over the same path.
    #[inline]
    fn extends(&self, run: &[Arrival<'_>]) -> bool {
        let Some(first) = run.first() else { return true };
        let is_fragment = |arrival: &Arrival<'_>| matches!(arrival.frame, Some(Frame::Fragment(..)));
        let (this, head) = (&self.header, &first.header);
        is_fragment(self)
            && is_fragment(first)
            && this.psn == head.psn.plus(run.len() as u64)
            && (this.flow, this.token, this.epoch, this.path)
                == (head.flow, head.token, head.epoch, head.path)
    }

    /// Whether its sender waits for its acknowledgement.
    fn is_asked(&self) -> bool {
        self.header.flags.has(Flags::ACK_REQUEST) && !self.header.flags.has(Flags::AT_LEISURE)
    }
}

impl Core {
    /// A datagram arrived: one packet, or several of one sender that the kernel has coalesced.
    ///
    /// Whatever does not belong here is counted and dropped. Most of what is done for a packet is done once for all of a run.
    pub fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut run = ArrayVec::<Arrival<'_>, RUN_PACKETS_MAX>::new();
        let mut rest = datagram;
        let failed = loop {
            let (header, body, next) = match Header::decode(rest) {
                Ok(decoded) => decoded,
                Err(error) => break Some(error),
            };
            if self.is_unaltered(&header, body) {
                let packet = Arrival::new(header, body);
                if run.is_full() || !packet.extends(&run) {
                    self.on_packets(now, from, &run);
                    run.clear();
                }
                run.push(packet);
            } else {
                self.memory.count(Counter::Corrupt, 1);
            }
            rest = next;
            if rest.is_empty() {
                break None;
            }
        };
        self.on_packets(now, from, &run);
        // Where the next packet begins nobody knows.
        if let Some(error) = failed {
            self.memory.count(Counter::Malformed, 1);
            if let MalformedHeader::Version(version) = error {
                self.on_other_version(from, version, rest);
            }
        }
    }

    /// Whether a packet's body is what its CRC says, as far as the two sides want that compared.
    #[inline]
    fn is_unaltered(&self, header: &Header, body: &[u8]) -> bool {
        if matches!(header.kind, Kind::Multicast | Kind::Relay) {
            let table = multicast::split(header.credit, body);
            return table.is_ok_and(|(_, table)| multicast::check(table) == header.body_crc);
        }
        if self.is_of_a_group(header) {
            return mix(body) == Some(header.body_crc);
        }
        if header.flags.has(Flags::UNCHECKED) && header.kind == Kind::Data {
            let may_be =
                |index: u32| self.peers[index as usize].connection.may_be_unchecked(self.options.integrity);
            return self.peers.in_flow(header.flow).is_some_and(may_be);
        }
        crc32c(body) == header.body_crc || defect!(NoCrcCheck)
    }

    /// A packet has come, or a run of several.
    fn on_packets(&mut self, now: Instant, from: SocketAddr, run: &[Arrival<'_>]) {
        let Some(Arrival { header, body, .. }) = run.first() else { return };
        match header.kind {
            Kind::Hello | Kind::Welcome => match Offer::decode(body) {
                Ok(offer) if header.kind == Kind::Hello => self.on_hello(now, from, header, &offer),
                Ok(offer) => self.on_welcome(now, from, header, &offer),
                Err(_) => self.memory.count(Counter::Violation, 1),
            },
            Kind::Challenge => match Challenge::decode(body) {
                Ok(challenge) => self.on_challenge(now, from, header, challenge),
                Err(_) => self.memory.count(Counter::Violation, 1),
            },
            Kind::Reset => self.on_reset(now, from, header),
            Kind::Data
            | Kind::Ack
            | Kind::Nak
            | Kind::Xoff
            | Kind::Xon
            | Kind::Probe
            | Kind::Bye
            | Kind::ByeAck
            | Kind::Piece
            | Kind::SizeProbe
            | Kind::SizeAck
            | Kind::Damaged => self.on_flow_packets(now, from, header, run),
            Kind::Join
            | Kind::Arrive
            | Kind::Leave
            | Kind::Notice
            | Kind::Release
            | Kind::Multicast
            | Kind::Relay => {
                if header.flags.has(Flags::MIXED) {
                    self.on_group_packet(now, from, header, body);
                }
            }
        }
    }

    fn on_flow_packets(&mut self, now: Instant, from: SocketAddr, header: &Header, run: &[Arrival<'_>]) {
        let memory = Rc::clone(&self.memory);
        let flow = match receiver::find(&*memory, header) {
            Ok(flow) => flow,
            Err(verdict) => {
                memory.count(verdict.counter(), run.len() as u64);
                // Nobody is left of another epoch, and its token may be in use again by the present one.
                let unknown = verdict != Verdict::WrongEpoch;
                let asks = matches!(
                    header.kind,
                    Kind::Data | Kind::Probe | Kind::Bye | Kind::Piece | Kind::SizeProbe | Kind::Damaged
                );
                if unknown && asks {
                    self.reset(from, header.token);
                }
                return;
            }
        };
        if let Some(seat) = self.peers.group_in_flow(header.flow) {
            for Arrival { header, body, .. } in run {
                self.on_release(seat, header.body_crc, body);
            }
            return;
        }
        let Some(index) = self.peers.in_flow(header.flow) else { return };
        let outcome = self.on_packets_of(now, index, from, flow, run);
        self.apply(outcome);
    }

    /// A peer's packet has come, in its flow, or a run of several.
    fn on_packets_of(
        &mut self,
        now: Instant,
        index: u32,
        from: SocketAddr,
        flow: &Flow,
        run: &[Arrival<'_>],
    ) -> Result<(), Ended> {
        // The last says as much as all of them.
        let Some(Arrival { header, body, .. }) = run.last() else { return Ok(()) };
        self.peers[index as usize].liveness.hear(now);
        let rides_along = matches!(
            header.kind,
            Kind::Data
                | Kind::Probe
                | Kind::Bye
                | Kind::ByeAck
                | Kind::Piece
                | Kind::SizeProbe
                | Kind::SizeAck
                | Kind::Damaged
        );
        if rides_along && header.flags.has(Flags::HAS_ACK) {
            self.on_answer(now, index, Answer::Piggyback, header.ack, header.credit, None)?;
        }
        match header.kind {
            Kind::Data => {
                let peer = &mut self.peers[index as usize];
                peer.acks.answer_to(from);
                peer.liveness.set_away(false);
                let mut rest = run;
                while let Some(first) = rest.first() {
                    let taken = self.on_data(now, index, flow, first, rest)?;
                    rest = &rest[taken..];
                }
            }
            Kind::Ack | Kind::Nak | Kind::Xoff | Kind::Xon => {
                let index = self.prove(now, index, from);
                self.on_answer_from(now, index, from);
                let peer = &mut self.peers[index as usize];
                peer.connection.ask_by_probe |= header.flags.has(Flags::ASK_BY_PROBE);
                peer.liveness.set_away(header.flags.has(Flags::AWAY));
                let answer = match header.kind {
                    Kind::Nak => Answer::Nak,
                    // The peer has since taken what it refused then: this is a copy, or late, and the XON that followed
                    // it may be here already. An XOFF that was owed need not name what it refused, but acknowledges as
                    // much as ever.
                    Kind::Xoff if header.psn.max(header.ack) < self.peers[index as usize].sender.base() => {
                        Answer::Ack
                    }
                    Kind::Xoff => {
                        self.on_refused(now, index, from, header.psn);
                        Answer::Xoff
                    }
                    Kind::Xon => Answer::Xon,
                    _ => Answer::Ack,
                };
                // The PSN of an XOFF is the one that it refused.
                if header.kind != Kind::Xoff {
                    self.confirm(index, header.psn.min(header.ack));
                }
                match Sack::decode(body) {
                    Ok(sack) => {
                        self.on_answer(now, index, answer, header.ack, header.credit, Some(&sack))?;
                        self.lose_tried(now, index, from);
                    }
                    Err(_) => self.memory.count(Counter::Violation, 1),
                }
            }
            Kind::Probe => self.answer_probe(now, index, from),
            Kind::Bye => self.on_bye(now, index, header)?,
            Kind::ByeAck => self.on_bye_ack(now, index)?,
            Kind::Piece => self.on_piece(now, index, from, flow, header, body)?,
            Kind::SizeProbe => self.on_size_probe(index, from, header),
            Kind::SizeAck => self.on_size_ack(now, index, header),
            Kind::Damaged => self.on_wanted_again(index, header.psn)?,
            Kind::Hello | Kind::Challenge | Kind::Welcome | Kind::Reset => {}
            Kind::Join | Kind::Arrive | Kind::Leave | Kind::Notice | Kind::Release => {}
            Kind::Multicast | Kind::Relay => {}
        }
        Ok(())
    }

    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        index: u32,
        answer: Answer,
        ack: Psn,
        credit: u16,
        sack: Option<&Sack>,
    ) -> Result<(), Ended> {
        if matches!(answer, Answer::Piggyback) {
            self.confirm(index, ack); // only answers run ahead of what was compared
        }
        let peer = &mut self.peers[index as usize];
        if !matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)) {
            return Ok(());
        }
        let (sent, pool) = (&mut self.sent, &mut self.pool);
        let unchecked = &mut peer.repairs.unchecked;
        let release = |(psn, key): (Psn, PacketKey)| {
            let may_be_direct = psn >= unchecked.checked() && sent[key].may_be_direct_write();
            if let Some(key) = unchecked.keep(psn, key, may_be_direct) {
                sent.release(pool, key);
            }
        };
        if peer.sender.on_answer(now, answer, ack, credit, sack, release).is_err() {
            return Err(self.violation(index, "it acknowledged what was never sent"));
        }
        peer.outbox.on_acknowledged(peer.sender.base());
        let holes = peer.sender.has_holes();
        if peer.sender.has_lost() || !peer.outbox.is_empty() {
            self.schedule(index);
        }
        // What was acknowledged moves timers back; only a hole can bring one forward.
        if holes {
            self.arm(now, index);
        }
        Ok(())
    }

    /// Whether a packet has a place to which it may go as it arrives: a fragment, or, alone in its packet, a part of something long
    /// that is done to memory or something short whose turn it is.
    fn has_place(&self, index: u32, arrival: &Arrival<'_>) -> bool {
        match &arrival.frame {
            Some(Frame::Fragment(..)) => true,
            Some(Frame::Remote(remote, data)) if arrival.body.len() <= remote_frame_bytes(data.len()) => {
                let early =
                    [Opcode::Piece, Opcode::Part].map(|opcode| opcode as u16).contains(&remote.opcode);
                let next = self.peers[index as usize].receive.reorder.next();
                early || defect!(ShortWriteEarly) || arrival.header.psn == next
            }
            Some(Frame::Remote(..) | Frame::Whole { .. }) | None => false,
        }
    }

    /// Takes in what may be taken in at once of a run, which begins with `first`: one packet or more. Returns how many.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        index: u32,
        flow: &Flow,
        first: &Arrival<'_>,
        run: &[Arrival<'_>],
    ) -> Result<usize, Ended> {
        let psn = first.header.psn;
        if self.repairs(index, psn, first.body)? {
            return Ok(1);
        }
        if psn > self.peers[index as usize].receive.reorder.next() {
            self.pass_direct_writes(index, psn)?;
        }
        // What has a place goes from here straight there; short messages stay in the receive queue, where the
        // application reads them.
        let has_place = self.has_place(index, first);
        let outcome = if has_place {
            receiver::consume(&*self.memory, flow, &first.header, run.len() as u64)
        } else {
            match receiver::deposit(&*self.memory, flow, &first.header, first.body, true) {
                Verdict::Deposited => Ok(1),
                verdict => Err(verdict),
            }
        };
        let taken = match outcome {
            Ok(taken) => &run[..taken as usize],
            Err(verdict) => {
                if let Some(kind) = verdict.answer() {
                    self.peers[index as usize].acks.demand(kind, psn);
                    self.schedule(index);
                }
                return Ok(1);
            }
        };
        let packets = taken.len() as u64;
        let last = psn.plus(packets - 1);
        let highest = self.peers[index as usize].acks.highest().max(last.next());
        let gap = receive_bitmap::base(flow) < highest;
        self.on_deposited(now, index, last, packets as u32, gap || taken.iter().any(Arrival::is_asked));
        if has_place {
            let bytes = taken.iter().map(|arrival| arrival.body.len() as u64).sum();
            self.tally.bytes_received += self.peers[index as usize].receive.count(packets, bytes);
            for arrival in taken {
                match &arrival.frame {
                    Some(Frame::Fragment(fragment, data)) => {
                        self.on_fragment(index, arrival.header.psn, *fragment, data)?
                    }
                    Some(Frame::Remote(remote, data)) => self.on_remote_at_once(index, psn, remote, data)?,
                    Some(Frame::Whole { .. }) | None => {}
                }
            }
            receiver::consumed(flow, packets);
        }
        Ok(taken.len())
    }

    /// So many packets of a peer up to this one were deposited, by whichever receive path: they are acknowledged at once if somebody
    /// waits for that, or so many are not, and otherwise in a while.
    pub(super) fn on_deposited(
        &mut self,
        now: Instant,
        index: u32,
        psn: Psn,
        packets: u32,
        is_waited_for: bool,
    ) {
        match self.peers[index as usize].acks.on_deposited(now, psn, packets, is_waited_for) {
            AckDue::Now => self.schedule(index),
            AckDue::At(due) => self.schedule_at(index, due),
            AckDue::Known => {}
        }
    }
}
