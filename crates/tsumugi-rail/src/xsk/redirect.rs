//! The program that hands a NIC's frames to AF_XDP sockets.

use super::Xsk;
use crate::xdp::{AttachError, Mode, attach, chain};
use aya::maps::XskMap;
use std::os::fd::AsRawFd;

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// The ethertype of the frames that sockets get: the first of IEEE Std 802's local experimental ones. Nothing else
/// sees them, and the sockets see nothing else.
pub const ETHERTYPE: u16 = 0x88b5;

/// Bytes that a frame carries behind its Ethernet header, at most, for a socket to get it. A longer one may lie in several
/// buffers of the NIC's driver, and is left to the kernel: with pages of 4 KiB this is what virtio-net takes in one
/// (`bpf/receive/answer.h` tells why frames in several are not redirected).
pub const ONE_BUFFER_BYTES: usize = 3494;

/// Name of the program.
const PROGRAM: &str = "redirect";
/// Name of the map from queues to sockets.
const SOCKETS: &str = "sockets";

/// Why frames are not redirected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedirectError {
    /// The program is not on the NIC.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The kernel did not take a socket.
    #[error("entering the AF_XDP socket of queue {queue}: {}", chain(source))]
    Socket {
        /// The socket's queue.
        queue: u32,
        /// What the kernel or the library said.
        source: aya::maps::MapError,
    },
}

/// The program, attached to a NIC until this is dropped.
#[derive(Debug)]
pub struct Redirect {
    program: aya::Ebpf,
}

impl Redirect {
    /// Whether this build contains the program.
    pub const IS_COMPILED: bool = !OBJECT.is_empty();

    /// Loads the program and attaches it to the NIC with index `nic` in this thread's network namespace.
    ///
    /// # Errors
    /// Says what failed.
    pub fn attach(nic: u32, mode: Mode) -> Result<Redirect, RedirectError> {
        Ok(Redirect { program: attach(OBJECT, PROGRAM, nic, mode)? })
    }

    /// Hands the frames of a socket's queue to it from now on, until the socket is dropped.
    ///
    /// # Errors
    /// The queue's number is beyond what the program has room for.
    pub fn enter(&mut self, socket: &Xsk) -> Result<(), RedirectError> {
        let failed = |source| RedirectError::Socket { queue: socket.queue(), source };
        let absent = AttachError::Object { program: PROGRAM, absent: SOCKETS };
        let sockets = self.program.map_mut(SOCKETS).ok_or(absent)?;
        let mut sockets: XskMap<_> = sockets.try_into().map_err(failed)?;
        sockets.set(socket.queue(), socket.descriptor().as_raw_fd(), 0).map_err(failed)
    }
}
