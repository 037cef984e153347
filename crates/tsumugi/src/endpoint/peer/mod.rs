//! One peer, as the endpoint knows it.

pub(crate) mod acks;
pub(crate) mod connection;
pub(crate) mod damaged;
pub(crate) mod holds;
pub(crate) mod liveness;
pub(crate) mod operations;
pub(crate) mod outbox;
pub(crate) mod paths;
pub(crate) mod receive;
mod repairs;
pub(crate) mod sizes;
pub(crate) mod table;

use crate::endpoint::schedule::Listed;
use crate::endpoint::sent::PacketKey;
use acks::Acks;
use connection::{Connection, Phase};
use holds::Holds;
use liveness::{Liveness, Stage};
use operations::Operations;
use outbox::Outbox;
use paths::Paths;
use receive::Receive;
use repairs::Repairs;
use sizes::Sizes;
use std::net::SocketAddr;
use tsumugi_proto::Sender;
use tsumugi_rail::Packet;
use tsumugi_wire::defect;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::{Instant, Psn};

/// Who it is.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// Further addresses that it has come from.
    pub(crate) aliases: Vec<SocketAddr>,
    /// The application has added it; it has not come by itself.
    pub(crate) named: bool,
    /// When it said its epoch because it was asked who it is, before any handshake with it.
    pub(crate) introduced_at: Option<Instant>,
    /// It turned out to be this one, by another name.
    pub(crate) same_as: Option<u32>,
    /// When its last connection ended, counted in such ends.
    pub(crate) ended: u64,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// By which the application knows it.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) identity: Identity,
    pub(crate) listed: Listed,
    pub(crate) connection: Connection,
    pub(crate) paths: Paths,
    pub(crate) sizes: Sizes,
    pub(crate) outbox: Outbox,
    pub(crate) sender: Sender<PacketKey>,
    pub(crate) repairs: Repairs,
    pub(crate) receive: Receive,
    pub(crate) acks: Acks,
    pub(crate) operations: Operations,
    pub(crate) liveness: Liveness,
    pub(crate) holds: Holds,
    /// Bytes of packets that were sent, and of all traffic when it was shown last.
    pub(crate) bytes_sent: u64,
    pub(crate) traffic_shown: u64,
}

impl Peer {
    pub(crate) fn new(name: String, address: SocketAddr, repeat: Repeat) -> Peer {
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
            operations: Operations::default(),
            liveness: Liveness::default(),
            holds: Holds::default(),
            bytes_sent: 0,
            traffic_shown: 0,
        }
    }

    /// Counts what was sent to it over a path. Returns the bytes.
    pub(crate) fn count_sent(&mut self, path: u8, packets: &[Packet<'_>]) -> u64 {
        let bytes = packets.iter().map(|packet| packet.bytes() as u64).sum();
        self.paths[usize::from(path)].bytes_sent += bytes;
        self.bytes_sent += bytes;
        bytes
    }

    /// The connection is over. What the peer is stays, and what the next connection must know of this one. Returns the rest.
    pub(crate) fn end(&mut self, ended: u64, repeat: Repeat) -> Peer {
        let mut fresh = Peer::new(std::mem::take(&mut self.name), self.address, repeat);
        let before = &self.connection;
        (fresh.number, fresh.listed) = (self.number, self.listed);
        (fresh.identity.named, fresh.identity.ended) = (self.identity.named, ended);
        fresh.connection = Connection {
            number: before.number.wrapping_add(1),
            epoch: before.epoch,
            message_bytes_max: before.message_bytes_max,
            former_token: before
                .remote
                .filter(|_| self.has_spoken())
                .map_or(before.former_token, |remote| remote.token),
            ..Connection::default()
        };
        fresh.outbox = Outbox::after(&self.outbox);
        fresh.receive.unrepaired = self.receive.unrepaired + self.receive.damaged.len() as u64;
        std::mem::replace(self, fresh)
    }

    /// Whether its place may be given to another: it came by itself, has left, and nothing refers to it any more.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.is_idle() && !self.identity.named && !self.listed.is_anywhere()
    }

    /// Whether there is no connection with it, and none is wanted.
    pub(crate) fn is_idle(&self) -> bool {
        match self.connection.phase {
            Phase::Gone(_) => true,
            Phase::Strange => self.outbox.is_empty(),
            Phase::Handshake(_) | Phase::Open | Phase::Leaving(_) => false,
        }
    }

    /// Where the connection stands, if its silence matters.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match self.connection.phase {
            Phase::Handshake(_) => Some(Stage::Handshake),
            Phase::Open => Some(Stage::Open),
            Phase::Leaving(_) => Some(Stage::Leaving),
            Phase::Strange | Phase::Gone(_) => None,
        }
    }

    /// Whether anything is under way in either direction that the peer's death would leave unfinished.
    pub(crate) fn is_busy(&self) -> bool {
        match self.connection.phase {
            Phase::Open => {
                self.sender.outstanding() > 0
                    || !self.outbox.is_empty()
                    || self.operations.pending() > 0
                    || !self.receive.assemblies.is_empty()
                    || self.receive.reorder.held() > 0
                    || !self.receive.damaged.is_empty()
                    || self.liveness.awaited() > 0
            }
            Phase::Handshake(_) | Phase::Leaving(_) => true,
            Phase::Strange | Phase::Gone(_) => false,
        }
    }

    /// Whether anything was sent to it that comes in an order: a packet with a number, or BYE.
    fn has_spoken(&self) -> bool {
        self.sender.next() > Psn(0) || matches!(self.connection.phase, Phase::Leaving(_))
    }

    /// Whether it is known to have our flow open: it has sent in it, or granted credit for it.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.sender.limit() > Psn(0) || self.acks.highest() > Psn(0)
    }

    /// Whether it has sent something in the flow that we offer in our HELLO, though its WELCOME has not arrived.
    pub(crate) fn is_used_unheard(&self) -> bool {
        matches!(self.connection.phase, Phase::Handshake(_))
            && self.acks.highest() > Psn(0)
            && !defect!(FormerFlowTaken)
    }

    /// Whether its death would be news: something is under way, or the application may be waiting for it to send.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_busy() || self.liveness.is_watched() && matches!(self.connection.phase, Phase::Open)
    }
}
