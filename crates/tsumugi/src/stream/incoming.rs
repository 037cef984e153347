//! A message that is being read, while it arrives.

use super::error::{ReadError, WriteError};
use super::hub::Hub;
use super::outgoing::Outgoing;
use crate::PeerId;
use crate::channel::Message;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What has arrived of a message and was not read.
pub(super) struct Inbox {
    hub: Rc<Hub>,
    source: PeerId,
    /// Bytes that were copied out of receive memory because nobody read them there.
    kept: VecDeque<u8>,
    /// The chunk that has just arrived, in receive memory, and how far it is read. It comes behind what is kept.
    fresh: Option<(Message, usize)>,
    /// How the message ends, once that has arrived.
    end: Option<Result<(), ReadError>>,
    waker: Option<Waker>,
    /// Its reader has finished.
    is_left: bool,
}

impl Inbox {
    pub(super) fn new(hub: Rc<Hub>, source: PeerId) -> Inbox {
        let kept = VecDeque::new();
        Inbox { hub, source, kept, fresh: None, end: None, waker: None, is_left: false }
    }

    /// Takes in a chunk whose bytes begin at `at`. Returns the waker of who waits for it, to be woken.
    #[must_use]
    pub(super) fn arrive(
        &mut self,
        message: Message,
        at: usize,
        end: Option<Result<(), ReadError>>,
    ) -> Option<Waker> {
        if self.is_left {
            return None;
        }
        if at < message.len() {
            self.fresh = Some((message, at));
        }
        self.end = end;
        if self.fresh.is_some() || self.end.is_some() { self.waker.take() } else { None }
    }

    /// The message ends in the middle. Returns the waker of who waits for more, to be woken.
    #[must_use]
    pub(super) fn break_off(&mut self, error: ReadError) -> Option<Waker> {
        self.end = Some(Err(error));
        self.waker.take()
    }

    /// Copies out what was not read where it lies, so that it does not hold the receive queue.
    pub(super) fn keep(&mut self) {
        if let Some((message, at)) = self.fresh.take()
            && !self.is_left
        {
            self.kept.extend(&message[at..]);
            self.hub.hold(message.len() - at);
        }
    }

    fn unread(&self) -> usize {
        self.kept.len() + self.fresh.as_ref().map_or(0, |(message, at)| message.len() - at)
    }

    /// Hands up to `bytes` to `sink`, in one or several parts; returns how many there were.
    fn take(&mut self, bytes: usize, mut sink: impl FnMut(&[u8])) -> usize {
        let from_kept = bytes.min(self.kept.len());
        if from_kept > 0 {
            let (first, second) = self.kept.as_slices();
            let from_first = from_kept.min(first.len());
            sink(&first[..from_first]);
            sink(&second[..from_kept - from_first]);
            self.kept.drain(..from_kept);
            self.hub.let_go(from_kept);
        }
        let mut taken = from_kept;
        if let Some((message, at)) = &mut self.fresh {
            let from_fresh = (bytes - taken).min(message.len() - *at);
            sink(&message[*at..*at + from_fresh]);
            *at += from_fresh;
            taken += from_fresh;
            if *at == message.len() {
                self.fresh = None;
            }
        }
        taken
    }

    fn leave(&mut self) {
        self.is_left = true;
        self.fresh = None;
        self.hub.let_go(self.kept.len());
        self.kept = VecDeque::new();
    }
}

/// A message that is being read, while it arrives. What is not read when it is dropped is thrown away.
pub struct Incoming<S> {
    inbox: Rc<RefCell<Inbox>>,
    state: Rc<RefCell<S>>,
    source: PeerId,
}

impl<S> Incoming<S> {
    pub(super) fn new(inbox: Rc<RefCell<Inbox>>, state: Rc<RefCell<S>>) -> Incoming<S> {
        let source = inbox.borrow().source;
        Incoming { inbox, state, source }
    }

    /// The peer that sends it.
    #[must_use]
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// Bytes that can be read without waiting.
    #[must_use]
    pub fn available(&self) -> usize {
        self.inbox.borrow().unread()
    }

    /// Works on the port's state.
    ///
    /// # Panics
    /// When called from within itself, with another message's `Incoming`.
    pub fn with<T>(&mut self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.state.borrow_mut())
    }

    /// Begins a message of one's own. In a handler, add to it with [`Outgoing::piece`].
    ///
    /// # Errors
    /// The peer is gone, or too many messages to it are begun.
    pub fn begin(&self, peer: PeerId, handler: &str) -> Result<Outgoing, WriteError> {
        let hub = Rc::clone(&self.inbox.borrow().hub);
        Outgoing::begin(&hub, peer, handler)
    }

    /// Reads until `buffer` is full or the message has ended; waits for what has not arrived. Returns the number of
    /// bytes, which is less than asked for only at the end.
    ///
    /// # Errors
    /// The message breaks off before the buffer is full.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        poll_fn(|context| {
            let rest = buffer.len() - filled;
            self.poll_take(context, rest, |part| {
                buffer[filled..filled + part.len()].copy_from_slice(part);
                filled += part.len();
            })
            .map_ok(|()| filled)
        })
        .await
    }

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// The message ends or breaks off before.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadError> {
        match buffer.len() - self.read(buffer).await? {
            0 => Ok(()),
            missing => Err(ReadError::Ended { missing }),
        }
    }

    /// Reads what there is, but waits until there is something. Returns the number of bytes; 0 when the message has
    /// ended, or the buffer is empty.
    ///
    /// # Errors
    /// The message breaks off, and everything before has been read.
    pub async fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        poll_fn(|context| {
            let bytes = buffer.len().min(self.available().max(1));
            let mut filled = 0;
            self.poll_take(context, bytes, |part| {
                buffer[filled..filled + part.len()].copy_from_slice(part);
                filled += part.len();
            })
            .map_ok(|()| filled)
        })
        .await
    }

    /// Passes over `bytes`. Returns how many there were: less than asked for only at the end.
    ///
    /// # Errors
    /// The message breaks off before.
    pub async fn skip(&mut self, bytes: usize) -> Result<usize, ReadError> {
        let mut skipped = 0;
        poll_fn(|context| {
            self.poll_take(context, bytes - skipped, |part| skipped += part.len()).map_ok(|()| skipped)
        })
        .await
    }

    /// Takes `bytes`, or what there is; ready when that was all of them, or the message is over.
    fn poll_take(
        &mut self,
        context: &Context<'_>,
        bytes: usize,
        sink: impl FnMut(&[u8]),
    ) -> Poll<Result<(), ReadError>> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.take(bytes, sink) == bytes {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = &inbox.end {
            return Poll::Ready(end.clone());
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl<S> Drop for Incoming<S> {
    fn drop(&mut self) {
        self.inbox.borrow_mut().leave();
    }
}
