//! The window: memory of ours that the XDP program may write without us.
//!
//! The window's pages are lent as regions, a run of them for each, and come back when nobody needs the region any more.
//! A page that is registered from end to end is translated when it is written for the first time; later writes there
//! are direct.

use crate::memory::Mapped;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use tsumugi_proto::translation::{ReplacementChoice, Translations, page_of};
use tsumugi_rail::{Region, Slice};
use tsumugi_wire::memory::{PAGE_BYTES, TRANSLATION_WAYS};

const PAGE: u64 = PAGE_BYTES as u64;

/// The window of an endpoint's receive memory.
#[derive(Debug)]
pub(crate) struct Window {
    /// Pages that nobody has, in order.
    free: Rc<RefCell<Vec<Range<u32>>>>,
    /// Address of the first page in this process.
    start: u64,
    pages: u32,
    translations: Translations,
}

/// Pages that somebody has.
struct Lease {
    free: Rc<RefCell<Vec<Range<u32>>>>,
    pages: Range<u32>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut free = self.free.borrow_mut();
        let at = free.partition_point(|other| other.start < self.pages.start);
        free.insert(at, self.pages.clone());
        free.dedup_by(|next, before| {
            let joins = before.end == next.start;
            if joins {
                before.end = next.end;
            }
            joins
        });
    }
}

impl Window {
    pub(super) fn new(memory: &Mapped) -> Window {
        let geometry = memory.0.geometry();
        let pages = geometry.window_pages;
        let slots = geometry.buckets() * TRANSLATION_WAYS;
        let replacement = ReplacementChoice::default().replacement();
        Window {
            free: Rc::new(RefCell::new(Vec::from_iter((pages > 0).then_some(0..pages)))),
            start: memory.0.window(0..pages, ()).address(),
            pages,
            translations: Translations::new(slots, geometry.translations as usize, replacement),
        }
    }

    /// Whether there is one.
    #[inline]
    pub(super) const fn is_there(&self) -> bool {
        self.pages > 0
    }

    pub(super) fn set_replacement(&mut self, choice: ReplacementChoice) {
        self.translations.set_replacement(choice.replacement());
    }

    /// A region of zeroes in the window; `None` when no run of pages is that long.
    pub(super) fn lend(&self, memory: &Mapped, bytes: usize) -> Option<Region> {
        let wanted = u32::try_from(bytes.div_ceil(PAGE_BYTES)).ok().filter(|wanted| *wanted > 0)?;
        let mut free = self.free.borrow_mut();
        let run = free.iter_mut().find(|run| run.len() >= wanted as usize)?;
        let pages = run.start..run.start + wanted;
        run.start = pages.end;
        free.retain(|run| !run.is_empty());
        drop(free);
        let region = memory.0.window(pages.clone(), Lease { free: Rc::clone(&self.free), pages });
        for page in (0..region.bytes()).step_by(PAGE_BYTES) {
            let _ = region.write(page, &[0; PAGE_BYTES]);
        }
        Some(region)
    }

    /// Whether memory lies in the window.
    pub(super) fn holds(&self, slice: &Slice) -> bool {
        let address = slice.region().address();
        address >= self.start && address < self.start + u64::from(self.pages) * PAGE
    }

    /// What is registered was written under its key: the next writes to these pages may be direct.
    pub(super) fn learn(&mut self, memory: &Mapped, key: u64, registered: &Slice, written: Range<u64>) {
        if !self.translations.is_useful() || !self.holds(registered) {
            return;
        }
        let first = registered.region().address() + registered.at() as u64;
        let whole = first.next_multiple_of(PAGE)..first + registered.bytes() as u64;
        let mut page = written.start / PAGE * PAGE;
        while page < written.end {
            if let Some(number) = page_of(page).filter(|_| page >= whole.start && page + PAGE <= whole.end) {
                self.translations.install(memory, key, number, ((page - self.start) / PAGE) as u32);
            }
            page += PAGE;
        }
    }

    /// Nothing more is written directly under a key. Returns whether a direct write may be in progress at this moment.
    pub(super) fn forget(&mut self, memory: &Mapped, key: u64) -> bool {
        self.translations.remove(memory, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_rail::memory::Memory;
    use tsumugi_wire::memory::Geometry;

    fn windowed(window_pages: u32) -> (Mapped, Window) {
        let geometry = Geometry { window_pages, translations: 8, ..Geometry::plain(1, 4096) };
        let memory = Mapped(Memory::new(geometry).unwrap());
        let window = Window::new(&memory);
        (memory, window)
    }

    #[test]
    fn pages_are_lent_once_and_come_back() {
        let (memory, window) = windowed(5);
        let lend = |pages: usize| window.lend(&memory, pages * PAGE_BYTES);
        let [one, two, three] = [1, 2, 2].map(|pages| lend(pages).unwrap());
        assert_eq!(three.address() - one.address(), 3 * PAGE);
        assert!(lend(1).is_none());
        let clone = two.clone();
        drop(two);
        assert!(lend(1).is_none(), "somebody still needs it");
        clone.write(0, &[7; 100]).unwrap();
        drop((one, clone));
        assert!(lend(4).is_none());
        let again = lend(3).unwrap();
        let mut bytes = [1; 3 * PAGE_BYTES];
        again.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        drop((again, three));
        assert_eq!(lend(5).unwrap().bytes(), 5 * PAGE_BYTES);
        assert!(window.lend(&memory, 0).is_none() && window.lend(&memory, 6 * PAGE_BYTES).is_none());
        assert_eq!(window.lend(&memory, 1).unwrap().bytes(), PAGE_BYTES);
    }

    #[test]
    fn only_whole_pages_of_the_window_are_translated() {
        let (memory, mut window) = windowed(4);
        let region = window.lend(&memory, 4 * PAGE_BYTES).unwrap();
        let part = region.slice(100..3 * PAGE_BYTES + 1).unwrap();
        let start = region.address();
        window.learn(&memory, 9, &part, start + 100..start + 4 * PAGE);
        assert_eq!(window.translations.len(), 2, "the first and the last are not registered from end to end");
        let elsewhere = Region::new(PAGE_BYTES).unwrap();
        window.learn(&memory, 10, &elsewhere.all(), elsewhere.address()..elsewhere.address() + 8);
        assert_eq!(window.translations.len(), 2);
        assert!(window.forget(&memory, 9) && !window.forget(&memory, 9));
        assert!(window.translations.is_empty());
    }
}
