//! Active Messages: requests that run a handler where they arrive, and replies (AM of P4: Konishi et al., *User-Space
//! Communication: A Comparative Study*, 1997).
//!
//! A request names a handler of the peer's and carries four words, and data up to a limit. The handler runs in the
//! peer's progress calls, sees the data where they lie in receive memory, and may reply: once, to the requester,
//! with no more than a [`Reply`] in its hand. The reply, or why there is none, completes the request: each exactly once.
//!
//! ```
//! use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages};
//! use tsumugi::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let there = Endpoint::open(Config::loopback())?;
//! # let here = Endpoint::open(Config::loopback())?;
//! # let peer = here.add_peer(format!("127.0.0.1:{}", there.port()))?;
//! // Where the handler is. Handlers get the state that the port was opened with.
//! let mut server = ActiveMessages::open(&there, 1, ActiveMessageOptions::default(), 0)?;
//! server.register("add", |sum: &mut u64, request, reply| {
//!     *sum += request.words[0];
//!     // A requester that is gone needs no reply.
//!     let _ = reply.send([*sum, 0, 0, 0]);
//! })?;
//!
//! // Where the requests come from.
//! let mut client = ActiveMessages::open(&here, 1, ActiveMessageOptions::default(), Vec::new())?;
//! for number in [20, 22] {
//!     client.request(peer, "add", [number, 0, 0, 0], |sums, answer| match answer {
//!         Ok(answer) => sums.push(answer.words[0]),
//!         Err(error) => eprintln!("{error}"),
//!     })?;
//! }
//! # // One thread plays both sides here.
//! while client.state().len() < 2 {
//!     server.poll()?;
//!     client.poll()?;
//! }
//! assert_eq!(client.state()[..], [20, 42]);
//! # Ok(())
//! # }
//! ```
//!
//! # Why it cannot deadlock
//!
//! - Handlers run in [`ActiveMessages::poll`] and in calls that wait, one at a time. They cannot reach their port, so
//!   they can neither wait nor send requests; request handlers can reply, and completions can do nothing.
//! - A reply never waits. A peer has at most [`ActiveMessageOptions::tokens`] requests outstanding with us, so that the
//!   room for its replies is bounded, and they are accepted beyond what the queue to the peer takes otherwise. A peer
//!   that asks without tokens is not answered (`violation` in [`crate::Endpoint::counters`]).
//! - A call that waits to send a request handles meanwhile what arrives.
//!
//! Before its first reply a peer is sent at most eight requests at once; the reply says how many it takes.
//!
//! # Segments
//!
//! [`ActiveMessages::store`] puts data into memory that the peer has registered under a name, and then runs a handler
//! that sees it there; [`ActiveMessages::get`] fetches a range of it.

mod arrive;
mod error;
mod flow_control;
mod format;
mod reply;
mod segment;

pub use error::{CallError, ReplyError, RequestError, Unanswered};
pub use reply::{Answer, Reply, Request};

use crate::config::setters;
use crate::error::{NameError, PortError, SendError};
use crate::registry::{self, Registry};
use crate::ticket::Ticket;
use crate::{Endpoint, PeerId};
use flow_control::FlowControl;
use format::{HEAD_BYTES, Head, Kind, SEGMENT_PLACE_BYTES};
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tsumugi_rail::RailError;
use tsumugi_wire::Instant;

/// Requests that everybody takes of a peer before having said so.
const TOKENS_FIRST: u16 = 8;

/// How a port is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveMessageOptions {
    /// Requests outstanding with one peer at most, ours with it and its with us. The room for replies to one peer is
    /// this, but at least 8, times the longest reply.
    pub tokens: u16,
    /// Data of one request or reply, bytes at most. To be the same on all sides.
    pub bulk_bytes: usize,
}

setters!(ActiveMessageOptions { tokens: u16, bulk_bytes: usize });

impl Default for ActiveMessageOptions {
    fn default() -> Self {
        ActiveMessageOptions { tokens: 32, bulk_bytes: 64 << 10 }
    }
}

type Handler<S> = Box<dyn FnMut(&mut S, Request<'_>, Reply<'_>)>;
type Completion<S> = Box<dyn FnOnce(&mut S, Result<Answer<'_>, Unanswered>)>;

/// A request that was sent and is not completed.
struct Outstanding<S> {
    ticket: Ticket,
    /// Tells it from others that had its place.
    sequence: u32,
    /// The handler's name, or the segment's for a get.
    handler: &'static str,
    /// The segment's name.
    segment: &'static str,
    then: Completion<S>,
}

/// Active messages over one channel, with the state that handlers and completions work on.
pub struct ActiveMessages<S> {
    flow_control: FlowControl,
    state: S,
    handlers: Registry<Handler<S>>,
    segments: Registry<Vec<u8>>,
    requests: Slab<Outstanding<S>>,
    sequence: u32,
}

impl<S> ActiveMessages<S> {
    /// Opens a channel for active messages. Handlers and segments are best registered before the next call that
    /// makes progress.
    ///
    /// # Errors
    /// The channel is taken, or the options ask for what the endpoint does not do.
    pub fn open(
        endpoint: &Endpoint,
        channel: u16,
        options: ActiveMessageOptions,
        state: S,
    ) -> Result<ActiveMessages<S>, PortError> {
        if options.tokens == 0 {
            return Err(PortError::Zero("tokens"));
        }
        let needed = (HEAD_BYTES + SEGMENT_PLACE_BYTES) as u64 + options.bulk_bytes as u64;
        let limit = endpoint.shared.inner.borrow().core.message_bytes_max();
        if needed > limit {
            return Err(PortError::MessageBytes { needed, limit });
        }
        let flow_control = FlowControl::new(endpoint.channel(channel)?.hear_closes(), options);
        // Answers to the port that had the channel before, in this process or another, should not be taken for
        // answers to this one's requests.
        let sequence = endpoint.shared.inner.borrow_mut().core.random_number();
        Ok(ActiveMessages {
            flow_control,
            state,
            handlers: Registry::default(),
            segments: Registry::default(),
            requests: Slab::new(),
            sequence,
        })
    }

    /// Registers a handler of requests under a name.
    ///
    /// # Errors
    /// The name is taken, or looks like another on the wire.
    pub fn register(
        &mut self,
        name: &str,
        handler: impl FnMut(&mut S, Request<'_>, Reply<'_>) + 'static,
    ) -> Result<(), NameError> {
        self.handlers.register(name, Box::new(handler))
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Number of requests to all peers that are not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Whether a request with so many bytes of data would be accepted now.
    ///
    /// # Errors
    /// Says why not.
    pub fn may_request(&self, peer: PeerId, data_bytes: usize) -> Result<(), RequestError> {
        self.flow_control.may_request(peer, data_bytes)
    }

    /// Sends a request of four words. `then` runs in a later call that makes progress, exactly once, with the reply or
    /// with the reason why there is none; not at all when the port is dropped before.
    ///
    /// Waits for a token while none is left, and handles meanwhile what arrives.
    ///
    /// # Errors
    /// It cannot be sent; `then` will not run.
    pub fn request(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        self.request_bulk(peer, handler, words, &[], then)
    }

    /// As [`ActiveMessages::request`], with data.
    ///
    /// # Errors
    /// As [`ActiveMessages::request`]; more data than [`ActiveMessageOptions::bulk_bytes`].
    pub fn request_bulk(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        data: &[u8],
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        self.wait_for_room(None, peer, data.len())?;
        self.try_request_bulk(peer, handler, words, data, then)
    }

    /// As [`ActiveMessages::request`], without waiting and without running anything.
    ///
    /// # Errors
    /// As [`ActiveMessages::request`]; [`RequestError::WouldBlock`] when there is no token or no room. To know that
    /// before `then` is given away, ask [`ActiveMessages::may_request`].
    pub fn try_request(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        self.try_request_bulk(peer, handler, words, &[], then)
    }

    /// As [`ActiveMessages::try_request`], with data.
    ///
    /// # Errors
    /// As [`ActiveMessages::try_request`]; more data than [`ActiveMessageOptions::bulk_bytes`].
    pub fn try_request_bulk(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        data: &[u8],
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        self.follow();
        self.flow_control.may_request(peer, data.len())?;
        let asked = Asked {
            kind: Kind::Request,
            handler,
            segment: "",
            hash: registry::hash(handler),
            words,
            place: &[],
        };
        self.ask(peer, asked, data, Box::new(then))
    }

    /// Sends a request with data and waits for the reply, handling meanwhile what arrives; returns the reply's words
    /// and data.
    ///
    /// It waits as long as the peer is there, though that be stopped and never answer; [`ActiveMessages::call_timeout`]
    /// waits no longer than it is told.
    ///
    /// # Errors
    /// It was not sent, or there is no reply.
    pub fn call(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        data: &[u8],
    ) -> Result<([u64; 4], Vec<u8>), CallError> {
        self.call_by(None, peer, handler, words, data)
    }

    /// As [`ActiveMessages::call`], but waits no longer than `timeout`: the peer may be there, and not answer.
    ///
    /// # Errors
    /// As [`ActiveMessages::call`]; [`CallError::TimedOut`] when the time is over. The request may have been handled or not,
    /// and may be yet. What is answered later is dropped; until then the request keeps its token, and so a peer that has
    /// stopped cannot be asked more and more.
    pub fn call_timeout(
        &mut self,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        data: &[u8],
        timeout: Duration,
    ) -> Result<([u64; 4], Vec<u8>), CallError> {
        self.call_by(Some(timeout), peer, handler, words, data)
    }

    fn call_by(
        &mut self,
        timeout: Option<Duration>,
        peer: PeerId,
        handler: &'static str,
        words: [u64; 4],
        data: &[u8],
    ) -> Result<([u64; 4], Vec<u8>), CallError> {
        let deadline = timeout.and_then(|timeout| self.flow_control.channel.shared.deadline(timeout));
        let timed_out = || CallError::TimedOut { peer, timeout: timeout.unwrap_or(Duration::MAX) };
        if !self.wait_for_room(deadline, peer, data.len())? {
            return Err(timed_out());
        }
        let outcome = Rc::new(RefCell::new(None));
        let place = Rc::clone(&outcome);
        self.try_request_bulk(peer, handler, words, data, move |_, answer| {
            *place.borrow_mut() = Some(answer.map(|answer| (answer.words, answer.data.to_vec())));
        })?;
        while outcome.borrow().is_none() {
            if !self.handle_next(deadline).map_err(RequestError::from)? && outcome.borrow().is_none() {
                return Err(timed_out());
            }
        }
        let outcome = outcome.borrow_mut().take();
        Ok(outcome.unwrap_or(Err(Unanswered::Nonsense(peer)))?)
    }

    /// Takes in what has arrived and runs the handlers and completions that it is for, without waiting. Returns how
    /// many messages there were.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn poll(&mut self) -> Result<usize, RailError> {
        self.flow_control.channel.shared.progress()?;
        self.handle_arrived()
    }

    /// As [`ActiveMessages::poll`], but waits until there is a message, no longer than `timeout`: then it returns 0.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn poll_timeout(&mut self, timeout: Duration) -> Result<usize, RailError> {
        match self.poll()? {
            0 => {
                let deadline = self.flow_control.channel.shared.deadline(timeout);
                self.wait_for_arrival(deadline)?;
                self.handle_arrived()
            }
            handled => Ok(handled),
        }
    }

    /// Handles what arrives until every request is completed.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn finish(&mut self) -> Result<(), RailError> {
        while !self.requests.is_empty() {
            self.handle_next(None)?;
        }
        Ok(())
    }

    /// Waits until something has arrived, and handles it. `false`: nothing has until the deadline.
    fn handle_next(&mut self, deadline: Option<Instant>) -> Result<bool, RailError> {
        let arrived = self.wait_for_arrival(deadline)?;
        self.handle_arrived()?;
        // What always arrives must not keep a caller whose answer does not.
        let is_over = deadline.is_some_and(|deadline| self.flow_control.channel.shared.now() >= deadline);
        Ok(arrived && !is_over)
    }

    /// Whether something has arrived until the deadline.
    fn wait_for_arrival(&self, deadline: Option<Instant>) -> Result<bool, RailError> {
        let channel = self.flow_control.channel.number();
        let shared = &self.flow_control.channel.shared;
        Ok(shared.wait_until(deadline, |core| core.has_arrived(channel).then_some(()))?.is_some())
    }

    /// Waits until a request would be accepted. `false`: it would not be until the deadline.
    fn wait_for_room(
        &mut self,
        deadline: Option<Instant>,
        peer: PeerId,
        data_bytes: usize,
    ) -> Result<bool, RequestError> {
        self.follow();
        loop {
            match self.flow_control.may_request(peer, data_bytes) {
                Err(RequestError::WouldBlock) => {}
                other => return other.map(|()| true),
            }
            if deadline.is_some_and(|deadline| self.flow_control.channel.shared.now() >= deadline) {
                return Ok(false);
            }
            let (channel, has_token) =
                (self.flow_control.channel.number(), self.flow_control.has_token(peer));
            let bytes = (HEAD_BYTES + SEGMENT_PLACE_BYTES + data_bytes) as u64;
            self.flow_control.channel.shared.wait_until(deadline, |state| {
                let has_room = || !matches!(state.may_post(peer, bytes), Err(SendError::WouldBlock));
                (state.has_arrived(channel) || has_token && has_room()).then_some(())
            })?;
            self.handle_arrived()?;
        }
    }

    /// Sends what may be sent.
    fn ask(
        &mut self,
        peer: PeerId,
        asked: Asked<'_>,
        data: &[u8],
        then: Completion<S>,
    ) -> Result<(), RequestError> {
        let Asked { kind, handler, segment, hash, words, place } = asked;
        let entry = self.requests.vacant_entry();
        let number = u64::from(self.sequence) << 32 | entry.key() as u64;
        let head = Head { kind, code: 0, grant: 0, number, handler: hash, words };
        let ticket = self.flow_control.request(peer, &head, [place, data])?;
        entry.insert(Outstanding { ticket, sequence: self.sequence, handler, segment, then });
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}

/// What is asked of a peer.
struct Asked<'a> {
    kind: Kind,
    handler: &'static str,
    segment: &'static str,
    hash: u64,
    words: [u64; 4],
    place: &'a [u8],
}

impl<S> Drop for ActiveMessages<S> {
    fn drop(&mut self) {
        for (_, outstanding) in &self.requests {
            self.flow_control.over(outstanding.ticket);
        }
    }
}
