//! `fi_fabric(3)` and `fi_domain(3)`: a fabric and a domain are opened with tables of functions that open every other kind of
//! object.

use crate::abi::*;
use crate::domain::Domain;
use crate::fabric::{Fabric, OfFabric};
use crate::object::{Table, give, unsupported};
use crate::{addresses, atomics, counter, endpoint, events, memory, poll, queue};
use std::ffi::{c_int, c_void};

static FABRIC: Table<fi_ops_fabric> = Table::new(fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: unsupported!(),
    eq_open: Some(events::open),
    wait_open: unsupported!(),
    trywait: Some(trywait),
    domain2: Some(open_domain2),
});
static DOMAIN: Table<fi_ops_domain> = Table::new(fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(addresses::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::tables::open),
    scalable_ep: unsupported!(),
    cntr_open: Some(counter::open),
    poll_open: Some(poll::open),
    stx_ctx: unsupported!(),
    srx_ctx: unsupported!(),
    query_atomic: Some(atomics::query),
    query_collective: unsupported!(),
    endpoint2: Some(endpoint::tables::open2),
});

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open_fabric(
    _: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller wants it there.
    unsafe { give(fabric, Box::into_raw(Fabric::new(&FABRIC, context))) };
    FI_SUCCESS
}

/// `fi_domain`.
unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call; an info has all its attributes.
    let (attributes, fabric) = unsafe { ((*info).domain_attr.as_ref(), OfFabric::new(fabric)) };
    let made = Domain::new(&DOMAIN, &memory::TABLE, fabric, attributes, context);
    // SAFETY: the caller wants it there.
    unsafe { give(domain, Box::into_raw(made)) };
    FI_SUCCESS
}

/// `fi_domain2`: the flags ask for what is not offered.
unsafe extern "C" fn open_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: the host's call.
    unsafe { open_domain(fabric, info, domain, context) }
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
