//! Who is who: one endpoint is one peer, whatever it is called and from wherever it comes.
//!
//! A peer is its epoch, and what proves it is a token that only it and we know. An address is nothing but a place where it
//! may be found. So, when the same endpoint turns up at another address:
//!
//! - A HELLO that offers a token which we have from a peer is that peer's.
//! - A CHALLENGE with the epoch of a peer that we are connected with may come from it: before the handshake goes on, a
//!   PROBE of that connection is sent to the address. Only the peer itself can answer it; then the two entries are
//!   [merged](Core::merge). If it is not answered, another endpoint has the epoch by chance, and the handshake goes on
//!   after a while.
//! - Two endpoints that say HELLO to each other at the same time, each by an address that the other does not come from,
//!   have no token yet. Epoch and port tell that they are the same; both sides see it.
//! - A stranger that comes while a handshake of ours is unanswered, or while we know of a peer that we have not
//!   connected to, may be that very peer: it is kept waiting for a moment, and those peers are asked at once. A HELLO
//!   without a cookie asks nothing but who is there.
//!
//! The entry that keeps its number is the application's own; the other becomes a second name of it.

use super::Core;
use crate::PeerId;
use crate::context::SavedMerged;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::table::Tenant;
use crate::ticket::{Ticket, TicketStatus};
use rand::RngExt;
use std::net::SocketAddr;
use tsumugi_wire::handshake::{Challenge, Offer};
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};
use tsumugi_wire::{Header, Instant, Kind};

/// How long a stranger waits for those it may be to say that they are somebody else, ns.
const STRANGER_NS: u64 = 100 * MILLISECOND_NS;
/// How long nobody is asked again who has said who it is, ns.
const INTRODUCED_NS: u64 = SECOND_NS;
/// Peers that are asked at once because of a stranger.
const ASKED_MAX: usize = 64;
/// Strangers that may wait at once; more wait for nothing.
const STRANGERS_MAX: usize = 64;
/// Further addresses of a peer that are remembered.
const ALIASES_MAX: usize = 16;

/// What is not known yet of who is who, and what has been found out.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// Peers in a handshake that may be others which we know.
    suspects: Vec<u32>,
    /// Strangers that wait.
    strangers: Vec<Stranger>,
    /// Peers that we have asked who they are, and the number that the answer repeats.
    asked: Vec<(u32, u64)>,
    /// How the messages of entries that were merged are counted now.
    merged: Vec<Merged>,
    /// The numbers of entries that were merged, in the order in which they were.
    merges: Vec<Merge>,
    /// How many HELLOs were refused for want of room, and the last one's sender.
    pub(super) turned_away: Option<(u64, SocketAddr)>,
    /// That somebody speaks another version of the protocol was said once.
    pub(super) has_told_of_version: bool,
}

/// Two numbers turned out to be the same peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The number that it goes by no more.
    pub(crate) from: PeerId,
    /// The number that it goes by.
    pub(crate) into: PeerId,
}

/// A stranger who waits, and the HELLO that it will be let in with.
#[derive(Debug)]
struct Stranger {
    from: SocketAddr,
    hello: Header,
    offer: Offer,
    since: Instant,
}

/// Messages accepted for one entry that are counted with another's: each a peer and its connection's number.
#[derive(Debug)]
struct Merged {
    from: (PeerId, u32),
    into: (PeerId, u32),
    before: u64,
}

impl Identities {
    pub(super) fn save_merged(&self) -> Vec<SavedMerged> {
        let plain = |(id, connection): (PeerId, u32)| (id.0, connection);
        let save = |merged: &Merged| SavedMerged {
            from: plain(merged.from),
            into: plain(merged.into),
            before: merged.before,
        };
        self.merged.iter().map(save).collect()
    }

    pub(super) fn restore_merged(&mut self, saved: &[SavedMerged]) {
        let named = |(id, connection): (u32, u32)| (PeerId(id), connection);
        let restore = |saved: &SavedMerged| Merged {
            from: named(saved.from),
            into: named(saved.into),
            before: saved.before,
        };
        self.merged = saved.iter().map(restore).collect();
    }
}

impl Core {
    /// The peer that goes by this number: entries that turned out to be the same have several.
    #[must_use]
    pub fn canonical(&self, id: PeerId) -> PeerId {
        match self.peers.get(id.0 as usize).and_then(|peer| peer.identity.same_as) {
            Some(index) => PeerId(index),
            None => id,
        }
    }

    /// Which numbers turned out to be the same peer's, in the order in which that was found out. Whoever keeps things by
    /// peer follows it.
    pub(crate) fn merges(&self) -> &[Merge] {
        &self.identities.merges
    }

    /// The peer and the number now of a connection that began as number `connection` with peer `id`.
    pub(crate) fn connection_now(&self, id: PeerId, connection: u32) -> (PeerId, u32) {
        let (id, connection, _) = self.counted_now(id, connection, 0);
        (self.canonical(id), connection)
    }

    /// Whether the connection that began as number `connection` with peer `id` still lasts.
    pub(crate) fn is_connection(&self, id: PeerId, connection: u32) -> bool {
        let (id, connection) = self.connection_now(id, connection);
        self.connection(id) == connection
    }

    /// How a message is counted now that was accepted as number `number` of a connection with peer `id`.
    pub(crate) fn counted_now(&self, id: PeerId, connection: u32, mut number: u64) -> (PeerId, u32, u64) {
        let mut now = (id, connection);
        for merged in &self.identities.merged {
            if merged.from == now {
                (now, number) = (merged.into, number + merged.before);
            }
        }
        (now.0, now.1, number)
    }

    /// A message as it is counted now, after entries of its peer were merged.
    pub(crate) fn ticket_now(&self, ticket: Ticket) -> Ticket {
        let (peer, connection, number) =
            self.counted_now(ticket.peer(), ticket.connection(), ticket.number());
        Ticket::new(peer, connection, number)
    }

    /// What became of a message.
    pub(crate) fn status_of(&self, ticket: Ticket) -> TicketStatus {
        let (peer, connection, number) =
            self.counted_now(ticket.peer(), ticket.connection(), ticket.number());
        match self.connection(peer).wrapping_sub(connection) {
            0 if self.is_delivered(peer, number) => TicketStatus::Delivered,
            0 => TicketStatus::Pending,
            1 if self.was_delivered(peer, number) => TicketStatus::Delivered,
            _ => TicketStatus::Failed,
        }
    }

    /// Who says HELLO from an unknown address: a peer, if it offers the token that we have from it, or if we are in a
    /// handshake with it.
    pub(super) fn recognise(&self, epoch: u32, token: u64, from: SocketAddr) -> Option<u32> {
        let is_it = |peer: &Peer| {
            peer.connection.epoch == epoch
                && peer.identity.same_as.is_none()
                && match &peer.connection.phase {
                    Phase::Open | Phase::Leaving(_) => {
                        token != 0 && peer.connection.remote.is_some_and(|remote| remote.token == token)
                    }
                    Phase::Handshake(handshake) => {
                        token != 0 && handshake.cookie != 0 && peer.address.port() == from.port()
                    }
                    Phase::Strange => {
                        token != 0
                            && peer.identity.introduced_at.is_some()
                            && peer.address.port() == from.port()
                    }
                    Phase::Gone(_) => false,
                }
        };
        self.peers.iter().find(|peer| is_it(peer)).map(|peer| peer.number)
    }

    /// Remembers another address of a peer.
    pub(super) fn add_alias(&mut self, index: u32, address: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        if peer.identity.aliases.len() < ALIASES_MAX {
            peer.identity.aliases.push(address);
            self.peers.settle(address, index);
            self.egress.connect(address);
        }
    }

    /// A connection has ended: only where the application wants the peer to be will it be looked for.
    pub(super) fn forget_aliases(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        let own = peer.address;
        for alias in std::mem::take(&mut peer.identity.aliases) {
            self.egress.disconnect(alias);
            let is_named = |peer: &Peer| {
                peer.identity.named && peer.identity.same_as == Some(index) && peer.address == alias
            };
            if alias != own && !self.peers.iter().any(is_named) {
                self.peers.leave(alias, index);
            }
        }
    }

    /// Whether a stranger that has proved its address (by the cookie) has to wait: it may be a peer that we are in a
    /// handshake with or know of, and that answers in a moment.
    pub(super) fn is_kept_waiting(
        &mut self,
        now: Instant,
        from: SocketAddr,
        hello: &Header,
        offer: &Offer,
    ) -> bool {
        let peers = self.peers.iter();
        let may_be: Vec<u32> = peers
            .filter(|peer| {
                let is_unknown = match &peer.connection.phase {
                    Phase::Handshake(handshake) => handshake.cookie == 0,
                    Phase::Strange => {
                        let is_known = |at| now.since(at) < INTRODUCED_NS;
                        peer.identity.named
                            && peer.identity.same_as.is_none()
                            && !peer.identity.introduced_at.is_some_and(is_known)
                    }
                    _ => false,
                };
                is_unknown && peer.address.port() == from.port()
            })
            .map(|peer| peer.number)
            .take(ASKED_MAX)
            .collect();
        if may_be.is_empty() {
            return false;
        }
        let strangers = &mut self.identities.strangers;
        // A stranger that has not come back since has gone, or is known by now.
        strangers.retain(|stranger| now.since(stranger.since) < 10 * STRANGER_NS);
        let is_it = |stranger: &Stranger| stranger.from == from && stranger.hello.epoch == hello.epoch;
        match strangers.iter().position(is_it) {
            Some(at) if now.since(strangers[at].since) >= STRANGER_NS => {
                strangers.swap_remove(at);
                return false;
            }
            Some(at) => strangers[at].offer = *offer,
            None if strangers.len() >= STRANGERS_MAX => return false,
            None => strangers.push(Stranger { from, hello: *hello, offer: *offer, since: now }),
        }
        self.identities.asked.clear();
        for index in may_be {
            let peer = &mut self.peers[index as usize];
            if let Phase::Handshake(handshake) = &mut peer.connection.phase {
                handshake.due = handshake.due.min(now);
                self.schedule(index);
            } else {
                let (address, nonce) = (peer.address, self.incarnation.random.random());
                self.identities.asked.push((index, nonce));
                let question = self.question(address, nonce);
                self.reply(address, question);
            }
        }
        true
    }

    /// Somebody whom we have asked says who it is.
    pub(super) fn on_introduction(
        &mut self,
        now: Instant,
        index: u32,
        header: &Header,
        challenge: Challenge,
    ) {
        let asked = &mut self.identities.asked;
        let Some(at) = asked.iter().position(|asked| *asked == (index, challenge.nonce)) else { return };
        asked.swap_remove(at);
        let peer = &mut self.peers[index as usize];
        (peer.connection.epoch, peer.identity.introduced_at) = (header.epoch, Some(now));
        self.let_in(now, header.epoch);
        if self.identities.asked.is_empty() {
            // All have answered: whoever still waits is none of them.
            for Stranger { from, hello, offer, .. } in std::mem::take(&mut self.identities.strangers) {
                self.on_hello(now, from, &hello, &offer);
            }
        }
    }

    /// It is known now who has this epoch: who waited for that is let in.
    pub(super) fn let_in(&mut self, now: Instant, epoch: u32) {
        let strangers = &mut self.identities.strangers;
        if let Some(at) = strangers.iter().position(|stranger| stranger.hello.epoch == epoch) {
            let Stranger { from, hello, offer, .. } = strangers.swap_remove(at);
            self.on_hello(now, from, &hello, &offer);
        }
    }

    /// Whether an endpoint that has answered our HELLO with this epoch may be a peer that we know by another address.
    /// It is asked for a proof, and the handshake waits until that is clear.
    pub(super) fn is_suspect(&mut self, now: Instant, index: u32, from: SocketAddr, epoch: u32) -> bool {
        let connecting = &self.peers[index as usize];
        let half_ns = self.options.connect_timeout_ns / 2;
        if connecting.liveness.waiting_since().is_some_and(|since| now.since(since) > half_ns) {
            return false; // it would have proved it by now
        }
        let is_it = |peer: &&Peer| {
            peer.number != index
                && peer.connection.epoch == epoch
                && peer.address.port() == from.port()
                && match &peer.connection.phase {
                    Phase::Open => true,
                    Phase::Handshake(handshake) => handshake.cookie != 0,
                    _ => false,
                }
        };
        let Some(peer) = self.peers.iter().find(is_it) else { return false };
        // If both are in a handshake, one after the other.
        if matches!(peer.connection.phase, Phase::Open) {
            let other = peer.number;
            if !self.identities.suspects.contains(&index) {
                self.identities.suspects.push(index);
            }
            if let Some(packet) = self.flow_packet(other, Kind::Probe, 0) {
                self.reply(from, packet.to_vec());
            }
        }
        true
    }

    /// A peer has acknowledged something from this address, which only it can do: if we are in a handshake with an
    /// entry there, that is the peer.
    #[inline]
    pub(super) fn prove(&mut self, now: Instant, index: u32, from: SocketAddr) -> u32 {
        if self.identities.suspects.is_empty() { index } else { self.prove_suspects(now, index, from) }
    }

    #[cold]
    fn prove_suspects(&mut self, now: Instant, index: u32, from: SocketAddr) -> u32 {
        let Self { identities, peers, .. } = self;
        let is_connecting =
            |suspect: &u32| matches!(peers[*suspect as usize].connection.phase, Phase::Handshake(_));
        identities.suspects.retain(is_connecting);
        let is_there = |suspect: &&u32| **suspect != index && peers[**suspect as usize].address == from;
        let suspect = identities.suspects.iter().find(is_there).copied();
        match suspect {
            Some(suspect) if matches!(self.peers[index as usize].connection.phase, Phase::Open) => {
                self.merge(now, index, suspect)
            }
            _ => index,
        }
    }

    /// Two entries are one peer: one that we are connected with, and one that we were in a handshake with. Returns the
    /// number that the peer has from now on.
    ///
    /// It is the application's own, or of two such the first; but a connection for which messages were accepted under its
    /// number keeps that, or they would be counted anew.
    fn merge(&mut self, now: Instant, open: u32, connecting: u32) -> u32 {
        let [connected, waiting] = [open, connecting].map(|index| &self.peers[index as usize]);
        if connected.operations.collides(&waiting.operations) {
            return open; // named alike; when what is under way is done
        }
        let unused = connected.outbox.accepted() == 0 || waiting.outbox.accepted() == 0;
        let takes_over = unused && waiting.identity.named && (!connected.identity.named || connecting < open);
        let (keeps, goes) = if takes_over { (connecting, open) } else { (open, connecting) };
        let before = connected.outbox.accepted();
        let [old_open, old_connecting] =
            [open, connecting].map(|index| (PeerId(index), self.peers[index as usize].connection.number));
        self.close_flow(connecting);
        self.unlist(open);
        self.unlist(connecting);
        let waiting = &mut self.peers[connecting as usize];
        let (address, aliases) = (waiting.address, std::mem::take(&mut waiting.identity.aliases));
        let outbox = std::mem::take(&mut waiting.outbox);
        let (operations, awaited) = (std::mem::take(&mut waiting.operations), waiting.liveness.awaited());
        let (name, named) = (waiting.name.clone(), waiting.identity.named);
        let mut fresh = Peer::new(name, address, self.options.repeat);
        (fresh.number, fresh.identity.named) = (waiting.number, named);
        (fresh.connection.number, fresh.connection.epoch) =
            (waiting.connection.number, waiting.connection.epoch);
        *waiting = fresh;
        if takes_over {
            self.peers.swap(open, connecting);
            let [peer, other] = self.peers.two(keeps, goes);
            std::mem::swap(&mut peer.name, &mut other.name);
            std::mem::swap(&mut peer.identity.named, &mut other.identity.named);
            std::mem::swap(&mut peer.address, &mut other.address);
            // It has just answered there, and there the application wants it: the address of the connection so far
            // becomes a further one.
            peer.paths[0].address = peer.address;
            peer.paths[0].mtu = peer.fresh_mtu(peer.address);
            peer.identity.aliases.push(other.address);
            if let Some(local) = peer.connection.local {
                self.peers.set_flow(local.index, Some(Tenant::Peer(keeps)));
            }
        }
        self.peers.move_all(goes, keeps);
        self.peers.settle(address, keeps);
        let into = (PeerId(keeps), self.peers[keeps as usize].connection.number);
        let Self { identities, peers, .. } = self;
        // Tickets of a connection before the last have failed, however they are counted.
        let is_recent = |(id, connection): (PeerId, u32)| {
            peers[id.0 as usize].connection.number.wrapping_sub(connection) <= 1
        };
        identities.merged.retain(|merged| is_recent(merged.into));
        for (from, before) in [(old_connecting, before), (old_open, 0)] {
            if from != into || before > 0 {
                identities.merged.push(Merged { from, into, before });
            }
        }
        identities.merges.push(Merge { from: PeerId(goes), into: PeerId(keeps) });
        let ends = self.peers.count_end();
        let [peer, other] = self.peers.two(keeps, goes);
        peer.identity.named |= other.identity.named;
        (other.identity.same_as, other.identity.ended) = (Some(keeps), ends);
        peer.outbox.absorb(outbox, before);
        peer.liveness.expect(awaited);
        peer.identity.aliases.extend(aliases);
        if !takes_over {
            peer.identity.aliases.push(address);
        }
        peer.operations.absorb(operations);
        self.channels.renumber(goes, keeps);
        self.egress.connect(self.peers[keeps as usize].address);
        self.relist(now, keeps);
        keeps
    }

    /// Takes a peer off every list by number.
    fn unlist(&mut self, index: u32) {
        self.schedule.unlist(&mut self.peers[index as usize].listed, index);
    }

    /// Puts it back where it belongs.
    fn relist(&mut self, now: Instant, index: u32) {
        self.schedule.relist(self.peers[index as usize].listed, index);
        self.schedule(index);
        self.arm(now, index);
    }
}
