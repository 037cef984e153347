//! The end of an endpoint: closed, or dropped with something under way.

use super::Endpoint;
use super::core::Core;
use super::shared::{Inner, Shared};
use crate::error::SendError;
use std::future::poll_fn;
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

    /// As [`Endpoint::flush`], for tasks.
    ///
    /// # Errors
    /// As [`Endpoint::flush`].
    pub async fn flush_async(&self) -> Result<(), SendError> {
        let patience_ns = self.shared.inner.borrow().flush_ns;
        self.shared.hasten_acks()?;
        let (mut before, mut since) = (self.shared.inner.borrow().core.acknowledged(), self.shared.now());
        let flushed = poll_fn(|context| {
            self.shared.poll_until(context, |core| {
                if core.is_flushed() {
                    return Some(
                        core.take_loss().map_or(Ok(()), |failure| Err(SendError::Peer(Box::new(failure)))),
                    );
                }
                // Timers wake a task that waits here, as long as anything is not acknowledged.
                let (now, acknowledged) = (self.shared.now(), core.acknowledged());
                if std::mem::replace(&mut before, acknowledged) != acknowledged {
                    since = now;
                }
                let is_over = now.since(since) >= patience_ns;
                is_over.then(|| stalled(core, patience_ns)).flatten().map(Err)
            })
        });
        flushed.await?
    }

    /// As [`Endpoint::close`], for tasks. Dropped before it is ready, it drops the endpoint, which waits as
    /// [`Config::linger`](crate::Config::linger) says.
    ///
    /// # Errors
    /// As [`Endpoint::close`].
    pub async fn close_async(self) -> Result<(), SendError> {
        let flushed = self.flush_async().await;
        let now = self.shared.now();
        self.shared.inner.borrow_mut().core.leave(now);
        let until = now.plus(LEAVE_NS_MAX);
        poll_fn(|context| {
            let is_over = |core: &mut Core| (core.has_left() || self.shared.now() >= until).then_some(());
            self.shared.poll_until(context, is_over)
        })
        .await?;
        flushed
    }

    /// Ends at once, without waiting for anything: peers are told, and what they have not acknowledged is given up. Nothing more
    /// comes of channels that are still held.
    pub fn abort(self) {
        self.shared.end();
        let mut inner = self.shared.inner.borrow_mut();
        inner.silent = true;
        inner.tell_of_end("endpoint aborted");
    }
}

impl Shared {
    /// See [`Endpoint::flush`].
    pub(super) fn flush(&self) -> Result<(), SendError> {
        let patience_ns = self.inner.borrow().flush_ns;
        self.hasten_acks()?;
        loop {
            let before = self.inner.borrow().core.acknowledged();
            let until = self.now().plus(patience_ns);
            match self.wait_until(Some(until), |core| core.is_flushed().then(|| core.take_loss()))? {
                Some(None) => return Ok(()),
                Some(Some(failure)) => return Err(SendError::Peer(Box::new(failure))),
                None => {}
            }
            let core = &self.inner.borrow().core;
            if core.acknowledged() == before
                && let Some(error) = stalled(core, patience_ns)
            {
                return Err(error);
            }
        }
    }

    /// Somebody waits for what has been accepted to be acknowledged.
    fn hasten_acks(&self) -> Result<(), tsumugi_rail::RailError> {
        self.inner.borrow_mut().core.hasten_acks();
        self.transmit(self.now())
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

/// A peer that is there and has acknowledged nothing for so long.
fn stalled(core: &Core, waited_ns: u64) -> Option<SendError> {
    let (name, address, messages) = core.undelivered().next()?;
    let waited = Duration::from_nanos(waited_ns);
    Some(SendError::Stalled { waited, messages, name: name.to_owned(), address })
}

impl Inner {
    /// Says that the endpoint ends, and what it was good for.
    pub(super) fn tell_of_end(&self, how: &str) {
        let counters = self.core.counters();
        let [sent, received, resent] =
            ["messages_sent", "messages_received", "packets_resent"].map(|name| counters.get(name));
        let endpoint = self.rail.address();
        tracing::info!(%endpoint, messages_sent = sent, messages_received = received, packets_resent = resent, "{how}");
    }

    fn tell_of_losses(&self, linger_ns: u64) {
        let seconds = linger_ns as f64 / SECOND_NS as f64;
        for (name, address, messages) in self.core.undelivered() {
            tracing::warn!(
                endpoint = %self.rail.address(),
                peer = %name,
                %address,
                messages,
                "dropped with messages that were not acknowledged within {seconds} s; call Endpoint::close, which waits for them, or \
                 raise Config::linger"
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
            self.inner.get_mut().tell_of_end("endpoint closed");
        }
    }
}
