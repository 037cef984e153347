//! Who is who: one endpoint is one peer, whatever it is called and from wherever it comes.
//!
//! A peer is its epoch, and what proves it is a token that only it and we know. An address is nothing but a place where it
//! may be found. So, when the same endpoint turns up at another address:
//!
//! - A HELLO that offers a token which we have from a peer is that peer's.
//! - A CHALLENGE with the epoch of a peer that we are connected with may come from it: before we greet there, a PROBE of
//!   that connection is sent to the address. Only the peer itself can answer it; then the two entries are [merged](
//!   State::merge). Where it is not answered, somebody else has the epoch by chance, and is greeted after a while.
//! - Two endpoints that greet each other at the same time, each by an address that the other does not come from, have no
//!   token yet. Of them the epoch tells, and the port; both sides see that they are greeting whoever greets them.
//! - A stranger who comes while we greet somebody who has not answered yet, or know of somebody whom we have not greeted,
//!   may be the very same: it is kept waiting for a moment, and they are asked at once. A HELLO without a cookie asks
//!   nothing but who is there.
//!
//! The entry that keeps its number is the application's own; the other becomes a second name of it.

use super::deliver::Delivery;
use super::peer::{Outgoing, Peer, Phase};
use super::state::State;
use crate::Node;
use crate::context::SavedMerged;
use rand::Rng;
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
    /// Peers that we greet and that may be others which we know.
    suspects: Vec<u32>,
    /// Strangers that wait.
    strangers: Vec<Stranger>,
    /// Peers that we have asked who they are, and the number that the answer repeats.
    asked: Vec<(u32, u64)>,
    /// How the messages of entries that were merged are counted now.
    merged: Vec<Merged>,
    /// The numbers of entries that were merged, in the order in which they were.
    merges: Vec<Merge>,
}

/// Two numbers turned out to be the same peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The number that it goes by no more.
    pub(crate) from: Node,
    /// The number that it goes by.
    pub(crate) into: Node,
}

/// A stranger who waits, and the HELLO that it will be let in with.
#[derive(Debug)]
struct Stranger {
    from: SocketAddr,
    hello: Header,
    offer: Offer,
    since: Instant,
}

/// Messages accepted for one entry that are counted with another's: each a node and which connection with it.
#[derive(Debug)]
struct Merged {
    from: (Node, u32),
    into: (Node, u32),
    before: u64,
}

impl Identities {
    pub(super) fn save_merged(&self) -> Vec<SavedMerged> {
        let plain = |(node, connection): (Node, u32)| (node.0, connection);
        let save = |merged: &Merged| SavedMerged {
            from: plain(merged.from),
            into: plain(merged.into),
            before: merged.before,
        };
        self.merged.iter().map(save).collect()
    }

    pub(super) fn restore_merged(&mut self, saved: &[SavedMerged]) {
        let named = |(node, connection): (u32, u32)| (Node(node), connection);
        let restore = |saved: &SavedMerged| Merged {
            from: named(saved.from),
            into: named(saved.into),
            before: saved.before,
        };
        self.merged = saved.iter().map(restore).collect();
    }
}

impl State {
    /// The peer that goes by this number: entries that turned out to be the same have several.
    #[must_use]
    pub fn the(&self, node: Node) -> Node {
        match self.peers.get(node.0 as usize).and_then(|peer| peer.same_as) {
            Some(index) => Node(index),
            None => node,
        }
    }

    /// Which numbers turned out to be the same peer's, in the order in which that was found out. Whoever keeps things by
    /// peer follows it.
    pub(crate) fn merges(&self) -> &[Merge] {
        &self.identities.merges
    }

    /// Which connection with which peer that is now which began as one with `node`.
    pub(crate) fn connection_now(&self, node: Node, connection: u32) -> (Node, u32) {
        let (node, connection, _) = self.counted_now(node, connection, 0);
        (self.the(node), connection)
    }

    /// Whether that which began as a connection with `node` still lasts.
    pub(crate) fn is_connection(&self, node: Node, connection: u32) -> bool {
        let (node, connection) = self.connection_now(node, connection);
        self.acquaintance(node) == connection
    }

    /// How a message is counted now that was accepted as number `number` of a connection with `node`.
    pub(crate) fn counted_now(&self, node: Node, connection: u32, mut number: u64) -> (Node, u32, u64) {
        let mut now = (node, connection);
        for merged in &self.identities.merged {
            if merged.from == now {
                (now, number) = (merged.into, number + merged.before);
            }
        }
        (now.0, now.1, number)
    }

    /// Who says HELLO from an address that nobody is known by: a peer, if it offers the token that we have from it, or if
    /// we are greeting it at this moment.
    pub(super) fn recognise(&self, epoch: u32, token: u64, from: SocketAddr) -> Option<u32> {
        let is_it = |peer: &Peer| {
            peer.epoch == epoch
                && peer.same_as.is_none()
                && match &peer.phase {
                    Phase::Open | Phase::Leaving(_) => {
                        token != 0 && peer.remote.is_some_and(|remote| remote.token == token)
                    }
                    Phase::Greeting(greeting) => {
                        token != 0 && greeting.cookie != 0 && peer.address.port() == from.port()
                    }
                    Phase::Strange => {
                        token != 0 && peer.introduced_at.is_some() && peer.address.port() == from.port()
                    }
                    Phase::Gone(_) => false,
                }
        };
        self.peers.iter().find(|peer| is_it(peer)).map(|peer| peer.number)
    }

    /// Remembers another address of a peer.
    pub(super) fn add_alias(&mut self, index: u32, address: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        if peer.aliases.len() < ALIASES_MAX {
            peer.aliases.push(address);
            self.by_address.insert(address, index);
            self.met.push(address);
        }
    }

    /// A connection has ended: only where the application wants the peer to be will it be looked for.
    pub(super) fn forget_aliases(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        let own = peer.address;
        for alias in std::mem::take(&mut peer.aliases) {
            self.parted.push(alias);
            let is_named = |peer: &Peer| peer.named && peer.same_as == Some(index) && peer.address == alias;
            if alias != own && !self.peers.iter().any(is_named) && self.by_address.get(&alias) == Some(&index)
            {
                self.by_address.remove(&alias);
            }
        }
    }

    /// Whether a stranger, who has proved that it hears at its address, has to wait: it may be somebody whom we are greeting
    /// or know of, who answers in a moment.
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
                let is_unknown = match &peer.phase {
                    Phase::Greeting(greeting) => greeting.cookie == 0,
                    Phase::Strange => {
                        let is_known = |at| now.since(at) < INTRODUCED_NS;
                        peer.named && peer.same_as.is_none() && !peer.introduced_at.is_some_and(is_known)
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
        // Who has not come back since has gone, or is known by now.
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
            if let Phase::Greeting(greeting) = &mut peer.phase {
                greeting.due = greeting.due.min(now);
                self.touch(index);
            } else {
                let (address, nonce) = (peer.address, self.random.random());
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
        (peer.epoch, peer.introduced_at) = (header.epoch, Some(now));
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

    /// Whether somebody who has answered our HELLO with this epoch may be a peer that we know by another address. It is
    /// asked for a proof, and not greeted before it is clear.
    pub(super) fn is_suspect(&mut self, now: Instant, index: u32, from: SocketAddr, epoch: u32) -> bool {
        let greeted = &self.peers[index as usize];
        let half_ns = self.options.connect_timeout_ns / 2;
        if greeted.waiting_since.is_some_and(|since| now.since(since) > half_ns) {
            return false; // it would have proved it by now
        }
        let is_it = |peer: &&Peer| {
            peer.number != index
                && peer.epoch == epoch
                && peer.address.port() == from.port()
                && match &peer.phase {
                    Phase::Open => true,
                    Phase::Greeting(greeting) => greeting.cookie != 0,
                    _ => false,
                }
        };
        let Some(peer) = self.peers.iter().find(is_it) else { return false };
        // Where both are being greeted, one after the other.
        if matches!(peer.phase, Phase::Open) {
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

    /// A peer has acknowledged something from this address, which only it can do: if we are greeting somebody there, that is
    /// the peer.
    #[inline]
    pub(super) fn prove(&mut self, now: Instant, index: u32, from: SocketAddr) -> u32 {
        if self.identities.suspects.is_empty() { index } else { self.prove_suspects(now, index, from) }
    }

    #[cold]
    fn prove_suspects(&mut self, now: Instant, index: u32, from: SocketAddr) -> u32 {
        let Self { identities, peers, .. } = self;
        let greets = |suspect: &u32| matches!(peers[*suspect as usize].phase, Phase::Greeting(_));
        identities.suspects.retain(greets);
        let is_there = |suspect: &&u32| **suspect != index && peers[**suspect as usize].address == from;
        let suspect = identities.suspects.iter().find(is_there).copied();
        match suspect {
            Some(suspect) if matches!(self.peers[index as usize].phase, Phase::Open) => {
                self.merge(now, index, suspect)
            }
            _ => index,
        }
    }

    /// Two entries are one peer: one that we are connected with, and one that we were greeting. Returns the number that the
    /// peer has from now on.
    ///
    /// It is the application's own, or of two such the first; but a connection for which messages were accepted under its
    /// number keeps that, or they would be counted anew.
    fn merge(&mut self, now: Instant, open: u32, greeted: u32) -> u32 {
        let [connected, waiting] = [open, greeted].map(|index| &self.peers[index as usize]);
        if waiting.pending.keys().any(|operation| connected.pending.contains_key(operation)) {
            return open; // named alike; when what is under way is done
        }
        let unused = connected.accepted == 0 || waiting.accepted == 0;
        let takes_over = unused && waiting.named && (!connected.named || greeted < open);
        let (keeps, goes) = if takes_over { (greeted, open) } else { (open, greeted) };
        let before = connected.accepted;
        let [old_open, old_greeted] =
            [open, greeted].map(|index| (Node(index), self.peers[index as usize].acquaintance));
        self.close_flow(greeted);
        self.unlist(open);
        self.unlist(greeted);
        let waiting = &mut self.peers[greeted as usize];
        let (address, aliases) = (waiting.address, std::mem::take(&mut waiting.aliases));
        let (accepted, outbox) = (waiting.accepted, std::mem::take(&mut waiting.outbox));
        let outbox_bytes = std::mem::take(&mut waiting.outbox_bytes);
        let (pending, awaited) = (std::mem::take(&mut waiting.pending), waiting.awaited);
        let (name, named) = (waiting.name.clone(), waiting.named);
        let fresh = Peer { named, ..Peer::new(name, address, self.options.repeat) };
        let (acquaintance, epoch, number) = (waiting.acquaintance, waiting.epoch, waiting.number);
        *waiting = Peer { acquaintance, epoch, number, ..fresh };
        if takes_over {
            self.peers.swap(open, greeted);
            let [peer, other] = self.peers.two(keeps, goes);
            std::mem::swap(&mut peer.name, &mut other.name);
            std::mem::swap(&mut peer.named, &mut other.named);
            std::mem::swap(&mut peer.address, &mut other.address);
            // It has just answered there, and there the application wants it: how we met is a further address.
            peer.ways[0].address = peer.address;
            peer.ways[0].mtu = peer.fresh_mtu(peer.address);
            peer.aliases.push(other.address);
            if let Some(local) = peer.local {
                self.flows[local.index as usize] = Some(keeps);
            }
        }
        for owner in self.by_address.values_mut().filter(|owner| **owner == goes) {
            *owner = keeps;
        }
        self.by_address.insert(address, keeps);
        let into = (Node(keeps), self.peers[keeps as usize].acquaintance);
        let Self { identities, peers, .. } = self;
        // Tickets of a connection before the last have failed, however they are counted.
        let is_recent = |(node, connection): (Node, u32)| {
            peers[node.0 as usize].acquaintance.wrapping_sub(connection) <= 1
        };
        identities.merged.retain(|merged| is_recent(merged.into));
        for (from, before) in [(old_greeted, before), (old_open, 0)] {
            if from != into || before > 0 {
                identities.merged.push(Merged { from, into, before });
            }
        }
        identities.merges.push(Merge { from: Node(goes), into: Node(keeps) });
        self.ends += 1;
        let ends = self.ends;
        let [peer, other] = self.peers.two(keeps, goes);
        peer.named |= other.named;
        (other.same_as, other.ended) = (Some(keeps), ends);
        peer.accepted += accepted;
        peer.outbox_bytes += outbox_bytes;
        peer.awaited += awaited;
        peer.aliases.extend(aliases);
        if !takes_over {
            peer.aliases.push(address);
        }
        peer.pending.extend(pending);
        for mut outgoing in outbox {
            match &mut outgoing {
                Outgoing::Packet { messages, .. } | Outgoing::Bulk { messages, .. } => *messages += before,
                Outgoing::Long { next, messages, .. } => {
                    *messages += before;
                    next.message = peer.next_fragmented;
                    peer.next_fragmented = peer.next_fragmented.wrapping_add(1);
                }
                Outgoing::Rails => continue,
            }
            peer.outbox.push_back(outgoing);
        }
        for delivery in self.channels.values_mut().flat_map(|inbox| &mut inbox.queue) {
            if let Delivery::Message { source, .. } = delivery
                && *source == goes
            {
                *source = keeps;
            }
        }
        self.met.push(self.peers[keeps as usize].address);
        self.relist(now, keeps);
        keeps
    }

    /// Takes a peer off every list by number.
    fn unlist(&mut self, index: u32) {
        self.dirty.retain(|listed| *listed != index);
        self.doubted.retain(|listed| *listed != index);
        for list in [&mut self.timed, &mut self.fed, &mut self.holders] {
            list.retain(|listed| *listed != index);
        }
        let peer = &mut self.peers[index as usize];
        (peer.dirty, peer.timed) = (false, false);
    }

    /// Puts it back where it belongs.
    fn relist(&mut self, now: Instant, index: u32) {
        let peer = &self.peers[index as usize];
        if peer.fed {
            self.fed.push(index);
        }
        if peer.holds {
            self.holders.push(index);
        }
        self.touch(index);
        self.arm(now, index);
    }
}
