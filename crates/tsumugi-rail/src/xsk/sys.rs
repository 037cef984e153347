//! The system calls of an AF_XDP socket.

use super::options::XskStatistics;
use super::shared::{Consumer, Entry, Offsets, Producer, Umem, ring_bytes};
use crate::sys::{Mapping, Own, set_option};
use rustix::net::xdp::{self, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

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
    fn set_size(self, socket: BorrowedFd<'_>, size: u32) -> rustix::io::Result<()> {
        match self {
            Which::Fill => sockopt::set_xdp_umem_fill_ring_size(socket, size),
            Which::Completion => sockopt::set_xdp_umem_completion_ring_size(socket, size),
            Which::Receive => sockopt::set_xdp_rx_ring_size(socket, size),
            Which::Send => sockopt::set_xdp_tx_ring_size(socket, size),
        }
    }

    const fn offset(self) -> u64 {
        match self {
            Which::Fill => xdp::XDP_UMEM_PGOFF_FILL_RING,
            Which::Completion => xdp::XDP_UMEM_PGOFF_COMPLETION_RING,
            Which::Receive => xdp::XDP_PGOFF_RX_RING,
            Which::Send => xdp::XDP_PGOFF_TX_RING,
        }
    }
}

/// A new AF_XDP socket.
pub(super) fn socket() -> io::Result<Own<OwnedFd>> {
    Ok(Own::new(net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
}

/// Registers memory for frames with the socket. It must stay mapped while the socket is open.
pub(super) fn register(socket: BorrowedFd<'_>, umem: &Umem) -> io::Result<()> {
    let (start, bytes) = umem.area();
    let registration = XdpUmemReg {
        addr: start.as_ptr().expose_provenance() as u64,
        len: bytes as u64,
        chunk_size: umem.chunk_bytes() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    Ok(sockopt::set_xdp_umem_reg(socket, registration)?)
}

/// Makes a ring of `size` entries, a power of two, that we write.
pub(super) fn producer<E: Entry>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: XdpRingOffset,
    size: u32,
) -> io::Result<Producer<E>> {
    let offsets = Offsets::try_from(offsets)?;
    Producer::new(make_ring::<E>(socket, which, &offsets, size)?, offsets, size)
}

/// Makes a ring of `size` entries, a power of two, that we read.
pub(super) fn consumer<E: Entry>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: XdpRingOffset,
    size: u32,
) -> io::Result<Consumer<E>> {
    let offsets = Offsets::try_from(offsets)?;
    Consumer::new(make_ring::<E>(socket, which, &offsets, size)?, offsets, size)
}

fn make_ring<E>(socket: BorrowedFd<'_>, which: Which, offsets: &Offsets, size: u32) -> io::Result<Mapping> {
    which.set_size(socket, size)?;
    Mapping::of_socket(socket, ring_bytes::<E>(offsets, size), which.offset())
}

/// Sets how many descriptors one call sends in copy mode.
pub(super) fn set_send_budget(socket: BorrowedFd<'_>, descriptors: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_XDP, SEND_BUDGET, descriptors.cast_signed())
}

/// What the kernel has counted.
///
/// # Errors
/// Also when the kernel counts less.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<XskStatistics> {
    let counted = sockopt::xdp_statistics(socket)?;
    let of_later = |count: Option<u64>| count.ok_or(io::ErrorKind::Unsupported);
    Ok(XskStatistics {
        receive_dropped: counted.rx_dropped,
        receive_ring_full: of_later(counted.rx_ring_full)?,
        receive_no_chunk: of_later(counted.rx_fill_ring_empty_descs)?,
        receive_invalid: counted.rx_invalid_descs,
        send_invalid: counted.tx_invalid_descs,
        send_ring_empty: of_later(counted.tx_ring_empty_descs)?,
    })
}
