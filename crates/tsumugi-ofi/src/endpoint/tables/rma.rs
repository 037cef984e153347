//! The functions of remote memory, `fi_rma(3)`.

use crate::abi::*;
use crate::endpoint::Endpoint;
use crate::endpoint::remote::Access;
use crate::endpoint::user_buffer::UserBuffer;
use crate::lock::enter;
use crate::object::Table;
use libc::iovec;
use std::ffi::c_void;
use std::ptr;
use tsumugi::remote::Target;

pub(super) static RMA: Table<fi_ops_rma> = Table::new(fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
});

/// The only piece of remote memory that an operation may name.
///
/// # Safety
/// There are as many as it says.
unsafe fn target_of(pieces: *const fi_rma_iov, count: usize) -> Result<Target, i32> {
    match count {
        // SAFETY: as the caller promises.
        1 => Ok(unsafe { Target { key: (*pieces).key, address: (*pieces).addr } }),
        _ => Err(FI_EINVAL),
    }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let access = Access { peer, target, data: None, flags, told: true, context };
        ep.attempt(|running| running.read(UserBuffer::One(buf, len), &access))
    }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let access = Access { peer, target, data: None, flags, told: true, context };
        ep.attempt(|running| running.read(UserBuffer::of(iov, count), &access))
    }
}

/// An access as the caller describes it.
///
/// # Safety
/// The description is whole.
unsafe fn described(msg: &fi_msg_rma, flags: u64) -> Result<Access, i32> {
    // SAFETY: as the caller promises.
    let target = unsafe { target_of(msg.rma_iov, msg.rma_iov_count)? };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    Ok(Access { peer: msg.addr, target, data, flags, told: true, context: msg.context })
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.attempt(|running| {
            running.read(UserBuffer::of(msg.msg_iov, msg.iov_count), &described(msg, flags)?)
        })
    }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let access = Access { peer, target, data: None, flags, told: true, context };
        ep.attempt(|running| running.write(UserBuffer::One(buf.cast_mut(), len), &access))
    }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let access = Access { peer, target, data: None, flags, told: true, context };
        ep.attempt(|running| running.write(UserBuffer::of(iov, count), &access))
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.attempt(|running| {
            running.write(UserBuffer::of(msg.msg_iov, msg.iov_count), &described(msg, flags)?)
        })
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    peer: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, context) = (Target { key, address }, ptr::null_mut());
        let access = Access { peer, target, data: None, flags: FI_INJECT, told: false, context };
        ep.attempt(|running| running.write(UserBuffer::One(buf.cast_mut(), len), &access))
    }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    peer: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, flags) = (Target { key, address }, ep.send_flags.get());
        let access = Access { peer, target, data: Some(data), flags, told: true, context };
        ep.attempt(|running| running.write(UserBuffer::One(buf.cast_mut(), len), &access))
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (target, context) = (Target { key, address }, ptr::null_mut());
        let access = Access { peer, target, data: Some(data), flags: FI_INJECT, told: false, context };
        ep.attempt(|running| running.write(UserBuffer::One(buf.cast_mut(), len), &access))
    }
}
