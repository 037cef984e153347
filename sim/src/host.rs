//! One host: an endpoint without socket and clock, and an application that posts, reads and keeps.

mod errands;
mod judge;

use crate::addresses::PORT;
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
use crate::world::{AWAY_NS, Phase, World};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi::internal::{Delivery, EndpointOptions, Payload, PeerView, State};
use tsumugi::{PeerId, Policy, Replacement};
use tsumugi_rail::Rail;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::memory::{Counter, Geometry};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Header, Instant};

/// The process of a host with XDP looks into its socket in all but one of so many calls.
const BLIND_ONE_IN: u64 = 3;
/// The process of a host with XDP computes after one in so many calls.
const COMPUTES_ONE_IN: u64 = 50;
/// Translations that a window has room for: none, fewer than it has pages, and enough.
const TRANSLATIONS: [u32; 4] = [0, 2, 8, 64];
/// Time between two looks at the NICs, ns: as an endpoint looks.
const NICS_EVERY_NS: u64 = 5 * MILLISECOND_NS;
/// See [`Process::overdue`].
const OVERDUE_MAX: u32 = 4;

/// A message that the application keeps.
pub(crate) struct Kept {
    pub(crate) payload: Payload,
    pub(crate) label: Label,
    pub(crate) bytes: usize,
    pub(crate) until: Instant,
}

/// What a host knows of a peer.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) connection: u32,
    pub(crate) stretch: Option<u32>,
    /// When the failure of this peer was seen; the host may connect to it again some time later.
    pub(crate) failed_at: Option<Instant>,
    pub(crate) view: Option<PeerView>,
    /// When nothing was outstanding with it, or something was heard of it, last.
    pub(crate) quiet_since: Option<Instant>,
    /// Recovery: attempts, and whether one has arrived.
    pub(crate) tries: u32,
    pub(crate) reached: bool,
    pub(crate) paths: PathsKnown,
}

/// One host.
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) incarnation: u32,
    pub(crate) plan: HostPlan,
    pub(crate) random: Random,
    pub(crate) process: Option<Process>,
    pub(crate) called_at: Instant,
    pub(crate) silent_until: Instant,
    /// How long it had made no call before this one though it would have, ns.
    pub(crate) away_ns: u64,
    /// There is an XDP program on its NIC.
    pub(crate) attached: bool,
    /// How it spreads packets over its NICs, if it knows of them.
    pub(crate) policy: Option<Policy>,
    pub(crate) messages_left: u64,
    pub(crate) next_post: Instant,
    pub(crate) next_errand: Instant,
}

/// A process on a host.
pub(crate) struct Process {
    pub(crate) state: State,
    pub(crate) spy: Spy,
    pub(crate) known: HashMap<u32, Known>,
    pub(crate) kept: VecDeque<Kept>,
    /// Failures since each channel was opened; what its owner must have heard.
    pub(crate) open: Vec<Option<u64>>,
    pub(crate) heard: Vec<u64>,
    pub(crate) arrived: bool,
    pub(crate) read_at: Instant,
    /// Calls in a row after which a timer was still due though nothing had arrived.
    pub(crate) overdue: u32,
    /// The application has acted since the last progress.
    pub(crate) acted: bool,
    /// Addresses that datagrams have come from in this call.
    pub(crate) heard_from: Vec<SocketAddr>,
    pub(crate) leaving: bool,
    /// When it looks at its NICs next.
    pub(crate) nics_at: Instant,
    /// All paths were there at the last look in Recovery.
    pub(crate) paths_back: bool,
    /// What it has under way in other hosts' memory, and the last counts there: connection and value.
    pub(crate) errands: Vec<Errand>,
    pub(crate) counts: HashMap<u32, (u32, u64)>,
    pub(crate) follower: Follower,
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
        let counters = self.process.as_ref().map(|process| process.state.counters());
        counters.map_or(0, |counters| counters.get("packets_repaired"))
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, world: &mut World, now: Instant) {
        if self.process.is_some() {
            return;
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
        let mut spy = Spy::new(rail, Rc::clone(&world.wire), self.attached);
        spy.sent = world.plan.multirail.is_some().then(Vec::new);
        let mut state = State::new(options, memory);
        if let Some(policy) = self.policy {
            state.set_policy(policy);
        }
        state.set_replacement(Replacement::ALL[(bits >> 8) as usize % Replacement::ALL.len()].0);
        world.lanes[self.index] =
            world.plan.memory.then(|| memory::lanes(&mut state, world.address_plan.hosts()));
        self.process = Some(Process {
            state,
            spy,
            known: HashMap::new(),
            kept: VecDeque::new(),
            open: vec![None; usize::from(world.plan.channels)],
            heard: vec![0; usize::from(world.plan.channels)],
            arrived: true,
            read_at: now,
            overdue: 0,
            acted: false,
            heard_from: Vec::new(),
            leaving: false,
            nics_at: Instant(0),
            paths_back: false,
            follower: Follower::new(world.plan.habits.short_burst == 0.0),
            errands: Vec::new(),
            counts: HashMap::new(),
        });
        world.changed[self.index].fill(now);
        world.present_since[self.index] = now;
        world.epochs[self.index] = self.process.as_ref().map_or(0, |process| process.state.epoch());
        self.called_at = now;
    }

    /// Ends the process. What had arrived is looked at before it is forgotten.
    pub(crate) fn stop(&mut self, world: &mut World, now: Instant, orderly: bool) -> Result<(), Wrong> {
        world.wire.borrow_mut().repaired += self.repaired();
        let Some(mut process) = self.process.take() else { return Ok(()) };
        world.present_since[self.index] = Instant::NEVER;
        world.ended[self.index] = Some((now, process.state.epoch()));
        world.lanes[self.index] = None;
        if orderly {
            process.state.abort();
            world.left[self.index] = now;
            let _ = process.state.transmit(now, &mut process.spy);
        }
        for kept in process.kept.drain(..) {
            check_kept(&process.state, &kept)?;
        }
        // What the XDP program has acknowledged counts as delivered.
        process.state.drain(now);
        while let Some(failure) = process.state.take_failure() {
            world.ledger.damage(
                world.address_plan.host_of(failure.address)?,
                self.index,
                process.damaged(failure.peer),
            );
        }
        // And what was damaged would have come again.
        for index in 0..process.state.peers() {
            let damaged = process.damaged(PeerId(index));
            if let Some(address) = process.state.address_of(PeerId(index)) {
                world.ledger.damage(world.address_plan.host_of(address)?, self.index, damaged);
            }
        }
        for channel in 1..=world.plan.channels {
            while let Some(delivery) = process.state.take(channel) {
                if let Delivery::Message { source, payload } = delivery {
                    taken(self.index, self.incarnation, &process.state, world, channel, source, &payload)?;
                }
            }
        }
        for known in process.known.values() {
            if let Some(stretch) = known.stretch {
                world.ledger.end(stretch);
            }
        }
        world.changed[self.index].fill(now);
        Ok(())
    }

    /// From now on the host posts nothing, and leaves when all is delivered.
    pub(crate) fn leave(&mut self) {
        if let Some(process) = &mut self.process {
            process.leaving = true;
        }
    }

    /// When the host will call next.
    pub(crate) fn next_call(&self, world: &World) -> Instant {
        let Some(process) = &self.process else { return Instant::NEVER };
        let mut due = process.spy.wake_at().min(process.state.deadline()).min(self.next_app(world, process));
        if process.state.has_news() {
            due = Instant(0); // the doorbell has rung
        }
        due.max(self.called_at.plus(self.plan.call_ns)).max(self.silent_until)
    }

    fn next_app(&self, world: &World, process: &Process) -> Instant {
        let mut due = if process.acted { Instant(0) } else { Instant::NEVER };
        if world.phase == Phase::Storm {
            if self.messages_left > 0 && !process.leaving {
                due = due.min(self.next_post);
            }
            for (at, _) in
                self.plan.reader.opens_at.iter().zip(&process.open).filter(|(_, open)| open.is_none())
            {
                due = due.min(*at);
            }
            if let Some(kept) = process.kept.front() {
                due = due.min(kept.until);
            }
        } else if !process.kept.is_empty() || process.open.iter().any(Option::is_none) {
            due = Instant(0);
        }
        if world.phase == Phase::Recovery && !self.has_recovered(world) {
            due = due.min(self.called_at.plus(MILLISECOND_NS));
        }
        if process.errands.iter().any(Errand::has_more) {
            due = due.min(self.called_at.plus(MILLISECOND_NS));
        }
        if process.arrived {
            due = due.min(process.read_at.plus(self.plan.reader.every_ns));
        }
        due
    }

    /// One call of everything, as an application would.
    pub(crate) fn call(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        self.away_ns = self.silent_until.min(now).since(self.called_at);
        self.called_at = now;
        self.get_forged(world, now)?;
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let outcome = self.call_process(&mut process, world, now);
        self.process = Some(process);
        let computes = world.phase == Phase::Storm && self.plan.computes_ns > 0;
        if computes && self.random.one_in(COMPUTES_ONE_IN) {
            self.silent_until = self.silent_until.max(now.plus(self.random.below(self.plan.computes_ns)));
        }
        if self.silent_until > now.plus(AWAY_NS) {
            let since = &mut world.present_since[self.index];
            *since = self.silent_until.max(*since);
        }
        outcome
    }

    /// Now and then a datagram arrives that nobody sent.
    fn get_forged(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let forged_one_in = world.plan.forged_one_in;
        if world.phase != Phase::Storm || forged_one_in == 0 || !self.random.one_in(forged_one_in) {
            return Ok(());
        }
        let me = world.any_address(&mut self.random, self.index);
        let forged = forge::forge(&mut self.random, &world.wire.borrow(), me, &world.addresses);
        let Some((from, bytes)) = forged else { return Ok(()) };
        world.wire.borrow_mut().note(now, || format!("{me} gets a forged datagram as from {from}"));
        if self.attached {
            return self.run_xdp_on(world, now, from, bytes);
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        process.spy.passed.push_back((from, bytes));
        Ok(())
    }

    fn call_process(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        if process.acted || self.random.one_in(2) {
            self.application(process, world, now)?;
            self.progress(process, world, now)
        } else {
            self.progress(process, world, now)?;
            self.application(process, world, now)?;
            // What it posted and released may want to be sent: a process makes progress before it sleeps.
            process.acted = true;
            Ok(())
        }
    }

    fn progress(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let me = world.addresses[self.index];
        // A long message may begin and end with what the XDP program took: credit to finish it is fair. So is credit
        // for all, as soon as what a peer was sending is forgotten with its flow, though others fill the memory before
        // the call is over.
        let mut least_held = if process.state.has_news() { 0 } else { process.state.held_bytes() };
        let Process { state, spy, heard_from, .. } = process;
        let mut arrived = usize::from(state.has_news());
        // What was deposited and what was passed on are seen in any order.
        if !spy.attached || !self.random.one_in(BLIND_ONE_IN) {
            arrived += spy.hand_over(now, |spy, from, bytes| {
                watch(state, spy, now, me, from, bytes, true);
                state.on_datagram(now, from, bytes);
                least_held = least_held.min(state.held_bytes());
                heard_from.push(from);
            })?;
        }
        process.arrived |= arrived > 0;
        self.look_at_nics(process, now);
        process.state.drain(now);
        process.state.tick(now);
        if process.leaving && process.state.is_flushed() {
            process.state.leave(now);
            world.left[self.index] = now;
        }
        if self.plan.flushes_acks && self.random.one_in(4) {
            process.state.flush_acks();
        }
        self.transmit(process, now)?;
        process.acted = false;
        process.state.audit()?;
        // A timer may be seen late once, not again and again: a process that sleeps until the deadline would never sleep.
        let overdue = arrived == 0 && process.state.deadline() <= now;
        process.overdue = if overdue { process.overdue + 1 } else { 0 };
        if process.overdue > OVERDUE_MAX {
            return Err(format!("host {} has a timer that is always due", self.index));
        }
        self.look_at_failures(process, world, now)?;
        let full = least_held.min(process.state.held_bytes()) > self.plan.options.receive_bytes;
        self.look_at_peers(process, world, now, full)?;
        if self.random.one_in(32) {
            process.audit_all()?;
        }
        for (counter, name) in
            [(Counter::Violation, "a violation"), (Counter::BeyondBitmap, "a PSN beyond the bitmap")]
        {
            if process.state.counted(counter) > 0 {
                return Err(format!("host {} counts {name} where everybody keeps to the rules", self.index));
            }
        }
        let wrong = world.wire.borrow_mut().wrong.take();
        wrong.map_or(Ok(()), Err)
    }

    /// Tells the endpoint of its NICs now and then, as its owner does.
    fn look_at_nics(&mut self, process: &mut Process, now: Instant) {
        if self.policy.is_none() || now < process.nics_at {
            return;
        }
        process.nics_at = now.plus(NICS_EVERY_NS);
        if let Some(nics) = process.spy.rail.nics(now) {
            process.state.set_nics(now, PORT, nics);
        }
    }

    pub(crate) fn transmit(&mut self, process: &mut Process, now: Instant) -> Result<(), Wrong> {
        let Process { state, spy, follower, .. } = process;
        spy.pairs.clear();
        for index in 0..state.peers() {
            if let Some(view) = state.view(PeerId(index)).filter(|view| view.remote_token != 0) {
                spy.pairs.insert(view.remote_token, (view.local_token, view.epoch));
                if let Some(header) = spy.early.remove(&view.local_token) {
                    spy.wire.borrow_mut().on_answer(now, (view.remote_token, state.epoch()), &header);
                }
            }
        }
        state.transmit(now, spy).map_err(|error| error.to_string())?;
        for view in (0..state.peers()).filter_map(|index| state.view(PeerId(index))) {
            let flow = (view.local_token, view.epoch);
            spy.wire.borrow().check_told(flow, view.limit, spy.address())?;
        }
        follower.look(now, self.policy, state, spy)
    }

    /// Whether everything is as the phase wants it, or what is not.
    pub(crate) fn is_done(&self, world: &World) -> Result<(), Wrong> {
        let Some(process) = &self.process else { return Ok(()) };
        let state = &process.state;
        let unlike = |what: &str| Err(format!("host {} {what}", self.index));
        for index in 0..state.peers() {
            let Some(view) = state.view(PeerId(index)) else { continue };
            if view.waiting {
                let PeerView { held, assembling, .. } = view;
                return Err(format!(
                    "host {} still waits for peer {index} ({held} packets held, assembling: {assembling})",
                    self.index
                ));
            }
            if view.open && world.wire.borrow().owes_xon((view.local_token, view.epoch)) {
                return Err(format!("host {} has said XOFF to peer {index} and never XON", self.index));
            }
        }
        if !state.is_flushed() {
            return unlike("has messages that are not delivered");
        }
        if !process.kept.is_empty() || process.arrived || process.open.iter().any(Option::is_none) {
            return unlike("has not read everything");
        }
        if let Some(exhausted) = state.exhausted() {
            return Err(format!("host {} is exhausted with nothing kept: {exhausted:?}", self.index));
        }
        if !process.errands.is_empty() {
            return unlike("waits for what comes of its errands");
        }
        if world.phase == Phase::Recovery && !self.has_recovered(world) {
            return unlike("has not reached everybody");
        }
        if world.phase == Phase::Closing && !state.has_left() {
            return unlike("has not left");
        }
        Ok(())
    }

    /// What must hold when everything is settled and read.
    pub(crate) fn audit_at_rest(&self) -> Result<(), Wrong> {
        let Some(process) = &self.process else { return Ok(()) };
        process.audit_all()?;
        if process.state.held_bytes() != 0 {
            return Err(format!("host {} holds {} bytes of nothing", self.index, process.state.held_bytes()));
        }
        for (channel, (failures, heard)) in process.open.iter().zip(&process.heard).enumerate() {
            if *failures != Some(*heard) {
                return Err(format!(
                    "host {} was told {heard} of {failures:?} failures on channel {}",
                    self.index,
                    channel + 1
                ));
            }
        }
        Ok(())
    }

    /// What the host does from here on when the phase changes.
    pub(crate) fn enter(&mut self, phase: Phase, now: Instant) {
        self.silent_until = self.silent_until.min(now);
        if let Some(process) = &mut self.process {
            process.arrived = true;
            process.leaving |= phase == Phase::Closing;
        }
    }

    /// From now on the host follows another path policy.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = Some(policy.under(self.plan.options.repeat));
        if let Some(process) = &mut self.process {
            process.state.set_policy(policy);
            process.follower.forget();
        }
    }

    /// What checks have to know of the host.
    pub(crate) fn subject(&self) -> Subject {
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
        self.state.view(id).map_or(0, |view| view.damaged)
    }

    fn audit_all(&self) -> Result<(), Wrong> {
        let lent = self.kept.iter().map(|kept| match &kept.payload {
            Payload::Owned(buffer) => buffer.len() as u64,
            Payload::InPlace { .. } => 0,
        });
        self.state.audit_all(lent.sum())
    }
}

/// Enters a message that was taken into the ledger.
pub(crate) fn taken(
    at: usize,
    incarnation: u32,
    state: &State,
    world: &mut World,
    channel: u16,
    source: u32,
    payload: &Payload,
) -> Result<(Label, usize), Wrong> {
    let from = state.address_of(PeerId(source)).ok_or("a message of nobody")?;
    let from = world.address_plan.host_of(from)?;
    let message = state.bytes_of(payload);
    let label = world.ledger.take(at, incarnation, from, channel, message)?;
    Ok((label, message.len()))
}

/// A message that was kept is still what it was.
pub(crate) fn check_kept(state: &State, kept: &Kept) -> Result<(), Wrong> {
    if state.bytes_of(&kept.payload) == kept.label.message(kept.bytes) {
        Ok(())
    } else {
        Err(format!("{:?} changed while the application had it", kept.label))
    }
}

/// Looks at what arrives with the eyes of the endpoint that is about to take it, or of the program that takes it without
/// comparing CRCs.
pub(crate) fn watch(
    state: &State,
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
            || compares && header.body_crc != forge::crc32c(body)
        {
            continue;
        }
        let view = state.peer_of_flow(header.flow).and_then(|id| state.view(id));
        match view.filter(|view| view.local_token == header.token && view.epoch == header.epoch) {
            Some(view) if view.remote_token != 0 => {
                wire.on_answer(now, (view.remote_token, state.epoch()), &header);
            }
            Some(view) if !compares => _ = spy.early.insert(view.local_token, header),
            _ => {}
        }
    }
}
