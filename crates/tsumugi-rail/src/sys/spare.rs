//! Anonymous mappings that a thread has given back, for the next that it asks for.
//!
//! Mapping memory, its page faults and unmapping it are most of what a short life of an endpoint costs the kernel. Who has
//! many of them in turn keeps their memory.

use rustix::mm::munmap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use tsumugi_wire::memory::PAGE_BYTES;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare::new()) };
}

/// What a thread keeps.
struct Spare {
    /// Bytes kept, and how many may be.
    bytes: usize,
    bytes_max: usize,
    /// Mappings by their length in bytes, in whole pages.
    mappings: BTreeMap<usize, Vec<NonNull<u8>>>,
}

impl Spare {
    const fn new() -> Spare {
        Spare { bytes: 0, bytes_max: 0, mappings: BTreeMap::new() }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (bytes, starts) in std::mem::take(&mut self.mappings) {
            // SAFETY: whole anonymous mappings that nobody has any more.
            starts.iter().for_each(|start| _ = unsafe { munmap(start.as_ptr().cast(), bytes) });
        }
    }
}

/// From now on this thread keeps up to `bytes_max` of what it gives back.
pub(crate) fn keep(bytes_max: usize) {
    SPARE.with_borrow_mut(|spare| spare.bytes_max = bytes_max);
}

/// A mapping of `bytes`, if there is one. What is in it is arbitrary.
pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
    let whole = bytes.next_multiple_of(PAGE_BYTES);
    let taken = SPARE.try_with(|spare| {
        let mut spare = spare.try_borrow_mut().ok()?;
        let start = spare.mappings.get_mut(&whole)?.pop()?;
        spare.bytes -= whole;
        Some(start)
    });
    taken.ok().flatten()
}

/// Takes a whole anonymous mapping back that nobody uses any more. `false`: it is not wanted.
pub(super) fn give(start: NonNull<u8>, bytes: usize) -> bool {
    let whole = bytes.next_multiple_of(PAGE_BYTES);
    let given = SPARE.try_with(|spare| {
        let Ok(mut spare) = spare.try_borrow_mut() else { return false };
        if whole > spare.bytes_max - spare.bytes.min(spare.bytes_max) {
            return false;
        }
        spare.bytes += whole;
        spare.mappings.entry(whole).or_default().push(start);
        true
    });
    given.unwrap_or(false)
}
