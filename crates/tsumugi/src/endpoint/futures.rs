//! How futures of the library wait for what arrives.
//!
//! A future looks, and if what it waits for is not there, leaves its waker with the endpoint. Whoever makes progress next and
//! finds that something has arrived, or was due, wakes every task that waits, and each looks again. What brings progress
//! about is the event loop that watches the endpoint's descriptor: tokio's, which the first future that waits under tokio
//! registers it with (feature `tokio`); or the application's own, which calls [`Endpoint::progress`]; or a call that waits,
//! as [`Endpoint::block_on`] does.

use super::Endpoint;
use super::core::Core;
use super::shared::Shared;
use super::tasks::Waiting;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tsumugi_rail::RailError;
use tsumugi_wire::Instant;

/// Looks of one poll of a future, before other tasks have their turn.
const LOOKS_PER_POLL: u32 = 16;

impl Shared {
    /// Looks whether `ready` has something, having made progress; if not, the task is woken when it may have.
    pub(crate) fn poll_until<T>(
        &self,
        context: &mut Context<'_>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Poll<Result<T, RailError>> {
        self.check_owner()?;
        if let Some(found) = ready(&mut self.inner.borrow_mut().core) {
            return Poll::Ready(Ok(found));
        }
        let waiting = self.tasks.waiting.get_or_init(Arc::default);
        for _ in 0..LOOKS_PER_POLL {
            self.progress()?;
            if let Some(found) = ready(&mut self.inner.borrow_mut().core) {
                return Poll::Ready(Ok(found));
            }
            // Before the descriptor is asked, so that nothing rings unheard in between.
            waiting.join(context.waker());
            if !self.has_rung(waiting) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the event loop says that there is something to look for; if not, it will wake those who wait.
    #[cfg(feature = "tokio")]
    fn has_rung(&self, waiting: &Arc<Waiting>) -> bool {
        let waker = Waker::from(Arc::clone(waiting));
        self.tasks.watch.has_rung(&mut Context::from_waker(&waker), || self.show_descriptor())
    }

    #[cfg(not(feature = "tokio"))]
    fn has_rung(&self, _: &Arc<Waiting>) -> bool {
        false
    }
}

impl Endpoint {
    /// Makes progress whenever something has arrived or is due, for ever: what ends it is an error. For a program whose tasks
    /// wait for other things, too: spawned, or joined with its work, it acknowledges and sends again meanwhile.
    pub async fn drive(&self) -> RailError {
        let forever = poll_fn(|context| self.shared.poll_until(context, |_| None::<Infallible>));
        match forever.await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Runs a future to its end, without a runtime: it is polled whenever something has arrived or is due, and the thread
    /// waits in between as [`Config::wait`](crate::Config::wait) says. So any futures of this endpoint can be waited for
    /// together, and for whichever is ready first.
    ///
    /// What wakes the future from another thread is noticed with the next arrival.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, RailError> {
        match self.run(future, None)? {
            Some(output) => Ok(output),
            None => unreachable!("there is no time that could be over"),
        }
    }

    /// As [`Endpoint::block_on`], but not longer than `timeout`: then `None`, and the future is dropped.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn block_on_timeout<T>(
        &self,
        future: impl Future<Output = T>,
        timeout: Duration,
    ) -> Result<Option<T>, RailError> {
        self.run(future, self.shared.deadline(timeout))
    }

    fn run<T>(
        &self,
        future: impl Future<Output = T>,
        deadline: Option<Instant>,
    ) -> Result<Option<T>, RailError> {
        let mut future = pin!(future);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        loop {
            if flag.0.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(Some(output));
            }
            if flag.0.load(Ordering::Acquire) {
                continue;
            }
            // The first look is the one that the future has had already.
            let mut has_news = false;
            let news =
                self.shared.wait_until(deadline, |_| std::mem::replace(&mut has_news, true).then_some(()))?;
            if news.is_none() {
                return Ok(None);
            }
        }
    }
}

/// Set when the future that a thread runs is to be polled.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
