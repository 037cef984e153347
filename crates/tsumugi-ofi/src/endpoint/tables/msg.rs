//! The functions of messages without tags, `fi_msg(3)`.

use crate::abi::*;
use crate::endpoint::Endpoint;
use crate::endpoint::messages::{Kind, Sent, Wanted};
use crate::endpoint::user_buffer::UserBuffer;
use crate::lock::enter;
use crate::object::Table;
use libc::iovec;
use std::ffi::c_void;
use std::ptr;
use tsumugi::message::Envelope;

pub(super) static MSG: Table<fi_ops_msg> = Table::new(fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
});

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let sent = Sent { kind: Kind::Plain, to, envelope: Envelope::default(), flags, told: true, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let sent = Sent { kind: Kind::Plain, to, envelope: Envelope::default(), flags, told: true, context };
        ep.send(UserBuffer::of(iov, count), sent)
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        let immediate = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let envelope = Envelope { tag: 0, immediate };
        let sent =
            Sent { kind: Kind::Plain, to: msg.addr, envelope, flags, told: true, context: msg.context };
        ep.send(UserBuffer::of(msg.msg_iov, msg.iov_count), sent)
    }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (kind, envelope, context) = (Kind::Plain, Envelope::default(), ptr::null_mut());
        let sent = Sent { kind, to, envelope, flags: FI_INJECT, told: false, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let envelope = Envelope { tag: 0, immediate: Some(data) };
        let sent = Sent { kind: Kind::Plain, to, envelope, flags, told: true, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let envelope = Envelope { tag: 0, immediate: Some(data) };
        let (kind, context) = (Kind::Plain, ptr::null_mut());
        let sent = Sent { kind, to, envelope, flags: FI_INJECT, told: false, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

/// A receive of messages without tags.
fn any(from: fi_addr_t, flags: u64, context: *mut c_void) -> Wanted {
    Wanted { kind: Kind::Plain, from, tag: 0, ignore: u64::MAX, flags, context }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.receive_flags.get();
        ep.receive(UserBuffer::One(buf, len), any(from, flags, context))
    }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.receive_flags.get();
        ep.receive(UserBuffer::of(iov, count), any(from, flags, context))
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        ep.receive(UserBuffer::of(msg.msg_iov, msg.iov_count), any(msg.addr, flags, msg.context))
    }
}
