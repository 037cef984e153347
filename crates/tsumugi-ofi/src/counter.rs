//! Counters of operations, `fi_cntr(3)`.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head};
use crate::waiting::{self, Sources};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// A counter.
#[repr(C)]
pub(crate) struct Counter {
    fid: Head<fid_cntr>,
    domain: OfDomain,
    succeeded: Cell<u64>,
    failed: Cell<u64>,
    pub(crate) sources: Sources,
    /// What the counter was when somebody has last looked or slept.
    seen: Cell<(u64, u64)>,
}

impl Object for Counter {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Counter {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, None, Some(control));
static COUNTER: Table<fi_ops_cntr> = Table::new(fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
});

/// `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    // SAFETY: the host's call; the attributes are the caller's.
    let attr = unsafe { attr.as_ref() };
    if attr.is_some_and(|attr| attr.events != FI_CNTR_EVENTS_COMP) {
        return -FI_ENOSYS;
    }
    if attr.is_some_and(|attr| attr.flags != 0) {
        return -FI_EBADFLAGS;
    }
    let object = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
    let sources = match Sources::new(object) {
        Ok(sources) => sources,
        Err(code) => return -code,
    };
    let made = Rc::new(Counter {
        fid: Head::new(fid_cntr { fid: head(FI_CLASS_CNTR, context, &FUNCTIONS), ops: COUNTER.get() }),
        domain: OfDomain::new(&domain),
        succeeded: Cell::new(0),
        failed: Cell::new(0),
        sources,
        seen: Cell::default(),
    });
    // SAFETY: the caller wants it there.
    unsafe { give(counter, Rc::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe { domain::close::<Counter>(fid, |_| {}) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(fid) };
    // SAFETY: the host's call; the command says what the argument is.
    unsafe { counter.sources.control(command, arg) }
}

impl Counter {
    /// An operation has succeeded, or failed.
    #[inline]
    pub(crate) fn count(&self, succeeded: bool) {
        let counter = if succeeded { &self.succeeded } else { &self.failed };
        self.change(counter, counter.get().wrapping_add(1));
    }

    /// Makes progress, and says whether something has happened since somebody has looked.
    pub(crate) fn is_ready(&self) -> bool {
        let _ = self.sources.progress();
        self.seen.get() != self.now()
    }

    fn change(&self, counter: &Cell<u64>, value: u64) {
        counter.set(value);
        self.sources.ring();
    }

    fn now(&self) -> (u64, u64) {
        (self.succeeded.get(), self.failed.get())
    }
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    // What is wrong is said by the queues.
    let _ = counter.sources.progress();
    counter.seen.set(counter.now());
    counter.succeeded.get()
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    let _ = counter.sources.progress();
    counter.failed.get()
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    counter.change(&counter.succeeded, counter.succeeded.get().wrapping_add(value));
    FI_SUCCESS
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    counter.change(&counter.succeeded, value);
    FI_SUCCESS
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    counter.change(&counter.failed, counter.failed.get().wrapping_add(value));
    FI_SUCCESS
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the host's call.
    let counter = unsafe { enter::<Counter, _>(counter) };
    counter.change(&counter.failed, value);
    FI_SUCCESS
}

/// `fi_cntr_wait`: until so many operations have succeeded, another one fails, or the time is over.
unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout_ms: c_int) -> c_int {
    let failed_before = {
        // SAFETY: the host's call.
        let counter = unsafe { enter::<Counter, _>(counter) };
        if counter.sources.descriptor().is_none() {
            return -FI_ENOSYS;
        }
        counter.failed.get()
    };
    let found = waiting::block(timeout_ms, || {
        // SAFETY: the host's call; the counter stays open while somebody waits for it.
        let counter = unsafe { enter::<Counter, _>(counter) };
        if let Err(trouble) = counter.sources.progress() {
            return Ok(-trouble.code);
        }
        counter.seen.set(counter.now());
        if counter.succeeded.get() >= threshold {
            return Ok(FI_SUCCESS);
        }
        if counter.failed.get() != failed_before {
            return Ok(-FI_EAVAIL);
        }
        counter.sources.quieten();
        Err(counter.sources.descriptor().unwrap_or(-1))
    });
    found.unwrap_or(-FI_ETIMEDOUT)
}

/// Whether one may sleep until something happens: nothing has since somebody has looked.
///
/// # Safety
/// The pointer is to an open counter of ours.
pub(crate) unsafe fn may_sleep(counter: *mut fid_cntr) -> c_int {
    // SAFETY: as the caller promises.
    let counter = unsafe { enter::<Counter, _>(counter) };
    if let Err(trouble) = counter.sources.progress() {
        return -trouble.code;
    }
    if counter.seen.replace(counter.now()) != counter.now() {
        return -FI_EAGAIN;
    }
    counter.sources.quieten();
    FI_SUCCESS
}
