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
use tsumugi_wire::frame::{Fragment, Frame, Frames, remote_frame_bytes};
use tsumugi_wire::handshake::{Challenge, Offer};
use tsumugi_wire::header::MalformedHeader;
use tsumugi_wire::memory::{Counter, Flow};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

/// Packets that are taken in at once, at most: as many as a burst has.
const RUN_PACKETS_MAX: usize = 64;

/// A packet of a run, and what follows it in the datagram.
struct Run<'d> {
    header: Header,
    fragment: Fragment,
    data: &'d [u8],
    next: &'d [u8],
}

impl Core {
    /// A datagram arrived: one packet, or several of one sender that the kernel has coalesced.
    ///
    /// Whatever does not belong here is counted and dropped.
    pub fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut rest = datagram;
        loop {
            match Header::decode(rest) {
                Ok((header, body, next)) => {
                    if header.kind == Kind::Data && !next.is_empty() {
                        let after = self.on_run(now, from, rest);
                        if after.len() < rest.len() {
                            rest = after;
                            continue;
                        }
                    }
                    rest = next;
                    if crc32c(body) == header.body_crc || defect!(NoCrcCheck) {
                        self.on_packet(now, from, &header, body);
                    } else {
                        self.memory.count(Counter::Corrupt, 1);
                    }
                }
                // Where the next packet begins nobody knows.
                Err(error) => {
                    self.memory.count(Counter::Malformed, 1);
                    if let MalformedHeader::Version(version) = error {
                        self.on_other_version(from, version, rest);
                    }
                    return;
                }
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Takes in a run of fragments of long messages, one PSN behind the other, at the start of what the kernel has coalesced: most
    /// of what is done for a packet is done once for all of them. Returns what follows; all of it, if there is no such run.
    fn on_run<'d>(&mut self, now: Instant, from: SocketAddr, datagram: &'d [u8]) -> &'d [u8] {
        let mut run = ArrayVec::<Run<'d>, RUN_PACKETS_MAX>::new();
        let (mut rest, mut first) = (datagram, None);
        while let Ok((header, body, next)) = Header::decode(rest) {
            let first = *first.get_or_insert(header);
            let follows = header.psn == first.psn.plus(run.len() as u64)
                && (header.kind, header.flow, header.token) == (first.kind, first.flow, first.token)
                && (header.epoch, header.path) == (first.epoch, first.path);
            let Some(Ok(Frame::Fragment(fragment, data))) = Frames::new(body).next() else { break };
            if run.is_full() || !follows || crc32c(body) != header.body_crc {
                break;
            }
            run.push(Run { header, fragment, data, next });
            rest = next;
            if rest.is_empty() {
                break;
            }
        }
        let [one, _, ..] = &run[..] else { return datagram };
        let memory = Rc::clone(&self.memory);
        let Ok(flow) = receiver::find(&*memory, &one.header) else { return datagram };
        let Some(index) = self.peers.in_flow(one.header.flow) else { return datagram };
        if !self.peers[index as usize].receive.damaged.is_empty() {
            return datagram;
        }
        let mut taken = 0;
        let outcome = self.on_run_of(now, index, from, flow, &run, &mut taken);
        self.apply(outcome);
        taken.checked_sub(1).map_or(datagram, |last| run[last].next)
    }

    /// A run of a peer's fragments has come, in its flow. `taken` becomes the number of those that are taken care of.
    fn on_run_of(
        &mut self,
        now: Instant,
        index: u32,
        from: SocketAddr,
        flow: &Flow,
        run: &[Run<'_>],
        taken: &mut usize,
    ) -> Result<(), Ended> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        let peer = &mut self.peers[index as usize];
        peer.liveness.hear(now);
        peer.acks.answer_to(from);
        peer.liveness.set_away(false);
        if last.header.flags.has(Flags::HAS_ACK) {
            self.on_answer(now, index, Answer::Piggyback, last.header.ack, last.header.credit, None)?;
        }
        if first.header.psn > self.peers[index as usize].receive.reorder.next() {
            self.pass_direct_writes(index, first.header.psn)?;
        }
        *taken = receiver::consume_run(&*self.memory, flow, &first.header, run.len() as u64) as usize;
        let Some(last) = run[..*taken].last() else { return Ok(()) };
        let is_asked =
            |header: &Header| header.flags.has(Flags::ACK_REQUEST) && !header.flags.has(Flags::AT_LEISURE);
        let asked = run[..*taken].iter().any(|packet| is_asked(&packet.header));
        let highest = self.peers[index as usize].acks.highest().max(last.header.psn.next());
        let gap = receive_bitmap::base(flow) < highest;
        self.on_deposited(now, index, last.header.psn, *taken as u32, gap || asked);
        for packet in &run[..*taken] {
            self.on_fragment(index, packet.header.psn, packet.fragment, packet.data)?;
        }
        receiver::consumed(flow, *taken as u64);
        Ok(())
    }

    fn on_packet(&mut self, now: Instant, from: SocketAddr, header: &Header, body: &[u8]) {
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
            | Kind::Damaged => self.on_flow_packet(now, from, header, body),
        }
    }

    fn on_flow_packet(&mut self, now: Instant, from: SocketAddr, header: &Header, body: &[u8]) {
        let memory = Rc::clone(&self.memory);
        let flow = match receiver::find(&*memory, header) {
            Ok(flow) => flow,
            Err(verdict) => {
                memory.count(verdict.counter(), 1);
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
        let Some(index) = self.peers.in_flow(header.flow) else { return };
        let outcome = self.on_packet_of(now, index, from, flow, header, body);
        self.apply(outcome);
    }

    /// A packet of a peer has come, in its flow.
    fn on_packet_of(
        &mut self,
        now: Instant,
        index: u32,
        from: SocketAddr,
        flow: &Flow,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Ended> {
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
                self.on_data(now, index, flow, header, body)?;
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

    /// The only frame of a packet that may go to its place as it arrives: a fragment, a part of something long that is
    /// done to memory, or something short whose turn it is.
    fn place_of<'b>(&self, index: u32, psn: Psn, body: &'b [u8]) -> Option<Frame<'b>> {
        let frame = Frames::new(body).next()?.ok()?;
        let placed = match &frame {
            Frame::Fragment(..) => true,
            Frame::Remote(remote, data) if body.len() <= remote_frame_bytes(data.len()) => {
                let early =
                    [Opcode::Piece, Opcode::Part].map(|opcode| opcode as u16).contains(&remote.opcode);
                early || defect!(ShortWriteEarly) || psn == self.peers[index as usize].receive.reorder.next()
            }
            Frame::Remote(..) | Frame::Whole { .. } => false,
        };
        placed.then_some(frame)
    }

    pub(super) fn on_data(
        &mut self,
        now: Instant,
        index: u32,
        flow: &Flow,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Ended> {
        if self.repairs(index, header.psn, body)? {
            return Ok(());
        }
        if header.psn > self.peers[index as usize].receive.reorder.next() {
            self.pass_direct_writes(index, header.psn)?;
        }
        // What has a place goes from here straight there; short messages stay in the receive queue, where the
        // application reads them.
        let placed = self.place_of(index, header.psn, body);
        let verdict = match placed {
            Some(_) => receiver::consume(&*self.memory, flow, header),
            None => receiver::deposit(&*self.memory, flow, header, body, true),
        };
        if verdict != Verdict::Deposited {
            if let Some(kind) = verdict.answer() {
                self.peers[index as usize].acks.demand(kind, header.psn);
                self.schedule(index);
            }
            return Ok(());
        }
        let highest = self.peers[index as usize].acks.highest().max(header.psn.next());
        let gap = receive_bitmap::base(flow) < highest;
        let is_asked = header.flags.has(Flags::ACK_REQUEST) && !header.flags.has(Flags::AT_LEISURE);
        self.on_deposited(now, index, header.psn, 1, gap || is_asked);
        match placed {
            Some(Frame::Fragment(fragment, data)) => self.on_fragment(index, header.psn, fragment, data)?,
            Some(Frame::Remote(remote, data)) => self.on_remote_at_once(index, header.psn, &remote, data)?,
            Some(Frame::Whole { .. }) | None => return Ok(()),
        }
        receiver::consumed(flow, 1);
        Ok(())
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
