//! Receive memory as a mapping of our own: the socket receive path's.
//!
//! [`Memory`] hands out pieces of the layout of [`tsumugi_wire::memory`] and knows nothing of what they
//! mean. It is neither `Send` nor `Sync`: one thread of the owner works with it, other writers
//! (neighbours, the XDP program) keep to the table in that module.

use crate::region::Region;
use crate::sys;
use crate::words::copy_words;
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use tsumugi_wire::atomic::AtomicU64;
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::{
    Control, FRAME_BITS, Flow, Geometry, MAGIC, PAD_BYTES, PAGE_BYTES, TRANSLATION_WAYS, Translation,
};

/// Most entries of a flow table; 512 MiB of them. More is a wrong number, not a big cluster.
pub const FLOWS_MAX: u32 = 1 << 20;
/// Largest ring, bytes. A ring beyond a processor's cache is slow already.
pub const RING_BYTES_MAX: u64 = 1 << 32;

/// Most pages of a window: what a translation can name.
pub const WINDOW_PAGES_MAX: u32 = 1 << FRAME_BITS;
/// Most translations that are kept: one for each page of the largest window.
pub const TRANSLATIONS_MAX: u32 = WINDOW_PAGES_MAX;

/// Receive memory of our own and regions that this thread gives back from now on it keeps, up to `bytes_max`, and takes again
/// for the next of the same length: for programs that have many short-lived endpoints in turn, such as a simulation. 0, as in
/// the beginning, keeps nothing more.
pub fn keep_mappings(bytes_max: usize) {
    sys::keep_mappings(bytes_max);
}

/// Why there is no receive memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The window does not lie within the layout's bounds.
    #[error("a window of {0} pages: take {WINDOW_PAGES_MAX} at most, or 0 for none")]
    WindowPages(u32),
    /// The translations do not lie within the layout's bounds.
    #[error("{0} translations: take {TRANSLATIONS_MAX} at most, or 0 for no direct writes")]
    Translations(u32),
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
    map: Rc<sys::Mapping>,
    /// Where things begin in it.
    start: NonNull<u8>,
    ring: NonNull<u8>,
    translations: NonNull<Translation>,
    window: NonNull<u8>,
    /// Kept here because the mapping can be overwritten by whoever deposits into it.
    geometry: Geometry,
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
        let Geometry { flows, ring_bytes, window_pages, translations } = geometry;
        if flows == 0 || flows > FLOWS_MAX {
            return Err(MemoryError::Flows(flows));
        }
        if !(Geometry::RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
            return Err(MemoryError::RingSize(ring_bytes));
        }
        if !ring_bytes.is_power_of_two() {
            return Err(MemoryError::RingNotPowerOfTwo(ring_bytes));
        }
        if window_pages > WINDOW_PAGES_MAX {
            return Err(MemoryError::WindowPages(window_pages));
        }
        if translations > TRANSLATIONS_MAX {
            return Err(MemoryError::Translations(translations));
        }
        Ok(())
    }

    /// Initialises a mapping as receive memory.
    ///
    /// # Panics
    /// The geometry is impossible, or the mapping shorter than it says.
    pub(crate) fn lay_out(map: sys::Mapping, geometry: Geometry) -> Memory {
        Memory::check(geometry).expect("a geometry that was checked");
        let Geometry { flows, ring_bytes, .. } = geometry;
        assert!(map.bytes() >= geometry.bytes(), "{} bytes for {geometry:?}", map.bytes());
        // SAFETY: the ring begins within the mapping, which is `geometry.bytes()` long; so do translations and window, or
        // they are empty and begin at its end.
        let [ring, translations, window] =
            [geometry.ring_offset(), geometry.translations_offset(), geometry.window_offset()]
                .map(|offset| unsafe { map.start().add(offset) });
        let start = map.start();
        let memory =
            Memory { map: Rc::new(map), start, ring, translations: translations.cast(), window, geometry };
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
        unsafe { std::slice::from_raw_parts(self.start.cast().as_ptr(), self.geometry().bytes() / 8) }
    }

    /// Takes the page faults now rather than with the first packets. A wish: failing is no harm.
    pub fn prefault(&self) {
        self.map.prefault();
    }

    /// The sizes that the memory was made with.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    const fn mask(&self) -> u64 {
        self.geometry.ring_bytes - 1
    }

    /// The table of translations; empty without a window.
    #[inline]
    #[must_use]
    pub const fn translations(&self) -> &[Translation] {
        let count = self.geometry.buckets() * TRANSLATION_WAYS;
        // SAFETY: the table lies in the mapping, aligned to a page, zeroed when made, and consists of atomics only; it
        // lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.translations.as_ptr(), count) }
    }

    /// Pages of the window, as memory that others may reach. It stays mapped, and `lease` lives, as long as somebody needs
    /// it.
    ///
    /// # Panics
    /// The window has no such pages.
    #[must_use]
    pub fn window(&self, pages: Range<u32>, lease: impl Any) -> Region {
        let whole = self.geometry.window_pages;
        assert!(pages.start <= pages.end && pages.end <= whole, "pages {pages:?} of a window of {whole}");
        // SAFETY: within the mapping, which the keeper keeps. Nobody has a reference to the window's bytes but as atomics.
        unsafe {
            let start = self.window.add(pages.start as usize * PAGE_BYTES);
            Region::kept(start, pages.len() * PAGE_BYTES, Rc::new((Rc::clone(&self.map), lease)))
        }
    }

    /// Copies `data` into the window at byte `at`, as [`Region::write_words`] does. What begins before the window's end may
    /// run into the pad.
    ///
    /// # Panics
    /// `data` runs past the pad.
    #[inline]
    pub fn write_window(&self, at: u64, data: &[u8]) {
        let end = match self.geometry.window_pages {
            0 => 0,
            pages => u64::from(pages) * PAGE_BYTES as u64 + PAD_BYTES as u64,
        };
        let fits = at.checked_add(data.len() as u64).is_some_and(|to| to <= end);
        assert!(fits, "{} bytes at {at} run past the {end} bytes of window and pad", data.len());
        // SAFETY: within the mapping, as just asserted; nobody has a reference to the window's bytes but as atomics.
        unsafe { copy_words(self.window.add(at as usize), data) };
    }

    /// The control page.
    #[inline]
    #[must_use]
    pub const fn control(&self) -> &Control {
        // SAFETY: the mapping begins with the control page, is page-aligned, zeroed when made, and
        // consists of atomics only there; it lives as long as `self`.
        unsafe { self.start.cast::<Control>().as_ref() }
    }

    /// The entry of flow `index`; `None` beyond the table. The index may come from a packet (invariant 4).
    #[inline]
    #[must_use]
    pub const fn flow(&self, index: u32) -> Option<&Flow> {
        if index >= self.geometry.flows {
            return None;
        }
        // SAFETY: `index < flows`, so the entry lies in the mapping's flow table, which is aligned to
        // 512 bytes in a page-aligned mapping and consists of atomics only; it lives as long as `self`.
        Some(unsafe { self.start.add(Geometry::flow_offset(index)).cast::<Flow>().as_ref() })
    }

    /// The 8-byte word of the ring at byte `position` since the beginning, rounded down to 8.
    #[inline]
    #[must_use]
    pub const fn word(&self, position: u64) -> &AtomicU64 {
        let at = (position & self.mask() & !7) as usize;
        // SAFETY: `at ≤ ring_bytes - 8`, aligned to 8 from a page-aligned ring. Only words of record
        // headers are used as atomics, and no body overlaps a header (invariant 1); whoever has a reference to
        // bytes of the ring has promised that nobody writes there.
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
        // SAFETY: `range` asserts that the bytes lie in the mapping. Whoever has a reference into the ring has
        // promised that nobody writes there ([`Memory::bytes`]).
        unsafe { self.ring.add(at).copy_from_nonoverlapping(NonNull::from_ref(data).cast(), data.len()) };
    }

    /// The `len` bytes at `position`, in place. For the owner, of a published record that it has not
    /// released: nobody writes such bytes (invariant 1).
    ///
    /// Safe code may write anywhere in the ring, so it does not get a reference into it:
    ///
    /// ```compile_fail,E0133
    /// # use tsumugi_rail::Memory;
    /// # use tsumugi_wire::memory::Geometry;
    /// let memory = Memory::new(Geometry::plain(1, 4096))?;
    /// let before = memory.bytes(0, 4);
    /// memory.copy_in(0, b"else");
    /// println!("{before:?} has changed behind a shared reference");
    /// # Ok::<(), tsumugi_rail::MemoryError>(())
    /// ```
    ///
    /// # Safety
    /// As long as the reference lives, the bytes are not written: not with [`Memory::copy_in`], [`Memory::word`] or
    /// [`Memory::words`], and not by whoever else deposits, because the record that they belong to is not released.
    ///
    /// # Panics
    /// The bytes run past the pad.
    #[inline]
    #[must_use]
    pub unsafe fn bytes(&self, position: u64, len: usize) -> &[u8] {
        let at = self.range(position, len);
        // SAFETY: `range` asserts that the bytes lie in the mapping, which lives as long as `self` and
        // is initialised throughout; the caller sees to it that they are not written.
        unsafe { std::slice::from_raw_parts(self.ring.add(at).as_ptr(), len) }
    }

    /// Place of `position` in the ring, having asserted that `len` bytes from there end within the pad.
    #[inline]
    fn range(&self, position: u64, len: usize) -> usize {
        let at = (position & self.mask()) as usize;
        let end = self.mask() as usize + 1 + PAD_BYTES;
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
        Memory::new(Geometry::plain(9, RING)).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no madvise")]
    fn it_is_initialised_and_aligned() {
        let memory = memory();
        memory.prefault();
        let control = memory.control();
        assert_eq!(control.magic.load(Ordering::Acquire), MAGIC);
        assert_eq!(control.flows.load(Ordering::Relaxed), 9);
        assert_eq!(control.ring_bytes.load(Ordering::Relaxed), RING);
        assert_eq!(control.epoch.load(Ordering::Relaxed), 0);
        assert_eq!(std::ptr::from_ref(control).addr() % PAGE_BYTES, 0);
        assert_eq!(memory.geometry(), Geometry::plain(9, RING));
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
    fn a_window_takes_direct_writes_and_no_more() {
        let geometry = Geometry { window_pages: 2, translations: 3, ..Geometry::plain(9, RING) };
        let memory = Memory::new(geometry).unwrap();
        assert_eq!((memory.translations().len(), memory.geometry()), (8, geometry));
        let empty = |translation: &Translation| translation.key.load(Ordering::Relaxed) == 0;
        assert!(memory.translations().iter().all(empty));
        memory.write_window(2 * PAGE_BYTES as u64 - 1, &[7; 9000]);
        let (page, mut last) = (memory.window(1..2, ()), [0]);
        drop(memory);
        page.read(PAGE_BYTES - 1, &mut last).unwrap();
        assert_eq!(last, [7]);
    }

    #[test]
    #[should_panic(expected = "run past")]
    fn nothing_is_written_directly_where_there_is_no_window() {
        memory().write_window(0, &[1]);
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let window = |window_pages, translations| {
            Memory::new(Geometry { window_pages, translations, ..Geometry::plain(1, 4096) }).unwrap_err()
        };
        assert!(matches!(window(WINDOW_PAGES_MAX + 1, 0), MemoryError::WindowPages(_)));
        assert!(matches!(window(1, TRANSLATIONS_MAX + 1), MemoryError::Translations(_)));
        let new = |flows, ring_bytes| Memory::new(Geometry::plain(flows, ring_bytes)).unwrap_err();
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
        #[cfg_attr(miri, ignore = "takes Miri half a minute")]
        fn what_is_copied_in_is_read(position in 0u64..1 << 40, data in proptest::collection::vec(1u8.., 0..9000)) {
            let position = position & !31;
            let memory = memory();
            memory.copy_in(position, &data);
            // SAFETY: nobody else knows of the memory, and nothing is written below.
            prop_assert_eq!(unsafe { memory.bytes(position, data.len()) }, &data[..]);
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
        // SAFETY: nobody else knows of the memory, and nothing is written below.
        assert!(unsafe { memory.bytes(RING - 32, PAD_BYTES + 32) }.iter().all(|byte| *byte == 1));
    }
}
