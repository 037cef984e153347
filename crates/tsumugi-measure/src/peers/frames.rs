//! What transports of bare Ethernet frames share: which NIC, and what both sides must know of each other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tsumugi_rail::Routes;
use tsumugi_rail::ether::Mac;
use tsumugi_rail::route::Nic;
use tsumugi_rail::xdp::{Mode, WriteFrame};
use tsumugi_rail::xsk::ONE_BUFFER_BYTES;

use super::{Failure, Transport};

/// The largest MTU with which every packet lies in one buffer of a NIC's driver.
pub(crate) const ONE_BUFFER_MTU_BYTES: u32 = ONE_BUFFER_BYTES as u32;

/// What the other side must know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RawOptions {
    /// `native` or `generic`.
    pub(crate) mode: String,
    /// Hardware address of this side's NIC.
    pub(crate) mac: Mac,
}

impl RawOptions {
    /// Where frames are taken out of the kernel's receive path.
    pub(crate) fn mode(&self) -> Result<Mode, Failure> {
        self.mode.parse().map_err(Failure::Refused)
    }
}

/// The NIC towards the other side.
pub(crate) fn nic(here: SocketAddr, there: SocketAddr) -> Result<Nic, Failure> {
    let mut routes = Routes::open(here).map_err(|error| Failure::Refused(error.to_string()))?;
    let nic =
        routes.nic_to(there).map_err(Failure::system(format!("cannot find the route to {}", there.ip())))?;
    match nic {
        Some(nic) if nic.ethernet => Ok(nic.clone()),
        _ => Err(Failure::Refused(format!(
            "bare frames need an Ethernet NIC, and what is sent to {} leaves through none; measure between two \
             hosts, or two nodes of `tsumugi lab`",
            there.ip()
        ))),
    }
}

/// What one frame of this transport carries, bytes, between NICs with this MTU.
pub(crate) fn payload_bytes_max(transport: Transport, mtu_bytes: usize) -> usize {
    let most = mtu_bytes.min(ONE_BUFFER_BYTES);
    match transport {
        Transport::RawWrite => most.saturating_sub(WriteFrame::OVERHEAD_BYTES),
        _ => most,
    }
}

/// A message is longer than a frame.
pub(super) fn too_long(bytes: usize, most: usize) -> Failure {
    Failure::Refused(format!(
        "a bare frame carries at most {most} bytes here, not {bytes}: choose a smaller --size"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_link_to_this_machine_itself() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let error = nic(at(1), at(2)).expect_err("loopback is no Ethernet").to_string();
        assert!(error.contains("127.0.0.1") && error.contains("tsumugi lab"), "{error}");
    }

    #[test]
    fn a_frame_carries_what_fits_one_buffer_and_the_memory() {
        let most = |transport| [576, 1500, 9000].map(|mtu| payload_bytes_max(transport, mtu));
        assert_eq!(most(Transport::RawXdp), [576, 1500, 3494]);
        assert_eq!(most(Transport::RawWrite), [566, 1490, 3484]);
        assert!(most(Transport::RawWrite)[2] <= WriteFrame::PAYLOAD_BYTES_MAX);
    }
}
