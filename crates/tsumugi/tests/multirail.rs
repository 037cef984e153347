//! How much multirail carries, in virtual time: two hosts whose processors take no time, on networks with rates.

mod common {
    pub(crate) mod events;
    pub(crate) mod options;
}

use common::events::{count, logged};
use common::options::options;
use std::net::SocketAddr;
use tsumugi::internal::{Core, Delivery, EndpointOptions};
use tsumugi::{PeerId, Policy};
use tsumugi_rail::Rail;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{FRAMING_BYTES, LinkOptions, Network, SimNic, SimRail};
use tsumugi_wire::Instant;
use tsumugi_wire::frame::FRAGMENT_BYTES;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

const PORT: u16 = 7411;
const DATAGRAM_BYTES: usize = 1472;
const MESSAGE_BYTES: usize = 64 << 10;

fn address(network: usize, host: u8) -> SocketAddr {
    SocketAddr::from(([10, network as u8, 0, host], PORT))
}

/// A link of so many Mb/s whose port queues what a cheap switch's does.
fn link(mbits: u64) -> LinkOptions {
    LinkOptions {
        latency_ns: 20 * MICROSECOND_NS,
        rate_bits_per_s: mbits * 1_000_000,
        queue_bytes: 256 << 10,
        ..LinkOptions::default()
    }
}

/// What messages get of a link of so many Mb/s at most.
fn goodput(mbits: f64) -> f64 {
    let data_bytes = DATAGRAM_BYTES - HEADER_BYTES - FRAGMENT_BYTES;
    mbits * data_bytes as f64 / (DATAGRAM_BYTES as f64 + FRAMING_BYTES as f64)
}

struct Host {
    core: Core,
    rail: SimRail,
}

impl Host {
    fn new(network: &Network, number: u8, links: &[LinkOptions], policy: Policy) -> Host {
        let options = EndpointOptions {
            message_bytes_max: 1 << 30,
            receive_bytes: 64 << 20,
            send_bytes: 4 << 20,
            datagram_bytes: DATAGRAM_BYTES,
            ..options(number.into())
        };
        let memory = Memory::new(Geometry::plain(8, 1 << 20)).unwrap();
        let mut core = Core::new(options, memory);
        assert!(core.open_channel(1));
        core.set_policy(policy);
        let nic = |on: usize| SimNic {
            speed_mbits: (links[on].rate_bits_per_s / 1_000_000) as u32,
            ..SimNic::new(address(on, number), 24)
        };
        let rail = network.rail_of(&(0..links.len()).map(nic).collect::<Vec<_>>(), DATAGRAM_BYTES);
        core.set_nics(Instant(0), PORT, rail.nics_with_carrier());
        Host { core, rail }
    }

    fn call(&mut self, now: Instant) {
        let Host { core, rail } = self;
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
    }

    /// Bytes of messages that have arrived since the last call, from each of the senders.
    fn take(&mut self, taken: &mut [u64]) {
        while let Some(delivery) = self.core.take(1) {
            if let Delivery::Message { source, payload } = delivery {
                taken[source as usize] += self.core.bytes_of(&payload).len() as u64;
                self.core.release_message(payload);
            }
        }
    }

    fn next(&self) -> Instant {
        self.rail.wake_at().min(self.core.deadline())
    }
}

/// Hosts that stream to one receiver.
struct Run {
    network: Network,
    receiver: Host,
    senders: Vec<(Host, PeerId)>,
    now: Instant,
}

impl Run {
    /// So many senders, and a receiver, with a NIC on each network. A network is a switch whose ports have a rate: what
    /// senders send to the receiver shares the receiver's.
    fn new(links: &[LinkOptions], senders: u8, policy: Policy) -> Run {
        let network = Network::new(7, LinkOptions::default());
        let receiver = Host::new(&network, 1, links, policy);
        let sender = |number: u8| {
            for (on, link) in links.iter().enumerate() {
                network.set_link(address(on, number), address(on, 1), Some(*link));
                network.set_link(
                    address(on, 1),
                    address(on, number),
                    Some(LinkOptions { loss: 0.0, ..*link }),
                );
            }
            let mut host = Host::new(&network, number, links, policy);
            let peer = host.core.add_peer("receiver", address(0, 1)).unwrap();
            (host, peer)
        };
        let senders = (2..2 + senders).map(sender).collect();
        Run { network, receiver, senders, now: Instant(0) }
    }

    /// Changes a network between the receiver and the first sender.
    fn set_link(&self, on: usize, link: LinkOptions) {
        let ends = [address(on, 1), address(on, 2)];
        self.network.set_link(ends[0], ends[1], Some(link));
        self.network.set_link(ends[1], ends[0], Some(link));
    }

    /// Goodput of each sender from now on for so long, Mb/s.
    fn measure(&mut self, ns: u64) -> Vec<f64> {
        let mut taken = vec![0; self.senders.len()];
        let (end, message) = (self.now.plus(ns), vec![0; MESSAGE_BYTES]);
        while self.now < end {
            for (sender, peer) in &mut self.senders {
                while sender.core.post(self.now, *peer, 1, &message).is_ok() {}
            }
            self.step(&mut taken);
        }
        taken.iter().map(|bytes| *bytes as f64 * 8e3 / ns as f64).collect()
    }

    /// Goodput of one message of the first sender when nothing else is under way, Mb/s.
    fn measure_message(&mut self, bytes: usize) -> f64 {
        self.flush();
        let start = self.now;
        let (sender, peer) = &mut self.senders[0];
        sender.core.post(start, *peer, 1, &vec![0; bytes]).unwrap();
        self.flush();
        bytes as f64 * 8e3 / self.now.since(start) as f64
    }

    /// Until everything of the first sender's is delivered.
    fn flush(&mut self) {
        while !self.senders[0].0.core.is_flushed() {
            self.step(&mut [0]);
        }
    }

    /// Everybody makes a call, and time passes until the next.
    fn step(&mut self, taken: &mut [u64]) {
        self.senders.iter_mut().for_each(|(sender, _)| sender.call(self.now));
        self.receiver.call(self.now);
        self.receiver.take(taken);
        let next = self.senders.iter().map(|(sender, _)| sender.next()).min().unwrap();
        // A look takes a microsecond at least.
        self.now = next.min(self.receiver.next()).max(self.now.plus(MICROSECOND_NS));
    }

    /// Goodput of one sender when it has found its paths, Mb/s.
    fn settled(links: &[LinkOptions], policy: Policy) -> f64 {
        let mut run = Run::new(links, 1, policy);
        run.measure(300 * MILLISECOND_NS);
        run.measure(SECOND_NS)[0]
    }
}

#[test]
fn equal_rails_add_up() {
    for policy in [Policy::Adaptive, Policy::RoundRobin] {
        for rails in [1, 2, 4] {
            let rate = Run::settled(&vec![link(1000); rails], policy);
            let all = goodput(1000.0 * rails as f64);
            assert!(rate > 0.98 * all, "{policy}, {rails} rails: {rate:.0} of {all:.0} Mb/s");
        }
    }
}

#[test]
fn uneven_rails_add_up() {
    for queue_bytes in [24 << 10, 48 << 10, 256 << 10] {
        let slow = LinkOptions { queue_bytes, ..link(100) };
        let rate = Run::settled(&[link(1000), slow], Policy::Adaptive);
        assert!(rate > 0.97 * goodput(1100.0), "{rate:.0} Mb/s with a queue of {queue_bytes} B");
    }
    let collapsed = Run::settled(&[link(1000), link(100)], Policy::RoundRobin);
    assert!(collapsed < goodput(220.0), "{collapsed:.0} Mb/s");
}

#[test]
fn a_rail_that_drops_a_fifth_costs_no_more_than_itself() {
    let lossy = LinkOptions { loss: 0.2, ..link(1000) };
    let rate = Run::settled(&[link(1000), lossy], Policy::Adaptive);
    assert!(rate > 0.9 * goodput(1000.0), "{rate:.0} Mb/s");
}

#[test]
fn a_rail_with_a_longer_way_carries_its_share() {
    let far = LinkOptions { latency_ns: MILLISECOND_NS, ..link(1000) };
    let rate = Run::settled(&[far, link(1000)], Policy::Adaptive);
    assert!(rate > 0.95 * goodput(2000.0), "{rate:.0} Mb/s");
}

#[test]
fn one_long_message_uses_every_rail() {
    let mut run = Run::new(&[link(1000), link(1000)], 1, Policy::Adaptive);
    run.measure(300 * MILLISECOND_NS);
    let rate = run.measure_message(64 << 20);
    assert!(rate > 0.95 * goodput(2000.0), "{rate:.0} Mb/s");
}

#[test]
fn a_path_that_is_left_and_taken_up_again_is_told_of_once_each() {
    let links = [link(1000); 2];
    let left = ["WARN", "is left until it answers", "10.1.0.1"];
    let taken_up = ["INFO", "a path answers", "10.1.0.1"];
    let mut run = Run::new(&links, 1, Policy::Adaptive);
    let found = logged(|| drop(run.measure(300 * MILLISECOND_NS)));
    assert_eq!((count(&found, &left), count(&found, &taken_up)), (0, 1), "{found:#?}");
    run.set_link(1, LinkOptions { loss: 1.0, ..links[1] });
    let cut = logged(|| drop(run.measure(SECOND_NS)));
    assert_eq!((count(&cut, &left), count(&cut, &taken_up)), (1, 0), "{cut:#?}");
    assert_eq!(count(&cut, &["silent_ms=", "delivered=", "lost="]), 1, "{cut:#?}");
    run.set_link(1, links[1]);
    let mended = logged(|| drop(run.measure(SECOND_NS)));
    assert_eq!((count(&mended, &left), count(&mended, &taken_up)), (0, 1), "{mended:#?}");
    assert_eq!(count(&mended, &["a path answers again", "left_ms="]), 1, "{mended:#?}");
}
