//! The functions of atomics, `fi_atomic(3)`.

use crate::abi::*;
use crate::atomics::{OPERAND_BYTES_MAX, Sort, size_of_type};
use crate::endpoint::Endpoint;
use crate::endpoint::atomics::Wanted;
use crate::limits::PIECES_MAX;
use crate::lock::enter;
use crate::object::Table;
use std::ffi::{c_int, c_void};
use std::ptr;
use tsumugi::remote::Target;

pub(super) static ATOMIC: Table<fi_ops_atomic> = Table::new(fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
});

/// Pieces of an operand; none of null. An error code if there are more than are offered.
///
/// # Safety
/// There are so many.
unsafe fn pieces<'a>(pieces: *const fi_ioc, count: usize) -> Result<&'a [fi_ioc], i32> {
    if pieces.is_null() || count == 0 {
        return Ok(&[]);
    }
    if count > PIECES_MAX {
        return Err(FI_EINVAL);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pieces, count) })
}

fn piece(place: *const c_void, count: usize) -> [fi_ioc; 1] {
    [fi_ioc { addr: place.cast_mut(), count }]
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let operand = &piece(buf, count);
        let (sort, compare, result) = (Sort::Write, &[], &[]);
        let told = true;
        let wanted =
            Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
        ep.attempt(|running| running.atomic(&wanted))
    }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let (sort, compare, result, told) = (Sort::Write, &[], &[], true);
        ep.attempt(|running| {
            let operand = pieces(iov, count)?;
            let wanted =
                Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
            running.atomic(&wanted)
        })
    }
}

/// An operation as the caller describes it.
///
/// # Safety
/// The description is whole.
unsafe fn described<'a>(
    msg: &'a fi_msg_atomic,
    sort: Sort,
    compare: &'a [fi_ioc],
    result: &'a [fi_ioc],
    flags: u64,
) -> Result<Wanted<'a>, i32> {
    if msg.rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA != 0 {
        return Err(FI_EINVAL);
    }
    // SAFETY: as the caller promises.
    let (there, operand) = unsafe { (&*msg.rma_iov, pieces(msg.msg_iov, msg.iov_count)?) };
    let target = Target { key: there.key, address: there.addr };
    let fi_msg_atomic { addr: peer, datatype, op, context, .. } = *msg;
    Ok(Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told: true, context })
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.attempt(|running| running.atomic(&described(msg, Sort::Write, &[], &[], flags)?))
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags, context) = (Target { key, address }, FI_INJECT, ptr::null_mut());
        let operand = &piece(buf, count);
        let (sort, compare, result) = (Sort::Write, &[], &[]);
        let told = false;
        let wanted =
            Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
        ep.attempt(|running| running.atomic(&wanted))
    }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let (operand, result) = (&piece(buf, count), &piece(result, count));
        let (sort, compare, told) = (Sort::Fetch, &[], true);
        let wanted =
            Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
        ep.attempt(|running| running.atomic(&wanted))
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let (sort, compare, told) = (Sort::Fetch, &[], true);
        ep.attempt(|running| {
            let (operand, result) = (pieces(iov, count)?, pieces(resultv, result_count)?);
            let wanted =
                Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
            running.atomic(&wanted)
        })
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.attempt(|running| {
            let result = pieces(resultv, result_count)?;
            running.atomic(&described(msg, Sort::Fetch, &[], result, flags)?)
        })
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let (operand, compare, result) = (&piece(buf, count), &piece(compare, count), &piece(result, count));
        let (sort, told) = (Sort::Compare, true);
        let wanted =
            Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
        ep.attempt(|running| running.atomic(&wanted))
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let (sort, told) = (Sort::Compare, true);
        ep.attempt(|running| {
            let operand = pieces(iov, count)?;
            let (compare, result) = (pieces(comparev, compare_count)?, pieces(resultv, result_count)?);
            let wanted =
                Wanted { peer, target, datatype, op, sort, operand, compare, result, flags, told, context };
            running.atomic(&wanted)
        })
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.attempt(|running| {
            let (compare, result) = (pieces(comparev, compare_count)?, pieces(resultv, result_count)?);
            running.atomic(&described(msg, Sort::Compare, compare, result, flags)?)
        })
    }
}

/// Whether an operation is there, and for how many words at once.
unsafe fn valid(sort: Sort, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    match size_of_type(datatype, op, sort) {
        Some(size) => {
            // SAFETY: the host's call.
            unsafe { *count = OPERAND_BYTES_MAX / size };
            FI_SUCCESS
        }
        None => -FI_EOPNOTSUPP,
    }
}

unsafe extern "C" fn writevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the host's call.
    unsafe { valid(Sort::Write, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the host's call.
    unsafe { valid(Sort::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the host's call.
    unsafe { valid(Sort::Compare, datatype, op, count) }
}
