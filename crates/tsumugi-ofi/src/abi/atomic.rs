//! Atomics on remote memory, `fi_atomic(3)`, and what collectives are made of, `fi_collective(3)`.
//!
//! Later versions have more types and operations: an unknown number is answered with `-FI_EOPNOTSUPP`.

use super::{fi_addr_t, fid_ep};
use std::ffi::{c_int, c_void};

/// What the elements are: [`FI_INT8`] and so on.
pub type fi_datatype = u32;
/// What becomes of an element: [`FI_MIN`] and so on.
pub type fi_op = u32;
/// Which collective: [`FI_BARRIER`] and so on.
pub type fi_collective_op = u32;

/// What `fi_query_collective` is given. Only pointed to.
#[repr(C)]
pub struct fi_collective_attr {
    nothing: [u8; 0],
}

structs! { ATOMIC_STRUCTS
    /// A piece of a buffer.
    pub struct fi_ioc {
        /// Where it begins.
        pub addr: *mut c_void,
        /// Its elements.
        pub count: usize,
    }

    /// A piece of remote memory.
    pub struct fi_rma_ioc {
        /// Where it begins.
        pub addr: u64,
        /// Its elements.
        pub count: usize,
        /// The region's key.
        pub key: u64,
    }

    /// What `fi_query_atomic` answers.
    pub struct fi_atomic_attr {
        /// Elements at once.
        pub count: usize,
        /// Bytes of an element.
        pub size: usize,
    }

    /// What `fi_atomicmsg` and the like are given.
    pub struct fi_msg_atomic {
        /// The pieces of the buffer.
        pub msg_iov: *const fi_ioc,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
        /// The peer.
        pub addr: fi_addr_t,
        /// The pieces of the peer's memory.
        pub rma_iov: *const fi_rma_ioc,
        /// Their number.
        pub rma_iov_count: usize,
        /// What the elements are.
        pub datatype: fi_datatype,
        /// What becomes of them.
        pub op: fi_op,
        /// The operation's context.
        pub context: *mut c_void,
        /// Data for the peer's completion, with [`FI_REMOTE_CQ_DATA`](super::FI_REMOTE_CQ_DATA).
        pub data: u64,
    }

    /// The result of an operation that waits for a counter, `fi_trigger(3)`.
    pub struct fi_msg_fetch {
        /// The pieces of the buffer.
        pub msg_iov: *mut fi_ioc,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
    }

    /// What an operation that waits for a counter compares with, `fi_trigger(3)`.
    pub struct fi_msg_compare {
        /// The pieces of the buffer.
        pub msg_iov: *const fi_ioc,
        /// Their descriptors, or null.
        pub desc: *mut *mut c_void,
        /// Their number.
        pub iov_count: usize,
    }

    /// Atomics on remote memory, `fi_atomic(3)`. `count` counts elements of the type, not bytes.
    pub struct fi_ops_atomic {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_atomic`.
        pub write: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                count: usize,
                desc: *mut c_void,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_atomicv`.
        pub writev: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const fi_ioc,
                desc: *mut *mut c_void,
                count: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_atomicmsg`.
        pub writemsg: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize,
        >,
        /// `fi_inject_atomic`: the buffer is free at once, and no completion comes unless it fails.
        pub inject: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                count: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
            ) -> isize,
        >,
        /// `fi_fetch_atomic`: yields what was there before. `buf` may be null with [`FI_ATOMIC_READ`].
        pub readwrite: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                count: usize,
                desc: *mut c_void,
                result: *mut c_void,
                result_desc: *mut c_void,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_fetch_atomicv`.
        pub readwritev: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const fi_ioc,
                desc: *mut *mut c_void,
                count: usize,
                resultv: *mut fi_ioc,
                result_desc: *mut *mut c_void,
                result_count: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_fetch_atomicmsg`.
        pub readwritemsg: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                msg: *const fi_msg_atomic,
                resultv: *mut fi_ioc,
                result_desc: *mut *mut c_void,
                result_count: usize,
                flags: u64,
            ) -> isize,
        >,
        /// `fi_compare_atomic`: compares first, and yields what was there before.
        pub compwrite: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                buf: *const c_void,
                count: usize,
                desc: *mut c_void,
                compare: *const c_void,
                compare_desc: *mut c_void,
                result: *mut c_void,
                result_desc: *mut c_void,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_compare_atomicv`.
        pub compwritev: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                iov: *const fi_ioc,
                desc: *mut *mut c_void,
                count: usize,
                comparev: *const fi_ioc,
                compare_desc: *mut *mut c_void,
                compare_count: usize,
                resultv: *mut fi_ioc,
                result_desc: *mut *mut c_void,
                result_count: usize,
                dest_addr: fi_addr_t,
                addr: u64,
                key: u64,
                datatype: fi_datatype,
                op: fi_op,
                context: *mut c_void,
            ) -> isize,
        >,
        /// `fi_compare_atomicmsg`.
        pub compwritemsg: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                msg: *const fi_msg_atomic,
                comparev: *const fi_ioc,
                compare_desc: *mut *mut c_void,
                compare_count: usize,
                resultv: *mut fi_ioc,
                result_desc: *mut *mut c_void,
                result_count: usize,
                flags: u64,
            ) -> isize,
        >,
        /// `fi_atomicvalid`: how many elements at once, or `-FI_EOPNOTSUPP`.
        pub writevalid: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                datatype: fi_datatype,
                op: fi_op,
                count: *mut usize,
            ) -> c_int,
        >,
        /// `fi_fetch_atomicvalid`.
        pub readwritevalid: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                datatype: fi_datatype,
                op: fi_op,
                count: *mut usize,
            ) -> c_int,
        >,
        /// `fi_compare_atomicvalid`.
        pub compwritevalid: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                datatype: fi_datatype,
                op: fi_op,
                count: *mut usize,
            ) -> c_int,
        >,
    }
}

constants! { ATOMIC_CONSTANTS
    /// `i8`.
    pub const FI_INT8: fi_datatype = 0;
    /// `u8`.
    pub const FI_UINT8: fi_datatype = 1;
    /// `i16`.
    pub const FI_INT16: fi_datatype = 2;
    /// `u16`.
    pub const FI_UINT16: fi_datatype = 3;
    /// `i32`.
    pub const FI_INT32: fi_datatype = 4;
    /// `u32`.
    pub const FI_UINT32: fi_datatype = 5;
    /// `i64`.
    pub const FI_INT64: fi_datatype = 6;
    /// `u64`.
    pub const FI_UINT64: fi_datatype = 7;
    /// `f32`.
    pub const FI_FLOAT: fi_datatype = 8;
    /// `f64`.
    pub const FI_DOUBLE: fi_datatype = 9;
    /// Two `f32`: a real part and an imaginary one.
    pub const FI_FLOAT_COMPLEX: fi_datatype = 10;
    /// Two `f64`.
    pub const FI_DOUBLE_COMPLEX: fi_datatype = 11;
    /// C's `long double`.
    pub const FI_LONG_DOUBLE: fi_datatype = 12;
    /// Two `long double`.
    pub const FI_LONG_DOUBLE_COMPLEX: fi_datatype = 13;
    /// Types of 1.17 below 128-bit integers end here; later versions number on from [`FI_UINT128`].
    pub const FI_DATATYPE_LAST: fi_datatype = 14;
    /// `i128`.
    pub const FI_INT128: fi_datatype = 14;
    /// `u128`. From 2.0 there are `FI_FLOAT16`, `FI_BFLOAT16` and two more behind it.
    pub const FI_UINT128: fi_datatype = 15;
    /// Types and operations of collectives only begin here.
    pub const FI_COLLECTIVE_OFFSET: u32 = 256;
    /// No type, of a barrier.
    pub const FI_VOID: fi_datatype = 256;

    /// The smaller.
    pub const FI_MIN: fi_op = 0;
    /// The larger.
    pub const FI_MAX: fi_op = 1;
    /// The sum.
    pub const FI_SUM: fi_op = 2;
    /// The product.
    pub const FI_PROD: fi_op = 3;
    /// One is not zero.
    pub const FI_LOR: fi_op = 4;
    /// Both are not zero.
    pub const FI_LAND: fi_op = 5;
    /// Bits of either.
    pub const FI_BOR: fi_op = 6;
    /// Bits of both.
    pub const FI_BAND: fi_op = 7;
    /// Just one is not zero.
    pub const FI_LXOR: fi_op = 8;
    /// Bits of just one.
    pub const FI_BXOR: fi_op = 9;
    /// What is there.
    pub const FI_ATOMIC_READ: fi_op = 10;
    /// What is brought.
    pub const FI_ATOMIC_WRITE: fi_op = 11;
    /// What is brought, if compared and there are equal.
    pub const FI_CSWAP: fi_op = 12;
    /// What is brought, if compared is not what is there.
    pub const FI_CSWAP_NE: fi_op = 13;
    /// What is brought, if compared is at most what is there.
    pub const FI_CSWAP_LE: fi_op = 14;
    /// What is brought, if compared is less than what is there.
    pub const FI_CSWAP_LT: fi_op = 15;
    /// What is brought, if compared is at least what is there.
    pub const FI_CSWAP_GE: fi_op = 16;
    /// What is brought, if compared is more than what is there.
    pub const FI_CSWAP_GT: fi_op = 17;
    /// Of what is brought, the bits that compared has set.
    pub const FI_MSWAP: fi_op = 18;
    /// Operations of 1.17 end here. From 2.0 this number is `FI_DIFF`.
    pub const FI_ATOMIC_OP_LAST: fi_op = 19;
    /// No operation, of a collective that makes nothing of the data.
    pub const FI_NOOP: fi_op = 256;

    /// Everyone has come.
    pub const FI_BARRIER: fi_collective_op = 0;
    /// One sends to all.
    pub const FI_BROADCAST: fi_collective_op = 1;
    /// Everyone sends to all.
    pub const FI_ALLTOALL: fi_collective_op = 2;
    /// All get what an operation makes of everything.
    pub const FI_ALLREDUCE: fi_collective_op = 3;
    /// All get everything.
    pub const FI_ALLGATHER: fi_collective_op = 4;
    /// Everyone gets a part of what an operation makes of everything.
    pub const FI_REDUCE_SCATTER: fi_collective_op = 5;
    /// One gets what an operation makes of everything.
    pub const FI_REDUCE: fi_collective_op = 6;
    /// One sends a part to each.
    pub const FI_SCATTER: fi_collective_op = 7;
    /// One gets everything.
    pub const FI_GATHER: fi_collective_op = 8;
}
