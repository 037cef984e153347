//! System calls that the standard library does not offer, each behind a safe function.

mod ethtool;
mod forks;
mod interfaces;
mod kernel;
mod links;
mod local;
mod locks;
mod mapped;
mod mounts;
mod spare;

pub(crate) use ethtool::nic_statistics;
pub use forks::{Own, Owner};
pub(crate) use interfaces::{Interface, Interfaces, interface_index, interface_name, interfaces};
pub use kernel::kernel_version;
pub(crate) use links::{detach_link, open_pin};
pub(crate) use local::{Source, receive, tell_local};
pub(crate) use locks::{
    grace_periods, is_bpf_fs, is_linked, is_writable, lock, lock_is_held, page_bytes, wait_for_softirqs,
};
pub(crate) use mapped::{Access, is_mapped};
pub(crate) use mounts::{BpfMount, Elder, mount_bpf_fs, unmount, within_mounts_of};
pub(crate) use spare::keep as keep_mappings;

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// What a system call returned, with -1 turned into the error it stands for.
pub(crate) fn checked<T: PartialEq + From<i8>>(returned: T) -> io::Result<T> {
    if returned == T::from(-1) { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Memory that is zeroed when it is made.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// It is this process's alone, so that others may have it when it is given back.
    is_private: bool,
    /// What the kernel has, too, a child of this process gets a copy of.
    kept: Option<forks::Kept>,
}

// SAFETY: nothing about a mapping belongs to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` of anonymous memory, page-aligned.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Mapping> {
        if let Some(start) = spare::take(bytes) {
            let mapping = Mapping { start, bytes, is_private: true, kept: None };
            mapping.zero();
            return Ok(mapping);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Mapping::make_with(access, bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// The same for memory that the kernel writes, which must not be at another place after a fork.
    pub(crate) fn shared(bytes: usize) -> io::Result<Mapping> {
        Mapping::make(bytes, libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps the first `bytes` of a BPF array's elements, page-aligned.
    pub(crate) fn of_map(map: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        Mapping::make(bytes, 0, map.as_raw_fd(), 0)
    }

    /// Maps `bytes` of a BPF map from `offset` on, only to be read.
    pub(crate) fn read_only(map: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<Mapping> {
        Mapping::make_with(libc::PROT_READ, bytes, libc::MAP_SHARED, map.as_raw_fd(), offset)
    }

    /// Maps `bytes` of what a socket shares at `offset`: one of the rings of an AF_XDP socket.
    pub(crate) fn of_socket(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::make(bytes, 0, socket.as_raw_fd(), offset as usize)
    }

    fn make(bytes: usize, flags: i32, file: i32, offset: usize) -> io::Result<Mapping> {
        Mapping::make_with(libc::PROT_READ | libc::PROT_WRITE, bytes, libc::MAP_SHARED | flags, file, offset)
    }

    fn make_with(access: i32, bytes: usize, flags: i32, file: i32, offset: usize) -> io::Result<Mapping> {
        let offset = offset as libc::off_t;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let is_private = flags & libc::MAP_PRIVATE != 0;
        let kept = (file != -1).then(|| forks::Kept::memory(start, bytes));
        Ok(Mapping { start, bytes, is_private, kept })
    }

    /// Bytes of the mapping.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// First byte of the mapping; valid for reads and writes of its whole length while `self` lives.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Zeroes all of it. For mappings that nobody else uses at this time.
    pub(crate) fn zero(&self) {
        // SAFETY: exactly the bytes of this mapping, which can be written. What others that share it would make
        // of bytes that change under them is theirs to bear: they cannot be of this program, where a mapping has
        // one owner.
        unsafe { self.start.write_bytes(0, self.bytes) };
    }

    /// Makes every page present. Kernels before 5.14 do not know how, which is no harm.
    pub(crate) fn prefault(&self) {
        // SAFETY: exactly the pages of this mapping; populating changes no contents.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the place can be another's.
        self.kept = None;
        if self.is_private && spare::give(self.start, self.bytes) {
            return;
        }
        // SAFETY: exactly what `make` mapped; every reference into it borrowed from `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Keeps pages in memory.
pub(crate) fn pin(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: locking pages changes no contents; of addresses that are not mapped the kernel says so.
    checked(unsafe { libc::mlock(start.as_ptr().cast(), bytes) }).map(drop)
}

/// Bytes that the process may keep in memory; `None`: as many as it likes.
pub(crate) fn pin_limit() -> Option<u64> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// Files that the process may have open; `None`: as many as it likes.
pub(crate) fn open_limit() -> Option<u64> {
    limit(libc::RLIMIT_NOFILE)
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure that it is given.
    checked(unsafe { libc::getrlimit(resource, &mut limit) }).ok()?;
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A socket address as the kernel reads it.
#[derive(Clone, Copy)]
pub(crate) enum RawAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
    /// With the address of ours that datagrams leave from.
    V4From(libc::sockaddr_in, Source),
    V6From(libc::sockaddr_in6, Source),
    Interface(libc::sockaddr_ll),
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(v4) => RawAddress::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => RawAddress::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

impl RawAddress {
    /// The address as a socket for both families reads it: one of IPv4 is mapped into IPv6 (RFC 4291, 2.5.5.2).
    pub(crate) fn mapped(address: SocketAddr) -> RawAddress {
        RawAddress::from(match address {
            SocketAddr::V4(four) => SocketAddr::from((four.ip().to_ipv6_mapped(), four.port())),
            six => six,
        })
    }

    /// The same, for datagrams that leave from `local`.
    pub(crate) fn leaving_from(self, local: SocketAddr) -> RawAddress {
        match self {
            RawAddress::V4(v4) => RawAddress::V4From(v4, Source::new(local)),
            RawAddress::V6(v6) => RawAddress::V6From(v6, Source::new(local)),
            other => other,
        }
    }

    /// The control message that goes with it; empty: none.
    fn control(&self) -> &[u8] {
        match self {
            RawAddress::V4From(_, source) | RawAddress::V6From(_, source) => source.bytes(),
            _ => &[],
        }
    }

    /// Where a packet socket sends: a NIC, by its index. The frame itself says the rest.
    pub(crate) fn interface(index: u32) -> RawAddress {
        RawAddress::Interface(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::sa_family_t,
            sll_protocol: 0,
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        })
    }

    fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            RawAddress::V4(v4) | RawAddress::V4From(v4, _) => {
                (std::ptr::from_ref(v4).cast(), size_of_val(v4) as libc::socklen_t)
            }
            RawAddress::V6(v6) | RawAddress::V6From(v6, _) => {
                (std::ptr::from_ref(v6).cast(), size_of_val(v6) as libc::socklen_t)
            }
            RawAddress::Interface(ll) => (std::ptr::from_ref(ll).cast(), size_of_val(ll) as libc::socklen_t),
        }
    }
}

/// A new non-blocking UDP socket of `address`'s family.
pub(crate) fn udp_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    socket(family_of(address), libc::SOCK_DGRAM)
}

/// A new non-blocking socket that takes whole frames and, being of protocol 0, receives none.
pub(crate) fn packet_socket() -> io::Result<Own<OwnedFd>> {
    socket(libc::AF_PACKET, libc::SOCK_RAW)
}

/// A new non-blocking TCP socket of `address`'s family.
pub(crate) fn tcp_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    socket(family_of(address), libc::SOCK_STREAM)
}

/// A new non-blocking socket for ICMP echo requests to hosts of `address`'s family, where the system permits it.
pub(crate) fn echo_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    let protocol = if address.is_ipv4() { libc::IPPROTO_ICMP } else { libc::IPPROTO_ICMPV6 };
    socket_of(family_of(address), libc::SOCK_DGRAM, protocol)
}

fn family_of(address: SocketAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn socket(family: i32, kind: i32) -> io::Result<Own<OwnedFd>> {
    socket_of(family, kind, 0)
}

fn socket_of(family: i32, kind: i32, protocol: i32) -> io::Result<Own<OwnedFd>> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed; the descriptor returned is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(family, kind, protocol))?) };
    let has_port = matches!(family, libc::AF_INET | libc::AF_INET6);
    Ok(if has_port { Own::of_port(socket) } else { Own::new(socket) })
}

/// Begins to listen.
pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// Begins to connect a non-blocking socket; it can be written to when that has ended.
pub(crate) fn connect(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from(to);
    let (start, bytes) = raw.parts();
    // SAFETY: `start` points to `bytes` of `raw`, which outlives the call.
    match checked(unsafe { libc::connect(socket.as_raw_fd(), start, bytes) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// Whether a socket that was told to connect has done so, or failed: it can be written to.
pub(crate) fn has_connected(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd, alive through the call, which does not wait.
    Ok(checked(unsafe { libc::poll(&raw mut poll, 1, 0) })? > 0)
}

/// Has a TCP connection reset when its socket is closed, so that nothing is left of it.
pub(crate) fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the value's pointer and size describe `linger`, which outlives the call.
    let returned = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            bytes,
        )
    };
    checked(returned).map(drop)
}

/// Takes a datagram off a socket, whatever it says. Whether there was one.
pub(crate) fn take(socket: BorrowedFd<'_>) -> bool {
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most one byte to `byte`, which outlives the call.
    let taken = unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    taken >= 0
}

/// Binds `socket` to `address`.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from(address);
    let (start, bytes) = raw.parts();
    // SAFETY: `start` points to `bytes` of `raw`, which outlives the call.
    checked(unsafe { libc::bind(socket.as_raw_fd(), start, bytes) }).map(drop)
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value's pointer and size describe `value`, which outlives the call.
    let returned = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&value).cast(), bytes)
    };
    checked(returned).map(drop)
}

/// An integer option of a socket.
pub(crate) fn option(socket: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    let (mut value, mut bytes) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the call writes no more than `bytes` into `value`; both outlive it.
    let returned = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut bytes)
    };
    checked(returned).map(|_| value)
}

/// The cookie of the network namespace of the calling thread: a number that no other has had since the machine started
/// (`SO_NETNS_COOKIE`, Linux 5.14). The inode number of a namespace that is gone goes to the next one that is made.
pub(crate) fn network_namespace_cookie() -> io::Result<u64> {
    let any = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
    let socket = udp_socket(any[0]).or_else(|_| udp_socket(any[1]))?;
    let (mut cookie, mut bytes) = (0u64, size_of::<u64>() as libc::socklen_t);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    // SAFETY: the call writes no more than `bytes` into `cookie`; both outlive it.
    let returned = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut cookie).cast(), &raw mut bytes)
    };
    checked(returned).map(|_| cookie)
}

/// Points `message` at the pieces of one or more datagrams, and at their destination.
fn fill(message: &mut libc::msghdr, to: Option<&RawAddress>, pieces: &[IoSlice<'_>]) {
    if let Some(to) = to {
        let (start, bytes) = to.parts();
        message.msg_name = start.cast_mut().cast();
        message.msg_namelen = bytes;
        if let control @ [_, ..] = to.control() {
            message.msg_control = control.as_ptr().cast_mut().cast();
            message.msg_controllen = control.len() as _;
        }
    }
    // The standard library promises that `IoSlice` is an `iovec`.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
}

/// A message header without anything.
fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: null pointers with lengths of 0.
    unsafe { std::mem::zeroed() }
}

/// Sends one datagram of one piece. `to` is for sockets that are not connected.
pub(crate) fn send(socket: BorrowedFd<'_>, to: Option<&RawAddress>, bytes: &[u8]) -> io::Result<()> {
    if to.is_some_and(|to| !to.control().is_empty()) {
        return send_pieces(socket, to, &[IoSlice::new(bytes)]);
    }
    let (start, address_bytes) = to.map_or((std::ptr::null(), 0), RawAddress::parts);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes and the address outlive the call, which only reads them.
    checked(unsafe {
        libc::sendto(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags, start, address_bytes)
    })
    .map(drop)
}

/// Sends one datagram of several pieces. `to` is for sockets that are not connected.
pub(crate) fn send_pieces(
    socket: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    pieces: &[IoSlice<'_>],
) -> io::Result<()> {
    let mut message = empty_message();
    fill(&mut message, to, pieces);
    // SAFETY: the pieces and the address outlive the call, and the kernel only reads them.
    checked(unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })
    .map(drop)
}

/// Whether the kernel still has anything that was sent through `socket`: in a queue, in the NIC, or on its way to a
/// receiver on this machine.
pub(crate) fn has_unsent(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer to `bytes`, which outlives the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes > 0)
}

/// Sends `bytes` as datagrams of `segment_bytes`, the last perhaps shorter, in one call
/// (`UDP_SEGMENT`, Linux 4.18). All or nothing. `to` is for sockets that are not connected.
pub(crate) fn send_segmented(
    socket: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    bytes: &[u8],
    segment_bytes: u16,
) -> io::Result<()> {
    #[repr(C, align(8))]
    struct Control([u8; 24 + size_of::<Source>()]);
    // SAFETY: pure arithmetic.
    const SPACE: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;
    const { assert!(SPACE + size_of::<Source>() <= size_of::<Control>()) };

    let mut control = Control([0; 24 + size_of::<Source>()]);
    let source = to.map_or(&[][..], RawAddress::control);
    control.0[SPACE..SPACE + source.len()].copy_from_slice(source);
    let mut message = empty_message();
    let pieces = [IoSlice::new(bytes)];
    fill(&mut message, to, &pieces);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = (SPACE + source.len()) as _;
    // SAFETY: `control` is aligned and large enough for one header with a u16 (asserted above), so that
    // CMSG_FIRSTHDR is not null. The bytes, the address and `control` outlive the call, and the
    // kernel only reads them.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment_bytes);
        checked(libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        ))
        .map(drop)
    }
}

/// Most datagrams of one [`send_many`].
pub(crate) const MANY_MAX: usize = 64;

/// Sends up to [`MANY_MAX`] datagrams of so many pieces each, and returns how many were taken (at least one).
pub(crate) fn send_many<const PIECES: usize>(
    socket: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    datagrams: &[[IoSlice<'_>; PIECES]],
) -> io::Result<usize> {
    let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; MANY_MAX];
    let count = datagrams.len().min(MANY_MAX);
    for (message, pieces) in messages.iter_mut().zip(datagrams) {
        fill(&mut message.msg_hdr, to, pieces);
    }
    // SAFETY: the first `count` messages point to pieces and an address that outlive the call; the
    // kernel writes only their `msg_len`.
    let returned = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as u32,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    checked(returned).map(|sent| sent as usize)
}

/// A set of descriptors to ask about together.
#[derive(Debug)]
pub(crate) struct Epoll(Own<OwnedFd>);

/// Most descriptors that one [`Epoll::ready`] names. The kernel goes round, so that none starves.
pub(crate) const READY_MAX: usize = 16;

impl Epoll {
    /// An empty set.
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed; the descriptor returned is new and nobody else's.
        let made =
            unsafe { checked(libc::epoll_create1(libc::EPOLL_CLOEXEC)).map(|fd| OwnedFd::from_raw_fd(fd)) };
        made.map(|set| Epoll(Own::new(set)))
    }

    /// The set's own descriptor: readable while one of its members is.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Adds `member` under the name `token`. It leaves when it is closed.
    pub(crate) fn add(&self, member: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: `event` outlives the call, which only reads it.
        let returned = unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, member.as_raw_fd(), &raw mut event)
        };
        checked(returned).map(drop)
    }

    /// Takes `member` out.
    pub(crate) fn remove(&self, member: BorrowedFd<'_>) -> io::Result<()> {
        let (set, member) = (self.0.as_raw_fd(), member.as_raw_fd());
        // SAFETY: removing reads no event (since Linux 2.6.9).
        checked(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, member, std::ptr::null_mut()) }).map(drop)
    }

    /// Writes the tokens of readable members into `tokens`, without waiting, and returns how many.
    pub(crate) fn ready(&self, tokens: &mut [u64; READY_MAX]) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        // SAFETY: the kernel writes at most `READY_MAX` events into `events`, which outlives the call.
        let returned =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), READY_MAX as i32, 0) };
        let count = checked(returned)? as usize;
        for (token, event) in tokens.iter_mut().zip(&events[..count]) {
            *token = event.u64;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_names_what_is_readable() {
        let epoll = Epoll::new().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        epoll.add(std::os::fd::AsFd::as_fd(&socket), 42).unwrap();
        let mut tokens = [0; READY_MAX];
        assert_eq!(epoll.ready(&mut tokens).unwrap(), 0);
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert_eq!((epoll.ready(&mut tokens).unwrap(), tokens[0]), (1, 42));
    }

    #[test]
    fn a_mapping_that_is_kept_comes_back_zeroed() {
        keep_mappings(1 << 20);
        let first = Mapping::anonymous(5000).unwrap();
        let start = first.start();
        // SAFETY: within the mapping.
        unsafe { start.write_bytes(7, 5000) };
        drop(first);
        let second = Mapping::anonymous(4097).unwrap();
        let third = Mapping::anonymous(5000).unwrap();
        assert!(second.start() == start && third.start() != start);
        // SAFETY: within the mapping, which nobody changes meanwhile.
        let again = unsafe { std::slice::from_raw_parts(start.as_ptr(), second.bytes()) };
        assert!(again.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_taken_port_is_an_error_and_not_a_crash() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let socket = udp_socket(address).unwrap();
        let error = bind(std::os::fd::AsFd::as_fd(&socket), address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
