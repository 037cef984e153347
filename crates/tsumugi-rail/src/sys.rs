//! System calls that neither the standard library nor rustix makes as they are needed here, each behind a safe function.
//!
//! What is left to libc, because rustix does not know it: control messages with UDP_SEGMENT or an address of ours, and so
//! `sendmsg` and `recvmsg`, and `sendmmsg`, whose addresses rustix would copy; options of sockets that have no function there
//! (UDP_GRO, PACKET_*, SO_BUSY_POLL, SO_NETNS_COOKIE, …); `getifaddrs` and what is asked of NICs by `ioctl`, whose answers are
//! unions; `mincore`, `bpf` and `pthread_atfork`. Numbers of errors, too, are libc's where they are kept as numbers.

mod ethtool;
mod forks;
mod interfaces;
mod kernel;
mod limits;
mod links;
mod local;
mod locks;
mod mapped;
mod mounts;
mod spare;

pub(crate) use ethtool::{
    NicFeature, driver, join_frames, joins_frames, nic_features, nic_statistics, offloads, queue_pairs,
    take_vlan_tags, takes_vlan_tags,
};
pub use forks::{Own, Owner};
pub(crate) use interfaces::{Interface, Interfaces, interface_index, interface_name, interfaces};
pub use kernel::kernel_version;
pub(crate) use kernel::monotonic_s;
pub(crate) use limits::open_files_max;
pub use limits::pinned_bytes_max;
pub(crate) use links::{detach_link, open_pin};
pub(crate) use local::{Source, receive, tell_local};
pub(crate) use locks::{
    grace_periods, is_bpf_fs, is_linked, is_writable, lock_folder, lock_is_held, wait_for_softirqs,
};
pub(crate) use mapped::{Access, is_mapped};
pub(crate) use mounts::{BpfMount, Elder, mount_bpf_fs, within_mounts_of};
pub(crate) use spare::keep as keep_mappings;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::ioctl;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{self, AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, ipproto};
use rustix::time::Timespec;
use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

/// What a system call returned, with -1 turned into the error it stands for.
pub(crate) fn checked<T: PartialEq + From<i8>>(returned: T) -> io::Result<T> {
    if returned == T::from(-1) { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

const READ_AND_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

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
        Mapping::of_nothing(bytes, MapFlags::PRIVATE)
    }

    /// The same for memory that the kernel writes, which must not be at another place after a fork.
    pub(crate) fn shared(bytes: usize) -> io::Result<Mapping> {
        Mapping::of_nothing(bytes, MapFlags::SHARED)
    }

    /// Maps the first `bytes` of a BPF array's elements, page-aligned.
    pub(crate) fn of_map(map: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        Mapping::of_file(map, READ_AND_WRITE, bytes, 0)
    }

    /// Maps `bytes` of a BPF map from `offset` on, only to be read.
    pub(crate) fn read_only(map: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<Mapping> {
        Mapping::of_file(map, ProtFlags::READ, bytes, offset as u64)
    }

    /// Maps `bytes` of what a socket shares at `offset`: one of the rings of an AF_XDP socket.
    pub(crate) fn of_socket(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::of_file(socket, READ_AND_WRITE, bytes, offset)
    }

    /// Maps the first `bytes` of a file that lives in memory.
    pub(crate) fn of_memory_file(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        Mapping::of_file(file, READ_AND_WRITE, bytes, 0)
    }

    fn of_nothing(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address that the kernel chooses touches nothing that exists.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, READ_AND_WRITE, flags) }?;
        Ok(Mapping { start: not_null(start)?, bytes, is_private: flags == MapFlags::PRIVATE, kept: None })
    }

    fn of_file(file: BorrowedFd<'_>, access: ProtFlags, bytes: usize, offset: u64) -> io::Result<Mapping> {
        // SAFETY: as above.
        let start = not_null(unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file, offset) }?)?;
        Ok(Mapping { start, bytes, is_private: false, kept: Some(forks::Kept::memory(start, bytes)) })
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
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the place can be another's.
        self.kept = None;
        if self.is_private && spare::give(self.start, self.bytes) {
            return;
        }
        // SAFETY: exactly what was mapped; every reference into it borrowed from `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn not_null(start: *mut c_void) -> io::Result<NonNull<u8>> {
    NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Keeps pages in memory.
pub(crate) fn pin(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: locking pages changes no contents; of addresses that are not mapped the kernel says so.
    Ok(unsafe { mlock(start.as_ptr().cast(), bytes) }?)
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

// SAFETY: pointer and length describe the address, which lives as long as `self`.
unsafe impl SocketAddrArg for RawAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        let (start, bytes) = self.parts();
        f(start.cast(), bytes)
    }
}

/// A new non-blocking UDP socket of `address`'s family.
pub(crate) fn udp_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    socket(family_of(address), SocketType::DGRAM, None).map(Own::of_port)
}

/// A new non-blocking socket that takes whole frames and, being of protocol 0, receives none.
pub(crate) fn packet_socket() -> io::Result<Own<OwnedFd>> {
    socket(AddressFamily::PACKET, SocketType::RAW, None).map(Own::new)
}

/// A new non-blocking TCP socket of `address`'s family.
pub(crate) fn tcp_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    socket(family_of(address), SocketType::STREAM, None).map(Own::of_port)
}

/// A new non-blocking socket for ICMP echo requests to hosts of `address`'s family, where the system permits it.
pub(crate) fn echo_socket(address: SocketAddr) -> io::Result<Own<OwnedFd>> {
    let protocol = if address.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    socket(family_of(address), SocketType::DGRAM, Some(protocol)).map(Own::of_port)
}

fn family_of(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    Ok(net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, protocol)?)
}

/// A socket of whichever family this host has, to ask about its network through.
pub(crate) fn any_socket() -> io::Result<Own<OwnedFd>> {
    udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        .or_else(|_| udp_socket(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))))
}

/// A number of bytes that an option of a socket has room for.
pub(crate) fn in_option(bytes: u32) -> usize {
    bytes.min(i32::MAX.cast_unsigned()) as usize
}

/// Sets an integer option of a socket, one for which rustix has no function.
///
/// # Errors
/// The kernel refuses it.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value's pointer and size describe `value`, which outlives the call.
    let returned = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&value).cast(), bytes)
    };
    checked(returned).map(drop)
}

/// A number that processes of one network namespace of one host have in common, and others not: whoever has the same need no NIC to
/// talk to each other. `None`: the system does not tell.
#[must_use]
pub fn host_number() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let bytes = boot.trim().bytes().chain(network_namespace_cookie().ok()?.to_le_bytes());
    // FNV-1a.
    let start = 0xcbf2_9ce4_8422_2325;
    Some(bytes.fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// The cookie of the network namespace of the calling thread: a number that no other has had since the machine started
/// (`SO_NETNS_COOKIE`, Linux 5.14). The inode number of a namespace that is gone goes to the next one that is made.
pub(crate) fn network_namespace_cookie() -> io::Result<u64> {
    let socket = any_socket()?;
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
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match to {
        Some(to) => net::sendto(socket, bytes, flags, to)?,
        None => net::send(socket, bytes, flags)?,
    };
    Ok(())
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
    // SAFETY: the kernel writes one integer.
    let bytes =
        unsafe { ioctl::ioctl(socket, ioctl::Getter::<{ libc::TIOCOUTQ as ioctl::Opcode }, c_int>::new()) }?;
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
        Ok(Epoll(Own::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// The set's own descriptor: readable while one of its members is.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Adds `member` under the name `token`. It leaves when it is closed.
    pub(crate) fn add(&self, member: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, member, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Takes `member` out.
    pub(crate) fn remove(&self, member: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0, member)?)
    }

    /// Writes the tokens of readable members into `tokens`, without waiting, and returns how many.
    pub(crate) fn ready(&self, tokens: &mut [u64; READY_MAX]) -> io::Result<usize> {
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        let (ready, _) = epoll::wait(&self.0, &mut events, Some(&Timespec::default()))?;
        for (token, event) in tokens.iter_mut().zip(&*ready) {
            *token = event.data.u64();
        }
        Ok(ready.len())
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
        assert_eq!(net::bind(&socket, &address), Err(rustix::io::Errno::ADDRINUSE));
    }
}
