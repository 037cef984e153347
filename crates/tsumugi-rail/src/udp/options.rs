//! What to open, why it did not open, and what happened since.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, DEFAULT_PORT};

/// What to open.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Local address. Unspecified: every one of this machine; `0.0.0.0`: of IPv4 alone, `::`: of both families.
    pub address: IpAddr,
    /// Local port; 0: any free one.
    pub port: u16,
    /// Largest datagram payload, bytes; `None`: what the MTU of the address's NIC allows.
    pub datagram_bytes: Option<u16>,
    /// Room in each socket's queues, bytes. The kernel gives an unprivileged process no more than
    /// `net.core.rmem_max` and `wmem_max`.
    pub queue_bytes: u32,
    /// Whether the kernel may segment and coalesce (`UDP_SEGMENT`, `UDP_GRO`) where it can.
    pub offloads: bool,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: DEFAULT_PORT,
            datagram_bytes: None,
            queue_bytes: 8 << 20,
            offloads: true,
        }
    }
}

/// Why a [`super::Udp`] rail did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// Another socket has the port.
    #[error("opening UDP port {port} on {ip}: the port is taken; choose another (0: any), or end its owner: `ss -ulpn 'sport = :{port}'`", port = .0.port(), ip = .0.ip())]
    PortTaken(SocketAddr),
    /// The address is not one of this machine's.
    #[error(
        "opening a UDP socket on {0}: no NIC of this machine has that address; `ip -br address` lists those there are"
    )]
    NoSuchAddress(IpAddr),
    /// The port may be used by root only.
    #[error("opening UDP port {port}: not allowed; take a port from 1024 on", port = .0.port())]
    PortForbidden(SocketAddr),
    /// The NIC carries no packet long enough for the protocol.
    #[error(
        "{interface} has an MTU of {mtu_bytes} bytes, too small for this protocol; raise it: `ip link set {interface} mtu {need_bytes}`"
    )]
    MtuTooSmall {
        /// Name of the NIC.
        interface: String,
        /// Its MTU, bytes.
        mtu_bytes: usize,
        /// Smallest MTU that will do, bytes.
        need_bytes: usize,
    },
    /// The length of datagrams asked for is not one of the format's.
    #[error("datagrams of {wanted} bytes: take between {DATAGRAM_BYTES_MIN} and {DATAGRAM_BYTES_MAX}")]
    DatagramBytes {
        /// Length asked for, bytes.
        wanted: usize,
    },
    /// The operating system refused for a reason of its own.
    #[error("{doing} on {on}: {source}{}", crate::remedy(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// The address it was tried on.
        on: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What happened on a [`super::Udp`] rail so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Packets that the kernel took.
    pub sent: u64,
    /// Datagrams taken from the kernel; coalesced ones count once.
    pub received: u64,
    /// Times that a queue was full and the rest of a burst was left to the caller.
    pub full: u64,
    /// Packets lost on sending, for whichever of the reasons below.
    pub lost: u64,
    /// Answers of a peer's host that nobody has the port (ICMP port unreachable).
    pub refused: u64,
    /// Packets longer than the route's MTU, and answers of routers that say so.
    pub too_long: u64,
    /// Packets that could not reach the peer: no route, no neighbour, filtered; and answers that say so.
    pub unreachable: u64,
    /// Peers that got no dedicated socket and share the main one.
    pub shared: u64,
}
