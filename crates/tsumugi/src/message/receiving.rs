//! Receiving: what a port asks for, and what it looks at without asking.

use super::Port;
use super::handle::{Hold, Inner, Listed, Request};
use super::port_state::PortState;
use super::request::{Completion, Pattern, Status};
use crate::buffer::Buffer;
use crate::endpoint::core::Core;
use std::fmt;
use std::rc::Rc;
use tsumugi_rail::RailError;

/// A message that was taken out of matching: only [`Port::receive_claimed`] receives it. Dropped, it is thrown away.
pub struct Claim {
    hold: Hold,
    status: Status,
}

impl Claim {
    pub(super) fn new(port: &Port, key: usize, status: Status) -> Claim {
        Claim { hold: Hold::new(&port.shared, &port.state, key as u64, PortState::discard), status }
    }

    /// The message.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("status", &self.status).finish()
    }
}

impl Port {
    /// Begins to receive a message into `buffer`, which belongs to the request until it is complete.
    #[must_use = "a receive that is dropped is cancelled"]
    pub fn receive(&self, pattern: Pattern, buffer: Buffer) -> Request {
        self.begun(self.with(|port, core| port.receive(core, pattern, buffer, None)))
    }

    /// As [`Port::receive`], and [listed](Port::next_completion) under `cookie` when it is complete.
    pub fn receive_listed(&self, pattern: Pattern, buffer: Buffer, cookie: u64) -> Listed {
        let post = |port: &mut PortState, core: &mut Core| port.receive(core, pattern, buffer, Some(cookie));
        Listed(self.with(post))
    }

    /// Begins to receive several messages into one buffer, one behind the other, as long as there is room for `least` bytes
    /// more. Each is [listed](Port::next_completion) under `cookie`, with the part of the buffer that it fills; then once more
    /// the receive itself, with what is left: as [`RequestError::Filled`](super::RequestError::Filled), or with what else has ended it.
    pub fn receive_many(&self, pattern: Pattern, buffer: Buffer, least: usize, cookie: u64) -> Listed {
        let post =
            |port: &mut PortState, core: &mut Core| port.receive_many(core, pattern, buffer, least, cookie);
        Listed(self.with(post))
    }

    /// Begins to receive a message that was claimed at this port. Of another port's, the receive is complete at once, as
    /// [`RequestError::Cancelled`](super::RequestError::Cancelled).
    #[must_use = "a receive that is dropped throws its message away"]
    pub fn receive_claimed(&self, claim: Claim, buffer: Buffer) -> Request {
        self.begun(self.claimed(claim, buffer, None))
    }

    /// As [`Port::receive_claimed`], and [listed](Port::next_completion) under `cookie` when it is complete.
    pub fn receive_claimed_listed(&self, claim: Claim, buffer: Buffer, cookie: u64) -> Listed {
        Listed(self.claimed(claim, buffer, Some(cookie)))
    }

    fn claimed(&self, mut claim: Claim, buffer: Buffer, cookie: Option<u64>) -> u64 {
        let is_ours = Rc::ptr_eq(&claim.hold.state, &self.state);
        claim.hold.is_released = is_ours;
        let key = if is_ours { claim.hold.number as usize } else { usize::MAX };
        self.with(|port, core| port.receive_kept(core, key, buffer, cookie))
    }

    /// Takes the next of the listed requests that are complete: what its caller has called it, and what has become of it. They
    /// come in the order in which they became complete. Makes no progress: see [`Port::progress`].
    #[inline]
    pub fn next_completion(&self) -> Option<(u64, Completion)> {
        self.state.borrow_mut().next_listed()
    }

    /// Ends a receive that no message has matched: it is complete then, with [`RequestError::Cancelled`](super::RequestError::Cancelled). `false` for
    /// one that a message has matched, and for a send.
    pub fn cancel(&self, request: &Request) -> bool {
        match &request.0 {
            Inner::Begun(hold) if request.is_of(&self.state) => self.cancel_listed(Listed(hold.number)),
            _ => false,
        }
    }

    /// As [`Port::cancel`], for one that is listed.
    pub fn cancel_listed(&self, request: Listed) -> bool {
        self.with(|port, core| {
            port.take_in(core);
            port.cancel(core, request.0)
        })
    }

    /// The first message that waits and fits the pattern. It goes on waiting.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn probe(&self, pattern: Pattern) -> Result<Option<Status>, RailError> {
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
    pub fn claim(&self, pattern: Pattern) -> Result<Option<Claim>, RailError> {
        if self.probe(pattern)?.is_none() {
            return Ok(None);
        }
        let claimed = self.with(|port, core| port.claim(core, &pattern));
        Ok(claimed.map(|(key, status)| Claim::new(self, key, status)))
    }
}
