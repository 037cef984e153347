//! Puts what was deposited in any order back into the order of its PSNs.
//!
//! Bounded by the receive window: no PSN that lies further ahead is ever deposited.

use alloc::collections::VecDeque;
use tsumugi_wire::Psn;

/// Items of a flow, each to be taken out when its turn comes.
#[derive(Clone, Debug)]
pub struct Reorder<T> {
    next: Psn,
    /// Slot 0 stands for `next`.
    held: VecDeque<Option<T>>,
    count: usize,
}

impl<T> Default for Reorder<T> {
    fn default() -> Self {
        Self { next: Psn(0), held: VecDeque::new(), count: 0 }
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
    pub const fn held(&self) -> usize {
        self.count
    }

    /// The item of `next` is being processed without having been held.
    #[inline]
    pub fn pass(&mut self) {
        self.next = self.next.next();
        if !self.held.is_empty() {
            let skipped = self.held.pop_front().flatten();
            debug_assert!(skipped.is_none(), "the item of this turn was held already");
            self.count -= usize::from(skipped.is_some());
        }
    }

    /// Keeps the item of `psn` until its turn; `false` when its turn is over or it is held already.
    pub fn hold(&mut self, psn: Psn, item: T) -> bool {
        let Some(ahead) = psn.since(self.next) else { return false };
        let ahead = ahead as usize;
        if self.held.len() <= ahead {
            self.held.resize_with(ahead + 1, || None);
        }
        if self.held[ahead].is_some() {
            return false;
        }
        self.held[ahead] = Some(item);
        self.count += 1;
        true
    }

    /// Takes out the item whose turn it is, if it is held.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.count == 0 {
            return None;
        }
        let item = self.held.front_mut()?.take()?;
        self.held.pop_front();
        self.count -= 1;
        self.next = self.next.next();
        Some(item)
    }

    /// Everything held, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Psn, &T)> {
        self.held
            .iter()
            .enumerate()
            .filter_map(|(ahead, item)| item.as_ref().map(|item| (self.next.plus(ahead as u64), item)))
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
    }
}
