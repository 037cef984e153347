//! One peer, as the endpoint knows it.

use super::liveness::Doubt;
use super::long_message::PieceHead;
use super::paths::PeerPath;
use super::place::Store;
use super::remote::{BulkTransfer, Pending};
use super::repair::Damaged;
use super::sizes::Stuck;
use crate::error::Reason;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use tsumugi_proto::Sender;
use tsumugi_proto::handshake::Handshake;
use tsumugi_proto::pieces::Pieces;
use tsumugi_proto::reorder::Reorder;
use tsumugi_proto::unchecked::Unchecked;
use tsumugi_wire::defect;
use tsumugi_wire::frame::Fragment;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::rails::RailAddress;
use tsumugi_wire::{Instant, Kind, Psn};

/// Key of a packet in [`super::state::State::sent_packets`].
pub(super) type PacketKey = usize;

/// Where the connection stands.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Its address is known; nobody has said anything.
    Strange,
    /// We are saying HELLO.
    Handshake(Handshake),
    /// Packets flow.
    Open,
    /// We have said BYE, last at this time.
    Leaving(Instant),
    /// It is gone. Stays so until it connects anew, or the application resets the peer.
    Gone(Reason),
}

/// What the peer offered: how to address it, what it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// Index of our flow in its table.
    pub(super) flow: u32,
    /// Token of our flow.
    pub(super) token: u64,
    /// Longest packet body that both sides take, bytes, and whether it was agreed on over IPv6.
    pub(super) body_bytes: usize,
    pub(super) over_ipv6: bool,
    /// Its kernel tells whether its process is there.
    pub(super) listens: bool,
}

/// Our entry in the flow table for what the peer sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) index: u32,
    pub(super) token: u64,
}

/// Something that waits to become packets.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A packet's body, complete or still being filled with small messages.
    Packet {
        body: Vec<u8>,
        /// Messages of the flow up to and including the last in this body.
        messages: u64,
    },
    /// A message that is cut into fragments as room appears.
    LongMessage {
        /// Key in [`super::state::State::long_messages`].
        key: usize,
        /// The fragment to be cut next.
        next: Fragment,
        /// Messages of the flow up to and including this one.
        messages: u64,
    },
    /// Data from or for remote memory that leave packet by packet.
    BulkTransfer {
        transfer: BulkTransfer,
        /// Messages of the flow up to and including this one.
        messages: u64,
    },
    /// The list of our NICs, as it will be when its turn comes. It is none of the messages that were accepted.
    Rails,
}

impl Outgoing {
    /// Length of the long message; 0 for what every peer takes.
    pub(super) fn message_bytes(&self) -> u64 {
        match self {
            Outgoing::Packet { .. } | Outgoing::BulkTransfer { .. } | Outgoing::Rails => 0,
            Outgoing::LongMessage { next, .. } => next.total,
        }
    }
}

/// What a packet carries.
#[derive(Debug)]
pub(super) enum Body {
    /// Frames, one behind the other.
    Packet(Vec<u8>),
    /// A fragment: what it begins with here, its data in a long message.
    Piece { head: PieceHead, key: usize, at: usize, bytes: usize },
}

/// A packet that was sent, kept until the peer has it and has compared it.
#[derive(Debug)]
pub(super) struct SentPacket {
    pub(super) body: Body,
    pub(super) crc: u32,
}

/// A packet whose turn has not come.
#[derive(Debug)]
pub(super) enum Held {
    /// A body with frames, copied out of the receive queue.
    Body(Vec<u8>),
    /// A fragment that has been put in its place already.
    Placed { fragment: Fragment, bytes: usize },
}

/// A long message that is arriving.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) message: u32,
    pub(super) channel: u16,
    pub(super) total: u64,
    /// How far it has arrived in order of PSNs.
    pub(super) in_order: u64,
    /// Length of its fragments, all but the last, as far as is known; 0 when nothing is, bytes.
    pub(super) step: u64,
    /// Where its bytes go.
    pub(super) store: Store,
    /// Its head has had its turn: the channel's owner was asked where it is to go.
    pub(super) placed: bool,
}

/// Who it is.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// Further addresses that it has come from.
    pub(super) aliases: Vec<SocketAddr>,
    /// The application has added it; it has not come by itself.
    pub(super) named: bool,
    /// When it said its epoch because it was asked who it is, before any handshake with it.
    pub(super) introduced_at: Option<Instant>,
    /// It turned out to be this one, by another name.
    pub(super) same_as: Option<u32>,
    /// When its last connection ended, counted in such ends.
    pub(super) ended: u64,
}

/// The lists of the endpoint that it is on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    /// It has something to send.
    pub(super) scheduled: bool,
    /// It has timers running.
    pub(super) timed: bool,
    /// Credit is to be granted ahead.
    pub(super) to_grant: bool,
    /// Packets of it are held.
    pub(super) holds: bool,
}

/// Where the connection stands, and what both sides have agreed on.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    /// Number of the present connection with it: a ticket of an earlier one has another.
    pub(super) number: u32,
    /// Epoch of the incarnation that we talk to; 0 while unknown.
    pub(super) epoch: u32,
    pub(super) remote: Option<Address>,
    pub(super) local: Option<Local>,
    /// Longest message that it takes, bytes, as it said last; everything, before it has said so.
    pub(super) message_bytes_max: u64,
    /// It cannot answer long packets where they arrive, and wants to be asked by PROBE.
    pub(super) ask_by_probe: bool,
    /// Nonce of the HELLO that was accepted, and what its cookie was bound to.
    pub(super) welcomed: Option<(u64, u32)>,
    /// How often WELCOME came too late for the peer.
    pub(super) withdrawn: u32,
    /// Token of what was sent to it in the last connection that is over; 0: there was none.
    pub(super) former_token: u64,
}

/// The addresses that its packets go to.
#[derive(Debug)]
pub(super) struct Paths {
    /// The number is the path's.
    pub(super) list: Vec<PeerPath>,
    /// The NICs that it has told of.
    pub(super) told: Vec<RailAddress>,
    /// It has told of them since the paths to it were found.
    pub(super) has_news: bool,
}

/// What waits to be sent to it, and how far what was accepted for it has got.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) waiting: VecDeque<Outgoing>,
    /// Bytes of messages in it.
    pub(super) bytes: u64,
    pub(super) next_fragmented: u32,
    /// Replies to its long reads in it.
    pub(super) replies: usize,
    /// Somebody waits for something in it to arrive; and somebody may ask whether something in it has.
    pub(super) wants_ack: bool,
    pub(super) may_ask: bool,
    /// Messages accepted, ever.
    pub(super) accepted: u64,
    /// Messages acknowledged by it in this connection.
    pub(super) delivered: u64,
    /// The same of the connection before this one: what the peer had acknowledged does not fail with that.
    pub(super) delivered_before: u64,
    /// PSN of a packet, and messages complete when everything up to it is acknowledged.
    pub(super) marks: VecDeque<(Psn, u64)>,
}

/// Packets that it has acknowledged and may still ask for.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub(super) unchecked: Unchecked<PacketKey>,
    /// Packets that it has asked for because they were damaged.
    pub(super) wanted: Vec<Psn>,
    /// How many packets were sent for that reason, ever.
    pub(super) sent: u32,
}

/// How long its packets may be.
#[derive(Debug)]
pub(super) struct Sizes {
    /// Longest body of a packet that is cut now, bytes: what every path in use carries.
    pub(super) cut_bytes: usize,
    /// When the length of datagrams is probed on some path.
    pub(super) due: Instant,
    /// That will be soon, whether or not anything else is sent.
    pub(super) searches: bool,
    /// When a packet was sent whose loss has been looked into.
    pub(super) asked_about: Instant,
    /// When it last answered a probe of length, which only its process does.
    pub(super) acked_at: Instant,
    /// The first packet outstanding, of which not even pieces arrive, since then.
    pub(super) stuck: Option<Stuck>,
}

/// Packets that arrive from it, until they have their turn and are whole.
#[derive(Debug, Default)]
pub(super) struct Receive {
    pub(super) reorder: Reorder<Held>,
    /// Packets that arrive in pieces.
    pub(super) pieces: Pieces,
    /// Packets that have arrived damaged, and are wanted again.
    pub(super) damaged: Damaged,
    /// The same of connections that have ended: nobody was left to send them again.
    pub(super) unrepaired: u64,
    pub(super) assemblies: Vec<Assembly>,
}

/// What is to be acknowledged, and when.
#[derive(Debug)]
pub(super) struct Acks {
    /// Where its last DATA came from, as far as is known, and the answer goes.
    pub(super) to: SocketAddr,
    /// Highest PSN deposited, plus one.
    pub(super) highest: Psn,
    pub(super) deposited_at: Instant,
    /// Packets deposited since the last answer.
    pub(super) unanswered: u32,
    /// When an ACK is due though nobody asked for one.
    pub(super) due: Instant,
    /// An answer that must go out now, and the PSN that it is about.
    pub(super) answer: Option<(Kind, Psn)>,
    /// Credit was withheld for want of memory.
    pub(super) credit_withheld: bool,
    /// What the XDP program noted last of its acknowledgements: PSN and limit.
    pub(super) noted: (u64, u64),
}

/// Operations on memory, ours on its and its on ours.
#[derive(Debug, Default)]
pub(super) struct Rma {
    /// Operations on its memory that wait for replies, by number.
    pub(super) pending: HashMap<u64, Pending>,
    /// Its long write that was refused last.
    pub(super) refused: u64,
}

/// Signs of life.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// When something last came from it.
    pub(super) heard_at: Instant,
    /// Things that somebody waits for and only it can bring, though everything sent is acknowledged.
    pub(super) awaited: u32,
    /// The application receives, and nothing else is outstanding with it: see [`super::State::watch`].
    pub(super) is_watched: bool,
    /// Since when something is outstanding with it, or it is watched.
    pub(super) waiting_since: Option<Instant>,
    /// When it was last asked for a sign of life, and how often since something came from it.
    pub(super) asked_at: Instant,
    pub(super) asks: u32,
    /// What kernels say of it.
    pub(super) doubt: Doubt,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// By which the application knows it.
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) identity: Identity,
    pub(super) listed: Listed,
    pub(super) connection: Connection,
    pub(super) paths: Paths,
    pub(super) sizes: Sizes,
    pub(super) outbox: Outbox,
    pub(super) sender: Sender<PacketKey>,
    pub(super) repairs: Repairs,
    pub(super) receive: Receive,
    pub(super) acks: Acks,
    pub(super) rma: Rma,
    pub(super) liveness: Liveness,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            phase: Phase::Strange,
            number: 0,
            epoch: 0,
            remote: None,
            local: None,
            message_bytes_max: u64::MAX,
            ask_by_probe: false,
            welcomed: None,
            withdrawn: 0,
            former_token: 0,
        }
    }
}

impl Paths {
    fn new(address: SocketAddr) -> Paths {
        Paths { list: vec![PeerPath::new(address)], told: Vec::new(), has_news: false }
    }
}

impl Deref for Paths {
    type Target = Vec<PeerPath>;

    fn deref(&self) -> &Vec<PeerPath> {
        &self.list
    }
}

impl DerefMut for Paths {
    fn deref_mut(&mut self) -> &mut Vec<PeerPath> {
        &mut self.list
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            cut_bytes: 0,
            due: Instant::NEVER,
            searches: false,
            asked_about: Instant(0),
            acked_at: Instant(0),
            stuck: None,
        }
    }
}

impl Acks {
    fn new(to: SocketAddr) -> Acks {
        Acks {
            to,
            highest: Psn(0),
            deposited_at: Instant(0),
            unanswered: 0,
            due: Instant::NEVER,
            answer: None,
            credit_withheld: false,
            noted: (0, 0),
        }
    }
}

impl Peer {
    pub(super) fn new(name: String, address: SocketAddr, repeat: Repeat) -> Peer {
        Peer {
            number: 0,
            name,
            address,
            identity: Identity::default(),
            listed: Listed::default(),
            connection: Connection::default(),
            paths: Paths::new(address),
            sizes: Sizes::default(),
            outbox: Outbox::default(),
            sender: Sender::new(repeat, 1, 0),
            repairs: Repairs::default(),
            receive: Receive::default(),
            acks: Acks::new(address),
            rma: Rma::default(),
            liveness: Liveness::default(),
        }
    }

    /// The connection is over. What the peer is stays, and what the next connection must know of this one. Returns the rest.
    pub(super) fn end(&mut self, ended: u64, repeat: Repeat) -> Peer {
        let mut fresh = Peer::new(std::mem::take(&mut self.name), self.address, repeat);
        let before = &self.connection;
        (fresh.number, fresh.listed) = (self.number, self.listed);
        (fresh.identity.named, fresh.identity.ended) = (self.identity.named, ended);
        fresh.connection = Connection {
            number: before.number.wrapping_add(1),
            epoch: before.epoch,
            message_bytes_max: before.message_bytes_max,
            former_token: before.remote.map_or(before.former_token, |remote| remote.token),
            ..Connection::default()
        };
        fresh.outbox.delivered_before = self.outbox.delivered;
        fresh.receive.unrepaired = self.receive.unrepaired + self.receive.damaged.len() as u64;
        std::mem::replace(self, fresh)
    }

    /// Whether its place may be given to another: it came by itself, has left, and nothing refers to it any more.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_idle()
            && !self.identity.named
            && !(self.listed.scheduled || self.listed.timed || self.listed.to_grant || self.listed.holds)
    }

    /// Whether there is no connection with it, and none is wanted.
    pub(super) fn is_idle(&self) -> bool {
        match self.connection.phase {
            Phase::Gone(_) => true,
            Phase::Strange => self.outbox.waiting.is_empty(),
            Phase::Handshake(_) | Phase::Open | Phase::Leaving(_) => false,
        }
    }

    /// Whether anything is under way in either direction that the peer's death would leave unfinished.
    pub(super) fn is_busy(&self) -> bool {
        match self.connection.phase {
            Phase::Open => {
                self.sender.outstanding() > 0
                    || !self.outbox.waiting.is_empty()
                    || !self.rma.pending.is_empty()
                    || !self.receive.assemblies.is_empty()
                    || self.receive.reorder.held() > 0
                    || !self.receive.damaged.is_empty()
                    || self.liveness.awaited > 0
            }
            Phase::Handshake(_) | Phase::Leaving(_) => true,
            Phase::Strange | Phase::Gone(_) => false,
        }
    }

    /// Whether it is known to have our flow open: it has sent in it, or granted credit for it.
    pub(super) fn is_confirmed(&self) -> bool {
        self.sender.limit() > Psn(0) || self.acks.highest > Psn(0)
    }

    /// Whether it has sent something in the flow that we offer in our HELLO, though its WELCOME has not arrived.
    pub(super) fn is_used_unheard(&self) -> bool {
        matches!(self.connection.phase, Phase::Handshake(_))
            && self.acks.highest > Psn(0)
            && !defect!(FormerFlowTaken)
    }

    /// Whether its death would be news: something is under way, or the application may be waiting for it to send.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_busy() || self.liveness.is_watched && matches!(self.connection.phase, Phase::Open)
    }

    /// It gave a sign of life.
    pub(super) fn hear(&mut self, now: Instant) {
        self.liveness.heard_at = now;
        self.liveness.asks = 0;
        self.liveness.doubt.asked_at = Instant(0);
        self.liveness.doubt.ask_at = Instant(0);
        self.liveness.doubt.version = None;
    }

    /// Nothing is outstanding with it.
    pub(super) fn wait_no_more(&mut self) {
        self.liveness.waiting_since = None;
        self.liveness.asks = 0;
    }

    /// Messages accepted and not acknowledged.
    pub(super) fn undelivered(&self) -> u64 {
        self.outbox.accepted - self.outbox.delivered
    }

    /// Demands that an answer of `kind` goes out now; the more urgent of two wins.
    pub(super) fn demand(&mut self, kind: Kind, psn: Psn) {
        let urgency = |kind| match kind {
            Kind::Xoff => 3,
            Kind::Xon => 2,
            Kind::Nak => 1,
            _ => 0,
        };
        if self.acks.answer.is_none_or(|(have, _)| urgency(kind) >= urgency(have)) {
            self.acks.answer = Some((kind, psn));
        }
    }
}
