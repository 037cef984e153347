//! The XDP receive path: an XDP program, which runs in the NIC's driver and deposits into receive memory.
//!
//! `bpf/receive.bpf.c` is compiled with this crate. Root loads it for one [`Geometry`], attaches it to NICs and makes
//! a pool of endpoint memories, each the single element of a mapped array that the program finds by its UDP port
//! ([`up`], [`down`], [`status`]). All of that is pinned in the BPF file system ([`Pins`]) with ordinary owners and
//! permissions, so that from then on unprivileged processes open what they may ([`Claim`]).
//!
//! [`Receiver`] is the program without a NIC, for tests and measurements.
//!
//! [`Geometry`]: tsumugi_wire::memory::Geometry

mod access;
mod answers;
mod attach;
mod bell;
pub(crate) mod bpf_fs;
mod busy_poll;
mod claim;
mod cost;
mod discard;
mod error;
mod maps;
mod mode;
mod mtu;
pub(crate) mod nic;
mod object;
mod offload;
pub(crate) mod pins;
mod pool;
mod program;
mod receiver;
mod runs;
mod standing;
mod stranger;
mod write;

pub use access::Access;
pub(crate) use answers::SentBack;
pub use attach::AttachError;
pub(crate) use attach::attach;
pub use bpf_fs::{BpfFs, bpf_file_systems};
pub use busy_poll::{Deferral, can_busy_poll};
pub use claim::{Claim, Wanted};
pub use cost::{Coalescing, NicChange, NicState, Outlook};
pub use discard::Discard;
pub use error::XdpError;
pub(crate) use error::chain;
pub use mode::Mode;
pub(crate) use mode::{attach_to, is_taken};
pub use mtu::{MtuExcess, mtu_excess};
pub use nic::{Attached, first_name};
pub use offload::costs_segmentation;
pub use pins::Pins;
pub use pool::{PoolOptions, PoolStatus, PortStatus, down, ports, status, up};
pub use program::{Action, IS_COMPILED, Run};
pub use receiver::{Endpoint, Receiver};
pub use runs::{Counting, Runs};
pub use standing::Standing;
pub use stranger::Stranger;
pub use write::{WriteError, WriteFrame, WriteTarget};

/// Returns when no run of the program that had begun is still going on, on any CPU; after some milliseconds.
pub fn wait_for_runs() {
    crate::sys::wait_for_softirqs();
}

/// Largest endpoint memory, bytes: what the program's type information can express.
pub const MEMORY_BYTES_MAX: usize = (1 << 30) - 1;
/// Most endpoints of one call of [`up`]: a wrong number rather than a big host.
pub const ENDPOINTS_MAX: u16 = 4096;
/// Name of the program.
const PROGRAM: &str = "receive";
/// Name of the switch's program, which keeps ours from a NIC.
pub(crate) const SWITCH_PROGRAM: &str = "tsumugi_switch";
