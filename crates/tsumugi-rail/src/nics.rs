//! The NICs of this host that peers can reach an endpoint by.

use crate::sys::{Interface, interfaces};
use std::net::IpAddr;
use tsumugi_wire::limits::RAILS_MAX;

/// A NIC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that every host on the same link has.
    pub prefix_bits: u8,
}

impl NicAddress {
    /// Whether `ip` is on the NIC's own link, so that no router is between.
    #[must_use]
    pub fn reaches(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix_bits.min(32));
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix_bits.min(128));
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The addresses that an endpoint bound to `bound` can be reached by: one of each NIC that is on and has a carrier, if it
/// is bound to all of them; its own otherwise.
///
/// Two NICs on one link are one rail: the kernel sends through the first of them whatever is for that link.
pub(crate) fn nic_addresses(bound: IpAddr) -> Vec<NicAddress> {
    // Who cannot be asked has no NICs beside the one that is in use.
    choose(bound, &interfaces().unwrap_or_default())
}

fn choose(bound: IpAddr, interfaces: &[Interface]) -> Vec<NicAddress> {
    let mut chosen: Vec<(&str, NicAddress)> = Vec::new();
    for interface in interfaces {
        let Some(ip) = interface.address else { continue };
        let wanted = if bound.is_unspecified() {
            ip.is_ipv4() == bound.is_ipv4() && !interface.loopback && !is_link_local(ip)
        } else {
            ip == bound
        };
        let nic = NicAddress { ip, prefix_bits: interface.prefix_bits };
        let known = chosen.iter().any(|(name, has)| *name == interface.name || has.reaches(ip));
        if wanted && interface.up && interface.running && !known && chosen.len() < RAILS_MAX {
            chosen.push((&interface.name, nic));
        }
    }
    chosen.into_iter().map(|(_, nic)| nic).collect()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, prefix_bits: u8, running: bool) -> Interface {
        Interface {
            name: name.into(),
            address: Some(address.parse().unwrap()),
            prefix_bits,
            up: true,
            running,
            loopback: name == "lo",
            mtu_bytes: 1500,
        }
    }

    #[test]
    fn a_wildcard_is_reached_by_every_nic_that_works_once() {
        let interfaces = [
            interface("lo", "127.0.0.1", 8, true),
            interface("eth0", "10.0.0.1", 24, true),
            interface("eth0", "10.9.0.1", 24, true),
            interface("eth1", "10.0.1.1", 24, true),
            interface("eth2", "10.0.2.1", 24, false),
            interface("eth3", "10.0.1.7", 24, true),
            interface("eth4", "169.254.3.3", 16, true),
            interface("eth5", "fd00::1", 64, true),
        ];
        let chosen = |bound: &str| {
            choose(bound.parse().unwrap(), &interfaces)
                .iter()
                .map(|nic| nic.ip.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen("0.0.0.0"), ["10.0.0.1", "10.0.1.1"]);
        assert_eq!(chosen("::"), ["fd00::1"]);
        assert_eq!(chosen("10.0.1.1"), ["10.0.1.1"]);
    }

    #[test]
    fn a_link_is_told_by_its_prefix() {
        let reaches = |own: &str, prefix_bits, other: &str| {
            NicAddress { ip: own.parse().unwrap(), prefix_bits }.reaches(other.parse().unwrap())
        };
        assert!(reaches("10.0.0.1", 24, "10.0.0.254") && !reaches("10.0.0.1", 24, "10.0.1.1"));
        assert!(reaches("10.0.0.1", 0, "192.168.3.4") && !reaches("10.0.0.1", 32, "10.0.0.2"));
        assert!(reaches("fd00::1", 64, "fd00::9:1") && !reaches("fd00::1", 64, "fd00:0:0:1::1"));
        assert!(!reaches("10.0.0.1", 0, "fd00::1"));
    }
}
