//! Messages, messages with tags, and remote memory: `fi_msg(3)`, `fi_tagged(3)` and `fi_rma(3)`.
//!
//! Functions return zero or an error; `-FI_EAGAIN` when there is no room. What `FI_COMPLETION`, `FI_INJECT`
//! and the like say of an operation is in its flags, or else in the endpoint's `op_flags`.

use super::{fi_addr_t, fid_ep};
use libc::iovec;
use std::ffi::c_void;

structs! { TRANSFER_STRUCTS
    /// What `fi_sendmsg` and `fi_recvmsg` are given.
    pub struct fi_msg {
        /// The pieces of the buffer.
        pub msg_iov: *const iovec,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
        /// The peer.
        pub addr: fi_addr_t,
        /// The operation's context.
        pub context: *mut c_void,
        /// Data for the peer's completion, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
    }

    /// Messages, `fi_msg(3)`.
    pub struct fi_ops_msg {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_recv`.
        pub recv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *mut c_void,
                len: usize,
                desc: *mut c_void,
                src_addr: fi_addr_t,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_recvv`.
        pub recvv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                src_addr: fi_addr_t,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_recvmsg`: the flags count instead of the endpoint's.
        pub recvmsg: Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize>,
        /// `fi_send`.
        pub send: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                dest_addr: fi_addr_t,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_sendv`.
        pub sendv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                dest_addr: fi_addr_t,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_sendmsg`: the flags count instead of the endpoint's.
        pub sendmsg: Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize>,
        /// `fi_inject`: the buffer is free at once, and no completion comes unless it fails.
        pub inject: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                dest_addr: fi_addr_t,
            ) -> isize,
        >,
        /// `fi_senddata`: with data for the peer's completion.
        pub senddata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                data: u64,
                dest_addr: fi_addr_t,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_injectdata`.
        pub injectdata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                data: u64,
                dest_addr: fi_addr_t,
            ) -> isize,
        >,
    }

    /// What `fi_tsendmsg` and `fi_trecvmsg` are given.
    pub struct fi_msg_tagged {
        /// The pieces of the buffer.
        pub msg_iov: *const iovec,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
        /// The peer.
        pub addr: fi_addr_t,
        /// The tag.
        pub tag: u64,
        /// Bits of the tag that are not compared.
        pub ignore: u64,
        /// The operation's context.
        pub context: *mut c_void,
        /// Data for the peer's completion, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
    }

    /// Messages with tags, `fi_tagged(3)`. Bits that `ignore` has set are not compared.
    pub struct fi_ops_tagged {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_trecv`.
        pub recv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *mut c_void,
                len: usize,
                desc: *mut c_void,
                src_addr: fi_addr_t,
                tag: u64,
                ignore: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_trecvv`.
        pub recvv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                src_addr: fi_addr_t,
                tag: u64,
                ignore: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_trecvmsg`: the flags count instead of the endpoint's; they may peek, claim and discard.
        pub recvmsg: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        >,
        /// `fi_tsend`.
        pub send: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                dest_addr: fi_addr_t,
                tag: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_tsendv`.
        pub sendv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                dest_addr: fi_addr_t,
                tag: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_tsendmsg`: the flags count instead of the endpoint's.
        pub sendmsg: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        >,
        /// `fi_tinject`: the buffer is free at once, and no completion comes unless it fails.
        pub inject: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                dest_addr: fi_addr_t,
                tag: u64,
            ) -> isize,
        >,
        /// `fi_tsenddata`: with data for the peer's completion.
        pub senddata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                data: u64,
                dest_addr: fi_addr_t,
                tag: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_tinjectdata`.
        pub injectdata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                data: u64,
                dest_addr: fi_addr_t,
                tag: u64,
            ) -> isize,
        >,
    }

    /// A piece of remote memory.
    pub struct fi_rma_iov {
        /// Where it begins.
        pub addr: u64,
        /// Its length in bytes.
        pub len: usize,
        /// The region's key.
        pub key: u64,
    }

    /// What `fi_readmsg` and `fi_writemsg` are given.
    pub struct fi_msg_rma {
        /// The pieces of the buffer.
        pub msg_iov: *const iovec,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
        /// The peer.
        pub addr: fi_addr_t,
        /// The pieces of the peer's memory.
        pub rma_iov: *const fi_rma_iov,
        /// Their number.
        pub rma_iov_count: usize,
        /// The operation's context.
        pub context: *mut c_void,
        /// Data for the peer's completion, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
    }

    /// Remote memory, `fi_rma(3)`. `addr` is an offset into the region, or an address with
    /// [`FI_MR_VIRT_ADDR`](super::FI_MR_VIRT_ADDR).
    pub struct fi_ops_rma {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_read`.
        pub read: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *mut c_void,
                len: usize,
                desc: *mut c_void,
                src_addr: fi_addr_t,
                addr: u64,
                key: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_readv`.
        pub readv: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                src_addr: fi_addr_t,
                addr: u64,
                key: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_readmsg`: the flags count instead of the endpoint's.
        pub readmsg: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        >,
        /// `fi_write`.
        pub write: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_writev`.
        pub writev: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const iovec,
                desc: *mut *mut c_void,
                count: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_writemsg`: the flags count instead of the endpoint's.
        pub writemsg: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        >,
        /// `fi_inject_write`: the buffer is free at once, and no completion comes unless it fails.
        pub inject: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
            ) -> isize,
        >,
        /// `fi_writedata`: with data for the peer's completion.
        pub writedata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                desc: *mut c_void,
                data: u64,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_inject_writedata`.
        pub injectdata: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                data: u64,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
            ) -> isize,
        >,
    }
}
