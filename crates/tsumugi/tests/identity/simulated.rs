//! Hosts with two NICs, each on a network of its own, that call each other by addresses that the other does not come from.

use crate::options::options;
use std::net::SocketAddr;
use tsumugi::PeerId;
use tsumugi::internal::{Core, Delivery};
use tsumugi_rail::Rail;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{LinkOptions, Network, SimNic, SimRail};
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

const PORT: u16 = 7411;

fn address(network: u8, host: u8) -> SocketAddr {
    SocketAddr::from(([10, network, 0, host], PORT))
}

struct Host {
    core: Core,
    rail: SimRail,
    /// What has arrived: from whom, and what.
    taken: Vec<(u32, u64)>,
    begins_at: Instant,
}

impl Host {
    fn new(network: &Network, number: u8, seed: u64, begins_at: Instant) -> Host {
        let options = options(2 * seed + u64::from(number));
        let mut core = Core::new(options, Memory::new(Geometry::plain(8, 32 << 10)).unwrap());
        assert!(core.open_channel(1));
        let nics = [0, 1].map(|on| SimNic::new(address(on, number), 24));
        let rail = network.rail_of(&nics, 1472);
        core.set_nics(Instant(0), PORT, rail.nics_with_carrier());
        Host { core, rail, taken: Vec::new(), begins_at }
    }

    fn call(&mut self, now: Instant) {
        if now < self.begins_at {
            return;
        }
        let Host { core, rail, taken, .. } = self;
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
        core.audit_all(0).unwrap();
        while let Some(delivery) = core.take(1) {
            let Delivery::Message { source, payload } = delivery else {
                panic!("nobody has gone: {:?}", core.take_failure().map(|failure| failure.to_string()))
            };
            let number = core.bytes_of(&payload).first_chunk().map(|number| u64::from_le_bytes(*number));
            taken.push((source, number.expect("a number")));
            core.release_message(payload);
        }
    }

    fn next(&self, now: Instant) -> Instant {
        if now < self.begins_at { self.begins_at } else { self.rail.wake_at().min(self.core.deadline()) }
    }

    fn post(&mut self, now: Instant, peer: PeerId, number: u64) -> u64 {
        // Some are long.
        let mut data = vec![0; if number % 5 == 4 { 5000 } else { 100 }];
        data[..8].copy_from_slice(&number.to_le_bytes());
        self.core.post(now, peer, 1, &data).expect("there is room")
    }
}

/// Until `done` says so; fails after some seconds.
fn run(hosts: &mut [Host; 2], now: &mut Instant, mut done: impl FnMut(&mut [Host; 2], Instant) -> bool) {
    let end = now.plus(4 * SECOND_NS);
    loop {
        hosts.iter_mut().for_each(|host| host.call(*now));
        if done(hosts, *now) {
            return;
        }
        let next = hosts.iter().map(|host| host.next(*now)).min().unwrap();
        *now = next.max(now.plus(MICROSECOND_NS));
        let taken = hosts.each_ref().map(|host| (&host.taken, host.core.peers()));
        assert!(*now < end, "in vain; taken and peers: {taken:?}");
    }
}

fn pair(seed: u64, loss: f64) -> [Host; 2] {
    let link = LinkOptions { latency_ns: 20 * MICROSECOND_NS, loss, ..LinkOptions::default() };
    let network = Network::new(seed, link);
    // The second begins at the same time, or a little later.
    let later = [0, 10 * MICROSECOND_NS, MILLISECOND_NS, 50 * MILLISECOND_NS][seed as usize % 4];
    [(1, Instant(0)), (2, Instant(later))]
        .map(|(number, begins_at)| Host::new(&network, number, seed, begins_at))
}

const MESSAGES: u64 = 20;

/// What two hosts have taken that call each other by addresses that neither comes from: how many of the runs gave a peer a
/// second number.
fn crosswise(loss: f64) -> usize {
    let mut second_numbers = 0;
    for seed in 0..200 {
        let mut hosts = pair(seed, loss);
        for (host, at) in hosts.iter_mut().zip([address(1, 2), address(0, 1)]) {
            let peer = host.core.add_peer("the other", at).unwrap();
            for number in 0..MESSAGES {
                host.post(Instant(0), peer, number);
            }
        }
        let mut now = Instant(0);
        run(&mut hosts, &mut now, |hosts, _| {
            hosts.iter().all(|host| host.taken.len() as u64 == MESSAGES && host.core.is_flushed())
        });
        for host in &mut hosts {
            let numbers: Vec<u64> = host.taken.iter().map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>(), "seed {seed}");
            second_numbers += usize::from(host.taken.iter().any(|(source, _)| *source != 0));
            host.taken.clear();
        }
        // Whoever had two numbers has one by now: what comes is from the peer that the application named.
        now = now.plus(SECOND_NS);
        hosts.iter_mut().for_each(|host| {
            host.post(now, PeerId(0), 77);
        });
        run(&mut hosts, &mut now, |hosts, _| hosts.iter().all(|host| !host.taken.is_empty()));
        for host in &hosts {
            assert_eq!(host.taken, [(0, 77)], "seed {seed}");
        }
    }
    second_numbers
}

#[test]
fn who_is_called_by_an_address_that_it_does_not_come_from_is_one_peer() {
    assert_eq!(crosswise(0.0), 0, "nothing is lost, and nobody is taken for another");
}

#[test]
fn so_it_is_where_packets_are_lost() {
    let second_numbers = crosswise(0.15);
    assert!(second_numbers <= 4, "{second_numbers} of 400 hosts had a second number for a while");
}

#[test]
fn a_peer_with_two_names_is_one() {
    for seed in 0..200 {
        let mut hosts = pair(seed, if seed % 2 == 0 { 0.0 } else { 0.15 });
        let peers = [0, 1].map(|on| hosts[0].core.add_peer("the other", address(on, 2)).unwrap());
        assert_eq!(peers, [PeerId(0), PeerId(1)]);
        let mut now = Instant(0);
        let mut tickets = Vec::new();
        for number in 0..MESSAGES {
            // The second name is used from the first on, or only later.
            let name = if number < 5 * (seed % 3) { 0 } else { number as usize % 2 };
            let posted = hosts[0].post(now, peers[name], number);
            tickets.push((name, posted));
        }
        run(&mut hosts, &mut now, |hosts, _| {
            hosts[1].taken.len() as u64 == MESSAGES && hosts[0].core.is_flushed()
        });
        let sources: Vec<u32> = hosts[1].taken.iter().map(|(source, _)| *source).collect();
        assert!(sources.iter().all(|source| *source == sources[0]), "seed {seed}: {sources:?}");
        // Each name's messages in the order in which they were accepted.
        for name in [0, 1] {
            let of_name = |number: &u64| tickets[*number as usize].0 == name;
            let came: Vec<u64> = hosts[1].taken.iter().map(|(_, number)| *number).filter(of_name).collect();
            assert!(came.is_sorted(), "seed {seed}: {came:?}");
        }
        let one = hosts[0].core.canonical(peers[0]);
        assert_eq!(one, hosts[0].core.canonical(peers[1]), "seed {seed}");
        let source = PeerId(sources[0]);
        hosts[1].post(now, source, 9);
        run(&mut hosts, &mut now, |hosts, _| !hosts[0].taken.is_empty());
        assert_eq!(hosts[0].taken, [(one.0, 9)], "seed {seed}");
    }
}

#[test]
fn who_has_said_nothing_yet_knows_who_calls() {
    for seed in 0..100 {
        let mut hosts = pair(seed, 0.0);
        let peer = hosts[0].core.add_peer("the other", address(1, 2)).unwrap();
        assert_eq!(hosts[1].core.add_peer("somebody else", address(0, 9)).unwrap(), PeerId(0));
        assert_eq!(hosts[1].core.add_peer("the first", address(0, 1)).unwrap(), PeerId(1));
        let mut now = Instant(0);
        hosts[0].post(now, peer, 5);
        run(&mut hosts, &mut now, |hosts, _| !hosts[1].taken.is_empty());
        assert_eq!(hosts[1].taken, [(1, 5)], "seed {seed}");
        assert_eq!(hosts[1].core.peers(), 2);
    }
}
