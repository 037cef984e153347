//! The endpoint without a socket and without a clock: what the simulation found, each as a small case.

mod answering;
mod connecting;
mod integrity;
mod leaving;
#[path = "../common/options.rs"]
mod options;
mod repairing;
mod silence;
mod waiting;

use options::options;
use std::net::SocketAddr;
use tsumugi::PeerId;
use tsumugi::internal::{Core, Delivery, EndpointOptions};
use tsumugi_proto::xdp::{self, Fate};
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{LinkOptions, Network, SimRail};
use tsumugi_rail::{Packet, Rail};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::MILLISECOND_NS;

const TIMEOUT_NS: u64 = 500 * MILLISECOND_NS;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7411))
}

struct Host {
    core: Core,
    rail: SimRail,
}

fn host_options(seed: u64, datagram_bytes: usize) -> EndpointOptions {
    EndpointOptions {
        peers_max: 4,
        peer_timeout_ns: TIMEOUT_NS,
        connect_timeout_ns: TIMEOUT_NS,
        datagram_bytes,
        ..options(seed)
    }
}

fn host(network: &Network, number: u8, seed: u64) -> Host {
    host_with_datagrams(network, number, seed, 1472)
}

fn host_with_datagrams(network: &Network, number: u8, seed: u64, datagram_bytes: usize) -> Host {
    let memory = Memory::new(Geometry::plain(4, 32 << 10)).unwrap();
    let mut core = Core::new(host_options(seed, datagram_bytes), memory);
    assert!(core.open_channel(1));
    Host { core, rail: network.rail(address(number), datagram_bytes) }
}

impl Host {
    fn call(&mut self, now: Instant) {
        let Host { core, rail } = self;
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
        core.audit_all(0).unwrap();
    }

    /// The XDP program takes what arrived, after `damage` was done to it; the rest goes on.
    fn run_xdp(&mut self, now: Instant, damage: impl Fn(&mut Vec<u8>)) {
        let Host { core, rail } = self;
        let mut arrived = Vec::new();
        rail.receive(now, &mut |from, bytes| arrived.push((from, bytes.to_vec()))).unwrap();
        for (from, mut bytes) in arrived {
            damage(&mut bytes);
            let crc32c = |body: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32;
            let scattered = bytes.len() > ONE_BUFFER_BYTES;
            match xdp::receive(core.receive_memory(), &bytes, scattered, crc32c).0 {
                Fate::Pass => core.on_datagram(now, from, &bytes),
                Fate::Drop => {}
                Fate::Answer(answer) => {
                    _ = rail.send(now, from, &[Packet { head: &answer, body: &[] }]).unwrap();
                }
            }
        }
    }

    /// Takes what arrived, and gives it back at once.
    fn read(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(delivery) = self.core.take(1) {
            if let Delivery::Message { payload, .. } = delivery {
                messages.push(self.core.bytes_of(&payload).to_vec());
                self.core.release_message(payload);
            }
        }
        messages
    }
}

/// Two hosts that know each other, and the number of the second with the first.
fn connected(network: &Network) -> (Host, Host, PeerId) {
    connected_with_datagrams(network, 1472)
}

fn connected_with_datagrams(network: &Network, bytes: usize) -> (Host, Host, PeerId) {
    let [mut here, mut there] =
        [1, 2].map(|number| host_with_datagrams(network, number, number.into(), bytes));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    for step in 0..40 {
        here.call(Instant(step * 10_000));
        there.call(Instant(step * 10_000));
    }
    assert!(here.core.is_flushed());
    (here, there, peer)
}

#[test]
fn an_endpoint_shows_the_descriptor_that_its_rail_has_or_none() {
    let network = Network::new(1, LinkOptions::default());
    let memory = Memory::new(Geometry::plain(4, 32 << 10)).unwrap();
    let rail = Box::new(network.rail(address(1), 1472));
    let endpoint = tsumugi::internal::open_simulated(options(1), memory, rail, Default::default());
    assert!(endpoint.descriptor().is_none());
    let endpoint = tsumugi::Endpoint::open(tsumugi::Config::loopback()).unwrap();
    assert!(endpoint.descriptor().is_some_and(|descriptor| descriptor.try_clone_to_owned().is_ok()));
}
