//! Channels: reliable datagrams to (peer, channel). The caller sets up no connection (PM: P1, Sumimoto et al., 2000, and
//! P4, Konishi et al., 1997).

use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::core::channels::Delivery;
use crate::endpoint::multicast::MulticastId;
use crate::endpoint::receive_queue::Payload;
use crate::endpoint::shared::Shared;
use crate::error::{ReceiveError, SendError};
use crate::send_buffer::SendBuffer;
use crate::ticket::Ticket;
use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use tsumugi_wire::Instant;

/// An endpoint's hold on one channel. Exclusive; given back when dropped, with what was not received.
pub struct Channel {
    pub(crate) shared: Rc<Shared>,
    number: u16,
    /// Dropping it leaves the channel open for the next holder.
    detached: bool,
}

impl Channel {
    pub(crate) fn new(shared: Rc<Shared>, number: u16) -> Channel {
        Channel { shared, number, detached: false }
    }

    /// The channel's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The channel's owner is told of every peer that closes, also of those that leave in good order: for models, which
    /// have something under way with peers that the endpoint does not know of.
    pub(crate) fn hear_closes(self) -> Channel {
        self.shared.inner.borrow_mut().core.hear_closes(self.number);
        self
    }

    /// Lets go of the channel without closing it: what has arrived and what arrives waits for whoever opens
    /// it next, on this endpoint or, after [`crate::Endpoint::suspend`], in another process.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Accepts a copy of `data` for the same channel of `peer`, without waiting.
    ///
    /// A lone message leaves at once. One that follows others which are still under way may share a packet
    /// with its neighbours; it leaves when the packet is full or with the endpoint's next call at the latest.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when the queue to the peer is full; otherwise why it cannot be sent.
    pub fn post(&self, peer: PeerId, data: &[u8]) -> Result<Ticket, SendError> {
        self.shared.post_with(peer, |core, now| {
            let number = core.post(now, peer, self.number, data)?;
            Ok(core.ticket(peer, number))
        })
    }

    /// As [`Channel::post`], for a message in two parts, and even when the queue to the peer is full; see
    /// [`Core::post_reserved`].
    pub(crate) fn post_reserved(&self, peer: PeerId, parts: [&[u8]; 2]) -> Result<Ticket, SendError> {
        self.shared.post_with(peer, |core, now| {
            let number = core.post_reserved(now, peer, self.number, parts)?;
            Ok(core.ticket(peer, number))
        })
    }

    /// Accepts a message in two parts for all receivers of a multicast group; see [`Core::post_multicast`]. An error comes with the
    /// peer that it is about.
    pub(crate) fn post_multicast(
        &self,
        id: MulticastId,
        parts: [&[u8]; 2],
    ) -> Result<Vec<Ticket>, (PeerId, SendError)> {
        let first = self.shared.inner.borrow().core.multicast_receivers(id).first().copied();
        let first = first.unwrap_or(PeerId(0));
        let mut peer = first;
        let posted = self.shared.post_with(first, |core, now| {
            let numbers = core.post_multicast(now, id, self.number, parts).map_err(|(whose, error)| {
                peer = whose;
                error
            })?;
            Ok(numbers.into_iter().map(|(peer, number)| core.ticket(peer, number)).collect())
        });
        posted.map_err(|error| (peer, error))
    }

    /// Sends a copy of `data` to the same channel of `peer`; returns when all of it has been handed to the NIC.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn send(&self, peer: PeerId, data: &[u8]) -> Result<Ticket, SendError> {
        self.shared.wait_for_room(peer, data.len())?;
        let ticket = self.post(peer, data)?;
        self.shared.hand_over(peer)?;
        Ok(ticket)
    }

    /// As [`Channel::send`], for tasks. Dropped before it is ready, the message may have been accepted or not.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub async fn send_async(&self, peer: PeerId, data: &[u8]) -> Result<Ticket, SendError> {
        let ticket = poll_fn(|context| {
            self.shared.poll_until(context, |core| match room(core, peer, data.len())? {
                // Posted at once, before another task takes the room.
                Ok(()) => match core.post(self.shared.now(), peer, self.number, data) {
                    Err(SendError::WouldBlock) => None,
                    posted => Some(posted.map(|number| core.ticket(peer, number))),
                },
                Err(error) => Some(Err(error)),
            })
        });
        let ticket = ticket.await??;
        self.shared.transmit(self.shared.now())?;
        poll_fn(|context| self.shared.poll_until(context, |core| handed_over(core, peer))).await??;
        Ok(ticket)
    }

    /// As [`Channel::post`], but waits for room in the queue to the peer, no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Channel::post`]; [`SendError::TimedOut`] when the time is over, and then the message was not accepted.
    pub fn post_timeout(&self, peer: PeerId, data: &[u8], timeout: Duration) -> Result<Ticket, SendError> {
        let deadline = self.shared.deadline(timeout);
        let has_room = self.shared.wait_until(deadline, |core| room(core, peer, data.len()))?;
        has_room.unwrap_or(Err(SendError::TimedOut(timeout)))?;
        self.post(peer, data)
    }

    /// A buffer of `bytes` to write a message into, which is then sent without being copied.
    /// Its bytes are arbitrary until written.
    ///
    /// # Errors
    /// The message would be too long for the peer, the peer is gone, or there is no memory.
    pub fn send_buffer(&self, peer: PeerId, bytes: usize) -> Result<SendBuffer, SendError> {
        let mut inner = self.shared.inner.borrow_mut();
        match inner.core.may_post(peer, bytes as u64) {
            Ok(()) | Err(SendError::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        let buffer = inner.core.buffer(bytes)?;
        drop(inner);
        Ok(SendBuffer::new(Rc::clone(&self.shared), peer, self.number, buffer))
    }

    /// Takes the next message, if one has arrived.
    ///
    /// # Errors
    /// A peer is gone, said once; or the NIC is broken.
    pub fn try_receive(&self) -> Result<Option<Message>, ReceiveError> {
        if let Some(delivery) = self.take() {
            return self.told(delivery).map(Some);
        }
        self.shared.progress()?;
        self.take().map(|delivery| self.told(delivery)).transpose()
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// A peer is gone, said once; the receive memory is exhausted; or the NIC is broken.
    pub fn receive(&self) -> Result<Message, ReceiveError> {
        loop {
            if let Some(message) = self.receive_until(None)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message, but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Channel::receive`]; [`ReceiveError::TimedOut`] when the time is over.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Message, ReceiveError> {
        let deadline = self.shared.now().plus(timeout.as_nanos() as u64);
        self.receive_until(Some(deadline))?.ok_or(ReceiveError::TimedOut(timeout))
    }

    /// As [`Channel::receive`], for tasks. Dropped before it is ready, it has taken nothing.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub async fn receive_async(&self) -> Result<Message, ReceiveError> {
        let found = poll_fn(|context| self.shared.poll_until(context, |core| self.look(core))).await?;
        self.found(found)
    }

    fn receive_until(&self, deadline: Option<Instant>) -> Result<Option<Message>, ReceiveError> {
        if let Some(delivery) = self.take() {
            return self.told(delivery).map(Some);
        }
        let found = self.shared.wait_until(deadline, |core| self.look(core))?;
        found.map(|found| self.found(found)).transpose()
    }

    fn look(&self, core: &mut Core) -> Option<Found> {
        match core.take(self.number) {
            Some(delivery) => Some(Found::Delivery(delivery)),
            None => core.exhausted().map(|(held, limit)| Found::Exhausted { held, limit }),
        }
    }

    fn found(&self, found: Found) -> Result<Message, ReceiveError> {
        match found {
            Found::Delivery(delivery) => self.told(self.message(delivery)),
            Found::Exhausted { held, limit } => Err(ReceiveError::MemoryExhausted { held, limit }),
        }
    }

    /// Takes the next of what has been taken in, without looking for more: for callers that make progress by other
    /// means.
    pub fn take(&self) -> Option<Result<Message, ReceiveError>> {
        // A child made by `fork` sees what was taken in before it was made, too.
        if let Err(error) = self.shared.check_owner() {
            return Some(Err(error.into()));
        }
        let delivery = self.shared.inner.borrow_mut().core.take(self.number)?;
        Some(self.message(delivery))
    }

    /// What the application gets. Of a failure that it is told so, [`crate::Endpoint::flush`] says no more.
    fn told(&self, delivery: Result<Message, ReceiveError>) -> Result<Message, ReceiveError> {
        if let Err(ReceiveError::Peer(failure)) = &delivery {
            self.shared.inner.borrow_mut().core.told(|other| other == &**failure);
        }
        delivery
    }

    fn message(&self, delivery: Delivery) -> Result<Message, ReceiveError> {
        match delivery {
            Delivery::Message { source, payload } => Ok(Message {
                shared: Rc::clone(&self.shared),
                source: PeerId(source),
                payload: Some(payload),
            }),
            Delivery::Failed(failure) => Err(ReceiveError::Peer(failure)),
        }
    }
}

/// What a call that waits has found.
enum Found {
    Delivery(Delivery),
    Exhausted { held: u64, limit: u64 },
}

impl Shared {
    /// Waits until a message of `bytes` would be accepted for `peer`.
    pub(crate) fn wait_for_room(&self, peer: PeerId, bytes: usize) -> Result<(), SendError> {
        let ready = |core: &mut Core| room(core, peer, bytes);
        // Without progress first: a lone message should not pay for a look at what arrived.
        if let Some(outcome) = ready(&mut self.inner.borrow_mut().core) {
            return outcome;
        }
        self.wait_until(None, ready)?.unwrap_or(Ok(()))
    }

    /// Waits until everything accepted for `peer` has been handed to the NIC.
    pub(crate) fn hand_over(&self, peer: PeerId) -> Result<(), SendError> {
        if self.inner.borrow().core.is_handed_over(peer) {
            return Ok(());
        }
        self.transmit(self.now())?;
        self.wait_until(None, |core| handed_over(core, peer))?.unwrap_or(Ok(()))
    }
}

/// Whether a message of `bytes` is accepted for a peer; `None`: not yet.
fn room(core: &Core, peer: PeerId, bytes: usize) -> Option<Result<(), SendError>> {
    match core.may_post(peer, bytes as u64) {
        Err(SendError::WouldBlock) => None,
        other => Some(other),
    }
}

/// Whether everything accepted for a peer has been handed to the NIC; `None`: not yet.
fn handed_over(core: &Core, peer: PeerId) -> Option<Result<(), SendError>> {
    match core.may_post(peer, 0) {
        Err(error @ SendError::Peer(_)) => Some(Err(error)),
        _ => core.is_handed_over(peer).then_some(Ok(())),
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let core = &mut self.shared.inner.borrow_mut().core;
        if self.detached {
            core.detach_channel(self.number);
        } else {
            core.close_channel(self.number);
        }
    }
}

/// A message that arrived, in place: the application owns the memory until it drops or releases it.
///
/// Short messages lie in the receive queue. Keeping one for long keeps everything behind it in the queue, too,
/// until senders have to wait; copy out what is to be kept.
pub struct Message {
    shared: Rc<Shared>,
    source: PeerId,
    payload: Option<Payload>,
}

impl Message {
    /// The peer that sent it.
    #[must_use]
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// Gives the memory back; the same as dropping the message.
    pub fn release(self) {}
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.payload {
            Some(Payload::InPlace { position, at, bytes, .. }) => {
                let (at, bytes) = (*at as usize, *bytes as usize);
                // SAFETY: the record is kept until the message's payload is released, which `self` still has.
                unsafe { self.shared.memory.body(*position, at, bytes) }
            }
            Some(Payload::Owned(buffer)) => buffer,
            None => &[],
        }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("source", &self.source).field("bytes", &self.len()).finish()
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if let Some(payload) = self.payload.take() {
            self.shared.inner.borrow_mut().core.release_message(payload);
            // Somebody may wait for the room.
            self.shared.set_bell();
        }
    }
}
