//! Clusters in which every host uses every programming model at once, over one endpoint, under faults.
//!
//! Here the endpoints are whole: what is simulated is the network and the clock. A host has a part for each model;
//! each part sends to the other hosts what only it can have sent, and knows of what arrives whether it is the next, whole
//! and unaltered. When the storm is over and the network calm, everything has to have arrived.

mod counters;
mod groups;
mod letters;
mod requests;
mod tagged;
mod threads;

use crate::random::Random;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi::internal::{EndpointOptions, open_simulated};
use tsumugi::{Endpoint, PeerId, Repeat, Target};
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{HostOptions, LinkOptions, Network};
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// Things that a part sends at most.
const ACTS_MAX: u64 = 60;
/// Time after the storm within which everything must have arrived, ns.
const CALM_NS: u64 = 30 * SECOND_NS;

/// What went wrong.
pub(crate) type Wrong = String;

/// What was sent and taken, by model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelsReport {
    /// Messages on channels.
    pub letters: u64,
    /// Requests of active messages.
    pub requests: u64,
    /// Messages of streams.
    pub threads: u64,
    /// Tagged messages.
    pub tagged: u64,
    /// Words of remote memory that were changed.
    pub counters: u64,
    /// Collective operations.
    pub collectives: u64,
    /// Datagrams that were lost, doubled, held back or damaged.
    pub faults: u64,
}

impl ModelsReport {
    /// Adds another run.
    pub fn add(&mut self, other: &ModelsReport) {
        self.letters += other.letters;
        self.requests += other.requests;
        self.threads += other.threads;
        self.tagged += other.tagged;
        self.counters += other.counters;
        self.collectives += other.collectives;
        self.faults += other.faults;
    }
}

/// Where a part is, and where the others are.
pub(crate) struct Site {
    me: usize,
    endpoint: Endpoint,
    /// The other hosts, by number; `None` for this one.
    peers: Vec<Option<PeerId>>,
    /// Where each host's counters are.
    counters: Vec<Target>,
}

impl Site {
    fn peer(&self, host: usize) -> PeerId {
        self.peers[host].expect("another host")
    }

    fn host(&self, peer: PeerId) -> usize {
        self.peers.iter().position(|known| *known == Some(peer)).expect("a host of the cluster")
    }

    /// Another host.
    fn another(&self, random: &mut Random) -> usize {
        let hosts = self.peers.len();
        (self.me + 1 + random.below(hosts as u64 - 1) as usize) % hosts
    }
}

/// One model at one host.
pub(crate) trait Part {
    /// Sends something to somebody, if there is room.
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong>;
    /// Takes what has arrived, and checks it. Nothing more is sent when it is `calm`.
    fn poll(&mut self, site: &Site, calm: bool) -> Result<(), Wrong>;
    /// What it has sent to a host.
    fn sent_to(&self, host: usize) -> u64;
    /// What it has taken from a host.
    fn taken_from(&self, host: usize) -> u64;
    /// Whether nothing of its own is under way.
    fn is_quiet(&self) -> bool;
}

/// What message `number` from one host to another consists of.
fn payload(from: usize, to: usize, number: u64, bytes: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((from << 4 | to) as u64);
    let mut all = Vec::with_capacity(bytes + 8);
    all.extend_from_slice(&number.to_le_bytes());
    all.extend((8..bytes).map(|at| (seed >> (at % 57)) as u8 ^ at as u8));
    all.truncate(bytes);
    all
}

/// A length, mostly short.
fn length(random: &mut Random) -> usize {
    let most = random.pick(&[40, 40, 300, 3000, 30_000]);
    random.between(8, most) as usize
}

struct Host {
    site: Site,
    parts: Vec<Box<dyn Part>>,
    acts: Vec<u64>,
}

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Result<ModelsReport, Wrong> {
    let mut random = Random::new(seed, 1 << 32);
    let time = Rc::new(Cell::new(0));
    let network = Network::new(seed, link(&mut random));
    network.set_host_options(HostOptions { short_burst: 0.05, coalesce: 0.3 });
    let mut hosts = cluster(&mut random, &network, &time)?;
    let storm_ns = random.between(5, 60) * MILLISECOND_NS;
    let (mut calm, mut cut) = (false, None);
    loop {
        let now = time.get();
        if !calm && now >= storm_ns {
            network.set_options(LinkOptions::default());
            heal(&network, &mut cut);
            calm = true;
        }
        for host in &mut hosts {
            let Host { site, parts, acts } = host;
            // A host that computes for a while.
            if !random.one_in(4) {
                for (part, acts) in parts.iter_mut().zip(acts) {
                    if !calm && *acts < ACTS_MAX && random.one_in(8) {
                        *acts += 1;
                        part.act(&mut random, site)?;
                    }
                    part.poll(site, calm).map_err(|wrong| format!("host {}: {wrong}", site.me))?;
                }
            }
        }
        if calm && is_done(&hosts) {
            return Ok(report(&hosts, &network));
        }
        if now > storm_ns + CALM_NS {
            return Err(format!("it does not end: {}", missing(&hosts)));
        }
        let (a, b) = (random.below(hosts.len() as u64) as usize, random.below(hosts.len() as u64) as usize);
        match cut {
            Some((until, ..)) if now >= until => heal(&network, &mut cut),
            None if !calm && a != b && random.one_in(300) => {
                network.cut(address(a), address(b));
                cut = Some((now + random.between(1, 20) * MILLISECOND_NS, a, b));
            }
            _ => {}
        }
        let next = network.next_delivery().min(Instant(now + MILLISECOND_NS));
        time.set(next.0.max(now + random.between(1, 20) * MICROSECOND_NS));
    }
}

fn heal(network: &Network, cut: &mut Option<(u64, usize, usize)>) {
    if let Some((_, a, b)) = cut.take() {
        network.heal(address(a), address(b));
    }
}

fn link(random: &mut Random) -> LinkOptions {
    let mut share = |most: u64| random.below(most + 1) as f64 / 1000.0;
    let (loss, duplicate, reorder, corrupt) = (share(50), share(30), share(100), share(10));
    LinkOptions {
        latency_ns: random.between(1, 50) * MICROSECOND_NS,
        jitter_ns: random.below(100) * MICROSECOND_NS,
        rate_bits_per_s: random.pick(&[0, 100_000_000, 1_000_000_000]),
        queue_bytes: 200_000,
        loss,
        duplicate,
        reorder,
        corrupt,
        ..LinkOptions::default()
    }
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7411))
}

fn cluster(random: &mut Random, network: &Network, time: &Rc<Cell<u64>>) -> Result<Vec<Host>, Wrong> {
    let count = random.between(2, 4) as usize;
    let mut sites = Vec::new();
    for me in 0..count {
        let options = EndpointOptions {
            job: 0,
            accept_unknown: false,
            peers_max: count as u32,
            repeat: if random.one_in(8) { Repeat::GoBackN } else { Repeat::Selective },
            peer_timeout_ns: 60 * SECOND_NS,
            connect_timeout_ns: 60 * SECOND_NS,
            listens: false,
            integrity: tsumugi::Integrity::Crc32c,
            message_bytes_max: 1 << 20,
            receive_bytes: 64 << 20,
            send_bytes: random.pick(&[64 << 10, 1 << 20]),
            datagram_bytes: random.pick(&[600, 1472]),
            seed: Some(random.bits()),
        };
        let queue_bytes = random.pick(&[32 << 10, 256 << 10]);
        let memory = Memory::new(Geometry::plain(count as u32, queue_bytes)).map_err(text)?;
        let rail = network.rail(address(me), options.datagram_bytes);
        let endpoint = open_simulated(options, memory, Box::new(rail), Rc::clone(time));
        let others = (0..count).map(|host| match host {
            host if host == me => Ok(None),
            host => endpoint.add_peer(address(host).to_string()).map(Some),
        });
        let peers = others.collect::<Result<_, _>>().map_err(text)?;
        sites.push(Site { me, endpoint, peers, counters: Vec::new() });
    }
    let mut counters = Vec::new();
    for site in &sites {
        counters.push(counters::Counters::open(site, count)?);
    }
    let targets: Vec<Target> = counters.iter().map(counters::Counters::target).collect();
    let started = Rc::new(RefCell::new(vec![0; count]));
    let mut hosts = Vec::new();
    for (mut site, counters) in sites.into_iter().zip(counters) {
        site.counters.clone_from(&targets);
        let parts: Vec<Box<dyn Part>> = vec![
            Box::new(letters::Letters::open(&site, count)?),
            Box::new(requests::Requests::open(&site, count)?),
            Box::new(threads::Threads::open(&site, count)?),
            Box::new(tagged::Tagged::open(&site, count, random)?),
            Box::new(counters),
            Box::new(groups::Groups::open(&site, &started)?),
        ];
        hosts.push(Host { site, acts: vec![0; parts.len()], parts });
    }
    Ok(hosts)
}

fn text(error: impl std::fmt::Display) -> Wrong {
    error.to_string()
}

/// What was sent from one host to another and what was taken there, by model.
fn pairs(hosts: &[Host]) -> impl Iterator<Item = (usize, usize, usize, u64, u64)> + '_ {
    hosts.iter().enumerate().flat_map(move |(from, host)| {
        let others = (0..hosts.len()).filter(move |to| *to != from);
        others.flat_map(move |to| {
            host.parts.iter().enumerate().map(move |(model, part)| {
                (from, to, model, part.sent_to(to), hosts[to].parts[model].taken_from(from))
            })
        })
    })
}

fn is_done(hosts: &[Host]) -> bool {
    hosts.iter().all(|host| host.parts.iter().all(|part| part.is_quiet()))
        && pairs(hosts).all(|(.., sent, taken)| sent == taken)
}

fn missing(hosts: &[Host]) -> String {
    let missing = pairs(hosts).filter(|(.., sent, taken)| sent != taken);
    let missing = missing.map(|(from, to, model, sent, taken)| {
        format!("of model {model} host {to} took {taken} of {sent} from host {from}")
    });
    let loud = hosts.iter().flat_map(|host| {
        let loud = host.parts.iter().enumerate().filter(|(_, part)| !part.is_quiet());
        loud.map(|(model, _)| format!("model {model} of host {} is not quiet", host.site.me))
    });
    missing.chain(loud).collect::<Vec<_>>().join("; ")
}

fn report(hosts: &[Host], network: &Network) -> ModelsReport {
    let mut sums = [0; 6];
    for (.., model, _, taken) in pairs(hosts) {
        sums[model] += taken;
    }
    let [letters, requests, threads, tagged, counters, collectives] = sums;
    let statistics = network.statistics();
    let faults = statistics.lost + statistics.duplicated + statistics.reordered + statistics.corrupted;
    ModelsReport { letters, requests, threads, tagged, counters, collectives, faults }
}
