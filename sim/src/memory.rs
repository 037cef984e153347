//! Memory that hosts let each other use, and what a process has under way there.
//!
//! Every process registers a region with a *lane* for each host, which only that host touches. An *errand* is a few
//! operations on one's lane at a peer: a word is counted up; or a stretch is written, a part of it written over, and
//! all of it read back.

use tsumugi::internal::{Core, Promise};
use tsumugi::remote::RemoteError;
use tsumugi::{PeerId, Region, Rights, Target};
use tsumugi_wire::memory::PAGE_BYTES;

/// Bytes of a lane. The first word of it is counted up.
pub(crate) const LANE_BYTES: usize = 32 << 10;

/// Where a process can be written to, and of which incarnation that is true.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub(crate) first: Target,
    pub(crate) epoch: u32,
}

/// An errand at a peer.
pub(crate) struct Errand {
    pub(crate) peer: PeerId,
    pub(crate) to: usize,
    pub(crate) connection: u32,
    /// Incarnation whose key is used.
    pub(crate) epoch: u32,
    pub(crate) work: Work,
}

/// What an errand does.
pub(crate) enum Work {
    /// Counts up.
    Count(Promise),
    /// Has written, and reads back as soon as there is room to ask.
    Write { at: usize, expected: Vec<u8>, into: Region, read: Option<Promise> },
}

impl Errand {
    /// What came of its last operation, if that is known.
    pub(crate) fn outcome(&self) -> Option<Result<u64, RemoteError>> {
        match &self.work {
            Work::Count(promise) | Work::Write { read: Some(promise), .. } => promise.get().copied(),
            Work::Write { read: None, .. } => None,
        }
    }

    /// Whether it still has something to ask for.
    pub(crate) fn has_more(&self) -> bool {
        matches!(self.work, Work::Write { read: None, .. })
    }
}

/// Pages of a window that holds the lanes of all hosts.
pub(crate) const fn window_pages(hosts: usize) -> u32 {
    (hosts * LANE_BYTES / PAGE_BYTES) as u32
}

/// Makes a process's lanes, one for each host; in its window, if it has one.
pub(crate) fn lanes(core: &mut Core, hosts: usize) -> Lanes {
    let bytes = hosts * LANE_BYTES;
    let region = core.lend_window(bytes).unwrap_or_else(|| Region::new(bytes).expect("memory for a region"));
    let key = core.register(region.all(), Rights::ALL);
    // The registration keeps the region.
    Lanes { first: Target { key, address: region.address() }, epoch: core.epoch() }
}
