//! Sleeping until something has happened to a queue or a counter.
//!
//! What one sleeps on is an epoll descriptor that watches the descriptors of the endpoints that write to the queue, each readable
//! when [`progress`](tsumugi::Endpoint::progress) has something to do, and one of the queue's own for what others have put
//! there meanwhile. A queue that nobody sleeps on has none of it.

use crate::abi::*;
use crate::active::{Active, Endpoints};
use crate::error::Trouble;
use crate::host::say;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tsumugi_rail::RailError;

/// How long a call that blocks looks before it sleeps.
const LOOK_FOR: Duration = Duration::from_micros(20);

/// The endpoints that write to a queue or a counter, and what one sleeps on until they have.
#[derive(Default)]
pub(crate) struct Sources {
    endpoints: Endpoints,
    sleep: Option<Sleep>,
}

struct Sleep {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// The bell is rung already.
    rung: Cell<bool>,
    /// Somebody wants whoever sleeps to wake up.
    signalled: Cell<bool>,
    object: fi_wait_obj,
}

fn system(result: i32) -> Result<i32, i32> {
    if result < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(FI_EOTHER))
    } else {
        Ok(result)
    }
}

impl Sources {
    /// With the given object to sleep on. An error code if there is none such.
    pub(crate) fn new(object: fi_wait_obj) -> Result<Sources, i32> {
        let sleep = match object {
            FI_WAIT_NONE => None,
            FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => Some(Sleep::new(object).inspect_err(|&code| {
                let source = std::io::Error::from_raw_os_error(code);
                let (doing, on) = ("opening descriptors to sleep", "a queue or counter".to_owned());
                say!(FI_LOG_WARN, FI_LOG_CORE, "{}", RailError::System { doing, on, source });
            })?),
            _ => return Err(FI_ENOSYS),
        };
        Ok(Sources { endpoints: Endpoints::default(), sleep })
    }

    /// An endpoint writes here from now on. Its descriptor is asked for if somebody may sleep here.
    pub(crate) fn add(
        &self,
        endpoint: &Rc<dyn Active>,
        descriptor: impl Fn() -> Option<RawFd>,
    ) -> Result<(), i32> {
        if let Some(sleep) = &self.sleep
            && let Some(descriptor) = descriptor()
        {
            sleep.watch(descriptor)?;
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
            sleep.ring();
        }
    }

    /// Wakes whoever sleeps, now or the next time. `false`: nobody can.
    pub(crate) fn signal(&self) -> bool {
        if let Some(sleep) = &self.sleep {
            sleep.signalled.set(true);
            sleep.ring();
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
            let mut count = 0u64;
            // SAFETY: there is room for the number. That there is nothing to read does not matter.
            unsafe { libc::read(sleep.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }

    /// What to sleep on, if one can.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.sleep.as_ref().map(|sleep| sleep.epoll.as_raw_fd())
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

impl Sleep {
    fn new(object: fi_wait_obj) -> Result<Sleep, i32> {
        // SAFETY: descriptors that were just made and are nobody else's.
        let (epoll, bell) = unsafe {
            let epoll = OwnedFd::from_raw_fd(system(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            let bell = system(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            (epoll, OwnedFd::from_raw_fd(bell))
        };
        let sleep = Sleep { epoll, bell, rung: Cell::new(false), signalled: Cell::new(false), object };
        sleep.watch(sleep.bell.as_raw_fd())?;
        Ok(sleep)
    }

    fn watch(&self, descriptor: RawFd) -> Result<(), i32> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both are open. Who closes the other one takes it out of this one by that.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        };
        match system(done) {
            Ok(_) | Err(libc::EEXIST) => Ok(()),
            Err(code) => Err(code),
        }
    }

    fn ring(&self) {
        let one = 1u64;
        // SAFETY: the number is there. A counter that is full is rung.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
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
        // SAFETY: one descriptor, which its owner keeps open while it is used. A signal only makes us look again.
        unsafe { libc::poll(&raw mut watched, 1, left) };
    }
}
