//! Joins the mapping of [`tsumugi_rail`] to the protocol, which knows only its shape.

use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::atomic::AtomicU64;
use tsumugi_wire::memory::{Control, Flow, Translation};

/// Mapped receive memory.
pub(crate) struct Mapped(pub(crate) Memory);

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
    fn land(&self, at: u64, bytes: &[u8]) {
        self.0.land(at, bytes);
    }
}
