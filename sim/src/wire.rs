//! A rail that watches: what a host may not put on the wire, whatever it makes of it.

use crate::ledger::Wrong;
use crate::switch_box::SwitchBox;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use tsumugi_rail::sim::{Network, SimRail};
use tsumugi_rail::{Deliver, Evidence, NicName, Packet, Question, Rail, RailError};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::piece::Piece;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS};
use tsumugi_wire::{Flags, Header, Instant, Kind};

/// Credit that every flow begins with, packets.
const CREDIT_PACKETS_INITIAL: u64 = 256;
/// Between two packets that a sender sends after XOFF to see whether there is room again, ns, at least.
const XOFF_NS_MIN: u64 = 250 * MICROSECOND_NS;
/// Packets that a sender may send at once after XOFF.
const XOFF_PACKETS_MAX: u64 = 2;
/// Longest time-out of a sender that an outdated XOFF holds, ns: five round trips in a queue that is long.
const XOFF_LATELY_NS: u64 = 60 * MILLISECOND_NS;
/// Datagrams that are remembered, to be replayed.
const REMEMBERED: usize = 64;

/// A datagram that somebody sent.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A DATA packet that a host handed to its rail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) to: SocketAddr,
    /// Token of its flow.
    pub(crate) token: u64,
    pub(crate) psn: u64,
    /// Number of the path that was picked for it.
    pub(crate) path: u8,
    /// Sent again, or to see whether the receiver has room: a time-out may have chosen the path.
    pub(crate) again: bool,
}

/// Names a flow: its token and the epoch of the sender.
pub(crate) type FlowKey = (u64, u32);

/// What is known of a flow.
#[derive(Debug, Default)]
struct Flow {
    /// CRC of each PSN's body.
    crcs: Vec<Option<u32>>,
    /// PSNs from here on are beyond the credit that the sender has.
    limit: u64,
    /// When the sender got XOFF, and packets that it has sent since.
    xoff: Option<(Instant, u64)>,
    /// When it got the last XOFF.
    xoff_last: Option<Instant>,
    /// PSNs that were sent since at this time: the same again over another path is no other packet.
    at_once: (Instant, Vec<u64>),
    /// The receiver has sent XOFF and not XON since.
    owes_xon: bool,
    /// The receiver has told of credit up to here.
    told: u64,
    /// The sender knows that everything before this PSN has arrived.
    acked: u64,
}

/// Everything that passed.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    flows: HashMap<FlowKey, Flow>,
    captured: Vec<Captured>,
    handshakes: Vec<Captured>,
    /// The last DATA packet to each host.
    pub(crate) last_data: HashMap<SocketAddr, Captured>,
    seen: usize,
    pub(crate) wrong: Option<Wrong>,
    pub(crate) xoffs: u64,
    /// Pieces sent of packets that were too long for their path.
    pub(crate) pieces: u64,
    /// Packets deposited by XDP programs.
    pub(crate) by_xdp: u64,
    /// Those of them that were written directly.
    pub(crate) direct_writes: u64,
    /// Packets that came again because they were damaged when they were deposited, to processes that are no more.
    pub(crate) repaired: u64,
    /// Packets whose path was compared with the policy's, and paths that were given up.
    pub(crate) followed: u64,
    pub(crate) left: u64,
    pub(crate) capturing: bool,
    /// What is between the hosts, if that is a switch box.
    pub(crate) switch_box: Option<SwitchBox>,
    pub(crate) trace: Option<Vec<String>>,
}

impl Wire {
    fn flow(&mut self, flow: FlowKey) -> &mut Flow {
        self.flows.entry(flow).or_insert_with(|| Flow { limit: CREDIT_PACKETS_INITIAL, ..Flow::default() })
    }

    fn complain(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// A host sends a packet.
    fn on_send(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        packet: &Packet<'_>,
        paired: FlowKey,
    ) {
        let Ok((header, rest)) = decode_head(packet) else {
            self.complain(format!("{from} sent what is no packet"));
            return;
        };
        if self.trace.is_some() {
            self.note(now, || format!("{from} > {to} {}", show(&header)));
        }
        if usize::from(header.body_bytes) != rest {
            self.complain(format!("{from} announced {} bytes of body and sent {rest}", header.body_bytes));
        }
        if paired.0 != 0 && header.kind.on_a_flow() && header.flags.has(Flags::HAS_ACK) {
            let flow = self.flow(paired);
            flow.told = flow.told.max(header.ack.0.saturating_add(u64::from(header.credit)));
        }
        match header.kind {
            Kind::Data => {
                let crc = if header.flags.has(Flags::UNCHECKED) {
                    tsumugi::internal::crc32c(&[packet.head, packet.body].concat()[HEADER_BYTES..])
                } else {
                    header.body_crc
                };
                self.on_send_data(now, from, &header, crc);
            }
            Kind::Piece => self.on_send_piece(from, &header, packet),
            Kind::Xoff | Kind::Xon => {
                // By the token of the flow that it is about, which is the other direction.
                self.xoffs += u64::from(header.kind == Kind::Xoff);
                self.flow(paired).owes_xon = header.kind == Kind::Xoff;
            }
            _ => {}
        }
        if self.capturing {
            self.capture(from, to, &header, packet);
        }
    }

    /// A packet of data is sent, whose body has this CRC, whether its sender makes one or not.
    fn on_send_data(&mut self, now: Instant, from: SocketAddr, header: &Header, body_crc: u32) {
        let flow = self.flow((header.token, header.epoch));
        let psn = header.psn.0;
        let mut wrong = None;
        if psn >= flow.limit {
            wrong = Some(format!("{from} sent PSN {psn} with credit up to {}", flow.limit));
        } else {
            let at = psn as usize;
            flow.crcs.resize(flow.crcs.len().max(at + 1), None);
            match flow.crcs[at] {
                Some(crc) if crc != body_crc => {
                    wrong = Some(format!("{from} sent PSN {psn} again with another body"));
                }
                Some(_) if !header.flags.has(Flags::RESENT) => {
                    // A packet that the NIC did not take the first time is no second one.
                }
                _ => flow.crcs[at] = Some(body_crc),
            }
        }
        if flow.xoff.is_some() && flow.at_once.0 != now {
            flow.at_once = (now, Vec::new());
        }
        if let Some((since, sent)) = &mut flow.xoff
            && !flow.at_once.1.contains(&psn)
        {
            flow.at_once.1.push(psn);
            *sent += 1;
            let allowed = XOFF_PACKETS_MAX + now.since(*since) / XOFF_NS_MIN;
            if *sent > allowed {
                wrong = Some(format!("{from} sent {sent} packets since it got XOFF"));
            }
        }
        if let Some(wrong) = wrong {
            self.complain(wrong);
        }
    }

    /// A piece is of the packet that its PSN stands for, and that was or could have been sent.
    fn on_send_piece(&mut self, from: SocketAddr, header: &Header, packet: &Packet<'_>) {
        let bytes = [packet.head, packet.body].concat();
        let Ok((piece, _)) = Piece::decode(&bytes[HEADER_BYTES..]) else {
            return self.complain(format!("{from} sent a piece that is none"));
        };
        let flow = self.flow((header.token, header.epoch));
        if header.psn.0 >= flow.limit {
            let limit = flow.limit;
            return self.complain(format!("{from} sent PSN {} with credit up to {limit}", header.psn.0));
        }
        let at = header.psn.0 as usize;
        flow.crcs.resize(flow.crcs.len().max(at + 1), None);
        if *flow.crcs[at].get_or_insert(piece.packet_crc) != piece.packet_crc {
            self.complain(format!("{from} sent a piece of PSN {at} that is of another packet"));
        }
        self.pieces += 1;
    }

    /// What is noted of a datagram that was sent, if it is a DATA packet or the last piece of one.
    fn data_sent(&self, to: SocketAddr, packet: &Packet<'_>) -> Option<Sent> {
        let (header, _) = decode_head(packet).ok()?;
        let whole = match header.kind {
            Kind::Data => true,
            Kind::Piece => {
                let bytes = [packet.head, packet.body].concat();
                let (piece, data) = Piece::decode(&bytes[HEADER_BYTES..]).ok()?;
                usize::from(piece.at) + data.len() == usize::from(piece.packet_bytes)
            }
            _ => false,
        };
        if !whole {
            return None;
        }
        let Header { token, epoch, psn, path, flags, .. } = header;
        let refused = self.flows.get(&(token, epoch)).is_some_and(|flow| flow.xoff.is_some());
        Some(Sent { to, token, psn: psn.0, path, again: flags.has(Flags::RESENT) || refused })
    }

    /// A packet that acknowledges arrives at the sender of a flow.
    pub(crate) fn on_answer(&mut self, now: Instant, flow: FlowKey, header: &Header) {
        let flow = self.flow(flow);
        flow.limit = flow.limit.max(header.ack.0.saturating_add(u64::from(header.credit)));
        match header.kind {
            // A packet that was refused and has arrived since says nothing any more.
            Kind::Xoff if header.psn.max(header.ack).0 < flow.acked => flow.xoff_last = Some(now),
            Kind::Xoff => {
                flow.xoff.get_or_insert((now, 0));
                flow.xoff_last = Some(now);
            }
            _ => flow.xoff = None,
        }
        flow.acked = flow.acked.max(header.ack.0);
    }

    /// Whether no more credit was told in a flow than its receiver takes: everything before `limit`.
    pub(crate) fn check_told(&self, flow: FlowKey, limit: u64, receiver: SocketAddr) -> Result<(), Wrong> {
        match self.flows.get(&flow).map_or(0, |flow| flow.told) {
            told if told > limit => Err(format!("{receiver} told of credit up to {told} and takes {limit}")),
            _ => Ok(()),
        }
    }

    /// Whether the receiver of a flow refuses packets, as far as either side knows, or has done so lately: an XOFF that
    /// arrives after the XON that it was sent before holds the sender until its next time-out.
    pub(crate) fn refuses(&self, now: Instant, flow: FlowKey) -> bool {
        let refuses = |flow: &Flow| {
            let lately = flow.xoff_last.is_some_and(|at| now.since(at) < XOFF_LATELY_NS);
            flow.owes_xon || flow.xoff.is_some() || lately
        };
        self.flows.get(&flow).is_some_and(refuses)
    }

    /// Whether the receiver of a flow has sent XOFF, and never XON.
    pub(crate) fn owes_xon(&self, flow: FlowKey) -> bool {
        self.flows.get(&flow).is_some_and(|flow| flow.owes_xon)
    }

    fn capture(&mut self, from: SocketAddr, to: SocketAddr, header: &Header, packet: &Packet<'_>) {
        self.seen += 1;
        let handshake = !header.kind.on_a_flow() || header.kind == Kind::Bye;
        // Every so many is enough, and later ones are rarer: old ones must last.
        let wanted = handshake || self.seen.is_multiple_of(1 + self.seen / 64) || header.kind == Kind::Data;
        if !wanted {
            return;
        }
        let mut bytes = packet.head.to_vec();
        bytes.extend_from_slice(packet.body);
        let captured = Captured { from, to, bytes };
        if header.kind == Kind::Data {
            self.last_data.insert(to, captured.clone());
            if !self.seen.is_multiple_of(1 + self.seen / 64) {
                return;
            }
        }
        let list = if handshake { &mut self.handshakes } else { &mut self.captured };
        if list.len() < REMEMBERED {
            list.push(captured);
        } else {
            list[self.seen % REMEMBERED] = captured;
        }
    }

    /// Captured datagrams to `to`; of the handshake or others.
    pub(crate) fn captured(&self, to: SocketAddr, handshake: bool) -> Vec<&Captured> {
        let list = if handshake { &self.handshakes } else { &self.captured };
        list.iter().filter(|captured| captured.to == to).collect()
    }

    /// Notes an event for whoever looks into a failing seed.
    pub(crate) fn note(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.3} µs  {}", now.0 as f64 / 1000.0, what()));
        }
    }
}

fn decode_head(packet: &Packet<'_>) -> Result<(Header, usize), ()> {
    let mut whole = [0; 9000];
    let bytes = packet.bytes();
    let whole = whole.get_mut(..bytes).ok_or(())?;
    let (head, body) = whole.split_at_mut(packet.head.len());
    head.copy_from_slice(packet.head);
    body.copy_from_slice(packet.body);
    let (header, body, _) = Header::decode(whole).map_err(|_| ())?;
    Ok((header, body.len()))
}

/// A packet in a line.
pub(crate) fn show(header: &Header) -> String {
    let Header { kind, flags, token, epoch, psn, ack, credit, body_bytes, .. } = header;
    format!(
        "{kind:?} psn {psn} ack {ack}+{credit} flags {:x} flow {} token {:04x} epoch {epoch:x} {body_bytes} B",
        flags.0,
        header.flow,
        token & 0xffff
    )
}

/// A rail of a simulated network under watch, and with an XDP program on its NIC if the host has one.
pub(crate) struct Spy {
    pub(crate) rail: SimRail,
    network: Network,
    pub(crate) wire: Rc<RefCell<Wire>>,
    /// For each token that we send to, the flow in the other direction.
    pub(crate) pairs: HashMap<u64, FlowKey>,
    /// The program gets what arrives before the process does.
    pub(crate) attached: bool,
    /// What waits for the process, although the rail has given it out.
    pub(crate) passed: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The last acknowledgement that the XDP program noted for a flow of ours before we knew it, by the flow that it
    /// came by.
    pub(crate) early: HashMap<u64, Header>,
    /// DATA packets that were sent, for whoever wants to know.
    pub(crate) sent: Option<Vec<Sent>>,
}

impl Spy {
    pub(crate) fn new(rail: SimRail, network: Network, wire: Rc<RefCell<Wire>>, attached: bool) -> Spy {
        let (pairs, passed, early) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Spy { rail, network, wire, pairs, attached, passed, early, sent: None }
    }

    /// A switch box takes a packet, if there is one and it is for it. Returns whether it does.
    fn is_for_a_box(&mut self, now: Instant, to: SocketAddr, packet: &Packet<'_>) -> bool {
        let from = self.source(to);
        let mut wire = self.wire.borrow_mut();
        let Some(switch_box) = &mut wire.switch_box else { return false };
        if !self.network.carries(from, to, packet.bytes()) {
            // Lost on the way to it.
            return true;
        }
        let datagram = [packet.head, packet.body].concat();
        let Some(leaving) = switch_box.take(now, from, to, &datagram) else { return false };
        let paired = self.pairs.clone();
        for (from, to, bytes) in leaving {
            let packet = Packet { head: &bytes, body: &[] };
            let token = Header::decode(&bytes).map_or(0, |(header, ..)| header.token);
            let paired = paired.get(&token).copied().unwrap_or_default();
            wire.on_send(now, from, to, &packet, paired);
            self.network.send_on(now, from, to, &bytes);
        }
        true
    }

    /// The address that a datagram to `to` comes from.
    fn source(&self, to: SocketAddr) -> SocketAddr {
        self.rail.source(to.ip()).unwrap_or(self.rail.address())
    }

    /// Hands everything that waits for the process to it; returns how many datagrams that were.
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        mut take: impl FnMut(&mut Spy, SocketAddr, &[u8]),
    ) -> Result<usize, Wrong> {
        if !self.attached {
            self.hold(now).map_err(|error| error.to_string())?;
        }
        let all = std::mem::take(&mut self.passed);
        for (from, bytes) in &all {
            take(self, *from, bytes);
        }
        Ok(all.len())
    }

    /// Takes what has arrived off the rail: it waits for the process.
    pub(crate) fn hold(&mut self, now: Instant) -> Result<(), RailError> {
        let Spy { rail, passed, .. } = self;
        while rail.wake_at() <= now {
            rail.receive(now, &mut |from, bytes| passed.push_back((from, bytes.to_vec())))?;
        }
        Ok(())
    }

    /// The program sends an answer to a packet of `flow`; the NIC may have no room for it.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        to: SocketAddr,
        answer: &[u8],
        flow: FlowKey,
    ) -> Result<(), Wrong> {
        let packet = Packet { head: answer, body: &[] };
        let taken = self.rail.send(now, to, &[packet]).map_err(|error| error.to_string())?;
        if taken == 1 {
            let from = self.source(to);
            self.wire.borrow_mut().on_send(now, from, to, &packet, flow);
        }
        Ok(())
    }
}

impl Rail for Spy {
    fn address(&self) -> SocketAddr {
        self.rail.address()
    }
    fn datagram_bytes(&self) -> usize {
        self.rail.datagram_bytes()
    }
    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        // What is sent at once is of one kind.
        let by_box = burst.iter().filter(|packet| self.is_for_a_box(now, to, packet)).count();
        if by_box > 0 {
            return Ok(by_box);
        }
        let taken = self.rail.send(now, to, burst)?;
        let from = self.source(to);
        let mut wire = self.wire.borrow_mut();
        for packet in &burst[..taken] {
            let token =
                packet.head.get(8..16).and_then(|token| token.try_into().ok()).map_or(0, u64::from_le_bytes);
            let paired = self.pairs.get(&token).copied().unwrap_or_default();
            wire.on_send(now, from, to, packet, paired);
            if let Some(sent) = &mut self.sent {
                sent.extend(wire.data_sent(to, packet));
            }
        }
        Ok(taken)
    }
    fn receive(&mut self, _: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        let all = std::mem::take(&mut self.passed);
        all.iter().for_each(|(from, bytes)| deliver(*from, bytes));
        Ok(all.len())
    }
    fn wake_at(&self) -> Instant {
        match self.attached {
            _ if !self.passed.is_empty() => Instant(0),
            true => Instant::NEVER,
            false => self.rail.wake_at(),
        }
    }
    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        self.rail.path_bytes(peer)
    }
    fn listens(&self) -> bool {
        self.rail.listens()
    }
    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        self.rail.inquire(now, since, peer, question)
    }
    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        self.rail.link_down(now, peer)
    }
    fn too_long(&mut self) -> Option<SocketAddr> {
        self.rail.too_long()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
