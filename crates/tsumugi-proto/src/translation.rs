//! The translation cache: where pages that others may write lie in the window.
//!
//! The XDP program cannot know keys, bounds and rights. What it may write without asking stands in a table
//! in receive memory, page by page: a key, a page of addresses, and the page of the window where that lies. Only pages
//! that a key permits to be written from end to end are there. The owner fills the table when a packet has come that would
//! have needed a translation, and keeps a bounded number of them; a [`Replacement`] says which makes room for another
//! (P5, Kunisawa et al., about 1998, where a NIC keeps 15 and the operating system replaces them first in, first out).
//!
//! A translation lies in one of two buckets that its key and page choose. The table has room for twice as many as are
//! kept, so that both are full next to never; then one of them is moved to its other bucket.

use crate::memory::ReceiveMemory;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use strum::VariantNames as _;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::{Counter, FRAME_BITS, TRANSLATION_WAYS, Translation};

/// First byte beyond the addresses that a translation can name.
const ADDRESS_END: u64 = 1 << (64 - FRAME_BITS + PAGE_BITS);
const PAGE_BITS: u32 = 12;

/// The page that an address lies on; `None` where no process has memory.
#[must_use]
pub const fn page_of(address: u64) -> Option<u64> {
    if address < ADDRESS_END { Some(address >> PAGE_BITS) } else { None }
}

/// The two buckets, of a power of two of them, where the translation of a page may be.
#[inline]
fn buckets(count: usize, key: u64, page: u64) -> [usize; 2] {
    let mut mixed = (key ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    [mixed as usize & (count - 1), (mixed >> 32) as usize & (count - 1)]
}

/// A translation that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    slot: usize,
    /// Page of the window.
    pub frame: u32,
}

/// Finds where a page lies in the window.
#[inline]
#[must_use]
pub fn look_up<M: ReceiveMemory + ?Sized>(memory: &M, key: u64, page: u64) -> Option<Found> {
    let table = memory.translations();
    if table.is_empty() || key == 0 {
        return None;
    }
    for bucket in buckets(table.len() / TRANSLATION_WAYS, key, page) {
        let first = bucket * TRANSLATION_WAYS;
        for (way, translation) in table[first..first + TRANSLATION_WAYS].iter().enumerate() {
            if translation.key.load(Ordering::Acquire) != key {
                continue;
            }
            // Acquire: the key is read again after the place (invariant 5 of the memory).
            let place = translation.place.load(Ordering::Acquire);
            let frame = place as u32 & ((1 << FRAME_BITS) - 1);
            if place >> FRAME_BITS == page
                && translation.key.load(Ordering::Relaxed) == key
                && frame < memory.window_pages()
            {
                return Some(Found { slot: first + way, frame });
            }
        }
    }
    None
}

/// Notes that a translation was used, when there had been so many direct writes before.
#[inline]
pub(crate) fn used<M: ReceiveMemory + ?Sized>(memory: &M, found: Found, direct_writes: u64) {
    memory.translations()[found.slot].used.store(direct_writes.wrapping_add(1), Ordering::Relaxed);
}

/// A translation that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    key: u64,
    page: u64,
    /// Translations installed before it.
    since: u64,
}

/// The translations that are kept, as a [`Replacement`] sees them.
pub struct Resident<'c> {
    slots: &'c [Option<Kept>],
    table: &'c [Translation],
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the table.
    pub slot: usize,
    /// Grows with each translation that is installed.
    pub since: u64,
    /// Grows with each direct write: when it was used last; 0: not since it was [forgotten](Resident::forget).
    pub used: u64,
}

impl Resident<'_> {
    /// Places in the table.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The translation in a place, if one is there.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<Candidate> {
        let kept = self.slots.get(slot)?.as_ref()?;
        Some(Candidate { slot, since: kept.since, used: self.table[slot].used.load(Ordering::Relaxed) })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        (0..self.slots.len()).filter_map(|slot| self.get(slot))
    }

    /// Has a translation not have been used.
    pub fn forget(&self, slot: usize) {
        self.table[slot].used.store(0, Ordering::Relaxed);
    }
}

/// Says which translation makes room for another.
pub trait Replacement: fmt::Debug {
    /// The place of the one that goes; `None` when none is there.
    fn victim(&mut self, resident: &Resident<'_>) -> Option<usize>;
}

/// First in, first out: P5's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Replacement for Fifo {
    fn victim(&mut self, resident: &Resident<'_>) -> Option<usize> {
        resident.iter().min_by_key(|candidate| candidate.since).map(|candidate| candidate.slot)
    }
}

/// Least recently used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Replacement for Lru {
    fn victim(&mut self, resident: &Resident<'_>) -> Option<usize> {
        resident
            .iter()
            .min_by_key(|candidate| (candidate.used, candidate.since))
            .map(|candidate| candidate.slot)
    }
}

/// Second chance: a hand goes round and takes the first that was not used since it came by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    hand: usize,
}

impl Replacement for Clock {
    fn victim(&mut self, resident: &Resident<'_>) -> Option<usize> {
        // The second round finds what the first has forgotten, unless it was used meanwhile; the third takes what comes.
        for step in 0..3 * resident.slots() {
            self.hand = (self.hand + 1) % resident.slots();
            let Some(candidate) = resident.get(self.hand) else { continue };
            if candidate.used == 0 || step >= 2 * resident.slots() {
                return Some(self.hand);
            }
            resident.forget(self.hand);
        }
        None
    }
}

/// The replacements that there are.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownReplacement, parse_err_fn = UnknownReplacement::of)]
pub enum ReplacementChoice {
    /// That which is the longest there.
    Fifo,
    /// That which was not used for the longest time.
    Lru,
    /// One that was not used lately: mostly as good as the least recently used, and found without looking at all of them.
    #[default]
    Clock,
}

impl ReplacementChoice {
    /// All of them.
    pub const ALL: &[ReplacementChoice] = <ReplacementChoice as strum::VariantArray>::VARIANTS;

    /// The replacement itself.
    #[must_use]
    pub fn replacement(self) -> Box<dyn Replacement> {
        match self {
            ReplacementChoice::Fifo => Box::new(Fifo),
            ReplacementChoice::Lru => Box::new(Lru),
            ReplacementChoice::Clock => Box::new(Clock::default()),
        }
    }
}

/// No replacement has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such replacement; choose from {all}", all = ReplacementChoice::VARIANTS.join(", "))]
pub struct UnknownReplacement;

impl UnknownReplacement {
    fn of(_: &str) -> UnknownReplacement {
        UnknownReplacement
    }
}

/// The owner's side of the cache. It believes nothing that the table says but when a translation was used.
#[derive(Debug)]
pub struct Translations {
    /// What the owner has put where in the table.
    slots: Vec<Option<Kept>>,
    count: usize,
    capacity: usize,
    installed: u64,
    replacement: Box<dyn Replacement>,
}

impl Translations {
    /// A cache of at most `capacity` translations in a table of so many places.
    #[must_use]
    pub fn new(slots: usize, capacity: usize, replacement: Box<dyn Replacement>) -> Translations {
        Translations {
            slots: vec![None; slots],
            count: 0,
            capacity: capacity.min(slots / 2),
            installed: 0,
            replacement,
        }
    }

    /// Replaces by another rule from now on.
    pub fn set_replacement(&mut self, replacement: Box<dyn Replacement>) {
        self.replacement = replacement;
    }

    /// Whether translations can be kept at all.
    #[must_use]
    pub const fn is_useful(&self) -> bool {
        self.capacity > 0
    }

    /// Translations that are kept.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether none is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Lets a page be written under a key from now on; another translation may make room for it.
    pub fn install<M: ReceiveMemory + ?Sized>(&mut self, memory: &M, key: u64, page: u64, frame: u32) {
        let choices = self.places(key, page);
        let known = |slot: &usize| self.slots[*slot].is_some_and(|kept| (kept.key, kept.page) == (key, page));
        if !self.is_useful() || choices.iter().flat_map(|places| places.clone()).any(|slot| known(&slot)) {
            return;
        }
        if self.count >= self.capacity {
            let resident = Resident { slots: &self.slots, table: memory.translations() };
            match self.replacement.victim(&resident) {
                Some(slot) => self.clear(memory, slot),
                None => return,
            }
        }
        let slot = self.make_room(memory, &choices);
        let kept = Kept { key, page, since: self.installed };
        self.installed += 1;
        self.count += 1;
        let direct_writes =
            memory.control().counters.0[Counter::DirectWrites as usize].load(Ordering::Relaxed);
        self.put(memory, slot, kept, Translation::place_of(page, frame), direct_writes.wrapping_add(1));
    }

    /// Has nothing be written under a key by whoever looks from now on. Whether there was a translation of it: then who
    /// has looked before may still be writing.
    pub fn remove<M: ReceiveMemory + ?Sized>(&mut self, memory: &M, key: u64) -> bool {
        let before = self.count;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|kept| kept.key == key) {
                self.clear(memory, slot);
            }
        }
        self.count < before
    }

    /// The places of the two buckets.
    fn places(&self, key: u64, page: u64) -> [core::ops::Range<usize>; 2] {
        let count = (self.slots.len() / TRANSLATION_WAYS).max(1);
        buckets(count, key, page).map(|bucket| bucket * TRANSLATION_WAYS..(bucket + 1) * TRANSLATION_WAYS)
    }

    fn free_place(&self, places: &core::ops::Range<usize>) -> Option<usize> {
        places.clone().find(|slot| self.slots[*slot].is_none())
    }

    /// A free place of one of the buckets, the emptier if both have one.
    fn make_room<M: ReceiveMemory + ?Sized>(
        &mut self,
        memory: &M,
        choices: &[core::ops::Range<usize>; 2],
    ) -> usize {
        let taken = |places: &core::ops::Range<usize>| {
            places.clone().filter(|slot| self.slots[*slot].is_some()).count()
        };
        let emptier = if taken(&choices[1]) < taken(&choices[0]) { &choices[1] } else { &choices[0] };
        if let Some(slot) = self.free_place(emptier) {
            return slot;
        }
        for slot in choices.iter().cloned().flatten() {
            let Some(kept) = self.slots[slot] else { continue };
            let room = self.places(kept.key, kept.page).iter().find_map(|places| self.free_place(places));
            if let Some(other) = room {
                // There first, then gone here: who looks meanwhile finds it, or asks the owner.
                let translation = &memory.translations()[slot];
                let place = translation.place.load(Ordering::Relaxed);
                let used = translation.used.load(Ordering::Relaxed);
                self.put(memory, other, kept, place, used);
                self.count += 1;
                self.clear(memory, slot);
                return slot;
            }
        }
        let slot = choices[0].start;
        self.clear(memory, slot);
        slot
    }

    fn put<M: ReceiveMemory + ?Sized>(&mut self, memory: &M, slot: usize, kept: Kept, place: u64, used: u64) {
        self.slots[slot] = Some(kept);
        let translation = &memory.translations()[slot];
        translation.used.store(used, Ordering::Relaxed);
        // Release: who reads this place finds that the key that was here before is gone.
        translation.place.store(place, Ordering::Release);
        translation.key.store(kept.key, Ordering::Release);
    }

    fn clear<M: ReceiveMemory + ?Sized>(&mut self, memory: &M, slot: usize) {
        if self.slots[slot].take().is_some() {
            self.count -= 1;
            memory.translations()[slot].key.store(0, Ordering::Relaxed);
        }
    }
}
