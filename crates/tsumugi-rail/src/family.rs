//! IPv4 and IPv6 at one endpoint.
//!
//! An endpoint that is bound to `::` is dual stack: it has peers of both families at once. An address of IPv4 is an
//! [`IpAddr::V4`] everywhere in this library. Only the socket that owns the port is of IPv6 then, and takes and gives
//! addresses of IPv4 as mapped ones (`::ffff:10.0.0.1`): `sys/local.rs` and `sys::RawAddress::mapped` translate. Sockets of
//! single peers are of the peer's family, because the kernel looks up the route of every packet from a connected socket
//! of IPv6 to a mapped address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tsumugi_wire::limits::{DATAGRAM_BYTES_MIN, IPV4_UDP_BYTES, IPV6_UDP_BYTES};

/// Whether an endpoint that is bound to `bound` has peers of both families.
#[must_use]
pub fn is_dual(bound: IpAddr) -> bool {
    bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

/// Whether an endpoint that is bound to `bound` reaches addresses of the family of `ip`.
#[must_use]
pub fn serves(bound: IpAddr, ip: IpAddr) -> bool {
    is_dual(bound) || bound.is_ipv4() == ip.is_ipv4()
}

/// The address that an endpoint that is bound to `bound` has towards a peer, as far as binding says.
#[must_use]
pub(crate) fn local(bound: SocketAddr, peer: SocketAddr) -> SocketAddr {
    if is_dual(bound.ip()) && peer.is_ipv4() {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, bound.port()))
    } else {
        bound
    }
}

/// An IPv4 address that is written as one of IPv6 (`::ffff:10.0.0.1`) is an IPv4 address.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(four) => SocketAddr::from((four, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// Whether two addresses are equal in their first bits.
pub(crate) fn reaches(own: IpAddr, prefix_bits: u8, other: IpAddr) -> bool {
    match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            let shift = 32 - u32::from(prefix_bits.min(32));
            (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            let shift = 128 - u32::from(prefix_bits.min(128));
            (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Smallest MTU of a NIC that carries the protocol, bytes.
pub(crate) const fn mtu_bytes_min(ipv4: bool) -> usize {
    DATAGRAM_BYTES_MIN + header_bytes(ipv4)
}

/// Bytes before a datagram's payload in an IP packet.
pub(crate) const fn header_bytes(ipv4: bool) -> usize {
    if ipv4 { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unspecified_address_of_ipv6_serves_both_families_and_others_their_own() {
        let [any_four, four, any_six, six] =
            ["0.0.0.0", "10.0.0.1", "::", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        for bound in [any_four, four] {
            assert!(serves(bound, four) && !serves(bound, six) && !is_dual(bound));
        }
        assert!(serves(six, six) && !serves(six, four));
        assert!(serves(any_six, six) && serves(any_six, four) && is_dual(any_six));
        let [bound, peer] = [any_six, four].map(|ip| SocketAddr::new(ip, 7));
        assert_eq!(local(bound, peer), SocketAddr::new(any_four, 7));
        assert_eq!(local(bound, SocketAddr::new(six, 9)), bound);
        assert_eq!(local(peer, peer), peer);
        assert_eq!(canonical("[::ffff:10.0.0.1]:7".parse().unwrap()), peer);
    }
}
