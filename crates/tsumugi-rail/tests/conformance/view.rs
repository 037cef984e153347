//! Receive memory as the protocol sees it.

use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::Memory;
use tsumugi_wire::atomic::AtomicU64;
use tsumugi_wire::memory::{Control, Flow, Translation};

/// A mapping.
pub(crate) struct View<'m>(pub(crate) &'m Memory);

impl ReceiveMemory for View<'_> {
    fn control(&self) -> &Control {
        self.0.control()
    }
    fn flow(&self, index: u32) -> Option<&Flow> {
        self.0.flow(index)
    }
    fn ring_bytes(&self) -> u64 {
        self.0.geometry().ring_bytes
    }
    fn word(&self, position: u64) -> &AtomicU64 {
        self.0.word(position)
    }
    fn copy_in(&self, position: u64, bytes: &[u8]) {
        self.0.copy_in(position, bytes);
    }
    fn translations(&self) -> &[Translation] {
        self.0.translations()
    }
    fn window_pages(&self) -> u32 {
        self.0.geometry().window_pages
    }
    fn write_window(&self, at: u64, bytes: &[u8]) {
        self.0.write_window(at, bytes);
    }
}
