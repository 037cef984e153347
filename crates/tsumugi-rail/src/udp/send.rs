//! Sending bursts through a UDP socket with as few system calls and copies as it takes.

use super::UdpCounters;
use crate::Packet;
use crate::copy::Staging;
use crate::liveness::Evidence;
use crate::run::run_length;
use crate::sys::{self, RawAddress};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

/// Most bytes of one send: what an IPv4 datagram holds. The kernel checks it before it segments.
const SEND_BYTES_MAX: usize = 65_507;

/// What became of the packets that were offered in one system call.
enum BurstResult {
    /// So many were taken by the kernel.
    Taken(usize),
    /// The socket's or the NIC's queue is full.
    Full,
    /// The first is lost, because of its peer, its size or a filter.
    Lost,
}

/// The sending half of a rail, with segmentation by the kernel where that works.
#[derive(Debug)]
pub(super) struct Sender {
    /// Whether the kernel segments (`UDP_SEGMENT`); switched off when a route turns out not to.
    segments: bool,
    /// What the kernel said when it was asked for that and refused.
    refused: Option<io::Error>,
    /// Where packets are put together.
    scratch: Staging,
    /// The system's last error about a packet.
    error: Option<i32>,
}

impl Sender {
    /// `segments`: let the kernel segment if it can, which is tried on `probe`.
    pub(super) fn new(probe: BorrowedFd<'_>, segments: bool) -> Sender {
        let tried = segments.then(|| sys::set_option(probe, libc::SOL_UDP, libc::UDP_SEGMENT, 1400));
        let (segments, refused) = match tried {
            Some(Ok(())) => (true, None),
            Some(Err(error)) => (false, Some(error)),
            None => (false, None),
        };
        Sender { segments, refused, scratch: Staging::new(SEND_BYTES_MAX, 0), error: None }
    }

    /// Whether bursts are segmented by the kernel.
    pub(super) const fn segments(&self) -> bool {
        self.segments
    }

    /// What the system said of a packet, if one was lost since this was asked for.
    #[inline]
    pub(super) fn take_error(&mut self) -> Option<i32> {
        self.error.take()
    }

    /// Why they are not, if the kernel has refused.
    pub(super) const fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// Sends `burst` through `socket`, and returns how many packets were taken or lost.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        to: Option<&RawAddress>,
        burst: &[Packet<'_>],
        counters: &mut UdpCounters,
    ) -> io::Result<usize> {
        let mut done = 0;
        while let rest @ [_, ..] = &burst[done..] {
            let mut result = self.send_some(socket, to, rest);
            if let Err(Some(error @ (libc::ECONNREFUSED | libc::EMSGSIZE))) =
                result.as_ref().map_err(io::Error::raw_os_error)
            {
                // The word of an earlier packet's ICMP answer: this one has not been tried yet. Or it is too long for the
                // NIC, and will be again.
                counters.refused += u64::from(error == libc::ECONNREFUSED);
                self.error = Some(error);
                result = self.send_some(socket, to, rest);
            }
            if let Err(error) = &result {
                self.error = error.raw_os_error();
            }
            match result.or_else(|error| judge(error, counters))? {
                BurstResult::Taken(count) => {
                    done += count;
                    counters.sent += count as u64;
                }
                BurstResult::Full => {
                    counters.full += 1;
                    break;
                }
                BurstResult::Lost => {
                    done += 1;
                    counters.lost += 1;
                }
            }
        }
        Ok(done)
    }

    fn send_some(
        &mut self,
        socket: BorrowedFd<'_>,
        to: Option<&RawAddress>,
        burst: &[Packet<'_>],
    ) -> io::Result<BurstResult> {
        if !self.segments && burst.len() > 1 {
            return send_unsegmented(socket, to, burst);
        }
        let run = run_length(burst, SEND_BYTES_MAX);
        if run == 1 {
            return self.send_one(socket, to, &burst[0]);
        }
        match send_run(socket, to, &burst[..run], &mut self.scratch) {
            // EIO: no checksum offload on the route. EINVAL: no segmentation, or segments longer than
            // the route's MTU; then the packets alone fail too, and segmentation stays.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                let alone = send_unsegmented(socket, to, &burst[..run])?;
                self.segments = false;
                Ok(alone)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(BurstResult::Taken(run)),
        }
    }

    /// One packet: put together and sent without a message header, which is cheapest.
    fn send_one(
        &mut self,
        socket: BorrowedFd<'_>,
        to: Option<&RawAddress>,
        packet: &Packet<'_>,
    ) -> io::Result<BurstResult> {
        let Packet { head, body } = *packet;
        if packet.bytes() > self.scratch.len() {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let bytes = if body.is_empty() {
            head
        } else {
            self.scratch[..head.len()].copy_from_slice(head);
            self.scratch[head.len()..packet.bytes()].copy_from_slice(body);
            &self.scratch[..packet.bytes()]
        };
        sys::send(socket, to, bytes)?;
        Ok(BurstResult::Taken(1))
    }
}

/// Sends a run of packets in one call, put together in one place first.
///
/// The kernel copies one long piece so much faster than many short ones that it pays for our copy. Over
/// veth, pieces against one place, µs a burst: 44 × 1,472 B out of a message in cache 21.6 and 21.5, not
/// in cache 25.2 and 24.2; 7 × 8,972 B 7.3 and 7.8, not in cache 10.4 and 9.4.
fn send_run(
    socket: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    run: &[Packet<'_>],
    scratch: &mut [u8],
) -> io::Result<()> {
    let mut end = 0;
    for piece in run.iter().flat_map(|packet| [packet.head, packet.body]) {
        scratch[end..end + piece.len()].copy_from_slice(piece);
        end += piece.len();
    }
    sys::send_segmented(socket, to, &scratch[..end], run[0].bytes() as u16)
}

/// Sends packets one datagram each, many to a call.
fn send_unsegmented(
    socket: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    burst: &[Packet<'_>],
) -> io::Result<BurstResult> {
    let mut datagrams = [[IoSlice::new(&[]); 2]; sys::MANY_MAX];
    let count = burst.len().min(sys::MANY_MAX);
    for (datagram, Packet { head, body }) in datagrams.iter_mut().zip(burst) {
        *datagram = [IoSlice::new(head), IoSlice::new(body)];
    }
    sys::send_many(socket, to, &datagrams[..count]).map(BurstResult::Taken)
}

/// Tells what concerns one packet from what breaks the rail.
fn judge(error: io::Error, counters: &mut UdpCounters) -> io::Result<BurstResult> {
    let number = error.raw_os_error();
    match number {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Ok(BurstResult::Full),
        Some(libc::EINTR) => return Ok(BurstResult::Taken(0)),
        Some(libc::EMSGSIZE) => {
            counters.too_long += 1;
            return Ok(BurstResult::Lost);
        }
        _ => {}
    }
    match number.and_then(Evidence::of_error) {
        Some(Evidence::PortUnreachable) => counters.refused += 1,
        Some(_) => counters.unreachable += 1,
        None => return Err(error),
    }
    Ok(BurstResult::Lost)
}
