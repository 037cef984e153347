//! The end of an endpoint: closed, or dropped with something under way.

use super::Endpoint;
use super::shared::{Inner, Shared};
use crate::error::SendError;
use std::time::Duration;
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// How long [`Endpoint::close`] waits for peers to acknowledge BYE, ns.
const LEAVE_NS_MAX: u64 = SECOND_NS;
/// The same of an endpoint that is dropped: nobody is told what became of it, so nobody should wait for long.
const DROP_LEAVE_NS_MAX: u64 = 100 * MILLISECOND_NS;

impl Endpoint {
    /// Flushes, says BYE to every peer, and closes.
    ///
    /// An endpoint that is dropped instead goes on until what it has accepted is acknowledged, too, but for
    /// [`Config::linger`](crate::Config::linger) at most, and cannot say what became of it.
    ///
    /// # Errors
    /// As [`Endpoint::flush`]. The endpoint is closed all the same, a second later at most.
    pub fn close(self) -> Result<(), SendError> {
        let flushed = self.flush();
        self.shared.leave(LEAVE_NS_MAX)?;
        flushed
    }

    /// Ends at once, without waiting for anything: peers are told, and what they have not acknowledged is given up. Nothing more
    /// comes of channels that are still held.
    pub fn abort(self) {
        self.shared.end();
        self.shared.inner.borrow_mut().silent = true;
    }
}

impl Shared {
    /// See [`Endpoint::flush`].
    pub(super) fn flush(&self) -> Result<(), SendError> {
        let patience_ns = self.inner.borrow().flush_ns;
        loop {
            let before = self.inner.borrow().core.acknowledged();
            let until = self.now().plus(patience_ns);
            match self.wait_until(Some(until), |core| core.is_flushed().then(|| core.take_loss()))? {
                Some(None) => return Ok(()),
                Some(Some(failure)) => return Err(SendError::Peer(Box::new(failure))),
                None => {}
            }
            let inner = self.inner.borrow();
            if inner.core.acknowledged() == before
                && let Some((name, address, messages)) = inner.core.undelivered().next()
            {
                let waited = Duration::from_nanos(patience_ns);
                return Err(SendError::Stalled { waited, messages, name: name.to_owned(), address });
            }
        }
    }

    /// Says BYE to every peer, until each has acknowledged it.
    fn leave(&self, ns_max: u64) -> Result<(), tsumugi_rail::RailError> {
        let now = self.now();
        self.inner.borrow_mut().core.leave(now);
        self.wait_until(Some(now.plus(ns_max)), |core| core.has_left().then_some(()))?;
        Ok(())
    }

    /// Peers that still wait for us learn at once that they need not.
    fn end(&self) {
        self.inner.borrow_mut().core.abort();
        // Nobody is left to be told of an error.
        let _ = self.transmit(self.now());
    }

    /// What was accepted and is not acknowledged gets the time that the configuration gives it, as what was written to a
    /// TCP socket that is closed.
    fn linger(&self) {
        let linger_ns = self.inner.borrow().linger_ns;
        if linger_ns == 0 || std::thread::panicking() {
            return;
        }
        let until: Instant = self.now().plus(linger_ns);
        match self.wait_until(Some(until), |core| core.is_flushed().then_some(())) {
            Ok(Some(())) => {
                // Nobody is left to be told of an error.
                let _ = self.leave(DROP_LEAVE_NS_MAX.min(linger_ns));
            }
            Ok(None) | Err(_) => self.inner.borrow().tell_of_losses(linger_ns),
        }
    }
}

impl Inner {
    fn tell_of_losses(&self, linger_ns: u64) {
        let seconds = linger_ns as f64 / SECOND_NS as f64;
        for (name, address, messages) in self.core.undelivered() {
            log::warn!(
                "endpoint {}: dropped with {messages} messages to {name} ({address}) that were not acknowledged within {seconds} s; \
                 call Endpoint::close, which waits for them, or raise Config::linger",
                self.rail.address()
            );
        }
    }
}

/// The endpoint and all its channels, messages and buffers are dropped.
impl Drop for Shared {
    fn drop(&mut self) {
        if !self.inner.get_mut().silent && self.owner.is_here() {
            self.linger();
            self.end();
        }
    }
}
