//! The system calls of an AF_XDP socket, each behind a safe function.

use super::shared::{Consumer, Entry, Producer, Umem, ring_bytes};
use crate::sys::{Mapping, Own, checked};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h: descriptors that one call sends in copy mode, 32 unless it is set
/// (Linux 6.17).
pub(super) const SEND_BUDGET: i32 = 9;

/// One of the four rings: where it is mapped, and the option that makes it.
#[derive(Clone, Copy)]
pub(super) enum Which {
    Fill,
    Completion,
    Receive,
    Send,
}

impl Which {
    const fn option(self) -> i32 {
        match self {
            Which::Fill => libc::XDP_UMEM_FILL_RING,
            Which::Completion => libc::XDP_UMEM_COMPLETION_RING,
            Which::Receive => libc::XDP_RX_RING,
            Which::Send => libc::XDP_TX_RING,
        }
    }

    const fn offset(self) -> u64 {
        match self {
            Which::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Which::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            Which::Receive => libc::XDP_PGOFF_RX_RING as u64,
            Which::Send => libc::XDP_PGOFF_TX_RING as u64,
        }
    }
}

/// A new AF_XDP socket.
pub(super) fn socket() -> io::Result<Own<OwnedFd>> {
    // SAFETY: no memory is passed; the descriptor returned is new and nobody else's.
    unsafe {
        checked(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))
            .map(|fd| Own::new(OwnedFd::from_raw_fd(fd)))
    }
}

/// What an option is set to or asked for: numbers without padding.
///
/// # Safety
/// Every bit pattern is a valid value, and every byte of a value is initialised.
unsafe trait Plain: Copy {}
// SAFETY: one number.
unsafe impl Plain for u32 {}
// SAFETY: two 64-bit numbers and four 32-bit ones.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: sixteen 64-bit numbers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: six 64-bit numbers.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: one number.
unsafe impl Plain for libc::xdp_options {}

fn set<T: Plain>(socket: BorrowedFd<'_>, option: i32, value: T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value's pointer and size describe `value`, which outlives the call.
    let returned = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_ref(&value).cast(), bytes)
    };
    checked(returned).map(drop)
}

/// # Errors
/// Also when the kernel knows a shorter form of the value only.
fn get<T: Plain>(socket: BorrowedFd<'_>, option: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` to the value, which outlives the call.
    let returned = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value.as_mut_ptr().cast(), &raw mut bytes)
    };
    checked(returned)?;
    if (bytes as usize) < size_of::<T>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: zeroed at first, and any bit pattern is a value.
    Ok(unsafe { value.assume_init() })
}

/// Registers memory for frames with the socket. It must stay mapped while the socket is open.
pub(super) fn register(socket: BorrowedFd<'_>, umem: &Umem) -> io::Result<()> {
    let (start, bytes) = umem.area();
    let registration = libc::xdp_umem_reg {
        addr: start.as_ptr().expose_provenance() as u64,
        len: bytes as u64,
        chunk_size: umem.chunk_bytes() as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(socket, libc::XDP_UMEM_REG, registration)
}

/// Where indices and entries lie in the rings' mappings.
pub(super) fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    get(socket, libc::XDP_MMAP_OFFSETS)
}

/// Makes a ring of `size` entries, a power of two, that we write.
pub(super) fn producer<E: Entry>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: libc::xdp_ring_offset,
    size: u32,
) -> io::Result<Producer<E>> {
    Producer::new(make_ring::<E>(socket, which, &offsets, size)?, offsets, size)
}

/// Makes a ring of `size` entries, a power of two, that we read.
pub(super) fn consumer<E: Entry>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: libc::xdp_ring_offset,
    size: u32,
) -> io::Result<Consumer<E>> {
    Consumer::new(make_ring::<E>(socket, which, &offsets, size)?, offsets, size)
}

fn make_ring<E>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: &libc::xdp_ring_offset,
    size: u32,
) -> io::Result<Mapping> {
    set(socket, which.option(), size)?;
    Mapping::of_socket(socket, ring_bytes::<E>(offsets, size), which.offset())
}

/// Binds the socket to a queue of the NIC with index `nic`.
pub(super) fn bind(socket: BorrowedFd<'_>, nic: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: nic,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and size describe `address`, which outlives the call.
    checked(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) }).map(drop)
}

/// Sets how many descriptors one call sends in copy mode.
pub(super) fn set_send_budget(socket: BorrowedFd<'_>, descriptors: u32) -> io::Result<()> {
    set(socket, SEND_BUDGET, descriptors)
}

/// Whether frames pass without a copy.
pub(super) fn zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    get(socket, libc::XDP_OPTIONS)
        .map(|options: libc::xdp_options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// What the kernel has counted.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    get(socket, libc::XDP_STATISTICS)
}

/// Has the kernel send what stands in the tx ring.
pub(super) fn wake_send(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: nothing is pointed to.
    checked(unsafe { libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0) })
        .map(drop)
}

/// Has the kernel look at the fill ring and, with busy polling, at the NIC.
pub(super) fn wake_receive(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (flags, nowhere) = (libc::MSG_DONTWAIT, std::ptr::null_mut());
    // SAFETY: nothing is pointed to.
    checked(unsafe {
        libc::recvfrom(socket.as_raw_fd(), std::ptr::null_mut(), 0, flags, std::ptr::null_mut(), nowhere)
    })
    .map(drop)
}
