//! The system calls of the send paths by themselves: sending a packet's bytes, and nothing.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant as Clock};

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, sendto, socket_with};
use tsumugi_rail::ether::{ETHERNET_BYTES, HEADER_BYTES_MAX, Hop};
use tsumugi_rail::xsk::{CopyMode, Xsk, XskOptions, XskSendPath};
use tsumugi_rail::{Packet, PacketSendPath, Rail, SendPath, Template, Udp, UdpOptions, set_option};
use tsumugi_wire::Instant;

use super::CostsError;

/// Any UDP port: nobody receives.
pub(super) const PORT: u16 = 7411;
/// Frames that an AF_XDP socket has room for.
const FRAMES: u32 = 64;
/// How long the kernel may take to find out the peer's hardware address.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(2);

/// A link out of this node: a NIC and the addresses at its two ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) nic: u32,
    pub(super) mtu_bytes: usize,
    pub(super) here: SocketAddr,
    pub(super) there: SocketAddr,
}

impl Link {
    /// Frames as the send paths make them. No program looks at the hardware addresses.
    fn template(&self) -> Result<Template, CostsError> {
        let hop = Hop {
            interface: self.nic,
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            mtu_bytes: self.mtu_bytes,
        };
        Template::new(&hop, self.here, self.there).ok_or(CostsError::Lost("there is no frame for this NIC"))
    }
}

/// A socket as a send path has it.
pub(super) enum Bare {
    Udp { socket: UdpSocket, payload: Vec<u8>, too_long: Vec<u8> },
    Packet { socket: OwnedFd, nic: NicAddress, frame: Vec<u8> },
    Xsk { socket: Box<Xsk>, frame: Vec<u8> },
}

impl Bare {
    /// Opens the socket that `send_path` would send packets of `bytes` through.
    pub(super) fn open(send_path: &str, link: &Link, bytes: usize) -> Result<Bare, CostsError> {
        let payload = vec![0x5a; bytes];
        let mut frame = vec![0; HEADER_BYTES_MAX + bytes];
        let packet = Packet { head: &payload, body: &[] };
        let frame_bytes = link.template()?.write(&packet, &mut frame);
        frame.truncate(frame_bytes.ok_or(CostsError::Lost("the packet is too long for a frame"))?);
        match send_path {
            "udp" => {
                let any = SocketAddr::new(link.here.ip(), 0);
                let socket = connected(&Link { here: any, ..*link })
                    .map_err(CostsError::failed("opening a UDP socket"))?;
                Ok(Bare::Udp { socket, payload, too_long: vec![0; usize::from(u16::MAX) + 1] })
            }
            "packet" => {
                let (socket, nic) =
                    packet_socket(link.nic).map_err(CostsError::failed("opening a packet socket"))?;
                Ok(Bare::Packet { socket, nic, frame })
            }
            _ => {
                let options = XskOptions {
                    frame_bytes: ETHERNET_BYTES + link.mtu_bytes,
                    receive_frames: 0,
                    send_frames: FRAMES,
                    copy: CopyMode::Copy,
                    ..XskOptions::new(link.nic)
                };
                let socket = Xsk::open(&options).map_err(CostsError::failed("opening an AF_XDP socket"))?;
                Ok(Bare::Xsk { socket: Box::new(socket), frame })
            }
        }
    }

    /// A system call that sends, and that the kernel refuses at once.
    pub(super) fn refused(&mut self) {
        match self {
            // `udp_sendmsg` looks at the length first (net/ipv4/udp.c).
            Bare::Udp { socket, too_long, .. } => drop(socket.send(too_long)),
            // `packet_snd` looks at the address first (net/packet/af_packet.c); this one is too short.
            Bare::Packet { socket, nic, frame } => {
                let _ = sendto(socket, frame, SendFlags::DONTWAIT, &NicAddress { bytes: 2, ..*nic });
            }
            // `__xsk_sendmsg` wants nobody who would wait (net/xdp/xsk.c).
            Bare::Xsk { socket, .. } => drop(send(socket.descriptor(), &[], SendFlags::empty())),
        }
    }

    /// What comes before the system call.
    pub(super) fn prepare(&mut self) {
        if let Bare::Xsk { socket, frame } = self {
            // A full ring would show as a NIC that takes nothing; it never is, for each frame is sent at once.
            let _ = socket.push(frame.len(), |into| into.copy_from_slice(frame));
        }
    }

    /// The system call that sends one packet. Whether anybody takes it is not asked: some NICs are there to refuse.
    pub(super) fn send(&mut self) {
        match self {
            Bare::Udp { socket, payload, .. } => drop(socket.send(payload)),
            Bare::Packet { socket, nic, frame } => {
                let _ = sendto(socket, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, nic);
            }
            Bare::Xsk { socket, .. } => drop(socket.kick()),
        }
    }
}

/// A UDP socket to the other end that never waits.
pub(super) fn connected(link: &Link) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(link.here)?;
    socket.connect(link.there)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The address of a NIC, of which the kernel is told so many bytes.
#[derive(Clone, Copy)]
pub(super) struct NicAddress {
    raw: libc::sockaddr_ll,
    bytes: SocketAddrLen,
}

// SAFETY: there are at least as many bytes, and they live as long as `self`.
unsafe impl SocketAddrArg for NicAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f((&raw const self.raw).cast(), self.bytes)
    }
}

/// A packet socket that receives nothing and passes the queueing discipline by, and the NIC as its address.
fn packet_socket(nic: u32) -> io::Result<(OwnedFd, NicAddress)> {
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    let raw = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: nic.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    Ok((socket, NicAddress { raw, bytes: size_of_val(&raw) as SocketAddrLen }))
}

/// Hands packets to a send path; how many it took, `None` when it refuses them.
type Send = dyn FnMut(Instant, &[Packet<'_>]) -> Option<usize>;

/// The same packets through the send path, as the library uses it.
pub(super) struct ThroughSendPath {
    send: Box<Send>,
    start: Clock,
    now: Instant,
    payload: Vec<u8>,
}

impl ThroughSendPath {
    /// Opens the send path, and waits until it reaches the other end.
    pub(super) fn open(send_path: &str, link: &Link, bytes: usize) -> Result<ThroughSendPath, CostsError> {
        let options = UdpOptions { address: link.here.ip(), port: 0, ..UdpOptions::default() };
        let mut sockets = Udp::open(&options).map_err(CostsError::failed("opening UDP sockets"))?;
        let (local, to) = (sockets.address(), link.there);
        sockets.connect(to);
        let start = Clock::now();
        let payload = vec![0x5a; bytes];
        let through = |send| ThroughSendPath { send, start, now: Instant(0), payload };
        let mut send_path: Box<dyn SendPath> = match send_path {
            "udp" => {
                return Ok(through(Box::new(move |now, burst| sockets.send(now, to, burst).ok())));
            }
            "packet" => {
                let queue_bytes = options.queue_bytes;
                let send_path = PacketSendPath::open(local, queue_bytes);
                Box::new(send_path.map_err(CostsError::failed("opening the packet send path"))?)
            }
            _ => {
                let send_path = XskSendPath::open(local, link.nic, 0, FRAMES);
                Box::new(send_path.map_err(CostsError::failed("opening the xsk send path"))?)
            }
        };
        send_path.connect(to, None);
        let mut through = through(Box::new(move |now, burst| send_path.send(now, to, burst).ok().flatten()));
        while !through.prepared().send() {
            if start.elapsed() > NEIGHBOUR_MAX {
                return Err(CostsError::Lost("the send path does not reach the other node"));
            }
            // Makes the kernel find out the hardware address.
            let _ = sockets.send(Instant(0), to, &[Packet { head: &[0; 64], body: &[] }]);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(through)
    }

    /// Looks at the clock, which the library has done when it comes to its send path.
    pub(super) fn prepared(&mut self) -> &mut ThroughSendPath {
        self.now = Instant(self.start.elapsed().as_nanos() as u64);
        self
    }

    /// Sends one packet; whether it was taken.
    pub(super) fn send(&mut self) -> bool {
        (self.send)(self.now, &[Packet { head: &self.payload, body: &[] }]).is_some_and(|taken| taken > 0)
    }
}
