//! What `fi_getinfo(3)` tells and is asked: `fi_info` and what it points to.

use super::{fid, fid_domain, fid_fabric, fid_t};
use std::ffi::{c_char, c_int, c_void};

/// Whether an address vector is a table: `FI_AV_*`.
pub type fi_av_type = u32;
/// Who drives transfers forward: `FI_PROGRESS_*`.
pub type fi_progress = u32;
/// Which calls may be made at the same time: `FI_THREAD_*`.
pub type fi_threading = u32;
/// Whether queues are kept from overflowing: `FI_RM_*`.
pub type fi_resource_mgmt = u32;
/// What sort of endpoint: `FI_EP_*`.
pub type fi_ep_type = u32;
/// What a NIC is attached to: `FI_BUS_*`.
pub type fi_bus_type = u32;
/// Whether a NIC has a link: `FI_LINK_*`.
pub type fi_link_state = u32;

structs! { INFO_STRUCTS
    /// One offer of a provider. Made by the host's `fi_dupinfo` only, which makes the attributes as long as
    /// the host has them; freed by its `fi_freeinfo`, which frees strings and addresses too: those are made
    /// by `malloc`.
    pub struct fi_info {
        /// The next one of the list.
        pub next: *mut fi_info,
        /// Capabilities.
        pub caps: u64,
        /// Modes: in hints what the caller can do, in answers what it must.
        pub mode: u64,
        /// Format of addresses: [`FI_SOCKADDR_IN`] and so on.
        pub addr_format: u32,
        /// Length of `src_addr` in bytes.
        pub src_addrlen: usize,
        /// Length of `dest_addr` in bytes.
        pub dest_addrlen: usize,
        /// This side's address, or null.
        pub src_addr: *mut c_void,
        /// The peer's address, or null.
        pub dest_addr: *mut c_void,
        /// A request for a connection, or a passive endpoint to turn into another; or null.
        pub handle: fid_t,
        /// Of what is sent.
        pub tx_attr: *mut fi_tx_attr,
        /// Of what is received.
        pub rx_attr: *mut fi_rx_attr,
        /// Of the endpoint.
        pub ep_attr: *mut fi_ep_attr,
        /// Of the domain.
        pub domain_attr: *mut fi_domain_attr,
        /// Of the fabric.
        pub fabric_attr: *mut fi_fabric_attr,
        /// The NIC, or null. `fi_dupinfo` and `fi_freeinfo` copy and close it by its own functions.
        pub nic: *mut fid_nic,
    }

    /// Of what an endpoint initiates, `fi_endpoint(3)`.
    pub struct fi_tx_attr {
        /// Capabilities: zero for the endpoint's, or a subset.
        pub caps: u64,
        /// Modes.
        pub mode: u64,
        /// Flags of every operation that has none of its own.
        pub op_flags: u64,
        /// Which operations stay in order: `FI_ORDER_*`.
        pub msg_order: u64,
        /// In which order operations complete: `FI_ORDER_STRICT` or none.
        pub comp_order: u64,
        /// Most bytes of an operation with [`FI_INJECT`](super::FI_INJECT).
        pub inject_size: usize,
        /// Operations that can be outstanding.
        pub size: usize,
        /// Most pieces of a buffer.
        pub iov_limit: usize,
        /// Most pieces of remote memory.
        pub rma_iov_limit: usize,
        /// Traffic class: `FI_TC_*`.
        pub tclass: u32,
    }

    /// Of what an endpoint receives, `fi_endpoint(3)`.
    pub struct fi_rx_attr {
        /// Capabilities: zero for the endpoint's, or a subset.
        pub caps: u64,
        /// Modes.
        pub mode: u64,
        /// Flags of every operation that has none of its own.
        pub op_flags: u64,
        /// Which operations stay in order: `FI_ORDER_*`.
        pub msg_order: u64,
        /// In which order operations complete.
        pub comp_order: u64,
        /// Bytes of messages kept that nobody has received yet.
        pub total_buffered_recv: usize,
        /// Receives that can be posted.
        pub size: usize,
        /// Most pieces of a buffer.
        pub iov_limit: usize,
    }

    /// Of an endpoint, `fi_endpoint(3)`. Version 2.7 appends `xpu_ctx`.
    pub struct fi_ep_attr {
        /// What sort of endpoint.
        pub r#type: fi_ep_type,
        /// What it speaks on the wire: [`FI_PROTO_UNSPEC`] or a number of the provider's.
        pub protocol: u32,
        /// Which version of that.
        pub protocol_version: u32,
        /// Longest message in bytes.
        pub max_msg_size: usize,
        /// Bytes of a header that the caller leaves room for, under [`FI_MSG_PREFIX`](super::FI_MSG_PREFIX).
        pub msg_prefix_size: usize,
        /// Longest accesses in bytes of which a read sees what a write before it has written.
        pub max_order_raw_size: usize,
        /// Longest accesses in bytes of which a read sees nothing of a write behind it.
        pub max_order_war_size: usize,
        /// Longest writes in bytes of which the later one is what remains.
        pub max_order_waw_size: usize,
        /// Which bits of a tag are compared, as alternating fields of ones and zeros. From 2.0, a number
        /// below 2^16 names a format instead.
        pub mem_tag_format: u64,
        /// Transmit contexts, or [`FI_SHARED_CONTEXT`](super::FI_SHARED_CONTEXT).
        pub tx_ctx_cnt: usize,
        /// Receive contexts, or [`FI_SHARED_CONTEXT`](super::FI_SHARED_CONTEXT).
        pub rx_ctx_cnt: usize,
        /// Length of `auth_key` in bytes.
        pub auth_key_size: usize,
        /// A key that peers must have too, or null.
        pub auth_key: *mut u8,
    }

    /// Of a domain, `fi_domain(3)`. Grew most of all, with a new version of `fi_getinfo`, `fi_dupinfo` and
    /// `fi_freeinfo` each time: `max_ep_auth_key` (1.20, symbols of FABRIC_1.7), `max_group_id` (2.0,
    /// FABRIC_1.8), `max_cntr_value` and `max_err_cntr_value` (2.5, FABRIC_1.9), `max_xpu_ctx_cnt` (2.7,
    /// FABRIC_1.10). It is as long as the host has it, hints too: `fi_getinfo` converts those of older
    /// callers. So these are neither read nor written unless the host's `fi_version` says that they are
    /// there. Zero, which `fi_dupinfo` leaves there, means that there are none or, of the counters, that
    /// nothing is limited.
    pub struct fi_domain_attr {
        /// An open domain, or null.
        pub domain: *mut fid_domain,
        /// The domain's name.
        pub name: *mut c_char,
        /// Which calls may be made at the same time.
        pub threading: fi_threading,
        /// Who drives what is not a transfer.
        pub control_progress: fi_progress,
        /// Who drives transfers. From 2.0 also named `progress`.
        pub data_progress: fi_progress,
        /// Whether queues are kept from overflowing.
        pub resource_mgmt: fi_resource_mgmt,
        /// Which address vectors there are.
        pub av_type: fi_av_type,
        /// What registered memory asks of the caller: `FI_MR_*`.
        pub mr_mode: c_int,
        /// Bytes of a key.
        pub mr_key_size: usize,
        /// Bytes of the data that an operation brings to the peer's completion.
        pub cq_data_size: usize,
        /// Completion queues that are fast.
        pub cq_cnt: usize,
        /// Endpoints that are fast.
        pub ep_cnt: usize,
        /// Transmit contexts that are fast.
        pub tx_ctx_cnt: usize,
        /// Receive contexts that are fast.
        pub rx_ctx_cnt: usize,
        /// Most transmit contexts of an endpoint.
        pub max_ep_tx_ctx: usize,
        /// Most receive contexts of an endpoint.
        pub max_ep_rx_ctx: usize,
        /// Most endpoints that share a transmit context.
        pub max_ep_stx_ctx: usize,
        /// Most endpoints that share a receive context.
        pub max_ep_srx_ctx: usize,
        /// Counters that are fast.
        pub cntr_cnt: usize,
        /// Most pieces of a region.
        pub mr_iov_limit: usize,
        /// Capabilities of the domain.
        pub caps: u64,
        /// Modes of the domain.
        pub mode: u64,
        /// The key of endpoints and regions that have none of their own, or null.
        pub auth_key: *mut u8,
        /// Its length in bytes.
        pub auth_key_size: usize,
        /// Most bytes of `err_data`.
        pub max_err_data: usize,
        /// Regions that are fast.
        pub mr_cnt: usize,
        /// Traffic class of endpoints that have none of their own: `FI_TC_*`.
        pub tclass: u32,
    }

    /// Of a fabric, `fi_fabric(3)`.
    pub struct fi_fabric_attr {
        /// An open fabric, or null.
        pub fabric: *mut fid_fabric,
        /// The fabric's name.
        pub name: *mut c_char,
        /// The provider's name. The host fills it in.
        pub prov_name: *mut c_char,
        /// The provider's version.
        pub prov_version: u32,
        /// The API version that the caller has asked for. The host fills it in.
        pub api_version: u32,
    }

    /// A NIC, `fi_nic(3)`.
    pub struct fid_nic {
        /// What every object has. Its `control` must know [`FI_DUP`](super::FI_DUP).
        pub fid: fid,
        /// What it is, or null.
        pub device_attr: *mut fi_device_attr,
        /// Where it is attached, or null.
        pub bus_attr: *mut fi_bus_attr,
        /// Its link, or null.
        pub link_attr: *mut fi_link_attr,
        /// The provider's.
        pub prov_attr: *mut c_void,
    }

    /// What a NIC is, `fi_nic(3)`. Every string may be null.
    pub struct fi_device_attr {
        /// The name that the system knows it by.
        pub name: *mut c_char,
        /// The model.
        pub device_id: *mut c_char,
        /// The model's version.
        pub device_version: *mut c_char,
        /// The maker.
        pub vendor_id: *mut c_char,
        /// The NIC's driver.
        pub driver: *mut c_char,
        /// The firmware's version.
        pub firmware: *mut c_char,
    }

    /// A place on a PCI bus, `fi_nic(3)`.
    pub struct fi_pci_attr {
        /// The PCI domain.
        pub domain_id: u16,
        /// The bus.
        pub bus_id: u8,
        /// The device.
        pub device_id: u8,
        /// The function.
        pub function_id: u8,
    }

    /// Where a NIC is attached, `fi_nic(3)`.
    pub struct fi_bus_attr {
        /// To what.
        pub bus_type: fi_bus_type,
        /// Where.
        pub attr: fi_bus_attr_attr,
    }

    /// A NIC's link, `fi_nic(3)`.
    pub struct fi_link_attr {
        /// Its address as text, or null.
        pub address: *mut c_char,
        /// Most bytes of a packet.
        pub mtu: usize,
        /// Bits per second.
        pub speed: usize,
        /// Whether it is up.
        pub state: fi_link_state,
        /// What sort of network, such as `Ethernet`, or null.
        pub network_type: *mut c_char,
    }
}

/// The union in [`fi_bus_attr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_bus_attr_attr {
    /// With [`FI_BUS_PCI`].
    pub pci: fi_pci_attr,
}

constants! { INFO_CONSTANTS
    /// Addresses of any format.
    pub const FI_FORMAT_UNSPEC: u32 = 0;
    /// `struct sockaddr`.
    pub const FI_SOCKADDR: u32 = 1;
    /// `struct sockaddr_in`.
    pub const FI_SOCKADDR_IN: u32 = 2;
    /// `struct sockaddr_in6`.
    pub const FI_SOCKADDR_IN6: u32 = 3;
    /// `struct sockaddr_ib`.
    pub const FI_SOCKADDR_IB: u32 = 4;
    /// PSM's.
    pub const FI_ADDR_PSMX: u32 = 5;
    /// Cray's uGNI's.
    pub const FI_ADDR_GNI: u32 = 6;
    /// Blue Gene/Q's.
    pub const FI_ADDR_BGQ: u32 = 7;
    /// Mellanox's MLX's.
    pub const FI_ADDR_MLX: u32 = 8;
    /// Text, ending with a zero byte: `fi_` and the provider, `://`, and what the provider likes.
    pub const FI_ADDR_STR: u32 = 9;
    /// PSM2's.
    pub const FI_ADDR_PSMX2: u32 = 10;
    /// InfiniBand datagrams'.
    pub const FI_ADDR_IB_UD: u32 = 11;
    /// Amazon's EFA's.
    pub const FI_ADDR_EFA: u32 = 12;
    /// PSM3's.
    pub const FI_ADDR_PSMX3: u32 = 13;
    /// Cornelis' OPX's.
    pub const FI_ADDR_OPX: u32 = 14;
    /// HPE's CXI's.
    pub const FI_ADDR_CXI: u32 = 15;

    /// Either.
    pub const FI_AV_UNSPEC: fi_av_type = 0;
    /// The provider chooses the numbers of addresses. Deprecated since 2.0.
    pub const FI_AV_MAP: fi_av_type = 1;
    /// Addresses are numbered from zero in the order of their insertion.
    pub const FI_AV_TABLE: fi_av_type = 2;

    /// Of callers before version 1.5: either of the two following ones.
    pub const FI_MR_UNSPEC: c_int = 0;
    /// Of callers before version 1.5: as [`FI_MR_VIRT_ADDR`], [`FI_MR_ALLOCATED`] and [`FI_MR_PROV_KEY`]
    /// together.
    pub const FI_MR_BASIC: c_int = 1;
    /// Of callers before version 1.5: none of the bits below.
    pub const FI_MR_SCALABLE: c_int = 2;
    /// Local buffers are registered.
    pub const FI_MR_LOCAL: c_int = 1 << 2;
    /// Keys are longer than 64 bits.
    pub const FI_MR_RAW: c_int = 1 << 3;
    /// Peers say the region's own addresses, not offsets from its start.
    pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
    /// Regions have memory behind them when they are registered.
    pub const FI_MR_ALLOCATED: c_int = 1 << 5;
    /// The provider chooses keys.
    pub const FI_MR_PROV_KEY: c_int = 1 << 6;
    /// The caller tells when a region has pages: [`FI_REFRESH`](super::FI_REFRESH).
    pub const FI_MR_MMU_NOTIFY: c_int = 1 << 7;
    /// Regions are bound to the counters that they have, and enabled.
    pub const FI_MR_RMA_EVENT: c_int = 1 << 8;
    /// Regions are bound to an endpoint, and enabled.
    pub const FI_MR_ENDPOINT: c_int = 1 << 9;
    /// Memory of accelerators is registered.
    pub const FI_MR_HMEM: c_int = 1 << 10;
    /// Buffers of collectives are registered.
    pub const FI_MR_COLLECTIVE: c_int = 1 << 11;

    /// Any.
    pub const FI_PROGRESS_UNSPEC: fi_progress = 0;
    /// The provider, without being called.
    pub const FI_PROGRESS_AUTO: fi_progress = 1;
    /// The caller, by reading queues and counters. From 1.21 there is `FI_PROGRESS_CONTROL_UNIFIED` (3) too.
    pub const FI_PROGRESS_MANUAL: fi_progress = 2;

    /// Any.
    pub const FI_THREAD_UNSPEC: fi_threading = 0;
    /// All calls.
    pub const FI_THREAD_SAFE: fi_threading = 1;
    /// Calls to different objects.
    pub const FI_THREAD_FID: fi_threading = 2;
    /// Calls to different domains and what belongs to them.
    pub const FI_THREAD_DOMAIN: fi_threading = 3;
    /// Calls to endpoints that share no completion queue or counter.
    pub const FI_THREAD_COMPLETION: fi_threading = 4;
    /// Calls to different endpoints and their queues.
    pub const FI_THREAD_ENDPOINT: fi_threading = 5;

    /// Either.
    pub const FI_RM_UNSPEC: fi_resource_mgmt = 0;
    /// The caller takes care that nothing overflows.
    pub const FI_RM_DISABLED: fi_resource_mgmt = 1;
    /// The provider does, by `-FI_EAGAIN`.
    pub const FI_RM_ENABLED: fi_resource_mgmt = 2;

    /// No order.
    pub const FI_ORDER_NONE: u64 = 0;
    /// A read behind a read.
    pub const FI_ORDER_RAR: u64 = 1 << 0;
    /// A read behind a write.
    pub const FI_ORDER_RAW: u64 = 1 << 1;
    /// A read behind a send.
    pub const FI_ORDER_RAS: u64 = 1 << 2;
    /// A write behind a read.
    pub const FI_ORDER_WAR: u64 = 1 << 3;
    /// A write behind a write.
    pub const FI_ORDER_WAW: u64 = 1 << 4;
    /// A write behind a send.
    pub const FI_ORDER_WAS: u64 = 1 << 5;
    /// A send behind a read.
    pub const FI_ORDER_SAR: u64 = 1 << 6;
    /// A send behind a write.
    pub const FI_ORDER_SAW: u64 = 1 << 7;
    /// A send behind a send.
    pub const FI_ORDER_SAS: u64 = 1 << 8;
    /// All of them. Deprecated since 2.0.
    pub const FI_ORDER_STRICT: u64 = 0x1ff;
    /// The bytes of a message in order. Deprecated since 2.0.
    pub const FI_ORDER_DATA: u64 = 1 << 16;
    /// [`FI_ORDER_RAR`], of remote memory only.
    pub const FI_ORDER_RMA_RAR: u64 = 1 << 32;
    /// [`FI_ORDER_RAW`], of remote memory only.
    pub const FI_ORDER_RMA_RAW: u64 = 1 << 33;
    /// [`FI_ORDER_WAR`], of remote memory only.
    pub const FI_ORDER_RMA_WAR: u64 = 1 << 34;
    /// [`FI_ORDER_WAW`], of remote memory only.
    pub const FI_ORDER_RMA_WAW: u64 = 1 << 35;
    /// [`FI_ORDER_RAR`], of atomics only.
    pub const FI_ORDER_ATOMIC_RAR: u64 = 1 << 36;
    /// [`FI_ORDER_RAW`], of atomics only.
    pub const FI_ORDER_ATOMIC_RAW: u64 = 1 << 37;
    /// [`FI_ORDER_WAR`], of atomics only.
    pub const FI_ORDER_ATOMIC_WAR: u64 = 1 << 38;
    /// [`FI_ORDER_WAW`], of atomics only.
    pub const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;

    /// Any.
    pub const FI_EP_UNSPEC: fi_ep_type = 0;
    /// Connected.
    pub const FI_EP_MSG: fi_ep_type = 1;
    /// Datagrams, unreliable.
    pub const FI_EP_DGRAM: fi_ep_type = 2;
    /// Messages to any peer, reliable.
    pub const FI_EP_RDM: fi_ep_type = 3;

    /// Any protocol, or one without a number here.
    pub const FI_PROTO_UNSPEC: u32 = 0;
    /// InfiniBand, reliable connections.
    pub const FI_PROTO_RDMA_CM_IB_RC: u32 = 1;
    /// iWARP.
    pub const FI_PROTO_IWARP: u32 = 2;
    /// InfiniBand, datagrams.
    pub const FI_PROTO_IB_UD: u32 = 3;
    /// PSM.
    pub const FI_PROTO_PSMX: u32 = 4;
    /// UDP.
    pub const FI_PROTO_UDP: u32 = 5;
    /// TCP, of the provider sockets.
    pub const FI_PROTO_SOCK_TCP: u32 = 6;
    /// MXM.
    pub const FI_PROTO_MXM: u32 = 7;
    /// iWARP, to any peer.
    pub const FI_PROTO_IWARP_RDM: u32 = 8;
    /// InfiniBand, to any peer.
    pub const FI_PROTO_IB_RDM: u32 = 9;
    /// Cray's uGNI.
    pub const FI_PROTO_GNI: u32 = 10;
    /// The provider rxm.
    pub const FI_PROTO_RXM: u32 = 11;
    /// The provider rxd.
    pub const FI_PROTO_RXD: u32 = 12;
    /// Mellanox's MLX.
    pub const FI_PROTO_MLX: u32 = 13;
    /// Microsoft's NetworkDirect.
    pub const FI_PROTO_NETWORKDIRECT: u32 = 14;
    /// PSM2.
    pub const FI_PROTO_PSMX2: u32 = 15;
    /// Shared memory.
    pub const FI_PROTO_SHM: u32 = 16;
    /// The provider mrail.
    pub const FI_PROTO_MRAIL: u32 = 17;
    /// rsockets.
    pub const FI_PROTO_RSTREAM: u32 = 18;
    /// InfiniBand, extended reliable connections.
    pub const FI_PROTO_RDMA_CM_IB_XRC: u32 = 19;
    /// Amazon's EFA.
    pub const FI_PROTO_EFA: u32 = 20;
    /// PSM3.
    pub const FI_PROTO_PSMX3: u32 = 21;
    /// The provider rxm over TCP.
    pub const FI_PROTO_RXM_TCP: u32 = 22;
    /// Cornelis' OPX.
    pub const FI_PROTO_OPX: u32 = 23;
    /// HPE's CXI.
    pub const FI_PROTO_CXI: u32 = 24;
    /// TCP, of the provider net.
    pub const FI_PROTO_XNET: u32 = 25;

    /// Any traffic class.
    pub const FI_TC_UNSPEC: u32 = 0;
    /// With this bit, the lowest eight are a DSCP (RFC 2474).
    pub const FI_TC_DSCP: u32 = 0x100;
    /// The first traffic class that has a name.
    pub const FI_TC_LABEL: u32 = 0x200;
    /// Nothing special.
    pub const FI_TC_BEST_EFFORT: u32 = 0x200;
    /// Short and urgent.
    pub const FI_TC_LOW_LATENCY: u32 = 0x201;
    /// Has bandwidth of its own.
    pub const FI_TC_DEDICATED_ACCESS: u32 = 0x202;
    /// Much at a time.
    pub const FI_TC_BULK_DATA: u32 = 0x203;
    /// May wait for everything else.
    pub const FI_TC_SCAVENGER: u32 = 0x204;
    /// Keeps the network going.
    pub const FI_TC_NETWORK_CTRL: u32 = 0x205;

    /// Nobody knows what bus.
    pub const FI_BUS_UNSPEC: fi_bus_type = 0;
    /// The same as [`FI_BUS_UNSPEC`].
    pub const FI_BUS_UNKNOWN: fi_bus_type = 0;
    /// PCI.
    pub const FI_BUS_PCI: fi_bus_type = 1;

    /// Nobody knows the link's state.
    pub const FI_LINK_UNKNOWN: fi_link_state = 0;
    /// No link.
    pub const FI_LINK_DOWN: fi_link_state = 1;
    /// A link.
    pub const FI_LINK_UP: fi_link_state = 2;
}
