//! Things under numbers that are not given a second time, so that whoever has an old one finds nothing.

use slab::Slab;

/// A table of things; numbers come over the wire and from callers, and may be any.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Slab<(u32, T)>,
    /// Counts what was ever put in, modulo 2³².
    count: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Slab::new(), count: 0 }
    }
}

impl<T> Table<T> {
    /// Puts something in and returns its number.
    pub(super) fn insert(&mut self, thing: T) -> u64 {
        self.count = self.count.wrapping_add(1);
        let slot = self.slots.insert((self.count, thing));
        u64::from(self.count) << 32 | slot as u64
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (count, thing) = self.slots.get((number & u64::from(u32::MAX)) as usize)?;
        (u64::from(*count) == number >> 32).then_some(thing)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (count, thing) = self.slots.get_mut((number & u64::from(u32::MAX)) as usize)?;
        (u64::from(*count) == number >> 32).then_some(thing)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        Some(self.slots.remove((number & u64::from(u32::MAX)) as usize).1)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Everything.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, (_, thing))| thing)
    }

    /// Everything with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().map(|(slot, (count, thing))| (u64::from(*count) << 32 | slot as u64, thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_finds_nothing() {
        let mut table = Table::default();
        let old = table.insert('a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('b');
        assert!(table.get(old).is_none() && table.get_mut(old).is_none() && table.remove(old).is_none());
        assert_eq!((table.get(new), table.get(0), table.get(u64::MAX)), (Some(&'b'), None, None));
    }
}
