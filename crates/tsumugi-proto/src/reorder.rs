//! Puts what was deposited in any order back into the order of its PSNs.
//!
//! What is held is bounded by the credit granted; how far apart it lies is not, because direct writes take up no
//! credit and are not held.

use alloc::collections::VecDeque;
use tsumugi_wire::Psn;

/// Items of a flow, each to be taken out when its turn comes.
#[derive(Clone, Debug)]
pub struct Reorder<T> {
    next: Psn,
    /// In the order of their PSNs, all of which lie behind `next`, or at it for a moment.
    held: VecDeque<(Psn, T)>,
}

impl<T> Default for Reorder<T> {
    fn default() -> Self {
        Self { next: Psn(0), held: VecDeque::new() }
    }
}

impl<T> Reorder<T> {
    /// The PSN whose turn it is.
    #[must_use]
    pub const fn next(&self) -> Psn {
        self.next
    }

    /// Items held because something before them is missing.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The item of `next` is being processed without having been held.
    #[inline]
    pub fn pass(&mut self) {
        debug_assert!(self.held.front().is_none_or(|(psn, _)| *psn > self.next), "held already");
        self.next = self.next.next();
    }

    /// Everything before `psn` that is not held is done: the turn passes to the first that is, or to `psn`.
    pub fn pass_to(&mut self, psn: Psn) {
        let held = self.held.front().map_or(psn, |(held, _)| *held);
        self.next = self.next.max(psn.min(held));
    }

    /// Keeps the item of `psn` until its turn; `false` when its turn is over or it is held already.
    pub fn hold(&mut self, psn: Psn, item: T) -> bool {
        if psn < self.next {
            return false;
        }
        // Mostly it lies behind everything.
        if self.held.back().is_none_or(|(last, _)| *last < psn) {
            self.held.push_back((psn, item));
            return true;
        }
        match self.held.binary_search_by_key(&psn, |(held, _)| *held) {
            Ok(_) => false,
            Err(at) => {
                self.held.insert(at, (psn, item));
                true
            }
        }
    }

    /// Takes out the item whose turn it is, if it is held.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.held.front()?.0 != self.next {
            return None;
        }
        self.next = self.next.next();
        self.held.pop_front().map(|(_, item)| item)
    }

    /// Everything held, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Psn, &T)> {
        self.held.iter().map(|(psn, item)| (*psn, item))
    }

    /// Continues an order at `next`.
    #[must_use]
    pub fn starting_at(next: Psn) -> Self {
        Self { next, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_arrival_order_becomes_psn_order(order in Just((0u64..200).collect::<Vec<_>>()).prop_shuffle()) {
            let mut reorder = Reorder::default();
            let mut out = Vec::new();
            for psn in order {
                if Psn(psn) == reorder.next() {
                    reorder.pass();
                    out.push(psn);
                } else {
                    prop_assert!(reorder.hold(Psn(psn), psn));
                    prop_assert!(!reorder.hold(Psn(psn), psn), "held twice");
                }
                while let Some(psn) = reorder.take() {
                    out.push(psn);
                }
            }
            prop_assert_eq!(out, (0..200).collect::<Vec<_>>());
            prop_assert_eq!(reorder.held(), 0);
        }

        #[test]
        fn what_is_done_without_being_held_is_passed_over(
            order in Just((0u64..200).collect::<Vec<_>>()).prop_shuffle(),
            direct_writes in proptest::collection::btree_set(0u64..200, 0..150),
            looks in proptest::collection::btree_set(0usize..200, 0..20),
        ) {
            let mut reorder = Reorder::default();
            let (mut out, mut arrived) = (Vec::new(), [false; 201]);
            for (number, psn) in order.into_iter().enumerate() {
                arrived[psn as usize] = true;
                if direct_writes.contains(&psn) {
                } else if Psn(psn) == reorder.next() {
                    reorder.pass();
                    out.push(psn);
                } else {
                    prop_assert!(reorder.hold(Psn(psn), psn));
                }
                // Seen now and then only, and at the end.
                if looks.contains(&number) || number == 199 {
                    let base = Psn(arrived.iter().position(|arrived| !arrived).unwrap() as u64);
                    while reorder.next() < base {
                        reorder.pass_to(base);
                        out.extend(core::iter::from_fn(|| reorder.take()));
                    }
                }
                out.extend(core::iter::from_fn(|| reorder.take()));
            }
            prop_assert_eq!(out, (0..200).filter(|psn| !direct_writes.contains(psn)).collect::<Vec<_>>());
            prop_assert_eq!((reorder.held(), reorder.next()), (0, Psn(200)));
        }
    }
}
