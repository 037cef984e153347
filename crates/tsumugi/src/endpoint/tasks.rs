//! The tasks that wait for an endpoint, and how they are woken.

#[cfg(feature = "tokio")]
use super::watch::Watch;
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The tasks that wait for an endpoint.
#[derive(Default)]
pub(super) struct Tasks {
    /// There is none as long as no future has waited.
    pub(super) waiting: OnceCell<Arc<Waiting>>,
    #[cfg(feature = "tokio")]
    pub(super) watch: Watch,
}

/// Whoever waits. An event loop may wake them from a thread of its own.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    pub(super) fn join(&self, waker: &Waker) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Woken without the lock: a waker may do anything, drop a task and its endpoint for example.
        let woken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Tasks {
    /// Whether a future has ever waited.
    #[inline]
    pub(super) fn are_used(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Something has arrived, or was due. Not while the endpoint's state is borrowed.
    #[inline]
    pub(super) fn wake(&self) {
        if let Some(waiting) = self.waiting.get() {
            waiting.wake_by_ref();
        }
    }
}
