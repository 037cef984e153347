//! Endpoints as those know them whom they belong and write to: domains, queues and counters.
//!
//! An endpoint tells queues and counters what has become of its operations, and they have it make progress. So they need each
//! other; this is all that the others need of it.

use crate::error::Trouble;
use crate::registry::Registered;
use std::cell::RefCell;
use std::ptr;
use std::rc::{Rc, Weak};

/// An endpoint.
pub(crate) trait Active {
    /// Takes in what has arrived, sends what may be sent, and tells who waits.
    fn progress(&self) -> Result<(), Trouble>;

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

    /// Lets peers reach memory through all of them; through none if one cannot.
    pub(crate) fn expose(&self, memory: &Registered) -> Result<(), i32> {
        let endpoints = self.all();
        for (at, endpoint) in endpoints.iter().enumerate() {
            if let Err(code) = endpoint.expose(memory) {
                endpoints[..at].iter().for_each(|exposed| exposed.hide(memory.key()));
                return Err(code);
            }
        }
        Ok(())
    }

    /// Peers reach memory no more.
    pub(crate) fn hide(&self, key: u64) {
        self.all().iter().for_each(|endpoint| endpoint.hide(key));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{FI_ENOKEY, FI_REMOTE_WRITE};
    use crate::registry::Registry;
    use std::cell::Cell;

    /// An endpoint through which peers reach one region.
    #[derive(Default)]
    struct Exposing {
        refuses: bool,
        exposed: Cell<Option<u64>>,
        hidden: Cell<u32>,
    }

    impl Active for Exposing {
        fn progress(&self) -> Result<(), Trouble> {
            Ok(())
        }

        fn expose(&self, memory: &Registered) -> Result<(), i32> {
            if self.refuses {
                return Err(FI_ENOKEY);
            }
            self.exposed.set(Some(memory.key()));
            Ok(())
        }

        fn hide(&self, key: u64) {
            assert_eq!(self.exposed.take(), Some(key));
            self.hidden.set(self.hidden.get() + 1);
        }
    }

    #[test]
    fn memory_is_reached_through_all_endpoints_or_none() {
        let word = 0u64;
        let registry = Registry::new(false);
        let memory = registry.register((&raw const word).cast(), 8, FI_REMOTE_WRITE, 7).unwrap();
        let made =
            [false, false, true, false].map(|refuses| Rc::new(Exposing { refuses, ..Exposing::default() }));
        let endpoints = Endpoints::default();
        let add = |made: &Rc<Exposing>| endpoints.add(Rc::downgrade(&(Rc::clone(made) as Rc<dyn Active>)));
        let reached = || made.each_ref().map(|made| made.exposed.get());
        made[..2].iter().for_each(add);
        assert_eq!(endpoints.expose(&memory), Ok(()));
        assert_eq!(reached(), [Some(7), Some(7), None, None]);
        endpoints.hide(7);
        assert_eq!(reached(), [None; 4]);
        made[2..].iter().for_each(add);
        assert_eq!(endpoints.expose(&memory), Err(FI_ENOKEY));
        assert_eq!(reached(), [None; 4]);
        assert_eq!(made.each_ref().map(|made| made.hidden.get()), [2, 2, 0, 0], "only where it was");
    }
}
