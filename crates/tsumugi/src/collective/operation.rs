//! Operations that were started: testing, waiting, awaiting.

use super::error::CollectiveError;
use super::state::{Output, State};
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// Who waits for so long tells the others what it waits for, ns.
const INQUIRE_NS: u64 = 250 * MILLISECOND_NS;

/// An operation that was started, by which to ask for its result.
///
/// The result is given out once; then the operation is spent. Whoever does not want to know drops it: the operation goes on in the
/// calls of its group, because the others need it, and its result is thrown away.
///
/// It is a future, too: `operation.await` is [`Operation::wait`] for tasks. See [the crate](crate#tasks) for how tasks are woken.
pub struct Operation<T> {
    state: Rc<RefCell<State>>,
    sequence: u64,
    /// Its result was given out, or is an error that was.
    is_spent: bool,
    /// When it was started.
    since: Instant,
    convert: fn(Output) -> T,
}

impl<T> Operation<T> {
    pub(super) fn new(state: &Rc<RefCell<State>>, sequence: u64, convert: fn(Output) -> T) -> Operation<T> {
        let since = state.borrow().channel.shared.now();
        Operation { state: Rc::clone(state), sequence, is_spent: false, since, convert }
    }

    /// The operation's number in its group, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The result, if the operation is complete; `None` when it goes on. Makes progress.
    ///
    /// # Errors
    /// The group is broken, the result was given out already, or the NIC is broken.
    pub fn test(&mut self) -> Result<Option<T>, CollectiveError> {
        if let Some(output) = self.outcome()? {
            return Ok(Some((self.convert)(output)));
        }
        progress(&self.state)?;
        if let Some(output) = self.outcome()? {
            return Ok(Some((self.convert)(output)));
        }
        self.inquire_if_long()?;
        Ok(None)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The group is broken, the result was given out already, or the NIC is broken.
    pub fn wait(&mut self) -> Result<T, CollectiveError> {
        Ok((self.convert)(self.wait_for_output(None)?))
    }

    /// As [`Operation::wait`], but no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Operation::wait`]; [`CollectiveError::TimedOut`] when the time is over. The operation goes on.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<T, CollectiveError> {
        Ok((self.convert)(self.wait_for_output(Some(timeout))?))
    }

    /// What has become of it, if it is over: then it is spent.
    fn outcome(&mut self) -> Result<Option<Output>, CollectiveError> {
        if self.is_spent {
            return Err(CollectiveError::Spent);
        }
        let outcome = self.state.borrow_mut().outcome(self.sequence);
        self.is_spent = !matches!(outcome, Ok(None));
        outcome
    }

    pub(super) fn wait_for_output(&mut self, timeout: Option<Duration>) -> Result<Output, CollectiveError> {
        let shared = Rc::clone(&self.state.borrow().channel.shared);
        let deadline = timeout.and_then(|timeout| shared.deadline(timeout)).unwrap_or(Instant::NEVER);
        self.output_until(deadline)?.ok_or(CollectiveError::TimedOut(timeout.unwrap_or_default()))
    }

    /// As [`Operation::wait`], but no longer than until `deadline`: then `None`.
    pub(super) fn wait_until(&mut self, deadline: Instant) -> Result<Option<T>, CollectiveError> {
        Ok(self.output_until(deadline)?.map(self.convert))
    }

    fn output_until(&mut self, deadline: Instant) -> Result<Option<Output>, CollectiveError> {
        let shared = Rc::clone(&self.state.borrow().channel.shared);
        let mut until = deadline.min(shared.now().plus(INQUIRE_NS));
        loop {
            if let Some(output) = self.outcome()? {
                return Ok(Some(output));
            }
            let state = &self.state;
            shared.wait_until(Some(until), |core| state.borrow().has_news(core).then_some(()))?;
            self.state.borrow_mut().take_in()?;
            // What always arrives must not keep a caller whose result does not.
            let now = shared.now();
            if now >= deadline {
                let output = self.outcome()?;
                if output.is_none() {
                    // Who waits for short times, again and again, waits for long.
                    self.inquire_if_long()?;
                }
                return Ok(output);
            }
            if now >= until {
                self.state.borrow_mut().inquire(true)?;
                until = deadline.min(now.plus(INQUIRE_NS));
            }
        }
    }

    /// Asks those whom the group waits for once this has taken long, and at once those who have never said anything.
    fn inquire_if_long(&self) -> Result<(), CollectiveError> {
        let mut state = self.state.borrow_mut();
        let is_long = state.channel.shared.now() >= self.since.plus(INQUIRE_NS);
        Ok(state.inquire(is_long)?)
    }
}

/// Makes progress with everything of a group.
pub(super) fn progress(state: &Rc<RefCell<State>>) -> Result<(), CollectiveError> {
    let shared = Rc::clone(&state.borrow().channel.shared);
    shared.progress()?;
    state.borrow_mut().take_in()?;
    Ok(())
}

impl<T> Future for Operation<T> {
    type Output = Result<T, CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let operation = self.get_mut();
        let shared = Rc::clone(&operation.state.borrow().channel.shared);
        loop {
            if let Some(output) = operation.outcome()? {
                return Poll::Ready(Ok((operation.convert)(output)));
            }
            // Nobody wakes us only to ask later.
            operation.inquire_if_long()?;
            let state = &operation.state;
            ready!(shared.poll_until(context, |core| state.borrow().has_news(core).then_some(())))?;
            operation.state.borrow_mut().take_in()?;
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        if !self.is_spent {
            self.state.borrow_mut().let_go(self.sequence);
        }
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}
