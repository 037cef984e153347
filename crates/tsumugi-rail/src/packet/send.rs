//! Sending bursts through packet sockets: alone, many to a call, or in one frame that the kernel cuts up.

use super::queue::{PREFIX_BYTES, Queue};
use crate::Packet;
use crate::copy::Staging;
use crate::ether::Template;
use crate::run::run_length;
use crate::sys::{self, Own, RawAddress};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

/// Room in which frames are put together, bytes: for the longest, and for 64 of a common MTU.
/// The kernel takes one piece faster than three: 1 × 100 B 0.94 µs instead of 1.09, a burst a hundredth.
const SCRATCH_BYTES: usize = 128 * 1024;

/// What became of the packets that were offered in one system call.
pub(super) enum BurstResult {
    /// So many were taken.
    Taken(usize),
    /// So many were taken, in one frame that is cut up behind the queueing discipline.
    Cut(usize),
    /// The socket's or the NIC's queue is full, or the NIC has lost its carrier.
    Full,
    /// The first does not fit the route.
    TooLong,
    /// The first is lost: its NIC does not take it.
    Unreachable,
}

/// The sockets.
///
/// They serve all NICs: to name the NIC with each frame costs less than a hundredth more than to bind a
/// socket to it (0.941 and 0.935 µs), and such a socket would die with its NIC.
#[derive(Debug)]
pub(super) struct Sender {
    /// Past the queueing discipline.
    direct: Own<OwnedFd>,
    /// Through it.
    queue: Queue,
    scratch: Staging,
}

impl Sender {
    pub(super) fn new(direct: Own<OwnedFd>, queue: Queue) -> Sender {
        Sender { direct, queue, scratch: Staging::new(SCRATCH_BYTES, 0) }
    }

    /// Sends as many packets from the beginning of `burst` as fit one system call.
    pub(super) fn send_some(&mut self, template: &Template, burst: &[Packet<'_>]) -> io::Result<BurstResult> {
        let run = self.run_length(template, burst);
        if run == 1 {
            let more =
                (1..burst.len()).take_while(|at| self.run_length(template, &burst[*at..]) == 1).count();
            return self.send_frames(template, &burst[..1 + more]);
        }
        let Err(error) = self.queue.send_run(template, &burst[..run], &mut self.scratch) else {
            return Ok(BurstResult::Cut(run));
        };
        match error.raw_os_error() {
            // EINVAL: no such segmentation in this kernel. EIO, EOPNOTSUPP: not through this NIC. Unless the NIC takes
            // no frame at all.
            Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) => {
                let alone = self.send_frames(template, &burst[..run])?;
                self.queue.give_up(template.interface());
                Ok(alone)
            }
            // The queueing discipline has no room for so much at once; that may pass.
            Some(libc::ENOBUFS) => self.send_frames(template, &burst[..run]),
            _ => Err(error),
        }
    }

    /// How many packets from the beginning of `burst` can go in one frame.
    fn run_length(&self, template: &Template, burst: &[Packet<'_>]) -> usize {
        if burst[0].bytes() <= template.datagram_bytes() && self.queue.takes_runs(template.interface()) {
            run_length(burst, template.run_bytes_max())
        } else {
            1
        }
    }

    /// Sends packets in a frame each, and not before what went ahead of them.
    fn send_frames(&mut self, template: &Template, burst: &[Packet<'_>]) -> io::Result<BurstResult> {
        let Sender { direct, queue, scratch } = self;
        let interface = RawAddress::interface(template.interface());
        let (socket, prefix_bytes) = match queue.waiting() {
            Some(socket) => (socket, PREFIX_BYTES),
            None => (direct.as_fd(), 0),
        };
        if let [packet] = burst {
            // A call without message headers is cheapest.
            let (prefix, room) = scratch.split_at_mut(prefix_bytes);
            prefix.fill(0);
            let Some(bytes) = template.write(packet, room) else { return Ok(BurstResult::TooLong) };
            sys::send(socket, Some(&interface), &scratch[..prefix_bytes + bytes])?;
            return Ok(BurstResult::Taken(1));
        }
        let mut frames = [[IoSlice::new(&[])]; sys::MANY_MAX];
        let (mut count, mut room) = (0, &mut scratch[..]);
        for (frame, packet) in frames.iter_mut().zip(burst) {
            let Some((prefix, rest)) = room.split_at_mut_checked(prefix_bytes) else { break };
            let Some(bytes) = template.write(packet, rest) else { break };
            prefix.fill(0);
            let (written, rest) = room.split_at_mut(prefix_bytes + bytes);
            *frame = [IoSlice::new(written)];
            room = rest;
            count += 1;
        }
        if count == 0 {
            return Ok(BurstResult::TooLong);
        }
        sys::send_many(socket, Some(&interface), &frames[..count]).map(BurstResult::Taken)
    }
}

/// Tells what concerns one packet or its NIC from what breaks the send path.
pub(super) fn judge(error: io::Error) -> io::Result<BurstResult> {
    match error.raw_os_error() {
        // ENOBUFS is also said of a NIC without a carrier (__dev_direct_xmit in net/core/dev.c).
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Ok(BurstResult::Full),
        Some(libc::EINTR) => Ok(BurstResult::Taken(0)),
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
        ) => Ok(BurstResult::Unreachable),
        _ => Err(error),
    }
}
