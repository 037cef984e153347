//! Everything an endpoint knows, without a socket and without a clock: whoever drives it says what
//! arrived and what time it is, and takes what is to be sent.
//!
//! The parts: [`arrive`] takes packets in, [`deliver`] puts their frames in order and into
//! channels, [`depart`] makes packets, [`handshake`] begins and ends connections.

mod answers;
mod arrive;
pub(crate) mod channels;
mod deliver;
mod depart;
mod direct_writes;
mod ending;
mod flow_control;
pub(crate) mod groups;
mod handshake;
pub(crate) mod identity;
pub(crate) mod inspect;
mod leaving;
mod liveness;
mod models;
pub(crate) mod multicast;
pub(crate) mod paths;
mod pieces;
pub(crate) mod place;
mod refuse;
pub(crate) mod remote;
mod repair;
mod serve;
mod sizes;
pub(crate) mod snapshot;
pub(crate) mod suspend;
mod timers;
mod transmit;
mod xdp;

use crate::PeerId;
use crate::counters::Counters;
use crate::endpoint::budget::ReceiveBudget;
use crate::endpoint::egress::Egress;
use crate::endpoint::groups::Groups;
use crate::endpoint::multicast::Multicasts;
use crate::endpoint::multirail::Multirail;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::table::Peers;
use crate::endpoint::receive_queue::ReceiveQueue;
use crate::endpoint::rma::Rma;
use crate::endpoint::schedule::Schedule;
use crate::endpoint::sent::Sent;
use crate::ticket::Ticket;

use crate::error::{PeerError, Reason};
use crate::memory::Mapped;
use crate::pool::Pool;
use crate::remote::outcome::Refusal;
use crate::remote::target::{Rights, Target};
use channels::Channels;
use ending::Ended;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::handshake::Cookies;
use tsumugi_proto::sender::Cause;
use tsumugi_proto::translation::ReplacementChoice;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::{Region, Slice};
use tsumugi_wire::Instant;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::memory::Counter;

/// What [`Core`] needs of a configuration.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// See [`crate::Config::job`].
    pub job: u64,
    /// See [`crate::Config::accept_unknown`].
    pub accept_unknown: bool,
    /// See [`crate::Config::peers_max`].
    pub peers_max: u32,
    /// See [`crate::Config::repeat`].
    pub repeat: Repeat,
    /// See [`crate::Config::peer_timeout`], ns.
    pub peer_timeout_ns: u64,
    /// See [`crate::Config::connect_timeout`], ns.
    pub connect_timeout_ns: u64,
    /// Our kernel tells whether our process is there ([`tsumugi_rail::Rail::listens`]).
    pub listens: bool,
    /// See [`crate::Config::integrity`].
    pub integrity: crate::Integrity,
    /// See [`crate::Config::message_bytes_max`].
    pub message_bytes_max: u64,
    /// See [`crate::Config::receive_bytes`].
    pub receive_bytes: u64,
    /// See [`crate::Config::send_bytes`].
    pub send_bytes: u64,
    /// Longest datagram payload, bytes.
    pub datagram_bytes: usize,
    /// Seed of everything random, for simulations; `None` takes the system's entropy.
    pub seed: Option<u64>,
}

/// Events that only the library counts.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    packets_sent: u64,
    packets_resent: u64,
    answers_sent: u64,
    /// Packets read that the XDP program had deposited.
    packets_by_xdp: u64,
    messages_sent: u64,
    messages_received: u64,
    peers_lost: u64,
    /// Packets that were damaged and arrived again as they had been sent.
    packets_repaired: u64,
    /// Packets that were damaged, and whose sender was gone before they had come again.
    packets_unrepaired: u64,
    /// Bytes of packets of flows that were sent, and that arrived but for direct writes of the XDP program.
    bytes_sent: u64,
    bytes_received: u64,
    /// Packets sent again to peers that are gone, by cause, and because they had arrived damaged, to all.
    resent: [u64; Cause::ALL.len()],
    packets_asked_for: u64,
}

/// What tells this incarnation of the endpoint from others.
struct Incarnation {
    epoch: u32,
    cookies: Cookies,
    random: StdRng,
}

/// Everything an endpoint knows, in parts.
pub struct Core {
    options: EndpointOptions,
    incarnation: Incarnation,
    pub(crate) memory: Rc<Mapped>,
    queue: ReceiveQueue,
    budget: ReceiveBudget,
    pub(crate) pool: Pool,
    peers: Peers,
    identities: identity::Identities,
    channels: Channels,
    pub(crate) rma: Rma,
    sent: Sent,
    schedule: Schedule,
    multirail: Multirail,
    groups: Groups,
    multicasts: Multicasts,
    egress: Egress,
    tally: Tally,
}

impl Core {
    /// A new endpoint with a fresh epoch.
    #[must_use]
    pub fn new(options: EndpointOptions, memory: Memory) -> Core {
        let mut random = options.seed.map_or_else(rand::make_rng, StdRng::seed_from_u64);
        let flows = memory.geometry().flows as usize;
        let epoch = random.random_range(1..=u32::MAX);
        memory.control().seal.store(random.random(), Ordering::Relaxed);
        memory.control().epoch.store(epoch, Ordering::Release);
        let memory = Rc::new(Mapped(memory));
        let mut nobody = Peer::new(String::new(), (Ipv4Addr::UNSPECIFIED, 0).into(), options.repeat);
        nobody.connection.phase = Phase::Gone(Reason::Closed);
        Core {
            queue: ReceiveQueue::default(),
            budget: ReceiveBudget::new(options.receive_bytes),
            pool: Pool::default(),
            peers: Peers::new(options.peers_max, flows, nobody),
            identities: identity::Identities::default(),
            channels: Channels::new(options.peers_max as usize),
            rma: Rma::new(&memory),
            sent: Sent::default(),
            schedule: Schedule::default(),
            multirail: Multirail::new(options.repeat),
            groups: Groups::default(),
            multicasts: Multicasts::default(),
            egress: Egress::default(),
            tally: Tally::default(),
            incarnation: Incarnation {
                epoch,
                cookies: Cookies::new((random.random(), random.random())),
                random,
            },
            memory,
            options,
        }
    }

    /// Adds a peer for the application, or finds it when its address is known.
    pub fn add_peer(&mut self, name: &str, address: SocketAddr) -> Result<PeerId, PeerError> {
        let id = self.enter_peer(name, address)?;
        self.peers[id.0 as usize].identity.named = true;
        Ok(id)
    }

    /// The entry of a peer, made if there is none yet.
    fn enter_peer(&mut self, name: &str, address: SocketAddr) -> Result<PeerId, PeerError> {
        if let Some(index) = self.peers.at(address) {
            return Ok(PeerId(index));
        }
        let peer = Peer::new(name.to_owned(), address, self.options.repeat);
        let index = if self.peers.len() < self.options.peers_max as usize {
            self.peers.push(peer)
        } else {
            // The one that has been away for longest.
            let is_gone = |number: u32| self.peers[number as usize].is_idle();
            let is_spare = |peer: &Peer| peer.is_forgettable() && peer.identity.same_as.is_none_or(is_gone);
            let spare = self.peers.iter().enumerate().filter(|(_, peer)| is_spare(peer));
            let Some((place, old)) = spare.min_by_key(|(_, peer)| peer.identity.ended) else {
                return Err(PeerError::TooMany(self.options.peers_max));
            };
            let (address, number) = (old.address, old.number);
            self.peers.leave(address, number);
            self.peers.replace(place, peer)
        };
        self.peers.settle(address, index);
        Ok(PeerId(index))
    }

    /// Number of peers.
    #[must_use]
    pub fn peers(&self) -> u32 {
        self.peers.len() as u32
    }

    /// The peer's address.
    #[must_use]
    pub fn address_of(&self, id: PeerId) -> Option<SocketAddr> {
        self.peers.get(self.canonical(id).0 as usize).map(|peer| peer.address)
    }

    /// The endpoint's epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.incarnation.epoch
    }

    /// When [`Core::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.schedule.deadline().min(self.groups.deadline()).min(self.multicasts.deadline())
    }

    /// Whether a call has something to do though nothing has arrived: a timer, something to send, or a receive path that
    /// waits for room.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.deadline()
            || self.schedule.to_send() > 0
            || self.egress.replies() > 0
            || self.memory.control().xoff.0.load(Ordering::Relaxed) != 0
    }

    /// Bytes of received messages outside the queue, complete or arriving.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// Says that datagrams over IPv6 are to be as much shorter as its headers are longer: this endpoint is of both families,
    /// and `datagram_bytes` is what its NICs carry over IPv4.
    pub fn shorten_over_ipv6(&mut self) {
        self.multirail.is_shorter_over_ipv6 = true;
    }

    /// Longest packet body of our own, bytes.
    fn own_body_bytes(&self) -> usize {
        self.options.datagram_bytes - HEADER_BYTES
    }

    /// Lets others reach memory by a key that nobody can guess.
    pub fn register(&mut self, slice: Slice, rights: Rights) -> u64 {
        let key = loop {
            let key = self.incarnation.random.random();
            if key != 0 && !self.rma.served.is_key(key) {
                break key;
            }
        };
        let base = slice.region().address() + slice.at() as u64;
        self.rma.served.register(key, base, slice, rights);
        key
    }

    /// Lets others reach memory by a key and addresses that the caller chooses. `false`: the key is in use.
    pub fn register_as(&mut self, target: Target, slice: Slice, rights: Rights) -> bool {
        let free = !self.rma.served.is_key(target.key);
        if free {
            self.rma.served.register(target.key, target.address, slice, rights);
        }
        free
    }

    /// Nothing more is done under a key. Returns whether the XDP program may be doing something under it at this
    /// moment.
    pub fn revoke(&mut self, key: u64) -> bool {
        self.rma.served.revoke(key);
        self.rma.window.forget(&self.memory, key)
    }

    /// A region of zeroes that may be written without us; `None` when the window has no room for it.
    pub fn lend_window(&self, bytes: usize) -> Option<Region> {
        self.rma.window.lend(&self.memory, bytes)
    }

    /// Whether memory may be written without us.
    pub(crate) fn is_in_window(&self, slice: &Slice) -> bool {
        self.rma.window.holds(slice)
    }

    /// How translations make room for others from now on.
    pub fn set_replacement(&mut self, choice: ReplacementChoice) {
        self.rma.window.set_replacement(choice);
    }

    /// Takes the next write of ours that was refused.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.rma.take_refusal()
    }

    /// Names message `number` of the present connection.
    pub(crate) fn ticket(&self, id: PeerId, number: u64) -> Ticket {
        let id = self.canonical(id);
        Ticket::new(id, self.connection(id), number)
    }

    /// What the endpoint has counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Tally {
            packets_sent,
            packets_resent,
            answers_sent,
            packets_by_xdp,
            messages_sent,
            messages_received,
            peers_lost,
            packets_repaired,
            packets_unrepaired,
            bytes_sent,
            bytes_received,
            resent: _,
            packets_asked_for: _,
        } = self.tally;
        let mut values = vec![
            ("messages_sent", messages_sent),
            ("messages_received", messages_received),
            ("packets_sent", packets_sent),
            ("packets_resent", packets_resent),
            ("answers_sent", answers_sent),
            ("packets_by_xdp", packets_by_xdp),
            ("peers_lost", peers_lost),
            ("packets_repaired", packets_repaired),
            ("packets_unrepaired", packets_unrepaired),
            ("bytes_sent", bytes_sent),
            ("bytes_received", bytes_received),
        ];
        let counters = &self.memory.control().counters.0;
        for (counter, name) in Counter::ALL {
            values.push((name, counters[counter as usize].load(Ordering::Relaxed)));
        }
        Counters { values }
    }
}
