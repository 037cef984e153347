//! What arrives: from the bytes of a datagram to the receive half, and answers to the sending half.

use super::{ACK_DELAY_NS, State};
use crate::checksum::crc32c;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::sent::PacketKey;
use crate::error::Reason;
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_proto::sender::Answer;
use tsumugi_proto::{ReceiveMemory, Verdict, receive_bitmap, receiver};
use tsumugi_wire::ack::Sack;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{Frame, Frames, remote_frame_bytes};
use tsumugi_wire::handshake::{Challenge, Offer};
use tsumugi_wire::header::MalformedHeader;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

/// Packets of one flow after which an ACK is due though nobody asked.
pub(super) const UNANSWERED_MAX: u32 = 64;

impl State {
    /// A datagram arrived: one packet, or several of one sender that the kernel has coalesced.
    ///
    /// Whatever does not belong here is counted and dropped.
    pub fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut rest = datagram;
        loop {
            match Header::decode(rest) {
                Ok((header, body, next)) => {
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
            self.on_answer(now, index, Answer::Piggyback, header.ack, header.credit, None);
            if self.peers.in_flow(header.flow).is_none() {
                return; // the acknowledgement was nonsense, and has ended the connection
            }
        }
        match header.kind {
            Kind::Data => {
                let peer = &mut self.peers[index as usize];
                peer.acks.to = from;
                peer.liveness.doubt.is_away = false;
                self.on_data(now, index, flow, header, body);
            }
            Kind::Ack | Kind::Nak | Kind::Xoff | Kind::Xon => {
                let index = self.prove(now, index, from);
                self.on_answer_from(now, index, from);
                let peer = &mut self.peers[index as usize];
                peer.connection.ask_by_probe |= header.flags.has(Flags::ASK_BY_PROBE);
                peer.liveness.doubt.is_away = header.flags.has(Flags::AWAY);
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
                    Ok(sack) => self.on_answer(now, index, answer, header.ack, header.credit, Some(&sack)),
                    Err(_) => self.memory.count(Counter::Violation, 1),
                }
            }
            Kind::Probe => self.answer_probe(now, index, from),
            Kind::Bye => self.on_bye(now, index, header),
            Kind::ByeAck => self.on_bye_ack(now, index),
            Kind::Piece => self.on_piece(now, index, from, flow, header, body),
            Kind::SizeProbe => self.on_size_probe(index, from, header),
            Kind::SizeAck => self.on_size_ack(now, index, header),
            Kind::Damaged => self.on_wanted_again(index, header.psn),
            Kind::Hello | Kind::Challenge | Kind::Welcome | Kind::Reset => {}
        }
    }

    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        index: u32,
        answer: Answer,
        ack: Psn,
        credit: u16,
        sack: Option<&Sack>,
    ) {
        if matches!(answer, Answer::Piggyback) {
            self.confirm(index, ack); // only answers run ahead of what was compared
        }
        let peer = &mut self.peers[index as usize];
        if !matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)) {
            return;
        }
        let (sent, pool) = (&mut self.sent, &mut self.pool);
        let unchecked = &mut peer.repairs.unchecked;
        let release = |(psn, key): (Psn, PacketKey)| {
            let may_be_direct = psn >= unchecked.checked() && sent[key].may_be_direct_write();
            if let Some(key) = unchecked.keep(psn, key, may_be_direct) {
                sent.release(pool, key);
            }
        };
        let outcome = peer.sender.on_answer(now, answer, ack, credit, sack, release);
        match outcome {
            Ok(_) => {
                let base = peer.sender.base();
                while let Some(&(psn, messages)) = peer.outbox.marks.front()
                    && (psn < base || (psn == base && defect!(DeliveredTooEarly)))
                {
                    peer.outbox.delivered = messages;
                    peer.outbox.marks.pop_front();
                }
                let holes = peer.sender.has_holes();
                let more = peer.sender.has_lost() || !peer.outbox.waiting.is_empty();
                if more {
                    self.schedule(index);
                }
                // What was acknowledged moves timers back; only a hole can bring one forward.
                if holes {
                    self.arm(now, index);
                }
            }
            Err(_) => {
                self.memory.count(Counter::Violation, 1);
                self.end_peer(index, Reason::Violation("it acknowledged what was never sent"));
            }
        }
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
        flow: &tsumugi_wire::memory::Flow,
        header: &Header,
        body: &[u8],
    ) {
        if self.repairs(index, header.psn, body) {
            return;
        }
        if header.psn > self.peers[index as usize].receive.reorder.next() {
            self.pass_direct_writes(index, header.psn);
            if self.peers.in_flow(header.flow) != Some(index) {
                return; // what had its turn ended the connection
            }
        }
        // What has a place goes from here straight there; short messages stay in the receive queue, where the
        // application reads them.
        let placed = self.place_of(index, header.psn, body);
        let verdict = match placed {
            Some(_) => receiver::consume(&*self.memory, flow, header),
            None => receiver::deposit(&*self.memory, flow, header, body, true),
        };
        let peer = &mut self.peers[index as usize];
        if verdict == Verdict::Deposited {
            peer.acks.highest = peer.acks.highest.max(header.psn.next());
            peer.acks.deposited_at = now;
            peer.acks.unanswered += 1;
            let gap = receive_bitmap::base(flow) < peer.acks.highest;
            let is_waited_for = header.flags.has(Flags::ACK_REQUEST) && !header.flags.has(Flags::AT_LEISURE);
            if gap || is_waited_for || peer.acks.unanswered >= UNANSWERED_MAX {
                peer.acks.demand(Kind::Ack, Psn(0));
                self.schedule(index);
            } else if peer.acks.due == Instant::NEVER {
                let due = now.plus(ACK_DELAY_NS);
                peer.acks.due = due;
                self.schedule_at(index, due);
            }
            match placed {
                Some(Frame::Fragment(fragment, data)) => self.on_fragment(index, header.psn, fragment, data),
                Some(Frame::Remote(remote, data)) => self.on_remote_at_once(index, header.psn, &remote, data),
                Some(Frame::Whole { .. }) | None => {}
            }
            // Unless that ended the connection, and closed the entry.
            if placed.is_some() && flow.token.load(Ordering::Relaxed) == header.token {
                receiver::consumed(flow);
            }
        } else if let Some(kind) = verdict.answer() {
            peer.acks.demand(kind, header.psn);
            self.schedule(index);
        }
    }
}
