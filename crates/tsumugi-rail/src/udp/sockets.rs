//! What the sockets of a rail are set to.

use super::UdpOptions;
use crate::sys::{self, Own};
use crate::{dual_stack, family};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// Time that one look may spend in the NIC's poll, µs, and packets that it may take there.
const BUSY_POLL_US: i32 = 20;
const BUSY_POLL_PACKETS: i32 = 64;

/// A non-blocking socket, to be bound to `address`, with everything set that every socket of a rail has.
pub(super) fn socket(address: SocketAddr, options: &UdpOptions) -> io::Result<Own<UdpSocket>> {
    let socket = sys::udp_socket(address)?;
    let set = |level, option, value| sys::set_option(socket.as_fd(), level, option, value);
    let queue_bytes = i32::try_from(options.queue_bytes).unwrap_or(i32::MAX);
    // As much as we get: the kernel caps the plain option, and the other is root's.
    let _ = set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, queue_bytes)
        .or_else(|_| set(libc::SOL_SOCKET, libc::SO_RCVBUF, queue_bytes));
    let _ = set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, queue_bytes)
        .or_else(|_| set(libc::SOL_SOCKET, libc::SO_SNDBUF, queue_bytes));
    if options.offloads {
        let _ = set(libc::SOL_UDP, libc::UDP_GRO, 1); // Linux 5.0; before that, one datagram a call
    }
    // Never fragmented, and no longer than the NIC's MTU. "Probe", not "do": what a router has said the kernel remembers for
    // ten minutes, and "do" would refuse (EMSGSIZE) the very probes that find out whether it is still so. Its word reaches
    // us all the same, as the same error of the socket that is connected to the peer.
    if family::serves(address.ip(), Ipv4Addr::UNSPECIFIED.into()) {
        let _ = set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    }
    if address.is_ipv6() {
        let _ = set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
    }
    dual_stack::set_dual(socket.as_fd(), address)?;
    Ok(socket.map(UdpSocket::from))
}

/// Has looks into a socket run the poll of the NIC that its packets come by (Linux 5.11).
pub(super) fn set_busy_polling(socket: &UdpSocket, on: bool) -> io::Result<()> {
    let set = |option, value| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, option, value);
    if !on {
        set(libc::SO_PREFER_BUSY_POLL, 0)?;
        return set(libc::SO_BUSY_POLL, 0);
    }
    set(libc::SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, BUSY_POLL_US)?;
    set(libc::SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS)
}
