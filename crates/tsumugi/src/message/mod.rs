//! Tagged messages, sent and received by requests that are begun, tested and waited for.
//!
//! This is the model of MMP, the message library of Maestro2 (P3), and what MPI is made of. A [`Port`] holds one channel of
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
//! let (mut from, mut to) = (Port::open(&here, 7)?, Port::open(&there, 7)?);
//!
//! let receive = to.receive(Pattern::tagged(42), vec![0; 100].into());
//! from.send(peer, 42, b"spun from plain yarn")?;
//! # // One thread plays both sides here.
//! # let completion = loop {
//! #     here.progress()?;
//! #     if let Some(completion) = to.test(receive)? {
//! #         break completion;
//! #     }
//! # };
//! # /*
//! let completion = to.wait(receive)?;
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
//! [`Ticket`] tells whether they have arrived. [`Protocol::Rendezvous`] with [`MessageOptions::eager_bytes`] of 0 makes
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
mod header;
mod many;
pub(crate) mod matching;
mod merging;
mod parcel;
mod port_state;
mod queues;
mod request;
mod table;
mod waiting;

pub use crate::buffer::Buffer;
pub use request::{Completion, Envelope, Pattern, Request, RequestError, Status, WaitError};

use crate::config::setters;
use crate::endpoint::Endpoint;
use crate::endpoint::core::Core;
use crate::endpoint::shared::Shared;
use crate::error::{ChannelError, SendError};
use crate::{Failure, PeerId, Ticket};
use header::{HEADER_BYTES_MAX, Header};
use parcel::Parcel;
use port_state::PortState;
use request::Inner;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use tsumugi_rail::RailError;

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

/// A message that was taken out of matching: only [`Port::receive_claimed`] receives it. What is not received goes
/// with the port.
#[derive(Debug)]
pub struct Claim {
    key: usize,
    status: Status,
}

impl Claim {
    /// The message.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }
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

    /// The port's and the endpoint's state, for a call that is made now.
    fn with<T>(&self, call: impl FnOnce(&mut PortState, &mut Core) -> T) -> T {
        let mut port = self.state.borrow_mut();
        port.now = self.shared.now();
        call(&mut port, &mut self.shared.inner.borrow_mut().core)
    }

    /// Sends a copy of `data` to the same channel of `peer`. A lone message leaves at once, others with the endpoint's next
    /// call at the latest.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when there is no room: make progress and try again, or [wait](Port::wait_for_room).
    /// Otherwise why it cannot be sent.
    #[inline]
    pub fn send(
        &mut self,
        peer: PeerId,
        envelope: impl Into<Envelope>,
        data: &[u8],
    ) -> Result<Request, SendError> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, data.len()) else {
            let buffer = self.filled(data)?;
            return self.offer(peer, envelope, Parcel::Own(buffer), None).map_err(|(error, parcel)| {
                parcel.give_back(&mut self.shared.inner.borrow_mut().core);
                error
            });
        };
        let status = Status::new(peer, envelope, data.len() as u64);
        let (alone, ticket) =
            self.with(|port, core| (core.is_quiet(port.now, peer), port.send_now(core, header, peer, data)));
        self.sent(status, alone, ticket?)
    }

    /// Sends a copy of `data` whose delivery the caller will not ask about, and after which it may make no call for
    /// long: it leaves at once unless several packets are [in flight](Endpoint::push) already. The receiver may take
    /// its time to acknowledge.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn inject(
        &mut self,
        peer: PeerId,
        envelope: impl Into<Envelope>,
        data: &[u8],
    ) -> Result<(), SendError> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, data.len()) else {
            let request = self.send(peer, envelope, data)?;
            self.let_go(request);
            return Ok(self.shared.push(peer)?);
        };
        self.with(|port, core| core.unwatched(|core| port.send_now(core, header, peer, data)))?;
        Ok(self.shared.push(peer)?)
    }

    /// Sends a message that was written in place, without a copy.
    ///
    /// # Errors
    /// As [`Port::send`]; the buffer comes back with the error.
    pub fn send_buffer(
        &mut self,
        peer: PeerId,
        tag: u64,
        mut message: MessageBuffer,
    ) -> Result<Request, (SendError, MessageBuffer)> {
        let buffer = std::mem::take(&mut message.buffer);
        let bytes = buffer.len() - PortState::DATA_AT;
        let envelope = Envelope::from(tag);
        let Some(header) = self.header(envelope, bytes) else {
            return self.offer(peer, envelope, Parcel::Own(buffer), None).map_err(|(error, parcel)| {
                if let Parcel::Own(buffer) = parcel {
                    message.buffer = buffer;
                }
                (error, message)
            });
        };
        let (alone, ticket) = self.with(|port, core| {
            (core.is_quiet(port.now, peer), port.send_buffer_now(core, header, peer, buffer))
        });
        match ticket {
            Ok(ticket) => {
                let status = Status::new(peer, envelope, bytes as u64);
                self.sent(status, alone, ticket).map_err(|error| (error, message))
            }
            Err((error, buffer)) => {
                message.buffer = buffer;
                Err((error, message))
            }
        }
    }

    /// Sends a copy of `data` to every peer of a group, at once; to all or to none. A long message is copied once, for all
    /// of them; each peer has packets of its own.
    ///
    /// # Errors
    /// As [`Port::send`], of the first peer that it cannot be sent to.
    pub fn send_to_group(
        &mut self,
        group: &[PeerId],
        tag: u64,
        data: &[u8],
    ) -> Result<Vec<Request>, SendError> {
        let header = match self.options.protocol {
            Protocol::Eager => Header::Eager { tag, immediate: None },
            _ => Header::Active { tag, immediate: None },
        };
        let tickets = self.with(|port, core| port.send_to_all(core, header, group, data))?;
        self.shared.transmit(self.shared.now())?;
        let bytes = data.len() as u64;
        let request = |ticket: Ticket| {
            let status = Status::new(ticket.peer(), tag.into(), bytes);
            Request(Inner::Sent { status, ticket })
        };
        Ok(tickets.into_iter().map(request).collect())
    }

    /// A buffer of `bytes` to write a message into, which is then sent without being copied.
    /// Its bytes are arbitrary until written.
    ///
    /// # Errors
    /// There is no memory.
    pub fn buffer(&mut self, bytes: usize) -> Result<MessageBuffer, SendError> {
        let buffer = PortState::buffer(&mut self.shared.inner.borrow_mut().core, bytes)?;
        Ok(MessageBuffer { shared: Rc::clone(&self.shared), buffer })
    }

    fn filled(&mut self, data: &[u8]) -> Result<Vec<u8>, SendError> {
        let mut buffer = PortState::buffer(&mut self.shared.inner.borrow_mut().core, data.len())?;
        buffer[PortState::DATA_AT..].copy_from_slice(data);
        Ok(buffer)
    }

    /// The header of a message that goes at once; none for one that is offered.
    #[inline]
    fn header(&self, Envelope { tag, immediate }: Envelope, bytes: usize) -> Option<Header> {
        let (eager, active) = (Header::Eager { tag, immediate }, Header::Active { tag, immediate });
        match self.options.protocol {
            Protocol::Eager => Some(eager),
            Protocol::ActiveZeroCopy => Some(active),
            Protocol::Rendezvous => (bytes <= self.options.eager_bytes).then_some(eager),
            Protocol::Auto => (bytes <= self.options.offer_bytes).then_some(active),
        }
    }

    fn sent(&self, status: Status, alone: bool, ticket: Ticket) -> Result<Request, SendError> {
        if alone {
            self.shared.transmit(self.shared.now())?;
        }
        Ok(Request(Inner::Sent { status, ticket }))
    }

    fn offer(
        &mut self,
        peer: PeerId,
        envelope: Envelope,
        parcel: Parcel,
        cookie: Option<u64>,
    ) -> Result<Request, (SendError, Parcel)> {
        let (alone, number) = self.with(|port, core| {
            (core.is_quiet(port.now, peer), port.offer(core, peer, envelope, parcel, cookie))
        });
        let number = number?;
        if alone {
            self.shared.transmit(self.shared.now()).map_err(|error| (error.into(), Parcel::Sent))?;
        }
        Ok(Request(Inner::Numbered(number)))
    }

    /// Sends a message out of memory of the caller, without a copy. The request has the buffer until the library needs it no
    /// more, which for a long message is when the receiver has all of it: a peer may ask for any part again until then.
    /// [Listed](Port::next_completion) under `cookie` when it is complete.
    ///
    /// # Errors
    /// As [`Port::send`]; the buffer comes back with the error.
    pub fn send_lent(
        &mut self,
        peer: PeerId,
        envelope: impl Into<Envelope>,
        buffer: Buffer,
        cookie: u64,
    ) -> Result<Request, (SendError, Buffer)> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, buffer.len()) else {
            let offered = self.offer(peer, envelope, Parcel::Lent(buffer), Some(cookie));
            return offered.map_err(|(error, parcel)| match parcel {
                Parcel::Lent(buffer) => (error, buffer),
                Parcel::Own(_) | Parcel::Sent => (error, Buffer::default()),
            });
        };
        let status = Status::new(peer, envelope, buffer.len() as u64);
        let (alone, number) = self.with(|port, core| {
            let alone = core.is_quiet(port.now, peer);
            (alone, port.send_lent_now(core, header, status, buffer, cookie))
        });
        let number = number?;
        if alone {
            self.shared.transmit(self.shared.now()).map_err(|error| (error.into(), Buffer::default()))?;
        }
        Ok(Request(Inner::Numbered(number)))
    }

    /// Begins to receive a message into `buffer`, which belongs to the request until it is complete.
    pub fn receive(&mut self, pattern: Pattern, buffer: Buffer) -> Request {
        Request(Inner::Numbered(self.with(|port, core| port.receive(core, pattern, buffer, None))))
    }

    /// As [`Port::receive`], and [listed](Port::next_completion) under `cookie` when it is complete.
    pub fn receive_listed(&mut self, pattern: Pattern, buffer: Buffer, cookie: u64) -> Request {
        let post = |port: &mut PortState, core: &mut Core| port.receive(core, pattern, buffer, Some(cookie));
        Request(Inner::Numbered(self.with(post)))
    }

    /// Begins to receive several messages into one buffer, one behind the other, as long as there is room for `least` bytes
    /// more. Each is [listed](Port::next_completion) under `cookie`, with the part of the buffer that it fills; then once more
    /// the receive itself, with what is left: as [`RequestError::Filled`], or with what else has ended it.
    pub fn receive_many(&mut self, pattern: Pattern, buffer: Buffer, least: usize, cookie: u64) -> Request {
        let post =
            |port: &mut PortState, core: &mut Core| port.receive_many(core, pattern, buffer, least, cookie);
        Request(Inner::Numbered(self.with(post)))
    }

    /// Begins to receive a message that was claimed.
    pub fn receive_claimed(&mut self, claim: Claim, buffer: Buffer) -> Request {
        Request(Inner::Numbered(self.with(|port, core| port.receive_kept(core, claim.key, buffer, None))))
    }

    /// As [`Port::receive_claimed`], and [listed](Port::next_completion) under `cookie` when it is complete.
    pub fn receive_claimed_listed(&mut self, claim: Claim, buffer: Buffer, cookie: u64) -> Request {
        let post =
            |port: &mut PortState, core: &mut Core| port.receive_kept(core, claim.key, buffer, Some(cookie));
        Request(Inner::Numbered(self.with(post)))
    }

    /// Takes the next of the listed requests that are complete: what its caller has called it, and what has become of it. They
    /// come in the order in which they became complete. Makes no progress: see [`Port::progress`].
    #[inline]
    pub fn next_completion(&mut self) -> Option<(u64, Completion)> {
        self.state.borrow_mut().next_listed()
    }

    /// Ends a receive that no message has matched: it is complete then, with [`RequestError::Cancelled`]. `false` for
    /// one that a message has matched, and for a send.
    pub fn cancel(&mut self, request: Request) -> bool {
        match request.0 {
            Inner::Sent { .. } => false,
            Inner::Numbered(number) => self.with(|port, core| {
                port.take_in(core);
                port.cancel(core, number)
            }),
        }
    }

    /// Nobody will ask what became of a request. A send goes on by itself; a receive ends, or is received for nobody.
    pub fn let_go(&mut self, request: Request) {
        if let Inner::Numbered(number) = request.0 {
            self.with(|port, core| port.let_go(core, number));
        }
    }

    /// The first message that waits and fits the pattern. It goes on waiting.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn probe(&mut self, pattern: Pattern) -> Result<Option<Status>, RailError> {
        let found = |port: &mut PortState, core: &mut Core| {
            port.take_in(core);
            port.probe(core, &pattern).map(|(_, status)| status)
        };
        if let Some(status) = self.with(found) {
            return Ok(Some(status));
        }
        self.progress()?;
        Ok(self.with(found))
    }

    /// Takes the first message that fits the pattern out of matching, so that nothing else receives it.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn claim(&mut self, pattern: Pattern) -> Result<Option<Claim>, RailError> {
        if self.probe(pattern)?.is_none() {
            return Ok(None);
        }
        let claimed = self.with(|port, core| port.claim(core, &pattern));
        Ok(claimed.map(|(key, status)| Claim { key, status }))
    }

    /// Takes the next failure of a peer that nobody has asked this port for.
    pub fn take_failure(&mut self) -> Option<Failure> {
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

/// A buffer to write a message into; see [`Port::buffer`]. Dropping it unsent gives it back.
pub struct MessageBuffer {
    shared: Rc<Shared>,
    /// Room for headers, then the message.
    buffer: Vec<u8>,
}

impl Deref for MessageBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.get(PortState::DATA_AT..).unwrap_or_default()
    }
}

impl DerefMut for MessageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(PortState::DATA_AT..).unwrap_or_default()
    }
}

impl Drop for MessageBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.shared.inner.borrow_mut().core.pool.give(buffer);
    }
}

impl fmt::Debug for MessageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageBuffer of {} bytes", self.buffer.len().saturating_sub(PortState::DATA_AT))
    }
}
