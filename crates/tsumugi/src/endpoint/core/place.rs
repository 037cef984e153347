//! Long messages go straight into memory of the channel's owner, when it asks for that.
//!
//! The head of a long message is its first fragment. When that has its turn, the channel's [`Placer`] is asked where
//! the message is to go; what came ahead of its turn is moved there, everything else goes there from the wire. The
//! owner's memory belongs to the assembly until the message is complete or its sender gone, and comes back then.

use super::Core;
use crate::endpoint::peer::receive::{Assembly, Lent, Store};
use crate::endpoint::receive_queue::Payload;
use std::cell::RefCell;
use std::rc::Rc;
use tsumugi_wire::memory::Counter;

/// Bytes of a message's head that a placer sees, at most.
const HEAD_BYTES_MAX: usize = 64;

/// A long message that is arriving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// The peer that sends it.
    pub(crate) source: u32,
    /// Its number among the peer's long messages.
    pub(crate) message: u32,
    /// How long it is, bytes.
    pub(crate) total: u64,
}

/// Where a long message is to go.
#[derive(Debug)]
pub(crate) enum Room {
    /// Into the owner's memory.
    Lent(Lent),
    /// Into memory of the endpoint. It will be handed over as any other message.
    Own,
    /// Into memory of the endpoint. It will be handed over under this key, and the owner may still
    /// [lend](Core::lend) memory while it arrives.
    Claimed(usize),
    /// Nowhere: nobody wants it.
    Nowhere,
}

/// The owner of a channel that says where long messages go.
///
/// It is called while the core does other things. What it calls in turn may only take messages, give them back and
/// send: nothing that could end a connection, about which it would be told.
pub(crate) trait Placer {
    /// The head of a long message has its turn. Everything that the peer sent before is in the channel's queue.
    fn on_head(&mut self, core: &mut Core, incoming: Incoming, head: &[u8]) -> Room;

    /// The message is complete for which memory was lent.
    fn on_placed(&mut self, core: &mut Core, lent: Lent);

    /// A message is complete that was [claimed](Room::Claimed).
    fn on_collected(&mut self, key: usize, payload: Payload);

    /// The peer is gone before the message was complete; the [failure](super::channels::Delivery::Failed) follows.
    fn on_lost(&mut self, core: &mut Core, room: Room);
}

impl Core {
    /// Asks from now on where long messages of an open channel are to go.
    pub(crate) fn set_placer(&mut self, channel: u16, placer: Rc<RefCell<dyn Placer>>) {
        self.channels.set_placer(channel, placer);
    }

    /// The channel's placer is asked no more, and gets what it has lent: nothing is written or read there any more.
    pub(super) fn remove_placer(&mut self, channel: u16) {
        self.sent.long_messages.redeem(channel);
        if !self.channels.remove_placer(channel) {
            return;
        }
        for peer in &mut self.peers {
            for assembly in peer.receive.assemblies.iter_mut().filter(|assembly| assembly.channel == channel)
            {
                match &mut assembly.store {
                    Store::Own { claim, .. } => *claim = None,
                    store => *store = Store::Nowhere,
                }
            }
        }
    }

    /// The head of a message, `bytes` long, has its turn: asks where the message is to go. `head` when it is not in its
    /// place yet.
    pub(super) fn place(&mut self, index: u32, slot: usize, bytes: usize, head: Option<&[u8]>) {
        let assembly = &mut self.peers[index as usize].receive.assemblies[slot];
        if std::mem::replace(&mut assembly.placed, true) {
            return;
        }
        let incoming = Incoming { source: index, message: assembly.message, total: assembly.total };
        let channel = assembly.channel;
        let Some(placer) = self.channels.placer(channel) else { return };
        let assembly = &self.peers[index as usize].receive.assemblies[slot];
        let seen = head.unwrap_or_else(|| assembly.store.head());
        let bytes = bytes.min(seen.len()).min(HEAD_BYTES_MAX);
        let mut head = [0; HEAD_BYTES_MAX];
        head[..bytes].copy_from_slice(&seen[..bytes]);
        let room = placer.borrow_mut().on_head(self, incoming, &head[..bytes]);
        let assembly = &mut self.peers[index as usize].receive.assemblies[slot];
        match (room, &mut assembly.store) {
            (Room::Claimed(key), Store::Own { claim, .. }) => *claim = Some(key),
            (Room::Lent(lent), _) => self.move_into(index, slot, Store::Lent(lent)),
            (Room::Nowhere, _) => self.move_into(index, slot, Store::Nowhere),
            (Room::Own | Room::Claimed(_), _) => {}
        }
    }

    /// Lends memory for a message that is arriving and was claimed under `claim`. It comes back when it is not
    /// arriving any more.
    pub(crate) fn lend(&mut self, incoming: Incoming, claim: usize, lent: Lent) -> Result<(), Lent> {
        let assemblies =
            self.peers.get(incoming.source as usize).map_or(&[][..], |peer| &peer.receive.assemblies);
        let slot = assemblies.iter().position(|assembly| {
            let own = matches!(assembly.store, Store::Own { claim: Some(key), .. } if key == claim);
            own && assembly.message == incoming.message
        });
        match slot {
            Some(slot) => {
                self.move_into(incoming.source, slot, Store::Lent(lent));
                Ok(())
            }
            None => Err(lent),
        }
    }

    /// Moves what is there of a message out of the endpoint's memory.
    fn move_into(&mut self, index: u32, slot: usize, mut store: Store) {
        let assembly = &mut self.peers[index as usize].receive.assemblies[slot];
        let held_bytes = assembly.held_bytes();
        if let Store::Own { bytes, .. } = std::mem::replace(&mut assembly.store, Store::Nowhere) {
            store.put(0, &bytes);
            self.pool.give(bytes);
        }
        assembly.store = store;
        self.budget.leave(held_bytes);
        self.restore_credit();
    }

    /// A long message is complete.
    pub(super) fn complete(&mut self, index: u32, assembly: Assembly) {
        let held_bytes = assembly.held_bytes();
        let placer = self.channels.placer(assembly.channel);
        match (assembly.store, placer) {
            (Store::Own { bytes, claim }, placer) => {
                self.budget.complete(held_bytes);
                let payload = Payload::Owned(bytes);
                match (claim, placer) {
                    (Some(key), Some(placer)) => {
                        self.tally.messages_received += 1;
                        placer.borrow_mut().on_collected(key, payload);
                    }
                    _ => self.push(index, assembly.channel, payload),
                }
            }
            (Store::Lent(lent), Some(placer)) => {
                self.tally.messages_received += 1;
                placer.borrow_mut().on_placed(self, lent);
            }
            (Store::Lent(_), None) | (Store::Nowhere, _) => {}
        }
    }

    /// A long message will never be complete.
    pub(super) fn lose(&mut self, assembly: Assembly) {
        self.budget.leave(assembly.held_bytes());
        let placer = self.channels.placer(assembly.channel);
        let lost = match assembly.store {
            Store::Own { bytes, claim } => {
                self.pool.give(bytes);
                claim.map(Room::Claimed)
            }
            Store::Lent(lent) => Some(Room::Lent(lent)),
            Store::Nowhere => None,
        };
        if let (Some(room), Some(placer)) = (lost, placer) {
            placer.borrow_mut().on_lost(self, room);
        }
    }

    /// Copies a message that nobody takes for now out of the queue, so that it does not hold it. It stays where it is
    /// when there is no memory.
    pub(crate) fn copy_out(&mut self, payload: Payload) -> Payload {
        let Payload::InPlace { bytes, .. } = payload else { return payload };
        let Some(mut copy) = self.pool.take(bytes as usize) else { return payload };
        copy.extend_from_slice(self.bytes_of(&payload));
        self.budget.charge(u64::from(bytes));
        self.release_message(payload);
        Payload::Owned(copy)
    }

    /// Counts memory that a channel's owner keeps because of what arrived, against the same limit as messages.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.budget.charge(bytes);
    }

    /// What was [charged](Core::charge) is free again.
    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.budget.discharge(bytes);
        self.restore_credit();
    }

    /// Counts something that arrived on a channel and makes no sense to its owner.
    pub(crate) fn count_violation(&self) {
        tsumugi_proto::ReceiveMemory::count(&*self.memory, Counter::Violation, 1);
    }

    /// Whether a long message is arriving, which may end however full the memory is.
    pub(crate) fn is_assembling(&self) -> bool {
        self.peers.iter().flat_map(|peer| &peer.receive.assemblies).any(|assembly| assembly.in_order > 0)
    }
}
