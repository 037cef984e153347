//! The program that hands a NIC's frames to AF_XDP sockets.

use super::Xsk;
use crate::xdp::{Mode, attach_to, chain, is_taken};
use aya::maps::XskMap;
use aya::programs::Xdp;
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
    /// The library was built where the program could not be compiled.
    #[error("the redirect program was left out of this build: install clang and libbpf-dev, and build again")]
    NotCompiled,
    /// The compiled program is not what is expected.
    #[error("the compiled redirect program has no '{0}' in it")]
    Object(&'static str),
    /// The kernel refused the program or its map.
    #[error("loading the redirect program: {}; it needs root and Linux 5.18", chain(.0))]
    Load(#[from] aya::EbpfError),
    /// The NIC has a program already.
    #[error(
        "attaching the redirect program to NIC {nic}: it has another XDP program; detach that: `ip link set NIC xdp off`, or end its owner"
    )]
    Taken {
        /// The NIC's index.
        nic: u32,
    },
    /// The kernel refused the program.
    #[error(
        "{doing} the redirect program, NIC {nic}: {}; it needs root, and a driver that has the mode",
        chain(source)
    )]
    Program {
        /// What was tried.
        doing: &'static str,
        /// The NIC's index.
        nic: u32,
        /// What the kernel or the library said.
        source: aya::programs::ProgramError,
    },
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
        if !Redirect::IS_COMPILED {
            return Err(RedirectError::NotCompiled);
        }
        let mut program = aya::EbpfLoader::new().load(OBJECT)?;
        let failed = |doing| move |source| RedirectError::Program { doing, nic, source };
        let redirect = program.program_mut(PROGRAM).ok_or(RedirectError::Object(PROGRAM))?;
        let redirect: &mut Xdp = redirect.try_into().map_err(failed("recognising"))?;
        redirect.load().map_err(failed("loading"))?;
        match attach_to(redirect, nic, mode) {
            Err(error) if is_taken(&error) => return Err(RedirectError::Taken { nic }),
            attached => attached.map_err(failed("attaching"))?,
        };
        Ok(Redirect { program })
    }

    /// Hands the frames of a socket's queue to it from now on, until the socket is dropped.
    ///
    /// # Errors
    /// The queue's number is beyond what the program has room for.
    pub fn enter(&mut self, socket: &Xsk) -> Result<(), RedirectError> {
        let failed = |source| RedirectError::Socket { queue: socket.queue(), source };
        let sockets = self.program.map_mut(SOCKETS).ok_or(RedirectError::Object(SOCKETS))?;
        let mut sockets: XskMap<_> = sockets.try_into().map_err(failed)?;
        sockets.set(socket.queue(), socket.descriptor().as_raw_fd(), 0).map_err(failed)
    }
}
