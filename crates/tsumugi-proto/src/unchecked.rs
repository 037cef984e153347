//! What a sender keeps of packets that have arrived, until the receiver has compared them with their CRC.
//!
//! The XDP program acknowledges what it has deposited, and cannot afford to look at all of it. The process that owns
//! the memory compares when it reads, maybe much later, and asks for what was damaged (`tsumugi_wire::Kind::Damaged`).
//!
//! The receiver's credit bounds how much there is to keep, because credit is granted as what was deposited is read.
//! Direct writes are the exception: they are never read, take up no credit, and nobody compares them. The sender does
//! not know which packets were written directly, so of those that may have been it keeps the latest.

use alloc::collections::VecDeque;
use tsumugi_wire::Psn;
use tsumugi_wire::limits::BITMAP_PACKETS;

/// Packets that are kept of a receiver that says nothing of what it compares.
pub const UNCHECKED_MAX: usize = 2 * BITMAP_PACKETS as usize;
/// Packets that are kept of what may have been written directly.
pub const DIRECT_WRITES_MAX: usize = BITMAP_PACKETS as usize;

/// Payloads of packets that are acknowledged, and not known to be as they were sent.
#[derive(Clone, Debug)]
pub struct Unchecked<P> {
    /// Everything before this PSN has been compared.
    checked: Psn,
    /// In the order of their PSNs, none before `checked`.
    plain: VecDeque<(Psn, P)>,
    /// The same, of packets that may have been written directly.
    direct: VecDeque<(Psn, P)>,
}

impl<P> Default for Unchecked<P> {
    fn default() -> Self {
        Self { checked: Psn(0), plain: VecDeque::new(), direct: VecDeque::new() }
    }
}

impl<P> Unchecked<P> {
    /// Everything before this PSN has been compared.
    #[must_use]
    pub const fn checked(&self) -> Psn {
        self.checked
    }

    /// Packets that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plain.len() + self.direct.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The receiver has compared everything before `checked`. Payloads that are not needed any more go to `release`.
    #[inline]
    pub fn confirm(&mut self, checked: Psn, mut release: impl FnMut(P)) {
        if checked <= self.checked {
            return;
        }
        self.checked = checked;
        for kept in [&mut self.plain, &mut self.direct] {
            while kept.front().is_some_and(|(psn, _)| *psn < checked) {
                kept.pop_front().into_iter().for_each(|(_, packet)| release(packet));
            }
        }
    }

    /// Keeps the payload of a packet that has just been acknowledged. Gives back what is not kept: that, or an older
    /// one.
    #[inline]
    pub fn keep(&mut self, psn: Psn, packet: P, may_be_direct: bool) -> Option<P> {
        if psn < self.checked {
            return Some(packet);
        }
        let (kept, most) = if may_be_direct {
            (&mut self.direct, DIRECT_WRITES_MAX)
        } else {
            (&mut self.plain, UNCHECKED_MAX)
        };
        // Mostly it lies behind everything.
        if kept.back().is_none_or(|(last, _)| *last < psn) {
            kept.push_back((psn, packet));
        } else {
            let at = kept.partition_point(|(other, _)| *other < psn);
            kept.insert(at, (psn, packet));
        }
        if kept.len() > most { kept.pop_front().map(|(_, packet)| packet) } else { None }
    }

    /// The payload of a packet, if it is kept.
    #[must_use]
    pub fn get(&self, psn: Psn) -> Option<&P> {
        let find = |kept: &VecDeque<(Psn, P)>| kept.binary_search_by_key(&psn, |(other, _)| *other).ok();
        let plain = find(&self.plain).map(|at| &self.plain[at].1);
        plain.or_else(|| find(&self.direct).map(|at| &self.direct[at].1))
    }

    /// Everything that is kept.
    pub fn iter(&self) -> impl Iterator<Item = (Psn, &P)> {
        self.plain.iter().chain(&self.direct).map(|(psn, packet)| (*psn, packet))
    }

    /// Takes everything out; the flow is over.
    pub fn drain(&mut self) -> impl Iterator<Item = P> + '_ {
        self.plain.drain(..).chain(self.direct.drain(..)).map(|(_, packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Keep(u64, bool),
        Confirm(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..300, any::<bool>()).prop_map(|(psn, is_direct)| Step::Keep(psn, is_direct)),
            1 => (0u64..300).prop_map(Step::Confirm),
        ]
    }

    proptest! {
        /// Each payload is kept from when it is acknowledged until it is compared, and comes back once.
        #[test]
        fn what_is_not_compared_is_kept(steps in proptest::collection::vec(step(), 0..400)) {
            let mut unchecked = Unchecked::default();
            let (mut model, mut seen, mut checked) = (BTreeMap::new(), BTreeSet::new(), 0);
            for step in steps {
                match step {
                    Step::Keep(psn, is_direct) if seen.insert(psn) => {
                        let back = unchecked.keep(Psn(psn), psn, is_direct);
                        prop_assert_eq!(back, (psn < checked).then_some(psn));
                        if psn >= checked {
                            model.insert(psn, psn);
                        }
                    }
                    Step::Keep(..) => {}
                    Step::Confirm(psn) => {
                        let mut back = BTreeSet::new();
                        unchecked.confirm(Psn(psn), |packet| _ = back.insert(packet));
                        checked = checked.max(psn);
                        let rest = model.split_off(&checked);
                        prop_assert_eq!(back, core::mem::replace(&mut model, rest).into_keys().collect());
                    }
                }
                prop_assert_eq!(unchecked.len(), model.len());
                (0..300).for_each(|psn| assert_eq!(unchecked.get(Psn(psn)), model.get(&psn)));
            }
            prop_assert_eq!(unchecked.drain().collect::<BTreeSet<_>>(), model.into_keys().collect());
        }
    }

    #[test]
    fn a_receiver_that_never_compares_is_no_reason_to_grow() {
        let mut unchecked = Unchecked::default();
        for psn in 0..10_000 {
            let back = unchecked.keep(Psn(psn), psn, psn % 2 == 0);
            let most = if psn % 2 == 0 { DIRECT_WRITES_MAX } else { UNCHECKED_MAX } as u64;
            assert_eq!(back, (psn / 2 >= most).then(|| psn - 2 * most));
        }
        assert_eq!(unchecked.len(), UNCHECKED_MAX + DIRECT_WRITES_MAX);
    }
}
