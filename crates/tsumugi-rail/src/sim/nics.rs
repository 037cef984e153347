//! Hosts with several NICs: which one a datagram leaves by, and NICs that fall silent and come back.
//!
//! A host's networks are told apart by the prefixes of its NICs' addresses, as the kernel's routes tell them apart: a
//! datagram leaves through the first NIC that has its destination on its link, with the NIC's address as its source.
//!
//! ```
//! use tsumugi_rail::sim::{LinkOptions, Network, NicOptions, SimNic};
//! use tsumugi_rail::{Packet, Rail};
//! use tsumugi_wire::Instant;
//!
//! let nic = |address: &str| SimNic::new(address.parse().unwrap(), 24);
//! let network = Network::new(7, LinkOptions::default());
//! let mut from = network.rail_of(&[nic("10.0.0.1:1"), nic("10.1.0.1:1")], 1472);
//! let mut to = network.rail_of(&[nic("10.0.0.2:1"), nic("10.1.0.2:1")], 1472);
//! from.send(Instant(0), "10.1.0.2:1".parse().unwrap(), &[Packet { head: b"hello", body: b"" }]).unwrap();
//! to.receive(network.next_delivery(), &mut |source, _| assert_eq!(source.to_string(), "10.1.0.1:1")).unwrap();
//!
//! network.set_nic("10.1.0.1:1".parse().unwrap(), NicOptions::UNPLUGGED);
//! assert_eq!(from.nics_with_carrier().len(), 1);
//! ```

use super::{Network, SimRail};
use crate::{NicAddress, NicName};
use std::net::{IpAddr, SocketAddr};

/// A NIC of a simulated host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimNic {
    /// Where it is reached.
    pub address: SocketAddr,
    /// Bits of the address that every host on the same link has.
    pub prefix_bits: u8,
    /// Speed that it says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
}

impl SimNic {
    /// A NIC that does not say how fast it is.
    #[must_use]
    pub const fn new(address: SocketAddr, prefix_bits: u8) -> SimNic {
        SimNic { address, prefix_bits, speed_mbits: 0 }
    }

    /// As an endpoint is told of it.
    fn told(&self) -> NicAddress {
        NicAddress {
            ip: self.address.ip(),
            prefix_bits: self.prefix_bits,
            speed_mbits: self.speed_mbits,
            is_overlay: false,
            nic: 0,
        }
    }
}

/// What a NIC does and says at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicOptions {
    /// What is sent through it leaves. What it takes and cannot send is lost.
    pub sends: bool,
    /// What is sent to it arrives.
    pub receives: bool,
    /// It says that it has a carrier. One whose switch has failed says so all the same.
    pub carrier: bool,
}

impl NicOptions {
    /// It works.
    pub const WORKS: NicOptions = NicOptions { sends: true, receives: true, carrier: true };
    /// Nothing goes through it, and its host knows.
    pub const UNPLUGGED: NicOptions = NicOptions { sends: false, receives: false, carrier: false };
    /// Nothing goes through it, and nobody knows.
    pub const SILENT: NicOptions = NicOptions { sends: false, receives: false, carrier: true };
}

/// A NIC and its port in the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plugged {
    pub(super) nic: SimNic,
    pub(super) port: usize,
}

impl Network {
    /// Opens the rail of a host with several NICs, of which the first one's address is the rail's. What was under way to
    /// an earlier rail there will reach this one.
    ///
    /// # Panics
    /// There is no NIC, or a rail is open there already.
    #[must_use]
    pub fn rail_of(&self, nics: &[SimNic], datagram_bytes: usize) -> SimRail {
        let first = nics.first().expect("a host that sends has a NIC");
        let mut rail = self.rail(first.address, datagram_bytes);
        let mut state = self.0.borrow_mut();
        for nic in nics {
            let port = state.port(nic.address);
            state.ports[port].inbox = rail.port;
            rail.nics.push(Plugged { nic: *nic, port });
        }
        drop(state);
        rail
    }

    /// Changes what the NIC with this address does, for what is sent from now on. What is under way arrives.
    pub fn set_nic(&self, address: SocketAddr, options: NicOptions) {
        let mut state = self.0.borrow_mut();
        let port = state.port(address);
        state.ports[port].nic = options;
    }
}

impl SimRail {
    /// The NICs that have a carrier, as they are told to an endpoint; none of a rail that is no host's with several.
    #[must_use]
    pub fn nics_with_carrier(&self) -> Vec<NicAddress> {
        let state = self.network.0.borrow();
        let plugged = self.nics.iter().filter(|plugged| state.ports[plugged.port].nic.carrier);
        plugged.map(|plugged| plugged.nic.told()).collect()
    }

    /// The address that a datagram to `to` is sent from; `None`: no NIC is on its network.
    #[must_use]
    pub fn source(&self, to: IpAddr) -> Option<SocketAddr> {
        match self.route(to) {
            Some(_) if self.nics.is_empty() => Some(self.address),
            route => self.nics.iter().find(|plugged| Some(plugged.port) == route).map(|it| it.nic.address),
        }
    }

    /// The NIC that a datagram to `peer` leaves by, if it has no carrier and the host has a kernel that says so.
    pub(super) fn link_down_to(&self, peer: SocketAddr) -> Option<NicName> {
        let port = self.route(peer.ip())?;
        let state = self.network.0.borrow();
        let is_down = state.kernels.is_some() && !state.ports[port].nic.carrier;
        let number = self.nics.iter().position(|plugged| plugged.port == port).unwrap_or(0);
        is_down.then(|| NicName::new(&format!("nic{number}")))
    }

    /// The port that a datagram to `to` leaves by.
    pub(super) fn route(&self, to: IpAddr) -> Option<usize> {
        if self.nics.is_empty() {
            return Some(self.port);
        }
        self.nics.iter().find(|plugged| plugged.nic.told().reaches(to)).map(|plugged| plugged.port)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HostOptions, LinkOptions};
    use super::*;
    use crate::{Packet, Rail};
    use tsumugi_wire::Instant;

    fn address(network: u8, host: u8) -> SocketAddr {
        SocketAddr::from(([10, network, 0, host], 7411))
    }

    /// A host with NICs on these networks.
    fn host(network: &Network, number: u8, networks: &[u8]) -> SimRail {
        let nic = |on: &u8| SimNic::new(address(*on, number), 24);
        network.rail_of(&networks.iter().map(nic).collect::<Vec<_>>(), 1472)
    }

    fn send(rail: &mut SimRail, to: SocketAddr, body: &[u8]) {
        assert_eq!(rail.send(Instant(0), to, &[Packet { head: &[], body }]).unwrap(), 1);
    }

    fn receive(rail: &mut SimRail) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut all = Vec::new();
        while rail.wake_at() != Instant::NEVER {
            rail.receive(rail.wake_at(), &mut |from, bytes| all.push((from, bytes.to_vec()))).unwrap();
        }
        all
    }

    #[test]
    fn a_datagram_leaves_by_the_nic_on_its_network() {
        let network = Network::new(1, LinkOptions::default());
        let (mut a, mut b) = (host(&network, 1, &[0, 1, 3]), host(&network, 2, &[1, 0, 2]));
        assert_eq!((a.address(), b.address()), (address(0, 1), address(1, 2)));
        for on in [1, 0, 2] {
            send(&mut a, address(on, 2), &[on]);
        }
        assert_eq!(receive(&mut b), [(address(1, 1), vec![1]), (address(0, 1), vec![0])]);
        assert_eq!(network.statistics().unrouted, 1);
        assert_eq!(a.source(address(1, 2).ip()), Some(address(1, 1)));
        assert_eq!(a.source(address(2, 2).ip()), None);
        drop(b);
        send(&mut a, address(0, 2), b"for the next");
        let mut b = host(&network, 2, &[1, 0, 2]);
        assert_eq!(receive(&mut b), [(address(0, 1), b"for the next".to_vec())]);
    }

    #[test]
    fn networks_differ_and_do_not_wait_for_each_other() {
        let network = Network::new(1, LinkOptions::default());
        network.set_host_options(HostOptions { coalesce: 1.0, ..HostOptions::default() });
        let slow = LinkOptions { latency_ns: 500_000, ..LinkOptions::default() };
        network.set_link(address(0, 1), address(0, 2), Some(slow));
        let (mut a, mut b) = (host(&network, 1, &[0, 1]), host(&network, 2, &[0, 1]));
        send(&mut a, address(0, 2), b"slow");
        send(&mut a, address(1, 2), b"fast");
        assert_eq!(receive(&mut b), [(address(1, 1), b"fast".to_vec()), (address(0, 1), b"slow".to_vec())]);
    }

    #[test]
    fn a_nic_is_cut_one_way_or_both_and_may_not_know() {
        let network = Network::new(1, LinkOptions::default());
        let (mut a, mut b) = (host(&network, 1, &[0, 1]), host(&network, 2, &[0, 1]));
        let carriers = |rail: &SimRail| rail.nics_with_carrier().len();
        let mut carriers_before = 0;
        let deaf = NicOptions { receives: false, ..NicOptions::WORKS };
        let mute = NicOptions { sends: false, ..NicOptions::WORKS };
        for (options, there, back, carrier) in [
            (deaf, true, false, 2),
            (mute, false, true, 2),
            (NicOptions::SILENT, false, false, 2),
            (NicOptions::UNPLUGGED, false, false, 1),
            (NicOptions::WORKS, true, true, 2),
        ] {
            network.set_nic(address(1, 1), options);
            send(&mut a, address(1, 2), b"there");
            send(&mut b, address(1, 1), b"back");
            let passed = (!receive(&mut b).is_empty(), !receive(&mut a).is_empty());
            assert_eq!((passed, carriers(&a), carriers(&b)), ((there, back), carrier, 2), "{options:?}");
            let told = a.nics(Instant(0)).map(|nics| nics.len());
            assert_eq!(told, (carrier != carriers_before).then_some(carrier), "{options:?}");
            carriers_before = carrier;
            send(&mut a, address(0, 2), b"the other network");
            assert_eq!(receive(&mut b).len(), 1, "{options:?}");
        }
    }

    #[test]
    fn a_rail_of_one_address_reaches_everybody() {
        let network = Network::new(1, LinkOptions::default());
        let mut alone = network.rail(address(0, 1), 1472);
        let mut b = host(&network, 2, &[1]);
        send(&mut alone, address(1, 2), b"by a router");
        assert_eq!(receive(&mut b), [(address(0, 1), b"by a router".to_vec())]);
        assert_eq!(alone.source(address(1, 2).ip()), Some(address(0, 1)));
        assert!(alone.nics_with_carrier().is_empty());
    }
}
