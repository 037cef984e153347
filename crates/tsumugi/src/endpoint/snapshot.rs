//! Snapshots of the endpoint: for its program, and for the page that others see.

use super::Endpoint;
use super::core::snapshot::Around;
use super::shared::Inner;
use crate::snapshot::{Snapshot, now_ns};
use tsumugi_wire::Instant;

impl Inner {
    /// Shows what there is to tell, if somebody has asked or it was not done for a while.
    #[inline]
    pub(super) fn show(&mut self, now: Instant) {
        if self.showing.is_due(now) {
            self.show_now(now);
        }
    }

    /// The same before a sleep.
    pub(super) fn show_before_sleep(&mut self, now: Instant) {
        if self.showing.is_due_before_sleep(now) {
            self.show_now(now);
        }
    }

    #[cold]
    fn show_now(&mut self, now: Instant) {
        let snapshot = self.snapshot(now);
        self.showing.show(now, snapshot);
    }

    fn snapshot(&mut self, now: Instant) -> Snapshot {
        let report = self.report();
        let around = Around {
            taken_ns: now_ns(),
            report,
            wait: self.waiter.policy().to_string(),
            in_event_loop: self.shown,
            idle_ns: self.waiter.idle_ns(now),
        };
        self.core.snapshot(now, around)
    }
}

impl Endpoint {
    /// What the endpoint is doing: what has been counted, and where every peer and path stands. `tsumugi status` and
    /// `tsumugi top` show the same of all processes of a user; root sees everybody's.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.inner.borrow_mut().snapshot(self.shared.now())
    }
}
