//! `FI_PROGRESS_AUTO`: a thread that makes progress with the endpoints of a domain while its owner computes.
//!
//! It sleeps until a descriptor of theirs is readable, holds the domain like any caller, and ends before the domain does.

use crate::abi::{FI_EOTHER, FI_LOG_DOMAIN, FI_LOG_WARN};
use crate::active::Endpoints;
use crate::host::say;
use crate::lock::Lock;
use crate::wait_set::WaitSet;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The thread, as long as this lives.
pub(crate) struct Assistant {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread sleeps on.
struct Watched {
    set: WaitSet,
    ended: AtomicBool,
}

/// What the thread uses of the domain, which outlives it.
struct Assisted {
    lock: NonNull<Lock>,
    endpoints: NonNull<Endpoints>,
}

// SAFETY: the thread enters the domain as every caller does, by its lock.
unsafe impl Send for Assisted {}

impl Assistant {
    /// Begins to assist the endpoints of a domain, which has this lock.
    ///
    /// # Safety
    /// The domain stays where it is until this is dropped.
    pub(crate) unsafe fn start(lock: &Lock, endpoints: &Endpoints) -> Result<Assistant, i32> {
        let set = WaitSet::new("a thread that makes progress with a domain")?;
        let watched = Arc::new(Watched { set, ended: AtomicBool::new(false) });
        let assisted = Assisted { lock: NonNull::from(lock), endpoints: NonNull::from(endpoints) };
        let shared = Arc::clone(&watched);
        let thread = std::thread::Builder::new().name("tsumugi-progress".to_owned()).spawn(move || {
            // All of it goes along, not only the pointers.
            let assisted = assisted;
            shared.assist(&assisted);
        });
        match thread {
            Ok(thread) => Ok(Assistant { watched, thread: Some(thread) }),
            Err(error) => {
                say!(FI_LOG_WARN, FI_LOG_DOMAIN, "no thread for progress: {error}; see `ulimit -u`");
                Err(error.raw_os_error().unwrap_or(FI_EOTHER))
            }
        }
    }

    /// Makes progress with an endpoint from now on, by its descriptor. Who closes that takes it out.
    pub(crate) fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), i32> {
        self.watched.set.add(descriptor)
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        self.watched.ended.store(true, Ordering::Release);
        self.watched.set.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn assist(&self, assisted: &Assisted) {
        while !self.ended.load(Ordering::Acquire) {
            self.set.sleep();
            if self.ended.load(Ordering::Acquire) {
                break;
            }
            // SAFETY: the domain waits for this thread before it ends.
            let (lock, endpoints) = unsafe { (assisted.lock.as_ref(), assisted.endpoints.as_ref()) };
            let _guard = lock.hold();
            for endpoint in endpoints.all() {
                // What is wrong is said to who reads a queue.
                let _ = endpoint.progress();
            }
        }
    }
}
