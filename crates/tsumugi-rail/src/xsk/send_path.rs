//! The `xsk` send path: frames through an AF_XDP socket of its own. They bypass IP, UDP and the NIC's queueing
//! discipline.
//!
//! It needs CAP_NET_RAW, and a queue of the NIC that has no other AF_XDP socket. It bypasses all that the `packet` send
//! path bypasses.
//!
//! One call sends a whole burst, and no frame has a message header. Over veth, p50, µs a burst, through a connected
//! socket with segmentation, the `packet` send path, and this (`cargo run --release --example send_cost`): 1 × 100 B
//! 1.35, 1.03, 0.95; 2 × 1,472 B 1.94, 2.24, 1.66; 4 × 1,472 B 2.36, 4.1, 2.97; 32 × 1,472 B 10.2, 30.9, 21.8.

use super::{CopyMode, PushError, Xsk, XskError, XskOptions};
use crate::ether::{ETHERNET_BYTES, Template};
use crate::route::{Reach, RouteError, Routes};
use crate::send_path::SendPath;
use crate::{Packet, RailError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tsumugi_wire::Instant;

/// Why there is no `xsk` send path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XskSendPathError {
    /// There is no socket.
    #[error(transparent)]
    Socket(#[from] XskError),
    /// The kernel cannot be asked for routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// There is no such NIC.
    #[error("asking for NIC {nic}: {source}; `ip link` lists those there are")]
    Nic {
        /// Index asked for.
        nic: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// What happened in an [`XskSendPath`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskCounters {
    /// Packets that went into the tx ring.
    pub sent: u64,
    /// Packets left to the socket, because no frame through this NIC reaches their peer now.
    pub left: u64,
    /// Times that the ring was full and the rest of a burst was left to the caller.
    pub full: u64,
    /// Times that the NIC did not take all that was in the ring.
    pub stalled: u64,
    /// Packets lost because they are longer than the route's MTU.
    pub too_long: u64,
}

/// Sends frames through one queue of one NIC, which no other AF_XDP socket may have. It receives nothing: what
/// arrives goes where it went before, through the NIC's XDP program if there is one.
///
/// The kernel copies each frame: without copies the NIC would look for room for arriving frames in this socket's
/// memory as well, and find none.
#[derive(Debug)]
pub struct XskSendPath {
    routes: Routes,
    socket: Xsk,
    nic: u32,
    /// The NIC has gone, and never comes back to this socket.
    gone: bool,
    counters: XskCounters,
}

impl XskSendPath {
    /// Opens the send path on a queue of the NIC with index `nic`, with room for `frames` frames, for datagrams from
    /// `local`, whose address may be unspecified and whose port may not.
    ///
    /// Keep a UDP socket bound to `local`: it takes what the send path leaves, and answers come to it.
    ///
    /// # Errors
    /// See [`XskSendPathError`]; each says what to do.
    pub fn open(
        local: SocketAddr,
        nic: u32,
        queue: u32,
        frames: u32,
    ) -> Result<XskSendPath, XskSendPathError> {
        XskSendPath::open_within(local, nic, queue, frames, XskOptions::new(nic).patience)
    }

    /// The same, waiting so long for a queue that another socket has.
    pub(super) fn open_within(
        local: SocketAddr,
        nic: u32,
        queue: u32,
        frames: u32,
        patience: Duration,
    ) -> Result<XskSendPath, XskSendPathError> {
        let mut routes = Routes::open(local)?;
        let mtu_bytes = routes.nic(nic).map_err(|source| XskSendPathError::Nic { nic, source })?.mtu_bytes;
        let options = XskOptions {
            queue,
            frame_bytes: ETHERNET_BYTES + mtu_bytes,
            receive_frames: 0,
            send_frames: frames,
            copy: CopyMode::Copy,
            patience,
            ..XskOptions::new(nic)
        };
        let socket = Xsk::open(&options)?;
        Ok(XskSendPath { routes, socket, nic, gone: false, counters: XskCounters::default() })
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> XskCounters {
        self.counters
    }
}

/// Why no more of a burst went into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no more.
    Whole,
    /// The ring is full.
    Full,
    /// The next packet does not fit the socket, which was opened when the MTU was smaller; or the first does not fit the route,
    /// of which the sockets' kernel may know more.
    Outgrown,
}

impl SendPath for XskSendPath {
    fn name(&self) -> &'static str {
        "xsk"
    }

    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError> {
        let XskSendPath { routes, socket, nic, gone, counters } = self;
        let template = match routes.to(now, to) {
            Reach::Frame(template) if template.interface() == *nic && !*gone => template,
            _ => {
                counters.left += burst.len() as u64;
                return Ok(None);
            }
        };
        let (mut done, mut end, mut all_gone) = (0, End::Full, true);
        // A ring that was full has room again after a kick, unless the NIC takes nothing.
        while end == End::Full && all_gone {
            let before = done;
            end = fill(socket, template, burst, &mut done, counters);
            all_gone = kick(socket, gone).map_err(|source| RailError::System {
                doing: "sending a frame",
                on: to.to_string(),
                source,
            })?;
            if done == before {
                break;
            }
        }
        if !all_gone {
            counters.stalled += 1;
            routes.doubt(to);
        }
        match end {
            End::Outgrown if done == 0 => {
                counters.left += burst.len() as u64;
                return Ok(None);
            }
            End::Full => counters.full += 1,
            End::Whole | End::Outgrown => {}
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

/// Puts the frames of packets into the ring, from number `done` on, which is moved along.
fn fill(
    socket: &mut Xsk,
    template: &Template,
    burst: &[Packet<'_>],
    done: &mut usize,
    counters: &mut XskCounters,
) -> End {
    while let Some(packet) = burst.get(*done) {
        let bytes = template.header_bytes() + packet.bytes();
        if packet.bytes() > template.datagram_bytes() {
            counters.too_long += 1;
            if *done == 0 {
                return End::Outgrown;
            }
        } else {
            let pushed = socket.push(bytes, |frame| {
                template.write(packet, frame);
            });
            match pushed {
                Ok(()) => counters.sent += 1,
                Err(PushError::Full) => return End::Full,
                Err(PushError::TooLong(_)) => return End::Outgrown,
            }
        }
        *done += 1;
    }
    End::Whole
}

/// Has the kernel send what is in the ring, and says whether it took all of it.
fn kick(socket: &mut Xsk, gone: &mut bool) -> io::Result<bool> {
    match socket.kick() {
        // The NIC has gone and taken the socket's binding with it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => {
            *gone = true;
            Ok(false)
        }
        other => other,
    }
}
