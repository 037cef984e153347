//! What the endpoint shows to whoever looks on, in a page that other processes can read.
//!
//! It is written when somebody has asked, which costs a look at one word; every second of calls, so that who begins to look
//! finds something; and before a sleep of which nobody knows the end. Nobody need watch for it to be right: whoever sleeps has
//! shown what it had done until then.

use crate::snapshot::Snapshot;
use tsumugi_rail::status_page::{StatusPage, TEXT_BYTES_MAX};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// Time between two times of showing that nobody has asked for, ns: in calls, and before a sleep.
const SHOW_EVERY_NS: u64 = SECOND_NS;
const SHOW_BEFORE_SLEEP_NS: u64 = 10 * MILLISECOND_NS;

/// What is shown, and since when.
#[derive(Debug, Default)]
pub(super) struct Showing {
    /// `None`: the system has not given one; then nobody can look on.
    page: Option<StatusPage>,
    shown_at: Option<Instant>,
}

impl Showing {
    /// A page for this process.
    pub(super) fn open() -> Showing {
        let page = StatusPage::new().inspect_err(|error| {
            tracing::debug!("no status is shown to others: {error}");
        });
        Showing { page: page.ok(), shown_at: None }
    }

    /// Whether it is time in calls.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_due_every(now, SHOW_EVERY_NS)
    }

    /// The same before a sleep.
    pub(super) fn is_due_before_sleep(&self, now: Instant) -> bool {
        self.is_due_every(now, SHOW_BEFORE_SLEEP_NS)
    }

    #[inline]
    fn is_due_every(&self, now: Instant, every_ns: u64) -> bool {
        self.page
            .as_ref()
            .is_some_and(|page| self.shown_at.is_none_or(|at| now.since(at) >= every_ns) || page.is_asked())
    }

    /// Shows it, with as many peers as there is room for.
    pub(super) fn show(&mut self, now: Instant, mut snapshot: Snapshot) {
        self.shown_at = Some(now);
        let Some(page) = &self.page else { return };
        loop {
            match serde_json::to_vec(&snapshot) {
                Ok(text) if text.len() <= TEXT_BYTES_MAX => return page.write(&text),
                Ok(_) if !snapshot.peers.is_empty() => snapshot.peers.truncate(snapshot.peers.len() / 2),
                _ => return,
            }
        }
    }

    /// Says whether the endpoint sleeps in a call.
    #[inline]
    pub(super) fn set_asleep(&self, asleep: bool) {
        if let Some(page) = &self.page {
            page.set_asleep(asleep);
        }
    }
}
