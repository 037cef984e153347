//! Remote memory: writes, reads and atomic operations on the memory of other processes, by key and virtual address
//! (P5: Kunisawa et al., *Network Interface card with address translation buffer*, about 1998).
//!
//! Whoever wants its memory reached makes a [`Region`], [registers](Remote::register) it and tells others the
//! [`Target`]: a key that nobody can guess, and an address as its own process counts. Whoever has the key writes,
//! reads or atomically changes words within what was registered, as far as the rights go, until it is revoked. The
//! target's process takes no part in it but for making progress.
//!
//! ```
//! use tsumugi::{Config, Endpoint, Region, Rights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let there = Endpoint::open(Config::loopback())?;
//! let here = Endpoint::open(Config::loopback())?;
//! let peer = here.add_peer(format!("127.0.0.1:{}", there.port()))?;
//!
//! let memory = Region::new(4096)?;
//! let registered = there.remote().register(&memory.all(), Rights::ALL)?;
//!
//! here.remote().write_bytes(peer, registered.target().plus(8), b"woven")?;
//! let fence = here.remote().fence(peer)?;
//! # // One thread plays both sides here.
//! while fence.outcome().is_none() {
//!     here.progress()?;
//!     there.progress()?;
//! }
//! let mut word = [0; 5];
//! memory.read(8, &mut word)?;
//! assert_eq!(&word, b"woven");
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! * Everything is done once, or its sender is told: by the error of an [`Operation`], by a [`Refusal`], or by the
//!   peer's failure.
//! * Short writes (those that fit in a packet), reads, atomics, fences, notifications and the messages of all channels
//!   are done in the order in which they were sent to a peer. A long write's data may be written before what was sent
//!   earlier is done, and in any order among themselves, but are there before anything that is sent later is done. So a
//!   flag written after the data tells the truth; two long writes to the same place need a fence between them.
//! * A flag is a word of 1, 2, 4 or 8 bytes at an address that is a multiple of its size, written by a short write or
//!   changed by an atomic. Any thread of the target's process may wait for it: such a word is seen as it was or as it
//!   becomes, never in parts, and who has loaded it with acquire order (as an atomic, [`Region::word`]) sees everything
//!   that was sent before it. The bytes of a long write, and words that lie otherwise, may be seen in parts.
//! * The word that a short write ends with is written last: it may be a flag for the data in front of it, which then need one
//!   packet instead of two. [`Remote::short_bytes`] says how long a write may be for that.
//! * A [`Ticket`] that is delivered says that the target has the data, not that they have been placed or were
//!   not refused; a fence says that, when it is done: by then what was sent before it has been done, what was read is
//!   here, and every refusal has been told.
//! * Atomics are atomic towards each other and towards atomic instructions of the target's processors.
//! * What is written from a region may be changed again when its [`Ticket`] is delivered.
//! * After a registration is dropped nothing more is written or changed under its key, and nothing read but what was
//!   asked for before; memory that is still being sent stays until it is sent.
//! * Memory must stay mapped while it is registered or under way, or the process dies of a segmentation fault like any
//!   that touches what is not there. A program that cannot promise it takes [`Region::from_raw_checked`]: then what is
//!   gone is refused, and whoever asked is told.
//!
//! # Windows
//!
//! Memory from [`Remote::window`] can be written while its process computes, sleeps or is stopped: the XDP program
//! writes what arrives for it where it belongs, a *direct write*, and acknowledges it. It knows a bounded number of
//! pages, which it learns when they are written for the first time (`tsumugi up --translations`,
//! [`Config::replacement`]); what comes for others waits in the receive queue for the process. The guarantees are the
//! same but for two. The XDP program does not compare a packet's CRC32C, so direct writes are as sure to be unaltered
//! as Ethernet's own CRC makes them. And it copies bytes, not words: a flag there may be waited for only where loads
//! and stores keep their order, as on x86; elsewhere send a notification or a message behind it. A program that needs
//! both guarantees registers other memory.
//!
//! [`Config::replacement`]: crate::Config::replacement

pub(crate) mod outcome;
pub(crate) mod target;

use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::peer::operations::Promise;
use crate::endpoint::shared::Shared;
use crate::error::SendError;
use crate::ticket::Ticket;
pub use outcome::{Notification, OperationError, Refusal, Refused, RemoteError, WaitError};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
pub use target::{Rights, Target};
use tsumugi_rail::{RailError, Region, Slice};
use tsumugi_wire::Instant;
pub use tsumugi_wire::remote::{Atomic, AtomicOperation, Word};

/// An endpoint's remote memory. Cheap to make: see [`crate::Endpoint::remote`].
#[derive(Clone)]
pub struct Remote {
    shared: Rc<Shared>,
}

/// Memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Nobody could do anything with it.
    #[error("nothing to register: the slice is empty")]
    Empty,
    /// Nobody could do anything with it.
    #[error("no rights to give: take READ, WRITE, ATOMIC or several of them")]
    NoRights,
    /// Other memory is registered under the key that was chosen.
    #[error("key {0:#x} is in use; choose another, or drop what is registered under it")]
    KeyInUse(u64),
}

impl Remote {
    /// The number that a peer goes by.
    pub(crate) fn canonical(&self, peer: PeerId) -> PeerId {
        self.shared.inner.borrow().core.canonical(peer)
    }

    pub(crate) fn new(shared: Rc<Shared>) -> Remote {
        Remote { shared }
    }

    /// Lets others reach memory, until the registration is dropped.
    ///
    /// It takes no page and no look at the memory's mapping, however long the memory: what is mapped there when
    /// something arrives is what is reached. So nothing need be cached, and nothing can be stale.
    ///
    /// # Errors
    /// There is nothing to register.
    pub fn register(&self, slice: &Slice, rights: Rights) -> Result<Registration, RegisterError> {
        Remote::check(slice, rights)?;
        let key = self.shared.inner.borrow_mut().core.register(slice.clone(), rights);
        let address = slice.region().address() + slice.at() as u64;
        let target = Target { key, address };
        Ok(Registration { shared: Rc::clone(&self.shared), target, slice: slice.clone() })
    }

    /// As [`Remote::register`], under a key and an address of its first byte that the caller chooses: for callers that
    /// agree on them by other means, or count from 0. Whoever guesses the key reaches the memory.
    ///
    /// Only where the address is the memory's own can it be written [without this process](Remote::window).
    ///
    /// # Errors
    /// There is nothing to register, or the key is in use.
    pub fn register_as(
        &self,
        slice: &Slice,
        rights: Rights,
        target: Target,
    ) -> Result<Registration, RegisterError> {
        Remote::check(slice, rights)?;
        if !self.shared.inner.borrow_mut().core.register_as(target, slice.clone(), rights) {
            return Err(RegisterError::KeyInUse(target.key));
        }
        Ok(Registration { shared: Rc::clone(&self.shared), target, slice: slice.clone() })
    }

    fn check(slice: &Slice, rights: Rights) -> Result<(), RegisterError> {
        match slice.bytes() {
            0 => Err(RegisterError::Empty),
            _ if rights == Rights::NONE => Err(RegisterError::NoRights),
            _ => Ok(()),
        }
    }

    /// Memory that others may write without this process, once it is [registered](Remote::register): a region of zeroes of
    /// at least `bytes`, in whole pages. Without the XDP receive path, or where the window has no room, it is memory
    /// like any other, and [`Remote::is_window`] says so.
    ///
    /// It must not outlive the endpoint by long: the next process that has the endpoint's port has its window.
    ///
    /// # Errors
    /// The system has no memory, or `bytes` is 0.
    pub fn window(&self, bytes: usize) -> std::io::Result<Region> {
        match self.shared.inner.borrow().core.lend_window(bytes) {
            Some(region) => Ok(region),
            None => Region::new(bytes),
        }
    }

    /// Whether memory lies in the endpoint's window, so that what others write there needs no process.
    #[must_use]
    pub fn is_window(&self, slice: &Slice) -> bool {
        self.shared.inner.borrow().core.is_in_window(slice)
    }

    /// How long a write to a peer may be, bytes, to be short: to fit in a packet, have its turn and end with a word that is
    /// written last. As long as the peer has not answered it is what every peer takes, and more afterwards; it becomes less only
    /// when the peer is connected anew. To nobody that this endpoint knows, it is 0.
    #[must_use]
    pub fn short_bytes(&self, peer: PeerId) -> usize {
        self.shared.inner.borrow().core.short_write_bytes(peer)
    }

    /// Writes what is in `from`, without waiting. Its bytes are read when room appears to send them.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when the queue to the peer is full; otherwise why it cannot be sent.
    pub fn write(&self, peer: PeerId, to: Target, from: &Slice) -> Result<Ticket, SendError> {
        self.post(peer, |core, now| core.remote_write(now, peer, to, from))
    }

    /// Writes a copy of bytes, without waiting. Long ones are better kept in a region and written from there.
    ///
    /// # Errors
    /// As [`Remote::write`].
    pub fn write_bytes(&self, peer: PeerId, to: Target, data: &[u8]) -> Result<Ticket, SendError> {
        self.post(peer, |core, now| core.remote_write_bytes(now, peer, to, data))
    }

    /// Writes, and has the process there told by the handler of this number when all of it is there. Both are accepted, or
    /// with an error neither is.
    ///
    /// # Errors
    /// As [`Remote::write`].
    pub fn write_and_notify(
        &self,
        peer: PeerId,
        to: Target,
        from: &Slice,
        handler: u64,
    ) -> Result<Ticket, SendError> {
        self.post(peer, |core, now| core.remote_write_and_notify(now, peer, to, from, handler))
    }

    /// The same of a copy of bytes.
    ///
    /// # Errors
    /// As [`Remote::write`].
    pub fn write_bytes_and_notify(
        &self,
        peer: PeerId,
        to: Target,
        data: &[u8],
        handler: u64,
    ) -> Result<Ticket, SendError> {
        self.post(peer, |core, now| core.remote_write_bytes_and_notify(now, peer, to, data, handler))
    }

    /// Takes the next notification that memory of ours was written, of whatever was registered, with the key of that. One that
    /// [`Registration::try_notification`] takes is not told of here. Makes no progress.
    #[must_use]
    pub fn take_notification(&self) -> Option<(u64, Notification)> {
        self.shared.inner.borrow_mut().core.rma.served.take_any_notification()
    }

    /// Reads into `into`, without waiting.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when too much waits; otherwise why it cannot be sent.
    pub fn read(&self, peer: PeerId, from: Target, into: &Slice) -> Result<Operation, SendError> {
        self.ask(peer, |core, now| core.remote_read(now, peer, from, into))
    }

    /// An atomic operation on a word, without waiting. The operation yields what the word was.
    ///
    /// # Errors
    /// As [`Remote::read`].
    pub fn atomic(&self, peer: PeerId, at: Target, atomic: Atomic) -> Result<Operation, SendError> {
        self.ask(peer, |core, now| core.remote_atomic(now, peer, at, atomic))
    }

    /// Adds to a word of 64 bits, without waiting. The operation yields what the word was.
    ///
    /// # Errors
    /// As [`Remote::read`].
    pub fn fetch_add(&self, peer: PeerId, at: Target, operand: u64) -> Result<Operation, SendError> {
        self.atomic(
            peer,
            at,
            Atomic { operation: AtomicOperation::Add, word: Word::U64, operand, compare: 0 },
        )
    }

    /// Replaces a word of 64 bits by `new` if it is `compare`, without waiting. The operation yields what the word was.
    ///
    /// # Errors
    /// As [`Remote::read`].
    pub fn compare_swap(
        &self,
        peer: PeerId,
        at: Target,
        compare: u64,
        new: u64,
    ) -> Result<Operation, SendError> {
        self.atomic(
            peer,
            at,
            Atomic { operation: AtomicOperation::CompareSwap, word: Word::U64, operand: new, compare },
        )
    }

    /// An operation that is done when everything that was sent to the peer before has been done there.
    ///
    /// # Errors
    /// As [`Remote::read`].
    pub fn fence(&self, peer: PeerId) -> Result<Operation, SendError> {
        self.ask(peer, |core, now| core.remote_fence(now, peer))
    }

    /// Takes the next write that was refused.
    #[must_use]
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.shared.inner.borrow_mut().core.take_refusal()
    }

    fn post(
        &self,
        peer: PeerId,
        post: impl FnOnce(&mut Core, Instant) -> Result<u64, SendError>,
    ) -> Result<Ticket, SendError> {
        let number = self.shared.post_with(peer, post)?;
        Ok(self.shared.inner.borrow().core.ticket(peer, number))
    }

    fn ask(
        &self,
        peer: PeerId,
        ask: impl FnOnce(&mut Core, Instant) -> Result<Promise, SendError>,
    ) -> Result<Operation, SendError> {
        let promise = self.shared.post_with(peer, ask)?;
        Ok(Operation { shared: Rc::clone(&self.shared), promise })
    }
}

/// Memory that others can reach until this is dropped.
pub struct Registration {
    shared: Rc<Shared>,
    target: Target,
    slice: Slice,
}

impl Registration {
    /// What to tell others: the key, and the address of the first byte.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// The memory.
    #[must_use]
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// Takes the next notification that this memory was written, if there is one.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn try_notification(&self) -> Result<Option<Notification>, RailError> {
        if let Some(notification) = self.take_notification() {
            return Ok(Some(notification));
        }
        self.shared.progress()?;
        Ok(self.take_notification())
    }

    /// Waits for the next notification.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn notification(&self) -> Result<Notification, WaitError> {
        self.wait(None)
    }

    /// As [`Registration::notification`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Registration::notification`]; [`WaitError::TimedOut`] when the time is over.
    pub fn notification_timeout(&self, timeout: Duration) -> Result<Notification, WaitError> {
        self.wait(Some(timeout))
    }

    /// As [`Registration::notification`], for tasks.
    ///
    /// # Errors
    /// As [`Registration::notification`].
    pub async fn notification_async(&self) -> Result<Notification, WaitError> {
        self.shared.inner.borrow_mut().core.watch();
        let look = |core: &mut Core| core.rma.served.take_notification(self.target.key);
        Ok(poll_fn(|context| self.shared.poll_until(context, look)).await?)
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Notification, WaitError> {
        let key = self.target.key;
        self.shared.inner.borrow_mut().core.watch();
        let deadline = timeout.and_then(|timeout| self.shared.deadline(timeout));
        let found = self.shared.wait_until(deadline, |core| core.rma.served.take_notification(key))?;
        found.ok_or(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)))
    }

    /// Takes the next notification, if one has been taken in.
    pub(crate) fn take_notification(&self) -> Option<Notification> {
        self.shared.inner.borrow_mut().core.rma.served.take_notification(self.target.key)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.shared.inner.borrow_mut().core.revoke(self.target.key) {
            // A run of the XDP program that has found the translation may still write, for a moment.
            tsumugi_rail::xdp::wait_for_runs();
        }
    }
}

/// An operation on remote memory that is under way. It goes on when this is dropped.
///
/// It is a future, too: `operation.await` is [`Operation::wait`] for tasks. See [the crate](crate#tasks) for how they are woken.
pub struct Operation {
    shared: Rc<Shared>,
    promise: Promise,
}

impl Operation {
    /// What came of it, if anything has yet: what a word was, 0 for what has no value.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<u64, RemoteError>> {
        self.promise.get().copied()
    }

    /// Waits for what comes of it: what a word was, 0 for what has no value.
    ///
    /// # Errors
    /// The memory's owner has refused it, or the peer is gone, or the NIC is broken.
    pub fn wait(&self) -> Result<u64, OperationError> {
        self.wait_until(None)
    }

    /// As [`Operation::wait`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Operation::wait`]; [`WaitError::TimedOut`] when the time is over. The operation goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<u64, OperationError> {
        self.wait_until(Some(timeout))
    }

    fn wait_until(&self, timeout: Option<Duration>) -> Result<u64, OperationError> {
        let deadline = timeout.and_then(|timeout| self.shared.deadline(timeout));
        match self.shared.wait_until(deadline, |_| self.outcome()).map_err(WaitError::Rail)? {
            Some(outcome) => Ok(outcome?),
            None => Err(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)).into()),
        }
    }
}

impl Future for Operation {
    type Output = Result<u64, OperationError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.shared.poll_until(context, |_| self.outcome()));
        Poll::Ready(outcome.map_err(WaitError::Rail)?.map_err(Into::into))
    }
}
