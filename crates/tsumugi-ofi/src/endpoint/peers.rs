//! Which of the library's peers is which number of the address vector.

use crate::abi::{FI_ADDR_NOTAVAIL, FI_EINVAL, FI_LOG_AV, FI_LOG_WARN, fi_addr_t};
use crate::addresses::Addresses;
use crate::error;
use crate::host::say;
use std::collections::HashSet;
use std::rc::Rc;
use tsumugi::{Endpoint, PeerId};

/// Both directions, filled in when they are asked for.
pub(super) struct Peers {
    addresses: Rc<Addresses>,
    /// By number: the peer, and which insertion it was made for.
    peers: Vec<Option<(PeerId, u32)>>,
    /// By peer: the number, and which insertion it is of.
    numbers: Vec<Option<(fi_addr_t, u32)>>,
    /// Peers that were looked for in vain, and are not looked for again until something changes.
    strangers: HashSet<PeerId>,
    /// How often the vector had changed when the first of them was looked for.
    changes: u64,
}

impl Peers {
    pub(super) fn new(addresses: Rc<Addresses>) -> Peers {
        Peers { addresses, peers: Vec::new(), numbers: Vec::new(), strangers: HashSet::new(), changes: 0 }
    }

    /// The peer of a number.
    #[inline]
    pub(super) fn peer(&mut self, endpoint: &Endpoint, number: fi_addr_t) -> Result<PeerId, i32> {
        let (address, inserted) = self.addresses.get(number).ok_or(FI_EINVAL)?;
        match self.peers.get(number as usize) {
            Some(Some((peer, known))) if *known == inserted => return Ok(*peer),
            _ => {}
        }
        let peer = endpoint.add_peer(address).map_err(|error| {
            say!(FI_LOG_WARN, FI_LOG_AV, "{error}");
            error::of_peer(&error)
        })?;
        // An address that is inserted anew means the process that is there now.
        endpoint.reset_peer(peer);
        if self.peers.len() <= number as usize {
            self.peers.resize(number as usize + 1, None);
        }
        self.peers[number as usize] = Some((peer, inserted));
        self.note(peer, number, inserted);
        // One of them may prove to be the same.
        self.strangers.clear();
        Ok(peer)
    }

    fn note(&mut self, peer: PeerId, number: fi_addr_t, inserted: u32) {
        let at = peer.0 as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, None);
        }
        self.numbers[at] = Some((number, inserted));
    }

    /// The number of a peer, if it is in the vector.
    #[inline]
    pub(super) fn number(&mut self, endpoint: &Endpoint, peer: PeerId) -> fi_addr_t {
        match self.numbers.get(peer.0 as usize) {
            Some(&Some((number, inserted))) if self.addresses.is_of(number, inserted) => number,
            _ => self.search(endpoint, peer),
        }
    }

    /// Looks for a peer that connected by itself, or that is known by another of its addresses.
    #[cold]
    fn search(&mut self, endpoint: &Endpoint, peer: PeerId) -> fi_addr_t {
        let changes = self.addresses.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.strangers.clear();
        }
        if self.strangers.contains(&peer) {
            return FI_ADDR_NOTAVAIL;
        }
        let address = endpoint.address_of(peer);
        let known = |number: fi_addr_t| self.peers.get(number as usize).copied().flatten();
        let found = self.addresses.numbers().into_iter().find(|(number, at, inserted)| {
            Some(*at) == address
                || known(*number)
                    .is_some_and(|(other, at)| at == *inserted && endpoint.canonical(other) == peer)
        });
        match found {
            Some((number, _, inserted)) => {
                self.note(peer, number, inserted);
                number
            }
            None => {
                self.strangers.insert(peer);
                FI_ADDR_NOTAVAIL
            }
        }
    }
}
