//! Which of our addresses peers ask, so that answers leave from it.
//!
//! The kernel would choose the address that its routes prefer. A peer that asked another (a second address of a NIC, the
//! address of another NIC, 127.0.1.1) would not know who answers, and neither would firewalls on the path.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Peers of which the address is remembered that they asked. When there are more, all are forgotten: each asks again.
const PEERS_MAX: usize = 4096;

/// The addresses of ours that peers asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By peers without a socket of their own.
    last: HashMap<SocketAddr, SocketAddr>,
    /// The address of ours that is the one of a peer's own socket.
    own: HashMap<SocketAddr, SocketAddr>,
    /// By peers whose own socket has another address of ours, since [`Asked::clear`]: answers to them come at once.
    beside: Vec<(SocketAddr, SocketAddr)>,
}

impl Asked {
    /// `peer` asked our address `local`, and not by a socket of its own.
    pub(super) fn note(&mut self, peer: SocketAddr, local: SocketAddr) {
        match self.own.get(&peer) {
            Some(own) if *own == local => {}
            Some(_) => {
                self.beside.retain(|(of, _)| *of != peer);
                self.beside.push((peer, local));
            }
            None => {
                if self.last.get(&peer) == Some(&local) {
                    return;
                }
                if self.last.len() >= PEERS_MAX {
                    self.last.clear();
                }
                self.last.insert(peer, local);
            }
        }
    }

    /// What was asked by peers with sockets of their own has been answered.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.beside.clear();
    }

    /// The address that what is sent to `peer` now leaves from, though it has a socket of its own.
    #[inline]
    pub(super) fn beside(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.beside.iter().find(|(of, _)| *of == peer).map(|(_, local)| *local)
    }

    /// The address that `peer` asked.
    pub(super) fn of(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.last.get(&peer).copied()
    }

    /// `peer` has a socket of its own from now on, with this address of ours; or it has none any more.
    pub(super) fn known(&mut self, peer: SocketAddr, local: SocketAddr) {
        self.own.insert(peer, local);
    }

    pub(super) fn unknown(&mut self, peer: SocketAddr) {
        self.own.remove(&peer);
    }

    /// The address of ours that `peer` knows, if it has a socket of its own or has asked one.
    pub(super) fn known_by(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.own.get(&peer).copied().or_else(|| self.of(peer))
    }

    /// The address that `peer` asked is not ours any more, or nobody needs to know.
    pub(super) fn forget(&mut self, peer: SocketAddr) {
        self.last.remove(&peer);
        self.beside.retain(|(of, _)| *of != peer);
    }
}

/// Our address that a datagram came to, with the port and, where it says nothing without, the NIC.
pub(super) fn local(ip: IpAddr, port: u16, from: SocketAddr) -> SocketAddr {
    let mut local = SocketAddr::new(ip, port);
    if let (SocketAddr::V6(local), SocketAddr::V6(from)) = (&mut local, from)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(from.scope_id());
    }
    local
}
