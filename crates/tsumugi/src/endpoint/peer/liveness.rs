//! Signs of life of a peer, what kernels say of it, and how long its silence is borne.

use crate::error::Reason;
use std::time::Duration;
use tsumugi_rail::{Evidence, Question};
use tsumugi_wire::Instant;
use tsumugi_wire::defect;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// PROBEs that a peer must have left unanswered before it counts as silent. An owner that made no call for longer
/// than the time-out has not asked: the XDP program answers the peer's PROBEs meanwhile, and neither process sees them.
const ASKS: u32 = 4;
/// Silence after which kernels are asked, ns.
const DOUBT_NS: u64 = 50 * MILLISECOND_NS;
/// Longest time between two questions to kernels, ns. It is a quarter of the silence so far, and less than the time-out.
const ASK_KERNELS_NS_MAX: u64 = 10 * SECOND_NS;
/// Shortest and longest time after which the answer to a question is looked for, ns.
const LOOK_NS_MIN: u64 = MILLISECOND_NS;
const LOOK_NS_MAX: u64 = 100 * MILLISECOND_NS;
/// ICMP errors, each about another packet, that are believed where the peer's kernel does not say otherwise.
const REFUSALS: u32 = 4;
/// How many times as long as a silent peer a link that is down here is waited for.
pub(crate) const LINK_DOWN_TIMES: u32 = 10;

/// How long silence is borne, ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// That of a peer that has answered before.
    pub(crate) peer_timeout_ns: u64,
    /// That of a new one, which may start late.
    pub(crate) connect_timeout_ns: u64,
}

/// Where a connection stands of which silence matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Handshake,
    Open,
    Leaving,
}

/// What is to be done about a peer's silence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Kernels are to be asked about it with the next packets that are sent.
    pub(crate) asks_kernels: bool,
    /// It is to be asked for a sign of life.
    pub(crate) asks_peer: bool,
    /// It has been silent for too long.
    pub(crate) end: Option<Reason>,
}

/// Signs of life.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// When something last came from it.
    heard_at: Instant,
    /// Things that somebody waits for and only it can bring, though everything sent is acknowledged.
    awaited: u32,
    /// The application receives, and nothing else is outstanding with it: see [`crate::endpoint::core::Core::watch`].
    is_watched: bool,
    /// Since when something is outstanding with it, or it is watched.
    waiting_since: Option<Instant>,
    /// When it was last asked for a sign of life, and how often since something came from it.
    asked_at: Instant,
    asks: u32,
    /// What kernels say of it.
    doubt: Doubt,
    /// The version of the protocol that it seems to speak, if not ours.
    version: Option<u8>,
    /// Its process has left, and another will go on: that its port is closed means nothing.
    is_away: bool,
}

/// What kernels have said of a peer that is silent.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// When they were asked, and when they are asked, or looked for an answer from, next.
    asked_at: Instant,
    ask_at: Instant,
    /// When they answered last, if only that nothing is known; and when the peer's said that its process is there, or ours
    /// that the peer is not to blame.
    answered_at: Instant,
    vouched_at: Instant,
    /// Since when no link here has led to it, as far as was noticed.
    no_link_since: Option<Instant>,
    /// ICMP errors that say that its port is closed, less the times that none came where one would have been due.
    refusals: u32,
    /// The last answer that said something.
    said: Evidence,
}

impl Doubt {
    /// Whether a question waits for its answer.
    fn is_asked(&self) -> bool {
        self.asked_at != Instant(0)
    }
}

impl Patience {
    /// How long the silence of a peer at this stage is borne, ns.
    fn of(self, stage: Stage) -> u64 {
        match stage {
            Stage::Handshake => self.connect_timeout_ns,
            Stage::Open if defect!(SilenceIgnored) => u64::MAX,
            Stage::Open | Stage::Leaving => self.peer_timeout_ns,
        }
    }

    /// Between two questions for a sign of life, ns.
    fn between_asks(self) -> u64 {
        self.peer_timeout_ns / u64::from(ASKS + 1)
    }
}

impl Liveness {
    /// It gave a sign of life.
    #[inline]
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard_at = now;
        self.asks = 0;
        self.doubt.asked_at = Instant(0);
        self.doubt.ask_at = Instant(0);
        self.version = None;
    }

    /// Its process is there and sends, or has said that it leaves and another will go on.
    #[inline]
    pub(crate) fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
    }

    /// A packet of another version of the protocol came from where it is.
    pub(crate) fn hear_version(&mut self, version: u8) {
        self.version = Some(version);
    }

    /// Something more is awaited that only it can bring. Returns whether it is the first.
    pub(crate) fn expect(&mut self, things: u32) -> bool {
        self.awaited += things;
        self.awaited == things
    }

    /// Something that was awaited has come, or nobody wants it any more.
    pub(crate) fn expect_less(&mut self) {
        self.awaited = self.awaited.saturating_sub(1);
    }

    /// Things that somebody waits for and only it can bring.
    #[inline]
    pub(crate) const fn awaited(&self) -> u32 {
        self.awaited
    }

    /// The application may be waiting for it to send.
    pub(crate) fn watch(&mut self) {
        self.is_watched = true;
    }

    #[inline]
    pub(crate) const fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Something is outstanding with it, or it is watched.
    #[inline]
    pub(crate) fn wait(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// Nothing is outstanding with it.
    #[inline]
    pub(crate) fn wait_no_more(&mut self) {
        self.waiting_since = None;
        self.asks = 0;
    }

    /// Since when something is outstanding with it, or it is watched.
    #[inline]
    pub(crate) const fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since
    }

    /// Since when it has been silent while something was outstanding.
    pub(crate) fn quiet_since(&self, now: Instant) -> Instant {
        self.waiting_since.map_or(now, |since| since.max(self.heard_at))
    }

    /// When something is to be done about its silence.
    pub(crate) fn due(&self, stage: Stage, patience: Patience) -> Instant {
        let Some(since) = self.waiting_since else { return Instant::NEVER };
        let quiet_since = self.heard_at.max(since);
        let silent_at = quiet_since.max(self.doubt.vouched_at).plus(patience.of(stage));
        // Nobody is asked for a sign of life who has not said a word yet, or need not say more than BYE_ACK.
        if stage != Stage::Open && !defect!(TimerAlwaysDue) {
            return silent_at;
        }
        let ask_at = self.ask_at(quiet_since, patience);
        let due = match self.asks {
            ASKS.. if self.doubt.is_asked() => Instant::NEVER,
            ASKS.. => ask_at.max(silent_at),
            _ => ask_at,
        };
        due.min(self.doubt.ask_at.max(quiet_since.plus(DOUBT_NS)))
    }

    /// When it is asked for a sign of life, having been quiet since then, or has not answered the last question.
    fn ask_at(&self, quiet_since: Instant, patience: Patience) -> Instant {
        self.asked_at.max(quiet_since).plus(patience.between_asks())
    }

    /// Looks whether it has been silent for long, while something is outstanding with it.
    pub(crate) fn look(&mut self, now: Instant, stage: Stage, patience: Patience) -> Look {
        self.wait(now);
        let quiet_since = self.quiet_since(now);
        let is_open = stage == Stage::Open;
        let is_doubted = is_open && now >= self.doubt.ask_at.max(quiet_since.plus(DOUBT_NS));
        if is_doubted {
            self.doubt(now);
        }
        let look = Look { asks_kernels: is_doubted, ..Look::default() };
        if is_open && now < self.ask_at(quiet_since, patience) {
            return look;
        }
        let late = now >= quiet_since.plus(patience.peer_timeout_ns) && defect!(SilentUnasked);
        if is_open && self.asks < ASKS && !late {
            // Ours may all be acknowledged and its message be half here: ask for a sign of life.
            self.asked_at = now;
            self.asks += 1;
            return Look { asks_peer: true, ..look };
        }
        let patience_ns = patience.of(stage);
        if now < quiet_since.max(self.doubt.vouched_at).plus(patience_ns) {
            return look;
        }
        // What kernels said last is out of date when they are to be asked again, or an owner that makes no calls was away.
        if is_doubted || is_open && self.doubt.is_asked() {
            return look;
        }
        if is_open && now.since(self.doubt.answered_at) > patience_ns / 2 {
            self.doubt(now);
            return Look { asks_kernels: true, ..look };
        }
        let borne = Duration::from_nanos(patience_ns);
        let reason = match (stage, self.version) {
            (Stage::Handshake, Some(version)) => Reason::OtherVersion(version),
            (Stage::Handshake, None) => Reason::Unreachable(borne, self.doubt.said),
            (Stage::Leaving, _) => Reason::Closed,
            (Stage::Open, _) => Reason::Silent(borne, self.doubt.said),
        };
        Look { end: Some(reason), ..look }
    }

    /// Kernels are to be asked about it. Before that, only the answer is looked for.
    fn doubt(&mut self, now: Instant) {
        self.doubt.ask_at = now.plus(LOOK_NS_MAX);
    }

    /// Kernels are asked about it, and there is a link to it. Returns whether they had not been asked yet.
    pub(crate) fn inquire(&mut self, now: Instant) -> bool {
        self.doubt.no_link_since = None;
        let begins = !self.doubt.is_asked();
        if begins {
            self.doubt.asked_at = now;
        }
        begins
    }

    /// They have not answered yet, and are looked for an answer from again.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        let waited_ns = now.since(self.doubt.asked_at);
        self.doubt.ask_at = now.plus(waited_ns.clamp(LOOK_NS_MIN, LOOK_NS_MAX));
    }

    /// A kernel has said something of it, unasked.
    pub(crate) fn note(&mut self, evidence: Evidence) {
        self.doubt.said = evidence;
    }

    /// A kernel has answered.
    ///
    /// # Errors
    /// Why the connection is to end.
    pub(crate) fn on_evidence(
        &mut self,
        now: Instant,
        evidence: Evidence,
        question: Question,
        patience: Patience,
    ) -> Result<(), Reason> {
        let quiet_since = self.quiet_since(now);
        let quiet_ns = now.since(quiet_since);
        let doubt = &mut self.doubt;
        (doubt.asked_at, doubt.answered_at) = (Instant(0), now);
        let pause_ns = (quiet_ns / 4).clamp(DOUBT_NS, ASK_KERNELS_NS_MAX);
        doubt.ask_at = now.plus(pause_ns.min(patience.between_asks()));
        match evidence {
            Evidence::Gone | Evidence::PortUnreachable if self.is_away || defect!(RefusalNotBelieved) => {}
            Evidence::Gone => return Err(Reason::Gone),
            Evidence::PortUnreachable => {
                doubt.refusals += 1;
                doubt.ask_at = now.plus(LOOK_NS_MAX);
                if doubt.refusals >= REFUSALS {
                    return Err(Reason::Gone);
                }
                doubt.said = evidence;
            }
            // Without a socket that listens: were the process gone, a host that answers would say so of our packets.
            Evidence::HostAnswers if question != Question::Host => doubt.said = evidence,
            Evidence::Present => (doubt.vouched_at, doubt.refusals, doubt.said) = (now, 0, evidence),
            // What it was asked may be lost, or the error about it: that takes back one error, and not all of them.
            Evidence::HostAnswers => {
                let refusals = doubt.refusals.saturating_sub(1);
                (doubt.vouched_at, doubt.refusals, doubt.said) = (now, refusals, evidence);
            }
            Evidence::LinkDown(nic) => {
                // The peer has sent something since, or there was a link meanwhile.
                let since = doubt.no_link_since.filter(|since| *since >= quiet_since).unwrap_or(now);
                let borne = Duration::from_nanos(patience.peer_timeout_ns) * LINK_DOWN_TIMES;
                if u128::from(now.since(since)) >= borne.as_nanos() {
                    return Err(Reason::LinkDown(borne, nic));
                }
                (doubt.no_link_since, doubt.vouched_at, doubt.refusals) = (Some(since), now, 0);
                doubt.said = evidence;
                // What it was asked has not left; it is asked again when the link is back.
                self.asks = 0;
            }
            Evidence::NoRoute(_) => doubt.said = evidence,
            // What was said before is out of date.
            Evidence::None => doubt.said = Evidence::None,
            Evidence::Asked => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { peer_timeout_ns: 500 * MILLISECOND_NS, connect_timeout_ns: 2 * SECOND_NS };

    /// Looks at a peer that is silent, whenever that is due, until its connection is to end; kernels say `evidence`. Returns when,
    /// why, and how often it was asked.
    fn endure(stage: Stage, evidence: Evidence) -> (Option<u64>, Option<Reason>, u32) {
        let (mut liveness, mut now, mut asked) = (Liveness::default(), Instant(1), 0);
        liveness.wait(now);
        while now < Instant(100 * SECOND_NS) {
            let look = liveness.look(now, stage, PATIENCE);
            asked += u32::from(look.asks_peer);
            let ended = look.asks_kernels.then(|| {
                liveness.inquire(now);
                liveness.on_evidence(now, evidence, Question::Process, PATIENCE).err()
            });
            if let Some(reason) = look.end.or(ended.flatten()) {
                return (Some(now.0 / MILLISECOND_NS), Some(reason), asked);
            }
            now = liveness.due(stage, PATIENCE).max(now.plus(MILLISECOND_NS));
        }
        (None, None, asked)
    }

    #[test]
    fn silence_alone_is_borne_for_the_time_out_after_questions() {
        let (after_ms, reason, asked) = endure(Stage::Open, Evidence::None);
        assert!(matches!(reason, Some(Reason::Silent(..))), "{reason:?}");
        assert!((500..1000).contains(&after_ms.unwrap()) && asked == ASKS, "{after_ms:?}, {asked}");
    }

    #[test]
    fn a_process_that_its_kernel_vouches_for_is_waited_for() {
        assert_eq!(endure(Stage::Open, Evidence::Present).0, None);
    }

    #[test]
    fn a_process_that_is_gone_ends_it_at_once() {
        let (after_ms, reason, _) = endure(Stage::Open, Evidence::Gone);
        assert!(matches!(reason, Some(Reason::Gone)) && after_ms.unwrap() < 100, "{after_ms:?}");
    }

    #[test]
    fn a_new_peer_may_start_late_and_one_that_leaves_need_not_answer() {
        let (after_ms, reason, asked) = endure(Stage::Handshake, Evidence::None);
        assert!(matches!(reason, Some(Reason::Unreachable(..))), "{reason:?}");
        assert_eq!((after_ms, asked), (Some(2000), 0));
        assert!(matches!(endure(Stage::Leaving, Evidence::None).1, Some(Reason::Closed)));
    }
}
