//! Fabrics: what domains and event queues belong to.

use crate::abi::*;
use crate::object::{Head, Table, functions, head};
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

static FUNCTIONS: Table<fi_ops> = functions(close, None, None);

impl Fabric {
    /// A fabric, whose domains and event queues are opened by these functions.
    pub(crate) fn new(ops: &'static Table<fi_ops_fabric>, context: *mut c_void) -> Box<Fabric> {
        let fid =
            fid_fabric { fid: head(FI_CLASS_FABRIC, context, &FUNCTIONS), ops: ops.get(), api_version: 0 };
        Box::new(Fabric { fid: Head::new(fid), children: AtomicUsize::new(0) })
    }
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
