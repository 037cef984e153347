//! The endpoint: a process's attachment to the cluster.

pub(crate) mod core;

mod bell;
mod budget;
mod closing;
mod egress;
mod futures;
pub(crate) mod groups;
pub(crate) mod long_message;
pub(crate) mod multicast;
mod multirail;
pub(crate) mod peer;
mod progress;
pub(crate) mod receive_queue;
mod rma;
mod schedule;
mod sent;
pub(crate) mod shared;
mod showing;
mod snapshot;
mod tasks;
#[cfg(feature = "tokio")]
mod watch;
mod window;

use crate::channel::Channel;
use crate::clock::Clock;
use crate::config::Config;
use crate::context::{Context, ContextError};
use crate::counters::Counters;
use crate::error::{ChannelError, Failure, OpenError, PeerError, SendError};
use crate::report::Report;
use crate::ticket::{Ticket, TicketStatus};
use crate::wait::{Wait, Waiter};
use crate::{PeerId, PeerName, Policy, Remote, peers};
use core::paths::PathReport;
use core::{Core, EndpointOptions};
use shared::{Inner, Shared};
use showing::Showing;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tasks::Tasks;
use tsumugi_rail::fault::Faulty;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::trace::Traced;
use tsumugi_rail::udp::UdpOptions;
use tsumugi_rail::{Ethernet, EthernetOptions, Own, Owner, Rail, RailError};
use tsumugi_rail::{dual_stack, family};
use tsumugi_wire::Instant;

/// A process's attachment to the cluster. See the crate's documentation.
///
/// # Threads
///
/// An endpoint and all that is made of it (channels, messages, ports, tasks) belong to the thread that opened it: they are neither
/// `Send` nor `Sync`, so that the compiler refuses to have them moved to or shared with another. A process may have any number of
/// endpoints, each with a port of its own. A program of several threads opens one in each thread that talks, or has one thread talk
/// for all, to which the others hand what is to be sent by [`std::sync::mpsc`] or another queue; [`Config`](crate::Config),
/// [`PeerId`] and [`Ticket`] may cross threads.
///
/// ```compile_fail,E0277
/// # use tsumugi::{Config, Endpoint};
/// let endpoint = Endpoint::open(Config::loopback()).unwrap();
/// std::thread::spawn(move || endpoint.progress());
/// ```
///
/// # Processes
///
/// It belongs to the process that opened it, too: in a child made by `fork` every call that sends or receives is an error
/// ([`RailError::OtherProcess`]), dropping it says nothing to anyone, and its port, its memory and its peers stay the parent's.
/// The child may open one of its own; a daemon opens after it has forked.
pub struct Endpoint {
    pub(crate) shared: Rc<Shared>,
}

/// Opens an endpoint whose rail is what `wrap` makes of it.
///
/// # Errors
/// As [`Endpoint::open`].
pub fn open_through(
    config: &Config,
    wrap: impl FnOnce(Box<dyn Rail>) -> Box<dyn Rail>,
) -> Result<Endpoint, OpenError> {
    let (rail, options, memory) = Endpoint::prepare(config)?;
    Endpoint::assemble(Core::new(options, memory), wrap(rail), config)
}

/// Opens an endpoint on any rail, whose time is what somebody writes into `ns`: for simulations, which must not wait.
#[must_use]
pub fn open_simulated(
    options: EndpointOptions,
    memory: Memory,
    rail: Box<dyn Rail>,
    ns: Rc<Cell<u64>>,
) -> Endpoint {
    Endpoint::on(Core::new(options, memory), rail, Clock::told(ns), Wait::Spin)
}

impl Endpoint {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// Says what is wrong with the configuration, the port, the address or the memory, and what to do.
    pub fn open(config: Config) -> Result<Endpoint, OpenError> {
        open_through(&config, |rail| rail)
    }

    pub(crate) fn prepare(config: &Config) -> Result<(Box<dyn Rail>, EndpointOptions, Memory), OpenError> {
        let geometry = config.check()?;
        let networks = config.networks_in_force()?;
        let udp = UdpOptions {
            address: dual_stack::on_this_host(config.bind),
            port: config.port,
            datagram_bytes: config.datagram_bytes,
            ..UdpOptions::default()
        };
        let options = EthernetOptions {
            udp,
            send: config.send,
            receive: config.receive,
            geometry,
            networks,
            listener: config.listener.clone(),
        };
        let (mut rail, memory) = Ethernet::open(&options)?;
        if config.wait == Wait::BusyPoll {
            rail.busy_poll(true).map_err(OpenError::BusyPoll)?;
        }
        let mut rail: Box<dyn Rail> = Box::new(rail);
        if let Some(path) = &config.trace {
            // The clock starts with the endpoint, a moment from now.
            let origin_ns =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let cannot = |source| OpenError::Trace { path: path.clone(), source };
            // What is not written yet is written once, by this process.
            let file = Own::new(File::create(path).map_err(cannot)?);
            rail = Box::new(Traced::new(rail, BufWriter::new(file), origin_ns).map_err(cannot)?);
        }
        if let Some(faults) = &config.faults {
            rail = Box::new(Faulty::new(rail, *faults));
        }
        let options = EndpointOptions {
            job: config.job,
            accept_unknown: config.accept_unknown,
            peers_max: config.peers_max,
            repeat: config.repeat,
            peer_timeout_ns: config.peer_timeout.as_nanos() as u64,
            connect_timeout_ns: config.connect_timeout.as_nanos() as u64,
            listens: rail.listens(),
            integrity: config.integrity,
            message_bytes_max: config.message_bytes_max,
            receive_bytes: config.receive_bytes,
            send_bytes: config.send_bytes,
            datagram_bytes: rail.datagram_bytes(),
            seed: None,
        };
        Ok((rail, options, memory))
    }

    fn on(core: Core, rail: Box<dyn Rail>, clock: Clock, wait: Wait) -> Endpoint {
        let shared = Shared {
            memory: Rc::clone(&core.memory),
            owner: Owner::this_process(),
            clock,
            tasks: Tasks::default(),
            inner: RefCell::new(Inner {
                core,
                rail,
                waiter: Waiter::new(wait),
                spreads: false,
                nics_at: Instant(0),
                looked_at: Instant(0),
                spins: 0,
                silent: false,
                shown: false,
                bell: None,
                flush_ns: u64::MAX,
                linger_ns: 0,
                showing: Showing::default(),
            }),
        };
        Endpoint { shared: Rc::new(shared) }
    }

    pub(crate) fn assemble(core: Core, rail: Box<dyn Rail>, config: &Config) -> Result<Endpoint, OpenError> {
        let endpoint = Endpoint::on(core, rail, Clock::start(), config.wait);
        let mut inner = endpoint.shared.inner.borrow_mut();
        inner.showing = Showing::open();
        inner.set_policy(config.policy, Instant(0));
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (inner.flush_ns, inner.linger_ns) = (ns(config.flush_timeout), ns(config.linger));
        inner.core.set_replacement(config.replacement);
        inner.core.set_networks(config.networks_in_force()?);
        if config.datagram_bytes.is_none() && family::is_dual(inner.rail.address().ip()) {
            inner.core.shorten_over_ipv6();
        }
        drop(inner);
        endpoint.report().tell();
        for peer in &config.peers {
            endpoint.add_peer(peer.clone())?;
        }
        Ok(endpoint)
    }

    /// The UDP port that peers send to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// The address that the endpoint is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.inner.borrow().rail.address()
    }

    /// Adds a peer, by name or address. A peer that is known already keeps its number.
    ///
    /// # Errors
    /// The name has no address, the address may not be used, or the list of peers is full.
    pub fn add_peer(&self, peer: impl Into<PeerName>) -> Result<PeerId, PeerError> {
        let mut inner = self.shared.inner.borrow_mut();
        match peer.into() {
            PeerName::Text(text) => {
                let bound = inner.rail.address();
                let has_route = |address| inner.rail.path_bytes(address).is_some();
                let address = peers::resolve(&text, bound.ip(), has_route)?;
                inner.add_peer(&text, address)
            }
            PeerName::Address(address) => {
                let address = family::canonical(address);
                inner.add_peer(&address.to_string(), address)
            }
        }
    }

    /// Whether everything that was accepted for a peer has been handed to a NIC at least once. What has not goes out in a later
    /// [`progress`](Endpoint::progress).
    #[must_use]
    pub fn is_handed_over(&self, peer: PeerId) -> bool {
        self.shared.inner.borrow().core.is_handed_over(peer)
    }

    /// Begins to connect to a peer, if that was not done yet. Returns whether what is sent to it may go out: not before
    /// it has answered. Also `true` for a peer that is gone: sending to it says so.
    ///
    /// # Errors
    /// The rail is broken.
    pub fn connect(&self, peer: PeerId) -> Result<bool, RailError> {
        let now = self.shared.now();
        let is_connected = self.shared.inner.borrow_mut().core.connect(now, peer);
        if !is_connected {
            self.shared.transmit(now)?;
        }
        Ok(is_connected)
    }

    /// Sends what waits for a peer, unless several packets are in flight to it already: then it leaves with the next
    /// call at the latest, together with what is sent until then. For a caller that has sent something and may not call
    /// again for long.
    ///
    /// # Errors
    /// The rail is broken.
    pub fn push(&self, peer: PeerId) -> Result<(), RailError> {
        self.shared.push(peer)
    }

    /// Somebody waits for what is sent to a peer next to [arrive](TicketStatus::Delivered): the peer is asked to
    /// acknowledge it at once. Otherwise the acknowledgement may ride on what the peer sends, and a process that makes
    /// no call sends nothing.
    pub fn want_ack(&self, peer: PeerId) {
        self.shared.inner.borrow_mut().core.want_ack(peer);
    }

    /// Number of peers that are known, listed and come by themselves. They go by the numbers from 0 on, until there have been
    /// more than [`Config::peers_max`]: then one that came by itself and has left is forgotten, and the next to come
    /// gets a number that no peer had.
    #[must_use]
    pub fn peers(&self) -> u32 {
        self.shared.inner.borrow().core.peers()
    }

    /// A peer's address.
    #[must_use]
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.shared.inner.borrow().core.address_of(peer)
    }

    /// The number that a peer goes by. One endpoint is one peer, whatever it is called: when two of its addresses were added
    /// as two peers, both numbers stay good for sending, and what it sends comes from this one. That the two are the same is
    /// found out when something is sent to both.
    #[must_use]
    pub fn canonical(&self, peer: PeerId) -> PeerId {
        self.shared.inner.borrow().core.canonical(peer)
    }

    /// Opens a channel, exclusively.
    ///
    /// Messages that came for it before wait in it.
    ///
    /// # Errors
    /// It is open already.
    pub fn channel(&self, number: u16) -> Result<Channel, ChannelError> {
        if !self.shared.inner.borrow_mut().core.open_channel(number) {
            return Err(ChannelError::Taken(number));
        }
        Ok(Channel::new(Rc::clone(&self.shared), number))
    }

    /// The memory of other processes, and what of ours they may reach.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::new(Rc::clone(&self.shared))
    }

    /// Takes in what has arrived and sends what may be sent, once, without waiting. Returns the number of
    /// things that had arrived.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn progress(&self) -> Result<usize, RailError> {
        self.shared.progress()
    }

    /// How blocking calls wait from now on.
    ///
    /// # Errors
    /// The system does not permit busy polling.
    pub fn set_wait(&self, wait: Wait) -> Result<(), RailError> {
        let mut inner = self.shared.inner.borrow_mut();
        let busy_polls = |wait| wait == Wait::BusyPoll;
        if busy_polls(wait) != busy_polls(inner.waiter.policy()) {
            inner.rail.busy_poll(busy_polls(wait))?;
        }
        inner.waiter.set_policy(wait);
        Ok(())
    }

    /// How blocking calls wait.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.shared.inner.borrow().waiter.policy()
    }

    /// Makes progress until `ready` gives something, but not longer than `timeout`: for who looks into memory that others
    /// write. `None`: the time is over.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn wait_until<T>(
        &self,
        timeout: Duration,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, RailError> {
        self.shared.inner.borrow_mut().core.watch();
        // Asked before anything else is done: direct writes into a window need no call.
        self.shared.wait(self.shared.deadline(timeout), &mut ready, |_| None)
    }

    /// Whether everything that was accepted is acknowledged, or lost: [`Endpoint::flush`] would not wait.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.shared.inner.borrow().core.is_flushed()
    }

    /// Waits until everything that was accepted is acknowledged, or lost, as long as anything still is acknowledged within
    /// [`Config::flush_timeout`](crate::Config::flush_timeout).
    ///
    /// # Errors
    /// A peer is gone, now or before this call, and had not acknowledged what was sent to it: the failure says how much.
    /// Not if [`Endpoint::take_failure`], a channel's receive call or this one have told it before. What was accepted for
    /// other peers has been acknowledged all the same.
    /// [`SendError::Stalled`]: a peer is there and takes nothing; its messages are kept.
    pub fn flush(&self) -> Result<(), SendError> {
        self.shared.flush()
    }

    /// Whether a message has been acknowledged, is under way, or is lost with its peer.
    #[must_use]
    pub fn status(&self, ticket: Ticket) -> TicketStatus {
        let core = &mut self.shared.inner.borrow_mut().core;
        let status = core.status_of(ticket);
        if status == TicketStatus::Pending {
            core.hasten_ack(ticket.peer());
        }
        status
    }

    /// Takes the next failure of a peer that nobody has asked for.
    #[must_use]
    pub fn take_failure(&self) -> Option<Failure> {
        self.shared.inner.borrow_mut().core.take_failure()
    }

    /// Whether a peer has closed in good order, and has not been connected with since.
    #[must_use]
    pub fn has_closed(&self, peer: PeerId) -> bool {
        self.shared.inner.borrow().core.has_closed(peer)
    }

    /// Forgets that a peer is gone: the next message to it connects anew, and [`Endpoint::flush`] does not tell what
    /// was lost with it.
    pub fn reset_peer(&self, peer: PeerId) {
        self.shared.inner.borrow_mut().core.reset_peer(peer.0);
    }

    /// The send path in use; `auto` when there are several to choose from.
    #[must_use]
    pub fn send_path(&self) -> &'static str {
        self.shared.inner.borrow().rail.send_path()
    }

    /// Whether the XDP receive path is used, so that packets are taken in and acknowledged while nobody calls.
    #[must_use]
    pub fn uses_xdp(&self) -> bool {
        self.shared.inner.borrow().rail.uses_xdp()
    }

    /// What is in use, and what the endpoint does without, why, and what mends it. Looks at the NICs anew.
    #[must_use]
    pub fn report(&self) -> Report {
        self.shared.inner.borrow().report()
    }

    /// Readable when [`Endpoint::progress`] has something to do: something has arrived, or a timer is due. For the event loop
    /// of an application, which calls [`Endpoint::progress`], or anything else of the endpoint that makes progress, whenever
    /// it is readable. `None` where nothing can be watched, so that one has to look now and then.
    ///
    /// Where the system gives no timer (a sandbox may forbid it), only what arrives makes it readable; a loop that wants
    /// to be right there too wakes up at [`Endpoint::deadline`].
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.show_descriptor()
    }

    /// When [`Endpoint::progress`] has something to do though nothing arrives: to send something again, to acknowledge, to
    /// ask after a silent peer. `None`: never. For event loops that cannot watch [`Endpoint::descriptor`], or have a timer.
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        let now = self.shared.now();
        let due = self.shared.inner.borrow().due(now);
        (due != Instant::NEVER).then(|| std::time::Instant::now() + Duration::from_nanos(due.since(now)))
    }

    /// How packets are spread over the paths to peers from now on, as [`Config::policy`].
    pub fn set_policy(&self, policy: Policy) {
        self.shared.inner.borrow_mut().set_policy(Some(policy), self.shared.clock.now());
    }

    /// What is known of the paths to a peer, in the order of their numbers: one for each of its NICs that is on a link of
    /// one of ours.
    #[must_use]
    pub fn paths(&self, peer: PeerId) -> Vec<PathReport> {
        self.shared.inner.borrow().core.paths(peer.0)
    }

    /// Every address by which a peer was connected to or that it has told of, and whether it is a path to it, or why
    /// not.
    #[must_use]
    pub fn explain(&self, peer: PeerId) -> Vec<(SocketAddr, String)> {
        self.shared.inner.borrow().core.explain(peer.0)
    }

    /// What the endpoint has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.inner.borrow().core.counters()
    }
}

impl Endpoint {
    /// Suspends the endpoint: nothing is said to anyone, and everything that it knows goes into a [`Context`]
    /// with which any process can go on, at the same address, before the peers' time-out has passed.
    ///
    /// PM, as P4 (Konishi et al., 1997) describes it, saves and restores a channel's context for gang scheduling; the context here is that of all
    /// channels of the endpoint with the flows they share: unacknowledged packets, half-arrived and
    /// undelivered messages. [Detach](Channel::detach) the channels first.
    ///
    /// # Errors
    /// Channels or messages of the endpoint are still held; the endpoint comes back with the error.
    pub fn suspend(self) -> Result<Context, (ContextError, Endpoint)> {
        let holders = Rc::strong_count(&self.shared) - 1;
        if holders > 0 {
            return Err((ContextError::InUse(holders), self));
        }
        if let Err(error) = self.shared.check_owner() {
            return Err((ContextError::Rail(error.to_string()), self));
        }
        let mut inner = self.shared.inner.borrow_mut();
        let Inner { core, rail, silent, .. } = &mut *inner;
        // So that no peer takes the closed port for our end.
        let now = self.shared.clock.now();
        if let Err(error) = core.say_away(now, &mut **rail) {
            drop(inner);
            return Err((ContextError::Rail(error.to_string()), self));
        }
        *silent = true;
        rail.quiesce();
        let context = core.save(self.shared.clock.now(), rail.address());
        inner.tell_of_end("endpoint suspended");
        drop(inner);
        Ok(context)
    }

    /// Goes on where [`Endpoint::suspend`] left off. Address, port, job and sizes of the receive memory come
    /// from the context, everything else from `config`.
    ///
    /// # Errors
    /// The port is taken (is the suspended process still alive?), or the context does not fit.
    pub fn resume(context: &Context, config: Config) -> Result<Endpoint, OpenError> {
        let config =
            config.bind(context.address().ip()).port(context.address().port()).peers_max(context.peers_max());
        let (rail, options, memory) = Endpoint::prepare(&config)?;
        let mut core = Core::new(options, memory);
        core.restore(context)?;
        Endpoint::assemble(core, rail, &config)
    }
}
