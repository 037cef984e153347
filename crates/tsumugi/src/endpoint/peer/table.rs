//! The peers of an endpoint, by number.
//!
//! A number names one peer for ever: who answers a message that has lain for long must not reach somebody else. Places are
//! used again, for new numbers, so that a server may see any number of clients, one after the other.

use super::Peer;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::slice::{Iter, IterMut};

/// Who sends in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenant {
    /// A peer, by its number.
    Peer(u32),
    /// A switch box that counts for a group of ours, by the number of our seat.
    Group(u32),
}

pub(crate) struct Peers {
    /// A number's place is its remainder by a power of two that is no less than the most peers there may be.
    places: Vec<Peer>,
    mask: u32,
    /// What is found under a number that is not in use: a peer that is gone.
    nobody: Box<Peer>,
    /// Which peer proved to be at an address: that of its connection, others that it came from, and those of its paths
    /// that it has answered on.
    by_address: HashMap<SocketAddr, u32>,
    /// Who sends in a flow.
    flows: Vec<Option<Tenant>>,
    /// Connections that have ended.
    ends: u64,
}

impl Peers {
    pub(crate) fn new(peers_max: u32, flows: usize, nobody: Peer) -> Peers {
        Peers {
            places: Vec::new(),
            mask: peers_max.next_power_of_two() - 1,
            nobody: Box::new(nobody),
            by_address: HashMap::new(),
            flows: vec![None; flows],
            ends: 0,
        }
    }

    /// Places in use.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn iter(&self) -> Iter<'_, Peer> {
        self.places.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> IterMut<'_, Peer> {
        self.places.iter_mut()
    }

    /// The number of the peer in a place.
    #[inline]
    pub(crate) fn number_at(&self, place: usize) -> u32 {
        self.places[place].number
    }

    #[inline]
    fn place_of(&self, number: usize) -> usize {
        number & self.mask as usize
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&Peer> {
        self.places.get(self.place_of(number)).filter(|peer| peer.number as usize == number)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Peer> {
        let place = self.place_of(number);
        self.places.get_mut(place).filter(|peer| peer.number as usize == number)
    }

    /// Puts a peer in the next place that was never used. Returns its number.
    pub(crate) fn push(&mut self, peer: Peer) -> u32 {
        let number = self.places.len() as u32;
        self.places.push(Peer { number, ..peer });
        number
    }

    /// Puts a peer in the place of another that is forgotten. Returns its number.
    pub(crate) fn replace(&mut self, place: usize, peer: Peer) -> u32 {
        let number = self.places[place].number.wrapping_add(self.mask + 1);
        self.places[place] = Peer { number, ..peer };
        number
    }

    /// The peer that proved to be at an address.
    #[inline]
    pub(crate) fn at(&self, address: SocketAddr) -> Option<u32> {
        self.by_address.get(&address).copied()
    }

    /// A peer is at an address.
    pub(crate) fn settle(&mut self, address: SocketAddr, number: u32) {
        self.by_address.insert(address, number);
    }

    /// A peer is at an address, if nobody is yet.
    pub(crate) fn settle_if_free(&mut self, address: SocketAddr, number: u32) {
        self.by_address.entry(address).or_insert(number);
    }

    /// A peer is not at an address any more, if it was.
    pub(crate) fn leave(&mut self, address: SocketAddr, number: u32) {
        if self.at(address) == Some(number) {
            self.by_address.remove(&address);
        }
    }

    /// Whoever was at addresses under one number is there under another.
    pub(crate) fn move_all(&mut self, from: u32, into: u32) {
        self.by_address.values_mut().filter(|owner| **owner == from).for_each(|owner| *owner = into);
    }

    /// The peer that sends in a flow.
    #[inline]
    pub(crate) fn in_flow(&self, flow: u32) -> Option<u32> {
        match self.flows.get(flow as usize).copied().flatten() {
            Some(Tenant::Peer(number)) => Some(number),
            _ => None,
        }
    }

    /// The seat whose releases come in a flow.
    #[inline]
    pub(crate) fn group_in_flow(&self, flow: u32) -> Option<u32> {
        match self.flows.get(flow as usize).copied().flatten() {
            Some(Tenant::Group(number)) => Some(number),
            _ => None,
        }
    }

    /// A flow that nobody sends in.
    pub(crate) fn free_flow(&self) -> Option<u32> {
        self.flows.iter().position(Option::is_none).map(|flow| flow as u32)
    }

    /// Somebody sends in a flow from now on, or nobody.
    pub(crate) fn set_flow(&mut self, flow: u32, tenant: Option<Tenant>) {
        self.flows[flow as usize] = tenant;
    }

    /// How many flows there are.
    pub(crate) fn flows(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Connections that have ended.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// Counts a connection that has ended; how many have, with it.
    pub(crate) fn count_end(&mut self) -> u64 {
        self.ends += 1;
        self.ends
    }

    /// What must hold.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn audit(&self) -> Result<(), String> {
        for (index, tenant) in self.flows.iter().enumerate() {
            let Some(Tenant::Peer(peer)) = *tenant else { continue };
            let owner = self.get(peer as usize).and_then(|peer| peer.connection.local);
            if owner.is_none_or(|local| local.index as usize != index) {
                return Err(format!("flow {index} belongs to peer {peer}, which has {owner:?}"));
            }
        }
        Ok(())
    }

    /// Two peers at once.
    pub(crate) fn two(&mut self, one: u32, other: u32) -> [&mut Peer; 2] {
        let places = [one, other].map(|number| self.place_of(number as usize));
        self.places.get_disjoint_mut(places).expect("two numbers in use")
    }

    /// Has two peers change places. Their numbers stay with the places.
    pub(crate) fn swap(&mut self, one: u32, other: u32) {
        let [one, other] = self.two(one, other);
        std::mem::swap(one, other);
        std::mem::swap(&mut one.number, &mut other.number);
    }

    /// Has the peer that was pushed last go by a number of its own, as before it was suspended. `false`: that is none of
    /// its place.
    pub(crate) fn renumber_last(&mut self, number: u32) -> bool {
        let place = self.place_of(number as usize);
        match self.places.last_mut() {
            Some(peer) if peer.number as usize == place => peer.number = number,
            _ => return false,
        }
        true
    }
}

impl Index<usize> for Peers {
    type Output = Peer;

    #[inline]
    fn index(&self, number: usize) -> &Peer {
        match self.places.get(self.place_of(number)) {
            Some(peer) if peer.number as usize == number => peer,
            _ => &self.nobody,
        }
    }
}

impl IndexMut<usize> for Peers {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Peer {
        let place = self.place_of(number);
        match self.places.get_mut(place) {
            Some(peer) if peer.number as usize == number => peer,
            _ => &mut self.nobody,
        }
    }
}

impl<'a> IntoIterator for &'a Peers {
    type Item = &'a Peer;
    type IntoIter = Iter<'a, Peer>;

    fn into_iter(self) -> Iter<'a, Peer> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Peers {
    type Item = &'a mut Peer;
    type IntoIter = IterMut<'a, Peer>;

    fn into_iter(self) -> IterMut<'a, Peer> {
        self.iter_mut()
    }
}
