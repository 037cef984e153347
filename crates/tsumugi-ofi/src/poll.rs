//! Poll sets, `fi_poll(3)`: queues and counters that are looked at together.

use crate::abi::*;
use crate::counter::Counter;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head};
use crate::queue::Queue;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::{Rc, Weak};

/// A poll set.
#[repr(C)]
pub(crate) struct Poll {
    fid: Head<fid_poll>,
    domain: OfDomain,
    members: RefCell<Vec<Member>>,
}

/// A queue or a counter in a poll set. It may be closed as if it were not in there, and is in there no more.
enum Member {
    Queue(Weak<Queue>),
    Counter(Weak<Counter>),
}

impl Member {
    /// # Safety
    /// The pointer is to an open object, and this domain is held.
    unsafe fn of(domain: &Domain, fid: *mut fid) -> Result<Member, i32> {
        // SAFETY: as the caller promises; an object is of the class that it says.
        unsafe {
            match (*fid).fclass {
                FI_CLASS_CQ => Ok(Member::Queue(Rc::downgrade(&domain::shared(domain, fid)?))),
                FI_CLASS_CNTR => Ok(Member::Counter(Rc::downgrade(&domain::shared(domain, fid)?))),
                _ => Err(FI_EINVAL),
            }
        }
    }

    /// What the object begins with, or began with before it was closed.
    fn fid(&self) -> *const fid {
        match self {
            Member::Queue(queue) => queue.as_ptr().cast(),
            Member::Counter(counter) => counter.as_ptr().cast(),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Member::Queue(queue) => queue.strong_count() > 0,
            Member::Counter(counter) => counter.strong_count() > 0,
        }
    }

    /// Makes progress. The context, if there is something.
    fn look(&self) -> Option<*mut c_void> {
        let is_ready = match self {
            Member::Queue(queue) => queue.upgrade()?.is_ready(),
            Member::Counter(counter) => counter.upgrade()?.is_ready(),
        };
        // SAFETY: it is open.
        is_ready.then(|| unsafe { (*self.fid()).context })
    }
}

impl Object for Poll {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Poll {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, None, None);
static POLL: Table<fi_ops_poll> = Table::new(fi_ops_poll {
    size: size_of::<fi_ops_poll>(),
    poll: Some(poll),
    poll_add: Some(add),
    poll_del: Some(delete),
});

/// `fi_poll_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    poll: *mut *mut fid_poll,
) -> c_int {
    // SAFETY: the host's call.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.flags != 0) {
        return -FI_EBADFLAGS;
    }
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    let fid = fid_poll { fid: head(FI_CLASS_POLL, std::ptr::null_mut(), &FUNCTIONS), ops: POLL.get() };
    let made =
        Rc::new(Poll { fid: Head::new(fid), domain: OfDomain::new(&domain), members: RefCell::default() });
    // SAFETY: the caller wants it there.
    unsafe { give(poll, Rc::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe { domain::close::<Poll>(fid, |_| {}) }
}

/// Writes the contexts of the members that have something, as many as there is room for: how many.
unsafe extern "C" fn poll(poll: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: the host's call.
    let poll = unsafe { enter::<Poll, _>(poll) };
    let members = poll.members.borrow();
    let mut found = 0;
    for context in members.iter().filter_map(Member::look).take(usize::try_from(count).unwrap_or(0)) {
        // SAFETY: the host's call says how much room there is.
        unsafe { contexts.add(found as usize).write(context) };
        found += 1;
    }
    found
}

unsafe extern "C" fn add(poll: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    let poll = unsafe { enter::<Poll, _>(poll) };
    // SAFETY: the host's call.
    let added = match unsafe { Member::of(&poll.domain, member) } {
        Ok(added) => added,
        Err(code) => return -code,
    };
    let mut members = poll.members.borrow_mut();
    members.retain(Member::is_open);
    if !members.iter().any(|known| known.fid() == added.fid()) {
        members.push(added);
    }
    FI_SUCCESS
}

unsafe extern "C" fn delete(poll: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    let poll = unsafe { enter::<Poll, _>(poll) };
    let mut members = poll.members.borrow_mut();
    members.retain(Member::is_open);
    let Some(at) = members.iter().position(|known| known.fid() == member.cast_const()) else {
        return -FI_EINVAL;
    };
    members.remove(at);
    FI_SUCCESS
}
