//! Which of this machine's addresses a datagram came to, and which one it leaves from (`IP_PKTINFO`, `IPV6_PKTINFO`).

use super::{checked, empty_message};
use crate::family;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of the control messages of one datagram, at most.
const CONTROL_BYTES: usize = 128;

/// Room for control messages.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A control message that says which address a datagram leaves from.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Source {
    bytes: [u8; SOURCE_BYTES],
    used: usize,
}

// SAFETY: pure arithmetic.
const SOURCE_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) } as usize;

impl Source {
    /// For datagrams that leave from `local`.
    pub(crate) fn new(local: SocketAddr) -> Source {
        match local {
            SocketAddr::V4(four) => {
                let any = libc::in_addr { s_addr: 0 };
                let spec = libc::in_addr { s_addr: u32::from_ne_bytes(four.ip().octets()) };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: spec, ipi_addr: any };
                Source::of(libc::IPPROTO_IP, libc::IP_PKTINFO, info)
            }
            SocketAddr::V6(six) => {
                let address = libc::in6_addr { s6_addr: six.ip().octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: six.scope_id() };
                Source::of(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
            }
        }
    }

    fn of<T>(level: i32, kind: i32, info: T) -> Source {
        // SAFETY: pure arithmetic.
        let (used, length) = unsafe {
            (libc::CMSG_SPACE(size_of::<T>() as u32) as usize, libc::CMSG_LEN(size_of::<T>() as u32))
        };
        assert!(used <= SOURCE_BYTES, "a control message of another kind");
        let mut source = Source { bytes: [0; SOURCE_BYTES], used };
        let header = source.bytes.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `bytes` is aligned for a header (`repr`) and holds one with its data (asserted above).
        unsafe {
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = length as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
        }
        source
    }

    /// The control message with its padding, aligned for a header.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Has the kernel tell which address datagrams came to, on a socket that is bound to `bound`.
pub(crate) fn tell_local(socket: BorrowedFd<'_>, bound: IpAddr) -> io::Result<()> {
    if family::serves(bound, Ipv4Addr::UNSPECIFIED.into()) {
        super::set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    if bound.is_ipv6() {
        super::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    Ok(())
}

/// Takes a datagram: its length, who sent it, and the address that it came to, if the kernel [tells](tell_local).
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
    // SAFETY: all-zero is a valid `sockaddr_storage`.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut control = Control([0; CONTROL_BYTES]);
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = empty_message();
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as _;
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: name, piece with its buffer, and control outlive the call, which writes no more than their lengths.
    let bytes = checked(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })?;
    let from = from_storage(&name).ok_or(io::ErrorKind::InvalidData)?;
    let mut local = None;
    // SAFETY: the kernel has filled in `control` as far as `msg_controllen` says; the macros stay within that, and what
    // they find is as long as its type says.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (found.cmsg_level, found.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    local = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())));
                }
                // On a socket for both families it comes with datagrams of IPv4, too, beside their own.
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if from.is_ipv6() => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    local = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let local = local.filter(|ip| !ip.is_multicast() && !ip.is_unspecified());
    Ok((bytes as usize, from, local))
}

/// A socket address as the standard library has it. One of IPv4 is one, also from a socket for both families.
fn from_storage(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let start: *const libc::sockaddr_storage = name;
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says so, and the storage is large enough and aligned for every address.
            let four = unsafe { &*start.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(four.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { &*start.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let port = u16::from_be(six.sin6_port);
            Some(family::canonical(SocketAddrV6::new(ip, port, six.sin6_flowinfo, six.sin6_scope_id).into()))
        }
        _ => None,
    }
}
