//! Remote memory, `fi_rma(3)`. A write is complete when the peer's memory has it, whatever level was asked for: a fence behind
//! all the writes of one look says so, and only it tells of those that were refused.

use super::operations::{Begun, Behind, Pieces, Side};
use super::user_buffer::UserBuffer;
use super::{Endpoint, Running};
use crate::abi::*;
use crate::error::{self, negative};
use crate::limits::INJECT_BYTES;
use crate::lock::enter;
use crate::object::Table;
use libc::iovec;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use tsumugi::remote::Target;
use tsumugi::{Region, Slice};

/// What is written from a copy: longer data are read when there is room to send them, bytes.
const COPY_BYTES: usize = 4 << 10;

pub(super) static REMOTE: Table<fi_ops_rma> = Table::new(fi_ops_rma {
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

/// An access to a peer's memory.
struct Access {
    peer: fi_addr_t,
    target: Target,
    data: Option<u64>,
    flags: u64,
    /// Whether its success is an entry of the queue, if the flags want it.
    told: bool,
    context: *mut c_void,
}

impl Endpoint {
    /// Does something, and makes progress when there is no room for it.
    #[inline]
    pub(super) fn attempt(&self, attempt: impl FnOnce(&Running) -> Result<(), i32>) -> isize {
        match self.running().and_then(attempt) {
            Ok(()) => 0,
            Err(code) => {
                if code == FI_EAGAIN {
                    // Who only tries again makes progress by that. What is wrong is said by the queue.
                    let _ = self.make_progress();
                }
                negative(code)
            }
        }
    }
}

/// The caller's memory as a slice that the library copies from or to.
///
/// # Safety
/// It is there until the operation is complete.
unsafe fn slice(start: *mut c_void, bytes: usize) -> Result<Slice, i32> {
    let start = NonNull::new(start.cast::<u8>()).ok_or(FI_EINVAL)?;
    // SAFETY: as the caller promises.
    Ok(unsafe { Region::from_raw(start, bytes) }.all())
}

impl Running {
    /// # Safety
    /// The buffer is there: until this returns if it is injected, until the operation is complete otherwise.
    unsafe fn write(&self, user_buffer: UserBuffer<'_>, access: &Access) -> Result<(), i32> {
        let peer = self.peer(access.peer)?;
        let (bytes, injected) = (user_buffer.bytes(), access.flags & FI_INJECT != 0);
        if injected && bytes > INJECT_BYTES {
            return Err(FI_EINVAL);
        }
        if access.flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let wanted = self.wants(Side::Write, access);
        self.check_connected(peer, wanted)?;
        let from = match user_buffer {
            UserBuffer::One(start, bytes) if bytes > COPY_BYTES && !injected => {
                // SAFETY: as the caller promises.
                Some(unsafe { slice(start, bytes)? })
            }
            _ => None,
        };
        let ticket = match (from, access.data) {
            (Some(from), Some(data)) => self.remote.write_and_notify(peer, access.target, &from, data),
            (Some(from), None) => self.remote.write(peer, access.target, &from),
            (None, data) => {
                let mut copy = Vec::with_capacity(bytes);
                // SAFETY: as the caller promises.
                unsafe { user_buffer.gather(&mut copy) };
                match data {
                    Some(data) => self.remote.write_bytes_and_notify(peer, access.target, &copy, data),
                    None => self.remote.write_bytes(peer, access.target, &copy),
                }
            }
        };
        let ticket = ticket.map_err(|error| error::of_send(&error))?;
        let number = self.begin(Side::Write, access, FI_WRITE, Pieces::One);
        self.operations.borrow_mut().of(peer).unfenced.push((ticket, number));
        self.push_untold(peer, wanted)
    }

    /// # Safety
    /// The buffer is there until the operation is complete.
    unsafe fn read(&self, user_buffer: UserBuffer<'_>, access: &Access) -> Result<(), i32> {
        let peer = self.peer(access.peer)?;
        if access.flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let (into, pieces) = match user_buffer {
            UserBuffer::One(_, 0) => {
                // Nothing is read, and that is done in its turn.
                let fence = self.remote.fence(peer).map_err(|error| error::of_send(&error))?;
                let number = self.begin(Side::Read, access, FI_READ, Pieces::One);
                self.operations.borrow_mut().of(peer).operations.push_back((fence, Behind::Read(number)));
                return Ok(());
            }
            // SAFETY: as the caller promises.
            UserBuffer::One(start, bytes) => (unsafe { slice(start, bytes)? }, Pieces::One),
            UserBuffer::Several(pieces) => {
                let copy = Region::new(user_buffer.bytes()).map_err(|_| FI_ENOMEM)?;
                (copy.all(), Pieces::Several(pieces.to_vec(), Some(copy)))
            }
        };
        let operation =
            self.remote.read(peer, access.target, &into).map_err(|error| error::of_send(&error))?;
        let number = self.begin(Side::Read, access, FI_READ, pieces);
        self.operations.borrow_mut().of(peer).operations.push_back((operation, Behind::Read(number)));
        Ok(())
    }

    fn wants(&self, side: Side, access: &Access) -> bool {
        access.told && self.reports.wants(side, access.flags)
    }

    fn begin(&self, side: Side, access: &Access, flag: u64, pieces: Pieces) -> usize {
        self.operations.borrow_mut().begun.insert(Begun {
            side,
            context: access.context,
            flags: FI_RMA | flag,
            wanted: self.wants(side, access),
            delivered: true,
            pieces,
            request: None,
        })
    }
}

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
