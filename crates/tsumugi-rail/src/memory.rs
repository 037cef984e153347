//! Receive memory as a mapping of our own: the user depositor's.
//!
//! [`Memory`] hands out pieces of the layout of [`tsumugi_wire::memory`] and knows nothing of what they
//! mean. It is neither `Send` nor `Sync`: one thread of the owner works with it, other writers
//! (neighbours, a program in the driver) keep to the table in that module.

use crate::sys;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use tsumugi_wire::atomic::AtomicU64;
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::{Control, Flow, Geometry, MAGIC, PAD_BYTES};

/// Most entries of a flow table; 512 MiB of them. More is a wrong number, not a big cluster.
pub const FLOWS_MAX: u32 = 1 << 20;
/// Largest ring, bytes. A ring beyond a processor's cache is slow already.
pub const RING_BYTES_MAX: u64 = 1 << 32;

/// Why there is no receive memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The ring's places are computed with a mask.
    #[error("a receive ring of {0} bytes: it must be a power of two; take {next}", next = .0.checked_next_power_of_two().unwrap_or(RING_BYTES_MAX))]
    RingNotPowerOfTwo(u64),
    /// The ring does not lie within the layout's bounds.
    #[error("a receive ring of {0} bytes: take between {min} and {RING_BYTES_MAX}", min = Geometry::RING_BYTES_MIN)]
    RingSize(u64),
    /// The flow table does not lie within the layout's bounds.
    #[error("a flow table of {0} entries: take between 1 and {FLOWS_MAX}")]
    Flows(u32),
    /// The system has no memory to give.
    #[error(
        "mapping {bytes} bytes of receive memory: {source}; take fewer flows or a smaller ring, or raise the memory limit"
    )]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// An anonymous mapping laid out as receive memory.
#[derive(Debug)]
pub struct Memory {
    map: sys::Mapping,
    ring: NonNull<u8>,
    /// `ring_bytes - 1`; kept here because the mapping can be overwritten by whoever deposits into it.
    mask: u64,
    flows: u32,
}

impl Memory {
    /// Maps and initialises receive memory. Its epoch is 0: nobody owns it yet.
    ///
    /// # Errors
    /// The geometry is impossible, or the system has no memory.
    pub fn new(geometry: Geometry) -> Result<Memory, MemoryError> {
        Memory::check(geometry)?;
        let bytes = geometry.bytes();
        let map = sys::Mapping::anonymous(bytes).map_err(|source| MemoryError::Map { bytes, source })?;
        Ok(Memory::lay_out(map, geometry))
    }

    /// Whether the layout allows these sizes.
    pub(crate) fn check(geometry: Geometry) -> Result<(), MemoryError> {
        let Geometry { flows, ring_bytes } = geometry;
        if flows == 0 || flows > FLOWS_MAX {
            return Err(MemoryError::Flows(flows));
        }
        if !(Geometry::RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
            return Err(MemoryError::RingSize(ring_bytes));
        }
        if !ring_bytes.is_power_of_two() {
            return Err(MemoryError::RingNotPowerOfTwo(ring_bytes));
        }
        Ok(())
    }

    /// Initialises a mapping as receive memory.
    ///
    /// # Panics
    /// The geometry is impossible, or the mapping shorter than it says.
    pub(crate) fn lay_out(map: sys::Mapping, geometry: Geometry) -> Memory {
        Memory::check(geometry).expect("a geometry that was checked");
        let Geometry { flows, ring_bytes } = geometry;
        assert!(map.bytes() >= geometry.bytes(), "{} bytes for {geometry:?}", map.bytes());
        // SAFETY: the ring begins within the mapping, which is `geometry.bytes()` long.
        let ring = unsafe { map.start().add(geometry.ring_offset()) };
        let memory = Memory { map, ring, mask: ring_bytes - 1, flows };
        let control = memory.control();
        control.version.store(u32::from(VERSION), Ordering::Relaxed);
        control.flows.store(flows, Ordering::Relaxed);
        control.ring_bytes.store(ring_bytes, Ordering::Relaxed);
        control.magic.store(MAGIC, Ordering::Release);
        memory
    }

    /// Every word of the mapping, for tests and tools that compare or show all of it.
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, initialised throughout and as long as the geometry says, a
        // multiple of 8 bytes; it lives as long as `self`. A torn look at a record's body, whose bytes are
        // written by plain copies, is possible only while somebody deposits it; who compares waits for that.
        unsafe { std::slice::from_raw_parts(self.map.start().cast().as_ptr(), self.geometry().bytes() / 8) }
    }

    /// Takes the page faults now rather than with the first packets. A wish: failing is no harm.
    pub fn prefault(&self) {
        self.map.prefault();
    }

    /// The sizes that the memory was made with.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        Geometry { flows: self.flows, ring_bytes: self.mask + 1 }
    }

    /// The control page.
    #[inline]
    #[must_use]
    pub const fn control(&self) -> &Control {
        // SAFETY: the mapping begins with the control page, is page-aligned, zeroed when made, and
        // consists of atomics only there; it lives as long as `self`.
        unsafe { self.map.start().cast::<Control>().as_ref() }
    }

    /// The entry of flow `index`; `None` beyond the table. The index may come from a packet (invariant 4).
    #[inline]
    #[must_use]
    pub const fn flow(&self, index: u32) -> Option<&Flow> {
        if index >= self.flows {
            return None;
        }
        // SAFETY: `index < flows`, so the entry lies in the mapping's flow table, which is aligned to
        // 512 bytes in a page-aligned mapping and consists of atomics only; it lives as long as `self`.
        Some(unsafe { self.map.start().add(Geometry::flow_offset(index)).cast::<Flow>().as_ref() })
    }

    /// The 8-byte word of the ring at byte `position` since the beginning, rounded down to 8.
    #[inline]
    #[must_use]
    pub const fn word(&self, position: u64) -> &AtomicU64 {
        let at = (position & self.mask & !7) as usize;
        // SAFETY: `at ≤ ring_bytes - 8`, aligned to 8 from a page-aligned ring. Only words of record
        // headers are used as atomics, and no body overlaps a header (invariant 1).
        unsafe { self.ring.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Copies `data` into the ring at `position`. A record that begins before the ring's end may run
    /// into the pad.
    ///
    /// The caller has claimed these bytes and not published them (invariants 1 and 2), so that nobody
    /// else reads or writes them meanwhile.
    ///
    /// # Panics
    /// `data` runs past the pad.
    #[inline]
    pub fn copy_in(&self, position: u64, data: &[u8]) {
        let at = self.range(position, data.len());
        // SAFETY: `range` asserts that the bytes lie in the mapping; claimed and unpublished bytes
        // belong to the caller alone (invariants 1 and 2), so no reference to them exists.
        unsafe { self.ring.add(at).copy_from_nonoverlapping(NonNull::from_ref(data).cast(), data.len()) };
    }

    /// The `len` bytes at `position`, in place. For the owner, of a published record that it has not
    /// released: nobody writes such bytes (invariant 1).
    ///
    /// # Panics
    /// The bytes run past the pad.
    #[inline]
    #[must_use]
    pub fn bytes(&self, position: u64, len: usize) -> &[u8] {
        let at = self.range(position, len);
        // SAFETY: `range` asserts that the bytes lie in the mapping, which lives as long as `self` and
        // is initialised throughout; a published record is not written until it is released (invariant 1).
        unsafe { std::slice::from_raw_parts(self.ring.add(at).as_ptr(), len) }
    }

    /// Place of `position` in the ring, having asserted that `len` bytes from there end within the pad.
    #[inline]
    fn range(&self, position: u64, len: usize) -> usize {
        let at = (position & self.mask) as usize;
        let end = self.mask as usize + 1 + PAD_BYTES;
        assert!(len <= end - at, "{len} bytes at {at} run past the {end} bytes of ring and pad");
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tsumugi_wire::memory::PAGE_BYTES;

    const RING: u64 = 8192;

    fn memory() -> Memory {
        Memory::new(Geometry { flows: 9, ring_bytes: RING }).unwrap()
    }

    #[test]
    fn it_is_initialised_and_aligned() {
        let memory = memory();
        memory.prefault();
        let control = memory.control();
        assert_eq!(control.magic.load(Ordering::Acquire), MAGIC);
        assert_eq!(control.flows.load(Ordering::Relaxed), 9);
        assert_eq!(control.ring_bytes.load(Ordering::Relaxed), RING);
        assert_eq!(control.epoch.load(Ordering::Relaxed), 0);
        assert_eq!(std::ptr::from_ref(control).addr() % PAGE_BYTES, 0);
        assert_eq!(memory.geometry(), Geometry { flows: 9, ring_bytes: RING });
    }

    #[test]
    fn flows_are_apart_and_bounded() {
        let memory = memory();
        for index in 0..9 {
            memory.flow(index).unwrap().token.store(u64::from(index) + 1, Ordering::Relaxed);
        }
        for index in 0..9 {
            assert_eq!(memory.flow(index).unwrap().token.load(Ordering::Relaxed), u64::from(index) + 1);
        }
        assert!(memory.flow(9).is_none());
        assert!(memory.flow(u32::MAX).is_none());
        assert!((0..RING).step_by(8).all(|at| memory.word(at).load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let new = |flows, ring_bytes| Memory::new(Geometry { flows, ring_bytes }).unwrap_err();
        assert!(matches!(new(1, 5000), MemoryError::RingNotPowerOfTwo(5000)));
        assert!(new(1, 5000).to_string().contains("8192"));
        assert!(matches!(new(1, 2048), MemoryError::RingSize(2048)));
        assert!(matches!(new(1, 0), MemoryError::RingSize(0)));
        assert!(matches!(new(1, 1 << 63), MemoryError::RingSize(_)));
        assert!(matches!(new(0, 4096), MemoryError::Flows(0)));
        assert!(matches!(new(FLOWS_MAX + 1, 4096), MemoryError::Flows(_)));
    }

    proptest! {
        #[test]
        fn what_is_copied_in_is_read(position in 0u64..1 << 40, data in proptest::collection::vec(1u8.., 0..9000)) {
            let position = position & !31;
            let memory = memory();
            memory.copy_in(position, &data);
            prop_assert_eq!(memory.bytes(position, data.len()), &data[..]);
            // The word is the same memory, seen modulo the ring.
            if data.len() >= 8 {
                let word = u64::from_ne_bytes(data[..8].try_into().unwrap());
                prop_assert_eq!(memory.word(position + RING).load(Ordering::Relaxed), word);
            }
        }
    }

    #[test]
    #[should_panic(expected = "run past")]
    fn a_record_past_the_pad_is_a_bug() {
        memory().copy_in(RING - 32, &[1; PAD_BYTES + 33]);
    }

    #[test]
    fn a_record_may_fill_the_pad() {
        let memory = memory();
        memory.copy_in(RING - 32, &[1; PAD_BYTES + 32]);
        assert!(memory.bytes(RING - 32, PAD_BYTES + 32).iter().all(|byte| *byte == 1));
    }
}
