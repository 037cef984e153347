//! The NICs of this host that peers can reach an endpoint by.

use crate::netlink::{Events, OF_NICS};
use crate::sys::{self, Interface, Interfaces, interfaces};
use crate::udp::mtu_bytes_min;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::time::SECOND_NS;

/// How often the NICs are looked at where the kernel may not be heard of changes.
const LOOK_NS: u64 = SECOND_NS;

/// A NIC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that every host on the same link has.
    pub prefix_bits: u8,
    /// Speed that the NIC says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
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

/// The NICs that an endpoint is reached by, and what the kernel tells of them.
#[derive(Debug)]
pub(crate) struct Nics {
    bound: IpAddr,
    /// An error where this program may not listen.
    events: io::Result<Events>,
    /// When the NICs were looked at.
    looked_at: Option<Instant>,
}

impl Nics {
    /// The NICs of an endpoint that is bound to `bound`.
    pub(crate) fn open(bound: IpAddr) -> Nics {
        Nics { bound, events: Events::open(&OF_NICS), looked_at: None }
    }

    /// The NICs, if something may have changed since the last call. One system call when nothing has.
    pub(crate) fn news(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        let mut changed = self.looked_at.is_none();
        match &mut self.events {
            Ok(events) => events.take(&mut |_| changed = true),
            Err(_) => changed |= self.looked_at.is_some_and(|at| now.since(at) >= LOOK_NS),
        }
        if !changed {
            return None;
        }
        self.looked_at = Some(now);
        // Who cannot be asked has no NICs beside the one that is in use.
        Some(choose(self.bound, &interfaces().list))
    }

    /// Whether the kernel tells of changes.
    pub(crate) const fn hears(&self) -> Result<(), &io::Error> {
        match &self.events {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The NICs that peers reach an endpoint by that is bound to `bound`.
pub(crate) fn in_use(bound: IpAddr) -> Vec<NicReport> {
    let found = candidates(bound, &interfaces().list).into_iter();
    found.filter(|nic| nic.behind.is_none()).take(RAILS_MAX).collect()
}

/// The addresses that an endpoint bound to `bound` can be reached by: one of each NIC that is on and has a carrier, if it
/// is bound to all of them; its own otherwise.
///
/// Two NICs on one link are one rail: the kernel sends through the first of them whatever is for that link.
fn choose(bound: IpAddr, interfaces: &[Interface]) -> Vec<NicAddress> {
    let candidates = candidates(bound, interfaces).into_iter();
    candidates.filter(|nic| nic.behind.is_none()).map(|nic| nic.address).take(RAILS_MAX).collect()
}

/// A NIC that works, as an endpoint sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicReport {
    /// Its name.
    pub name: String,
    /// Its first address.
    pub address: NicAddress,
    /// Its MTU, bytes.
    pub mtu_bytes: usize,
    /// The NIC that is used in its place, because it is on the same link.
    pub behind: Option<String>,
}

/// The NICs that an endpoint on every IPv4 address (or, if there is none, IPv6 address) finds here.
///
/// # Errors
/// The system does not say.
pub fn survey() -> io::Result<Vec<NicReport>> {
    let interfaces = match interfaces() {
        Interfaces { list, lacking: Some(error) } if list.is_empty() => return Err(error),
        found => found.list,
    };
    Ok(candidates(everywhere_among(&interfaces), &interfaces))
}

/// The address for an endpoint that is to be reached by every NIC: where none has an IPv4 address and some has one of
/// IPv6, the unspecified address of IPv6 stands for the unspecified one of IPv4.
#[must_use]
pub fn everywhere(bind: IpAddr) -> IpAddr {
    if bind == IpAddr::V4(Ipv4Addr::UNSPECIFIED) { everywhere_among(&interfaces().list) } else { bind }
}

fn everywhere_among(interfaces: &[Interface]) -> IpAddr {
    let [four, six] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let is_reached_by = |any| !candidates(any, interfaces).is_empty();
    if !is_reached_by(four) && is_reached_by(six) { six } else { four }
}

/// An IPv4 address that is written as one of IPv6 (`::ffff:10.0.0.1`) is an IPv4 address.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(four) => SocketAddr::from((four, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// Index of the NIC called `name`, which is the scope of link-local addresses on its link.
#[must_use]
pub fn index_of(name: &str) -> Option<u32> {
    sys::interface_index(name)
}

/// Names of the NICs that are on, without the loopback.
#[must_use]
pub fn names() -> Vec<String> {
    let nics = interfaces().list.into_iter().filter(|nic| nic.up && !nic.loopback);
    let mut names: Vec<String> = nics.map(|nic| nic.name).collect();
    names.sort();
    names.dedup();
    names
}

/// The socket address to bind to for an address of this host. A link-local one needs to be told the NIC that has it.
pub(crate) fn to_bind(ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V6(six) if six.is_unicast_link_local() => {
            let has_it = |nic: &Interface| nic.address == Some(ip);
            let nic = interfaces().list.into_iter().find(has_it);
            let scope = nic.and_then(|nic| index_of(&nic.name)).unwrap_or(0);
            SocketAddrV6::new(six, port, 0, scope).into()
        }
        _ => SocketAddr::new(ip, port),
    }
}

fn candidates(bound: IpAddr, interfaces: &[Interface]) -> Vec<NicReport> {
    let mut found: Vec<NicReport> = Vec::new();
    for interface in interfaces {
        let Some(ip) = interface.address else { continue };
        let wanted = if bound.is_unspecified() {
            let fits = interface.mtu_bytes >= mtu_bytes_min(bound.is_ipv4());
            ip.is_ipv4() == bound.is_ipv4() && !interface.loopback && !is_link_local(ip) && fits
        } else {
            ip == bound
        };
        if !wanted
            || !interface.up
            || !interface.running
            || found.iter().any(|nic| nic.name == interface.name)
        {
            continue;
        }
        let behind = found.iter().find(|nic| nic.behind.is_none() && nic.address.reaches(ip));
        found.push(NicReport {
            name: interface.name.clone(),
            address: NicAddress {
                ip,
                prefix_bits: interface.prefix_bits,
                speed_mbits: interface.speed_mbits,
            },
            mtu_bytes: interface.mtu_bytes,
            behind: behind.map(|nic| nic.name.clone()),
        });
    }
    found
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
            speed_mbits: 1000,
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
            Interface { mtu_bytes: 500, ..interface("tun0", "10.9.9.9", 24, true) },
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
    fn a_host_without_ipv4_is_reached_by_ipv6() {
        let lo = interface("lo", "127.0.0.1", 8, true);
        let [four, six] = ["0.0.0.0", "::"].map(|any| any.parse::<IpAddr>().unwrap());
        let [eth0, eth1] = [interface("eth0", "fd00::1", 64, true), interface("eth1", "10.0.0.1", 24, true)];
        assert_eq!(everywhere_among(&[lo.clone(), eth0.clone()]), six);
        assert_eq!(everywhere_among(&[lo.clone(), eth0, eth1]), four);
        assert_eq!(everywhere_among(&[lo.clone(), interface("eth0", "fe80::1", 64, true)]), four);
        assert_eq!(everywhere_among(&[lo]), four);
        assert_eq!(everywhere_among(&[]), four, "who may not ask");
    }

    #[test]
    fn a_nic_on_the_link_of_another_stands_behind_it() {
        let interfaces = [
            interface("eth0", "10.0.0.1", 24, true),
            interface("eth1", "10.0.0.2", 24, true),
            interface("eth2", "10.0.1.1", 24, true),
        ];
        let found = candidates(Ipv4Addr::UNSPECIFIED.into(), &interfaces);
        let behind: Vec<_> = found.iter().map(|nic| nic.behind.as_deref()).collect();
        assert_eq!(behind, [None, Some("eth0"), None]);
    }

    #[test]
    fn a_link_is_told_by_its_prefix() {
        let reaches = |own: &str, prefix_bits, other: &str| {
            NicAddress { ip: own.parse().unwrap(), prefix_bits, speed_mbits: 0 }
                .reaches(other.parse().unwrap())
        };
        assert!(reaches("10.0.0.1", 24, "10.0.0.254") && !reaches("10.0.0.1", 24, "10.0.1.1"));
        assert!(reaches("10.0.0.1", 0, "192.168.3.4") && !reaches("10.0.0.1", 32, "10.0.0.2"));
        assert!(reaches("fd00::1", 64, "fd00::9:1") && !reaches("fd00::1", 64, "fd00:0:0:1::1"));
        assert!(!reaches("10.0.0.1", 0, "fd00::1"));
    }
}
