//! Completion queues, `fi_cq(3)`.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::error::{Trouble, negative};
use crate::host::host;
use crate::limits::ERROR_TEXT_BYTES;
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head, put_text};
use crate::waiting::{self, Sources};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;

/// An operation that is complete, or has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) bytes: usize,
    pub(crate) place: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) source: fi_addr_t,
}

impl Entry {
    pub(crate) fn new(context: *mut c_void, flags: u64) -> Entry {
        Entry { context, flags, bytes: 0, place: ptr::null_mut(), data: 0, tag: 0, source: FI_ADDR_NOTAVAIL }
    }
}

enum Item {
    Done(Entry),
    Failed(Box<Failed>),
}

struct Failed {
    entry: Entry,
    trouble: Trouble,
    /// Bytes that had no room.
    lost_bytes: usize,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct Queue {
    fid: Head<fid_cq>,
    domain: OfDomain,
    format: fi_cq_format,
    threshold: bool,
    items: RefCell<VecDeque<Item>>,
    pub(crate) sources: Sources,
    /// Text of the error that was read last, which its reader may look at until it reads the next.
    told: RefCell<Vec<u8>>,
}

impl Object for Queue {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Queue {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, None, Some(control));
static QUEUE: Table<fi_ops_cq> = Table::new(fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
});

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    // SAFETY: the host's call; the attributes are the caller's.
    let attr = unsafe { attr.as_mut() };
    let (mut format, mut object, mut threshold, mut room) = (FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, false, 0);
    if let Some(attr) = attr {
        if attr.format == FI_CQ_FORMAT_UNSPEC {
            attr.format = FI_CQ_FORMAT_CONTEXT;
        }
        (format, object, room) = (attr.format, attr.wait_obj, attr.size);
        threshold = attr.wait_cond == FI_CQ_COND_THRESHOLD;
    }
    if !(FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED).contains(&format) {
        return -FI_EINVAL;
    }
    let sources = match Sources::new(object) {
        Ok(sources) => sources,
        Err(code) => return -code,
    };
    let made = Rc::new(Queue {
        fid: Head::new(fid_cq { fid: head(FI_CLASS_CQ, context, &FUNCTIONS), ops: QUEUE.get() }),
        domain: OfDomain::new(&domain),
        format,
        threshold,
        items: RefCell::new(VecDeque::with_capacity(room.min(4096))),
        sources,
        told: RefCell::default(),
    });
    // SAFETY: the caller wants it there.
    unsafe { give(queue, Rc::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe { domain::close::<Queue>(fid, |_| {}) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the host's call.
    let queue = unsafe { enter::<Queue, _>(fid) };
    // SAFETY: the host's call; the command says what the argument is.
    unsafe { queue.sources.control(command, arg) }
}

impl Queue {
    /// An operation is complete.
    #[inline]
    pub(crate) fn done(&self, entry: Entry) {
        self.items.borrow_mut().push_back(Item::Done(entry));
        self.sources.ring();
    }

    /// An operation has failed.
    pub(crate) fn failed(&self, entry: Entry, trouble: Trouble, lost_bytes: usize) {
        self.items.borrow_mut().push_back(Item::Failed(Box::new(Failed { entry, trouble, lost_bytes })));
        self.sources.ring();
    }

    /// Says with the newest entry, if it is a part of that receive, that the buffer is its owner's again.
    pub(crate) fn mark_newest(&self, context: *mut c_void, flag: u64) -> bool {
        match self.items.borrow_mut().back_mut() {
            Some(Item::Done(entry)) if entry.context == context && entry.flags & FI_RECV != 0 => {
                entry.flags |= flag;
                true
            }
            _ => false,
        }
    }

    /// Makes progress, and says whether there is something to read.
    pub(crate) fn is_ready(&self) -> bool {
        // What is wrong is said to who reads.
        self.sources.progress().is_err() || self.has_items()
    }

    fn has_items(&self) -> bool {
        !self.items.borrow().is_empty()
    }

    /// Moves up to `count` entries to where the caller wants them: how many, or an error code, negative.
    ///
    /// # Safety
    /// There is room for so many entries of the queue's format at `place`, and of addresses at `from` unless it is null.
    #[inline]
    unsafe fn take(&self, place: *mut c_void, count: usize, from: *mut fi_addr_t) -> isize {
        let mut items = self.items.borrow_mut();
        let mut taken = 0;
        while taken < count {
            let entry = match items.front() {
                Some(Item::Done(entry)) => *entry,
                Some(Item::Failed(_)) if taken == 0 => return negative(FI_EAVAIL),
                _ => break,
            };
            items.pop_front();
            // SAFETY: there is room for `count` of them.
            unsafe {
                self.put(entry, place, taken);
                if !from.is_null() {
                    from.add(taken).write(entry.source);
                }
            }
            taken += 1;
        }
        if taken == 0 { negative(FI_EAGAIN) } else { taken as isize }
    }

    /// # Safety
    /// There is room for an entry of the queue's format at this index.
    #[inline]
    unsafe fn put(&self, entry: Entry, place: *mut c_void, at: usize) {
        let Entry { context, flags, bytes, place: buffer, data, tag, .. } = entry;
        // SAFETY: as the caller promises.
        unsafe {
            match self.format {
                FI_CQ_FORMAT_TAGGED => place.cast::<fi_cq_tagged_entry>().add(at).write(fi_cq_tagged_entry {
                    op_context: context,
                    flags,
                    len: bytes,
                    buf: buffer,
                    data,
                    tag,
                }),
                FI_CQ_FORMAT_DATA => place.cast::<fi_cq_data_entry>().add(at).write(fi_cq_data_entry {
                    op_context: context,
                    flags,
                    len: bytes,
                    buf: buffer,
                    data,
                }),
                FI_CQ_FORMAT_MSG => {
                    let entry = fi_cq_msg_entry { op_context: context, flags, len: bytes };
                    place.cast::<fi_cq_msg_entry>().add(at).write(entry);
                }
                _ => place.cast::<fi_cq_entry>().add(at).write(fi_cq_entry { op_context: context }),
            }
        }
    }

    /// Reads what is there, after a look at the endpoints if there is nothing.
    ///
    /// # Safety
    /// As of [`Queue::take`].
    #[inline]
    unsafe fn read(&self, place: *mut c_void, count: usize, from: *mut fi_addr_t) -> isize {
        if (!self.has_items() || count == 0)
            && let Err(trouble) = self.sources.progress()
        {
            return negative(trouble.code);
        }
        // SAFETY: as the caller promises.
        unsafe { self.take(place, count, from) }
    }
}

unsafe extern "C" fn read(queue: *mut fid_cq, place: *mut c_void, count: usize) -> isize {
    // SAFETY: the host's call.
    unsafe { enter::<Queue, _>(queue).read(place, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut fid_cq,
    place: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
) -> isize {
    // SAFETY: the host's call.
    unsafe { enter::<Queue, _>(queue).read(place, count, from) }
}

unsafe extern "C" fn sread(
    queue: *mut fid_cq,
    place: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: the host's call.
    unsafe { sreadfrom(queue, place, count, ptr::null_mut(), condition, timeout_ms) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut fid_cq,
    place: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
    condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    let wanted = {
        // SAFETY: the host's call.
        let queue = unsafe { enter::<Queue, _>(queue) };
        if queue.sources.descriptor().is_none() {
            return negative(FI_ENOSYS);
        }
        // SAFETY: with this condition the caller gives a number.
        let threshold = unsafe { condition.cast::<usize>().as_ref() }.filter(|_| queue.threshold);
        threshold.map_or(1, |threshold| (*threshold).min(count).max(1))
    };
    let found = waiting::block(timeout_ms, || {
        // SAFETY: the host's call; the queue stays open while somebody reads it.
        let queue = unsafe { enter::<Queue, _>(queue) };
        if queue.sources.take_signal() {
            return Ok(negative(FI_EAGAIN));
        }
        let lacks = queue.items.borrow().len() < wanted;
        if lacks && let Err(trouble) = queue.sources.progress() {
            return Ok(negative(trouble.code));
        }
        let items = queue.items.borrow();
        let is_error = matches!(items.front(), Some(Item::Failed(_)));
        if items.len() < wanted && !is_error {
            drop(items);
            queue.sources.quieten();
            return Err(queue.sources.descriptor().unwrap_or(-1));
        }
        drop(items);
        // SAFETY: the host's call.
        Ok(unsafe { queue.take(place, count, from) })
    });
    found.unwrap_or(negative(FI_EAGAIN))
}

unsafe extern "C" fn readerr(queue: *mut fid_cq, place: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: the host's call.
    let queue = unsafe { enter::<Queue, _>(queue) };
    let mut items = queue.items.borrow_mut();
    let Some(Item::Failed(_)) = items.front() else { return negative(FI_EAGAIN) };
    let Some(Item::Failed(failed)) = items.pop_front() else { return negative(FI_EAGAIN) };
    let Failed { entry, trouble, lost_bytes } = *failed;
    let version = queue.domain.fabric.api_version();
    // SAFETY: the caller's entry is as long as its version of the API has it.
    unsafe {
        (*place).op_context = entry.context;
        (*place).flags = entry.flags;
        (*place).len = entry.bytes;
        (*place).buf = entry.place;
        (*place).data = entry.data;
        (*place).tag = entry.tag;
        (*place).olen = lost_bytes;
        (*place).err = trouble.code;
        (*place).prov_errno = trouble.code;
        if version < FI_VERSION(1, 5) {
            (*place).err_data = ptr::null_mut();
        } else if trouble.text.is_empty() {
            // Who expects such an end may read it into an entry whose `err_data` was never set, as fabtests do.
            ((*place).err_data, (*place).err_data_size) = (ptr::null_mut(), 0);
        } else {
            let mut text = trouble.text.into_bytes();
            text.truncate(ERROR_TEXT_BYTES - 1);
            text.push(0);
            let (room, own) = ((*place).err_data_size, (*place).err_data);
            if room > 0 && !own.is_null() {
                put_text(&text[..text.len() - 1], own.cast(), room);
                (*place).err_data_size = text.len().min(room);
            } else {
                queue.told.replace(text);
                (*place).err_data = queue.told.borrow().as_ptr().cast_mut().cast();
                (*place).err_data_size = queue.told.borrow().len();
            }
        }
        if version >= FI_VERSION(1, 20) {
            place.add(1).cast::<fi_addr_t>().write(entry.source);
        }
    }
    1
}

unsafe extern "C" fn signal(queue: *mut fid_cq) -> c_int {
    // SAFETY: the host's call.
    let queue = unsafe { enter::<Queue, _>(queue) };
    if queue.sources.signal() { FI_SUCCESS } else { -FI_ENOSYS }
}

/// What an error means: its text, which came with it, or else what its code means.
unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    code: c_int,
    data: *const c_void,
    place: *mut c_char,
    room: usize,
) -> *const c_char {
    let text = if data.is_null() {
        host().meaning(code)
    } else {
        // SAFETY: the caller gives back what it was given, text that ends with a zero.
        unsafe { CStr::from_ptr(data.cast()) }
    };
    // SAFETY: the host's call.
    unsafe { put_text(text.to_bytes(), place, room) };
    if place.is_null() { text.as_ptr() } else { place }
}

/// Whether one may sleep until something happens: nothing has, not even unseen.
///
/// # Safety
/// The pointer is to an open queue of ours.
pub(crate) unsafe fn may_sleep(queue: *mut fid_cq) -> c_int {
    // SAFETY: as the caller promises.
    let queue = unsafe { enter::<Queue, _>(queue) };
    if let Err(trouble) = queue.sources.progress() {
        return -trouble.code;
    }
    if queue.has_items() {
        return -FI_EAGAIN;
    }
    queue.sources.quieten();
    FI_SUCCESS
}
