//! The `packet` send path: whole frames through packet sockets. They bypass IP and UDP and, unless a frame holds a run,
//! the NIC's queueing discipline.
//!
//! It needs CAP_NET_RAW and any NIC. Packet filters see nothing of these frames, and neither do traffic control and
//! captures unless a frame holds a run; the receiver sees ordinary datagrams.
//!
//! A run of equal packets, with a shorter one last, is one frame, which the NIC or the kernel cuts up (Linux 6.2).
//! The kernel does so behind the queueing discipline only, so a second socket does not bypass it. While something
//! waits there, everything follows it, so that nothing is overtaken. Where such frames are refused, packets are sent
//! alone. A NIC that has lost its carrier reports an error for a packet alone; its queueing discipline drops a run
//! silently, until the kernel tells of the lost carrier.
//!
//! Costs, by `cargo run --release --example send_cost`, are in `docs/performance.md`. What was slower:
//! - a ring of frames shared with the kernel (PACKET_TX_RING): 16 × 1,472 B take 14.7 µs by `sendmmsg`, 15.6 and 15.5
//!   through rings of TPACKET_V2 and V3; 64 × 100 B 54.7, 57.4 and 57.6. With runs in the ring's frames, 44 × 1,472 B
//!   take 15.0 instead of 12.4, towards a NIC without offloads 27.0 instead of 25.9;
//! - packets alone in pieces instead of put together: 4 × 1,472 B 3.67 instead of 3.56; only 7 × 8,972 B gain, 9.6
//!   instead of 10.9, and those are a run;
//! - packets alone through the queueing discipline of veth, which has none, cost the same, 3.54;
//! - all of a run in one piece of kernel memory (`hdr_len`): 44 × 1,472 B 12.9 instead of 12.4, without offloads 25.2
//!   instead of 25.9, but 7 × 8,972 B 7.5 instead of 5.6.

mod frames;
mod queue;
mod send;

pub use frames::FrameSocket;

use crate::route::{Reach, RouteError, Routes};
use crate::send_path::SendPath;
use crate::sys::{self, Own};
use crate::{Packet, RailError};
use queue::Queue;
use rustix::net::sockopt;
use send::{BurstResult, Sender, judge};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use tsumugi_wire::Instant;

/// Why there is no `packet` send path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The process may not send frames.
    #[error(
        "opening a packet socket: not permitted; run as root, give the program the capability (`setcap cap_net_raw+ep PROGRAM`), or use the udp send path"
    )]
    Forbidden,
    /// The kernel cannot be asked for routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// The operating system refused for a reason of its own.
    #[error("{doing}: {source}{}", crate::remedy(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What happened in a [`PacketSendPath`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Packets that were taken.
    pub sent: u64,
    /// How many of them left in frames that were to be cut up.
    pub cut: u64,
    /// Packets left to the socket, because no frame reaches their peer now.
    pub left: u64,
    /// Times that a queue was full and the rest of a burst was left to the caller.
    pub full: u64,
    /// Packets lost on sending, for whichever of the reasons below.
    pub lost: u64,
    /// Packets longer than the route's MTU; a burst that begins with one is left.
    pub too_long: u64,
    /// Packets for a NIC that is down or gone.
    pub unreachable: u64,
}

/// Sends frames through packet sockets.
#[derive(Debug)]
pub struct PacketSendPath {
    routes: Routes,
    sender: Sender,
    counters: PacketCounters,
}

impl PacketSendPath {
    /// Opens the send path for datagrams from `local`, whose address may be unspecified and whose port may not.
    /// `queue_bytes` is the room for frames that the NIC has not sent yet; the kernel gives an
    /// unprivileged process no more than `net.core.wmem_max`.
    ///
    /// Keep a UDP socket bound to `local`: it takes what the send path leaves, and answers come to it.
    ///
    /// # Errors
    /// See [`PacketError`]; each says what to do.
    pub fn open(local: SocketAddr, queue_bytes: u32) -> Result<PacketSendPath, PacketError> {
        let direct = open_socket(queue_bytes)?;
        bypass(&direct)?;
        let queue = Queue::new(open_socket(queue_bytes)?).map_err(|source| PacketError::System {
            doing: "letting a packet socket take frames that are to be cut up",
            source,
        })?;
        Ok(PacketSendPath {
            routes: Routes::open(local)?,
            sender: Sender::new(direct, queue),
            counters: PacketCounters::default(),
        })
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> PacketCounters {
        self.counters
    }
}

/// A packet socket with `queue_bytes` of room, or as much as we get: the kernel caps the plain option, and the other
/// is root's.
fn open_socket(queue_bytes: u32) -> Result<Own<OwnedFd>, PacketError> {
    let socket = sys::packet_socket().map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PacketError::Forbidden,
        _ => PacketError::System { doing: "opening a packet socket", source },
    })?;
    let queue_bytes = sys::in_option(queue_bytes);
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, queue_bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, queue_bytes));
    Ok(socket)
}

/// Has what is sent through the socket pass the NIC's queueing discipline by.
fn bypass(socket: &OwnedFd) -> Result<(), PacketError> {
    let doing = "letting a packet socket bypass the queueing discipline";
    sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
        .map_err(|source| PacketError::System { doing, source })
}

impl SendPath for PacketSendPath {
    fn name(&self) -> &'static str {
        "packet"
    }

    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError> {
        let PacketSendPath { routes, sender, counters } = self;
        let Reach::Frame(template) = routes.to(now, to) else {
            counters.left += burst.len() as u64;
            return Ok(None);
        };
        let (mut done, mut doubt) = (0, false);
        while let rest @ [_, ..] = &burst[done..] {
            match sender.send_some(template, rest).or_else(judge) {
                Ok(BurstResult::Taken(count)) => {
                    done += count;
                    counters.sent += count as u64;
                }
                Ok(BurstResult::Cut(count)) => {
                    done += count;
                    counters.sent += count as u64;
                    counters.cut += count as u64;
                }
                Ok(BurstResult::Full) => {
                    counters.full += 1;
                    doubt |= done == 0;
                    break;
                }
                // The sockets' kernel knows whether it is, and tells: the route may be of yesterday.
                Ok(BurstResult::TooLong) if done == 0 => {
                    counters.left += burst.len() as u64;
                    counters.too_long += 1;
                    return Ok(None);
                }
                Ok(BurstResult::TooLong) => {
                    done += 1;
                    counters.lost += 1;
                    counters.too_long += 1;
                }
                Ok(BurstResult::Unreachable) => {
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

    fn connect(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        self.routes.connect(peer, local);
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        self.routes.disconnect(peer);
    }
}
