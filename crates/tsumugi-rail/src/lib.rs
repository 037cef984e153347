//! Everything of Tsumugi that touches the kernel: the send paths, and the sockets and maps of the receive paths.
//!
//! A [`Rail`] is one local NIC with a send path and a receive path. The protocol never sees it;
//! the library pulls packets out of the protocol and pushes them into a rail, and the other way round.
//! Rails wrap each other: [`fault`] loses, doubles, reorders, delays and damages packets around any
//! rail, [`trace`] writes what passes into a pcap file.

mod choose;
pub mod copy;
pub mod dual_stack;
pub mod ether;
pub mod ethernet;
pub mod family;
pub mod fault;
mod given_up;
mod liveness;
pub mod memory;
mod netlink;
pub mod networks;
pub mod nics;
pub mod packet;
pub mod port;
mod random;
pub mod region;
mod report;
pub mod route;
mod run;
pub mod send_path;
pub mod sim;
pub mod status_page;
pub mod switch;
mod sys;
pub mod trace;
pub mod udp;
mod words;
pub mod xdp;
pub mod xsk;

pub use ether::Template;
pub use ethernet::{Ethernet, EthernetError, EthernetOptions, ReceiveChoice, SendChoice};
pub use fault::{FaultOptions, Faulty};
pub use given_up::GivenUp;
pub use liveness::{Evidence, Question};
pub use memory::{Memory, MemoryError};
pub use networks::{Networks, NetworksError};
pub use nics::{NicAddress, NicName};
pub use packet::{PacketError, PacketSendPath};
pub use region::{OutOfRegion, PinError, Region, Slice};
pub use report::RailReport;
pub use route::{Reach, RouteError, Routes};
pub use send_path::SendPath;
pub use sys::{Own, Owner, host_number, kernel_version, pinned_bytes_max, set_option};
pub use trace::Traced;
pub use udp::{Udp, UdpError, UdpOptions};

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi_wire::Instant;

/// One packet to send, in two pieces that lie behind each other on the wire, so that a message is
/// never copied to stand behind its header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The packet's header, with whatever frame header follows it.
    pub head: &'a [u8],
    /// The rest of the packet; may be empty.
    pub body: &'a [u8],
}

impl Packet<'_> {
    /// Bytes of the datagram.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// Why a burst could not be sent. What stops one packet only (a full queue, an
/// unreachable peer) is not an error of the rail: the packet counts as sent, and lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RailError {
    /// The operating system refused.
    #[error("{doing} on {on}: {source}{}", remedy(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// The address, NIC or file it was tried on.
        on: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Preferred busy polling is not permitted.
    #[error(
        "busy polling on {on}: {source}; it needs CAP_NET_ADMIN (`setcap cap_net_admin+ep PROGRAM`, or root), and NICs set for it (`tsumugi up NIC --busy-poll`); spin or adaptive need nothing"
    )]
    CannotBusyPoll {
        /// The address.
        on: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The endpoint is another process's.
    #[error(
        "the endpoint on {address} belongs to process {owner}, which opened it, and this is process {here}, made from it by fork; open an endpoint of its own here"
    )]
    OtherProcess {
        /// The endpoint's address.
        address: SocketAddr,
        /// The process that opened it.
        owner: u32,
        /// The process that uses it.
        here: u32,
    },
    /// The XDP receive path was demanded, and the XDP program is not attached any more.
    #[error(
        "the XDP receive path of UDP port {port} is gone: {why}; `tsumugi up NIC` and open the endpoint anew, or let it go on through its sockets (receive path auto)"
    )]
    XdpGone {
        /// The endpoint's port.
        port: u16,
        /// What became of the program.
        why: String,
    },
}

/// What to do about what the system said, where that is known; empty where it is not.
pub(crate) fn remedy(error: &std::io::Error) -> String {
    match (error.raw_os_error(), sys::open_files_max()) {
        (Some(libc::EMFILE), Ok(Some(limit))) => format!(
            "; the process may have {limit} open: raise it with `ulimit -n` or nofile in /etc/security/limits.conf"
        ),
        (Some(libc::ENFILE), _) => "; it is this host that may not have more: sysctl fs.file-max".to_owned(),
        _ => String::new(),
    }
}

/// Takes datagrams off a rail: the sender's address and the bytes. Several packets of one
/// sender may lie behind each other in the bytes when the kernel coalesced them; each
/// header says where the next begins.
pub type Deliver<'a> = dyn FnMut(SocketAddr, &[u8]) + 'a;

/// One local NIC with a send path and a receive path.
pub trait Rail {
    /// Address that peers send to.
    fn address(&self) -> SocketAddr;

    /// Largest datagram payload that passes unfragmented, bytes.
    fn datagram_bytes(&self) -> usize;

    /// Sends `burst` to one peer, in order, without blocking, and returns how many packets were taken:
    /// fewer than all when the NIC's queue is full; try the rest later.
    ///
    /// # Errors
    /// The rail itself is broken, not just one packet.
    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError>;

    /// Hands datagrams that have arrived to `deliver`, a bounded number of them, without blocking, and
    /// returns how many there were.
    ///
    /// # Errors
    /// The rail itself is broken.
    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError>;

    /// When this rail wants to be called though nothing arrives ([`Instant::NEVER`]: not at all).
    /// Rails that hold packets back, such as a delaying wrapper, need it.
    fn wake_at(&self) -> Instant {
        Instant::NEVER
    }

    /// Becomes readable when [`Rail::receive`] may have something; `None` for a rail outside the kernel.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Says whether [`Rail::descriptor`] must tell of arrivals; at first it must. An owner that spins may
    /// say no, which makes arrivals cheaper, and must say yes before it sleeps.
    ///
    /// # Errors
    /// The rail itself is broken; do not sleep on its descriptor.
    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        let _ = on;
        Ok(())
    }

    /// Says that there will be traffic with `peer`, so that the rail may prepare for it.
    fn connect(&mut self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Says that there will be no more traffic with `peer`.
    fn disconnect(&mut self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Says whether every look ([`Rail::receive`]) is to run the NIC's poll, too (preferred busy polling), so that a
    /// process that waits needs no interrupt.
    ///
    /// # Errors
    /// The system does not permit it (CAP_NET_ADMIN).
    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        let _ = on;
        Ok(())
    }

    /// Name of the send path; `auto` when there are several to choose from.
    fn send_path(&self) -> &'static str {
        "udp"
    }

    /// Whether the XDP program deposits, as far as is known.
    fn uses_xdp(&self) -> bool {
        false
    }

    /// What is in use, and what this rail does without.
    fn report(&self) -> RailReport {
        RailReport::default()
    }

    /// Addresses that this end can be reached by, at most one for each NIC, if that is news since the last call; empty:
    /// only by [`Rail::address`].
    fn nics(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        let _ = now;
        None
    }

    /// Whether the kernel tells peers that this process is there while it makes no call: see [`Rail::inquire`].
    fn listens(&self) -> bool {
        false
    }

    /// What kernels say of a peer from which nothing has come since `since`: ours of packets to it, and its own of its
    /// process. Answers take their time, so it is asked again while the peer is silent.
    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        let _ = (now, since, peer, question);
        Evidence::None
    }

    /// The NIC of ours that leads to `peer`, if its link is down: nothing will come from there, whatever the peer does.
    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        let _ = (now, peer);
        None
    }

    /// Longest datagram payload that our kernel expects to reach a peer, bytes: the MTU of its route, or what a router
    /// has said. `None`: it does not say.
    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        let _ = peer;
        None
    }

    /// A peer of which our kernel has said since the last call that a datagram to it is too long: [`Rail::path_bytes`]
    /// has become less.
    fn too_long(&mut self) -> Option<SocketAddr> {
        None
    }

    /// Returns when nobody but the caller deposits any more. For an owner that is about to leave: what arrives from
    /// now on is not acknowledged.
    fn quiesce(&mut self) {}
}

impl<R: Rail + ?Sized> Rail for Box<R> {
    fn address(&self) -> SocketAddr {
        (**self).address()
    }
    fn datagram_bytes(&self) -> usize {
        (**self).datagram_bytes()
    }
    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        (**self).send(now, to, burst)
    }
    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        (**self).receive(now, deliver)
    }
    fn wake_at(&self) -> Instant {
        (**self).wake_at()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }
    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        (**self).watch(on)
    }
    fn connect(&mut self, peer: SocketAddr) {
        (**self).connect(peer);
    }
    fn disconnect(&mut self, peer: SocketAddr) {
        (**self).disconnect(peer);
    }
    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        (**self).busy_poll(on)
    }
    fn send_path(&self) -> &'static str {
        (**self).send_path()
    }
    fn uses_xdp(&self) -> bool {
        (**self).uses_xdp()
    }
    fn report(&self) -> RailReport {
        (**self).report()
    }
    fn nics(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        (**self).nics(now)
    }
    fn listens(&self) -> bool {
        (**self).listens()
    }
    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        (**self).inquire(now, since, peer, question)
    }
    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        (**self).link_down(now, peer)
    }
    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        (**self).path_bytes(peer)
    }
    fn too_long(&mut self) -> Option<SocketAddr> {
        (**self).too_long()
    }
    fn quiesce(&mut self) {
        (**self).quiesce();
    }
}
