//! Domains, address vectors and registered memory: `fi_domain(3)`, `fi_av(3)` and `fi_mr(3)`.

use super::{
    fi_addr_t, fi_atomic_attr, fi_av_type, fi_cntr_attr, fi_collective_attr, fi_collective_op, fi_cq_attr,
    fi_datatype, fi_info, fi_op, fi_poll_attr, fi_rx_attr, fi_tx_attr, fid, fid_cntr, fid_cq, fid_ep,
    fid_poll, fid_stx,
};
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};

/// Whose memory a region is: `FI_HMEM_*`.
pub type fi_hmem_iface = u32;

/// Some of the addresses of an address vector, `fi_av_set(3)`. Only pointed to.
#[repr(C)]
pub struct fid_av_set {
    nothing: [u8; 0],
}

/// How to open an [`fid_av_set`]. Only pointed to.
#[repr(C)]
pub struct fi_av_set_attr {
    nothing: [u8; 0],
}

structs! { DOMAIN_STRUCTS
    /// A domain: what endpoints share that use the same NIC.
    pub struct fid_domain {
        /// What every object has.
        pub fid: fid,
        /// What a domain can do.
        pub ops: *mut fi_ops_domain,
        /// How memory is registered with it.
        pub mr: *mut fi_ops_mr,
    }

    /// What a domain can do. Version 2.7 appends `xpu_ctx`.
    pub struct fi_ops_domain {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_av_open`, `fi_av(3)`.
        pub av_open: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_av_attr,
                av: *mut *mut fid_av,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_cq_open`, `fi_cq(3)`.
        pub cq_open: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_cq_attr,
                cq: *mut *mut fid_cq,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_endpoint(3)`.
        pub endpoint: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                info: *mut fi_info,
                ep: *mut *mut fid_ep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_scalable_ep`, `fi_endpoint(3)`.
        pub scalable_ep: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                info: *mut fi_info,
                sep: *mut *mut fid_ep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_cntr_open`, `fi_cntr(3)`.
        pub cntr_open: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_cntr_attr,
                cntr: *mut *mut fid_cntr,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_poll_open`, `fi_poll(3)`.
        pub poll_open: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_poll_attr,
                pollset: *mut *mut fid_poll,
            ) -> c_int,
        >,
        /// `fi_stx_context`, `fi_endpoint(3)`.
        pub stx_ctx: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_tx_attr,
                stx: *mut *mut fid_stx,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_srx_context`, `fi_endpoint(3)`.
        pub srx_ctx: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                attr: *mut fi_rx_attr,
                rx_ep: *mut *mut fid_ep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_query_atomic`, `fi_atomic(3)`: flags say [`FI_FETCH_ATOMIC`](super::FI_FETCH_ATOMIC) and so
        /// on.
        pub query_atomic: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                datatype: fi_datatype,
                op: fi_op,
                attr: *mut fi_atomic_attr,
                flags: u64,
            ) -> c_int,
        >,
        /// `fi_query_collective`, `fi_collective(3)`.
        pub query_collective: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                coll: fi_collective_op,
                attr: *mut fi_collective_attr,
                flags: u64,
            ) -> c_int,
        >,
        /// `fi_endpoint2`: `fi_endpoint` with flags.
        pub endpoint2: Option<
            unsafe extern "C" fn(
                domain: *mut fid_domain,
                info: *mut fi_info,
                ep: *mut *mut fid_ep,
                flags: u64,
                context: *mut c_void,
            ) -> c_int,
        >,
    }

    /// How to open an address vector.
    pub struct fi_av_attr {
        /// Map or table. [`FI_AV_UNSPEC`](super::FI_AV_UNSPEC): the provider chooses, and writes it here.
        pub r#type: fi_av_type,
        /// The highest bits of an address that name a receive context.
        pub rx_ctx_bits: c_int,
        /// Addresses to expect.
        pub count: usize,
        /// Endpoints per host, or zero.
        pub ep_per_node: usize,
        /// The name that processes share it by, or null.
        pub name: *const c_char,
        /// Where a shared one lies, or null.
        pub map_addr: *mut c_void,
        /// [`FI_EVENT`](super::FI_EVENT), [`FI_SYMMETRIC`](super::FI_SYMMETRIC); [`FI_READ`](super::FI_READ)
        /// if a shared one is only read.
        pub flags: u64,
    }

    /// An address vector: peers' addresses by number.
    pub struct fid_av {
        /// What every object has.
        pub fid: fid,
        /// What an address vector can do.
        pub ops: *mut fi_ops_av,
    }

    /// What an address vector can do. Version 1.20 appends `insert_auth_key`, `lookup_auth_key` and
    /// `set_user_id`, 2.7 `lookup2`.
    pub struct fi_ops_av {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_av_insert`: how many of the addresses, which lie one behind the other, were inserted.
        pub insert: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                addr: *const c_void,
                count: usize,
                fi_addr: *mut fi_addr_t,
                flags: u64,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_av_insertsvc`: by name.
        pub insertsvc: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                node: *const c_char,
                service: *const c_char,
                fi_addr: *mut fi_addr_t,
                flags: u64,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_av_insertsym`: by names that end in successive numbers.
        pub insertsym: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                node: *const c_char,
                nodecnt: usize,
                service: *const c_char,
                svccnt: usize,
                fi_addr: *mut fi_addr_t,
                flags: u64,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_av_remove`.
        pub remove: Option<
            unsafe extern "C" fn(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int,
        >,
        /// `fi_av_lookup`: an address; `addrlen` is the room for it on input, and its length on output.
        pub lookup: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                fi_addr: fi_addr_t,
                addr: *mut c_void,
                addrlen: *mut usize,
            ) -> c_int,
        >,
        /// `fi_av_straddr`: an address as text; `len` is the room for it on input, and what it needs on
        /// output.
        pub straddr: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                addr: *const c_void,
                buf: *mut c_char,
                len: *mut usize,
            ) -> *const c_char,
        >,
        /// `fi_av_set(3)`.
        pub av_set: Option<
            unsafe extern "C" fn(
                av: *mut fid_av,
                attr: *mut fi_av_set_attr,
                av_set: *mut *mut fid_av_set,
                context: *mut c_void,
            ) -> c_int,
        >,
    }

    /// A registered region of memory.
    pub struct fid_mr {
        /// What every object has.
        pub fid: fid,
        /// What `fi_mr_desc` returns: `desc` of operations that use the region.
        pub mem_desc: *mut c_void,
        /// What `fi_mr_key` returns: the key that peers say.
        pub key: u64,
    }

    /// How memory is registered, as the caller passes it to `fi_mr_regattr`. The caller's, and as long as its
    /// API version has it: what was appended must not be read of older callers. Those are `hmem_data` (1.19),
    /// `page_size` (1.22), `base_mr` and `sub_mr_cnt` (2.0). From 1.20, flag `FI_MR_DMABUF` (bit 40) makes
    /// `mr_iov` a `fi_mr_dmabuf` pointer.
    pub struct fi_mr_attr {
        /// The pieces of the region.
        pub mr_iov: *const iovec,
        /// Their number.
        pub iov_count: usize,
        /// Who may do what: [`FI_REMOTE_READ`](super::FI_REMOTE_READ) and so on.
        pub access: u64,
        /// Reserved, zero.
        pub offset: u64,
        /// The key to give it, unless [`FI_MR_PROV_KEY`](super::FI_MR_PROV_KEY) holds.
        pub requested_key: u64,
        /// The region's context.
        pub context: *mut c_void,
        /// Length of `auth_key` in bytes.
        pub auth_key_size: usize,
        /// A key that peers must have too, or null.
        pub auth_key: *mut u8,
        /// Whose memory it is. Only with [`FI_HMEM`](super::FI_HMEM); older callers leave it unset.
        pub iface: fi_hmem_iface,
        /// Which accelerator.
        pub device: fi_mr_attr_device,
    }

    /// What [`FI_REFRESH`](super::FI_REFRESH) is given. Grows as [`fi_mr_attr`] does.
    pub struct fi_mr_modify {
        /// Zero.
        pub flags: u64,
        /// The pieces whose pages have changed.
        pub attr: fi_mr_attr,
    }

    /// How memory is registered. `fid` is the domain.
    pub struct fi_ops_mr {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_mr_reg`.
        pub reg: Option<
            unsafe extern "C" fn(
                fid: *mut fid,
                buf: *const c_void,
                len: usize,
                access: u64,
                offset: u64,
                requested_key: u64,
                flags: u64,
                mr: *mut *mut fid_mr,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_mr_regv`: of several pieces.
        pub regv: Option<
            unsafe extern "C" fn(
                fid: *mut fid,
                iov: *const iovec,
                count: usize,
                access: u64,
                offset: u64,
                requested_key: u64,
                flags: u64,
                mr: *mut *mut fid_mr,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_mr_regattr`.
        pub regattr: Option<
            unsafe extern "C" fn(
                fid: *mut fid,
                attr: *const fi_mr_attr,
                flags: u64,
                mr: *mut *mut fid_mr,
            ) -> c_int,
        >,
    }
}

/// The union in [`fi_mr_attr`]. From 2.5 there is `rocr` too, which makes it no larger.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_mr_attr_device {
    /// None.
    pub reserved: u64,
    /// With [`FI_HMEM_CUDA`].
    pub cuda: c_int,
    /// With [`FI_HMEM_ZE`].
    pub ze: c_int,
    /// With [`FI_HMEM_NEURON`].
    pub neuron: c_int,
    /// With [`FI_HMEM_SYNAPSEAI`].
    pub synapseai: c_int,
}

constants! { DOMAIN_CONSTANTS
    /// The host's.
    pub const FI_HMEM_SYSTEM: fi_hmem_iface = 0;
    /// NVIDIA CUDA's.
    pub const FI_HMEM_CUDA: fi_hmem_iface = 1;
    /// AMD ROCr's.
    pub const FI_HMEM_ROCR: fi_hmem_iface = 2;
    /// Intel Level Zero's.
    pub const FI_HMEM_ZE: fi_hmem_iface = 3;
    /// AWS Neuron's.
    pub const FI_HMEM_NEURON: fi_hmem_iface = 4;
    /// Habana SynapseAI's.
    pub const FI_HMEM_SYNAPSEAI: fi_hmem_iface = 5;
}
