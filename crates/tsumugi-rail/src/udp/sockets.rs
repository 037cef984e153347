//! The sockets of a rail: a main one that owns the port, and those dedicated to one peer.

use super::UdpOptions;
use super::asked::Asked;
use crate::sys::{self, Epoll, Own};
use crate::{dual_stack, family};
use rustix::net;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use tsumugi_wire::Instant;

/// Token of the main socket. Dedicated ones have the index of their slot.
pub(super) const MAIN: usize = usize::MAX;
/// Most dedicated sockets: the kernel walks the sockets of a port one by one for each datagram.
const DEDICATED_MAX: usize = 64;

/// Time that one look may spend in the NIC's poll, µs, and packets that it may take there.
const BUSY_POLL_US: i32 = 20;
const BUSY_POLL_PACKETS: i32 = 64;

/// A socket connected to one peer.
#[derive(Debug)]
pub(super) struct Dedicated {
    pub(super) socket: Own<UdpSocket>,
    pub(super) peer: SocketAddr,
    /// Until when datagrams may be another peer's. `None`: not yet received from since it was made.
    pub(super) careful_until: Option<Instant>,
    /// Disconnected: the socket closes when it is empty.
    pub(super) closing: bool,
}

/// The sockets of one rail.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Where the main socket is bound.
    address: SocketAddr,
    options: UdpOptions,
    /// Whether sockets run the NIC's poll when they are looked into.
    busy_polling: bool,
    pub(super) main: Own<UdpSocket>,
    /// Slots; a slot's index is its token.
    slots: Vec<Option<Dedicated>>,
    by_peer: HashMap<SocketAddr, usize>,
    /// The peer sent to last and its slot: bursts go to one peer many times over.
    last_sent: Option<(SocketAddr, usize)>,
    /// Dedicated sockets that are to be closed.
    closing: usize,
}

impl Sockets {
    pub(super) fn new(address: SocketAddr, options: UdpOptions, main: Own<UdpSocket>) -> Sockets {
        Sockets {
            address,
            options,
            busy_polling: false,
            main,
            slots: Vec::new(),
            by_peer: HashMap::new(),
            last_sent: None,
            closing: 0,
        }
    }

    /// Peers that have a socket of their own.
    pub(super) fn peers(&self) -> usize {
        self.by_peer.len()
    }

    /// Whether there is any socket beside the main one.
    pub(super) const fn has_dedicated(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The dedicated socket of a slot.
    pub(super) fn dedicated(&self, slot: usize) -> Option<&Dedicated> {
        self.slots.get(slot)?.as_ref()
    }

    /// The dedicated socket of a slot; `None`: the slot is empty, or the token is the main socket's.
    pub(super) fn dedicated_mut(&mut self, slot: usize) -> Option<&mut Dedicated> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The socket dedicated to `peer`.
    pub(super) fn of(&mut self, peer: SocketAddr) -> Option<&Dedicated> {
        let slot = match self.last_sent {
            Some((last, slot)) if last == peer => slot,
            _ => {
                let slot = *self.by_peer.get(&peer)?;
                self.last_sent = Some((peer, slot));
                slot
            }
        };
        self.dedicated(slot)
    }

    /// Has all sockets run their NIC's poll when they are looked into, or not.
    pub(super) fn busy_poll(&mut self, on: bool) -> io::Result<()> {
        let dedicated = self.slots.iter().flatten().map(|dedicated| &dedicated.socket);
        for socket in dedicated.chain([&self.main]) {
            set_busy_polling(socket, on)?;
        }
        self.busy_polling = on;
        Ok(())
    }

    /// Gives `peer` a socket of its own, from the address that it asked. Failing leaves it to the main one, which is only
    /// slower.
    pub(super) fn connect(
        &mut self,
        peer: SocketAddr,
        asked: &mut Asked,
        epoll: Option<&Epoll>,
    ) -> io::Result<()> {
        if self.by_peer.contains_key(&peer) || !family::serves(self.address.ip(), peer.ip()) {
            return Ok(());
        }
        if let Some(slot) = self.position(|dedicated| dedicated.closing && dedicated.peer == peer)
            && let Some(dedicated) = &mut self.slots[slot]
        {
            dedicated.closing = false;
            self.closing -= 1;
            self.by_peer.insert(peer, slot);
            if let Ok(local) = dedicated.socket.local_addr() {
                asked.known(peer, local);
            }
            return Ok(());
        }
        if self.slots.iter().flatten().count() >= DEDICATED_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.dedicate(peer, asked, epoll.ok_or(io::ErrorKind::Unsupported)?)
    }

    /// Makes the socket dedicated to `peer`.
    fn dedicate(&mut self, peer: SocketAddr, asked: &mut Asked, epoll: &Epoll) -> io::Result<()> {
        let any = family::local(self.address, peer);
        let new = socket(any, &self.options)?;
        if self.busy_polling {
            set_busy_polling(&new, true)?;
        }
        sockopt::set_socket_reuseaddr(&*new, true)?;
        // Sharing the port needs the option on both sockets. The main one has it for this moment only:
        // while it has not, nobody else can bind the port, whatever the dedicated ones have.
        sockopt::set_socket_reuseaddr(&*self.main, true)?;
        // From the address that the peer asked, unless that is gone.
        let bound = asked.of(peer).map(|asked| net::bind(&*new, &asked));
        let bound = bound.and_then(Result::ok).map_or_else(|| net::bind(&*new, &any), Ok);
        let bound = bound.map_err(io::Error::from).and_then(|()| new.connect(peer));
        sockopt::set_socket_reuseaddr(&*self.main, false)?;
        bound?;
        let local = new.local_addr()?;
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        epoll.add(new.as_fd(), slot as u64)?;
        self.slots[slot] = Some(Dedicated { socket: new, peer, careful_until: None, closing: false });
        self.by_peer.insert(peer, slot);
        asked.forget(peer);
        asked.known(peer, local);
        Ok(())
    }

    /// `peer` is gone: its socket is closed when it is empty, so that what it sent before it left is delivered. Returns the
    /// socket's slot.
    pub(super) fn disconnect(&mut self, peer: SocketAddr) -> Option<usize> {
        let slot = self.by_peer.remove(&peer)?;
        self.last_sent = None;
        if let Some(dedicated) = &mut self.slots[slot] {
            dedicated.closing = true;
            self.closing += 1;
        }
        Some(slot)
    }

    /// A slot whose socket is to be closed.
    pub(super) fn to_close(&self) -> Option<usize> {
        if self.closing == 0 { None } else { self.position(|dedicated| dedicated.closing) }
    }

    /// The socket of this token is empty: closes it if it was only waited for that, and returns whether it did.
    pub(super) fn close_if_gone(&mut self, token: usize) -> bool {
        let is_gone = self.dedicated(token).is_some_and(|dedicated| dedicated.closing);
        if is_gone {
            self.slots[token] = None; // closes it, and so takes it out of epoll
            self.closing -= 1;
        }
        is_gone
    }

    fn position(&self, is: impl Fn(&Dedicated) -> bool) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(&is))
    }
}

/// A non-blocking socket, to be bound to `address`, with everything set that every socket of a rail has.
pub(super) fn socket(address: SocketAddr, options: &UdpOptions) -> io::Result<Own<UdpSocket>> {
    let socket = sys::udp_socket(address)?;
    let queue_bytes = sys::in_option(options.queue_bytes);
    // As much as we get: the kernel caps the plain option, and the other is root's.
    let _ = sockopt::set_socket_recv_buffer_size_force(&*socket, queue_bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&*socket, queue_bytes));
    let _ = sockopt::set_socket_send_buffer_size_force(&*socket, queue_bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&*socket, queue_bytes));
    if options.offloads {
        let _ = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1); // Linux 5.0; before that, one datagram a call
    }
    // Never fragmented, and no longer than the NIC's MTU. "Probe", not "do": what a router has said the kernel remembers for
    // ten minutes, and "do" would refuse (EMSGSIZE) the very probes that find out whether it is still so. Its word reaches
    // us all the same, as the same error of the socket that is connected to the peer.
    if family::serves(address.ip(), Ipv4Addr::UNSPECIFIED.into()) {
        let _ = sockopt::set_ip_mtu_discover(&*socket, Ipv4PathMtuDiscovery::PROBE);
    }
    if address.is_ipv6() {
        let _ = sockopt::set_ipv6_mtu_discover(&*socket, Ipv6PathMtuDiscovery::PROBE);
    }
    dual_stack::set_dual(socket.as_fd(), address)?;
    Ok(socket.map(UdpSocket::from))
}

/// Has looks into a socket run the poll of the NIC that its packets come by (Linux 5.11).
pub(super) fn set_busy_polling(socket: &UdpSocket, on: bool) -> io::Result<()> {
    let set = |option, value| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, option, value);
    if !on {
        set(libc::SO_PREFER_BUSY_POLL, 0)?;
        return set(libc::SO_BUSY_POLL, 0);
    }
    set(libc::SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, BUSY_POLL_US)?;
    set(libc::SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS)
}
