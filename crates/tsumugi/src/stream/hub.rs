//! What a port, its handlers and the messages that they send have in common.

use super::UNFINISHED_MAX;
use super::error::WriteError;
use super::format::{Chunk, End, HEAD_BYTES};
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::core::identity::Merge;
use crate::endpoint::shared::Shared;
use crate::error::SendError;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::task::Waker;

/// Somebody waits until a chunk of a message, of so many bytes, can be sent to a peer.
struct Want {
    peer: PeerId,
    message: u32,
    bytes: u64,
    waker: Waker,
}

/// A connection: the peer, and the number of the connection with it.
type Connection = (PeerId, u32);

pub(super) struct Hub {
    pub(super) shared: Rc<Shared>,
    pub(super) channel: u16,
    /// The port is gone.
    pub(super) closed: Cell<bool>,
    /// Bytes that wait for handlers to read them, and what handlers that have all of their message take up.
    pub(super) held_bytes: Cell<u64>,
    pub(super) held_bytes_max: u64,
    wants: RefCell<Vec<Want>>,
    /// How many messages to each peer are begun and not over.
    begun: RefCell<HashMap<PeerId, usize>>,
    /// Those of them whose head has left, by number, and with whom.
    open: RefCell<BTreeMap<u32, Connection>>,
    /// How many merges of peers `begun` has followed.
    followed: Cell<usize>,
    next_message: Cell<u32>,
}

impl Hub {
    pub(super) fn new(shared: Rc<Shared>, channel: u16, held_bytes_max: u64) -> Hub {
        // A number that a peer may still have an unfinished message under should not be used again.
        let next_message = shared.inner.borrow_mut().core.random_number();
        Hub {
            shared,
            channel,
            closed: Cell::new(false),
            held_bytes: Cell::new(0),
            held_bytes_max,
            wants: RefCell::default(),
            begun: RefCell::default(),
            open: RefCell::default(),
            followed: Cell::new(0),
            next_message: Cell::new(next_message),
        }
    }

    pub(super) fn hold(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() + bytes as u64);
    }

    pub(super) fn let_go(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get().saturating_sub(bytes as u64));
    }

    /// Whether nothing more may be taken in until handlers have read.
    pub(super) fn is_full(&self) -> bool {
        self.held_bytes.get() >= self.held_bytes_max
    }

    /// Has a message begin: the connection that it belongs to, and its number.
    pub(super) fn begin(&self, peer: PeerId) -> Result<(u32, u32), WriteError> {
        if self.closed.get() {
            return Err(WriteError::Closed);
        }
        let inner = self.shared.inner.borrow();
        match inner.core.may_post(peer, 0) {
            Ok(()) | Err(SendError::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
        let connection = inner.core.connection(peer);
        let canonical = inner.core.canonical(peer);
        self.follow(&inner.core);
        drop(inner);
        let mut begun = self.begun.borrow_mut();
        let count = begun.entry(canonical).or_default();
        if *count >= UNFINISHED_MAX {
            return Err(WriteError::Unfinished { peer, limit: UNFINISHED_MAX });
        }
        *count += 1;
        let message = self.next_message.get();
        self.next_message.set(message.wrapping_add(1));
        Ok((connection, message))
    }

    /// Counts the messages to peers that turned out to be one together.
    fn follow(&self, core: &Core) {
        let merges = core.merges();
        let mut begun = self.begun.borrow_mut();
        for Merge { from, into } in merges.get(self.followed.replace(merges.len())..).unwrap_or_default() {
            if let Some(count) = begun.remove(from) {
                *begun.entry(*into).or_default() += count;
            }
        }
    }

    /// A message's head has left.
    pub(super) fn opened(&self, message: u32, connection: Connection) {
        self.open.borrow_mut().insert(message, connection);
    }

    /// All of a message has left.
    pub(super) fn ended(&self, message: u32) {
        self.open.borrow_mut().remove(&message);
    }

    /// Nobody will add to a message any more. If its reader waits for more, it is told.
    pub(super) fn over(&self, peer: PeerId, message: u32) {
        let inner = self.shared.inner.borrow();
        self.follow(&inner.core);
        if let Some(count) = self.begun.borrow_mut().get_mut(&inner.core.canonical(peer)) {
            *count = count.saturating_sub(1);
        }
        drop(inner);
        self.wants.borrow_mut().retain(|want| want.message != message);
        let connection = self.open.borrow_mut().remove(&message);
        if let Some(connection) = connection {
            self.give_up(message, connection);
        }
    }

    /// The port is gone, and with it the messages that it had begun. Who waits to add to them is told.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.wants.take().into_iter().for_each(|want| want.waker.wake());
        for (message, connection) in self.open.take() {
            self.give_up(message, connection);
        }
    }

    /// Tells the reader of a message that nothing more will come. One small message for each that was begun, so there
    /// is always room for it.
    fn give_up(&self, message: u32, (peer, connection): Connection) {
        let mut bytes = [0; HEAD_BYTES];
        let chunk = Chunk { message, handler: None, end: Some(End::Broken) };
        chunk.encode(&mut bytes);
        let now = self.shared.now();
        let core = &mut self.shared.inner.borrow_mut().core;
        if core.is_connection(peer, connection) {
            // A peer that cannot be told need not know.
            let _ = core.post_reserved(now, peer, self.channel, [&bytes[..chunk.bytes()], &[]]);
        }
    }

    /// Wakes `waker` once there may be room for a message's next chunk.
    pub(super) fn want(&self, peer: PeerId, message: u32, bytes: u64, waker: &Waker) {
        let mut wants = self.wants.borrow_mut();
        match wants.iter_mut().find(|want| want.message == message) {
            Some(want) => {
                want.bytes = bytes;
                want.waker.clone_from(waker);
            }
            None => wants.push(Want { peer, message, bytes, waker: waker.clone() }),
        }
    }

    /// Whether somebody's waiting for room is over.
    pub(super) fn has_room(&self, core: &Core) -> bool {
        self.wants.borrow().iter().any(|want| want.is_met(core))
    }

    /// Whether somebody waits for room.
    pub(super) fn wants_room(&self) -> bool {
        !self.wants.borrow().is_empty()
    }

    /// Wakes those whose waiting for room is over.
    pub(super) fn wake(&self) {
        if !self.wants_room() {
            return;
        }
        let inner = self.shared.inner.borrow();
        let mut woken = Vec::new();
        self.wants.borrow_mut().retain(|want| {
            let is_met = want.is_met(&inner.core);
            if is_met {
                woken.push(want.waker.clone());
            }
            !is_met
        });
        drop(inner);
        // A waker may do anything.
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Want {
    fn is_met(&self, core: &Core) -> bool {
        !matches!(core.may_post(self.peer, self.bytes), Err(SendError::WouldBlock))
    }
}
