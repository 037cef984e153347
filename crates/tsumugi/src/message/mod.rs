//! Tagged messages, sent and received by requests that are begun, tested and waited for.
//!
//! This is the model of MMP, the message library of Maestro2 (P3: Aoki et al., 2006), and what MPI is made of. A [`Port`] holds one channel of
//! an endpoint. A message has a 64-bit tag; a receive names the source and the tag that it is for, or leaves any bits of
//! them open. Sends and receives return at once with a [`Request`]; [`Port::wait`], [`Port::test`] and their likes tell
//! when it is complete, with what status, and give the buffer back.
//!
//! ```
//! use tsumugi::message::{Pattern, Port};
//! use tsumugi::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let there = Endpoint::open(Config::loopback())?;
//! let here = Endpoint::open(Config::loopback())?;
//! let peer = here.add_peer(format!("127.0.0.1:{}", there.port()))?;
//! let (from, to) = (Port::open(&here, 7)?, Port::open(&there, 7)?);
//!
//! let mut receive = to.receive(Pattern::tagged(42), vec![0; 100].into());
//! from.send(peer, 42, b"spun from plain yarn")?;
//! # // One thread plays both sides here.
//! # let completion = loop {
//! #     here.progress()?;
//! #     if let Some(completion) = to.test(&mut receive)? {
//! #         break completion;
//! #     }
//! # };
//! # /*
//! let completion = to.wait(&mut receive)?;
//! # */
//! let status = completion.outcome.clone()?;
//! assert_eq!((status.tag, status.bytes), (42, 20));
//! assert_eq!(completion.data(), b"spun from plain yarn");
//! # Ok(())
//! # }
//! ```
//!
//! # Which message goes where
//!
//! MPI's rules: messages of one source match receives in the order in which they were sent, receives are matched in the
//! order in which they were posted, wildcards included. A message longer than the buffer fills it, and the receive
//! completes with [`RequestError::Truncated`].
//!
//! # How a message travels
//!
//! | [`Protocol`] | what is sent | at the receiver |
//! |---|---|---|
//! | eager | the data, at once | collected, matched when it is whole, copied into the receive's buffer |
//! | rendezvous | an offer; the data when a receive wants them | straight into the receive's buffer |
//! | active zero-copy | the data, at once | matched when its head is there; everything from then on goes from the wire straight into the receive's buffer |
//!
//! Active zero-copy is P3's: the receiver looks for a buffer when the message arrives, so that there is neither a handshake
//! nor a copy. Whatever comes at once and finds no receive is kept in the endpoint's memory, within
//! [`Config::receive_bytes`](crate::Config::receive_bytes), and copied when it is received. When that is full, senders wait
//! until something is received, and nothing fails; a process that waits meanwhile for a message that is behind those waits,
//! too, and one line in its log says so. A message that fits one packet is copied once, out of the receive queue, however it is sent.
//!
//! # When a request is complete
//!
//! A receive: when the data are in its buffer. A send: when the library needs nothing more of the caller, which is at once
//! unless it was offered, and then when the receiver has said that it wants it and the data are accepted. The completion's
//! [`Ticket`](crate::Ticket) tells whether they have arrived. [`Protocol::Rendezvous`] with [`MessageOptions::eager_bytes`] of 0 makes
//! sends synchronous in MPI's sense: they are complete when a receive has matched them.
//!
//! # When a peer is gone
//!
//! Receives from it, and sends that it had not accepted, fail with [`RequestError::Peer`]. A receive from anybody stays:
//! another peer's message may still match it, and failing it would lose that (MPI, too, lets it be; ULFM calls it
//! pending). [`Port::take_failure`] tells of the peer. What had arrived whole can still be received.
//!
//! A receive from one peer counts as something outstanding with it: its death is noticed, at once if its process has ended,
//! and within [`Config::peer_timeout`](crate::Config::peer_timeout) if its host is silent. A peer that computes without a call is
//! not dead, because its kernel says that it is there; where a firewall hides that, set
//! [`MessageOptions::watch_sources`] to `false`.

mod arrivals;
mod departures;
mod entry;
mod handle;
mod header;
mod many;
pub(crate) mod matching;
mod merging;
mod parcel;
mod port_state;
mod queues;
mod receiving;
mod request;
mod sending;
mod table;
mod waiting;

pub use crate::buffer::Buffer;
pub use handle::{Listed, Request};
pub use receiving::Claim;
pub use request::{Completion, Envelope, Pattern, RequestError, Status, WaitError};
pub use sending::MessageBuffer;

use crate::Failure;
use crate::config::setters;
use crate::endpoint::Endpoint;
use crate::endpoint::core::Core;
use crate::endpoint::shared::Shared;
use crate::error::ChannelError;
use handle::{Hold, Inner};
use header::HEADER_BYTES_MAX;
use port_state::PortState;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// How data travel; see [the module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Active zero-copy up to [`MessageOptions::offer_bytes`], rendezvous above.
    #[default]
    Auto,
    /// Always eager.
    Eager,
    /// Eager up to [`MessageOptions::eager_bytes`], rendezvous above.
    Rendezvous,
    /// Always active zero-copy.
    ActiveZeroCopy,
}

/// What a port is opened with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageOptions {
    /// How data travel.
    pub protocol: Protocol,
    /// Longest message that [`Protocol::Rendezvous`] sends at once, bytes.
    pub eager_bytes: usize,
    /// Longest message that [`Protocol::Auto`] sends at once, bytes. Longer ones do not fill the memory of a receiver
    /// that does not want them yet; from 1 MiB on the handshake could not be told from noise (`examples/azc.rs`).
    pub offer_bytes: usize,
    /// Whether a receive from one peer counts as something outstanding with it; see [the module](self).
    pub watch_sources: bool,
}

setters!(MessageOptions { protocol: Protocol, eager_bytes: usize, offer_bytes: usize, watch_sources: bool });

impl Default for MessageOptions {
    fn default() -> Self {
        MessageOptions {
            protocol: Protocol::Auto,
            eager_bytes: 8 << 10,
            offer_bytes: 1 << 20,
            watch_sources: true,
        }
    }
}

/// An endpoint's hold on one channel that carries tagged messages. Exclusive; both sides of a channel must use it like
/// this.
///
/// Dropped, it gives up every request and every message that was not received.
pub struct Port {
    shared: Rc<Shared>,
    state: Rc<RefCell<PortState>>,
    number: u16,
    options: MessageOptions,
    detached: bool,
}

impl Port {
    /// Opens a channel for tagged messages, exclusively.
    ///
    /// # Errors
    /// It is open already.
    pub fn open(endpoint: &Endpoint, number: u16) -> Result<Port, ChannelError> {
        Port::open_with(endpoint, number, MessageOptions::default())
    }

    /// As [`Port::open`], with other options than the default.
    ///
    /// # Errors
    /// It is open already.
    pub fn open_with(
        endpoint: &Endpoint,
        number: u16,
        options: MessageOptions,
    ) -> Result<Port, ChannelError> {
        let shared = Rc::clone(&endpoint.shared);
        let port = Rc::new(RefCell::new(PortState::new(number, options.watch_sources)));
        let mut inner = shared.inner.borrow_mut();
        if !inner.core.open_channel(number) {
            return Err(ChannelError::Taken(number));
        }
        inner.core.hear_closes(number);
        inner.core.set_placer(number, Rc::clone(&port) as Rc<RefCell<_>>);
        drop(inner);
        Ok(Port { shared, state: port, number, options, detached: false })
    }

    /// The channel's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Lets go of the channel without closing it, as [`crate::Channel::detach`] does.
    ///
    /// # Errors
    /// There are requests, or messages that were not received: the port comes back.
    pub fn detach(mut self) -> Result<(), Port> {
        if !self.state.borrow().is_idle() {
            return Err(self);
        }
        self.detached = true;
        Ok(())
    }

    fn begun(&self, number: u64) -> Request {
        Request(Inner::Begun(Hold::new(&self.shared, &self.state, number, PortState::let_go)))
    }

    /// The port's and the endpoint's state, for a call that is made now.
    fn with<T>(&self, call: impl FnOnce(&mut PortState, &mut Core) -> T) -> T {
        let mut port = self.state.borrow_mut();
        port.now = self.shared.now();
        call(&mut port, &mut self.shared.inner.borrow_mut().core)
    }
    /// Takes the next failure of a peer that nobody has asked this port for.
    pub fn take_failure(&self) -> Option<Failure> {
        self.with(|port, core| {
            port.take_in(core);
            port.failures.pop_front()
        })
    }

    /// Receives that wait for a message.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.state.borrow().matching.posted()
    }

    /// Messages that wait for a receive, claimed ones left out.
    #[must_use]
    pub fn unexpected(&self) -> usize {
        self.state.borrow().matching.unexpected()
    }

    /// Longest message that may be sent, as far as this endpoint is concerned, bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> u64 {
        self.shared.inner.borrow().core.message_bytes_max().saturating_sub(HEADER_BYTES_MAX as u64)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let core = &mut self.shared.inner.borrow_mut().core;
        self.state.borrow_mut().close(core);
        if self.detached {
            core.detach_channel(self.number);
        } else {
            core.close_channel(self.number);
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("number", &self.number).field("options", &self.options).finish()
    }
}
