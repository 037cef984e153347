//! Streams: messages that are sent in pieces of any size and read in pieces of any size, while they arrive (Fast Messages
//! 2.0 of P4: Konishi et al., *User-Space Communication: A Comparative Study*, 1997).
//!
//! A message names a handler of the peer's. The handler starts when the message's head has arrived and reads the rest
//! as it comes: it is an `async` function, which waits inside where it needs bytes that are not there yet, and goes on
//! in a later call that makes progress. Any number of messages may be under way at once, between the same two
//! peers too. How long a message becomes need not be known when it is begun.
//!
//! ```
//! use tsumugi::stream::{Incoming, ReadError, StreamOptions, Streams};
//! use tsumugi::{Config, Endpoint};
//!
//! /// Adds up numbers, of which there may be any number.
//! async fn add(mut incoming: Incoming<u64>) {
//!     let mut number = [0; 8];
//!     while let Ok(()) = incoming.read_exact(&mut number).await {
//!         incoming.with(|sum| *sum += u64::from_le_bytes(number));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let there = Endpoint::open(Config::loopback())?;
//! # let here = Endpoint::open(Config::loopback())?;
//! # let peer = here.add_peer(format!("127.0.0.1:{}", there.port()))?;
//! let mut receiver = Streams::open(&there, 1, StreamOptions::default(), 0)?;
//! receiver.register("add", add)?;
//!
//! let mut sender = Streams::open(&here, 1, StreamOptions::default(), ())?;
//! let mut message = sender.begin(peer, "add")?;
//! for number in [20u64, 22] {
//!     sender.piece(&mut message, &number.to_le_bytes())?;
//! }
//! sender.end(message)?;
//! # // One thread plays both sides here.
//! while receiver.with(|sum| *sum) < 42 {
//!     sender.poll()?;
//!     receiver.poll()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! Bytes are read where they arrived. What a handler does not read at once is copied out, so that it does not hold the
//! receive queue, and counted: when it is [`StreamOptions::buffered_bytes`], the port takes in no more until handlers
//! have read. Then the endpoint's receive memory fills up and stops the senders, those on other channels too.
//! [`Streams::extract`] says how much is taken in at a time, as FM's does.
//!
//! # Waiting
//!
//! A call that waits ([`Streams::piece`], [`Streams::end`], [`Streams::run`]) lets handlers go on meanwhile, so that
//! two that send to each other do not wait for each other. In a handler nothing may wait but with `await`; there,
//! [`Outgoing::piece`] waits for room. Handlers may await whatever else they like; what wakes them from another thread
//! is noticed with the port's next progress.

mod arrive;
mod error;
mod format;
mod hub;
mod incoming;
mod outgoing;
mod task;

pub use error::{ReadError, WaitError, WriteError};
pub use incoming::Incoming;
pub use outgoing::Outgoing;

use crate::channel::Channel;
use crate::config::setters;
use crate::error::{NameError, PortError};
use crate::registry::Registry;
use crate::ticket::Ticket;
use crate::{Endpoint, PeerId};
use arrive::Arriving;
use hub::Hub;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use task::Tasks;
use tsumugi_rail::RailError;
use tsumugi_wire::Instant;

/// Messages from one peer to another that may be begun and not ended. More a port does not begin, and not take.
pub const UNFINISHED_MAX: usize = 1024;

/// How a port is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Bytes that may wait for handlers to read them before the port takes in no more. May be exceeded by what one
    /// message of the channel brings.
    pub buffered_bytes: u64,
}

setters!(StreamOptions { buffered_bytes: u64 });

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions { buffered_bytes: 4 << 20 }
    }
}

/// What a port has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Messages whose head has arrived.
    pub messages: u64,
    /// Of these, messages for a handler that is not registered here, which were thrown away.
    pub unknown: u64,
    /// Messages that broke off in the middle: their sender gave them up, or is gone.
    pub broken: u64,
}

type Handler<S> = Box<dyn Fn(Incoming<S>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Streams over one channel, with the state that handlers work on.
pub struct Streams<S> {
    hub: Rc<Hub>,
    channel: Channel,
    state: Rc<RefCell<S>>,
    handlers: Registry<Handler<S>>,
    arriving: HashMap<(PeerId, u32), Arriving>,
    /// How many of each peer's messages are arriving.
    unfinished: HashMap<PeerId, usize>,
    /// How many merges of peers both have followed.
    followed: usize,
    tasks: Tasks,
    tally: Tally,
}

impl<S: 'static> Streams<S> {
    /// Opens a channel for streams. Handlers are best registered before the next call that makes progress.
    ///
    /// # Errors
    /// The channel is taken, or the options make no sense.
    pub fn open(
        endpoint: &Endpoint,
        channel: u16,
        options: StreamOptions,
        state: S,
    ) -> Result<Streams<S>, PortError> {
        if options.buffered_bytes == 0 {
            return Err(PortError::Zero("buffered_bytes"));
        }
        let (needed, limit) =
            (format::HEAD_BYTES as u64 + 1, endpoint.shared.inner.borrow().core.message_bytes_max());
        if needed > limit {
            return Err(PortError::MessageBytes { needed, limit });
        }
        let hub = Hub::new(Rc::clone(&endpoint.shared), channel, options.buffered_bytes);
        Ok(Streams {
            channel: endpoint.channel(channel)?.hear_closes(),
            hub: Rc::new(hub),
            state: Rc::new(RefCell::new(state)),
            handlers: Registry::default(),
            arriving: HashMap::new(),
            unfinished: HashMap::new(),
            followed: 0,
            tasks: Tasks::default(),
            tally: Tally::default(),
        })
    }

    /// Registers a handler of messages under a name.
    ///
    /// # Errors
    /// The name is taken, or looks like another on the wire.
    pub fn register<F>(
        &mut self,
        name: &str,
        handler: impl Fn(Incoming<S>) -> F + 'static,
    ) -> Result<(), NameError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.handlers.register(name, Box::new(move |incoming| Box::pin(handler(incoming))))
    }

    /// Works on the state.
    pub fn with<T>(&mut self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.state.borrow_mut())
    }

    /// What the port has counted.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Handlers, and other tasks, that have not finished.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Bytes that wait for handlers to read them, and what handlers take up that have all of their message.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.hub.held_bytes.get()
    }

    /// Begins a message for a handler of a peer's. Its head leaves with the first chunk that is full, or with the end.
    ///
    /// # Errors
    /// The peer is gone, or too many messages to it are begun.
    pub fn begin(&self, peer: PeerId, handler: &str) -> Result<Outgoing, WriteError> {
        Outgoing::begin(&self.hub, peer, handler)
    }

    /// Adds a piece to a message; waits for room where there is none.
    ///
    /// # Errors
    /// The peer is gone, or waiting is of no use.
    pub fn piece(&mut self, message: &mut Outgoing, data: &[u8]) -> Result<(), WriteError> {
        let taken = message.try_piece(data)?;
        if taken == data.len() { Ok(()) } else { self.run(message.piece(&data[taken..]))? }
    }

    /// Ends a message; waits for room where there is none. The ticket tells when all of it has arrived.
    ///
    /// # Errors
    /// As [`Streams::piece`].
    pub fn end(&mut self, message: Outgoing) -> Result<Ticket, WriteError> {
        self.run(message.end())?
    }

    /// Runs a future beside the handlers from now on.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let id = self.tasks.add(Box::pin(future));
        self.poll_task(id);
    }

    /// Takes in about `limit` bytes of messages of what has arrived, and lets handlers go on, without waiting. Returns
    /// how many bytes were taken in.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn extract(&mut self, limit: u64) -> Result<u64, RailError> {
        self.channel.shared.progress()?;
        self.go_on(limit)
    }

    /// [`Streams::extract`] without a limit.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn poll(&mut self) -> Result<u64, RailError> {
        self.extract(u64::MAX)
    }

    /// As [`Streams::poll`], but waits until something lets a handler go on, no longer than `timeout`. It returns 0 when the
    /// time is over, or what has let a handler go on was not a message: there is room to send again, say.
    ///
    /// # Errors
    /// As [`Streams::run`].
    pub fn poll_timeout(&mut self, timeout: Duration) -> Result<u64, WaitError> {
        match self.poll()? {
            0 => {
                self.wait(self.channel.shared.deadline(timeout))?;
                Ok(self.go_on(u64::MAX)?)
            }
            taken => Ok(taken),
        }
    }

    /// Waits for a future, and lets handlers go on meanwhile.
    ///
    /// # Errors
    /// The NIC is broken, or waiting is of no use.
    pub fn run<T>(&mut self, future: impl Future<Output = T>) -> Result<T, WaitError> {
        self.run_by(None, future)
    }

    /// As [`Streams::run`], but not longer than `timeout`; then the future is dropped.
    ///
    /// # Errors
    /// As [`Streams::run`]; [`WaitError::TimedOut`] when the time is over.
    pub fn run_timeout<T>(
        &mut self,
        future: impl Future<Output = T>,
        timeout: Duration,
    ) -> Result<T, WaitError> {
        self.run_by(Some(timeout), future)
    }

    fn run_by<T>(
        &mut self,
        timeout: Option<Duration>,
        future: impl Future<Output = T>,
    ) -> Result<T, WaitError> {
        let deadline = timeout.and_then(|timeout| self.channel.shared.deadline(timeout));
        let mut future = pin!(future);
        let alarm = self.tasks.alarm_for_caller();
        let waker = Waker::from(std::sync::Arc::clone(&alarm));
        alarm.wake_by_ref();
        loop {
            if alarm.answer()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(output);
            }
            self.go_on(u64::MAX)?;
            if alarm.is_set() {
                continue;
            }
            // What always arrives must not keep a caller whose time is over.
            if let (Some(timeout), Some(deadline)) = (timeout, deadline)
                && self.channel.shared.now() >= deadline
            {
                return Err(WaitError::TimedOut(timeout));
            }
            self.wait(deadline)?;
        }
    }

    /// Does what can be done without looking for what arrives.
    fn go_on(&mut self, limit: u64) -> Result<u64, RailError> {
        let taken = self.take_in(limit);
        self.hub.wake();
        self.poll_woken();
        self.channel.shared.transmit(self.channel.shared.now())?;
        Ok(taken)
    }

    /// Waits until something can be done, or the deadline has passed.
    fn wait(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        if self.tasks.has_woken() {
            return Ok(());
        }
        let is_full = self.hub.is_full();
        if is_full && !self.hub.wants_room() {
            return Err(WaitError::Stuck { held: self.hub.held_bytes.get(), limit: self.hub.held_bytes_max });
        }
        let (hub, channel) = (&self.hub, self.channel.number());
        self.channel.shared.wait_until(deadline, |state| {
            (!is_full && state.has_arrived(channel) || hub.has_room(state)).then_some(())
        })?;
        Ok(())
    }
}
