//! Testing and waiting: how a port makes progress.

use super::port_state::PortState;
use super::request::{Completion, Inner, WaitError};
use super::{Claim, Pattern, Port, Request};
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::error::SendError;
use std::time::Duration;
use tsumugi_rail::RailError;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// Who waits looks this often whether it waits in vain, ns.
const LOOK_NS: u64 = 250 * MILLISECOND_NS;

impl Port {
    /// Takes in what has arrived and sends what may be sent, once, without waiting.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn progress(&mut self) -> Result<(), RailError> {
        self.shared.progress()?;
        self.catch_up()
    }

    /// What [`Port::progress`] does behind the endpoint's [progress](crate::Endpoint::progress): for who has several ports of one
    /// endpoint.
    ///
    /// # Errors
    /// The NIC is broken.
    #[inline]
    pub fn catch_up(&mut self) -> Result<(), RailError> {
        let said = self.with(|port, core| {
            port.take_in(core);
            port.say_all(core)
        });
        if said { self.shared.transmit(self.shared.now()) } else { Ok(()) }
    }

    /// What has become of a request; `None` when it goes on. It is forgotten with its completion.
    ///
    /// # Errors
    /// There is no such request, or the NIC is broken.
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, WaitError> {
        if let Some(completion) = self.look(request)? {
            return Ok(Some(completion));
        }
        self.progress()?;
        self.look(request)
    }

    fn look(&mut self, request: Request) -> Result<Option<Completion>, WaitError> {
        outcome(&mut self.state.borrow_mut(), request)
    }

    /// Waits until a request is complete.
    ///
    /// # Errors
    /// There is no such request, or the NIC is broken.
    pub fn wait(&mut self, request: Request) -> Result<Completion, WaitError> {
        self.wait_for(None, |port, _| outcome(port, request).transpose())?
    }

    /// As [`Port::wait`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait`]; [`WaitError::TimedOut`] when the time is over.
    pub fn wait_timeout(&mut self, request: Request, timeout: Duration) -> Result<Completion, WaitError> {
        self.wait_for(Some(timeout), |port, _| outcome(port, request).transpose())?
    }

    /// Waits until one of several requests is complete, and says which.
    ///
    /// # Errors
    /// As [`Port::wait_timeout`]; [`WaitError::Nothing`] when there are none.
    pub fn wait_any(
        &mut self,
        requests: &[Request],
        timeout: Option<Duration>,
    ) -> Result<(usize, Completion), WaitError> {
        if requests.is_empty() {
            return Err(WaitError::Nothing);
        }
        let mut seen = None;
        self.wait_for(timeout, |port, _| {
            if seen.replace(port.completed) == Some(port.completed) {
                return None;
            }
            let complete = |(at, request): (usize, &Request)| match outcome(port, *request) {
                Ok(Some(completion)) => Some(Ok((at, completion))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            };
            requests.iter().enumerate().find_map(complete)
        })?
    }

    /// Waits until all of several requests are complete; the completions are in their order.
    ///
    /// # Errors
    /// As [`Port::wait`]. What is complete by then is lost, unless it is about time or memory: wait for requests one by one
    /// where that matters.
    pub fn wait_all(&mut self, requests: &[Request]) -> Result<Vec<Completion>, WaitError> {
        requests.iter().map(|request| self.wait(*request)).collect()
    }

    /// Waits until a message waits that fits the pattern.
    ///
    /// # Errors
    /// As [`Port::wait_timeout`].
    pub fn wait_probe(&mut self, pattern: Pattern, timeout: Option<Duration>) -> Result<Claim, WaitError> {
        self.wait_for(timeout, |port, core| {
            port.claim(core, &pattern).map(|(key, status)| Claim { key, status })
        })
    }

    /// Waits until a message of `bytes` would be accepted for `peer`.
    ///
    /// # Errors
    /// Why it would not be accepted ever, or the NIC is broken.
    pub fn wait_for_room(&mut self, peer: PeerId, bytes: usize) -> Result<(), SendError> {
        let bytes = (bytes + super::HEADER_BYTES_MAX) as u64;
        let found = self.wait_for(None, |port, core| match core.may_post(peer, bytes) {
            Err(SendError::WouldBlock) => None,
            _ if port.is_offering_much(core.canonical(peer), bytes) => None,
            other => Some(other),
        });
        match found {
            Ok(outcome) => outcome,
            Err(WaitError::Rail(error)) => Err(error.into()),
            Err(_) => Err(SendError::WouldBlock),
        }
    }

    /// Makes progress until `ready` says so.
    fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut PortState, &mut Core) -> Option<T>,
    ) -> Result<T, WaitError> {
        enum Found<T> {
            It(T),
            /// Something was said that should leave.
            Said,
        }
        let started = self.shared.now();
        let deadline = timeout.map_or(Instant::NEVER, |timeout| started.plus(timeout.as_nanos() as u64));
        let mut until = deadline.min(started.plus(LOOK_NS));
        loop {
            let found = self.shared.wait_until(Some(until), |core| {
                let port = &mut *self.state.borrow_mut();
                port.take_in(core);
                if let Some(found) = ready(port, core) {
                    return Some(Found::It(found));
                }
                if port.outgoing.is_empty() {
                    return None;
                }
                port.now = self.shared.now();
                port.say_all(core).then_some(Found::Said)
            })?;
            match found {
                Some(Found::It(found)) => {
                    if !self.state.borrow().outgoing.is_empty() {
                        self.say()?;
                    }
                    return Ok(found);
                }
                Some(Found::Said) => self.shared.transmit(self.shared.now())?,
                None => {
                    let now = self.shared.now();
                    let core = &self.shared.inner.borrow().core;
                    if let (Some((held, limit)), false) = (core.exhausted(), core.is_assembling()) {
                        self.state.borrow_mut().tell_of_full_memory(held, limit);
                    }
                    if let (Some(timeout), true) = (timeout, now >= deadline) {
                        return Err(WaitError::TimedOut(timeout));
                    }
                    until = deadline.min(now.plus(LOOK_NS));
                }
            }
        }
    }

    fn say(&self) -> Result<(), RailError> {
        let said = self.with(|port, core| port.say_all(core));
        if said { self.shared.transmit(self.shared.now()) } else { Ok(()) }
    }
}

fn outcome(port: &mut PortState, request: Request) -> Result<Option<Completion>, WaitError> {
    match request.0 {
        Inner::Sent { status, ticket } => Ok(Some(Completion::sent(status, Some(ticket), None))),
        Inner::Numbered(number) => port.outcome(number).map_err(|()| WaitError::Unknown(request)),
    }
}
