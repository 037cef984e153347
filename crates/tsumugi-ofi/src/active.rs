//! Endpoints as those know them whom they belong and write to: domains, queues and counters.
//!
//! An endpoint tells queues and counters what has become of its operations, and they have it make progress. So they need each
//! other; this is all that the others need of it.

use crate::error::Trouble;
use crate::registry::Registered;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::ptr;
use std::rc::{Rc, Weak};

/// An endpoint.
pub(crate) trait Active {
    /// Takes in what has arrived, sends what may be sent, and tells who waits.
    fn progress(&self) -> Result<(), Trouble>;

    /// Readable when there is progress to make. An endpoint whose descriptor was asked for sets a timer with each call.
    fn descriptor(&self) -> Option<RawFd>;

    /// Lets peers reach memory.
    fn expose(&self, memory: &Registered) -> Result<(), i32>;

    /// Peers reach memory no more.
    fn hide(&self, key: u64);
}

/// Some endpoints, as long as they are open.
#[derive(Default)]
pub(crate) struct Endpoints(RefCell<Vec<Weak<dyn Active>>>);

impl Endpoints {
    pub(crate) fn add(&self, endpoint: Weak<dyn Active>) {
        let mut endpoints = self.0.borrow_mut();
        endpoints.retain(|known| known.strong_count() > 0);
        endpoints.push(endpoint);
    }

    pub(crate) fn remove(&self, endpoint: &dyn Active) {
        self.0.borrow_mut().retain(|known| !ptr::addr_eq(known.as_ptr(), endpoint));
    }

    pub(crate) fn contains(&self, endpoint: &dyn Active) -> bool {
        self.0.borrow().iter().any(|known| ptr::addr_eq(known.as_ptr(), endpoint))
    }

    pub(crate) fn all(&self) -> Vec<Rc<dyn Active>> {
        self.0.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes progress with all of them.
    #[inline]
    pub(crate) fn progress(&self) -> Result<(), Trouble> {
        let endpoints = self.0.borrow();
        for endpoint in endpoints.iter() {
            if let Some(endpoint) = endpoint.upgrade() {
                endpoint.progress()?;
            }
        }
        Ok(())
    }
}
