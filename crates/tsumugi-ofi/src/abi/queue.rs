//! Queues, counters and what one waits on: `fi_cq(3)`, `fi_cntr(3)`, `fi_eq(3)` and `fi_poll(3)`.

use super::{fi_addr_t, fi_info, fid, fid_t};
use libc::{pollfd, pthread_cond_t, pthread_mutex_t};
use std::ffi::{c_char, c_int, c_void};

/// What one waits on: `FI_WAIT_*`.
pub type fi_wait_obj = u32;
/// What the entries of a completion queue are: `FI_CQ_FORMAT_*`.
pub type fi_cq_format = u32;
/// When a read that blocks wakes up: `FI_CQ_COND_*`.
pub type fi_cq_wait_cond = u32;
/// What a counter counts: `FI_CNTR_EVENTS_*`.
pub type fi_cntr_events = u32;

structs! { QUEUE_STRUCTS
    /// How to open a completion queue. The caller's; version 2.7 appends `xpu_ctx`.
    pub struct fi_cq_attr {
        /// Entries at least, or zero for as many as the provider likes.
        pub size: usize,
        /// [`FI_AFFINITY`](super::FI_AFFINITY) or none.
        pub flags: u64,
        /// What the entries are. [`FI_CQ_FORMAT_UNSPEC`]: the provider chooses, and writes it here.
        pub format: fi_cq_format,
        /// What one waits on.
        pub wait_obj: fi_wait_obj,
        /// The CPU to interrupt.
        pub signaling_vector: c_int,
        /// What `cond` means in a read that blocks.
        pub wait_cond: fi_cq_wait_cond,
        /// The wait set, if `wait_obj` is [`FI_WAIT_SET`]. Deprecated since 2.0.
        pub wait_set: *mut fid_wait,
    }

    /// A completion queue.
    pub struct fid_cq {
        /// What every object has.
        pub fid: fid,
        /// What a completion queue can do.
        pub ops: *mut fi_ops_cq,
    }

    /// What a completion queue can do. Reads return entries, or `-FI_EAGAIN`, or `-FI_EAVAIL` if an error is
    /// next. Version 2.7 appends `export_xpu`, which C's wrapper calls whatever `size` says.
    pub struct fi_ops_cq {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_cq_read`. `buf` is an array of `count` entries in the queue's format.
        pub read: Option<unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize>,
        /// `fi_cq_readfrom`: also who sent, where that is known.
        pub readfrom: Option<
            unsafe extern "C" fn(
                cq: *mut fid_cq,
                buf: *mut c_void,
                count: usize,
                src_addr: *mut fi_addr_t,
            ) -> isize,
        >,
        /// `fi_cq_readerr`: the error that is next.
        pub readerr: Option<
            unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
        >,
        /// `fi_cq_sread`: blocks for up to `timeout` milliseconds, for ever if that is negative.
        pub sread: Option<
            unsafe extern "C" fn(
                cq: *mut fid_cq,
                buf: *mut c_void,
                count: usize,
                cond: *const c_void,
                timeout: c_int,
            ) -> isize,
        >,
        /// `fi_cq_sreadfrom`.
        pub sreadfrom: Option<
            unsafe extern "C" fn(
                cq: *mut fid_cq,
                buf: *mut c_void,
                count: usize,
                src_addr: *mut fi_addr_t,
                cond: *const c_void,
                timeout: c_int,
            ) -> isize,
        >,
        /// `fi_cq_signal`: wakes who blocks.
        pub signal: Option<unsafe extern "C" fn(cq: *mut fid_cq) -> c_int>,
        /// `fi_cq_strerror`: what `prov_errno` means. `buf` may be null.
        pub strerror: Option<
            unsafe extern "C" fn(
                cq: *mut fid_cq,
                prov_errno: c_int,
                err_data: *const c_void,
                buf: *mut c_char,
                len: usize,
            ) -> *const c_char,
        >,
    }

    /// An entry of [`FI_CQ_FORMAT_CONTEXT`].
    pub struct fi_cq_entry {
        /// The operation's context.
        pub op_context: *mut c_void,
    }

    /// An entry of [`FI_CQ_FORMAT_MSG`].
    pub struct fi_cq_msg_entry {
        /// The operation's context.
        pub op_context: *mut c_void,
        /// What has completed, as flags.
        pub flags: u64,
        /// Bytes received.
        pub len: usize,
    }

    /// An entry of [`FI_CQ_FORMAT_DATA`].
    pub struct fi_cq_data_entry {
        /// The operation's context.
        pub op_context: *mut c_void,
        /// What has completed, as flags.
        pub flags: u64,
        /// Bytes received.
        pub len: usize,
        /// Where the message lies, of a receive that takes many.
        pub buf: *mut c_void,
        /// The peer's data, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
    }

    /// An entry of [`FI_CQ_FORMAT_TAGGED`].
    pub struct fi_cq_tagged_entry {
        /// The operation's context.
        pub op_context: *mut c_void,
        /// What has completed, as flags.
        pub flags: u64,
        /// Bytes received.
        pub len: usize,
        /// Where the message lies, of a receive that takes many.
        pub buf: *mut c_void,
        /// The peer's data, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
        /// The message's tag.
        pub tag: u64,
    }

    /// An operation that has failed. Lies in the caller's memory, and is as long as the caller's API version
    /// has it ([`fid_fabric::api_version`](super::fid_fabric::api_version)):
    ///
    /// - before 1.5 it ends before `err_data_size`, which is then neither read nor written;
    /// - from 1.5 it is this struct. If `err_data_size` is not zero on input, `err_data` is a buffer of the
    ///   caller's of that many bytes: what fits is copied there, the pointer stays, and the number of bytes
    ///   is written. If it is zero, both are written, and `err_data` points to memory of the provider's until
    ///   the next read of the queue;
    /// - from 1.20 the caller's has an `fi_addr_t`, `src_addr`, behind `err_data_size`. It must not be
    ///   written for older callers, in whose memory something else lies there. C's wrapper of 1.20 and later
    ///   sets it to [`FI_ADDR_NOTAVAIL`](super::FI_ADDR_NOTAVAIL) before it calls the provider.
    pub struct fi_cq_err_entry {
        /// The operation's context; null if it has none.
        pub op_context: *mut c_void,
        /// What has failed, as flags.
        pub flags: u64,
        /// Bytes received in spite of that.
        pub len: usize,
        /// Where the message lies, of a receive that takes many.
        pub buf: *mut c_void,
        /// The peer's data, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
        /// The message's tag.
        pub tag: u64,
        /// Bytes that the buffer had no room for.
        pub olen: usize,
        /// Why: `FI_E*`, positive.
        pub err: c_int,
        /// Why, as a code of the provider's, for `fi_cq_strerror`.
        pub prov_errno: c_int,
        /// More about it. With `FI_SOURCE_ERR` and [`FI_EADDRNOTAVAIL`](super::FI_EADDRNOTAVAIL), who sent.
        pub err_data: *mut c_void,
        /// Bytes of `err_data`.
        pub err_data_size: usize,
    }

    /// How to open a counter. The caller's; version 2.7 appends `xpu_ctx`.
    pub struct fi_cntr_attr {
        /// What it counts.
        pub events: fi_cntr_events,
        /// What one waits on.
        pub wait_obj: fi_wait_obj,
        /// The wait set, if `wait_obj` is [`FI_WAIT_SET`]. Deprecated since 2.0.
        pub wait_set: *mut fid_wait,
        /// Reserved, zero.
        pub flags: u64,
    }

    /// A counter.
    pub struct fid_cntr {
        /// What every object has.
        pub fid: fid,
        /// What a counter can do.
        pub ops: *mut fi_ops_cntr,
    }

    /// What a counter can do. Version 2.7 appends `export_xpu`, which C's wrapper calls whatever `size` says.
    pub struct fi_ops_cntr {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_cntr_read`: operations that have succeeded.
        pub read: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
        /// `fi_cntr_readerr`: operations that have failed.
        pub readerr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
        /// `fi_cntr_add`.
        pub add: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
        /// `fi_cntr_set`.
        pub set: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
        /// `fi_cntr_wait`: until the threshold is reached, an operation fails, or the time in milliseconds is
        /// over; it never is if negative.
        pub wait: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int>,
        /// `fi_cntr_adderr`.
        pub adderr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
        /// `fi_cntr_seterr`.
        pub seterr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    }

    /// How to open an event queue.
    pub struct fi_eq_attr {
        /// Entries at least, or zero for as many as the provider likes.
        pub size: usize,
        /// [`FI_WRITE`](super::FI_WRITE) if the caller writes events too,
        /// [`FI_AFFINITY`](super::FI_AFFINITY).
        pub flags: u64,
        /// What one waits on.
        pub wait_obj: fi_wait_obj,
        /// The CPU to interrupt.
        pub signaling_vector: c_int,
        /// The wait set, if `wait_obj` is [`FI_WAIT_SET`]. Deprecated since 2.0.
        pub wait_set: *mut fid_wait,
    }

    /// An event queue.
    pub struct fid_eq {
        /// What every object has.
        pub fid: fid,
        /// What an event queue can do.
        pub ops: *mut fi_ops_eq,
    }

    /// What an event queue can do. Reads return bytes, or `-FI_EAGAIN`, or `-FI_EAVAIL` if an error is next;
    /// with [`FI_PEEK`](super::FI_PEEK) the event stays.
    pub struct fi_ops_eq {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_eq_read`.
        pub read: Option<
            unsafe extern "C" fn(
                eq: *mut fid_eq,
                event: *mut u32,
                buf: *mut c_void,
                len: usize,
                flags: u64,
            ) -> isize,
        >,
        /// `fi_eq_readerr`: the error that is next.
        pub readerr: Option<
            unsafe extern "C" fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize,
        >,
        /// `fi_eq_write`.
        pub write: Option<
            unsafe extern "C" fn(
                eq: *mut fid_eq,
                event: u32,
                buf: *const c_void,
                len: usize,
                flags: u64,
            ) -> isize,
        >,
        /// `fi_eq_sread`: blocks for up to `timeout` milliseconds, for ever if that is negative.
        pub sread: Option<
            unsafe extern "C" fn(
                eq: *mut fid_eq,
                event: *mut u32,
                buf: *mut c_void,
                len: usize,
                timeout: c_int,
                flags: u64,
            ) -> isize,
        >,
        /// `fi_eq_strerror`: what `prov_errno` means. `buf` may be null.
        pub strerror: Option<
            unsafe extern "C" fn(
                eq: *mut fid_eq,
                prov_errno: c_int,
                err_data: *const c_void,
                buf: *mut c_char,
                len: usize,
            ) -> *const c_char,
        >,
    }

    /// An event of [`FI_MR_COMPLETE`], [`FI_AV_COMPLETE`] or [`FI_JOIN_COMPLETE`].
    pub struct fi_eq_entry {
        /// The object that it is about.
        pub fid: fid_t,
        /// The context given with the request.
        pub context: *mut c_void,
        /// Of an insertion: how many addresses were inserted.
        pub data: u64,
    }

    /// An event that is an error. As with [`fi_cq_err_entry`], what `err_data` is on input depends on
    /// `err_data_size` and on the caller's API version; this struct has not grown.
    pub struct fi_eq_err_entry {
        /// The object that it is about.
        pub fid: fid_t,
        /// The context given with the request.
        pub context: *mut c_void,
        /// Of an insertion: the index of the address that has failed.
        pub data: u64,
        /// Why: `FI_E*`, positive.
        pub err: c_int,
        /// Why, as a code of the provider's, for `fi_eq_strerror`.
        pub prov_errno: c_int,
        /// More about it.
        pub err_data: *mut c_void,
        /// Bytes of `err_data`.
        pub err_data_size: usize,
    }

    /// An event of [`FI_CONNREQ`], [`FI_CONNECTED`] or [`FI_SHUTDOWN`], `fi_cm(3)`.
    pub struct fi_eq_cm_entry {
        /// The endpoint.
        pub fid: fid_t,
        /// Of a request: what to open an endpoint with, for the caller to free.
        pub info: *mut fi_info,
        /// What the peer has sent with it: as much as the buffer that was given has room for.
        pub data: [u8; 0],
    }

    /// How to open a wait set. Wait sets and poll sets are deprecated since 2.0.
    pub struct fi_wait_attr {
        /// What it waits on itself.
        pub wait_obj: fi_wait_obj,
        /// Reserved, zero.
        pub flags: u64,
    }

    /// A wait set: many objects to wait on as one.
    pub struct fid_wait {
        /// What every object has.
        pub fid: fid,
        /// What a wait set can do.
        pub ops: *mut fi_ops_wait,
    }

    /// What a wait set can do.
    pub struct fi_ops_wait {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_wait`: blocks for up to `timeout` milliseconds, for ever if that is negative.
        pub wait: Option<unsafe extern "C" fn(waitset: *mut fid_wait, timeout: c_int) -> c_int>,
    }

    /// What [`FI_GETWAIT`](super::FI_GETWAIT) yields of [`FI_WAIT_MUTEX_COND`].
    pub struct fi_mutex_cond {
        /// The mutex.
        pub mutex: *mut pthread_mutex_t,
        /// The condition that is signalled.
        pub cond: *mut pthread_cond_t,
    }

    /// What [`FI_GETWAIT`](super::FI_GETWAIT) yields of [`FI_WAIT_POLLFD`].
    pub struct fi_wait_pollfd {
        /// Another number when the descriptors have changed.
        pub change_index: u64,
        /// Room in `fd` on input, descriptors on output.
        pub nfds: usize,
        /// Where the descriptors go.
        pub fd: *mut pollfd,
    }

    /// How to open a poll set.
    pub struct fi_poll_attr {
        /// Reserved, zero.
        pub flags: u64,
    }

    /// A poll set: queues and counters to drive forward as one.
    pub struct fid_poll {
        /// What every object has.
        pub fid: fid,
        /// What a poll set can do.
        pub ops: *mut fi_ops_poll,
    }

    /// What a poll set can do.
    pub struct fi_ops_poll {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_poll`: the contexts of those that have something, and their number.
        pub poll: Option<
            unsafe extern "C" fn(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int,
        >,
        /// `fi_poll_add`.
        pub poll_add: Option<
            unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
        >,
        /// `fi_poll_del`.
        pub poll_del: Option<
            unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
        >,
    }
}

constants! { QUEUE_CONSTANTS
    /// Nobody blocks.
    pub const FI_WAIT_NONE: fi_wait_obj = 0;
    /// Who blocks does so in `fi_cq_sread` and the like; how is the provider's affair.
    pub const FI_WAIT_UNSPEC: fi_wait_obj = 1;
    /// A wait set.
    pub const FI_WAIT_SET: fi_wait_obj = 2;
    /// A file descriptor.
    pub const FI_WAIT_FD: fi_wait_obj = 3;
    /// A condition variable, [`fi_mutex_cond`]. Deprecated since 2.0.
    pub const FI_WAIT_MUTEX_COND: fi_wait_obj = 4;
    /// Nothing: who blocks yields the CPU and looks again.
    pub const FI_WAIT_YIELD: fi_wait_obj = 5;
    /// Several file descriptors, [`fi_wait_pollfd`].
    pub const FI_WAIT_POLLFD: fi_wait_obj = 6;

    /// Whatever the provider likes.
    pub const FI_CQ_FORMAT_UNSPEC: fi_cq_format = 0;
    /// [`fi_cq_entry`].
    pub const FI_CQ_FORMAT_CONTEXT: fi_cq_format = 1;
    /// [`fi_cq_msg_entry`].
    pub const FI_CQ_FORMAT_MSG: fi_cq_format = 2;
    /// [`fi_cq_data_entry`].
    pub const FI_CQ_FORMAT_DATA: fi_cq_format = 3;
    /// [`fi_cq_tagged_entry`].
    pub const FI_CQ_FORMAT_TAGGED: fi_cq_format = 4;

    /// As soon as there is an entry.
    pub const FI_CQ_COND_NONE: fi_cq_wait_cond = 0;
    /// When there are as many entries as `cond`, taken as a number, says; a hint.
    pub const FI_CQ_COND_THRESHOLD: fi_cq_wait_cond = 1;

    /// Operations. From 1.21 there is `FI_CNTR_EVENTS_BYTES` too.
    pub const FI_CNTR_EVENTS_COMP: fi_cntr_events = 0;

    /// Of the caller's own.
    pub const FI_NOTIFY: u32 = 0;
    /// A peer wants a connection.
    pub const FI_CONNREQ: u32 = 1;
    /// The connection is there.
    pub const FI_CONNECTED: u32 = 2;
    /// The connection is at its end.
    pub const FI_SHUTDOWN: u32 = 3;
    /// A registration has completed.
    pub const FI_MR_COMPLETE: u32 = 4;
    /// An insertion into an address vector has completed.
    pub const FI_AV_COMPLETE: u32 = 5;
    /// A multicast group or a collective was joined.
    pub const FI_JOIN_COMPLETE: u32 = 6;
}
