//! The NICs of this host that peers can reach an endpoint by.

mod settings;

pub use settings::{NicSettings, settings};

use crate::netlink::{Events, OF_NICS};
use crate::networks::{self, Networks, Verdict};
use crate::sys::{self, Interface, Interfaces, interfaces};
use crate::{dual_stack, family};
use arrayvec::ArrayString;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::{Path, PathBuf};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::time::SECOND_NS;

/// Most addresses that an endpoint is reached by: of as many NICs as peers are told of, in both families.
const ADDRESSES_MAX: usize = 2 * RAILS_MAX;
/// How often the NICs are looked at where the kernel may not be heard of changes.
const LOOK_NS: u64 = SECOND_NS;

/// Longest name of a NIC, bytes (IFNAMSIZ, less the zero behind it).
const NAME_BYTES_MAX: usize = 15;

/// A NIC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that every host on the same link has.
    pub prefix_bits: u8,
    /// Speed that the NIC says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
    /// Its network lies over another (a tunnel, a network of containers).
    pub is_overlay: bool,
    /// Which NIC it is: addresses of both families with the same number are of one; 0: that is not known.
    pub nic: u16,
}

impl NicAddress {
    /// Whether `ip` is on the NIC's own link, so that no router is between.
    #[must_use]
    pub fn reaches(&self, ip: IpAddr) -> bool {
        family::reaches(self.ip, self.prefix_bits, ip)
    }
}

/// The NICs that an endpoint is reached by, and what the kernel tells of them.
#[derive(Debug)]
pub(crate) struct Nics {
    bound: IpAddr,
    networks: Networks,
    /// An error where this program may not listen.
    events: io::Result<Events>,
    /// When the NICs were looked at, and what was found.
    looked_at: Option<Instant>,
    found: Vec<Interface>,
    /// Nobody has been told of what was found.
    is_news: bool,
    /// The NIC by which each peer is reached, as far as is known.
    leads_to: HashMap<SocketAddr, String>,
}

impl Nics {
    /// The NICs that peers reach the endpoint by.
    pub(crate) fn in_use(&self) -> Vec<NicReport> {
        let found = candidates(self.bound, &self.networks, &interfaces().list).into_iter();
        found.filter(|nic| nic.behind.is_none()).take(ADDRESSES_MAX).collect()
    }

    /// The NICs of an endpoint that is bound to `bound`, of those that may be used.
    pub(crate) fn open(bound: IpAddr, networks: Networks) -> Nics {
        Nics {
            bound,
            networks,
            events: Events::open(&OF_NICS),
            looked_at: None,
            found: Vec::new(),
            is_news: false,
            leads_to: HashMap::new(),
        }
    }

    /// The NICs, if something may have changed since the last call. One system call when nothing has.
    pub(crate) fn news(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        self.look(now);
        // Who cannot be asked has no NICs beside the one that is in use.
        std::mem::take(&mut self.is_news).then(|| choose(self.bound, &self.networks, &self.found))
    }

    /// There will be traffic with `peer`, from our address `local` if that is known.
    pub(crate) fn connect(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        if self.found.is_empty() {
            self.found = interfaces().list;
        }
        if let Some(name) = leads_to(&self.found, self.bound, local, peer.ip()) {
            self.leads_to.insert(peer, name);
        }
    }

    pub(crate) fn disconnect(&mut self, peer: SocketAddr) {
        self.leads_to.remove(&peer);
    }

    /// The NIC that leads to `peer`, if its link is down or it is gone.
    pub(crate) fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        self.look(now);
        let name = self.leads_to.get(&peer).cloned();
        let name = name.or_else(|| leads_to(&self.found, self.bound, None, peer.ip()))?;
        is_down(&self.found, &name).then(|| NicName::new(&name))
    }

    /// NICs that peers would reach the endpoint by, were their links not down, and those that led to peers and are gone.
    pub(crate) fn links_down(&self) -> Vec<String> {
        let found = interfaces().list;
        let usable = |nic: &&Interface| {
            let with_link = Interface { up: true, running: true, ..(*nic).clone() };
            judge(self.bound, &self.networks, &with_link).is_ok()
        };
        let names = found.iter().filter(usable).map(|nic| &nic.name).chain(self.leads_to.values());
        let mut down: Vec<String> = names.filter(|name| is_down(&found, name)).cloned().collect();
        down.sort();
        down.dedup();
        down
    }

    fn look(&mut self, now: Instant) {
        let mut changed = self.looked_at.is_none();
        match &mut self.events {
            Ok(events) => events.take(&mut |_| changed = true),
            Err(_) => changed |= self.looked_at.is_some_and(|at| now.since(at) >= LOOK_NS),
        }
        if changed {
            (self.looked_at, self.is_news) = (Some(now), true);
            self.found = interfaces().list;
        }
    }

    /// Whether the kernel tells of changes.
    pub(crate) const fn hears(&self) -> Result<(), &io::Error> {
        match &self.events {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A NIC's name, which is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NicName(ArrayString<NAME_BYTES_MAX>);

impl NicName {
    /// The name; no NIC has a longer one than there is room for.
    #[must_use]
    pub fn new(name: &str) -> NicName {
        let mut short = ArrayString::new();
        for character in name.chars() {
            if short.try_push(character).is_err() {
                break;
            }
        }
        NicName(short)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The NIC by which packets to `peer` leave: the one that has the address that they leave from, or else the one that has
/// the peer on its link. `None`: that is not known, or it leads to this host.
fn leads_to(found: &[Interface], bound: IpAddr, local: Option<IpAddr>, peer: IpAddr) -> Option<String> {
    let local = local.or_else(|| (!bound.is_unspecified()).then_some(bound));
    let has_it = |nic: &&Interface| local.is_some() && nic.address == local;
    let on_link = |nic: &&Interface| {
        nic.prefix_bits > 0 && nic.address.is_some_and(|ip| family::reaches(ip, nic.prefix_bits, peer))
    };
    let nearest = || found.iter().filter(on_link).max_by_key(|nic| nic.prefix_bits);
    let nic = found.iter().find(has_it).or_else(nearest)?;
    (!nic.loopback && nic.address != Some(peer)).then(|| nic.name.clone())
}

/// Whether nothing leaves by the NIC called `name`: it is off, has no carrier, or is gone.
fn is_down(found: &[Interface], name: &str) -> bool {
    !found.is_empty() && !found.iter().any(|nic| nic.name == name && nic.up && nic.running)
}

/// The addresses that an endpoint bound to `bound` can be reached by: one of each NIC that is on and has a carrier, in each
/// family, if it is bound to all of them; its own otherwise.
///
/// Two NICs on one link are one rail: the kernel sends through the first of them whatever is for that link.
fn choose(bound: IpAddr, networks: &Networks, interfaces: &[Interface]) -> Vec<NicAddress> {
    let candidates = candidates(bound, networks, interfaces).into_iter();
    candidates.filter(|nic| nic.behind.is_none()).map(|nic| nic.address).take(ADDRESSES_MAX).collect()
}

/// A NIC that works, as an endpoint sees it: once in each family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicReport {
    /// Its name.
    pub name: String,
    /// Its first address in the family.
    pub address: NicAddress,
    /// Its MTU, bytes.
    pub mtu_bytes: usize,
    /// The NIC that is used in its place, because it is on the same link.
    pub behind: Option<String>,
}

/// The NICs that an endpoint on every address finds here, of those that [the environment](Networks::from_environment) lets
/// it use.
///
/// # Errors
/// The system does not say.
pub fn survey() -> io::Result<Vec<NicReport>> {
    let interfaces = list()?;
    let networks = Networks::from_environment().unwrap_or_default();
    Ok(candidates(dual_stack::on_this_host(Ipv6Addr::UNSPECIFIED.into()), &networks, &interfaces))
}

/// Index of the NIC called `name`, which is the scope of link-local addresses on its link.
#[must_use]
pub fn index_of(name: &str) -> Option<u32> {
    sys::interface_index(name)
}

/// Where the kernel shows what it knows of a NIC, and takes settings.
pub(crate) fn folder(nic: &str) -> PathBuf {
    Path::new("/sys/class/net").join(nic)
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

/// What an endpoint that is bound to `bound` makes of an address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicChoice {
    /// The NIC's name.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Why peers are not told of it, so that it is no path; `None`: they are.
    pub unused: Option<String>,
}

/// Of these addresses, those by which peers reach this host first, one of each family, the best one first.
#[must_use]
pub fn reached_by(choices: &[NicChoice]) -> Vec<IpAddr> {
    let used = || choices.iter().filter(|choice| choice.unused.is_none()).map(|choice| choice.ip);
    // What leaves by the default route is what other hosts know this one by; a link-local address is one on one link only.
    let to_all: [SocketAddr; 2] =
        [(Ipv4Addr::new(192, 0, 2, 1), 9).into(), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into()];
    let mut best: Vec<IpAddr> = Vec::new();
    for to in to_all {
        let of_family = || used().filter(|ip| ip.is_ipv4() == to.is_ipv4());
        let default = towards(to).filter(|ip| of_family().any(|other| other == *ip));
        let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local());
        best.extend(
            default.or_else(|| of_family().find(|ip| !link_local(ip))).or_else(|| of_family().next()),
        );
    }
    best
}

/// The address of this host that packets to `peer` leave from.
#[must_use]
pub fn towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Sends nothing. Any port will do.
    socket.connect((peer.ip(), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Every address of this host, and why an endpoint that is bound to `bound` uses it or not.
///
/// # Errors
/// The system does not say.
pub fn explain(bound: IpAddr, networks: &Networks) -> io::Result<Vec<NicChoice>> {
    let interfaces = list()?;
    let used = candidates(bound, networks, &interfaces);
    let choice = |interface: &Interface| {
        let (name, ip) = (interface.name.clone(), interface.address?);
        let unused = match used.iter().find(|nic| nic.is_of(&name, ip)) {
            Some(nic) if nic.address.ip == ip => nic
                .behind
                .as_ref()
                .map(|behind| format!("on the same link as {behind}, which is used for both")),
            used => judge(bound, networks, interface).err().or_else(|| {
                used.map(|nic| format!("{} has another address that is used, {}", name, nic.address.ip))
            }),
        };
        Some(NicChoice { name, ip, unused })
    };
    Ok(interfaces.iter().filter_map(choice).collect())
}

impl NicReport {
    /// Whether this is the NIC called `name` in the family of `ip`.
    fn is_of(&self, name: &str, ip: IpAddr) -> bool {
        self.name == name && self.address.ip.is_ipv4() == ip.is_ipv4()
    }
}

fn list() -> io::Result<Vec<Interface>> {
    match interfaces() {
        Interfaces { list, lacking: Some(error) } if list.is_empty() => Err(error),
        found => Ok(found.list),
    }
}

/// Whether peers may be told of an address, or why not. Whether its network lies over another.
fn judge(bound: IpAddr, networks: &Networks, interface: &Interface) -> Result<bool, String> {
    let Interface { name, .. } = interface;
    let Some(ip) = interface.address else { return Err("it has no address".to_owned()) };
    let is_overlay = interface.tunnel || networks::is_overlay(name);
    if !interface.up || !interface.running {
        let what = if interface.up { "has no carrier" } else { "is switched off" };
        return Err(format!("{name} {what}"));
    }
    if !bound.is_unspecified() {
        return if ip == bound { Ok(is_overlay) } else { Err(format!("the endpoint is bound to {bound}")) };
    }
    let is_named = match networks.judge(name, ip) {
        Verdict::Excluded(entry) => return Err(format!("excluded by '{entry}'")),
        Verdict::NotListed => return Err(format!("not on the list of networks '{networks}'")),
        Verdict::Named => true,
        Verdict::Free => false,
    };
    let mtu_min = family::mtu_bytes_min(ip.is_ipv4());
    let why = if !family::serves(bound, ip) {
        format!("the endpoint is bound to {bound}, which is of IPv4 only")
    } else if interface.loopback {
        "it leads to this host only".to_owned()
    } else if is_link_local(ip) {
        "it is a link-local address, which says nothing of who else is there".to_owned()
    } else if interface.mtu_bytes < mtu_min {
        format!("its MTU of {} is less than {mtu_min}", interface.mtu_bytes)
    } else if networks::is_host_only(name) && !is_named {
        format!("{name} leads to containers or virtual machines of this host; name it to use it")
    } else {
        return Ok(is_overlay);
    };
    Err(why)
}

fn candidates(bound: IpAddr, networks: &Networks, interfaces: &[Interface]) -> Vec<NicReport> {
    let mut found: Vec<NicReport> = Vec::new();
    for interface in interfaces {
        let Some(ip) = interface.address else { continue };
        let Ok(is_overlay) = judge(bound, networks, interface) else { continue };
        if found.iter().any(|nic| nic.is_of(&interface.name, ip)) {
            continue;
        }
        let same = found.iter().find(|nic| nic.name == interface.name).map(|nic| nic.address.nic);
        let next = || found.iter().map(|nic| nic.address.nic).max().unwrap_or(0).saturating_add(1);
        let nic = same.unwrap_or_else(next);
        let behind = found.iter().find(|nic| nic.behind.is_none() && nic.address.reaches(ip));
        found.push(NicReport {
            name: interface.name.clone(),
            address: NicAddress {
                ip,
                prefix_bits: interface.prefix_bits,
                speed_mbits: interface.speed_mbits,
                is_overlay,
                nic,
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
            tunnel: false,
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
            interface("eth1", "fd00::2", 64, true),
            interface("eth0", "fd01::1", 64, true),
            Interface { mtu_bytes: 500, ..interface("tun0", "10.9.9.9", 24, true) },
        ];
        let chosen = |bound: &str| {
            choose(bound.parse().unwrap(), &Networks::default(), &interfaces)
                .iter()
                .map(|nic| nic.ip.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen("0.0.0.0"), ["10.0.0.1", "10.0.1.1"]);
        assert_eq!(chosen("::"), ["10.0.0.1", "10.0.1.1", "fd00::1", "fd01::1"]);
        assert_eq!(chosen("10.0.1.1"), ["10.0.1.1"]);
    }

    #[test]
    fn addresses_of_one_nic_have_its_number_in_both_families() {
        let interfaces = [
            interface("eth0", "10.0.0.1", 24, true),
            interface("eth1", "10.0.1.1", 24, true),
            interface("eth1", "fd00::1", 64, true),
            interface("eth2", "fd01::1", 64, true),
        ];
        let found = choose(Ipv6Addr::UNSPECIFIED.into(), &Networks::default(), &interfaces);
        assert_eq!(found.iter().map(|nic| nic.nic).collect::<Vec<_>>(), [1, 2, 2, 3]);
    }

    #[test]
    fn networks_of_this_host_alone_are_left_out_unless_they_are_named() {
        let interfaces = [
            interface("docker0", "172.17.0.1", 16, true),
            interface("virbr0", "192.168.122.1", 24, true),
            interface("eth0", "10.0.0.1", 24, true),
            Interface { tunnel: true, ..interface("office", "10.8.0.2", 24, true) },
        ];
        let chosen = |list: &str| -> Vec<(String, bool)> {
            let found =
                choose(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), &list.parse().unwrap(), &interfaces);
            found.iter().map(|nic| (nic.ip.to_string(), nic.is_overlay)).collect()
        };
        let (eth0, office) = (("10.0.0.1".to_owned(), false), ("10.8.0.2".to_owned(), true));
        assert_eq!(chosen(""), [eth0.clone(), office.clone()]);
        assert_eq!(chosen("!office"), std::slice::from_ref(&eth0));
        assert_eq!(chosen("10.8.0.0/16"), [office]);
        assert_eq!(chosen("docker0,eth*"), [("172.17.0.1".to_owned(), false), eth0]);
        assert_eq!(chosen("172.16.0.0/12"), []);
    }

    #[test]
    fn a_nic_on_the_link_of_another_stands_behind_it() {
        let interfaces = [
            interface("eth0", "10.0.0.1", 24, true),
            interface("eth1", "10.0.0.2", 24, true),
            interface("eth2", "10.0.1.1", 24, true),
        ];
        let found =
            candidates(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), &Networks::default(), &interfaces);
        let behind: Vec<_> = found.iter().map(|nic| nic.behind.as_deref()).collect();
        assert_eq!(behind, [None, Some("eth0"), None]);
    }

    #[test]
    fn the_nic_that_leads_to_a_peer_is_told_by_our_address_or_by_its_link() {
        let interfaces = |eth1_runs| {
            vec![
                interface("lo", "127.0.0.1", 8, true),
                interface("eth0", "10.0.0.1", 8, true),
                interface("eth1", "10.1.0.1", 16, eth1_runs),
            ]
        };
        let any = std::net::Ipv4Addr::UNSPECIFIED.into();
        let leads_to = |local: Option<&str>, peer: &str| {
            let local = local.map(|ip| ip.parse().unwrap());
            leads_to(&interfaces(true), any, local, peer.parse().unwrap())
        };
        assert_eq!(leads_to(None, "10.1.0.2").as_deref(), Some("eth1"), "the longest prefix");
        assert_eq!(leads_to(None, "192.0.2.1"), None);
        assert_eq!(leads_to(Some("10.1.0.1"), "192.0.2.1").as_deref(), Some("eth1"), "by a router");
        assert_eq!(leads_to(Some("127.0.0.1"), "127.0.0.1"), None);
        assert_eq!(leads_to(None, "10.1.0.1"), None, "this host");

        let mut nics = Nics::open(any, Networks::default());
        // Nothing is looked at again before a second is over.
        (nics.events, nics.looked_at) = (Err(io::ErrorKind::Unsupported.into()), Some(Instant(0)));
        let peer: SocketAddr = "10.1.0.2:7".parse().unwrap();
        nics.found = interfaces(true);
        nics.connect(peer, None);
        assert_eq!(nics.link_down(Instant(1), peer), None);
        nics.found = interfaces(false);
        assert_eq!(nics.link_down(Instant(1), peer), Some(NicName::new("eth1")));
        nics.found.truncate(2);
        assert_eq!(nics.link_down(Instant(1), peer), Some(NicName::new("eth1")), "it was taken out");
        nics.disconnect(peer);
        assert_eq!(nics.link_down(Instant(1), peer), None);
    }

    #[test]
    fn a_name_of_a_nic_is_never_longer_than_names_are() {
        assert_eq!(NicName::new("enp0s31f6").to_string(), "enp0s31f6");
        assert_eq!(NicName::new("a name that is too long").as_str().len(), NAME_BYTES_MAX);
    }

    #[test]
    fn a_link_is_told_by_its_prefix() {
        let reaches = |own: &str, prefix_bits, other: &str| {
            NicAddress { ip: own.parse().unwrap(), prefix_bits, speed_mbits: 0, is_overlay: false, nic: 0 }
                .reaches(other.parse().unwrap())
        };
        assert!(reaches("10.0.0.1", 24, "10.0.0.254") && !reaches("10.0.0.1", 24, "10.0.1.1"));
        assert!(reaches("10.0.0.1", 0, "192.168.3.4") && !reaches("10.0.0.1", 32, "10.0.0.2"));
        assert!(reaches("fd00::1", 64, "fd00::9:1") && !reaches("fd00::1", 64, "fd00:0:0:1::1"));
        assert!(!reaches("10.0.0.1", 0, "fd00::1"));
    }
}
