//! Drivers that lose long packets to a program.
//!
//! Most refuse a program when the MTU is more than they can hand to it. Virtio-net before Linux 6.3 refuses only what
//! is longer than a page, and drops what does not fit into one with room before and behind it (`xdp_linearize_page` in
//! drivers/net/virtio_net.c): without a word, all of TCP's longer packets too. Nothing in the kernel tells, so the
//! driver is known by its name. Since 6.3 it has packets in several pieces.

use crate::{nics, sys};
use std::fs;

/// Linux with which virtio-net began to hand over packets in several pieces.
const VIRTIO_PIECES: (u32, u32) = (6, 3);
/// What virtio-net needs of a page beside the IP packet, bytes: `VIRTIO_XDP_HEADROOM`, the virtio and the Ethernet
/// header, and `struct skb_shared_info`.
const VIRTIO_ROOM_BYTES: usize = 256 + 12 + 14 + 320;

/// An MTU with which a NIC's driver loses packets to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MtuExcess {
    /// The NIC's MTU, bytes.
    pub mtu_bytes: usize,
    /// The largest MTU with which nothing is lost, bytes.
    pub max_bytes: usize,
}

/// Whether the driver of `nic` loses packets of the NIC's MTU to a program in it; `None`: not as far as is known.
#[must_use]
pub fn mtu_excess(nic: &str) -> Option<MtuExcess> {
    let folder = nics::folder(nic);
    // A virtual NIC has none.
    let driver = fs::read_link(folder.join("device/driver")).ok()?;
    let driver = driver.file_name()?.to_str()?;
    let mtu_bytes = fs::read_to_string(folder.join("mtu")).ok()?.trim().parse().ok()?;
    let max_bytes = max_bytes(driver, sys::kernel_version(), rustix::param::page_size())?;
    (mtu_bytes > max_bytes).then_some(MtuExcess { mtu_bytes, max_bytes })
}

/// Largest MTU with which nothing is lost, bytes; `None`: none is known.
fn max_bytes(driver: &str, kernel: (u32, u32), page_bytes: usize) -> Option<usize> {
    (driver == "virtio_net" && kernel < VIRTIO_PIECES).then(|| page_bytes - VIRTIO_ROOM_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_old_virtio_loses_packets() {
        // Found by trying: 3494 is deposited, 3495 is dropped.
        assert_eq!(max_bytes("virtio_net", (6, 1), 4096), Some(3494));
        assert_eq!(max_bytes("virtio_net", (6, 3), 4096), None);
        assert_eq!(max_bytes("ixgbe", (6, 1), 4096), None);
    }

    #[test]
    fn a_nic_without_a_driver_loses_nothing() {
        assert_eq!(mtu_excess("lo"), None);
        assert_eq!(mtu_excess("nic9"), None);
    }
}
