//! `FI_PROGRESS_AUTO`: a thread that makes progress with the endpoints of a domain while its owner computes.
//!
//! It sleeps until a descriptor of theirs is readable, holds the domain like any caller, and ends before the domain does.

use crate::abi::{FI_EOTHER, FI_LOG_DOMAIN, FI_LOG_WARN};
use crate::active::Endpoints;
use crate::host::say;
use crate::lock::Lock;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tsumugi_rail::RailError;

/// The thread, as long as this lives.
pub(crate) struct Assistant {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread sleeps on.
struct Watched {
    epoll: OwnedFd,
    bell: OwnedFd,
    ended: AtomicBool,
}

/// What the thread uses of the domain, which outlives it.
struct Assisted {
    lock: NonNull<Lock>,
    endpoints: NonNull<Endpoints>,
}

// SAFETY: the thread enters the domain as every caller does, by its lock.
unsafe impl Send for Assisted {}

fn owned(descriptor: i32) -> Result<OwnedFd, i32> {
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(FI_EOTHER));
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Assistant {
    /// Begins to assist the endpoints of a domain, which has this lock.
    ///
    /// # Safety
    /// The domain stays where it is until this is dropped.
    pub(crate) unsafe fn start(lock: &Lock, endpoints: &Endpoints) -> Result<Assistant, i32> {
        let watched = Watched::new().inspect_err(|&code| {
            let source = std::io::Error::from_raw_os_error(code);
            let (doing, on) = ("opening descriptors for a thread that makes progress", "a domain".to_owned());
            say!(FI_LOG_WARN, FI_LOG_DOMAIN, "{}", RailError::System { doing, on, source });
        })?;
        let watched = Arc::new(watched);
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
    pub(crate) fn watch(&self, descriptor: RawFd) -> Result<(), i32> {
        self.watched.add(descriptor)
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        self.watched.ended.store(true, Ordering::Release);
        let one = 1u64;
        // SAFETY: the number is there.
        unsafe { libc::write(self.watched.bell.as_raw_fd(), (&raw const one).cast(), 8) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn new() -> Result<Watched, i32> {
        // SAFETY: they take no pointers.
        let (epoll, bell) = unsafe {
            (owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?, owned(libc::eventfd(0, libc::EFD_CLOEXEC))?)
        };
        let watched = Watched { epoll, bell, ended: AtomicBool::new(false) };
        watched.add(watched.bell.as_raw_fd())?;
        Ok(watched)
    }

    fn add(&self, descriptor: RawFd) -> Result<(), i32> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both are open.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        };
        if done < 0 {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(FI_EOTHER))
        } else {
            Ok(())
        }
    }

    fn assist(&self, assisted: &Assisted) {
        while !self.ended.load(Ordering::Acquire) {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for one.
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, -1) };
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
