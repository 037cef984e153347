//! Many first-in-first-out queues in one table, found by key, with an order across all of them.

use slab::Slab;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::Hash;

/// No entry.
const NONE: usize = usize::MAX;

/// Neighbours in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: usize,
    after: usize,
}

/// The two ends of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: usize,
    last: usize,
}

impl Ends {
    const EMPTY: Ends = Ends { first: NONE, last: NONE };
}

#[derive(Debug)]
struct Entry<K, T> {
    key: K,
    /// When it was put in, as the caller counts.
    sequence: u64,
    value: T,
    /// Among the entries of its key.
    own: Links,
    /// Among all.
    all: Links,
}

/// Queues by key. Every operation takes the same time, however many entries there are.
///
/// Nothing is left behind by an entry that was taken out: the key of an empty queue is forgotten.
#[derive(Debug)]
pub(super) struct Queues<K, T> {
    entries: Slab<Entry<K, T>>,
    queues: HashMap<K, Ends>,
    all: Ends,
}

impl<K, T> Default for Queues<K, T> {
    fn default() -> Self {
        Queues { entries: Slab::new(), queues: HashMap::new(), all: Ends::EMPTY }
    }
}

impl<K: Copy + Eq + Hash, T> Queues<K, T> {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts an entry behind all others and returns its place, by which it is taken out again.
    pub(super) fn push(&mut self, key: K, sequence: u64, value: T) -> usize {
        let at = self.entries.vacant_key();
        let queue = self.queues.entry(key).or_insert(Ends::EMPTY);
        let own = Links { before: queue.last, after: NONE };
        let all = Links { before: self.all.last, after: NONE };
        if own.before == NONE {
            queue.first = at;
        } else {
            self.entries[own.before].own.after = at;
        }
        queue.last = at;
        if all.before == NONE {
            self.all.first = at;
        } else {
            self.entries[all.before].all.after = at;
        }
        self.all.last = at;
        self.entries.insert(Entry { key, sequence, value, own, all });
        at
    }

    /// The first entry of a key: when it was put in, and its place.
    pub(super) fn first(&self, key: &K) -> Option<(u64, usize)> {
        let first = self.queues.get(key)?.first;
        Some((self.entries[first].sequence, first))
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let Entry { key, value, own, all, .. } = self.entries.try_remove(at)?;
        if let Place::Occupied(mut queue) = self.queues.entry(key) {
            match own.before {
                NONE => queue.get_mut().first = own.after,
                before => self.entries[before].own.after = own.after,
            }
            match own.after {
                NONE => queue.get_mut().last = own.before,
                after => self.entries[after].own.before = own.before,
            }
            if queue.get().first == NONE {
                queue.remove();
            }
        }
        match all.before {
            NONE => self.all.first = all.after,
            before => self.entries[before].all.after = all.after,
        }
        match all.after {
            NONE => self.all.last = all.before,
            after => self.entries[after].all.before = all.before,
        }
        Some(value)
    }

    /// Gives entries other keys. They stay in the places and in the order that they are in.
    pub(super) fn rename(&mut self, rename: impl Fn(K) -> K) {
        self.queues.clear();
        let mut at = self.all.first;
        while at != NONE {
            let key = rename(self.entries[at].key);
            let queue = self.queues.entry(key).or_insert(Ends::EMPTY);
            let before = std::mem::replace(&mut queue.last, at);
            if before == NONE {
                queue.first = at;
            } else {
                self.entries[before].own.after = at;
            }
            let entry = &mut self.entries[at];
            (entry.key, entry.own) = (key, Links { before, after: NONE });
            at = entry.all.after;
        }
    }

    /// When an entry was put in, as the caller counts.
    pub(super) fn turn(&self, at: usize) -> Option<u64> {
        self.entries.get(at).map(|entry| entry.sequence)
    }

    /// An entry's value.
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.entries.get(at).map(|entry| &entry.value)
    }

    /// All entries in the order in which they were put in: their places, keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, K, &T)> {
        let mut next = self.all.first;
        std::iter::from_fn(move || {
            let at = next;
            let entry = self.entries.get(at)?;
            next = entry.all.after;
            Some((at, entry.key, &entry.value))
        })
    }
}
