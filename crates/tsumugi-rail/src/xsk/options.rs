//! What to open, why it did not open, and what happened since.

use std::io;
use std::time::Duration;

/// What to open.
#[derive(Clone, Debug)]
pub struct XskOptions {
    /// Index of the NIC, as `ip link` shows it, in this thread's network namespace.
    pub nic: u32,
    /// The NIC's queue. A queue has one socket.
    pub queue: u32,
    /// Longest frame, bytes from its Ethernet header to its end: the MTU and 14.
    pub frame_bytes: usize,
    /// Frames of that length that there is room for until they are received; 0: the socket only sends.
    pub receive_frames: u32,
    /// Frames of that length that there is room for until they have gone out; 0: the socket only receives.
    pub send_frames: u32,
    /// Whether the NIC may use the socket's memory itself.
    pub copy: CopyMode,
    /// Have the NIC polled by our own calls instead of its interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// How long to wait for a queue that another socket has: the kernel frees it a moment after that was closed.
    pub patience: Duration,
}

impl XskOptions {
    /// Shortest value of `frame_bytes`: an Ethernet header.
    pub const FRAME_BYTES_MIN: usize = 14;
    /// Largest value of `receive_frames` and `send_frames`.
    pub const FRAMES_MAX: u32 = 1 << 16;

    /// Queue 0 of a NIC with an MTU of 1500 bytes, 1024 frames each way, whichever copy mode works.
    #[must_use]
    pub const fn new(nic: u32) -> XskOptions {
        XskOptions {
            nic,
            queue: 0,
            frame_bytes: 1514,
            receive_frames: 1024,
            send_frames: 1024,
            copy: CopyMode::Any,
            busy_poll: None,
            patience: Duration::from_secs(1),
        }
    }
}

/// Whether the NIC reads and writes a socket's memory itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// It does if its driver can.
    #[default]
    Any,
    /// The kernel copies. A socket that only sends wants this: without copies it would take the queue's whole
    /// receiving side over, and other traffic of the queue would find no memory.
    Copy,
    /// It does, or opening fails.
    ZeroCopy,
}

/// Preferred busy polling (Linux 5.11): calls of [`super::Xsk::receive`] that find nothing run the poll of the
/// NIC's driver.
///
/// It is for NICs whose interrupts are deferred, by `napi_defer_hard_irqs` and `gro_flush_timeout` in
/// `/sys/class/net/NIC`. A veth stalls with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call may poll, µs.
    pub time_us: u16,
    /// Most frames that one poll takes.
    pub frames: u16,
}

/// Why an AF_XDP socket did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XskError {
    /// Not root.
    #[error("making an AF_XDP socket: not allowed; be root, or have the capability CAP_NET_RAW")]
    NotAllowed,
    /// The kernel was built without it.
    #[error("making an AF_XDP socket: this kernel has none (CONFIG_XDP_SOCKETS)")]
    NoSupport,
    /// The operating system gives no socket.
    #[error("making an AF_XDP socket: {0}{remedy}", remedy = crate::remedy(.0))]
    NoSocket(io::Error),
    /// The length of frames is impossible.
    #[error("frames of {wanted} bytes: take between {} and {longest}", XskOptions::FRAME_BYTES_MIN)]
    FrameBytes {
        /// Length asked for, bytes.
        wanted: usize,
        /// Longest possible, bytes.
        longest: usize,
    },
    /// The number of frames is impossible.
    #[error(
        "room for {receive} frames to receive and {send} to send: take at most {} each, and one at least",
        XskOptions::FRAMES_MAX
    )]
    Frames {
        /// Frames to receive asked for.
        receive: u32,
        /// Frames to send asked for.
        send: u32,
    },
    /// The system has no memory to give, or the process may not lock so much.
    #[error(
        "registering {bytes} bytes for an AF_XDP socket: {source}; take fewer frames, be root, or raise \
         `ulimit -l`"
    )]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such NIC.
    #[error("binding an AF_XDP socket: there is no NIC with index {nic}; `ip link` lists those there are")]
    NoSuchNic {
        /// Index asked for.
        nic: u32,
    },
    /// There is no such queue.
    #[error(
        "binding an AF_XDP socket to queue {queue} of NIC {nic}: there is no such queue; `ethtool -l NIC` counts \
         them from 1, we from 0"
    )]
    NoSuchQueue {
        /// The NIC's index.
        nic: u32,
        /// Queue asked for.
        queue: u32,
    },
    /// There is no such queue, or the kernel knows no frames of several chunks.
    #[error(
        "binding an AF_XDP socket to queue {queue} of NIC {nic} for frames of {frame_bytes} bytes: there is no \
         such queue, or this kernel is older than Linux 6.6; lower the MTU then: `ip link set NIC mtu 3800`"
    )]
    NoQueueOrTooLong {
        /// The NIC's index.
        nic: u32,
        /// Queue asked for.
        queue: u32,
        /// Length of frames asked for, bytes.
        frame_bytes: usize,
    },
    /// Another socket has the queue.
    #[error(
        "binding an AF_XDP socket to queue {queue} of NIC {nic}: another socket has it; end its owner, or take \
         another queue"
    )]
    Busy {
        /// The NIC's index.
        nic: u32,
        /// The queue.
        queue: u32,
    },
    /// The NIC's driver cannot do this.
    #[error("binding an AF_XDP socket to queue {queue} of NIC {nic}: the driver does not offer {copy:?}")]
    NotOffered {
        /// The NIC's index.
        nic: u32,
        /// The queue.
        queue: u32,
        /// What was asked for.
        copy: CopyMode,
    },
    /// The operating system refused for a reason of its own.
    #[error("{doing} for queue {queue} of NIC {nic}: {source}{}", crate::remedy(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// The NIC's index.
        nic: u32,
        /// The queue.
        queue: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// What the kernel has counted for a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskStatistics {
    /// Arriving frames lost for other reasons than the next two, such as being too long.
    pub receive_dropped: u64,
    /// Arriving frames lost because the rx ring was full.
    pub receive_ring_full: u64,
    /// Times that an arriving frame found no empty chunk.
    pub receive_no_chunk: u64,
    /// Entries of the fill ring that the kernel did not accept.
    pub receive_invalid: u64,
    /// Entries of the tx ring that the kernel did not accept.
    pub send_invalid: u64,
    /// Times that the kernel was to send and found the tx ring empty.
    pub send_ring_empty: u64,
}
