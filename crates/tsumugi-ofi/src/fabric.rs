//! `fi_fabric(3)`: what domains and event queues belong to.

use crate::abi::*;
use crate::object::{Head, Table, functions, give, head, unsupported};
use crate::{counter, domain, events, queue};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fabric.
#[repr(C)]
pub(crate) struct Fabric {
    fid: Head<fid_fabric>,
    /// Domains and event queues that are open.
    children: AtomicUsize,
}

/// What belongs to a fabric: it is open as long as this lives.
pub(crate) struct OfFabric(NonNull<Fabric>);

impl OfFabric {
    /// # Safety
    /// The pointer is to an open fabric of ours.
    pub(crate) unsafe fn new(fabric: *mut fid_fabric) -> OfFabric {
        let fabric = NonNull::new(fabric.cast::<Fabric>()).expect("an object that the caller has opened");
        // SAFETY: as the caller promises.
        unsafe { fabric.as_ref() }.children.fetch_add(1, Ordering::Relaxed);
        OfFabric(fabric)
    }

    /// The version of the API that the caller speaks: how long its structs are.
    pub(crate) fn api_version(&self) -> u32 {
        // SAFETY: it is open, and the host has written the version when it was opened.
        unsafe { (*self.0.as_ref().fid.get()).api_version }
    }
}

impl Drop for OfFabric {
    fn drop(&mut self) {
        // SAFETY: it is open as long as it has children.
        unsafe { self.0.as_ref() }.children.fetch_sub(1, Ordering::Relaxed);
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, None, None);
static FABRIC: Table<fi_ops_fabric> = Table::new(fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: unsupported!(),
    eq_open: Some(events::open),
    wait_open: unsupported!(),
    trywait: Some(trywait),
    domain2: Some(domain::open2),
});

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open(
    _: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let fid =
        fid_fabric { fid: head(FI_CLASS_FABRIC, context, &FUNCTIONS), ops: FABRIC.get(), api_version: 0 };
    let made = Box::new(Fabric { fid: Head::new(fid), children: AtomicUsize::new(0) });
    // SAFETY: the caller wants it there.
    unsafe { give(fabric, Box::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let fabric = fid.cast::<Fabric>();
    // SAFETY: the caller closes an open one.
    unsafe {
        if (*fabric).children.load(Ordering::Relaxed) > 0 {
            return -FI_EBUSY;
        }
        drop(Box::from_raw(fabric));
    }
    FI_SUCCESS
}

/// `fi_trywait`: whether all of these may be slept for.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: there are so many, and each is an object of ours.
        let answer = unsafe {
            let fid = *fids.add(at);
            match (*fid).fclass {
                FI_CLASS_CQ => queue::may_sleep(fid.cast()),
                FI_CLASS_CNTR => counter::may_sleep(fid.cast()),
                FI_CLASS_EQ => events::may_sleep(fid.cast()),
                _ => -FI_ENOSYS,
            }
        };
        if answer != FI_SUCCESS {
            return answer;
        }
    }
    FI_SUCCESS
}
