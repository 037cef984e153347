//! Event queues, `fi_eq(3)`: what callers write to them, which addresses were inserted, and which could not be.

use crate::abi::*;
use crate::error::negative;
use crate::fabric::OfFabric;
use crate::host::host;
use crate::object::{Head, Table, functions, give, head, put_text};
use crate::waiting::{self, Sources};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most events that wait to be read; more are an error of who writes them.
const EVENTS_MAX: usize = 1 << 16;

/// An event queue. It belongs to a fabric, so threads of all its domains use it: it has a lock of its own. What is bound to it
/// holds it, too.
#[repr(C)]
pub(crate) struct Events {
    fid: Head<fid_eq>,
    _fabric: OfFabric,
    writable: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    events: VecDeque<Event>,
    sources: Sources,
}

/// What waits to be read.
enum Event {
    /// Its number, and what it says.
    Told(u32, Vec<u8>),
    Failed(Failed),
}

/// Something that was to happen later, and did not.
pub(crate) struct Failed {
    pub(crate) fid: fid_t,
    pub(crate) context: *mut c_void,
    /// Which of several.
    pub(crate) index: u64,
    pub(crate) code: c_int,
}

// SAFETY: no endpoint writes here, so `sources` holds descriptors and flags only, which the lock is around; pointers in
// `events` are the callers', and are only handed back to them; and the fabric counts what belongs to it atomically.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

static FUNCTIONS: Table<fi_ops> = functions(close, None, Some(control));
static EVENTS: Table<fi_ops_eq> = Table::new(fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
});

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    events: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call; the attributes are the caller's.
    let attr = unsafe { attr.as_ref() };
    let sources = match Sources::new(attr.map_or(FI_WAIT_NONE, |attr| attr.wait_obj)) {
        Ok(sources) => sources,
        Err(code) => return -code,
    };
    let made = Arc::new(Events {
        fid: Head::new(fid_eq { fid: head(FI_CLASS_EQ, context, &FUNCTIONS), ops: EVENTS.get() }),
        // SAFETY: the host's call.
        _fabric: unsafe { OfFabric::new(fabric) },
        writable: attr.is_some_and(|attr| attr.flags & FI_WRITE != 0),
        inner: Mutex::new(Inner { events: VecDeque::new(), sources }),
    });
    // SAFETY: the caller wants it there.
    unsafe { give(events, Arc::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: it was given to the caller as this pointer, which is given back.
    let events = unsafe { Arc::from_raw(fid.cast::<Events>().cast_const()) };
    match Arc::try_unwrap(events) {
        Ok(events) => {
            drop(events);
            FI_SUCCESS
        }
        Err(events) => {
            // The caller keeps it.
            let _ = Arc::into_raw(events);
            -FI_EBUSY
        }
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the host's call.
    let inner = unsafe { (*fid.cast::<Events>()).hold() };
    // SAFETY: the host's call; the command says what the argument is.
    unsafe { inner.sources.control(command, arg) }
}

impl Events {
    /// Another hold on an event queue that the caller has a pointer to.
    ///
    /// # Safety
    /// The pointer is to an open event queue of ours.
    pub(crate) unsafe fn shared(fid: *mut fid) -> Arc<Events> {
        let events = fid.cast::<Events>().cast_const();
        // SAFETY: as the caller promises; the caller's own hold stays.
        unsafe {
            Arc::increment_strong_count(events);
            Arc::from_raw(events)
        }
    }

    fn hold(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object has something to tell.
    pub(crate) fn tell(&self, event: u32, entry: fi_eq_entry) {
        // SAFETY: plain numbers.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of_val(&entry)) };
        self.hold().put(Event::Told(event, bytes.to_vec()));
    }

    /// What an object was to do was not done.
    pub(crate) fn fail(&self, failed: Failed) {
        self.hold().put(Event::Failed(failed));
    }
}

impl Inner {
    fn put(&mut self, event: Event) {
        self.events.push_back(event);
        self.sources.ring();
    }

    /// # Safety
    /// There is room for `room` bytes at `place`, and for the event's number.
    unsafe fn take(&mut self, event: *mut u32, place: *mut c_void, room: usize, flags: u64) -> isize {
        let (number, bytes) = match self.events.front() {
            Some(Event::Told(number, bytes)) => (number, bytes),
            Some(Event::Failed(_)) => return negative(FI_EAVAIL),
            None => return negative(FI_EAGAIN),
        };
        if bytes.len() > room {
            return negative(FI_ETOOSMALL);
        }
        let length = bytes.len();
        // SAFETY: as the caller promises.
        unsafe {
            event.write(*number);
            place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        if flags & FI_PEEK == 0 {
            self.events.pop_front();
        }
        length as isize
    }
}

unsafe extern "C" fn read(
    events: *mut fid_eq,
    event: *mut u32,
    place: *mut c_void,
    room: usize,
    flags: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe { (*events.cast::<Events>()).hold().take(event, place, room, flags) }
}

unsafe extern "C" fn readerr(events: *mut fid_eq, place: *mut fi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: the host's call.
    let mut inner = unsafe { (*events.cast::<Events>()).hold() };
    let Some(Event::Failed(Failed { fid, context, index, code })) = inner.events.front() else {
        return negative(FI_EAGAIN);
    };
    let entry = fi_eq_err_entry {
        fid: *fid,
        context: *context,
        data: *index,
        err: *code,
        prov_errno: *code,
        err_data: ptr::null_mut(),
        err_data_size: 0,
    };
    // SAFETY: the caller wants it there.
    unsafe { place.write(entry) };
    if flags & FI_PEEK == 0 {
        inner.events.pop_front();
    }
    size_of::<fi_eq_err_entry>() as isize
}

unsafe extern "C" fn write(
    events: *mut fid_eq,
    event: u32,
    place: *const c_void,
    length: usize,
    _: u64,
) -> isize {
    // SAFETY: the host's call.
    let events = unsafe { &*events.cast::<Events>() };
    if !events.writable {
        return negative(FI_EINVAL);
    }
    let mut inner = events.hold();
    if inner.events.len() >= EVENTS_MAX {
        return negative(FI_EAGAIN);
    }
    // One of no bytes may be nowhere.
    let bytes = match length {
        0 => Vec::new(),
        // SAFETY: the caller's event has so many bytes.
        _ => unsafe { std::slice::from_raw_parts(place.cast::<u8>(), length) }.to_vec(),
    };
    inner.put(Event::Told(event, bytes));
    length as isize
}

unsafe extern "C" fn sread(
    events: *mut fid_eq,
    event: *mut u32,
    place: *mut c_void,
    room: usize,
    timeout_ms: c_int,
    flags: u64,
) -> isize {
    // SAFETY: the host's call.
    let events = unsafe { &*events.cast::<Events>() };
    if events.hold().sources.descriptor().is_none() {
        return negative(FI_ENOSYS);
    }
    let found = waiting::block(timeout_ms, || {
        let mut inner = events.hold();
        // SAFETY: the host's call.
        match unsafe { inner.take(event, place, room, flags) } {
            nothing if nothing == negative(FI_EAGAIN) => {
                inner.sources.quieten();
                Err(inner.sources.descriptor().unwrap_or(-1))
            }
            read => Ok(read),
        }
    });
    found.unwrap_or(negative(FI_EAGAIN))
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    code: c_int,
    _: *const c_void,
    place: *mut c_char,
    room: usize,
) -> *const c_char {
    let text = host().meaning(code);
    // SAFETY: the host's call.
    unsafe { put_text(text.to_bytes(), place, room) };
    if place.is_null() { text.as_ptr() } else { place }
}

/// Whether one may sleep until something happens.
///
/// # Safety
/// The pointer is to an open queue of ours.
pub(crate) unsafe fn may_sleep(events: *mut fid_eq) -> c_int {
    // SAFETY: as the caller promises.
    let inner = unsafe { (*events.cast::<Events>()).hold() };
    if !inner.events.is_empty() {
        return -FI_EAGAIN;
    }
    inner.sources.quieten();
    FI_SUCCESS
}
