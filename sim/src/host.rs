//! One host: an endpoint without socket and clock, in a process that begins and ends.
//!
//! Here is what it is; what it does is in its folder. `calls.rs` is the top of that: one call is a turn of the application
//! with its errands, what the XDP program left, and a look at what the endpoint says of its peers.

mod application;
mod calls;
mod errands;
mod judge;
mod phases;
mod xdp;

use crate::check::Subject;
use crate::check::follow::Follower;
use crate::check::paths::PathsKnown;
use crate::forge;
use crate::ledger::Wrong;
use crate::memory::{self, Errand};
use crate::message::Label;
use crate::plan::HostPlan;
use crate::random::Random;
use crate::wire::{Spy, show};
use crate::world::World;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi::internal::{Core, Delivery, EndpointOptions, MulticastId, Payload, PeerView};
use tsumugi::multicast::MulticastGroup;
use tsumugi::{PeerId, Policy, Replacement, SendError};
use tsumugi_rail::Rail;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::{Flags, Header, Instant};

/// Translations that a window has room for: none, fewer than it has pages, and enough.
const TRANSLATIONS: [u32; 4] = [0, 2, 8, 64];

/// A message that the application keeps.
struct Kept {
    payload: Payload,
    label: Label,
    bytes: usize,
    until: Instant,
}

/// What a host knows of a peer.
#[derive(Default)]
struct Known {
    connection: u32,
    stretch: Option<u32>,
    /// When the failure of this peer was seen; the host may connect to it again some time later.
    failed_at: Option<Instant>,
    view: Option<PeerView>,
    /// When nothing was outstanding with it, or something was heard of it, last.
    quiet_since: Option<Instant>,
    /// Recovery: attempts, and whether one has arrived.
    tries: u32,
    reached: bool,
    paths: PathsKnown,
}

/// One host.
pub(crate) struct Host {
    index: usize,
    incarnation: u32,
    plan: HostPlan,
    random: Random,
    process: Option<Process>,
    called_at: Instant,
    pub(crate) silent_until: Instant,
    /// How long it had made no call before this one though it would have, ns.
    away_ns: u64,
    /// There is an XDP program on its NIC.
    attached: bool,
    /// How it spreads packets over its NICs, if it knows of them.
    policy: Option<Policy>,
    messages_left: u64,
    next_post: Instant,
    next_errand: Instant,
}

/// A process on a host.
struct Process {
    core: Core,
    spy: Spy,
    known: HashMap<u32, Known>,
    reading: Reading,
    /// Calls in a row after which a timer was still due though nothing had arrived.
    overdue: u32,
    /// The application has acted since the last progress.
    acted: bool,
    /// Addresses that datagrams have come from in this call.
    heard_from: Vec<SocketAddr>,
    leaving: bool,
    /// When it looks at its NICs next.
    nics_at: Instant,
    /// All paths were there at the last look in Recovery.
    paths_back: bool,
    /// What it has under way in other hosts' memory, and the last counts there: connection and value.
    errands: Vec<Errand>,
    counts: HashMap<u32, (u32, u64)>,
    follower: Follower,
    /// By which it sends to all others at once.
    multicast: Option<MulticastId>,
}

/// What a process reads.
struct Reading {
    /// Messages that it has taken and not given back.
    kept: VecDeque<Kept>,
    /// Failures since each channel was opened; what its owner must have heard.
    open: Vec<Option<u64>>,
    heard: Vec<u64>,
    /// There may be something to read.
    arrived: bool,
    read_at: Instant,
}

impl Reading {
    fn new(channels: u16, now: Instant) -> Reading {
        let channels = usize::from(channels);
        Reading {
            kept: VecDeque::new(),
            open: vec![None; channels],
            heard: vec![0; channels],
            arrived: true,
            read_at: now,
        }
    }
}

impl Host {
    pub(crate) fn new(world: &World, seed: u64, index: usize) -> Host {
        let plan = world.plan.hosts[index].clone();
        Host {
            index,
            incarnation: 0,
            random: Random::new(seed, 100 + index as u64),
            process: None,
            called_at: Instant(0),
            silent_until: Instant(0),
            away_ns: 0,
            attached: plan.uses_xdp,
            policy: (world.plan.multirail.as_ref())
                .and_then(|multirail| multirail.hosts[index].policy)
                .map(|policy| policy.under(plan.options.repeat)),
            messages_left: plan.messages,
            next_post: Instant(0),
            next_errand: Instant(0),
            plan,
        }
    }

    /// Packets that the process got again because they were damaged.
    pub(crate) fn repaired(&self) -> u64 {
        let counters = self.process.as_ref().map(|process| process.core.counters());
        counters.map_or(0, |counters| counters.get("packets_repaired"))
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        if self.process.is_some() {
            return Ok(());
        }
        self.incarnation += 1;
        let mut options = self.plan.options.clone();
        let bits = self.random.bits();
        options.seed = Some(bits);
        let mut geometry = Geometry::plain(options.peers_max, self.plan.queue_bytes);
        if world.plan.memory && self.plan.uses_xdp {
            geometry.window_pages = memory::window_pages(world.address_plan.hosts());
            geometry.translations = TRANSLATIONS[bits as usize % TRANSLATIONS.len()];
        }
        let memory = Memory::new(geometry).expect("a plan's geometry is possible");
        let mut rail = world.rail(self.index, options.datagram_bytes);
        rail.listen(options.listens);
        let mut spy = Spy::new(rail, world.network.clone(), Rc::clone(&world.wire), self.attached);
        spy.sent = world.plan.multirail.is_some().then(Vec::new);
        let mut core = Core::new(options, memory);
        if let Some(policy) = self.policy {
            core.set_policy(policy);
        }
        core.set_replacement(Replacement::ALL[(bits >> 8) as usize % Replacement::ALL.len()]);
        world.hosts[self.index].lanes =
            world.plan.memory.then(|| memory::lanes(&mut core, world.address_plan.hosts()));
        let multicast =
            world.plan.has_box.then(|| self.join_multicasts(&mut core, world, now)).transpose()?;
        self.process = Some(Process {
            core,
            spy,
            known: HashMap::new(),
            reading: Reading::new(world.plan.channels, now),
            overdue: 0,
            acted: false,
            heard_from: Vec::new(),
            leaving: false,
            nics_at: Instant(0),
            paths_back: false,
            follower: Follower::new(world.plan.habits.short_burst == 0.0),
            errands: Vec::new(),
            counts: HashMap::new(),
            multicast,
        });
        world.hosts[self.index].changed.fill(now);
        world.hosts[self.index].present_since = now;
        world.hosts[self.index].epoch = self.process.as_ref().map_or(0, |process| process.core.epoch());
        self.called_at = now;
        Ok(())
    }

    /// Joins the groups in which each host sends to all others.
    fn join_multicasts(&self, core: &mut Core, world: &World, now: Instant) -> Result<MulticastId, Wrong> {
        let hosts = world.address_plan.hosts();
        let group = |sender: usize| MulticastGroup { key: 7, number: sender as u64, size: hosts as u16 };
        let mut others = Vec::new();
        for other in (0..hosts).filter(|other| *other != self.index) {
            let address = world.address_plan.known_as(self.index, other);
            let id = core.add_peer(&format!("h{other}"), address).map_err(|error| error.to_string())?;
            let member = self.index + usize::from(self.index < other);
            core.receive_multicasts(now, group(other), member as u16, id);
            others.push(id);
        }
        Ok(core.send_multicasts(now, group(self.index), &others))
    }

    /// Ends the process. What had arrived is looked at before it is forgotten.
    pub(crate) fn stop(&mut self, world: &mut World, now: Instant, orderly: bool) -> Result<(), Wrong> {
        world.wire.borrow_mut().repaired += self.repaired();
        let Some(mut process) = self.process.take() else { return Ok(()) };
        world.hosts[self.index].present_since = Instant::NEVER;
        world.hosts[self.index].ended = Some((now, process.core.epoch()));
        world.hosts[self.index].lanes = None;
        if orderly {
            process.core.abort();
            world.hosts[self.index].left = now;
            let _ = process.core.transmit(now, &mut process.spy);
        }
        for kept in process.reading.kept.drain(..) {
            check_kept(&process.core, &kept)?;
        }
        // What the XDP program has acknowledged counts as delivered.
        process.core.drain(now);
        while let Some(failure) = process.core.take_failure() {
            world.ledger.damage(
                world.address_plan.host_of(failure.address)?,
                self.index,
                process.damaged(failure.peer),
            );
        }
        // And what was damaged would have come again.
        for index in 0..process.core.peers() {
            let damaged = process.damaged(PeerId(index));
            if let Some(address) = process.core.address_of(PeerId(index)) {
                world.ledger.damage(world.address_plan.host_of(address)?, self.index, damaged);
            }
        }
        for channel in 1..=world.plan.channels {
            while let Some(delivery) = process.core.take(channel) {
                if let Delivery::Message { source, payload } = delivery {
                    taken(self.index, self.incarnation, &process.core, world, channel, source, &payload)?;
                }
            }
        }
        for known in process.known.values() {
            if let Some(stretch) = known.stretch {
                world.ledger.end(stretch);
            }
        }
        world.hosts[self.index].changed.fill(now);
        Ok(())
    }

    /// From now on the host posts nothing, and leaves when all is delivered.
    pub(crate) fn leave(&mut self) {
        if let Some(process) = &mut self.process {
            process.leaving = true;
        }
    }

    /// Somebody to whom a message of `bytes` may be posted; `None`: not now.
    fn partner(
        &self,
        process: &mut Process,
        world: &World,
        now: Instant,
        to: usize,
        bytes: u64,
    ) -> Result<Option<PeerId>, Wrong> {
        let Process { core, known, .. } = process;
        let address = world.address_plan.known_as(self.index, to);
        let id = core.add_peer(&format!("h{to}"), address).map_err(|error| error.to_string())?;
        let peer = known.entry(id.0).or_default();
        if peer.failed_at.is_some_and(|at| now < at.plus(self.plan.sulks_ns)) {
            return Ok(None);
        }
        peer.failed_at = None;
        core.reset_peer(id.0);
        match core.may_post(id, bytes) {
            Ok(()) => Ok(Some(id)),
            Err(SendError::WouldBlock) => Ok(None),
            Err(error) => Err(format!("host {} cannot post: {error}", self.index)),
        }
    }

    /// Puts on the wire what the endpoint has to send.
    fn transmit(&mut self, process: &mut Process, now: Instant) -> Result<(), Wrong> {
        let Process { core, spy, follower, .. } = process;
        spy.pairs.clear();
        for index in 0..core.peers() {
            if let Some(view) = core.view(PeerId(index)).filter(|view| view.remote_token != 0) {
                spy.pairs.insert(view.remote_token, (view.local_token, view.epoch));
                if let Some(header) = spy.early.remove(&view.local_token) {
                    spy.wire.borrow_mut().on_answer(now, (view.remote_token, core.epoch()), &header);
                }
            }
        }
        core.transmit(now, spy).map_err(|error| error.to_string())?;
        for view in (0..core.peers()).filter_map(|index| core.view(PeerId(index))) {
            let flow = (view.local_token, view.epoch);
            spy.wire.borrow().check_told(flow, view.limit, spy.address())?;
        }
        follower.look(now, self.policy, core, spy)
    }

    /// From now on the host follows another path policy.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = Some(policy.under(self.plan.options.repeat));
        if let Some(process) = &mut self.process {
            process.core.set_policy(policy);
            process.follower.forget();
        }
    }

    /// What checks have to know of the host.
    fn subject(&self) -> Subject {
        let EndpointOptions { peer_timeout_ns, repeat, .. } = self.plan.options;
        Subject {
            index: self.index,
            timeout_ns: peer_timeout_ns,
            repeat,
            away_ns: self.away_ns,
            policy: self.policy,
        }
    }

    /// Whether the host is in the middle of leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.leaving)
    }
}

impl Process {
    /// Packets of a peer that arrived damaged and have not come again.
    fn damaged(&self, id: PeerId) -> u64 {
        self.core.view(id).map_or(0, |view| view.damaged)
    }

    fn audit_all(&self) -> Result<(), Wrong> {
        let lent = self.reading.kept.iter().map(|kept| match &kept.payload {
            Payload::Owned(buffer) => buffer.len() as u64,
            Payload::InPlace { .. } => 0,
        });
        self.core.audit_all(lent.sum())
    }
}

/// Enters a message that was taken into the ledger.
fn taken(
    at: usize,
    incarnation: u32,
    core: &Core,
    world: &mut World,
    channel: u16,
    source: u32,
    payload: &Payload,
) -> Result<(Label, usize), Wrong> {
    let from = core.address_of(PeerId(source)).ok_or("a message of nobody")?;
    let from = world.address_plan.host_of(from)?;
    let message = core.bytes_of(payload);
    let label = world.ledger.take(at, incarnation, from, channel, message)?;
    Ok((label, message.len()))
}

/// A message that was kept is still what it was.
fn check_kept(core: &Core, kept: &Kept) -> Result<(), Wrong> {
    if core.bytes_of(&kept.payload) == kept.label.message(kept.bytes) {
        Ok(())
    } else {
        Err(format!("{:?} changed while the application had it", kept.label))
    }
}

/// Looks at what arrives with the eyes of the endpoint that is about to take it, or of the program that takes it without
/// comparing CRCs.
fn watch(
    core: &Core,
    spy: &mut Spy,
    now: Instant,
    me: SocketAddr,
    from: SocketAddr,
    datagram: &[u8],
    compares: bool,
) {
    let mut wire = spy.wire.borrow_mut();
    let mut rest = datagram;
    while let Ok((header, body, next)) = Header::decode(rest) {
        rest = next;
        wire.note(now, || format!("{me} < {from} {}", show(&header)));
        if !header.kind.on_a_flow()
            || !header.flags.has(Flags::HAS_ACK)
            || compares && !header.flags.has(Flags::UNCHECKED) && header.body_crc != forge::crc32c(body)
        {
            continue;
        }
        let view = core.peer_of_flow(header.flow).and_then(|id| core.view(id));
        match view.filter(|view| view.local_token == header.token && view.epoch == header.epoch) {
            Some(view) if view.remote_token != 0 => {
                wire.on_answer(now, (view.remote_token, core.epoch()), &header);
            }
            Some(view) if !compares => _ = spy.early.insert(view.local_token, header),
            _ => {}
        }
    }
}
