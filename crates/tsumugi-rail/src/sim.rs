//! A simulated network in virtual time: the same seed and the same calls give the same run.
//!
//! Every [`SimRail`] of a [`Network`] can send to every other. Each direction between two addresses is a
//! link of its own: a queue that drains at the link's rate, then the latency, then whatever goes wrong.
//! Nothing happens between calls; a datagram is delivered by the first [`receive`](Rail::receive) whose
//! `now` has reached its arrival. A host may have [several NICs](SimNic), on networks of their own.
//!
//! ```
//! use tsumugi_rail::sim::{LinkOptions, Network};
//! use tsumugi_rail::{Packet, Rail};
//! use tsumugi_wire::Instant;
//!
//! let network = Network::new(7, LinkOptions { latency_ns: 5_000, ..LinkOptions::default() });
//! let (a, b) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
//! let (mut from, mut to) = (network.rail(a, 1472), network.rail(b, 1472));
//! from.send(Instant(0), b, &[Packet { head: b"hello", body: b"" }]).unwrap();
//! let arrival = network.next_delivery();
//! assert_eq!(arrival, Instant(5_000));
//! to.receive(arrival, &mut |source, bytes| assert_eq!((source, bytes), (a, &b"hello"[..]))).unwrap();
//! ```

mod kernel;
mod nics;

use crate::liveness::Errors;
use crate::random::Random;
use crate::{Deliver, Evidence, NicAddress, NicName, Packet, Question, Rail, RailError};
use kernel::{Answer, Kernels, Pending};
use nics::Plugged;
pub use nics::{NicOptions, SimNic};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MICROSECOND_NS, SECOND_NS};

/// Bytes of a frame that are not datagram: preamble 8, Ethernet 14, IPv4 20, UDP 8, check 4, gap 12.
pub const FRAMING_BYTES: u64 = 66;
/// Most datagrams of one `receive`.
const RECEIVE_MAX: usize = 64;
/// Most bytes of coalesced datagrams.
const COALESCE_BYTES_MAX: usize = 64 * 1024;

/// What one direction between two rails is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkOptions {
    /// Time on the link, ns.
    pub latency_ns: u64,
    /// Most additional time, ns: each datagram takes a random part of it, in order.
    pub jitter_ns: u64,
    /// Rate of the link, bits a second; 0: unlimited.
    pub rate_bits_per_s: u64,
    /// Bytes that wait for the link at most; what comes on top is dropped. Without a rate nothing waits.
    pub queue_bytes: u64,
    /// Probability, 0 to 1, that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplicate: f64,
    /// Probability that a datagram is overtaken by later ones.
    pub reorder: f64,
    /// Probability that one bit of a datagram is flipped.
    pub corrupt: f64,
    /// Longest datagram that it carries; longer ones are dropped. This limit lies on the path, not in the sender's NIC.
    pub datagram_bytes: usize,
    /// Whoever drops one for that says so to its sender's kernel.
    pub tells: bool,
}

impl Default for LinkOptions {
    /// A flawless link without a limit, 5 µs long.
    fn default() -> LinkOptions {
        LinkOptions {
            latency_ns: 5 * MICROSECOND_NS,
            jitter_ns: 0,
            rate_bits_per_s: 0,
            queue_bytes: 1 << 20,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            datagram_bytes: usize::MAX,
            tells: false,
        }
    }
}

/// Habits of real hosts that a rail's user must cope with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostOptions {
    /// Probability that a burst is taken in part only, as when a NIC's queue is full.
    pub short_burst: f64,
    /// Probability that a datagram is handed over together with an equally long (or shorter, then
    /// last) one that follows it from the same sender, as kernels coalesce them.
    pub coalesce: f64,
}

/// What happened on a network so far, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Taken from senders.
    pub sent: u64,
    /// Bytes of those, without framing.
    pub sent_bytes: u64,
    /// Handed to receivers, second copies included.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Doubled by chance.
    pub duplicated: u64,
    /// Held back by chance.
    pub reordered: u64,
    /// Damaged by chance.
    pub corrupted: u64,
    /// Dropped because the link's queue was full.
    pub queue_full: u64,
    /// Sent between rails that were cut apart, or through or to a NIC that does nothing.
    pub cut: u64,
    /// Sent to a network that the sender has no NIC on.
    pub unrouted: u64,
    /// Arrived where no rail was.
    pub nobody: u64,
    /// Longer than the sending rail's datagrams may be.
    pub too_long: u64,
    /// Longer than something on the path carries.
    pub dropped: u64,
}

/// A simulated network; clones are the same network.
#[derive(Clone, Debug)]
pub struct Network(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    random: Random,
    options: LinkOptions,
    host: HostOptions,
    kernels: Option<Kernels>,
    links: HashMap<(usize, usize), Link>,
    cuts: HashSet<(usize, usize)>,
    ports: Vec<Port>,
    by_address: HashMap<SocketAddr, usize>,
    /// Datagrams under way, and buffers to use again.
    datagrams: Vec<Datagram>,
    free: Vec<usize>,
    sequence: u64,
    /// Latest time that anyone has mentioned.
    now: Instant,
    statistics: Statistics,
}

/// What is known of an address, whether a rail has it or not: datagrams may be under way to it.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    open: bool,
    /// The port of the rail that receives what is sent here: this one, unless its host has several NICs.
    inbox: usize,
    nic: NicOptions,
    /// The kernel answers handshakes for the process.
    listens: bool,
    /// What other kernels have answered, and ICMP errors, which nobody has asked for yet.
    answers: Vec<Answer>,
    errors: Errors,
    /// Where datagrams from here were too long for the path, which nobody has asked for yet.
    too_long: Vec<SocketAddr>,
    /// Arrival, order among equal arrivals, place in `datagrams`.
    arrivals: BinaryHeap<Reverse<(Instant, u64, usize)>>,
}

#[derive(Debug, Default)]
struct Link {
    options: Option<LinkOptions>,
    /// What the sender's kernel was told that the link carries.
    told: Option<usize>,
    /// When the link has sent what waits for it.
    free_at: Instant,
    /// Arrival of the last datagram that was not held back: none overtakes it by jitter.
    last_arrival: Instant,
}

#[derive(Debug)]
struct Datagram {
    from: SocketAddr,
    /// The port that it was sent to, which may be another than the one it is received at.
    to: usize,
    bytes: Vec<u8>,
}

impl Network {
    /// A network whose links are all like `options`, and whose random numbers come from `seed`.
    #[must_use]
    pub fn new(seed: u64, options: LinkOptions) -> Network {
        Network(Rc::new(RefCell::new(State {
            random: Random::new(seed),
            options,
            host: HostOptions::default(),
            kernels: None,
            links: HashMap::new(),
            cuts: HashSet::new(),
            ports: Vec::new(),
            by_address: HashMap::new(),
            datagrams: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            now: Instant(0),
            statistics: Statistics::default(),
        })))
    }

    /// Opens a rail at `address`. Datagrams that are still under way to an earlier rail there will reach
    /// this one, as they do when a process restarts.
    ///
    /// # Panics
    /// A rail is open there already.
    #[must_use]
    pub fn rail(&self, address: SocketAddr, datagram_bytes: usize) -> SimRail {
        let mut state = self.0.borrow_mut();
        let port = state.port(address);
        assert!(!state.ports[port].open, "a simulated rail is open at {address} already");
        state.drop_arrived(port);
        let opened = &mut state.ports[port];
        (opened.open, opened.listens, opened.errors) = (true, false, Errors::default());
        opened.answers.clear();
        drop(state);
        SimRail {
            network: self.clone(),
            address,
            port,
            nics: Vec::new(),
            told: Vec::new(),
            questions: Vec::new(),
            datagram_bytes,
        }
    }

    /// When the next datagram arrives at an open rail; [`Instant::NEVER`] when none is under way.
    #[must_use]
    pub fn next_delivery(&self) -> Instant {
        let state = self.0.borrow();
        let open = state.ports.iter().filter(|port| port.open);
        open.filter_map(Port::next).min().unwrap_or(Instant::NEVER)
    }

    /// Changes every link that has no options of its own, for what is sent from now on.
    pub fn set_options(&self, options: LinkOptions) {
        self.0.borrow_mut().options = options;
    }

    /// Gives the direction from `from` to `to` options of its own, or with `None` takes them away.
    pub fn set_link(&self, from: SocketAddr, to: SocketAddr, options: Option<LinkOptions>) {
        let mut state = self.0.borrow_mut();
        let link = (state.port(from), state.port(to));
        state.links.entry(link).or_default().options = options;
    }

    /// Changes the habits of every host.
    pub fn set_host_options(&self, options: HostOptions) {
        self.0.borrow_mut().host = options;
    }

    /// Cuts `a` and `b` apart: what either sends to the other from now on is lost. What is under way arrives.
    pub fn cut(&self, a: SocketAddr, b: SocketAddr) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Cuts only the direction from `from` to `to`.
    pub fn cut_one_way(&self, from: SocketAddr, to: SocketAddr) {
        let mut state = self.0.borrow_mut();
        let link = (state.port(from), state.port(to));
        state.cuts.insert(link);
    }

    /// Joins `a` and `b` again, in both directions.
    pub fn heal(&self, a: SocketAddr, b: SocketAddr) {
        let mut state = self.0.borrow_mut();
        let (a, b) = (state.port(a), state.port(b));
        state.cuts.remove(&(a, b));
        state.cuts.remove(&(b, a));
    }

    /// Whether what is between two hosts carries a datagram of so many bytes.
    #[must_use]
    pub fn carries(&self, from: SocketAddr, to: SocketAddr, bytes: usize) -> bool {
        let mut state = self.0.borrow_mut();
        let link = (state.port(from), state.port(to));
        let options = state.links.get(&link).and_then(|link| link.options).unwrap_or(state.options);
        bytes <= options.datagram_bytes
    }

    /// A datagram is sent on by what is between the hosts, as if it were from one of them.
    pub fn send_on(&self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let mut state = self.0.borrow_mut();
        state.advance(now);
        let (from, to) = (state.port(from), state.port(to));
        state.send(from, to, usize::MAX, &Packet { head: datagram, body: &[] });
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.borrow().statistics
    }
}

impl Port {
    fn next(&self) -> Option<Instant> {
        self.arrivals.peek().map(|Reverse((at, ..))| *at)
    }
}

impl State {
    fn port(&mut self, address: SocketAddr) -> usize {
        let State { ports, by_address, .. } = self;
        *by_address.entry(address).or_insert_with(|| {
            let inbox = ports.len();
            ports.push(Port {
                address,
                open: false,
                inbox,
                nic: NicOptions::WORKS,
                listens: false,
                answers: Vec::new(),
                errors: Errors::default(),
                too_long: Vec::new(),
                arrivals: BinaryHeap::new(),
            });
            inbox
        })
    }

    /// Takes the next datagram that has arrived at `port`: when, and its place.
    fn arrived(&mut self, port: usize) -> Option<(Instant, usize)> {
        let arrivals = &mut self.ports[port].arrivals;
        let Reverse((at, _, datagram)) = *arrivals.peek()?;
        if at > self.now {
            return None;
        }
        arrivals.pop();
        Some((at, datagram))
    }

    /// Drops what has arrived at `port` and that nobody took.
    fn drop_arrived(&mut self, port: usize) {
        while let Some((_, datagram)) = self.arrived(port) {
            self.free.push(datagram);
            self.statistics.nobody += 1;
        }
    }

    /// Whether what is sent from one port to another gets there, but for chance.
    fn passes(&self, from: usize, to: usize) -> bool {
        !self.cuts.contains(&(from, to)) && self.ports[from].nic.sends && self.ports[to].nic.receives
    }

    fn send(&mut self, from: usize, to: usize, datagram_bytes: usize, packet: &Packet<'_>) {
        let bytes = packet.bytes();
        self.statistics.sent += 1;
        self.statistics.sent_bytes += bytes as u64;
        if bytes > datagram_bytes {
            self.statistics.too_long += 1;
            return;
        }
        if !self.passes(from, to) {
            self.statistics.cut += 1;
            return;
        }
        let inbox = self.ports[to].inbox;
        if !self.ports[inbox].open {
            self.drop_arrived(inbox); // nobody else does, and the queue must not grow
        }
        let link = self.links.entry((from, to)).or_default();
        let options = link.options.unwrap_or(self.options);
        if bytes > options.datagram_bytes {
            self.statistics.dropped += 1;
            if options.tells {
                link.told = Some(options.datagram_bytes);
                let to = self.ports[to].address;
                self.ports[from].too_long.push(to);
            }
            return;
        }
        let start = link.free_at.max(self.now);
        let mut depart = start;
        if options.rate_bits_per_s > 0 {
            let rate = u128::from(options.rate_bits_per_s);
            let waiting = u128::from(start.since(self.now)) * rate / u128::from(8 * SECOND_NS);
            if waiting + bytes as u128 > u128::from(options.queue_bytes) {
                self.statistics.queue_full += 1;
                return;
            }
            let bits = u128::from(8 * (bytes as u64 + FRAMING_BYTES));
            depart = start.plus((bits * u128::from(SECOND_NS) / rate) as u64);
            link.free_at = depart;
        }
        // Lost on the link: it has used the link up all the same.
        if self.random.chance(options.loss) {
            self.statistics.lost += 1;
            return;
        }
        let mut at = depart.plus(options.latency_ns + self.random.below(options.jitter_ns + 1));
        if self.random.chance(options.reorder) {
            self.statistics.reordered += 1;
            let most = 2 * (options.latency_ns + options.jitter_ns) + 10 * MICROSECOND_NS;
            at = at.plus(1 + self.random.below(most));
        } else {
            at = at.max(link.last_arrival);
            link.last_arrival = at;
        }
        let corrupt = self.random.chance(options.corrupt);
        let second =
            self.random.chance(options.duplicate).then(|| self.random.below(2 * options.latency_ns + 1));
        let route = (self.ports[from].address, to);
        self.enqueue(at, route, inbox, packet, corrupt);
        if let Some(later) = second {
            self.statistics.duplicated += 1;
            self.enqueue(at.plus(later), route, inbox, packet, false);
        }
    }

    /// Puts what takes a route, from an address to a port, into an inbox.
    fn enqueue(
        &mut self,
        at: Instant,
        (from, to): (SocketAddr, usize),
        inbox: usize,
        packet: &Packet<'_>,
        corrupt: bool,
    ) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.datagrams.push(Datagram { from, to, bytes: Vec::new() });
            self.datagrams.len() - 1
        });
        let datagram = &mut self.datagrams[place];
        (datagram.from, datagram.to) = (from, to);
        datagram.bytes.clear();
        datagram.bytes.extend_from_slice(packet.head);
        datagram.bytes.extend_from_slice(packet.body);
        if corrupt {
            self.random.damage(&mut datagram.bytes);
            self.statistics.corrupted += 1;
        }
        self.ports[inbox].arrivals.push(Reverse((at, self.sequence, place)));
        self.sequence += 1;
    }

    /// Adds to the datagram at `place` those behind it that a kernel might coalesce with it.
    fn coalesce(&mut self, port: usize, place: usize) -> usize {
        let mut count = 1;
        let segment = self.datagrams[place].bytes.len();
        while self.random.chance(self.host.coalesce) {
            let Some(Reverse((at, _, next))) = self.ports[port].arrivals.peek().copied() else { break };
            let (from, length) = (self.datagrams[next].from, self.datagrams[next].bytes.len());
            let fits = from == self.datagrams[place].from
                && length <= segment
                && self.datagrams[place].bytes.len() + length <= COALESCE_BYTES_MAX;
            if at > self.now || !fits {
                break;
            }
            self.ports[port].arrivals.pop();
            let behind = std::mem::take(&mut self.datagrams[next].bytes);
            self.datagrams[place].bytes.extend_from_slice(&behind);
            self.datagrams[next].bytes = behind;
            self.free.push(next);
            count += 1;
            if length < segment {
                break;
            }
        }
        count
    }
}

/// One rail of a [`Network`]. Dropped, it stops receiving.
#[derive(Debug)]
pub struct SimRail {
    network: Network,
    address: SocketAddr,
    port: usize,
    /// The host's NICs, if it has several; if it has one, that reaches everybody.
    nics: Vec<Plugged>,
    /// NICs that the owner has heard of.
    told: Vec<NicAddress>,
    /// What other kernels were asked and have not answered.
    questions: Vec<Pending>,
    datagram_bytes: usize,
}

impl Rail for SimRail {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        let from = self.route(to.ip());
        let mut state = self.network.0.borrow_mut();
        state.advance(now);
        let to = state.port(to);
        let short = state.host.short_burst;
        let taken = if state.random.chance(short) {
            state.random.below(burst.len() as u64) as usize
        } else {
            burst.len()
        };
        match from {
            Some(from) => {
                for packet in &burst[..taken] {
                    state.send(from, to, self.datagram_bytes, packet);
                }
            }
            None => state.statistics.unrouted += taken as u64,
        }
        Ok(taken)
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        let mut received = 0;
        while received < RECEIVE_MAX {
            let mut state = self.network.0.borrow_mut();
            state.advance(now);
            let Some((_, place)) = state.arrived(self.port) else { break };
            let count = state.coalesce(self.port, place);
            state.statistics.delivered += count as u64;
            let datagram = &mut state.datagrams[place];
            let (from, bytes) = (datagram.from, std::mem::take(&mut datagram.bytes));
            drop(state); // whoever takes the datagram may send an answer at once
            deliver(from, &bytes);
            let mut state = self.network.0.borrow_mut();
            state.datagrams[place].bytes = bytes;
            state.free.push(place);
            received += 1;
        }
        Ok(received)
    }

    /// When the next datagram arrives here: in virtual time nothing else would wake anyone.
    fn wake_at(&self) -> Instant {
        self.network.0.borrow().ports[self.port].next().unwrap_or(Instant::NEVER)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        let from = self.route(peer.ip())?;
        let mut state = self.network.0.borrow_mut();
        let to = state.port(peer);
        state.links.get(&(from, to))?.told
    }

    fn too_long(&mut self) -> Option<SocketAddr> {
        let mut state = self.network.0.borrow_mut();
        let own = std::iter::once(self.port).chain(self.nics.iter().map(|nic| nic.port));
        own.into_iter().find_map(|port| state.ports[port].too_long.pop())
    }

    fn listens(&self) -> bool {
        self.network.0.borrow().ports[self.port].listens
    }

    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        self.ask_kernels(now, since, peer, question)
    }

    fn link_down(&mut self, _: Instant, peer: SocketAddr) -> Option<NicName> {
        self.link_down_to(peer)
    }

    fn nics(&mut self, _: Instant) -> Option<Vec<NicAddress>> {
        let nics = self.nics_with_carrier();
        let changed = nics != self.told;
        changed.then(|| self.told.clone_from(&nics)).map(|()| nics)
    }
}

impl Drop for SimRail {
    fn drop(&mut self) {
        let mut state = self.network.0.borrow_mut();
        state.drop_arrived(self.port);
        state.ports[self.port].open = false;
    }
}

#[cfg(test)]
mod tests;
