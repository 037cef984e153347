//! Testing and waiting: how a port makes progress.

use super::handle::Inner;
use super::header::HEADER_BYTES_MAX;
use super::port_state::PortState;
use super::request::{Completion, Envelope, WaitError};
use super::{Claim, Pattern, Port, Request};
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::shared::Shared;
use crate::error::SendError;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
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
    pub fn progress(&self) -> Result<(), RailError> {
        self.shared.progress()?;
        self.catch_up()
    }

    /// What [`Port::progress`] does behind the endpoint's [progress](crate::Endpoint::progress): for who has several ports of one
    /// endpoint.
    ///
    /// # Errors
    /// The NIC is broken.
    #[inline]
    pub fn catch_up(&self) -> Result<(), RailError> {
        let said = self.with(|port, core| {
            port.take_in(core);
            port.say_all(core)
        });
        if said { self.shared.transmit(self.shared.now()) } else { Ok(()) }
    }

    /// What has become of a request; `None` when it goes on. With its completion it is spent.
    ///
    /// # Errors
    /// It is spent, or the NIC is broken.
    pub fn test(&self, request: &mut Request) -> Result<Option<Completion>, WaitError> {
        self.check(std::slice::from_ref(request))?;
        if let Some(completion) = request.outcome(&mut self.state.borrow_mut())? {
            return Ok(Some(completion));
        }
        self.progress()?;
        request.outcome(&mut self.state.borrow_mut())
    }

    /// Waits until a request is complete; then it is spent. With an error it goes on, and can be waited for again.
    ///
    /// # Errors
    /// It is spent, or the NIC is broken.
    pub fn wait(&self, request: &mut Request) -> Result<Completion, WaitError> {
        self.wait_one(None, request)
    }

    /// As [`Port::wait`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait`]; [`WaitError::TimedOut`] when the time is over.
    pub fn wait_timeout(&self, request: &mut Request, timeout: Duration) -> Result<Completion, WaitError> {
        self.wait_one(Some(timeout), request)
    }

    fn wait_one(&self, timeout: Option<Duration>, request: &mut Request) -> Result<Completion, WaitError> {
        self.check(std::slice::from_ref(request))?;
        self.wait_for(timeout, |port, _| request.outcome(port).transpose())?
    }

    /// Waits until one of several requests is complete, and says which. Spent ones are passed over, so that calling it again and
    /// again gives each completion once.
    ///
    /// # Errors
    /// As [`Port::wait`]; [`WaitError::Nothing`] when there are none, or all are spent.
    pub fn wait_any(&self, requests: &mut [Request]) -> Result<(usize, Completion), WaitError> {
        self.wait_first(None, requests)
    }

    /// As [`Port::wait_any`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait_any`]; [`WaitError::TimedOut`] when the time is over.
    pub fn wait_any_timeout(
        &self,
        requests: &mut [Request],
        timeout: Duration,
    ) -> Result<(usize, Completion), WaitError> {
        self.wait_first(Some(timeout), requests)
    }

    fn wait_first(
        &self,
        timeout: Option<Duration>,
        requests: &mut [Request],
    ) -> Result<(usize, Completion), WaitError> {
        self.check(requests)?;
        if requests.iter().all(Request::is_spent) {
            return Err(WaitError::Nothing);
        }
        let mut seen = None;
        self.wait_for(timeout, |port, _| {
            if seen.replace(port.completed) == Some(port.completed) {
                return None;
            }
            let open = requests.iter_mut().enumerate().filter(|(_, request)| !request.is_spent());
            let complete = |(at, request): (usize, &mut Request)| match request.outcome(port).transpose()? {
                Ok(completion) => Some(Ok((at, completion))),
                Err(error) => Some(Err(error)),
            };
            open.into_iter().find_map(complete)
        })?
    }

    /// Waits until all of several requests are complete; the completions are in their order, and the requests are spent.
    ///
    /// # Errors
    /// As [`Port::wait`]. Then none of the requests is spent that was not before: nothing is lost, and all of them can be
    /// waited for again.
    pub fn wait_all(&self, requests: &mut [Request]) -> Result<Vec<Completion>, WaitError> {
        self.wait_each(None, requests)
    }

    /// As [`Port::wait_all`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait_all`]; [`WaitError::TimedOut`] when the time is over.
    pub fn wait_all_timeout(
        &self,
        requests: &mut [Request],
        timeout: Duration,
    ) -> Result<Vec<Completion>, WaitError> {
        self.wait_each(Some(timeout), requests)
    }

    fn wait_each(
        &self,
        timeout: Option<Duration>,
        requests: &mut [Request],
    ) -> Result<Vec<Completion>, WaitError> {
        self.check(requests)?;
        if requests.iter().any(Request::is_spent) {
            return Err(WaitError::Spent);
        }
        // How many of the first are known to be complete, so that each is asked about once after it is.
        let mut over = 0;
        self.wait_for(timeout, |port, _| {
            over += requests[over..].iter().take_while(|request| request.is_over(port)).count();
            (over == requests.len()).then_some(())
        })?;
        let port = &mut *self.state.borrow_mut();
        let completions = requests.iter_mut().map(|request| request.outcome(port)?.ok_or(WaitError::Spent));
        completions.collect()
    }

    /// Whether requests are this port's.
    fn check(&self, requests: &[Request]) -> Result<(), WaitError> {
        if requests.iter().all(|request| request.is_of(&self.state)) {
            Ok(())
        } else {
            Err(WaitError::OtherPort)
        }
    }

    /// Waits until a message waits that fits the pattern.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn wait_probe(&self, pattern: Pattern) -> Result<Claim, WaitError> {
        self.wait_claim(None, pattern)
    }

    /// As [`Port::wait_probe`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait_probe`]; [`WaitError::TimedOut`] when the time is over.
    pub fn wait_probe_timeout(&self, pattern: Pattern, timeout: Duration) -> Result<Claim, WaitError> {
        self.wait_claim(Some(timeout), pattern)
    }

    fn wait_claim(&self, timeout: Option<Duration>, pattern: Pattern) -> Result<Claim, WaitError> {
        let (key, status) = self.wait_for(timeout, |port, core| port.claim(core, &pattern))?;
        Ok(Claim::new(self, key, status))
    }

    /// Waits until a message of `bytes` would be accepted for `peer`.
    ///
    /// # Errors
    /// Why it would not be accepted ever, or the NIC is broken.
    pub fn wait_for_room(&self, peer: PeerId, bytes: usize) -> Result<(), SendError> {
        self.wait_for_room_by(None, peer, bytes)
    }

    /// As [`Port::wait_for_room`], but not longer than `timeout`.
    ///
    /// # Errors
    /// As [`Port::wait_for_room`]; [`SendError::TimedOut`] when the time is over.
    pub fn wait_for_room_timeout(
        &self,
        peer: PeerId,
        bytes: usize,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.wait_for_room_by(Some(timeout), peer, bytes)
    }

    fn wait_for_room_by(
        &self,
        timeout: Option<Duration>,
        peer: PeerId,
        bytes: usize,
    ) -> Result<(), SendError> {
        let is_offered = self.header(Envelope::default(), bytes).is_none();
        let found = self.wait_for(timeout, |port, core| {
            let room = match is_offered {
                true => port.may_offer(core, peer, bytes as u64),
                false => core.may_post(peer, (bytes + HEADER_BYTES_MAX) as u64),
            };
            (!matches!(room, Err(SendError::WouldBlock))).then_some(room)
        });
        match found {
            Ok(outcome) => outcome,
            Err(WaitError::Rail(error)) => Err(error.into()),
            Err(WaitError::TimedOut(timeout)) => Err(SendError::TimedOut(timeout)),
            Err(_) => Err(SendError::WouldBlock),
        }
    }

    /// Makes progress until `ready` says so.
    fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut PortState, &mut Core) -> Option<T>,
    ) -> Result<T, WaitError> {
        let Port { shared, state, .. } = self;
        let started = shared.now();
        let deadline = timeout.map_or(Instant::NEVER, |timeout| started.plus(timeout.as_nanos() as u64));
        let mut until = deadline.min(started.plus(LOOK_NS));
        loop {
            let found = shared
                .wait_until(Some(until), |core| look(shared, &mut state.borrow_mut(), core, &mut ready))?;
            match found {
                Some(Found::It(found)) => {
                    say(shared, state)?;
                    return Ok(found);
                }
                Some(Found::Said) => shared.transmit(shared.now())?,
                None => {
                    let now = shared.now();
                    let core = &shared.inner.borrow().core;
                    if let (Some((held, limit)), false) = (core.exhausted(), core.is_assembling()) {
                        state.borrow_mut().tell_of_full_memory(held, limit);
                    }
                    if let (Some(timeout), true) = (timeout, now >= deadline) {
                        return Err(WaitError::TimedOut(timeout));
                    }
                    until = deadline.min(now.plus(LOOK_NS));
                }
            }
        }
    }
}

/// What a look has found.
enum Found<T> {
    It(T),
    /// Something was said that should leave.
    Said,
}

/// Takes in what has arrived, and looks whether it is what is waited for.
fn look<T>(
    shared: &Shared,
    port: &mut PortState,
    core: &mut Core,
    ready: &mut impl FnMut(&mut PortState, &mut Core) -> Option<T>,
) -> Option<Found<T>> {
    port.take_in(core);
    if let Some(found) = ready(port, core) {
        return Some(Found::It(found));
    }
    if port.outgoing.is_empty() {
        return None;
    }
    port.now = shared.now();
    port.say_all(core).then_some(Found::Said)
}

/// Has what a port has to say leave.
fn say(shared: &Shared, state: &RefCell<PortState>) -> Result<(), RailError> {
    let said = {
        let mut port = state.borrow_mut();
        if port.outgoing.is_empty() {
            return Ok(());
        }
        port.now = shared.now();
        port.say_all(&mut shared.inner.borrow_mut().core)
    };
    if said { shared.transmit(shared.now()) } else { Ok(()) }
}

impl Future for Request {
    type Output = Result<Completion, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let request = self.get_mut();
        let Inner::Begun(hold) = &request.0 else { return Poll::Ready(request.outcome_at_once()) };
        let Some(shared) = hold.shared.upgrade() else { return Poll::Ready(Err(WaitError::Spent)) };
        let state = Rc::clone(&hold.state);
        loop {
            let mut ready = |port: &mut PortState, _: &mut Core| request.outcome(port).transpose();
            let found =
                ready!(shared.poll_until(context, |core| {
                    look(&shared, &mut state.borrow_mut(), core, &mut ready)
                }));
            match found? {
                Found::It(completion) => {
                    say(&shared, &state)?;
                    return Poll::Ready(completion);
                }
                Found::Said => shared.transmit(shared.now())?,
            }
        }
    }
}
