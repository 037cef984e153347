//! Messages, with tags and without: sends and receives begin here.

use super::operations::{Begun, Pieces, Side};
use super::user_buffer::{UserBuffer, lent, view};
use super::{Endpoint, Running};
use crate::abi::*;
use crate::error::{self, Trouble, negative};
use crate::limits::INJECT_BYTES;
use crate::queue::Entry;
use std::cell::RefCell;
use std::ffi::c_void;
use tsumugi::message::{Envelope, Pattern, Port};
use tsumugi::{PeerId, SendError, Unsent};

/// A message up to this long is sent from a copy: lending its buffer costs more, bytes.
const COPY_BYTES: usize = 8 << 10;

/// One of the two kinds of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Tagged,
}

impl Kind {
    /// The flag of its completions.
    #[inline]
    fn flag(self) -> u64 {
        match self {
            Kind::Plain => FI_MSG,
            Kind::Tagged => FI_TAGGED,
        }
    }

    #[inline]
    fn port(self, running: &Running) -> &RefCell<Port> {
        match self {
            Kind::Plain => &running.messages,
            Kind::Tagged => &running.tagged,
        }
    }
}

/// What goes out.
pub(super) struct Sent {
    pub(super) kind: Kind,
    pub(super) to: fi_addr_t,
    pub(super) envelope: Envelope,
    pub(super) flags: u64,
    /// Whether its success is an entry of the queue, if the flags want it.
    pub(super) told: bool,
    pub(super) context: *mut c_void,
}

/// What somebody wants to receive.
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) from: fi_addr_t,
    pub(super) tag: u64,
    pub(super) ignore: u64,
    pub(super) flags: u64,
    pub(super) context: *mut c_void,
}

/// Completion levels at which the peer has the message.
const DELIVERED: u64 = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE;

impl Endpoint {
    /// # Safety
    /// The buffer is there: until this returns if it is injected, until the operation is complete otherwise.
    #[inline]
    pub(super) unsafe fn send(&self, user_buffer: UserBuffer<'_>, sent: Sent) -> isize {
        let running = match self.running() {
            Ok(running) => running,
            Err(code) => return negative(code),
        };
        // SAFETY: as the caller promises.
        match unsafe { running.send(user_buffer, &sent) } {
            Ok(()) => 0,
            Err(code) => {
                if code == FI_EAGAIN {
                    // Who only tries again makes progress by that. What is wrong is said by the queue.
                    let _ = self.make_progress();
                }
                negative(code)
            }
        }
    }

    /// # Safety
    /// The buffer is there until the operation is complete.
    #[inline]
    pub(super) unsafe fn receive(&self, user_buffer: UserBuffer<'_>, wanted: Wanted) -> isize {
        let running = match self.running() {
            Ok(running) => running,
            Err(code) => return negative(code),
        };
        let source = if self.caps & (FI_DIRECTED_RECV | 1 << 45) == 0 { FI_ADDR_UNSPEC } else { wanted.from };
        let source = match source {
            FI_ADDR_UNSPEC => None,
            number => match running.peer(number) {
                Ok(peer) => Some(peer),
                Err(code) => return negative(code),
            },
        };
        let pattern = Pattern { source, tag: wanted.tag, ignore: wanted.ignore };
        let outcome = match wanted.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) {
            // SAFETY: as the caller promises.
            0 => unsafe { running.receive(user_buffer, pattern, &wanted, self.multi_receive_bytes.get()) },
            // SAFETY: as the caller promises.
            _ => unsafe { running.look(user_buffer, pattern, &wanted) },
        };
        outcome.map_or_else(negative, |()| 0)
    }

    /// Ends the receive that has this context, if no message has matched it.
    pub(super) fn cancel(&self, context: *mut c_void) -> Result<(), i32> {
        let running = self.running()?;
        let found = running.operations.borrow().begun.iter().find_map(|(_, begun)| {
            let request = begun.request.filter(|_| begun.context == context)?;
            Some((request, begun.flags & FI_TAGGED != 0))
        });
        let (request, tagged) = found.ok_or(FI_ENOENT)?;
        let port = if tagged { &running.tagged } else { &running.messages };
        // One that has matched a message continues, which its completion tells.
        let _ = port.borrow_mut().cancel_listed(request);
        running.complete_all(&self.domain.memory).map_err(|error| error::of_rail(&error))
    }
}

impl Running {
    #[inline]
    pub(super) fn peer(&self, number: fi_addr_t) -> Result<PeerId, i32> {
        self.peers.borrow_mut().peer(&self.endpoint, number)
    }

    /// A caller that is told of nothing may make no call for long. So its operation is taken only if it can be sent at
    /// once, which it cannot during the handshake.
    #[inline]
    pub(super) fn check_connected(&self, peer: PeerId, is_told: bool) -> Result<(), i32> {
        let is_connected = is_told || self.endpoint.connect(peer).map_err(|error| error::of_rail(&error))?;
        if is_connected { Ok(()) } else { Err(FI_EAGAIN) }
    }

    /// Sends what such a caller has asked for before its call returns.
    #[inline]
    pub(super) fn push_untold(&self, peer: PeerId, is_told: bool) -> Result<(), i32> {
        if is_told { Ok(()) } else { self.endpoint.push(peer).map_err(|error| error::of_rail(&error)) }
    }

    /// # Safety
    /// As of [`Endpoint::send`].
    #[inline]
    unsafe fn send(&self, user_buffer: UserBuffer<'_>, sent: &Sent) -> Result<(), i32> {
        let peer = self.peer(sent.to)?;
        let Sent { kind, envelope, flags, .. } = *sent;
        if flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let bytes = user_buffer.bytes();
        let wanted = sent.told && self.reports.wants(Side::Send, flags);
        let delivered = sent.told && flags & DELIVERED != 0;
        self.check_connected(peer, wanted)?;
        if delivered {
            self.endpoint.want_ack(peer);
        }
        let port = kind.port(self).borrow_mut();
        let code = |error: &SendError| error::of_send(error);
        if flags & FI_INJECT != 0 && bytes > INJECT_BYTES {
            return Err(FI_EINVAL);
        }
        if let UserBuffer::One(start, _) = user_buffer
            && (bytes <= COPY_BYTES || flags & FI_INJECT != 0)
        {
            // SAFETY: as the caller promises.
            let data = unsafe { view(start, bytes) };
            if !wanted && !delivered {
                port.inject(peer, envelope, data).map_err(|error| code(&error))?;
                self.reports.done(Side::Send, Entry::new(sent.context, FI_SEND | kind.flag()), false);
                return Ok(());
            }
            let mut request = port.send(peer, envelope, data).map_err(|error| code(&error))?;
            self.push_untold(peer, wanted)?;
            let is_complete = !delivered && self.endpoint.is_handed_over(peer);
            if !is_complete
                && let Ok(Some(completion)) = port.test(&mut request)
                && let Some(ticket) = completion.ticket
            {
                let begun = Begun {
                    side: Side::Send,
                    context: sent.context,
                    flags: FI_SEND | kind.flag(),
                    wanted,
                    delivered,
                    pieces: Pieces::One,
                    request: None,
                };
                let mut operations = self.operations.borrow_mut();
                let number = operations.begun.insert(begun);
                operations.of(peer).tickets.push_back((ticket, number));
            } else {
                let entry = Entry::new(sent.context, FI_SEND | kind.flag());
                self.reports.done(Side::Send, entry, wanted);
            }
            return Ok(());
        }
        let buffer = match user_buffer {
            // SAFETY: as the caller promises.
            UserBuffer::One(start, bytes) => unsafe { lent(start, bytes) },
            UserBuffer::Several(_) => {
                let mut copy = Vec::with_capacity(bytes);
                // SAFETY: as the caller promises.
                unsafe { user_buffer.gather(&mut copy) };
                copy.into()
            }
        };
        let number = self.operations.borrow_mut().begun.insert(Begun {
            side: Side::Send,
            context: sent.context,
            flags: FI_SEND | kind.flag(),
            wanted,
            delivered,
            pieces: Pieces::One,
            request: None,
        });
        port.send_lent(peer, envelope, buffer, number as u64).map_err(|Unsent { error, .. }| {
            self.operations.borrow_mut().begun.remove(number);
            code(&error)
        })?;
        self.push_untold(peer, wanted)
    }

    /// # Safety
    /// The buffer is there until the operation is complete.
    #[inline]
    unsafe fn receive(
        &self,
        user_buffer: UserBuffer<'_>,
        pattern: Pattern,
        wanted: &Wanted,
        least: usize,
    ) -> Result<(), i32> {
        let many = wanted.flags & FI_MULTI_RECV;
        let (buffer, pieces) = match user_buffer {
            // SAFETY: as the caller promises.
            UserBuffer::One(start, bytes) => (unsafe { lent(start, bytes) }, Pieces::One),
            UserBuffer::Several(_) if many != 0 => return Err(FI_EINVAL),
            UserBuffer::Several(pieces) => {
                (vec![0; user_buffer.bytes()].into(), Pieces::Several(pieces.to_vec(), None))
            }
        };
        let mut operations = self.operations.borrow_mut();
        let number = operations.begun.insert(Begun {
            side: Side::Receive,
            context: wanted.context,
            flags: FI_RECV | wanted.kind.flag() | many,
            wanted: self.reports.wants(Side::Receive, wanted.flags),
            delivered: false,
            pieces,
            request: None,
        });
        let port = wanted.kind.port(self).borrow_mut();
        let request = match many {
            0 => port.receive_listed(pattern, buffer, number as u64),
            _ => port.receive_many(pattern, buffer, least, number as u64),
        };
        operations.begun[number].request = Some(request);
        Ok(())
    }

    /// Looks for a message that is there, and keeps, receives or drops it.
    ///
    /// # Safety
    /// The buffer is there until the operation is complete.
    #[cold]
    unsafe fn look(&self, user_buffer: UserBuffer<'_>, pattern: Pattern, wanted: &Wanted) -> Result<(), i32> {
        let Wanted { kind, flags, context, .. } = *wanted;
        let mut entry = Entry::new(context, FI_RECV | kind.flag());
        if flags & FI_PEEK == 0 {
            let claim = self.take_claim(context).ok_or(FI_EINVAL)?;
            let port = kind.port(self).borrow_mut();
            if flags & FI_DISCARD != 0 {
                drop(port);
                // Thrown away with its claim.
                drop(claim);
                self.reports.done(Side::Receive, entry, self.reports.wants(Side::Receive, flags));
                return Ok(());
            }
            let (buffer, pieces) = match user_buffer {
                // SAFETY: as the caller promises.
                UserBuffer::One(start, bytes) => (unsafe { lent(start, bytes) }, Pieces::One),
                UserBuffer::Several(pieces) => {
                    (vec![0; user_buffer.bytes()].into(), Pieces::Several(pieces.to_vec(), None))
                }
            };
            let begun = Begun {
                side: Side::Receive,
                context,
                flags: entry.flags,
                wanted: self.reports.wants(Side::Receive, flags),
                delivered: false,
                pieces,
                request: None,
            };
            let number = self.operations.borrow_mut().begun.insert(begun);
            port.receive_claimed_listed(claim, buffer, number as u64);
            return Ok(());
        }
        let broken = |error| error::of_rail(&error);
        let port = kind.port(self).borrow_mut();
        let status = if flags & (FI_CLAIM | FI_DISCARD) == 0 {
            port.probe(pattern).map_err(broken)?
        } else {
            let claim = port.claim(pattern).map_err(broken)?;
            let status = claim.as_ref().map(tsumugi::message::Claim::status);
            match claim {
                Some(claim) if flags & FI_DISCARD != 0 => drop(claim),
                Some(claim) => self.claims.borrow_mut().push((context, claim)),
                None => {}
            }
            status
        };
        drop(port);
        let Some(status) = status else {
            self.reports.failed(Side::Receive, entry, Trouble::expected(FI_ENOMSG), 0);
            return Ok(());
        };
        (entry.bytes, entry.tag) = (status.bytes as usize, status.tag);
        entry.source = self.peers.borrow_mut().number(&self.endpoint, status.peer);
        if let Some(data) = status.immediate {
            entry.data = data;
            entry.flags |= FI_REMOTE_CQ_DATA;
        }
        self.reports.done(Side::Receive, entry, true);
        Ok(())
    }
}
