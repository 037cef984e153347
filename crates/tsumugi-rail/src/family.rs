//! IPv4 and IPv6 at one endpoint.
//!
//! An endpoint that is bound to `::` is dual stack: it has peers of both families at once. An address of IPv4 is an
//! [`IpAddr::V4`] everywhere in this library. Only the socket that owns the port is of IPv6 then, and takes and gives
//! addresses of IPv4 as mapped ones (`::ffff:10.0.0.1`): `sys/local.rs` and `sys::RawAddress::mapped` translate. Sockets of
//! single peers are of the peer's family, because the kernel looks up the route of every packet from a connected socket
//! of IPv6 to a mapped address.

use crate::sys::{self, interfaces};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Where Linux says that no NIC is to have an address of IPv6, unless it is set for that NIC alone.
const DISABLED: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

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

/// What an endpoint binds to that is to be bound to `bind`. On a host without IPv6, `::` is every address of IPv4. An address
/// of IPv4 may be written as one of IPv6.
#[must_use]
pub fn on_this_host(bind: IpAddr) -> IpAddr {
    if is_dual(bind) && !has_ipv6() { Ipv4Addr::UNSPECIFIED.into() } else { bind.to_canonical() }
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

/// Whether this host has IPv6. It has none where the kernel lacks it, where this program may not use it, or where it is
/// switched off and no NIC has an address all the same.
fn has_ipv6() -> bool {
    let is_off = std::fs::read_to_string(DISABLED).is_ok_and(|text| text.trim() == "1");
    can_bind().is_ok()
        && (!is_off || interfaces().list.iter().any(|nic| matches!(nic.address, Some(IpAddr::V6(_)))))
}

/// Tries a socket for both families.
fn can_bind() -> io::Result<()> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let socket = sys::udp_socket(any)?;
    set_dual(socket.as_fd(), any)?;
    sys::bind(socket.as_fd(), any)
}

/// Has a socket that is about to be bound to `address` take packets of both families if it is the address of both, and of
/// IPv6 alone if it is another of IPv6.
pub(crate) fn set_dual(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        return Ok(());
    }
    let alone = i32::from(!is_dual(address.ip()));
    sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, alone)
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
