//! The same cases in virtual time: the library's endpoints on simulated NICs. CPUs are infinitely fast there, so what is
//! seen is what the policies do with the NICs; it is the same in every run.

use std::net::SocketAddr;

use thiserror::Error;
use tsumugi::internal::{Core, EndpointOptions};
use tsumugi::{Config, PeerId, Policy, SendError};
use tsumugi_rail::memory::{Memory, MemoryError};
use tsumugi_rail::sim::{LinkOptions, Network, SimNic};
use tsumugi_rail::{Rail, RailError};
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

use super::case::Case;
use super::contender::Contender;
use super::flow::{BUCKET_NS, CHANNEL, HELLO, MESSAGE_BYTES};
use super::results::Run;
use tsumugi_lab::interrupt::interrupted;

mod nic;

use nic::Limited;

/// Longest datagram payload, bytes: that of Ethernet's usual MTU.
const DATAGRAM_BYTES: usize = 1472;
/// Time on the way to the receiver, and back, ns.
const LATENCY_NS: u64 = 30 * MICROSECOND_NS;
/// Time between two calls of a host, ns: it does something else meanwhile.
const CALL_NS: u64 = 20 * MICROSECOND_NS;
/// How long the paths may take to be found, ns.
const PATHS_NS_MAX: u64 = 10 * SECOND_NS;
/// Messages that a flow may send before it is the next one's turn.
const TURN_MESSAGES: u32 = 16;
/// Rate of the receivers' NICs, as of P2's: it is the senders' that are measured.
const RECEIVER_BITS_PER_S: u64 = 10_000_000_000;
/// Steps between two looks for Ctrl-C.
const STEPS_PER_LOOK: u32 = 4096;

/// Why a simulation did not come to its end.
#[derive(Debug, Error)]
pub(crate) enum SimulatedError {
    #[error("interrupted")]
    Interrupted,
    #[error("no memory to receive in: {0}")]
    Memory(#[from] MemoryError),
    #[error("a simulated NIC is broken: {0}")]
    Rail(#[from] RailError),
    #[error("a simulated endpoint cannot send: {0}")]
    Send(#[from] SendError),
    #[error("a simulated endpoint cannot have another peer: {0}")]
    Peer(#[from] tsumugi::PeerError),
    #[error("not all simulated NICs carry packets after {} s", PATHS_NS_MAX / SECOND_NS)]
    Paths,
}

/// Runs a case; cases usually take `time_s`.
pub(super) fn run(case: Case, policy: Policy, time_s: f64) -> Result<Run, SimulatedError> {
    let times_s = case.times_s(time_s);
    let mut cluster = Cluster::new(case)?;
    cluster.open_paths()?;
    cluster.hosts[SOURCE].core.set_policy(policy);
    // At the beginning of a bucket.
    cluster.begin = Instant(cluster.now.0.next_multiple_of(BUCKET_NS));
    cluster.until(cluster.begin, 0)?;
    let after = |seconds: f64| cluster.begin.plus((seconds * SECOND_NS as f64).round() as u64);
    let (joined, ended) = (after(times_s.0), after(times_s.0 + times_s.1));
    cluster.until(joined, 1)?;
    let before = cluster.packets();
    cluster.until(ended, case.senders as usize)?;
    let after = cluster.packets();
    let since = |(after, before): (&Vec<u64>, &Vec<u64>)| {
        after.iter().zip(before).map(|(after, before)| after - before).collect::<Vec<u64>>()
    };
    let mut packets: Vec<Vec<u64>> = after.iter().zip(&before).map(since).collect();
    let lost = packets.iter_mut().filter_map(Vec::pop).sum();
    Ok(Run {
        case,
        contender: Contender::Ours(policy),
        is_simulated: true,
        times_s,
        bytes: cluster.bytes,
        packets,
        lost,
        cpu_ns: None,
        send: "sim".to_owned(),
    })
}

/// An endpoint on its host.
struct Host {
    core: Core,
    rail: Limited,
    called_at: Instant,
}

/// The host that sends; the others receive.
const SOURCE: usize = 0;

struct Cluster {
    hosts: Vec<Host>,
    peers: Vec<PeerId>,
    nics: usize,
    now: Instant,
    begin: Instant,
    /// Payload bytes that arrived of each flow, by bucket.
    bytes: Vec<Vec<u64>>,
}

/// The NICs of a host, each in a network of its own.
fn nics(case: Case, host: usize) -> Vec<SimNic> {
    let speed_mbits = (case.rate.bits_per_s / 1_000_000) as u32;
    let address = |nic: u32| SocketAddr::from(([10, nic as u8, 0, host as u8 + 1], 7411));
    (0..case.nics).map(|nic| SimNic { speed_mbits, ..SimNic::new(address(nic), 24) }).collect()
}

impl Host {
    fn new(network: &Network, case: Case, number: usize) -> Result<Host, SimulatedError> {
        let config = Config::default();
        let options = EndpointOptions {
            job: config.job,
            accept_unknown: true,
            peers_max: case.senders + 1,
            repeat: config.repeat,
            peer_timeout_ns: config.peer_timeout.as_nanos() as u64,
            connect_timeout_ns: config.connect_timeout.as_nanos() as u64,
            listens: false,
            integrity: tsumugi::Integrity::Crc32c,
            message_bytes_max: config.message_bytes_max,
            receive_bytes: config.receive_bytes,
            send_bytes: config.send_bytes,
            datagram_bytes: DATAGRAM_BYTES,
            seed: Some(number as u64),
        };
        let memory = Memory::new(Geometry::plain(options.peers_max, config.queue_bytes))?;
        let mut core = Core::new(options, memory);
        core.open_channel(CHANNEL);
        let nics = nics(case, number);
        let rate = if number == SOURCE { case.rate.bits_per_s } else { RECEIVER_BITS_PER_S };
        let mut rail = Limited::new(network.rail_of(&nics, DATAGRAM_BYTES), &nics, rate);
        if let Some(nics) = rail.nics(Instant(0)) {
            core.set_nics(Instant(0), rail.address().port(), nics);
        }
        Ok(Host { core, rail, called_at: Instant(0) })
    }

    /// When it has something to do.
    fn due(&self) -> Instant {
        let mut due = self.rail.wake_at().min(self.core.deadline());
        if self.core.has_news() {
            due = Instant(0);
        }
        due.max(self.called_at.plus(CALL_NS))
    }

    /// Everything that an application's call does for its endpoint.
    fn call(&mut self, now: Instant) -> Result<(), RailError> {
        let Host { core, rail, called_at } = self;
        *called_at = now;
        // A rail hands over so many at a time.
        while rail.wake_at() <= now {
            rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes))?;
        }
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail)
    }
}

impl Cluster {
    fn new(case: Case) -> Result<Cluster, SimulatedError> {
        let network = Network::new(1, LinkOptions { latency_ns: LATENCY_NS, ..LinkOptions::default() });
        let hosts = (0..=case.senders as usize).map(|number| Host::new(&network, case, number));
        let mut hosts = hosts.collect::<Result<Vec<Host>, _>>()?;
        let addresses: Vec<SocketAddr> = hosts.iter().skip(1).map(|host| host.rail.address()).collect();
        let source = &mut hosts[SOURCE].core;
        let peers = addresses.iter().map(|address| source.add_peer(&address.to_string(), *address));
        let peers = peers.collect::<Result<Vec<PeerId>, _>>()?;
        let bytes = vec![Vec::new(); peers.len()];
        Ok(Cluster { hosts, peers, nics: case.nics as usize, now: Instant(0), begin: Instant::NEVER, bytes })
    }

    /// Says hello to everyone until every NIC carries packets to each.
    fn open_paths(&mut self) -> Result<(), SimulatedError> {
        let usable = |cluster: &Cluster, peer: &PeerId| {
            let paths = cluster.hosts[SOURCE].core.paths(peer.0);
            paths.iter().filter(|path| path.is_usable).count() >= cluster.nics
        };
        while !self.peers.iter().all(|peer| usable(self, peer)) {
            if self.now > Instant(PATHS_NS_MAX) {
                return Err(SimulatedError::Paths);
            }
            for peer in self.peers.clone() {
                self.hosts[SOURCE].core.post(self.now, peer, CHANNEL, &[HELLO])?;
            }
            self.hosts[SOURCE].call(self.now)?;
            self.until(self.now.plus(MILLISECOND_NS), 0)?;
        }
        Ok(())
    }

    /// Goes on until `end`, while the first so many flows send back to back.
    fn until(&mut self, end: Instant, flows: usize) -> Result<(), SimulatedError> {
        let mut steps = 0u32;
        self.post(flows)?;
        loop {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS_PER_LOOK) && interrupted() {
                return Err(SimulatedError::Interrupted);
            }
            let departures = self.hosts.iter().map(|host| host.rail.next_departure());
            let departure =
                departures.enumerate().min_by_key(|(_, at)| *at).unwrap_or((SOURCE, Instant::NEVER));
            let calls = self.hosts.iter().map(Host::due);
            let call = calls.enumerate().min_by_key(|(_, at)| *at).unwrap_or((SOURCE, Instant::NEVER));
            if departure.1.min(call.1) > end {
                self.now = self.now.max(end);
                return Ok(());
            }
            if departure.1 <= call.1 {
                self.now = self.now.max(departure.1);
                self.hosts[departure.0].rail.depart()?;
                continue;
            }
            self.now = self.now.max(call.1);
            self.hosts[call.0].call(self.now)?;
            match call.0 {
                SOURCE => self.post(flows)?,
                sink => self.take(sink),
            }
        }
    }

    /// Fills the queues of the first so many flows.
    fn post(&mut self, flows: usize) -> Result<(), SimulatedError> {
        let message = [0x5a; MESSAGE_BYTES];
        let core = &mut self.hosts[SOURCE].core;
        let mut full = vec![false; flows];
        while full.contains(&false) {
            for (full, &peer) in full.iter_mut().zip(&self.peers).filter(|(full, _)| !**full) {
                for _ in 0..TURN_MESSAGES {
                    match core.post(self.now, peer, CHANNEL, &message) {
                        Ok(_) => {}
                        Err(SendError::WouldBlock) => *full = true,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        let Host { core, rail, .. } = &mut self.hosts[SOURCE];
        Ok(core.transmit(self.now, rail)?)
    }

    /// Counts what has arrived.
    fn take(&mut self, sink: usize) {
        let mut bytes = 0;
        while let Some(taken) = self.hosts[sink].core.take_and_release(CHANNEL) {
            bytes += if taken == MESSAGE_BYTES { taken as u64 } else { 0 };
        }
        if bytes > 0 && self.now >= self.begin {
            let bucket = (self.now.since(self.begin) / BUCKET_NS) as usize;
            let flow = &mut self.bytes[sink - 1];
            flow.resize(flow.len().max(bucket + 1), 0);
            flow[bucket] += bytes;
        }
    }

    /// Packets of each flow that each NIC delivered so far; and, last, those found lost.
    fn packets(&self) -> Vec<Vec<u64>> {
        let of = |peer: &PeerId| {
            let paths = self.hosts[SOURCE].core.paths(peer.0);
            let lost = paths.iter().map(|path| path.lost).sum();
            paths.iter().map(|path| path.delivered).chain([lost]).collect()
        };
        self.peers.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(case: Case, policy: Policy) -> Run {
        run(case, policy, 0.3).expect("it comes to its end")
    }

    #[test]
    fn a_policy_that_ties_leaves_nics_idle_and_one_that_does_not_uses_all() {
        let few: Case = "2x4@100M".parse().expect("a case");
        let (tlb, adaptive) = (short(few, Policy::Tlb).row(), short(few, Policy::Adaptive).row());
        assert_eq!((tlb.nics_used(), adaptive.nics_used()), (Some(2), Some(4)));
        let gbit_s = |row: &super::super::results::CaseRow| row.row.gbit_s.expect("a throughput");
        assert!(gbit_s(&tlb) > 0.15 && gbit_s(&tlb) < 0.2, "{tlb:?}");
        assert!(gbit_s(&adaptive) > 1.5 * gbit_s(&tlb), "{adaptive:?}");
    }

    #[test]
    fn a_simulation_is_the_same_in_every_run() {
        let case: Case = "3x2@100M".parse().expect("a case");
        assert_eq!(short(case, Policy::Adaptive), short(case, Policy::Adaptive));
    }

    #[test]
    fn in_the_uneven_case_one_flow_begins_before_the_others() {
        let row = short(Case::UNEVEN, Policy::Hash).row();
        let joined = (row.joined_s / row.interval_s).round() as usize;
        for (flow, gbit_s) in row.flows_gbit_s.iter().enumerate() {
            let (before, after) = gbit_s.split_at(joined);
            assert_eq!(before.iter().any(|gbit_s| *gbit_s > 0.0), flow == 0);
            assert!(after.iter().all(|gbit_s| *gbit_s > 0.0), "{flow}: {after:?}");
        }
        let before = &row.flows_gbit_s[0][1..joined];
        assert!(before.iter().all(|gbit_s| (0.08..0.1).contains(gbit_s)), "it has a NIC: {before:?}");
    }
}
