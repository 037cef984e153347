//! How long a datagram may be: from the MTU of the NICs that hold the rail's address.

use super::UdpError;
use crate::family::{self, header_bytes, mtu_bytes_min};
use crate::given_up::GivenUp;
use crate::sys::{self, Interface, Interfaces, interfaces};
use rustix::net::{self, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN};

/// Largest datagram payload of a rail bound to `address`, bytes; `wanted` overrides what is found. What the rail does
/// without goes into `given_up`.
pub(super) fn datagram_bytes(
    address: SocketAddr,
    wanted: Option<u16>,
    given_up: &mut Vec<GivenUp>,
) -> Result<usize, UdpError> {
    let found = interfaces();
    if let Some(error) = &found.lacking {
        let rest = if found.list.is_empty() { "nothing is known of NICs" } else { "older calls were asked" };
        given_up.push(GivenUp {
            what: "NICs",
            why: format!("listing them (getifaddrs, over netlink): {error}: {rest}"),
            remedy: "allow netlink sockets (AF_NETLINK) where this program is confined".to_owned(),
        });
    }
    if let Some(wanted) = wanted.map(usize::from) {
        if !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&wanted) {
            return Err(UdpError::DatagramBytes { wanted });
        }
        return Ok(wanted);
    }
    fitting(address, &found, given_up)
}

/// Longest datagram payload that the kernel's route from `address` to `peer` has room for, bytes: the NIC's MTU, the
/// route's own, or what a router has said of it.
pub(super) fn path_bytes(address: SocketAddr, peer: SocketAddr) -> io::Result<usize> {
    let socket = sys::udp_socket(peer)?;
    if !address.ip().is_unspecified() {
        // The kernel's choice of a route may depend on it.
        net::bind(&socket, &SocketAddr::new(address.ip(), 0))?;
    }
    let socket = socket.map(UdpSocket::from);
    socket.connect(peer)?;
    let mtu_bytes = if peer.is_ipv4() { sockopt::ip_mtu(&*socket) } else { sockopt::ipv6_mtu(&*socket) }?;
    Ok((mtu_bytes as usize).saturating_sub(header_bytes(peer.is_ipv4())).min(DATAGRAM_BYTES_MAX))
}

/// The length that fits every interface that a rail bound to `address` may use.
fn fitting(address: SocketAddr, found: &Interfaces, given_up: &mut Vec<GivenUp>) -> Result<usize, UdpError> {
    let ip = address.ip();
    // Of both families, IPv4 has the shorter headers. Paths of IPv6 carry less, as their routes say.
    let ipv4 = family::serves(ip, Ipv4Addr::UNSPECIFIED.into());
    let (headers, mtu_min) = (header_bytes(ipv4), mtu_bytes_min(ipv4));
    let holder = if ip.is_loopback() {
        smallest(&found.list, |interface| interface.loopback) // all of 127.0.0.0/8, not only the address it shows
    } else {
        smallest(&found.list, |interface| interface.address == Some(ip))
    };
    let too_small = |interface: &&Interface| interface.mtu_bytes < mtu_min;
    if let Some(Interface { name, mtu_bytes, .. }) = holder.filter(too_small) {
        return Err(UdpError::MtuTooSmall {
            interface: name.clone(),
            mtu_bytes: *mtu_bytes,
            need_bytes: mtu_min,
        });
    }
    // The wildcard, or an address that no interface is known to hold: whatever packets of its families may leave by.
    let leaves = |interface: &Interface| {
        let family = interface.address.is_some_and(|own| family::serves(ip, own));
        family && interface.up && !interface.loopback
    };
    if holder.is_none() {
        for small in found.list.iter().filter(|interface| leaves(interface)).filter(too_small) {
            let Interface { name, mtu_bytes, .. } = small;
            let why = format!("its MTU of {mtu_bytes} bytes is too small for this protocol");
            let left_out = GivenUp {
                what: "a NIC",
                why: format!("{name} is left out: {why}"),
                remedy: format!("ip link set {name} mtu {mtu_min}"),
            };
            if !given_up.contains(&left_out) {
                given_up.push(left_out);
            }
        }
    }
    let decides = holder
        .or_else(|| smallest(&found.list, |interface| leaves(interface) && interface.mtu_bytes >= mtu_min))
        .or_else(|| smallest(&found.list, |interface| interface.loopback));
    if let Some(interface) = decides {
        return Ok(interface.mtu_bytes.saturating_sub(headers).clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX));
    }
    if found.lacking.is_some() {
        given_up.push(GivenUp {
            what: "long datagrams",
            why: format!(
                "no MTU is known, so that they are of {DATAGRAM_BYTES_MIN} bytes, which every path carries"
            ),
            remedy: "say how long they may be (Config::datagram_bytes)".to_owned(),
        });
    }
    Ok(DATAGRAM_BYTES_MIN)
}

/// The interface with the smallest MTU of those that are meant.
fn smallest(interfaces: &[Interface], of: impl Fn(&Interface) -> bool) -> Option<&Interface> {
    interfaces.iter().filter(|interface| of(interface)).min_by_key(|interface| interface.mtu_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn interface(name: &str, address: &str, up: bool, mtu_bytes: usize) -> Interface {
        let address: Option<IpAddr> = address.parse().ok();
        Interface {
            name: name.into(),
            address,
            prefix_bits: 24,
            up,
            running: up,
            loopback: name == "lo",
            tunnel: false,
            mtu_bytes,
            speed_mbits: 0,
        }
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1", true, 65_536),
            interface("jumbo", "10.0.0.1", true, 9000),
            interface("plain", "10.1.0.1", true, 1500),
            interface("plain", "fd00::1", true, 1500),
            interface("down", "", false, 600),
            interface("down", "10.2.0.1", false, 600),
            interface("bare", "", true, 500),
        ]
    }

    /// What fits, and what was given up for it.
    fn fit_in(address: &str, list: Vec<Interface>) -> (Result<usize, UdpError>, Vec<GivenUp>) {
        let mut given_up = Vec::new();
        let found = Interfaces { list, lacking: None };
        (fitting(address.parse().unwrap(), &found, &mut given_up), given_up)
    }

    fn fit(address: &str) -> usize {
        let (fits, given_up) = fit_in(address, machine());
        assert_eq!(given_up, []);
        fits.unwrap()
    }

    #[test]
    fn the_bound_interface_decides() {
        assert_eq!(fit("10.0.0.1:1"), 8972);
        assert_eq!(fit("10.1.0.1:1"), 1472);
        assert_eq!(fit("[fd00::1]:1"), 1452);
    }

    #[test]
    fn the_wildcard_takes_what_fits_all_that_are_up_and_have_an_address() {
        assert_eq!(fit("0.0.0.0:1"), 1472);
        assert_eq!(fit("[::]:1"), 1472, "the more of what both families carry");
        assert_eq!(fit("192.0.2.1:1"), 1472, "an address that no interface holds");
    }

    #[test]
    fn loopback_is_capped() {
        assert_eq!(fit("127.0.0.1:1"), DATAGRAM_BYTES_MAX);
        assert_eq!(fit("127.3.2.1:1"), DATAGRAM_BYTES_MAX);
        let alone = vec![interface("lo", "127.0.0.1", true, 65_536)];
        assert_eq!(fit_in("0.0.0.0:1", alone).0.unwrap(), DATAGRAM_BYTES_MAX);
    }

    #[test]
    fn a_small_mtu_is_refused_with_the_command_that_mends_it() {
        let small = vec![interface("tun0", "10.9.0.1", true, 500)];
        let error = fit_in("10.9.0.1:1", small).0.unwrap_err().to_string();
        assert!(error.contains("ip link set tun0 mtu 536"), "{error}");
    }

    #[test]
    fn the_wildcard_leaves_out_what_is_too_small_and_says_so() {
        let list = [machine(), vec![interface("tun0", "10.9.0.1", true, 500)]].concat();
        let (fits, given_up) = fit_in("0.0.0.0:1", list);
        assert_eq!(fits.unwrap(), 1472);
        assert_eq!(given_up.len(), 1, "{given_up:?}");
        assert!(given_up[0].why.starts_with("tun0 is left out"), "{given_up:?}");
        assert_eq!(given_up[0].remedy, "ip link set tun0 mtu 536");
        let alone = vec![interface("tun0", "10.9.0.1", true, 500)];
        assert_eq!(fit_in("0.0.0.0:1", alone).0.unwrap(), DATAGRAM_BYTES_MIN);
    }

    #[test]
    fn who_knows_nothing_sends_what_every_path_carries() {
        let mut given_up = Vec::new();
        let nothing = Interfaces { list: Vec::new(), lacking: Some(std::io::ErrorKind::Unsupported.into()) };
        let fits = fitting("0.0.0.0:1".parse().unwrap(), &nothing, &mut given_up).unwrap();
        assert_eq!((fits, given_up.len()), (DATAGRAM_BYTES_MIN, 1));
    }

    #[test]
    fn a_wanted_length_must_lie_within_the_format() {
        let any = "127.0.0.1:0".parse().unwrap();
        let wanted = |bytes| datagram_bytes(any, Some(bytes), &mut Vec::new());
        assert_eq!(wanted(1000).unwrap(), 1000);
        assert!(matches!(wanted(100), Err(UdpError::DatagramBytes { wanted: 100 })));
        assert!(matches!(wanted(9000), Err(UdpError::DatagramBytes { wanted: 9000 })));
    }
}
