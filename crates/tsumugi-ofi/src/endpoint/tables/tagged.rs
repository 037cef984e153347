//! The functions of messages with tags, `fi_tagged(3)`.

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

pub(super) static TAGGED: Table<fi_ops_tagged> = Table::new(fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let sent = Sent { kind: Kind::Tagged, to, envelope: tag.into(), flags, told: true, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let sent = Sent { kind: Kind::Tagged, to, envelope: tag.into(), flags, told: true, context };
        ep.send(UserBuffer::of(iov, count), sent)
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        let immediate = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let envelope = Envelope { tag: msg.tag, immediate };
        let (kind, to, context) = (Kind::Tagged, msg.addr, msg.context);
        ep.send(
            UserBuffer::of(msg.msg_iov, msg.iov_count),
            Sent { kind, to, envelope, flags, told: true, context },
        )
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let (kind, context) = (Kind::Tagged, ptr::null_mut());
        let sent = Sent { kind, to, envelope: tag.into(), flags: FI_INJECT, told: false, context };
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.send_flags.get();
        let envelope = Envelope { tag, immediate: Some(data) };
        let sent = Sent { kind: Kind::Tagged, to, envelope, flags, told: true, context };
        ep.send(UserBuffer::One(buf.cast_mut(), len), sent)
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let envelope = Envelope { tag, immediate: Some(data) };
        let (kind, context) = (Kind::Tagged, ptr::null_mut());
        ep.send(
            UserBuffer::One(buf.cast_mut(), len),
            Sent { kind, to, envelope, flags: FI_INJECT, told: false, context },
        )
    }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.receive_flags.get() & !FI_MULTI_RECV;
        let wanted = Wanted { kind: Kind::Tagged, from, tag, ignore, flags, context };
        ep.receive(UserBuffer::One(buf, len), wanted)
    }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let ep = enter::<Endpoint, _>(ep);
        let flags = ep.receive_flags.get() & !FI_MULTI_RECV;
        let wanted = Wanted { kind: Kind::Tagged, from, tag, ignore, flags, context };
        ep.receive(UserBuffer::of(iov, count), wanted)
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the host's call.
    unsafe {
        let (ep, msg) = (enter::<Endpoint, _>(ep), &*msg);
        let fi_msg_tagged { addr: from, tag, ignore, context, .. } = *msg;
        let wanted = Wanted { kind: Kind::Tagged, from, tag, ignore, flags, context };
        ep.receive(UserBuffer::of(msg.msg_iov, msg.iov_count), wanted)
    }
}
