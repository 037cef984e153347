//! AF_XDP: Ethernet frames straight to and from one queue of a NIC, through rings shared with the kernel.
//!
//! An [`Xsk`] is one socket with memory of its own. Sending needs nothing else. To receive, a program in the
//! NIC's driver must hand frames to the socket: [`Redirect`] is a small one. Both need root.
//!
//! ```text
//!            fill ring: empty chunks                    tx ring: frames
//!   Xsk  ------------------------------>  kernel   <-------------------------  Xsk
//!   receive  <-------------------------   and NIC  ------------------------->  push, kick
//!            rx ring: frames                            completion ring: chunks again
//! ```
//!
//! *Chunks* are the equal pieces of a socket's memory. A frame longer than a chunk lies in several of them.
//!
//! The layer is our own because there is no crate with preferred busy polling and frames of several chunks, and
//! libxdp would bring in libbpf and a C compiler.

mod options;
mod redirect;
mod send_path;
mod send_paths;
mod shared;
mod sys;

pub use options::{BusyPoll, CopyMode, XskError, XskOptions, XskStatistics};
pub use redirect::{ETHERTYPE, ONE_BUFFER_BYTES, Redirect, RedirectError};
pub use send_path::{XskCounters, XskSendPath, XskSendPathError};
pub use send_paths::XskSendPaths;

use crate::sys::{self as system, Own};
use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpDesc, XdpDescOptions, XdpOptionsFlags};
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use shared::{Consumer, Producer, Side, Slot, Umem};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use sys::Which;

/// Most chunks of one frame: the kernel's MAX_SKB_FRAGS (include/linux/skbuff.h) and one.
const PIECES_MAX: usize = 18;
/// What the kernel keeps free in front of a frame that it receives: XDP_PACKET_HEADROOM of linux/bpf.h.
const HEADROOM_BYTES: usize = 256;
/// Lengths of chunks to choose from: the kernel's smallest, and a page, its largest.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];
/// How often to look whether a queue is free.
const BIND_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// Everything is on its way: [`Xsk::kick`], and try again.
    #[error("the tx ring is full")]
    Full,
    /// The frame is longer than the socket was opened for.
    #[error("the frame is longer than {0} bytes, for which the AF_XDP socket was opened")]
    TooLong(usize),
}

/// An AF_XDP socket on one queue of a NIC. Everything it holds is freed when it is dropped.
#[derive(Debug)]
pub struct Xsk {
    // Closed before the memory goes.
    socket: Own<OwnedFd>,
    rings: Rings,
    umem: Umem,
    /// Memory to send from. What was used last comes first: it may still be in the cache.
    free: Vec<Slot>,
    /// Chunks that are to go back into the fill ring.
    emptied: Vec<Slot>,
    /// How many of them may wait for others to go with, or for a time when nothing arrives. To whoever waits for an
    /// answer, giving each back at once costs 0.1 µs a frame: the kernel's CPU has to hear of it.
    withheld_max: usize,
    queue: u32,
    frame_bytes: usize,
    busy_poll: bool,
}

impl Xsk {
    /// Opens a socket.
    ///
    /// Waits a second at most for a queue whose last socket has just been closed.
    ///
    /// # Errors
    /// See [`XskError`]; each says what to do.
    pub fn open(options: &XskOptions) -> Result<Xsk, XskError> {
        let plan = Plan::new(options)?;
        let start = Instant::now();
        loop {
            match Xsk::try_open(options, &plan) {
                Err(XskError::Busy { .. }) if start.elapsed() < options.patience => {
                    std::thread::sleep(BIND_AGAIN_AFTER);
                }
                other => return other,
            }
        }
    }

    fn try_open(options: &XskOptions, plan: &Plan) -> Result<Xsk, XskError> {
        let failed =
            |doing| move |source| XskError::System { doing, nic: options.nic, queue: options.queue, source };
        let socket = make_socket()?;
        let fd = socket.as_fd();
        let memory = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM) => XskError::Memory { bytes: plan.bytes(), source },
            _ => failed("registering memory of an AF_XDP socket")(source),
        };
        let Plan { chunk_bytes, receive_chunks, send_slots, slot_chunks, .. } = *plan;
        let (umem, emptied, free) =
            Umem::new(chunk_bytes, receive_chunks, send_slots, slot_chunks).map_err(memory)?;
        sys::register(fd, &umem).map_err(memory)?;
        let rings = Rings::make(fd, plan).map_err(failed("making the rings of an AF_XDP socket"))?;
        let mut xsk = Xsk {
            rings,
            umem,
            free,
            emptied,
            withheld_max: plan.spare_chunks as usize,
            queue: options.queue,
            frame_bytes: options.frame_bytes,
            busy_poll: false,
            socket,
        };
        xsk.refill();
        xsk.bind(options, plan)?;
        if send_slots > 0 {
            // One call for a whole burst, where the kernel can; otherwise `kick` makes several.
            let _ = sys::set_send_budget(xsk.socket.as_fd(), size(plan.send_chunks()));
        }
        if let Some(busy_poll) = options.busy_poll {
            xsk.poll_busily(busy_poll).map_err(failed("setting busy polling of an AF_XDP socket"))?;
        }
        Ok(xsk)
    }

    fn bind(&self, options: &XskOptions, plan: &Plan) -> Result<(), XskError> {
        let XskOptions { nic, queue, frame_bytes, .. } = *options;
        let mode = match options.copy {
            CopyMode::Any => SocketAddrXdpFlags::empty(),
            CopyMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            CopyMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        let mut pieces = SocketAddrXdpFlags::empty();
        pieces.set(SocketAddrXdpFlags::XDP_USE_SG, frame_bytes > plan.piece_bytes());
        let flags = mode | pieces | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(flags, nic, queue);
        net::bind(&self.socket, &address).map_err(|error| match error {
            Errno::NODEV => XskError::NoSuchNic { nic },
            Errno::BUSY => XskError::Busy { nic, queue },
            Errno::OPNOTSUPP => XskError::NotOffered { nic, queue, copy: options.copy },
            // The kernel says the same of flags that it does not know and of queues that are not there.
            Errno::INVAL if !pieces.is_empty() => XskError::NoQueueOrTooLong { nic, queue, frame_bytes },
            Errno::INVAL => XskError::NoSuchQueue { nic, queue },
            error => XskError::System { doing: "binding an AF_XDP socket", nic, queue, source: error.into() },
        })
    }

    fn poll_busily(&mut self, wanted: BusyPoll) -> io::Result<()> {
        let fd = self.socket.as_fd();
        let set = |option, value| system::set_option(fd, libc::SOL_SOCKET, option, value);
        set(libc::SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SO_BUSY_POLL, i32::from(wanted.time_us))?;
        set(libc::SO_BUSY_POLL_BUDGET, i32::from(wanted.frames))?;
        self.busy_poll = true;
        Ok(())
    }

    /// The queue that the socket is bound to.
    #[must_use]
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// Longest frame that can be sent and received, bytes from its Ethernet header to its end.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Whether the NIC itself reads and writes the socket's memory.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn zero_copy(&self) -> io::Result<bool> {
        Ok(sockopt::xdp_options(&self.socket)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// What the kernel has counted.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        sys::statistics(self.socket.as_fd())
    }

    /// Becomes readable when frames have arrived.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Puts a frame of `bytes` bytes into the tx ring. The kernel knows of it after the next [`Xsk::kick`].
    ///
    /// `write` is handed the frame's memory. What that held before is still there: bytes that `write` leaves out go
    /// out as they are.
    ///
    /// # Errors
    /// The frame was not taken, and nothing has changed.
    pub fn push(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<(), PushError> {
        if bytes > self.frame_bytes {
            return Err(PushError::TooLong(self.frame_bytes));
        }
        let Some(send) = &mut self.rings.send else {
            return Err(PushError::Full);
        };
        let chunk_bytes = self.umem.chunk_bytes();
        let pieces = bytes.div_ceil(chunk_bytes).max(1) as u32;
        if self.free.is_empty() {
            reap(&mut self.rings.completion, &mut self.umem, &mut self.free);
        }
        if send.room(pieces) < pieces {
            return Err(PushError::Full);
        }
        let mut slot = self.free.pop().ok_or(PushError::Full)?;
        write(&mut self.umem.bytes_mut(&mut slot)[..bytes]);
        let start = self.umem.lend(slot, pieces);
        for piece in 0..pieces as usize {
            let at = piece * chunk_bytes;
            let len = (bytes - at).min(chunk_bytes) as u32;
            let mut options = XdpDescOptions::empty();
            options.set(XdpDescOptions::XDP_PKT_CONTD, piece + 1 < pieces as usize);
            send.push(XdpDesc { addr: start + at as u64, len, options });
        }
        Ok(())
    }

    /// Has the kernel send what was pushed, and returns whether it has taken all of it. What it has not taken,
    /// because the NIC's queue is full or the NIC down, goes with the next kick; a NIC that uses the socket's
    /// memory itself may get to it sooner.
    ///
    /// # Errors
    /// The socket is broken: the NIC has gone.
    pub fn kick(&mut self) -> io::Result<bool> {
        let Some(send) = &self.rings.send else { return Ok(true) };
        send.publish();
        let mut waiting = send.waiting();
        while waiting > 0 && send.needs_wakeup() {
            let outcome = net::send(&self.socket, &[], SendFlags::DONTWAIT);
            let before = std::mem::replace(&mut waiting, send.waiting());
            match outcome {
                Ok(_) => {}
                // EAGAIN: the kernel sends so many at a time, and then there may be more to do at once.
                Err(Errno::AGAIN) if waiting < before => continue,
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR | Errno::NETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
            break;
        }
        // At once, not only when memory is short: what has just been sent is still in the cache, which makes a
        // frame of 1,472 B a fiftieth cheaper.
        reap(&mut self.rings.completion, &mut self.umem, &mut self.free);
        Ok(waiting == 0)
    }

    /// Hands frames that have arrived to `deliver`, at most `frames_max` of them, without blocking, and returns
    /// how many there were. A frame comes in pieces that lie behind each other on the wire, mostly in one.
    pub fn receive(&mut self, frames_max: usize, mut deliver: impl FnMut(&[&[u8]])) -> usize {
        let mut frames = 0;
        while frames < frames_max && self.receive_one(&mut deliver).is_some() {
            frames += 1;
        }
        if frames > 0 {
            if let Some(receive) = &self.rings.receive {
                receive.release();
            }
            if self.emptied.len() > self.withheld_max {
                self.refill();
            }
            return frames;
        }
        if !self.emptied.is_empty() {
            self.refill();
        }
        if self.busy_poll || self.rings.fill.needs_wakeup() {
            // Nothing to see in its outcome: with the next call there is something, or there is not.
            let _ = net::recv(&self.socket, &mut [0; 0], RecvFlags::DONTWAIT);
        }
        0
    }

    /// Takes the next frame that is there as a whole. What the kernel says of it that cannot be is not delivered.
    fn receive_one(&mut self, deliver: &mut impl FnMut(&[&[u8]])) -> Option<()> {
        let first = self.rings.receive.as_mut()?.peek(0)?;
        if first.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
            return self.receive_pieces(deliver);
        }
        self.rings.receive.as_mut()?.pop();
        if let Some(chunk) = self.umem.take_back(first.addr, Side::Receive) {
            if let Some(bytes) = self.umem.bytes(&chunk, first.addr, first.len) {
                deliver(&[bytes]);
            }
            self.emptied.push(chunk);
        }
        Some(())
    }

    /// The same for a frame in several chunks.
    fn receive_pieces(&mut self, deliver: &mut impl FnMut(&[&[u8]])) -> Option<()> {
        let receive = self.rings.receive.as_mut()?;
        let mut count = 1;
        while receive.peek(count - 1)?.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
            count += 1;
        }
        let mut chunks = ArrayVec::<(Slot, XdpDesc), PIECES_MAX>::new();
        for entry in (0..count).map_while(|_| receive.pop()) {
            let Some(chunk) = self.umem.take_back(entry.addr, Side::Receive) else { continue };
            if let Err(over) = chunks.try_push((chunk, entry)) {
                self.emptied.push(over.element().0);
            }
        }
        let pieces: ArrayVec<&[u8], PIECES_MAX> =
            chunks.iter().map_while(|(chunk, at)| self.umem.bytes(chunk, at.addr, at.len)).collect();
        if pieces.len() == count as usize {
            deliver(&pieces);
        }
        drop(pieces);
        self.emptied.extend(chunks.into_iter().map(|(chunk, _)| chunk));
        Some(())
    }

    /// Gives empty chunks to the kernel.
    fn refill(&mut self) {
        while self.rings.fill.room(1) > 0
            && let Some(chunk) = self.emptied.pop()
        {
            self.rings.fill.push(self.umem.lend(chunk, 1));
        }
        self.rings.fill.publish();
    }
}

/// Whether this process may open sockets.
///
/// # Errors
/// Why not.
pub fn supported() -> Result<(), XskError> {
    make_socket().map(drop)
}

fn make_socket() -> Result<Own<OwnedFd>, XskError> {
    sys::socket().map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => XskError::NotAllowed,
        Some(libc::EAFNOSUPPORT) => XskError::NoSupport,
        _ => XskError::NoSocket(source),
    })
}

/// A socket's four rings. Those of the memory must be there even if one of them is never used.
#[derive(Debug)]
struct Rings {
    fill: Producer<u64>,
    receive: Option<Consumer<XdpDesc>>,
    send: Option<Producer<XdpDesc>>,
    completion: Consumer<u64>,
}

impl Rings {
    fn make(socket: BorrowedFd<'_>, plan: &Plan) -> io::Result<Rings> {
        let at = sockopt::xdp_mmap_offsets(socket)?;
        let (receive_size, send_size) = (size(plan.receive_chunks), size(plan.send_chunks()));
        let receive = || sys::consumer(socket, Which::Receive, at.rx, receive_size);
        let send = || sys::producer(socket, Which::Send, at.tx, send_size);
        Ok(Rings {
            fill: sys::producer(socket, Which::Fill, at.fr, receive_size)?,
            receive: (plan.receive_chunks > 0).then(receive).transpose()?,
            send: (plan.send_slots > 0).then(send).transpose()?,
            completion: sys::consumer(socket, Which::Completion, at.cr, send_size)?,
        })
    }
}

/// Takes back the memory of frames that have gone out.
fn reap(completion: &mut Consumer<u64>, umem: &mut Umem, free: &mut Vec<Slot>) {
    while let Some(address) = completion.pop() {
        free.extend(umem.take_back(address, Side::Send));
    }
    completion.release();
}

/// Entries of a ring for so many chunks.
const fn size(chunks: u32) -> u32 {
    // The kernel refuses a ring without entries, also where none is ever needed.
    if chunks == 0 { 1 } else { chunks.next_power_of_two() }
}

/// How much memory a socket gets, and how it is cut.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    chunk_bytes: usize,
    receive_chunks: u32,
    /// How many of these are beyond what was asked for, so that as many can be withheld.
    spare_chunks: u32,
    /// Frames to send, each of chunks behind each other.
    send_slots: u32,
    slot_chunks: u32,
}

impl Plan {
    fn new(options: &XskOptions) -> Result<Plan, XskError> {
        let XskOptions { frame_bytes, receive_frames, send_frames, .. } = *options;
        let longest = PIECES_MAX * (CHUNK_BYTES[1] - HEADROOM_BYTES);
        if !(XskOptions::FRAME_BYTES_MIN..=longest).contains(&frame_bytes) {
            return Err(XskError::FrameBytes { wanted: frame_bytes, longest });
        }
        let most = XskOptions::FRAMES_MAX;
        if receive_frames > most || send_frames > most || receive_frames + send_frames == 0 {
            return Err(XskError::Frames { receive: receive_frames, send: send_frames });
        }
        let [short, long] = CHUNK_BYTES;
        let chunk_bytes = if frame_bytes <= short - HEADROOM_BYTES { short } else { long };
        let pieces = frame_bytes.div_ceil(chunk_bytes - HEADROOM_BYTES) as u32;
        let spare_chunks = receive_frames * pieces / 4;
        Ok(Plan {
            chunk_bytes,
            receive_chunks: receive_frames * pieces + spare_chunks,
            spare_chunks,
            send_slots: send_frames,
            slot_chunks: frame_bytes.div_ceil(chunk_bytes) as u32,
        })
    }

    /// Longest part of an arriving frame that a chunk holds, bytes.
    const fn piece_bytes(&self) -> usize {
        self.chunk_bytes - HEADROOM_BYTES
    }

    const fn send_chunks(&self) -> u32 {
        self.send_slots * self.slot_chunks
    }

    const fn bytes(&self) -> usize {
        (self.receive_chunks + self.send_chunks()) as usize * self.chunk_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(frame_bytes: usize, receive_frames: u32, send_frames: u32) -> Result<Plan, XskError> {
        Plan::new(&XskOptions { frame_bytes, receive_frames, send_frames, ..XskOptions::new(1) })
    }

    #[test]
    fn an_ordinary_frame_takes_half_a_page() {
        let wanted =
            Plan { chunk_bytes: 2048, receive_chunks: 125, spare_chunks: 25, send_slots: 0, slot_chunks: 1 };
        assert_eq!(plan(1514, 100, 0).unwrap(), wanted);
        assert_eq!(plan(1792, 100, 0).unwrap(), wanted, "the longest with the kernel's room before it");
    }

    #[test]
    fn a_long_frame_takes_pages() {
        let wanted =
            Plan { chunk_bytes: 4096, receive_chunks: 10, spare_chunks: 2, send_slots: 8, slot_chunks: 1 };
        assert_eq!(plan(1793, 8, 8).unwrap(), wanted);
        let two = Plan { receive_chunks: 20, spare_chunks: 4, ..wanted };
        assert_eq!(plan(3841, 8, 8).unwrap(), two, "nothing stands before a frame that is sent");
        let three =
            Plan { chunk_bytes: 4096, receive_chunks: 30, spare_chunks: 6, send_slots: 2, slot_chunks: 3 };
        assert_eq!(plan(9014, 8, 2).unwrap(), three);
        assert_eq!(three.bytes(), 36 * 4096);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(plan(13, 8, 8), Err(XskError::FrameBytes { .. })));
        assert!(matches!(plan(100_000, 8, 8), Err(XskError::FrameBytes { .. })));
        assert!(matches!(plan(1514, 0, 0), Err(XskError::Frames { .. })));
        assert!(matches!(plan(1514, u32::MAX, 1), Err(XskError::Frames { .. })));
    }

    #[test]
    fn rings_hold_every_chunk() {
        assert_eq!([0, 1, 2, 3, 64, 65].map(size), [1, 1, 2, 4, 64, 128]);
    }
}
