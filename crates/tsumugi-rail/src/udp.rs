//! The `udp` send path: ordinary UDP sockets, which need no privilege and run anywhere.
//!
//! A *main* socket owns the port, of both [families](crate::family) if the rail has both. [`Rail::connect`] makes a
//! *dedicated* socket for a peer, on the same port and connected to it, because the kernel then looks no route up on
//! sending and copies no address on receiving: a 64 B round trip over veth takes 5.0 µs instead of 6.3.
//!
//! Many sockets must not make an idle poll dearer: [`Rail::receive`] asks the one that spoke last, and
//! only now and then all of them together, through epoll.

mod asked;
mod mtu;
mod open;
mod options;
mod send;
mod sockets;

pub use options::{UdpCounters, UdpError, UdpOptions};

use crate::given_up::GivenUp;
use crate::liveness::{Errors, Evidence, Question};
use crate::sys::{self, Epoll, Own, RawAddress};
use crate::{Deliver, Packet, Rail, RailError, family};
use asked::Asked;
use send::Sender;
use sockets::{set_busy_polling, socket};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS};

/// Most dedicated sockets: the kernel walks the sockets of a port one by one for each datagram.
const DEDICATED_MAX: usize = 64;
/// Bytes of the receive buffer: the longest datagram, coalesced or not.
const BUFFER_BYTES: usize = 64 * 1024;
/// Most bytes that one `receive` takes from a socket, and most system calls that it spends on it.
const TAKE_BYTES: usize = 4 * BUFFER_BYTES;
const TAKE_CALLS: usize = 64;
/// How long after [`Rail::connect`] the source of each datagram is asked for: a datagram for the new socket
/// may have been on its way through the kernel while the socket was bound but not yet connected.
const CAREFUL_NS: u64 = 10 * MILLISECOND_NS;
/// Calls after which `receive` asks every socket: few while several peers speak, more when these
/// looks keep finding only the one that is asked anyway, as in a conversation of two.
const LOOK_EVERY_MIN: u32 = 4;
const LOOK_EVERY_MAX: u32 = 16;
/// Calls in a row that found something in the same socket, after which an owner that spins has it taken
/// out of epoll. Telling epoll of an arrival costs 0.15 µs, each way of a round trip; changing the set
/// costs more, so that it must not be done for every change of speaker.
const CONVERSATION_CALLS: u32 = 64;
/// A caller that was away for so long has slept, or computed: anyone may have spoken meanwhile.
const AWAY_NS: u64 = 20 * MICROSECOND_NS;
/// Token of the main socket. Dedicated ones have the index of their slot.
const MAIN: usize = usize::MAX;

/// A socket connected to one peer.
#[derive(Debug)]
struct Dedicated {
    socket: Own<UdpSocket>,
    peer: SocketAddr,
    /// Until when datagrams may be another peer's. `None`: not yet received from since it was made.
    careful_until: Option<Instant>,
    /// Disconnected: the socket closes when it is empty.
    closing: bool,
}

/// A rail of ordinary UDP sockets.
#[derive(Debug)]
pub struct Udp {
    address: SocketAddr,
    options: UdpOptions,
    /// Whether sockets run the NIC's poll when they are looked into.
    busy_polling: bool,
    datagram_bytes: usize,
    main: Own<UdpSocket>,
    /// Slots; a slot's index is its epoll token.
    dedicated: Vec<Option<Dedicated>>,
    by_peer: HashMap<SocketAddr, usize>,
    /// The peer sent to last and its slot: bursts go to one peer many times over.
    last_sent: Option<(SocketAddr, usize)>,
    closing: usize,
    /// `None` where it is forbidden; then no peer has a socket of its own.
    epoll: Option<Epoll>,
    /// Whether epoll must know of every arrival; if not, the slot that was taken out of it.
    watching: bool,
    unwatched: Option<usize>,
    /// Calls in a row that found something in the active socket.
    conversation: u32,
    /// Socket that spoke last.
    active: usize,
    /// Whether the last `receive` found something.
    busy: bool,
    /// Calls since every socket was asked, and after how many they are asked again.
    since_look: u32,
    look_every: u32,
    /// When `receive` was called last.
    received_at: Instant,
    buffer: Box<[u8]>,
    sender: Sender,
    /// Which of our addresses peers ask.
    asked: Asked,
    /// What the kernel has said of packets to peers.
    errors: Errors,
    /// Peers to which a datagram was too long, and who was not told of yet.
    too_long: Vec<SocketAddr>,
    counters: UdpCounters,
    given_up: Vec<GivenUp>,
}

impl Udp {
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// What the sockets do without.
    #[must_use]
    pub fn given_up(&self) -> &[GivenUp] {
        &self.given_up
    }

    /// Peers that have a socket of their own.
    #[must_use]
    pub fn dedicated_peers(&self) -> usize {
        self.by_peer.len()
    }

    /// Whether the kernel segments bursts for this rail (`UDP_SEGMENT`).
    #[must_use]
    pub const fn segments(&self) -> bool {
        self.sender.segments()
    }

    /// Slot of the socket dedicated to `peer`.
    fn slot_of(&mut self, peer: SocketAddr) -> Option<usize> {
        match self.last_sent {
            Some((last, slot)) if last == peer => Some(slot),
            _ => {
                let slot = *self.by_peer.get(&peer)?;
                self.last_sent = Some((peer, slot));
                Some(slot)
            }
        }
    }

    /// Our address that what is sent to `peer` leaves from, if it has a socket of its own or has asked one.
    #[must_use]
    pub fn local_to(&self, peer: SocketAddr) -> Option<IpAddr> {
        self.asked.known_by(peer).map(|local| local.ip()).filter(|ip| !ip.is_unspecified())
    }

    /// Whether `peer` has just asked another of our addresses than the one it knows, which only these sockets can
    /// answer from.
    #[inline]
    pub(crate) fn is_asked_beside(&self, peer: SocketAddr) -> bool {
        self.asked.beside(peer).is_some()
    }

    /// Makes the socket dedicated to `peer`.
    fn dedicate(&mut self, peer: SocketAddr) -> io::Result<()> {
        let epoll = self.epoll.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let any = family::local(self.address, peer);
        let new = socket(any, &self.options)?;
        if self.busy_polling {
            set_busy_polling(&new, true)?;
        }
        sys::set_option(new.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // Sharing the port needs the option on both sockets. The main one has it for this moment only:
        // while it has not, nobody else can bind the port, whatever the dedicated ones have.
        sys::set_option(self.main.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // From the address that the peer asked, unless that is gone.
        let asked = self.asked.of(peer).map(|asked| sys::bind(new.as_fd(), asked));
        let bound = asked.and_then(Result::ok).map_or_else(|| sys::bind(new.as_fd(), any), Ok);
        let bound = bound.and_then(|()| new.connect(peer));
        sys::set_option(self.main.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 0)?;
        bound?;
        let local = new.local_addr()?;
        let slot = match self.dedicated.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.dedicated.push(None);
                self.dedicated.len() - 1
            }
        };
        epoll.add(new.as_fd(), slot as u64)?;
        self.dedicated[slot] = Some(Dedicated { socket: new, peer, careful_until: None, closing: false });
        self.by_peer.insert(peer, slot);
        self.asked.forget(peer);
        self.asked.known(peer, local);
        Ok(())
    }

    /// Takes what lies in one socket, within bounds; returns how many datagrams there were.
    fn take(
        &mut self,
        now: Instant,
        token: usize,
        eager: bool,
        deliver: &mut Deliver<'_>,
    ) -> io::Result<usize> {
        let (socket, connected, peer) = match self.dedicated.get_mut(token) {
            Some(Some(dedicated)) => {
                let until = *dedicated.careful_until.get_or_insert(now.plus(CAREFUL_NS));
                let peer = dedicated.peer;
                (&*dedicated.socket, Some(peer), (now >= until).then_some(peer))
            }
            Some(None) => return Ok(0),
            None => (&*self.main, None, None),
        };
        let (mut datagrams, mut bytes) = (0, 0);
        for _ in 0..TAKE_CALLS {
            let received = match (peer, connected) {
                (Some(peer), _) => socket.recv(&mut self.buffer).map(|length| (length, peer, None)),
                (None, Some(_)) => {
                    socket.recv_from(&mut self.buffer).map(|(length, from)| (length, from, None))
                }
                (None, None) => sys::receive(socket.as_fd(), &mut self.buffer),
            };
            match received {
                Ok((length, from, local)) => {
                    if let Some(local) = local {
                        self.asked.note(from, asked::local(local, self.address.port(), from));
                    }
                    deliver(from, &self.buffer[..length]);
                    datagrams += 1;
                    bytes += length;
                    // After an idle poll a short datagram is most likely alone; its receiver wants to
                    // answer, not to pay for a call that finds nothing.
                    if bytes >= TAKE_BYTES || (!eager && bytes <= self.datagram_bytes / 2) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if matches!(&self.dedicated.get(token), Some(Some(Dedicated { closing: true, .. }))) {
                        self.dedicated[token] = None; // closes it, and so takes it out of epoll
                        self.closing -= 1;
                        self.active = MAIN;
                        self.conversation = 0;
                    }
                    break;
                }
                Err(error) => {
                    if let (Some(peer), Some(error)) = (connected, error.raw_os_error()) {
                        self.errors.note(now, peer, error);
                        note_too_long(&mut self.too_long, peer, error);
                    }
                    soft(error, &mut self.counters)?;
                }
            }
        }
        self.counters.received += datagrams as u64;
        Ok(datagrams)
    }

    /// Takes from every socket that has something.
    fn take_everywhere(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        let mut tokens = [0; sys::READY_MAX];
        let Some(epoll) = &self.epoll else { return self.take(now, MAIN, self.busy, deliver) };
        let mut ready = match epoll.ready(&mut tokens) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            count => count.unwrap_or(0),
        };
        if self.closing > 0 && ready < tokens.len() {
            // An empty socket is never ready, but must be closed.
            if let Some(slot) =
                self.dedicated.iter().position(|slot| slot.as_ref().is_some_and(|d| d.closing))
            {
                tokens[ready] = slot as u64;
                ready += 1;
            }
        }
        if let Some(slot) = self.unwatched
            && ready < tokens.len()
        {
            tokens[ready] = slot as u64;
            ready += 1;
        }
        let (mut datagrams, mut others, before) = (0, false, self.active);
        for token in &tokens[..ready] {
            let token = *token as usize;
            let taken = self.take(now, token, self.busy, deliver)?;
            if taken > 0 {
                self.active = token;
                others |= token != before;
            }
            datagrams += taken;
        }
        if others {
            self.conversation = 0;
            self.watch_again()?;
        }
        self.look_every = if others { LOOK_EVERY_MIN } else { (self.look_every + 1).min(LOOK_EVERY_MAX) };
        Ok(datagrams)
    }

    /// Puts the socket that was taken out of epoll back; what waits in it is told at once.
    fn watch_again(&mut self) -> io::Result<()> {
        if let Some(slot) = self.unwatched.take()
            && let (Some(epoll), Some(Some(dedicated))) = (&self.epoll, self.dedicated.get(slot))
        {
            epoll.add(dedicated.socket.as_fd(), slot as u64)?;
        }
        Ok(())
    }

    /// Takes the active socket out of epoll when it has been the only one to speak for a while.
    fn unwatch_conversation(&mut self) -> io::Result<()> {
        self.conversation += 1;
        if self.conversation < CONVERSATION_CALLS || self.watching || self.unwatched.is_some() {
            return Ok(());
        }
        if let (Some(epoll), Some(Some(dedicated))) = (&self.epoll, self.dedicated.get(self.active))
            && !dedicated.closing
        {
            epoll.remove(dedicated.socket.as_fd())?;
            self.unwatched = Some(self.active);
        }
        Ok(())
    }

    fn broken(&self, doing: &'static str, source: io::Error) -> RailError {
        RailError::System { doing, on: format!("UDP {}", self.address), source }
    }
}

impl Rail for Udp {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        let slot = self.slot_of(to);
        let beside = self.asked.beside(to);
        let sent = match slot.and_then(|slot| self.dedicated[slot].as_ref()) {
            Some(dedicated) if beside.is_none() => {
                self.sender.send(dedicated.socket.as_fd(), None, burst, &mut self.counters)
            }
            _ => {
                let is_dual = family::is_dual(self.address.ip());
                let raw = if is_dual { RawAddress::mapped(to) } else { RawAddress::from(to) };
                let raw = match beside.or_else(|| self.asked.of(to)) {
                    Some(local) => raw.leaving_from(local),
                    None => raw,
                };
                self.sender.send(self.main.as_fd(), Some(&raw), burst, &mut self.counters)
            }
        };
        if let Some(error) = self.sender.take_error() {
            if matches!(error, libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH) {
                self.asked.forget(to); // the address may be none of ours any more
            }
            self.errors.note(now, to, error);
            note_too_long(&mut self.too_long, to, error);
        }
        sent.map_err(|source| self.broken("sending", source))
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        let away = now.since(self.received_at) > AWAY_NS;
        self.received_at = now;
        self.asked.clear();
        self.since_look += 1;
        let look = away || self.since_look >= self.look_every;
        let received = if look && !self.dedicated.is_empty() {
            self.since_look = 0;
            self.take_everywhere(now, deliver)
        } else {
            self.take(now, self.active, self.busy, deliver)
        };
        let datagrams = received.map_err(|source| self.broken("receiving", source))?;
        self.busy = datagrams > 0;
        if self.busy {
            self.unwatch_conversation().map_err(|source| self.broken("unwatching", source))?;
        }
        Ok(datagrams)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_ref().map_or(self.main.as_fd(), |epoll| epoll.descriptor().as_fd()))
    }

    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        self.watching = on;
        if on {
            self.watch_again().map_err(|source| self.broken("watching", source))?;
        }
        Ok(())
    }

    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        let dedicated = self.dedicated.iter().flatten().map(|dedicated| &dedicated.socket);
        for socket in dedicated.chain([&self.main]) {
            set_busy_polling(socket, on).map_err(|source| RailError::CannotBusyPoll {
                on: format!("UDP {}", self.address),
                source,
            })?;
        }
        self.busy_polling = on;
        Ok(())
    }

    fn connect(&mut self, peer: SocketAddr) {
        if self.by_peer.contains_key(&peer) || !family::serves(self.address.ip(), peer.ip()) {
            return;
        }
        let closing = |slot: &Option<Dedicated>| slot.as_ref().is_some_and(|d| d.closing && d.peer == peer);
        if let Some(slot) = self.dedicated.iter().position(closing) {
            if let Some(dedicated) = &mut self.dedicated[slot] {
                dedicated.closing = false;
            }
            self.closing -= 1;
            self.by_peer.insert(peer, slot);
            if let Some(Ok(local)) = self.dedicated[slot].as_ref().map(|own| own.socket.local_addr()) {
                self.asked.known(peer, local);
            }
            return;
        }
        // Without a socket of its own a peer is served through the main one, only more slowly.
        let full = self.dedicated.iter().flatten().count() >= DEDICATED_MAX;
        if full || self.dedicate(peer).is_err() {
            self.counters.shared += 1;
        }
    }

    fn inquire(&mut self, _now: Instant, since: Instant, peer: SocketAddr, _question: Question) -> Evidence {
        self.errors.take(since, peer).unwrap_or_default()
    }

    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        mtu::path_bytes(self.address, peer).ok()
    }

    #[inline]
    fn too_long(&mut self) -> Option<SocketAddr> {
        self.too_long.pop()
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        self.errors.forget(peer);
        self.asked.forget(peer);
        let Some(slot) = self.by_peer.remove(&peer) else { return };
        self.asked.unknown(peer);
        if self.unwatched == Some(slot) {
            // Failing leaves it to the next look, which asks closing sockets in any case.
            let _ = self.watch_again();
        }
        if let Some(dedicated) = &mut self.dedicated[slot] {
            // What the peer sent before it left is delivered before the socket is closed.
            dedicated.closing = true;
            self.closing += 1;
        }
        self.last_sent = None;
    }
}

/// Remembers a peer to which a datagram was too long.
fn note_too_long(peers: &mut Vec<SocketAddr>, peer: SocketAddr, error: i32) {
    if error == libc::EMSGSIZE && !peers.contains(&peer) {
        peers.push(peer);
    }
}

/// Swallows and counts what a socket reports of its peer's fate; hands back what is its own.
fn soft(error: io::Error, counters: &mut UdpCounters) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) | None => return Err(error),
        Some(libc::ECONNREFUSED) => counters.refused += 1,
        Some(libc::EMSGSIZE) => counters.too_long += 1,
        Some(libc::EINTR | libc::ENOMEM) => {}
        Some(_) => counters.unreachable += 1,
    }
    Ok(())
}
