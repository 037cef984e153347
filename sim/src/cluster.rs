//! A whole run: hosts, a network, virtual time, and the order in which things happen.

use crate::addresses::AddressPlan;
use crate::host::Host;
use crate::ledger::{Ledger, Wrong};
use crate::plan::Event;
use crate::planner;
use crate::random::Random;
use crate::switch_box::SwitchBox;
use crate::wire::Wire;
use crate::world::{HostFacts, Phase, World};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_rail::sim::{HostOptions, LinkOptions, Network};
use tsumugi_wire::Instant;

/// Calls in a run, at most: more is a loop that makes no progress.
const CALLS_MAX: u64 = 2_000_000;
/// Calls between two looks whether all is done.
const CALLS_BETWEEN_LOOKS: u64 = 16;

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Messages accepted.
    pub posted: u64,
    /// Messages taken by a receiver.
    pub taken: u64,
    /// Messages whose sender was told that they may not have arrived.
    pub failed: u64,
    /// Errands in others' memory that were done.
    pub errands: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// XOFFs sent.
    pub xoffs: u64,
    /// Pieces sent of packets that were too long for their path.
    pub pieces: u64,
    /// Packets deposited by XDP programs.
    pub by_xdp: u64,
    /// Those of them that were written directly.
    pub direct_writes: u64,
    /// Packets that were damaged when an XDP program deposited them, and came again.
    pub repaired: u64,
    /// Packets of peers with several paths whose path was compared with what the policy says.
    pub followed: u64,
    /// Paths that were given up because nothing came through.
    pub left: u64,
    /// Packets for several receivers that a switch box made others of.
    pub multicasts: u64,
    /// Packets that it made of them.
    pub parts: u64,
    /// Calls made by hosts.
    pub calls: u64,
    /// Virtual time at the end, ns.
    pub ended_at_ns: u64,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: &Report) {
        self.posted += other.posted;
        self.taken += other.taken;
        self.failed += other.failed;
        self.errands += other.errands;
        self.datagrams += other.datagrams;
        self.xoffs += other.xoffs;
        self.pieces += other.pieces;
        self.by_xdp += other.by_xdp;
        self.direct_writes += other.direct_writes;
        self.repaired += other.repaired;
        self.followed += other.followed;
        self.left += other.left;
        self.multicasts += other.multicasts;
        self.parts += other.parts;
        self.calls += other.calls;
        self.ended_at_ns += other.ended_at_ns;
    }
}

struct Cluster {
    hosts: Vec<Host>,
    world: World,
    now: Instant,
    calls: u64,
}

/// Runs a seed.
pub(crate) fn run(seed: u64, trace: &Rc<RefCell<Wire>>) -> Result<Report, Wrong> {
    let plan = planner::plan(seed);
    let network = Network::new(seed, plan.link);
    network.set_host_options(plan.habits);
    if plan.has_kernels {
        network.set_kernels(seed);
    }
    let address_plan = AddressPlan::new(plan.hosts.len(), plan.multirail.as_ref());
    let count = address_plan.hosts();
    let addresses: Vec<SocketAddr> = (0..count).map(|host| address_plan.address(host)).collect();
    trace.borrow_mut().capturing = plan.forged_one_in > 0;
    let forgets_one_in = Random::new(seed, 12).pick(&[0, 50, 500]);
    trace.borrow_mut().switch_box = plan.has_box.then(|| SwitchBox::new(seed, forgets_one_in));
    trace.borrow_mut().note(Instant(0), || format!("{plan:#?}"));
    let world = World {
        hosts: (0..count).map(|host| HostFacts::new(&plan, host, count)).collect(),
        bytes_left: plan.bytes_max,
        plan,
        network,
        wire: Rc::clone(trace),
        ledger: Ledger::default(),
        addresses,
        address_plan,
        nics: HashMap::new(),
        phase: Phase::Storm,
    };
    world.set_links(|link| link);
    let hosts = (0..count).map(|index| Host::new(&world, seed, index)).collect();
    Cluster { hosts, world, now: Instant(0), calls: 0 }.run()
}

impl Cluster {
    fn run(&mut self) -> Result<Report, Wrong> {
        for host in &mut self.hosts {
            host.start(&mut self.world, Instant(0))?;
        }
        self.storm()?;
        self.calm_down()?;
        let patience_ns = self.world.plan.patience_ns();
        self.phase(Phase::Settling, patience_ns)?;
        self.phase(Phase::Recovery, 6 * patience_ns)?;
        self.phase(Phase::Closing, patience_ns)?;
        self.world.ledger.check_settled()?;
        let statistics = self.world.network.statistics();
        if statistics.too_long > 0 {
            return Err(format!("{} datagrams were longer than the NIC takes", statistics.too_long));
        }
        Ok(Report {
            posted: self.world.ledger.posted,
            taken: self.world.ledger.taken,
            failed: self.world.ledger.failed,
            errands: self.world.ledger.errands,
            datagrams: statistics.sent,
            xoffs: self.world.wire.borrow().xoffs,
            pieces: self.world.wire.borrow().pieces,
            by_xdp: self.world.wire.borrow().by_xdp,
            direct_writes: self.world.wire.borrow().direct_writes,
            repaired: self.world.wire.borrow().repaired + self.hosts.iter().map(Host::repaired).sum::<u64>(),
            followed: self.world.wire.borrow().followed,
            left: self.world.wire.borrow().left,
            multicasts: self.world.wire.borrow().switch_box.as_ref().map_or(0, |its| its.multicasts),
            parts: self.world.wire.borrow().switch_box.as_ref().map_or(0, |its| its.parts),
            calls: self.calls,
            ended_at_ns: self.now.0,
        })
    }

    /// Traffic and faults, until the plan ends.
    fn storm(&mut self) -> Result<(), Wrong> {
        let events = self.world.plan.events.clone();
        for (at, event) in events {
            self.until(at.min(self.world.plan.ends_at))?;
            if at <= self.world.plan.ends_at {
                self.happen(event)?;
            }
        }
        self.until(self.world.plan.ends_at)
    }

    fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        let Cluster { hosts, world, now, .. } = self;
        let now = *now;
        world.network.advance(now);
        world.wire.borrow_mut().note(now, || format!("{event:?}"));
        match event {
            Event::Silence { host, until } => {
                hosts[host].silent_until = until;
                world.hosts[host].present_since = world.hosts[host].present_since.max(until);
            }
            Event::Cut { from, to, one_way } => world.cut(from, to, one_way),
            Event::Heal { from, to } => world.heal(from, to),
            Event::Stop { host, orderly } => hosts[host].stop(world, now, orderly)?,
            Event::Start { host } => hosts[host].start(world, now)?,
            Event::Leave { host } => hosts[host].leave(),
            Event::Program { host, attached } => hosts[host].attach(now, attached)?,
            Event::Nic { host, network, options } => world.set_nic(now, host, network, options),
            Event::Policy { host, policy } => hosts[host].set_policy(policy),
            Event::Mtu { datagram_bytes, tells } => {
                world.plan.link = LinkOptions { datagram_bytes, tells, ..world.plan.link };
                world.network.set_options(world.plan.link);
            }
        }
        Ok(())
    }

    /// Everything mends: the rest of the plan's events are those that mend.
    fn calm_down(&mut self) -> Result<(), Wrong> {
        let Cluster { hosts, world, now, .. } = self;
        world.network.advance(*now);
        let flawless = |link: LinkOptions| {
            let LinkOptions { latency_ns, rate_bits_per_s, datagram_bytes, tells, .. } = link;
            LinkOptions { latency_ns, rate_bits_per_s, datagram_bytes, tells, ..LinkOptions::default() }
        };
        world.network.set_options(flawless(world.plan.link));
        world.set_links(flawless);
        world.mend_nics(*now);
        world.network.set_host_options(HostOptions::default());
        for (index, host) in hosts.iter_mut().enumerate() {
            for other in 0..index {
                world.heal(index, other);
            }
            if host.is_leaving() {
                host.stop(world, *now, false)?;
            }
            host.start(world, *now)?;
        }
        Ok(())
    }

    /// Goes on until everything is as the phase wants it.
    fn phase(&mut self, phase: Phase, patience_ns: u64) -> Result<(), Wrong> {
        self.world.phase = phase;
        self.world.wire.borrow_mut().note(self.now, || format!("{phase:?}"));
        for host in &mut self.hosts {
            host.enter(phase, self.now);
        }
        let deadline = self.now.plus(patience_ns);
        loop {
            let more = (0..CALLS_BETWEEN_LOOKS)
                .try_fold(true, |more, _| -> Result<bool, Wrong> { Ok(more && self.step(deadline)?) })?;
            let undone = self.hosts.iter().find_map(|host| host.is_done(&self.world).err());
            match undone {
                None => break,
                Some(undone) if !more => return Err(format!("{phase:?} does not end: {undone}")),
                Some(_) => {}
            }
        }
        for host in &self.hosts {
            host.audit_at_rest()?;
        }
        Ok(())
    }

    fn until(&mut self, end: Instant) -> Result<(), Wrong> {
        while self.step(end)? {}
        self.now = self.now.max(end);
        Ok(())
    }

    /// The next call of the host whose turn it is, or what arrives at a NIC before. `false` when nothing happens
    /// before `end`.
    fn step(&mut self, end: Instant) -> Result<bool, Wrong> {
        let turns = self.hosts.iter().map(|host| host.next_call(&self.world));
        let Some((host, at)) = turns.enumerate().min_by_key(|(_, at)| *at) else { return Ok(false) };
        let arrivals = self.hosts.iter().map(Host::next_arrival);
        let arrival = arrivals.enumerate().min_by_key(|(_, arrival)| *arrival);
        if let Some((host, arrival)) = arrival.filter(|(_, arrival)| *arrival <= at.min(end)) {
            self.now = self.now.max(arrival);
            self.hosts[host].run_xdp(&mut self.world, self.now)?;
            return Ok(true);
        }
        if at > end {
            return Ok(false);
        }
        self.now = self.now.max(at);
        self.calls += 1;
        if self.calls > CALLS_MAX {
            return Err(format!("{CALLS_MAX} calls and no end"));
        }
        self.hosts[host].call(&mut self.world, self.now)?;
        Ok(true)
    }
}
