//! How long a datagram may be: from the MTU of the NICs that hold the rail's address.

use super::UdpError;
use crate::sys::{Interface, interfaces};
use std::net::{IpAddr, SocketAddr};
use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, IPV4_UDP_BYTES, IPV6_UDP_BYTES};

/// Largest datagram payload of a rail bound to `address`, bytes; `wanted` overrides what is found.
pub(super) fn datagram_bytes(address: SocketAddr, wanted: Option<u16>) -> Result<usize, UdpError> {
    if let Some(wanted) = wanted.map(usize::from) {
        if !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&wanted) {
            return Err(UdpError::DatagramBytes { wanted });
        }
        return Ok(wanted);
    }
    let interfaces = interfaces().map_err(|source| UdpError::System {
        doing: "listing the network interfaces",
        on: address.to_string(),
        source,
    })?;
    fitting(address, &interfaces)
}

/// The length that fits every interface that a rail bound to `address` may use.
fn fitting(address: SocketAddr, interfaces: &[Interface]) -> Result<usize, UdpError> {
    let headers = if address.is_ipv4() { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES };
    let Some(smallest) = smallest_mtu(address.ip(), interfaces) else {
        return Ok(DATAGRAM_BYTES_MIN); // no interface is up: what every path must carry
    };
    let fits = smallest.mtu_bytes.saturating_sub(headers).min(DATAGRAM_BYTES_MAX);
    if fits < DATAGRAM_BYTES_MIN {
        return Err(UdpError::MtuTooSmall {
            interface: smallest.name.clone(),
            mtu_bytes: smallest.mtu_bytes,
            need_bytes: DATAGRAM_BYTES_MIN + headers,
        });
    }
    Ok(fits)
}

/// The interface that holds `ip`; where none does, or for the wildcard, the one with the smallest MTU.
fn smallest_mtu(ip: IpAddr, interfaces: &[Interface]) -> Option<&Interface> {
    let smallest = |of: &dyn Fn(&Interface) -> bool| {
        interfaces.iter().filter(|interface| of(interface)).min_by_key(|interface| interface.mtu_bytes)
    };
    let holder = if ip.is_loopback() {
        smallest(&|interface| interface.loopback) // all of 127.0.0.0/8, not only the address it shows
    } else {
        smallest(&|interface| interface.address == Some(ip))
    };
    holder
        .or_else(|| smallest(&|interface| interface.up && !interface.loopback))
        .or_else(|| smallest(&|interface| interface.loopback))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, up: bool, mtu_bytes: usize) -> Interface {
        let address: Option<IpAddr> = address.parse().ok();
        Interface {
            name: name.into(),
            address,
            prefix_bits: 24,
            up,
            running: up,
            loopback: name == "lo",
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
        ]
    }

    fn fit(address: &str) -> usize {
        fitting(address.parse().unwrap(), &machine()).unwrap()
    }

    #[test]
    fn the_bound_interface_decides() {
        assert_eq!(fit("10.0.0.1:1"), 8972);
        assert_eq!(fit("10.1.0.1:1"), 1472);
        assert_eq!(fit("[fd00::1]:1"), 1452);
    }

    #[test]
    fn the_wildcard_takes_what_fits_all_that_are_up() {
        assert_eq!(fit("0.0.0.0:1"), 1472);
        assert_eq!(fit("[::]:1"), 1452);
        assert_eq!(fit("192.0.2.1:1"), 1472, "an address that no interface holds");
    }

    #[test]
    fn loopback_is_capped() {
        assert_eq!(fit("127.0.0.1:1"), DATAGRAM_BYTES_MAX);
        assert_eq!(fit("127.3.2.1:1"), DATAGRAM_BYTES_MAX);
        let alone = [interface("lo", "127.0.0.1", true, 65_536)];
        assert_eq!(fitting("0.0.0.0:1".parse().unwrap(), &alone).unwrap(), DATAGRAM_BYTES_MAX);
    }

    #[test]
    fn a_small_mtu_is_refused_with_the_command_that_mends_it() {
        let small = [interface("tun0", "10.9.0.1", true, 500)];
        let error = fitting("10.9.0.1:1".parse().unwrap(), &small).unwrap_err().to_string();
        assert!(error.contains("ip link set tun0 mtu 536"), "{error}");
    }

    #[test]
    fn a_wanted_length_must_lie_within_the_format() {
        let any = "127.0.0.1:0".parse().unwrap();
        assert_eq!(datagram_bytes(any, Some(1000)).unwrap(), 1000);
        assert!(matches!(datagram_bytes(any, Some(100)), Err(UdpError::DatagramBytes { wanted: 100 })));
        assert!(matches!(datagram_bytes(any, Some(9000)), Err(UdpError::DatagramBytes { wanted: 9000 })));
    }
}
