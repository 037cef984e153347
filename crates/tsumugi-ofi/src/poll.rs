//! Poll sets, `fi_poll(3)`: queues and counters that are looked at together.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head};
use crate::{counter, queue};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// A poll set.
#[repr(C)]
pub(crate) struct Poll {
    fid: Head<fid_poll>,
    domain: OfDomain,
    members: RefCell<Vec<*mut fid>>,
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
    // SAFETY: the host's call. Not held while the members are looked at, which hold the domain themselves.
    let members = unsafe { enter::<Poll, _>(poll) }.members.borrow().clone();
    let mut found = 0;
    for member in members {
        if found >= count {
            break;
        }
        // SAFETY: a member is open until it was taken out; the host's call says how much room there is.
        unsafe {
            let ready = match (*member).fclass {
                FI_CLASS_CQ => queue::is_ready(member.cast()),
                _ => counter::is_ready(member.cast()),
            };
            if ready {
                contexts.add(found as usize).write((*member).context);
                found += 1;
            }
        }
    }
    found
}

unsafe extern "C" fn add(poll: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    if !matches!(unsafe { (*member).fclass }, FI_CLASS_CQ | FI_CLASS_CNTR) {
        return -FI_EINVAL;
    }
    // SAFETY: the host's call.
    let poll = unsafe { enter::<Poll, _>(poll) };
    poll.members.borrow_mut().push(member);
    FI_SUCCESS
}

unsafe extern "C" fn delete(poll: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    let poll = unsafe { enter::<Poll, _>(poll) };
    let mut members = poll.members.borrow_mut();
    let Some(at) = members.iter().position(|known| *known == member) else { return -FI_EINVAL };
    members.remove(at);
    FI_SUCCESS
}
