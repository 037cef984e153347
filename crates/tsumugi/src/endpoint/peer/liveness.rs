//! Signs of life of a peer, and what kernels say of it.

use tsumugi_rail::Evidence;
use tsumugi_wire::Instant;

/// Signs of life.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// When something last came from it.
    pub(crate) heard_at: Instant,
    /// Things that somebody waits for and only it can bring, though everything sent is acknowledged.
    pub(crate) awaited: u32,
    /// The application receives, and nothing else is outstanding with it: see [`crate::endpoint::core::State::watch`].
    pub(crate) is_watched: bool,
    /// Since when something is outstanding with it, or it is watched.
    pub(crate) waiting_since: Option<Instant>,
    /// When it was last asked for a sign of life, and how often since something came from it.
    pub(crate) asked_at: Instant,
    pub(crate) asks: u32,
    /// What kernels say of it.
    pub(crate) doubt: Doubt,
}

impl Liveness {
    /// It gave a sign of life.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard_at = now;
        self.asks = 0;
        self.doubt.asked_at = Instant(0);
        self.doubt.ask_at = Instant(0);
        self.doubt.version = None;
    }

    /// Nothing is outstanding with it.
    pub(crate) fn wait_no_more(&mut self) {
        self.waiting_since = None;
        self.asks = 0;
    }
}

/// What kernels have said of a peer that is silent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// When they were asked, and when they are asked, or looked for an answer from, next.
    pub(crate) asked_at: Instant,
    pub(crate) ask_at: Instant,
    /// When they answered last, if only that nothing is known; and when the peer's said that its process is there, or ours
    /// that the peer is not to blame.
    pub(crate) answered_at: Instant,
    pub(crate) vouched_at: Instant,
    /// Since when no link here has led to it, as far as was noticed.
    pub(crate) no_link_since: Option<Instant>,
    /// ICMP errors that say that its port is closed, less the times that none came where one would have been due.
    pub(crate) refusals: u32,
    /// The last answer that said something.
    pub(crate) said: Evidence,
    /// The version of the protocol that it seems to speak, if not ours.
    pub(crate) version: Option<u8>,
    /// Its process has left, and another will go on: that its port is closed means nothing.
    pub(crate) is_away: bool,
}

impl Doubt {
    /// Whether a question waits for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked_at != Instant(0)
    }
}
