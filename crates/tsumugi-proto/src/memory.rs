//! Receive memory as the protocol sees it.

use tsumugi_wire::atomic::{AtomicU64, Ordering};
use tsumugi_wire::memory::{Control, Counter, Flow, Translation};

/// A mapping laid out as [`tsumugi_wire::memory`] says.
pub trait ReceiveMemory {
    /// The control page.
    fn control(&self) -> &Control;
    /// Entry `index` of the flow table, if there is one.
    fn flow(&self, index: u32) -> Option<&Flow>;
    /// Bytes of the ring: a power of two.
    fn ring_bytes(&self) -> u64;
    /// The word of the ring at byte `position` modulo the ring; `position` is a multiple of 8.
    fn word(&self, position: u64) -> &AtomicU64;
    /// Copies `bytes` into the ring at `position` modulo the ring; they may run into the pad.
    ///
    /// The caller has claimed the place; nobody else reads or writes it until it is published.
    fn copy_in(&self, position: u64, bytes: &[u8]);

    /// The table of translations: a power of two of buckets; empty where nothing is written directly.
    fn translations(&self) -> &[Translation] {
        &[]
    }

    /// Pages of the window.
    fn window_pages(&self) -> u32 {
        0
    }

    /// Copies `bytes`, no more than a packet's, into the window at byte `at` of it; they may run into the pad.
    ///
    /// Others may read or write there meanwhile: the window's bytes are nobody's alone.
    fn write_window(&self, _at: u64, _bytes: &[u8]) {}

    /// Adds to a counter.
    fn count(&self, counter: Counter, by: u64) {
        self.control().counters.0[counter as usize].fetch_add(by, Ordering::Relaxed);
    }
}
