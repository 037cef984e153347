//! A packet socket and nothing more, for whoever makes whole frames.

use super::{PacketError, bypass, open_socket};
use crate::sys::{self, Own, RawAddress};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Room for frames that the NIC has not sent yet, bytes: more than a few.
const QUEUE_BYTES: u32 = 1 << 16;

/// Sends frames of any kind out of one NIC, past its queueing discipline, and receives none.
#[derive(Debug)]
pub struct FrameSocket(Own<OwnedFd>);

impl FrameSocket {
    /// Opens a socket for the NIC with index `nic` in this thread's network namespace.
    ///
    /// # Errors
    /// See [`PacketError`]; each says what to do.
    pub fn open(nic: u32) -> Result<FrameSocket, PacketError> {
        let socket = open_socket(QUEUE_BYTES)?;
        bypass(&socket)?;
        // Once for all, so that the kernel is not told with each frame.
        rustix::net::bind(&socket, &RawAddress::interface(nic)).map_err(|error| PacketError::System {
            doing: "binding a packet socket",
            source: error.into(),
        })?;
        Ok(FrameSocket(socket))
    }

    /// Sends a frame, without blocking; whether it was taken. It was not if a queue is full, or the NIC has lost its
    /// carrier.
    ///
    /// # Errors
    /// The NIC is down or gone, or the frame is longer than it takes.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match sys::send(self.0.as_fd(), None, frame) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Ok(false),
                _ => Err(error),
            },
        }
    }
}
