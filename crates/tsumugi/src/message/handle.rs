//! What a caller holds of a send or a receive, and what becomes of those when it lets go.

use super::port_state::PortState;
use super::request::{Completion, Status, WaitError};
use crate::Ticket;
use crate::endpoint::core::Core;
use crate::endpoint::shared::Shared;
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

/// A send or a receive that was begun, by which to ask what has become of it.
///
/// Its completion is given out once; then the request is spent. Whoever does not want to know drops it: a send goes on by
/// itself, a receive that no message has matched is cancelled, and the message that one has matched is thrown away.
///
/// It is a future, too: `request.await` is [`Port::wait`](super::Port::wait) for tasks, and `(&mut request).await` what may be
/// given up and tried again. See [the crate](crate#tasks) for how tasks are woken.
pub struct Request(pub(super) Inner);

pub(super) enum Inner {
    /// A send that was complete at once.
    Sent { status: Status, ticket: Ticket },
    /// Anything else.
    Begun(Hold),
    /// The completion was given out.
    Spent,
}

impl Request {
    /// Whether its completion was given out.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        matches!(self.0, Inner::Spent)
    }

    /// What has become of it, if it is complete: then it is spent.
    pub(super) fn outcome(&mut self, port: &mut PortState) -> Result<Option<Completion>, WaitError> {
        let Inner::Begun(hold) = &mut self.0 else { return self.outcome_at_once().map(Some) };
        let completion = port.outcome(hold.number).map_err(|()| WaitError::Spent)?;
        if completion.is_some() {
            hold.is_released = true;
            self.0 = Inner::Spent;
        }
        Ok(completion)
    }

    /// The same of one that needs no port.
    pub(super) fn outcome_at_once(&mut self) -> Result<Completion, WaitError> {
        match std::mem::replace(&mut self.0, Inner::Spent) {
            Inner::Sent { status, ticket } => Ok(Completion::sent(status, Some(ticket), None)),
            Inner::Begun(_) | Inner::Spent => Err(WaitError::Spent),
        }
    }

    /// Whether [`Request::outcome`] would say something.
    pub(super) fn is_over(&self, port: &PortState) -> bool {
        match &self.0 {
            Inner::Begun(hold) => port.is_over(hold.number),
            Inner::Sent { .. } | Inner::Spent => true,
        }
    }

    /// Whether it is of this port, as far as it matters.
    pub(super) fn is_of(&self, port: &Rc<RefCell<PortState>>) -> bool {
        match &self.0 {
            Inner::Begun(hold) => Rc::ptr_eq(&hold.state, port),
            Inner::Sent { .. } | Inner::Spent => true,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Sent { status, .. } => f.debug_tuple("Sent").field(status).finish(),
            Inner::Begun(hold) => f.debug_tuple("Begun").field(&hold.number).finish(),
            Inner::Spent => f.write_str("Spent"),
        }
    }
}

/// A request's hold on its entry in the port, or a claim's on its message.
pub(super) struct Hold {
    pub(super) number: u64,
    /// The port has nothing more of it.
    pub(super) is_released: bool,
    /// Weak, so that a forgotten request keeps no endpoint alive.
    pub(super) shared: Weak<Shared>,
    pub(super) state: Rc<RefCell<PortState>>,
    /// What becomes of the entry when the hold is dropped before it is released.
    let_go: fn(&mut PortState, &mut Core, u64),
}

impl Hold {
    pub(super) fn new(
        shared: &Rc<Shared>,
        state: &Rc<RefCell<PortState>>,
        number: u64,
        let_go: fn(&mut PortState, &mut Core, u64),
    ) -> Hold {
        let (shared, state) = (Rc::downgrade(shared), Rc::clone(state));
        Hold { number, is_released: false, shared, state, let_go }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_released
            && let Some(shared) = self.shared.upgrade()
        {
            (self.let_go)(&mut self.state.borrow_mut(), &mut shared.inner.borrow_mut().core, self.number);
        }
    }
}

/// Names a request whose completion comes in the port's [list](super::Port::next_completion), under the number that its
/// caller has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listed(pub(super) u64);
