//! What belongs to a domain is reached by one thread at a time.
//!
//! The library's endpoints hold [`Rc`](std::rc::Rc)s and belong to one thread. libfabric's objects are used by any. So every
//! object of a domain (endpoints, queues, counters, address vectors, regions) begins by naming the domain's [`Lock`],
//! and a function that the host calls [enters](enter) the object before it does anything else. That is sound because
//!
//! 1. whatever an object reaches is of its own domain, and nothing of a domain is reached from another, but for event
//!    queues, which have locks of their own;
//! 2. [`Entered`] holds the lock for as long as anybody has a reference to the object;
//! 3. nothing that the library keeps belongs to a thread: no endpoint remembers which thread has opened it, and what
//!    it keeps in thread-local storage (spare memory) may be given back to another thread than it was taken from.
//!
//! A caller that promises `FI_THREAD_DOMAIN` takes care itself that nobody else is in the domain. Then nothing is locked.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock of a domain.
pub(crate) struct Lock {
    mutex: Mutex<()>,
    /// The caller promises that nobody else is in the domain.
    promised: bool,
}

/// Nobody else is in the domain while this lives.
pub(crate) struct Guard<'a>(#[expect(dead_code, reason = "held, not looked at")] Option<MutexGuard<'a, ()>>);

impl Lock {
    pub(crate) fn new(promised: bool) -> Lock {
        Lock { mutex: Mutex::new(()), promised }
    }

    #[inline]
    pub(crate) fn hold(&self) -> Guard<'_> {
        // What a thread has left behind that panicked is as the caller sees it, and nobody can mend it.
        Guard((!self.promised).then(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// An object that the host has a pointer to.
pub(crate) trait Object {
    /// The lock of its domain.
    fn lock(&self) -> &Lock;
}

/// An object, with its domain held.
pub(crate) struct Entered<'a, T> {
    object: &'a T,
    _guard: Guard<'a>,
}

/// Enters the domain of an object that the caller has a pointer to.
///
/// # Safety
/// The pointer is to an object of this type that was opened and is not closed before this ends.
#[inline]
pub(crate) unsafe fn enter<'a, T: Object, F>(fid: *mut F) -> Entered<'a, T> {
    // SAFETY: as the caller promises. A fid is what the object begins with.
    let object = unsafe { &*fid.cast::<T>() };
    Entered { object, _guard: object.lock().hold() }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object
    }
}
