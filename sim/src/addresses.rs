//! Where hosts are: the addresses that each has, and the one by which each knows each other.

use crate::ledger::Wrong;
use crate::plan::MultirailPlan;
use std::net::{IpAddr, SocketAddr};
use tsumugi_rail::sim::SimNic;

/// Port of every endpoint.
pub(crate) const PORT: u16 = 7411;
/// Bits of an address that name its network.
const PREFIX_BITS: u8 = 24;

/// The addresses of a run. Host `h`, counted from 0, is 10.`n`.0.`h` + 1 on network `n`.
#[derive(Debug)]
pub(crate) struct AddressPlan {
    /// Networks that each host has a NIC on, in the host's order.
    networks: Vec<Vec<usize>>,
    /// The network on which each pair of hosts connects: `[from][to]`.
    connect_on: Vec<Vec<usize>>,
}

/// A host's address on a network.
fn address(network: usize, host: usize) -> SocketAddr {
    SocketAddr::from(([10, network as u8, 0, host as u8 + 1], PORT))
}

impl AddressPlan {
    /// One network for all, or those of the multirail plan.
    pub(crate) fn new(hosts: usize, multirail: Option<&MultirailPlan>) -> AddressPlan {
        match multirail {
            None => AddressPlan { networks: vec![vec![0]; hosts], connect_on: vec![vec![0; hosts]; hosts] },
            Some(multirail) => AddressPlan {
                networks: multirail.hosts.iter().map(|host| host.networks.clone()).collect(),
                connect_on: multirail.connect_on.clone(),
            },
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.networks.len()
    }

    /// The address that a host goes by: that of its first NIC.
    pub(crate) fn address(&self, host: usize) -> SocketAddr {
        address(self.networks[host][0], host)
    }

    /// The address by which `from` knows `to`.
    pub(crate) fn known_as(&self, from: usize, to: usize) -> SocketAddr {
        address(self.connect_on[from][to], to)
    }

    /// All addresses of a host.
    pub(crate) fn addresses(&self, host: usize) -> impl Iterator<Item = SocketAddr> {
        self.networks[host].iter().map(move |network| address(*network, host))
    }

    /// A host's address on a network, if it has a NIC there.
    pub(crate) fn address_on(&self, host: usize, network: usize) -> Option<SocketAddr> {
        self.networks[host].contains(&network).then(|| address(network, host))
    }

    /// A host's NICs.
    pub(crate) fn nics(&self, host: usize, multirail: &MultirailPlan) -> Vec<SimNic> {
        let nic = |network: &usize| SimNic {
            speed_mbits: multirail.networks[*network].speed_mbits,
            ..SimNic::new(address(*network, host), PREFIX_BITS)
        };
        self.networks[host].iter().map(nic).collect()
    }

    /// The networks that two hosts have in common, with their addresses there.
    pub(crate) fn common(&self, a: usize, b: usize) -> Vec<(usize, SocketAddr, SocketAddr)> {
        let shared = self.networks[a].iter().filter(|network| self.networks[b].contains(network));
        shared.map(|network| (*network, address(*network, a), address(*network, b))).collect()
    }

    /// The network that an address is on.
    pub(crate) fn network_of(address: SocketAddr) -> Option<usize> {
        match address.ip() {
            IpAddr::V4(ip) => Some(usize::from(ip.octets()[1])),
            IpAddr::V6(_) => None,
        }
    }

    /// Whose address this is, if anybody's.
    pub(crate) fn find(&self, known: SocketAddr) -> Option<usize> {
        let IpAddr::V4(ip) = known.ip() else { return None };
        let host = usize::from(ip.octets()[3]).checked_sub(1).filter(|host| *host < self.hosts())?;
        let address = self.address_on(host, AddressPlan::network_of(known)?);
        address.filter(|address| *address == known).map(|_| host)
    }

    /// Whose address this is.
    pub(crate) fn host_of(&self, address: SocketAddr) -> Result<usize, Wrong> {
        self.find(address).ok_or_else(|| format!("{address} became a peer and is nobody's address"))
    }
}
