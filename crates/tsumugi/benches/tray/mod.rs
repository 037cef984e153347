//! A rail that leads nowhere: what is sent stays on it until somebody carries it over.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi::Repeat;
use tsumugi::internal::EndpointOptions;
use tsumugi_rail::{Deliver, Packet, Rail, RailError};
use tsumugi_wire::Instant;

/// Keeps what is sent.
pub(crate) struct Tray {
    pub(crate) address: SocketAddr,
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// Buffers to be used again.
    pub(crate) spare: Vec<Vec<u8>>,
}

impl Rail for Tray {
    fn address(&self) -> SocketAddr {
        self.address
    }
    fn datagram_bytes(&self) -> usize {
        1472
    }
    fn send(&mut self, _: Instant, _: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        for packet in burst {
            let mut datagram = self.spare.pop().unwrap_or_default();
            datagram.clear();
            datagram.extend_from_slice(packet.head);
            datagram.extend_from_slice(packet.body);
            self.datagrams.push(datagram);
        }
        Ok(burst.len())
    }
    fn receive(&mut self, _: Instant, _: &mut Deliver<'_>) -> Result<usize, RailError> {
        Ok(0)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Tray {
    pub(crate) fn new(address: &str) -> Tray {
        let address = address.parse().expect("an address");
        Tray { address, datagrams: Vec::new(), spare: Vec::new() }
    }
}

/// What the endpoints on trays are like.
pub(crate) const fn options() -> EndpointOptions {
    EndpointOptions {
        job: 0,
        accept_unknown: true,
        peers_max: 8,
        repeat: Repeat::Selective,
        peer_timeout_ns: 5_000_000_000,
        connect_timeout_ns: 5_000_000_000,
        listens: false,
        integrity: tsumugi::Integrity::Crc32c,
        message_bytes_max: 1 << 30,
        receive_bytes: 1 << 28,
        send_bytes: 1 << 22,
        datagram_bytes: 1472,
        seed: Some(1),
    }
}
