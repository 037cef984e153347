//! Endpoints: `fi_endpoint(3)` and `fi_cm(3)`.

use super::{
    fi_addr_t, fi_ops_atomic, fi_ops_msg, fi_ops_rma, fi_ops_tagged, fi_rx_attr, fi_tx_attr, fid, fid_t,
};
use std::ffi::{c_int, c_void};

/// A function that returns `-FI_ENOSYS` without a look at its arguments. It may stand for any that returns as
/// much, because in C's calling conventions the caller clears the arguments away.
pub type fi_unsupported = Option<unsafe extern "C" fn() -> isize>;

structs! { ENDPOINT_STRUCTS
    /// An endpoint. C's wrappers call through these tables without asking whether they are there: a table for
    /// what is not supported returns `-FI_ENOSYS`.
    pub struct fid_ep {
        /// What every object has.
        pub fid: fid,
        /// What an endpoint can do besides transfers.
        pub ops: *mut fi_ops_ep,
        /// Names and connections.
        pub cm: *mut fi_ops_cm,
        /// Messages.
        pub msg: *mut fi_ops_msg,
        /// Remote memory.
        pub rma: *mut fi_ops_rma,
        /// Messages with tags.
        pub tagged: *mut fi_ops_tagged,
        /// Atomics on remote memory.
        pub atomic: *mut fi_ops_atomic,
        /// Collectives.
        pub collective: *mut fi_ops_collective,
    }

    /// A passive endpoint, which waits for requests for connections.
    pub struct fid_pep {
        /// What every object has.
        pub fid: fid,
        /// What an endpoint can do besides transfers.
        pub ops: *mut fi_ops_ep,
        /// Names and connections.
        pub cm: *mut fi_ops_cm,
    }

    /// A transmit context that endpoints share.
    pub struct fid_stx {
        /// What every object has.
        pub fid: fid,
        /// What an endpoint can do besides transfers.
        pub ops: *mut fi_ops_ep,
    }

    /// A multicast group or a collective that was joined.
    pub struct fid_mc {
        /// What every object has.
        pub fid: fid,
        /// What `fi_mc_addr` returns: the address to send to.
        pub fi_addr: fi_addr_t,
    }

    /// What an endpoint can do besides transfers, `fi_endpoint(3)`. Version 2.7 appends `export_xpu`, which
    /// C's wrapper calls whatever `size` says.
    pub struct fi_ops_ep {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_cancel`: a receive that has matched nothing yet completes with
        /// [`FI_ECANCELED`](super::FI_ECANCELED).
        pub cancel: Option<unsafe extern "C" fn(fid: fid_t, context: *mut c_void) -> isize>,
        /// `fi_getopt`: `optlen` is the room on input, and the length on output.
        pub getopt: Option<
            unsafe extern "C" fn(
                fid: fid_t,
                level: c_int,
                optname: c_int,
                optval: *mut c_void,
                optlen: *mut usize,
            ) -> c_int,
        >,
        /// `fi_setopt`.
        pub setopt: Option<
            unsafe extern "C" fn(
                fid: fid_t,
                level: c_int,
                optname: c_int,
                optval: *const c_void,
                optlen: usize,
            ) -> c_int,
        >,
        /// `fi_tx_context`: of a scalable endpoint.
        pub tx_ctx: Option<
            unsafe extern "C" fn(
                sep: *mut fid_ep,
                index: c_int,
                attr: *mut fi_tx_attr,
                tx_ep: *mut *mut fid_ep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_rx_context`: of a scalable endpoint.
        pub rx_ctx: Option<
            unsafe extern "C" fn(
                sep: *mut fid_ep,
                index: c_int,
                attr: *mut fi_rx_attr,
                rx_ep: *mut *mut fid_ep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_rx_size_left`. Deprecated.
        pub rx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> isize>,
        /// `fi_tx_size_left`. Deprecated.
        pub tx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> isize>,
    }

    /// Names and connections, `fi_cm(3)`.
    pub struct fi_ops_cm {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_setname`: this side's address.
        pub setname: Option<unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int>,
        /// `fi_getname`: this side's address; `addrlen` is the room on input, and the length on output even
        /// if `-FI_ETOOSMALL` is returned.
        pub getname: Option<
            unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        >,
        /// `fi_getpeer`.
        pub getpeer: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        >,
        /// `fi_connect`.
        pub connect: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                addr: *const c_void,
                param: *const c_void,
                paramlen: usize,
            ) -> c_int,
        >,
        /// `fi_listen`.
        pub listen: Option<unsafe extern "C" fn(pep: *mut fid_pep) -> c_int>,
        /// `fi_accept`.
        pub accept: Option<
            unsafe extern "C" fn(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
        >,
        /// `fi_reject`.
        pub reject: Option<
            unsafe extern "C" fn(
                pep: *mut fid_pep,
                handle: fid_t,
                param: *const c_void,
                paramlen: usize,
            ) -> c_int,
        >,
        /// `fi_shutdown`.
        pub shutdown: Option<unsafe extern "C" fn(ep: *mut fid_ep, flags: u64) -> c_int>,
        /// `fi_join`: a multicast group or, with [`FI_COLLECTIVE`](super::FI_COLLECTIVE), a collective.
        pub join: Option<
            unsafe extern "C" fn(
                ep: *mut fid_ep,
                addr: *const c_void,
                flags: u64,
                mc: *mut *mut fid_mc,
                context: *mut c_void,
            ) -> c_int,
        >,
    }

    /// Collectives, `fi_collective(3)`: none is supported, so the functions' arguments are not declared.
    pub struct fi_ops_collective {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_barrier`.
        pub barrier: fi_unsupported,
        /// `fi_broadcast`.
        pub broadcast: fi_unsupported,
        /// `fi_alltoall`.
        pub alltoall: fi_unsupported,
        /// `fi_allreduce`.
        pub allreduce: fi_unsupported,
        /// `fi_allgather`.
        pub allgather: fi_unsupported,
        /// `fi_reduce_scatter`.
        pub reduce_scatter: fi_unsupported,
        /// `fi_reduce`.
        pub reduce: fi_unsupported,
        /// `fi_scatter`.
        pub scatter: fi_unsupported,
        /// `fi_gather`.
        pub gather: fi_unsupported,
        /// Any of them, described by a struct.
        pub msg: fi_unsupported,
        /// `fi_barrier2`.
        pub barrier2: fi_unsupported,
    }
}

constants! { ENDPOINT_CONSTANTS
    /// The level of the options below, the only one.
    pub const FI_OPT_ENDPOINT: c_int = 0;
    /// `usize`: a buffer that takes many messages is given back when less than this many bytes are left.
    pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
    /// `usize`: most bytes that go with a request for a connection.
    pub const FI_OPT_CM_DATA_SIZE: c_int = 1;
    /// `usize`: bytes at least of a message that is buffered.
    pub const FI_OPT_BUFFERED_MIN: c_int = 2;
    /// `usize`: bytes at most of a message that is buffered.
    pub const FI_OPT_BUFFERED_LIMIT: c_int = 3;
    /// `usize`: bytes of the buffer that sends go through.
    pub const FI_OPT_SEND_BUF_SIZE: c_int = 4;
    /// `usize`: bytes of the buffer that receives go through.
    pub const FI_OPT_RECV_BUF_SIZE: c_int = 5;
    /// `usize`: operations that can be outstanding.
    pub const FI_OPT_TX_SIZE: c_int = 6;
    /// `usize`: receives that can be posted.
    pub const FI_OPT_RX_SIZE: c_int = 7;
    /// `c_int`, `FI_HMEM_P2P_*`: whether memory of accelerators is reached without the host's.
    pub const FI_OPT_FI_HMEM_P2P: c_int = 8;
    /// Triggered by an accelerator. Reserved from 2.7.
    pub const FI_OPT_XPU_TRIGGER: c_int = 9;

    /// As the provider likes.
    pub const FI_HMEM_P2P_ENABLED: c_int = 0;
    /// Always, or the operation fails.
    pub const FI_HMEM_P2P_REQUIRED: c_int = 1;
    /// Where possible.
    pub const FI_HMEM_P2P_PREFERRED: c_int = 2;
    /// Never.
    pub const FI_HMEM_P2P_DISABLED: c_int = 3;
}
