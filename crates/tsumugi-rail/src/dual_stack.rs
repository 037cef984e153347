//! Sockets that serve both families of addresses, where this host has both.

use crate::family::is_dual;
use crate::sys::{self, interfaces};
use rustix::net;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Where Linux says that no NIC is to have an address of IPv6, unless it is set for that NIC alone.
const DISABLED: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

/// What an endpoint binds to that is to be bound to `bind`. On a host without IPv6, `::` is every address of IPv4. An address
/// of IPv4 may be written as one of IPv6.
#[must_use]
pub fn on_this_host(bind: IpAddr) -> IpAddr {
    if is_dual(bind) && !has_ipv6() { Ipv4Addr::UNSPECIFIED.into() } else { bind.to_canonical() }
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
    Ok(net::bind(&socket, &any)?)
}

/// Has a socket that is about to be bound to `address` take packets of both families if it is the address of both, and of
/// IPv6 alone if it is another of IPv6.
pub(crate) fn set_dual(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        return Ok(());
    }
    Ok(net::sockopt::set_ipv6_v6only(socket, !is_dual(address.ip()))?)
}
