//! Joins the mapping of [`tsumugi_rail`] to the protocol, which knows only its shape.

use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::atomic::AtomicU64;
use tsumugi_wire::memory::{Control, Flow, Translation};

/// Mapped receive memory.
pub(crate) struct Mapped(pub(crate) Memory);

impl Mapped {
    /// The `bytes` at `at` of a record's body, which begins at `position`.
    ///
    /// # Safety
    /// The record is published, and kept for as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn body(&self, position: u64, at: usize, bytes: usize) -> &[u8] {
        // From the body's beginning: only from there on are its bytes contiguous.
        // SAFETY: nobody writes a published record until it is given back, and that the caller rules out. Deposits of
        // our own go into room that was claimed, which that is not.
        let body = unsafe { self.0.bytes(position, at + bytes) };
        &body[at..]
    }
}

impl ReceiveMemory for Mapped {
    #[inline]
    fn control(&self) -> &Control {
        self.0.control()
    }
    #[inline]
    fn flow(&self, index: u32) -> Option<&Flow> {
        self.0.flow(index)
    }
    #[inline]
    fn ring_bytes(&self) -> u64 {
        self.0.geometry().ring_bytes
    }
    #[inline]
    fn word(&self, position: u64) -> &AtomicU64 {
        self.0.word(position)
    }
    #[inline]
    fn copy_in(&self, position: u64, bytes: &[u8]) {
        self.0.copy_in(position, bytes);
    }
    #[inline]
    fn translations(&self) -> &[Translation] {
        self.0.translations()
    }
    #[inline]
    fn window_pages(&self) -> u32 {
        self.0.geometry().window_pages
    }
    #[inline]
    fn write_window(&self, at: u64, bytes: &[u8]) {
        self.0.write_window(at, bytes);
    }
}
