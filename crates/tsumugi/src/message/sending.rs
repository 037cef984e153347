//! Sending: how a message leaves a port, and buffers to write one into.

use super::handle::{Inner, Listed, Request};
use super::header::Header;
use super::parcel::Parcel;
use super::port_state::PortState;
use super::request::{Envelope, Status};
use super::{Port, Protocol};
use crate::buffer::Buffer;
use crate::endpoint::shared::Shared;
use crate::error::{SendError, Unsent};
use crate::{PeerId, Ticket};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use tsumugi_rail::{RailError, copy};

impl Port {
    /// Sends a copy of `data` to the same channel of `peer`. A lone message leaves at once, others with the endpoint's next
    /// call at the latest.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when there is no room: make progress and try again, or [wait](Port::wait_for_room).
    /// Otherwise why it cannot be sent.
    #[inline]
    pub fn send(
        &self,
        peer: PeerId,
        envelope: impl Into<Envelope>,
        data: &[u8],
    ) -> Result<Request, SendError> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, data.len()) else {
            // Before the copy, which of a long message takes long, and would be for nothing.
            self.with(|port, core| {
                port.take_in(core);
                port.may_offer(core, peer, data.len() as u64)
            })?;
            let buffer = self.filled(data)?;
            let offered = self.offer(peer, envelope, Parcel::Own(buffer), None);
            return offered.map(|number| self.begun(number)).map_err(|(error, parcel)| {
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
    /// long: it leaves at once unless several packets are [in flight](crate::Endpoint::push) already. The receiver may take
    /// its time to acknowledge.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn inject(&self, peer: PeerId, envelope: impl Into<Envelope>, data: &[u8]) -> Result<(), SendError> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, data.len()) else {
            drop(self.send(peer, envelope, data)?);
            return Ok(self.shared.push(peer)?);
        };
        self.with(|port, core| port.send_now(core, header, peer, data))?;
        Ok(self.shared.push(peer)?)
    }

    /// Sends a message that was written in place, without a copy.
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn send_buffer(
        &self,
        peer: PeerId,
        tag: u64,
        mut message: MessageBuffer,
    ) -> Result<Request, Unsent<MessageBuffer>> {
        let buffer = std::mem::take(&mut message.buffer);
        let bytes = buffer.len() - PortState::DATA_AT;
        let envelope = Envelope::from(tag);
        let Some(header) = self.header(envelope, bytes) else {
            let offered = self.offer(peer, envelope, Parcel::Own(buffer), None);
            return offered.map(|number| self.begun(number)).map_err(|(error, parcel)| {
                if let Parcel::Own(buffer) = parcel {
                    message.buffer = buffer;
                }
                Unsent { error, buffer: message }
            });
        };
        let (alone, ticket) = self.with(|port, core| {
            (core.is_quiet(port.now, peer), port.send_buffer_now(core, header, peer, buffer))
        });
        match ticket {
            Ok(ticket) => {
                let status = Status::new(peer, envelope, bytes as u64);
                self.sent(status, alone, ticket).map_err(|error| Unsent { error, buffer: message })
            }
            Err((error, buffer)) => {
                message.buffer = buffer;
                Err(Unsent { error, buffer: message })
            }
        }
    }

    /// Sends a copy of `data` to every peer of a group, at once; to all or to none. A long message is copied once, for all
    /// of them; each peer has packets of its own.
    ///
    /// # Errors
    /// As [`Port::send`], of the first peer that it cannot be sent to.
    pub fn send_to_group(&self, group: &[PeerId], tag: u64, data: &[u8]) -> Result<Vec<Request>, SendError> {
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
    pub fn buffer(&self, bytes: usize) -> Result<MessageBuffer, SendError> {
        let buffer = PortState::buffer(&mut self.shared.inner.borrow_mut().core, bytes)?;
        Ok(MessageBuffer { shared: Rc::clone(&self.shared), buffer })
    }

    fn filled(&self, data: &[u8]) -> Result<Vec<u8>, SendError> {
        let mut buffer = PortState::buffer(&mut self.shared.inner.borrow_mut().core, data.len())?;
        copy::fill(data, &mut buffer[PortState::DATA_AT..]);
        Ok(buffer)
    }

    /// The header of a message that goes at once; none for one that is offered.
    #[inline]
    pub(super) fn header(&self, Envelope { tag, immediate }: Envelope, bytes: usize) -> Option<Header> {
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
        &self,
        peer: PeerId,
        envelope: Envelope,
        parcel: Parcel,
        cookie: Option<u64>,
    ) -> Result<u64, (SendError, Parcel)> {
        let (alone, number) = self.with(|port, core| {
            (core.is_quiet(port.now, peer), port.offer(core, peer, envelope, parcel, cookie))
        });
        let number = number?;
        if alone {
            self.shared.transmit(self.shared.now()).map_err(|error| (error.into(), Parcel::Sent))?;
        }
        Ok(number)
    }

    /// Sends a message out of memory of the caller, without a copy. The request has the buffer until the library needs it no
    /// more, which for a long message is when the receiver has all of it: a peer may ask for any part again until then.
    /// [Listed](Port::next_completion) under `cookie` when it is complete.
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn send_lent(
        &self,
        peer: PeerId,
        envelope: impl Into<Envelope>,
        buffer: Buffer,
        cookie: u64,
    ) -> Result<Listed, Unsent<Buffer>> {
        let envelope = envelope.into();
        let Some(header) = self.header(envelope, buffer.len()) else {
            let offered = self.offer(peer, envelope, Parcel::Lent(buffer), Some(cookie));
            return offered.map(Listed).map_err(|(error, parcel)| match parcel {
                Parcel::Lent(buffer) => Unsent { error, buffer },
                Parcel::Own(_) | Parcel::Sent => Unsent { error, buffer: Buffer::default() },
            });
        };
        let status = Status::new(peer, envelope, buffer.len() as u64);
        let (alone, number) = self.with(|port, core| {
            let alone = core.is_quiet(port.now, peer);
            (alone, port.send_lent_now(core, header, status, buffer, cookie))
        });
        let number = number.map_err(|(error, buffer)| Unsent { error, buffer })?;
        if alone {
            let broken = |error: RailError| Unsent { error: error.into(), buffer: Buffer::default() };
            self.shared.transmit(self.shared.now()).map_err(broken)?;
        }
        Ok(Listed(number))
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
