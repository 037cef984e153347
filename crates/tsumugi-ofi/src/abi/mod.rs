//! libfabric's ABI as version 1.17 has it, written by hand: what is the same up to version 2.7.
//!
//! Names are C's, so that a reader finds the man page: `fi_cq(3)` tells of `fi_cq_attr` and of the functions
//! of `fi_ops_cq`. A C enum is an integer here, because a caller may pass any value. tests/abi.rs asks a C
//! compiler whether sizes, offsets, types and values are those of libfabric's headers.
//!
//! # Versions
//!
//! Structs have grown at their ends; no field of 1.17 has moved since:
//!
//! - 1.19: `fi_mr_attr` has `hmem_data`.
//! - 1.20: `fi_domain_attr` has `max_ep_auth_key`; `fi_cq_err_entry` has `src_addr`; `fi_ops_av` has
//!   `insert_auth_key`, `lookup_auth_key` and `set_user_id`.
//! - 1.22: `fi_mr_attr` has `page_size`.
//! - 2.0: `fi_domain_attr` has `max_group_id`; `fi_mr_attr` has `base_mr` and `sub_mr_cnt`.
//! - 2.5: `fi_domain_attr` has `max_cntr_value` and `max_err_cntr_value`.
//! - 2.7, in development: `fi_domain_attr` has `max_xpu_ctx_cnt`; `fi_ep_attr`, `fi_cq_attr` and
//!   `fi_cntr_attr` have `xpu_ctx`; `fi_ops_av` has `lookup2`, `fi_ops_domain` has `xpu_ctx`; `fi_ops_ep`,
//!   `fi_ops_cq` and `fi_ops_cntr` have `export_xpu`.
//!
//! So what the host allocates may be longer than the struct here, and what the caller allocates may not: a
//! `fi_info` is made by the host's `fi_dupinfo` only, and nothing is written behind a struct's end as
//! declared here before the caller's API version ([`fid_fabric::api_version`]) was asked. A table of
//! functions says its own length in `size`, by which C's wrappers leave out what it does not have.
//!
//! Left out are constants that later versions took away or whose bits they gave away: `FI_PRIORITY` (22),
//! `FI_XPU_TRIGGER` (44; from 2.7 `FI_XPU`), `FI_VARIABLE_MSG` (48; from 2.0 `FI_EXACT_DIRECTED_RECV`),
//! `FI_BUFFERED_RECV`, `FI_NOTIFY_FLAGS_ONLY`, `FI_RESTRICTED_COMP`, `FI_EP_SOCK_*`. Bits 45 and 46 are flags
//! of a registration in every version, and from 2.0 the capabilities `FI_TAGGED_DIRECTED_RECV` and
//! `FI_TAGGED_MULTI_RECV` as well.

#![allow(non_camel_case_types, reason = "C's names")]

#[macro_use]
#[doc(hidden)]
pub mod declare;

mod atomic;
mod domain;
mod endpoint;
mod errno;
mod fabric;
mod flags;
mod info;
mod queue;
mod transfer;

pub use atomic::*;
pub use domain::*;
pub use endpoint::*;
pub use errno::*;
pub use fabric::*;
pub use flags::*;
pub use info::*;
pub use queue::*;
pub use transfer::*;

use std::ffi::{c_char, c_int, c_void};

/// An address in an address vector, `fi_av(3)`.
pub type fi_addr_t = u64;

/// Any object of libfabric's.
pub type fid_t = *mut fid;

/// A version as one number, which orders like the version does.
#[allow(non_snake_case, reason = "C's name")]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The major part of a version.
#[allow(non_snake_case, reason = "C's name")]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The minor part of a version.
#[allow(non_snake_case, reason = "C's name")]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

structs! { FID_STRUCTS
    /// What every object begins with.
    pub struct fid {
        /// What object this is: `FI_CLASS_*`.
        pub fclass: usize,
        /// The caller's, as given when it opened the object.
        pub context: *mut c_void,
        /// What every object can do.
        pub ops: *mut fi_ops,
    }

    /// What every object can do, `fi_control(3)`. Callers call `close`, `bind` and `control` without asking
    /// whether they are there; only `tostr` and `ops_set` may be null.
    pub struct fi_ops {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_close`: `-FI_EBUSY` while other objects need this one.
        pub close: Option<unsafe extern "C" fn(fid: *mut fid) -> c_int>,
        /// `fi_ep_bind`, `fi_mr_bind` and so on.
        pub bind: Option<unsafe extern "C" fn(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int>,
        /// `fi_control` with a command such as [`FI_ENABLE`], and what the command says of `arg`.
        pub control: Option<unsafe extern "C" fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int>,
        /// `fi_open_ops`: functions of the provider's own.
        pub ops_open: Option<
            unsafe extern "C" fn(
                fid: *mut fid,
                name: *const c_char,
                flags: u64,
                ops: *mut *mut c_void,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// What `fi_tostr` says of the object; `len` is that of `buf`.
        pub tostr: Option<unsafe extern "C" fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int>,
        /// `fi_set_ops`: functions that the provider shall use.
        pub ops_set: Option<
            unsafe extern "C" fn(
                fid: *mut fid,
                name: *const c_char,
                flags: u64,
                ops: *mut c_void,
                context: *mut c_void,
            ) -> c_int,
        >,
    }

    /// What [`FI_ALIAS`] is given, `fi_endpoint(3)`.
    pub struct fi_alias {
        /// Where the new object goes.
        pub fid: *mut *mut fid,
        /// Operation flags of the alias, with `FI_TRANSMIT` or `FI_RECV`.
        pub flags: u64,
    }

    /// What [`FI_GET_VAL`] and [`FI_SET_VAL`] are given, `fi_control(3)`.
    pub struct fi_fid_var {
        /// Which value; the highest bit marks one of a provider's own.
        pub name: c_int,
        /// Where it is or goes.
        pub val: *mut c_void,
    }

    /// What [`FI_GET_RAW_MR`] is given, `fi_mr(3)`.
    pub struct fi_mr_raw_attr {
        /// Reserved, zero.
        pub flags: u64,
        /// Where the region's base address goes.
        pub base_addr: *mut u64,
        /// Where the key's bytes go.
        pub raw_key: *mut u8,
        /// The room for the key in bytes; on return what it needs.
        pub key_size: *mut usize,
    }

    /// What [`FI_MAP_RAW_MR`] is given, `fi_mr(3)`.
    pub struct fi_mr_map_raw {
        /// Reserved, zero.
        pub flags: u64,
        /// The peer's base address.
        pub base_addr: u64,
        /// The key's bytes as the peer has sent them.
        pub raw_key: *mut u8,
        /// Their number.
        pub key_size: usize,
        /// Where the key to use goes.
        pub key: *mut u64,
    }

    /// What an operation's context points to under [`FI_CONTEXT`]: the provider's until the operation has
    /// completed.
    pub struct fi_context {
        /// The provider's.
        pub internal: [*mut c_void; 4],
    }

    /// As [`fi_context`], under [`FI_CONTEXT2`].
    pub struct fi_context2 {
        /// The provider's.
        pub internal: [*mut c_void; 8],
    }
}

constants! { FID_CONSTANTS
    /// Any address: in a receive, messages of every peer.
    pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
    /// No address: what an insertion that has failed yields, and the source of a completion that has none.
    pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
    /// No key: the region is not enabled yet.
    pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
    /// In `rx_ctx_cnt` or `tx_ctx_cnt`: the endpoint's queue is a shared one.
    pub const FI_SHARED_CONTEXT: usize = usize::MAX;

    /// No object.
    pub const FI_CLASS_UNSPEC: usize = 0;
    /// [`fid_fabric`].
    pub const FI_CLASS_FABRIC: usize = 1;
    /// [`fid_domain`].
    pub const FI_CLASS_DOMAIN: usize = 2;
    /// [`fid_ep`].
    pub const FI_CLASS_EP: usize = 3;
    /// [`fid_ep`], a scalable endpoint.
    pub const FI_CLASS_SEP: usize = 4;
    /// [`fid_ep`], a receive context of a scalable endpoint.
    pub const FI_CLASS_RX_CTX: usize = 5;
    /// [`fid_ep`], a receive context that endpoints share.
    pub const FI_CLASS_SRX_CTX: usize = 6;
    /// [`fid_ep`], a transmit context of a scalable endpoint.
    pub const FI_CLASS_TX_CTX: usize = 7;
    /// [`fid_stx`].
    pub const FI_CLASS_STX_CTX: usize = 8;
    /// [`fid_pep`].
    pub const FI_CLASS_PEP: usize = 9;
    /// Reserved.
    pub const FI_CLASS_INTERFACE: usize = 10;
    /// [`fid_av`].
    pub const FI_CLASS_AV: usize = 11;
    /// [`fid_mr`].
    pub const FI_CLASS_MR: usize = 12;
    /// [`fid_eq`].
    pub const FI_CLASS_EQ: usize = 13;
    /// [`fid_cq`].
    pub const FI_CLASS_CQ: usize = 14;
    /// [`fid_cntr`].
    pub const FI_CLASS_CNTR: usize = 15;
    /// [`fid_wait`].
    pub const FI_CLASS_WAIT: usize = 16;
    /// [`fid_poll`].
    pub const FI_CLASS_POLL: usize = 17;
    /// A request for a connection, in `fi_info::handle`.
    pub const FI_CLASS_CONNREQ: usize = 18;
    /// [`fid_mc`].
    pub const FI_CLASS_MC: usize = 19;
    /// [`fid_nic`].
    pub const FI_CLASS_NIC: usize = 20;
    /// [`fid_av_set`].
    pub const FI_CLASS_AV_SET: usize = 21;
    /// The host's cache of registrations.
    pub const FI_CLASS_MR_CACHE: usize = 22;
    /// A watcher of memory mappings.
    pub const FI_CLASS_MEM_MONITOR: usize = 23;
    /// A completion queue that a peer provider writes to, `fi_peer(3)`.
    pub const FI_CLASS_PEER_CQ: usize = 24;
    /// A receive context that a peer provider uses.
    pub const FI_CLASS_PEER_SRX: usize = 25;
    /// A receiver of log lines.
    pub const FI_CLASS_LOG: usize = 26;
    /// An address vector that a peer provider uses.
    pub const FI_CLASS_PEER_AV: usize = 27;
    /// A set of addresses that a peer provider uses.
    pub const FI_CLASS_PEER_AV_SET: usize = 28;

    /// Reserved.
    pub const FI_GETFIDFLAG: c_int = 0;
    /// Reserved.
    pub const FI_SETFIDFLAG: c_int = 1;
    /// Reads an endpoint's default operation flags: `*mut u64` with `FI_TRANSMIT` or `FI_RECV` set on input.
    pub const FI_GETOPSFLAG: c_int = 2;
    /// Sets an endpoint's default operation flags: `*mut u64` with `FI_TRANSMIT` or `FI_RECV` set.
    pub const FI_SETOPSFLAG: c_int = 3;
    /// Makes an alias of an endpoint: [`fi_alias`].
    pub const FI_ALIAS: c_int = 4;
    /// Reads what one waits on: where the object goes, an `int` for [`FI_WAIT_FD`].
    pub const FI_GETWAIT: c_int = 5;
    /// Enables an endpoint or a region: null.
    pub const FI_ENABLE: c_int = 6;
    /// Sets how many requests for a connection wait: `*mut c_int`.
    pub const FI_BACKLOG: c_int = 7;
    /// Reads a region's key in bytes: [`fi_mr_raw_attr`].
    pub const FI_GET_RAW_MR: c_int = 8;
    /// Makes a key of such bytes: [`fi_mr_map_raw`].
    pub const FI_MAP_RAW_MR: c_int = 9;
    /// Forgets such a key: `*mut u64`.
    pub const FI_UNMAP_KEY: c_int = 10;
    /// Queues an operation until a counter passes its threshold, `fi_trigger(3)`.
    pub const FI_QUEUE_WORK: c_int = 11;
    /// Takes such an operation back.
    pub const FI_CANCEL_WORK: c_int = 12;
    /// Takes back all of them: null.
    pub const FI_FLUSH_WORK: c_int = 13;
    /// Tells that a region's pages have changed: [`fi_mr_modify`].
    pub const FI_REFRESH: c_int = 14;
    /// Copies a [`fid_nic`]: `*mut *mut fid`. `fi_dupinfo` does it.
    pub const FI_DUP: c_int = 15;
    /// Reads what sort of object one waits on: `*mut fi_wait_obj`.
    pub const FI_GETWAITOBJ: c_int = 16;
    /// Reads a value by name: [`fi_fid_var`].
    pub const FI_GET_VAL: c_int = 17;
    /// Sets a value by name: [`fi_fid_var`].
    pub const FI_SET_VAL: c_int = 18;
    /// Lends an object to another provider, `fi_peer(3)`.
    pub const FI_EXPORT_FID: c_int = 19;
}

/// Every struct that is declared here and below.
#[doc(hidden)]
pub const STRUCTS: [&[declare::Struct]; 8] = [
    FID_STRUCTS,
    atomic::ATOMIC_STRUCTS,
    domain::DOMAIN_STRUCTS,
    endpoint::ENDPOINT_STRUCTS,
    fabric::FABRIC_STRUCTS,
    info::INFO_STRUCTS,
    queue::QUEUE_STRUCTS,
    transfer::TRANSFER_STRUCTS,
];

/// Every constant.
#[doc(hidden)]
pub const CONSTANTS: [&[declare::Constant]; 9] = [
    FID_CONSTANTS,
    atomic::ATOMIC_CONSTANTS,
    domain::DOMAIN_CONSTANTS,
    endpoint::ENDPOINT_CONSTANTS,
    errno::ERRNO_CONSTANTS,
    fabric::FABRIC_CONSTANTS,
    flags::FLAGS,
    info::INFO_CONSTANTS,
    queue::QUEUE_CONSTANTS,
];

/// Every type of a function.
#[doc(hidden)]
pub const FUNCTIONS: [&[declare::Function]; 1] = [fabric::FABRIC_FUNCTIONS];
