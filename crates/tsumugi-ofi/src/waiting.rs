//! Sleeping until something has happened to a queue or a counter.
//!
//! What one sleeps on is an epoll descriptor that watches the descriptors of the endpoints that write to the queue, each readable
//! when [`progress`](tsumugi::Endpoint::progress) has something to do, and one of the queue's own for what others have put
//! there meanwhile. A queue that nobody sleeps on has none of it.

use crate::abi::*;
use crate::active::{Active, Endpoints};
use crate::error::Trouble;
use crate::wait_set::WaitSet;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a call that blocks looks before it sleeps.
const LOOK_FOR: Duration = Duration::from_micros(20);

/// The endpoints that write to a queue or a counter, and what one sleeps on until they have.
#[derive(Default)]
pub(crate) struct Sources {
    endpoints: Endpoints,
    sleep: Option<Sleep>,
}

struct Sleep {
    set: WaitSet,
    /// The bell is rung already.
    rung: Cell<bool>,
    /// Somebody wants whoever sleeps to wake up.
    signalled: Cell<bool>,
    object: fi_wait_obj,
}

impl Sources {
    /// With the given object to sleep on. An error code if there is none such.
    pub(crate) fn new(object: fi_wait_obj) -> Result<Sources, i32> {
        let sleep = match object {
            FI_WAIT_NONE => None,
            FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => {
                let set = WaitSet::new("a queue or counter")?;
                Some(Sleep { set, rung: Cell::new(false), signalled: Cell::new(false), object })
            }
            _ => return Err(FI_ENOSYS),
        };
        Ok(Sources { endpoints: Endpoints::default(), sleep })
    }

    /// An endpoint writes here from now on. Its descriptor is asked for if somebody may sleep here.
    pub(crate) fn add<'a>(
        &self,
        endpoint: &Rc<dyn Active>,
        descriptor: impl Fn() -> Option<BorrowedFd<'a>>,
    ) -> Result<(), i32> {
        if let Some(sleep) = &self.sleep
            && let Some(descriptor) = descriptor()
        {
            sleep.set.add(descriptor)?;
        }
        if !self.endpoints.contains(endpoint.as_ref()) {
            self.endpoints.add(Rc::downgrade(endpoint));
        }
        Ok(())
    }

    /// Makes progress with all of them.
    #[inline]
    pub(crate) fn progress(&self) -> Result<(), Trouble> {
        self.endpoints.progress()
    }

    /// Something has happened.
    #[inline]
    pub(crate) fn ring(&self) {
        if let Some(sleep) = &self.sleep
            && !sleep.rung.replace(true)
        {
            sleep.set.ring();
        }
    }

    /// Wakes whoever sleeps, now or the next time. `false`: nobody can.
    pub(crate) fn signal(&self) -> bool {
        if let Some(sleep) = &self.sleep {
            sleep.signalled.set(true);
            sleep.set.ring();
        }
        self.sleep.is_some()
    }

    /// Whether somebody was to be woken up, once.
    pub(crate) fn take_signal(&self) -> bool {
        self.sleep.as_ref().is_some_and(|sleep| sleep.signalled.replace(false))
    }

    /// Forgets what has happened, for there is nothing left of it: one may sleep.
    pub(crate) fn quieten(&self) {
        if let Some(sleep) = &self.sleep
            && sleep.rung.replace(false)
        {
            sleep.set.quieten();
        }
    }

    /// What to sleep on, if one can.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.sleep.as_ref().map(|sleep| sleep.set.as_fd().as_raw_fd())
    }

    /// What sort of object the caller sleeps on.
    fn object(&self) -> fi_wait_obj {
        match &self.sleep {
            None => FI_WAIT_NONE,
            Some(Sleep { object: FI_WAIT_UNSPEC, .. }) => FI_WAIT_FD,
            Some(sleep) => sleep.object,
        }
    }

    /// What the caller is told of what it sleeps on, if it asks for that by `fi_control(3)`.
    ///
    /// # Safety
    /// The argument is what the command says.
    pub(crate) unsafe fn control(&self, command: c_int, arg: *mut c_void) -> c_int {
        match command {
            FI_GETWAIT => match self.descriptor() {
                Some(descriptor) if !arg.is_null() => {
                    // SAFETY: as the caller promises.
                    unsafe { *arg.cast::<c_int>() = descriptor };
                    FI_SUCCESS
                }
                Some(_) => -FI_EINVAL,
                None => -FI_ENODATA,
            },
            FI_GETWAITOBJ => {
                // SAFETY: as the caller promises.
                unsafe { *arg.cast::<fi_wait_obj>() = self.object() };
                FI_SUCCESS
            }
            _ => -FI_ENOSYS,
        }
    }
}

/// A call that blocks: looks for a while, then sleeps, until there is an answer or the time is over.
///
/// `look` enters the domain each time, so that others can while this one sleeps; it says what to sleep on when it has found nothing.
pub(crate) fn block<T>(timeout_ms: i32, mut look: impl FnMut() -> Result<T, RawFd>) -> Option<T> {
    let begun = Instant::now();
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    loop {
        let descriptor = match look() {
            Ok(found) => return Some(found),
            Err(descriptor) => descriptor,
        };
        let elapsed = begun.elapsed();
        if limit.is_some_and(|limit| elapsed >= limit) {
            return None;
        }
        if elapsed < LOOK_FOR {
            std::hint::spin_loop();
            continue;
        }
        // Rounded up, so that the last look is behind the end.
        let left = limit.map_or(-1, |limit| (limit - elapsed).as_micros().div_ceil(1000) as i32);
        let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // Through libc, for the descriptor is a number here: it cannot be borrowed from a queue that is not held meanwhile.
        // SAFETY: one descriptor, which its owner keeps open while it is used. A signal only makes us look again.
        unsafe { libc::poll(&raw mut watched, 1, left) };
    }
}
