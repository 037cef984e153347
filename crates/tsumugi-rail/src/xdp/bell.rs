//! The doorbell: a BPF ring buffer whose contents nobody reads.

use super::XdpError;
use super::maps::{self, failed};
use crate::sys::{Mapping, Own};
use aya::maps::MapData;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// An endpoint's doorbell, as its owner hears it.
#[derive(Debug)]
pub(super) struct Bell {
    map: Own<MapData>,
    /// Begins with how far the buffer has been read.
    consumer: Mapping,
    /// Begins with how far it has been written.
    producer: Mapping,
}

impl Bell {
    /// Opens the doorbell that is pinned at `pin`.
    pub(super) fn open(pin: &Path, port: u16) -> Result<Bell, XdpError> {
        let map = maps::open(pin).map_err(failed("opening the doorbell", port))?;
        let page = rustix::param::page_size();
        let mapped = |source| XdpError::Mapping { port, source };
        let consumer = Mapping::of_map(map.fd().as_fd(), page).map_err(mapped)?;
        let producer = Mapping::read_only(map.fd().as_fd(), page, page).map_err(mapped)?;
        Ok(Bell { map, consumer, producer })
    }

    /// Readable when the bell has rung since it was silenced.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }

    /// Takes every stroke off the bell.
    pub(super) fn silence(&self) {
        position(&self.consumer).store(position(&self.producer).load(Ordering::Acquire), Ordering::Release);
    }
}

/// The position that a ring buffer's page begins with.
const fn position(page: &Mapping) -> &AtomicU64 {
    // SAFETY: the page is mapped while `page` lives, aligned, and begins with this word, which the kernel writes
    // atomically (Linux: kernel/bpf/ringbuf.c). The producer's page is only read.
    unsafe { page.start().cast().as_ref() }
}
