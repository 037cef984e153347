//! Which of the library's nodes is which number of the address vector.

use crate::abi::{FI_ADDR_NOTAVAIL, FI_EINVAL, FI_LOG_AV, FI_LOG_WARN, fi_addr_t};
use crate::addresses::Addresses;
use crate::error;
use crate::host::say;
use std::rc::Rc;
use tsumugi::{Endpoint, Node};

/// Both directions, filled in when they are asked for.
pub(super) struct Peers {
    addresses: Rc<Addresses>,
    /// By number: the node, and which insertion it was made for.
    nodes: Vec<Option<(Node, u32)>>,
    /// By node.
    numbers: Vec<fi_addr_t>,
    /// How often the vector had changed when a node was last looked for in vain.
    searched: u64,
}

impl Peers {
    pub(super) fn new(addresses: Rc<Addresses>) -> Peers {
        Peers { addresses, nodes: Vec::new(), numbers: Vec::new(), searched: u64::MAX }
    }

    /// The node of a number.
    #[inline]
    pub(super) fn node(&mut self, endpoint: &Endpoint, number: fi_addr_t) -> Result<Node, i32> {
        let (address, inserted) = self.addresses.get(number).ok_or(FI_EINVAL)?;
        match self.nodes.get(number as usize) {
            Some(Some((node, known))) if *known == inserted => return Ok(*node),
            _ => {}
        }
        let node = endpoint.add_peer_at(address).map_err(|error| {
            say!(FI_LOG_WARN, FI_LOG_AV, "{error}");
            error::of_peer(&error)
        })?;
        // Who inserts an address anew means whoever is there now.
        endpoint.forgive(node);
        if self.nodes.len() <= number as usize {
            self.nodes.resize(number as usize + 1, None);
        }
        self.nodes[number as usize] = Some((node, inserted));
        self.note(node, number);
        Ok(node)
    }

    fn note(&mut self, node: Node, number: fi_addr_t) {
        let at = node.0 as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, FI_ADDR_NOTAVAIL);
        }
        self.numbers[at] = number;
    }

    /// The number of a node, if it is in the vector.
    #[inline]
    pub(super) fn number(&mut self, endpoint: &Endpoint, node: Node) -> fi_addr_t {
        match self.numbers.get(node.0 as usize) {
            Some(&number) if number != FI_ADDR_NOTAVAIL && self.addresses.get(number).is_some() => number,
            _ => self.search(endpoint, node),
        }
    }

    /// Looks for a node that came by itself, or that is called by another of its names.
    #[cold]
    fn search(&mut self, endpoint: &Endpoint, node: Node) -> fi_addr_t {
        let changes = self.addresses.changes() << 32 | u64::from(endpoint.peers());
        if std::mem::replace(&mut self.searched, changes) == changes {
            return FI_ADDR_NOTAVAIL;
        }
        let address = endpoint.address_of(node);
        let known = |number: fi_addr_t| self.nodes.get(number as usize).copied().flatten();
        let found = self.addresses.numbers().into_iter().find(|(number, at, inserted)| {
            Some(*at) == address
                || known(*number).is_some_and(|(other, at)| at == *inserted && endpoint.the(other) == node)
        });
        match found {
            Some((number, ..)) => {
                self.note(node, number);
                // The next one may be found, too.
                self.searched = u64::MAX;
                number
            }
            None => FI_ADDR_NOTAVAIL,
        }
    }
}
