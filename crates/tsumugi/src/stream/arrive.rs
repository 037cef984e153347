//! What arrives: heads start handlers, chunks go on with them.

use super::error::ReadError;
use super::format::{Chunk, End};
use super::incoming::{Inbox, Incoming};
use super::task::{Polled, TaskId};
use super::{Streams, UNFINISHED_MAX};
use crate::PeerId;
use crate::channel::Message;
use crate::endpoint::core::identity::Merge;
use crate::error::{Failure, ReceiveError};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::defect;
use tsumugi_wire::memory::Counter;

/// What a handler counts for that has all of its message and does not finish, bytes.
const HELD_BYTES: usize = 1024;

/// A message whose end has not arrived.
pub(super) struct Arriving {
    /// Its handler and what that reads from; `None` when nobody wants the rest.
    reader: Option<(TaskId, Rc<RefCell<Inbox>>)>,
    /// Of whom, and in which connection, the rest is awaited.
    expects: (PeerId, u32),
}

impl<S: 'static> Streams<S> {
    /// Takes in messages of the channel until there are none, or `limit` bytes were taken, or handlers leave too much
    /// unread. Returns the bytes.
    pub(super) fn take_in(&mut self, limit: u64) -> u64 {
        self.follow();
        let mut taken = 0;
        while taken < limit && !self.hub.is_full() {
            match self.channel.take() {
                Some(Ok(message)) => taken += self.on_message(message),
                Some(Err(ReceiveError::Peer(failure))) => self.on_failure(&failure),
                Some(Err(_)) => {}
                None => break,
            }
        }
        taken
    }

    /// Has what is arriving be known by the number that its peer goes by.
    fn follow(&mut self) {
        let inner = self.channel.shared.inner.borrow();
        let merges = inner.core.merges();
        for Merge { from, into } in merges.get(self.followed..).unwrap_or_default() {
            for (name, arriving) in self.arriving.extract_if(|name, _| name.0 == *from).collect::<Vec<_>>() {
                self.arriving.insert((*into, name.1), arriving);
            }
            if let Some(count) = self.unfinished.remove(from) {
                *self.unfinished.entry(*into).or_default() += count;
            }
        }
        self.followed = merges.len();
    }

    /// Polls the tasks that were woken.
    pub(super) fn poll_woken(&mut self) {
        if self.tasks.has_woken() {
            for key in self.tasks.take_woken() {
                let polled = self.tasks.poll_key(key);
                self.after_poll(polled);
            }
        }
    }

    pub(super) fn poll_task(&mut self, id: TaskId) {
        let polled = self.tasks.poll(id);
        self.after_poll(polled);
    }

    /// What a reader waited for is there. `id` is the message's handler.
    fn wake(&mut self, id: TaskId, reader: Option<Waker>) {
        let Some(waker) = reader else { return };
        if !self.tasks.is_waker_of(id, &waker) {
            // A future within the handler that has a waker of its own, or a reader that is no handler.
            waker.wake();
            return self.poll_woken();
        }
        self.poll_task(id);
    }

    fn after_poll(&self, polled: Polled) {
        if polled == Polled::HeldFinished {
            self.hub.let_go(HELD_BYTES);
        }
    }

    /// Takes in a chunk; returns how many bytes of a message it brought.
    fn on_message(&mut self, message: Message) -> u64 {
        let Some(chunk) = Chunk::decode(&message) else {
            self.violated();
            return 0;
        };
        let bytes = (message.len() - chunk.bytes()) as u64;
        let name = (message.source(), chunk.message);
        match chunk.handler {
            Some(handler) => self.on_head(name, handler, message, chunk),
            None => self.on_rest(name, message, chunk),
        }
        bytes
    }

    fn on_head(&mut self, name: (PeerId, u32), handler: u64, message: Message, chunk: Chunk) {
        let source = name.0;
        let unfinished = self.unfinished.get(&source).copied().unwrap_or(0);
        if self.arriving.contains_key(&name) || unfinished >= UNFINISHED_MAX {
            self.violated();
            return;
        }
        self.tally.messages += 1;
        let reader = match self.handlers.get(handler) {
            None => {
                self.tally.unknown += 1;
                None
            }
            Some(handler) => {
                let inbox = Rc::new(RefCell::new(Inbox::new(Rc::clone(&self.hub), source)));
                let incoming = Incoming::new(Rc::clone(&inbox), Rc::clone(&self.state));
                let future = handler(incoming);
                Some((self.tasks.add(future), inbox))
            }
        };
        if let Some((id, inbox)) = &reader {
            let waker = inbox.borrow_mut().arrive(message, chunk.bytes(), self.ending(source, chunk.end));
            waker.into_iter().for_each(Waker::wake);
            self.poll_task(*id);
            inbox.borrow_mut().keep();
        }
        if chunk.end.is_some() {
            self.on_end(reader);
            return;
        }
        let now = self.channel.shared.now();
        let core = &mut self.channel.shared.inner.borrow_mut().core;
        let expects = (source, core.connection(source));
        core.expect(now, source);
        self.arriving.insert(name, Arriving { reader, expects });
        *self.unfinished.entry(source).or_default() += 1;
    }

    fn on_rest(&mut self, name: (PeerId, u32), message: Message, chunk: Chunk) {
        let Some(reader) = self.arriving.get(&name).map(|arriving| arriving.reader.clone()) else {
            self.violated();
            return;
        };
        let end = self.ending(name.0, chunk.end);
        if let Some((id, inbox)) = reader {
            let waker = inbox.borrow_mut().arrive(message, chunk.bytes(), end);
            self.wake(id, waker.filter(|_| !defect!(ReaderNotWoken)));
            inbox.borrow_mut().keep();
        }
        if chunk.end.is_some()
            && let Some(arriving) = self.arriving.remove(&name)
        {
            self.await_no_more(name.0, arriving.expects);
            self.on_end(arriving.reader);
        }
    }

    /// How the reader learns of a chunk's being the last.
    fn ending(&mut self, source: PeerId, end: Option<End>) -> Option<Result<(), ReadError>> {
        end.map(|end| match end {
            End::Whole => Ok(()),
            End::Broken => {
                self.tally.broken += 1;
                Err(ReadError::Broken(source))
            }
        })
    }

    /// All of a message has arrived. A handler that waits for something else takes up memory, which is counted: there
    /// could be any number of them.
    fn on_end(&mut self, reader: Option<(TaskId, Rc<RefCell<Inbox>>)>) {
        if let Some((id, _)) = reader
            && self.tasks.hold(id)
        {
            self.hub.hold(HELD_BYTES);
        }
    }

    /// Every message of a peer that is gone breaks off.
    fn on_failure(&mut self, failure: &Failure) {
        let mut names: Vec<_> = self.arriving.keys().filter(|name| name.0 == failure.peer).copied().collect();
        names.sort_unstable();
        for name in names {
            let Some(Arriving { reader, expects }) = self.arriving.remove(&name) else { continue };
            self.await_no_more(name.0, expects);
            self.tally.broken += 1;
            if let Some((id, inbox)) = &reader {
                let waker = inbox.borrow_mut().break_off(ReadError::Peer(Box::new(failure.clone())));
                self.wake(*id, waker);
            }
            self.on_end(reader);
        }
    }

    fn await_no_more(&mut self, source: PeerId, (peer, connection): (PeerId, u32)) {
        self.channel.shared.inner.borrow_mut().core.expect_no_more(peer, connection);
        if let Some(count) = self.unfinished.get_mut(&source) {
            *count = count.saturating_sub(1);
        }
    }

    /// Counts something that no peer that keeps to the protocol sends.
    fn violated(&self) {
        self.channel.shared.memory.count(Counter::Violation, 1);
    }
}

impl<S> Drop for Streams<S> {
    fn drop(&mut self) {
        self.hub.close();
        for (_, Arriving { reader, expects: (peer, connection) }) in self.arriving.drain() {
            self.channel.shared.inner.borrow_mut().core.expect_no_more(peer, connection);
            if let Some((_, inbox)) = reader {
                let waker = inbox.borrow_mut().break_off(ReadError::Closed);
                // Who reads it elsewhere, for the port's own tasks go with it.
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }
}
