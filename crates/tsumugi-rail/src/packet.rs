//! The `packet` engine: whole frames through a packet socket, past IP, UDP and the NIC's queueing discipline.
//!
//! It needs CAP_NET_RAW and any NIC. What it passes by is passed by: packet filters, traffic control and
//! captures on this machine see nothing of these frames; the receiver sees ordinary datagrams.
//!
//! It is for what goes alone. Over veth, p50, µs a burst, through a connected socket, the same with segmentation,
//! and through this (`cargo run --release --example send_cost`): 1 × 100 B 1.37, 1.36, 1.06; 2 × 1,472 B 2.96, 1.96,
//! 2.27; 4 × 1,472 B 5.5, 2.3, 4.1; 32 × 1,472 B 41, 10.2, 31. Towards a NIC with an XDP program, which takes
//! segmentation away from a veth pair: 1 × 100 B 1.07 and 0.86; 4 × 1,472 B 4.4, 2.6, 3.4; 32 × 1,472 B 36, 16.5, 28.
//!
//! A ring of frames shared with the kernel (PACKET_TX_RING) is slower: 16 × 1,472 B take 14.7 µs by `sendmmsg`, 15.6 and
//! 15.5 through rings of TPACKET_V2 and V3; 64 × 100 B 54.7, 57.4 and 57.6.

use crate::engine::Engine;
use crate::ether::Template;
use crate::route::{Reach, RouteError, Routes};
use crate::sys::{self, RawAddress};
use crate::{Packet, RailError};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use tsumugi_wire::Instant;

/// Room in which frames are put together, bytes: for the longest frame, and for 64 of a common MTU.
/// The kernel takes one piece faster than three: 1 × 100 B 0.94 µs instead of 1.09, a burst a hundredth.
const SCRATCH_BYTES: usize = 128 * 1024;

/// Why there is no `packet` engine.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The process may not send frames.
    #[error(
        "opening a packet socket: not permitted; run as root, give the program the capability (`setcap cap_net_raw+ep PROGRAM`), or use the udp engine"
    )]
    Forbidden,
    /// The kernel cannot be asked for routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// The operating system refused for a reason of its own.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What happened in a [`PacketEngine`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Packets that the NIC took.
    pub sent: u64,
    /// Packets left to the socket, because no frame reaches their peer now.
    pub left: u64,
    /// Times that a queue was full and the rest of a burst was left to the caller.
    pub full: u64,
    /// Packets lost on sending, for whichever of the reasons below.
    pub lost: u64,
    /// Packets longer than the route's MTU.
    pub too_long: u64,
    /// Packets for a NIC that is down or gone.
    pub unreachable: u64,
}

/// What became of the packets that were offered in one system call.
enum Outcome {
    /// So many were taken by the NIC.
    Taken(usize),
    /// The socket's or the NIC's queue is full, or the NIC has lost its carrier.
    Full,
    /// The first does not fit the route.
    TooLong,
    /// The first is lost: its NIC does not take it.
    Unreachable,
}

/// Sends frames through a packet socket.
///
/// One socket serves all NICs: to name the NIC with each frame costs less than a hundredth more than to bind a
/// socket to it (0.941 and 0.935 µs), and such a socket would die with its NIC.
#[derive(Debug)]
pub struct PacketEngine {
    routes: Routes,
    socket: OwnedFd,
    scratch: Box<[u8]>,
    counters: PacketCounters,
}

impl PacketEngine {
    /// Opens the engine for datagrams from `local`, whose address may be unspecified and whose port may not.
    /// `queue_bytes` is the room for frames that the NIC has not sent yet; the kernel gives an
    /// unprivileged process no more than `net.core.wmem_max`.
    ///
    /// Keep a UDP socket bound to `local`: it takes what the engine leaves, and answers come to it.
    ///
    /// # Errors
    /// See [`PacketError`]; each says what to do.
    pub fn open(local: SocketAddr, queue_bytes: u32) -> Result<PacketEngine, PacketError> {
        let socket = sys::packet_socket().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => PacketError::Forbidden,
            _ => PacketError::System { doing: "opening a packet socket", source },
        })?;
        let set = |level, option, value| sys::set_option(socket.as_fd(), level, option, value);
        set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1).map_err(|source| PacketError::System {
            doing: "letting a packet socket pass by the queueing discipline",
            source,
        })?;
        let queue_bytes = i32::try_from(queue_bytes).unwrap_or(i32::MAX);
        // As much as we get: the kernel caps the plain option, and the other is root's.
        let _ = set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, queue_bytes)
            .or_else(|_| set(libc::SOL_SOCKET, libc::SO_SNDBUF, queue_bytes));
        Ok(PacketEngine {
            routes: Routes::open(local)?,
            socket,
            scratch: vec![0; SCRATCH_BYTES].into(),
            counters: PacketCounters::default(),
        })
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> PacketCounters {
        self.counters
    }
}

impl Engine for PacketEngine {
    fn name(&self) -> &'static str {
        "packet"
    }

    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError> {
        let PacketEngine { routes, socket, scratch, counters } = self;
        let Reach::Frame(template) = routes.to(now, to) else {
            counters.left += burst.len() as u64;
            return Ok(None);
        };
        let interface = RawAddress::interface(template.interface());
        let (mut done, mut doubt) = (0, false);
        while let rest @ [_, ..] = &burst[done..] {
            match send_some(socket, &interface, template, rest, scratch).or_else(judge) {
                Ok(Outcome::Taken(count)) => {
                    done += count;
                    counters.sent += count as u64;
                }
                Ok(Outcome::Full) => {
                    counters.full += 1;
                    doubt |= done == 0;
                    break;
                }
                Ok(Outcome::TooLong) => {
                    done += 1;
                    counters.lost += 1;
                    counters.too_long += 1;
                }
                Ok(Outcome::Unreachable) => {
                    done += 1;
                    counters.lost += 1;
                    counters.unreachable += 1;
                    doubt = true;
                }
                Err(source) => {
                    return Err(RailError::System { doing: "sending a frame", on: to.to_string(), source });
                }
            }
        }
        if doubt {
            routes.doubt(to);
        }
        Ok(Some(done))
    }

    fn meet(&mut self, peer: SocketAddr) {
        self.routes.meet(peer);
    }

    fn part(&mut self, peer: SocketAddr) {
        self.routes.part(peer);
    }
}

/// Sends as many packets from the beginning of `burst` as fit one system call.
fn send_some(
    socket: &OwnedFd,
    interface: &RawAddress,
    template: &Template,
    burst: &[Packet<'_>],
    scratch: &mut [u8],
) -> io::Result<Outcome> {
    if let [packet] = burst {
        // A call without message headers is cheapest.
        let Some(bytes) = template.write(packet, scratch) else { return Ok(Outcome::TooLong) };
        sys::send(socket.as_fd(), Some(interface), &scratch[..bytes])?;
        return Ok(Outcome::Taken(1));
    }
    let mut frames = [[IoSlice::new(&[])]; sys::MANY_MAX];
    let (mut count, mut room) = (0, scratch);
    for (frame, packet) in frames.iter_mut().zip(burst) {
        let Some(bytes) = template.write(packet, room) else { break };
        let (written, rest) = room.split_at_mut(bytes);
        *frame = [IoSlice::new(written)];
        room = rest;
        count += 1;
    }
    if count == 0 {
        return Ok(Outcome::TooLong);
    }
    sys::send_many(socket.as_fd(), Some(interface), &frames[..count]).map(Outcome::Taken)
}

/// Tells what concerns one packet or its NIC from what breaks the engine.
fn judge(error: io::Error) -> io::Result<Outcome> {
    match error.raw_os_error() {
        // ENOBUFS is also said of a NIC without a carrier (__dev_direct_xmit in net/core/dev.c).
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Ok(Outcome::Full),
        Some(libc::EINTR) => Ok(Outcome::Taken(0)),
        // The NIC is down, gone, or another by now: its MTU or its kind does not suit the frame any more.
        Some(
            libc::ENETDOWN
            | libc::ENXIO
            | libc::ENODEV
            | libc::EMSGSIZE
            | libc::EINVAL
            | libc::EPERM
            | libc::EACCES
            | libc::EIO
            | libc::EOPNOTSUPP,
        ) => Ok(Outcome::Unreachable),
        _ => Err(error),
    }
}
