//! Packets of a peer that arrived damaged, and are wanted again.

use tsumugi_proto::pieces::JOINS_MAX;
use tsumugi_wire::defect;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Instant, Psn};

/// Packets of a peer that are asked for at a time: as many as may be in pieces.
pub(crate) const ASKED_MAX: usize = JOINS_MAX;

/// Longest time after which a packet is asked for again, ns.
const ASK_NS_MAX: u64 = 100 * MILLISECOND_NS;

/// A packet that arrived damaged.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    psn: Psn,
    /// When it is to be asked for, again.
    due: Instant,
    /// How often it has been.
    asks: u32,
}

/// The packets of a peer that arrived damaged and are wanted again, in the order of their PSNs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damaged(Vec<Wanted>);

impl Damaged {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The first of them: its turn does not pass before it has come.
    pub(crate) fn first(&self) -> Option<Psn> {
        self.0.first().map(|wanted| wanted.psn)
    }

    pub(crate) fn has(&self, psn: Psn) -> bool {
        self.0.binary_search_by_key(&psn, |wanted| wanted.psn).is_ok()
    }

    /// When some are to be asked for.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.0.iter().take(ASKED_MAX).map(|wanted| wanted.due).min().unwrap_or(Instant::NEVER)
    }

    /// The packets that are to be asked for now, and how often each has been. There are `patience_ns` for the first answer, and
    /// then twice as long each time.
    pub(crate) fn ask(&mut self, now: Instant, patience_ns: u64) -> Vec<(Psn, u32)> {
        let most = if defect!(DamagedNotWanted) { 0 } else { ASKED_MAX };
        let due = self.0.iter_mut().take(most).filter(|wanted| wanted.due <= now);
        due.map(|wanted| {
            let asks = wanted.asks;
            wanted.due = now.plus((patience_ns << asks.min(10)).min(ASK_NS_MAX.max(patience_ns)));
            wanted.asks = asks.saturating_add(1);
            (wanted.psn, asks)
        })
        .collect()
    }

    /// Adds a packet, which is asked for as soon as may be.
    pub(crate) fn add(&mut self, psn: Psn) {
        if let Err(at) = self.0.binary_search_by_key(&psn, |wanted| wanted.psn) {
            self.0.insert(at, Wanted { psn, due: Instant(0), asks: 0 });
        }
    }

    pub(crate) fn remove(&mut self, psn: Psn) -> bool {
        let found = self.0.binary_search_by_key(&psn, |wanted| wanted.psn).ok();
        found.map(|at| self.0.remove(at)).is_some()
    }

    pub(crate) fn psns(&self) -> impl Iterator<Item = Psn> + '_ {
        self.0.iter().map(|wanted| wanted.psn)
    }
}
