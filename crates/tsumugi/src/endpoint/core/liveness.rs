//! Whether a peer is still there.
//!
//! An endpoint that waits for a silent peer asks it for a sign of life (PROBE), and then the kernels. A process that
//! computes, is stopped or is swapped out says nothing, and its kernel says that it is there; of one that has ended its
//! kernel says that nobody has its port. So a connection ends
//!
//! - at once, when the peer's kernel says that its process is gone;
//! - when nothing and nobody has answered for [`crate::Config::peer_timeout`]: host and network are silent;
//! - never over silence alone, as long as the peer's kernel says that the process is there;
//! - when every link here that leads to the peer has been down for [`LINK_DOWN_TIMES`] times as long as silence is borne.
//!   Until then such silence is not the peer's, and what it is borne for begins anew when the link is back.
//!
//! A peer that has never answered is waited for, for [`crate::Config::connect_timeout`], because it may start late; unless
//! our own kernel says that nothing can be sent to it.

use super::{Ended, State};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::error::Reason;
use std::time::Duration;
use tsumugi_rail::{Evidence, NicName, Packet, Question, Rail, RailError};
use tsumugi_wire::defect;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};
use tsumugi_wire::{Flags, Instant, Kind, Psn};

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
/// How long a new peer is waited for before anybody but our own kernel is asked, ns.
const HANDSHAKE_NS: u64 = SECOND_NS;
/// Shortest and longest time between two looks at the peers that are watched, ns.
const WATCH_NS_MIN: u64 = DOUBT_NS;
const WATCH_NS_MAX: u64 = 5 * DOUBT_NS;
/// How many times as long as a silent peer a link that is down here is waited for.
pub(super) const LINK_DOWN_TIMES: u32 = 10;
/// Times that AWAY is said: nobody acknowledges it.
const AWAYS: usize = 3;

impl State {
    /// When something is to be done about the silence of a peer.
    pub(super) fn liveness_due(&self, peer: &Peer) -> Instant {
        let Some(since) = peer.liveness.waiting_since else { return Instant::NEVER };
        let quiet_since = peer.liveness.heard_at.max(since);
        let silent_at = quiet_since.max(peer.liveness.doubt.vouched_at).plus(self.patience_ns(peer));
        // Nobody is asked for a sign of life who has not said a word yet, or need not say more than BYE_ACK.
        if !matches!(peer.connection.phase, Phase::Open) && !defect!(TimerAlwaysDue) {
            return silent_at;
        }
        let ask_at = self.ask_at(peer, quiet_since);
        let due = match peer.liveness.asks {
            ASKS.. if peer.liveness.doubt.is_asked() => Instant::NEVER,
            ASKS.. => ask_at.max(silent_at),
            _ => ask_at,
        };
        due.min(peer.liveness.doubt.ask_at.max(quiet_since.plus(DOUBT_NS)))
    }

    /// How long silence of the peer is borne, ns.
    fn patience_ns(&self, peer: &Peer) -> u64 {
        match peer.connection.phase {
            Phase::Handshake(_) => self.options.connect_timeout_ns,
            Phase::Open if defect!(SilenceIgnored) => u64::MAX,
            _ => self.options.peer_timeout_ns,
        }
    }

    /// When a peer that was quiet since then is asked for a sign of life, or has not answered the last question.
    fn ask_at(&self, peer: &Peer, quiet_since: Instant) -> Instant {
        peer.liveness.asked_at.max(quiet_since).plus(self.options.peer_timeout_ns / u64::from(ASKS + 1))
    }

    /// Somebody waits for what peers may send, though nothing is outstanding with them: from now on those are looked at
    /// that are silent, as if something were. All at once and now and then, because an endpoint may have many, and what
    /// a packet costs must not depend on how many.
    pub(crate) fn watch(&mut self) {
        self.schedule.watch();
    }

    /// A peer has come that is to be watched.
    pub(super) fn watch_soon(&mut self, now: Instant) {
        self.schedule.watch_by(now.plus(WATCH_NS_MAX));
    }

    /// Looks at the peers of whom nothing is outstanding. The others have timers of their own.
    pub(super) fn watch_all(&mut self, now: Instant) {
        let mut due = Instant::NEVER;
        let mut has_peers = false;
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            let peer = &mut self.peers[index as usize];
            if !matches!(peer.connection.phase, Phase::Open) {
                continue;
            }
            has_peers = true;
            peer.liveness.is_watched = true;
            if !peer.is_busy() {
                let outcome = self.on_noted(now, index).and_then(|()| self.is_alive(now, index));
                if self.apply(outcome).is_some() {
                    due = due.min(self.liveness_due(&self.peers[index as usize]));
                }
            }
        }
        let look = due.max(now.plus(WATCH_NS_MIN)).min(now.plus(WATCH_NS_MAX));
        self.schedule.watch_at(if has_peers { look } else { Instant::NEVER });
    }

    /// Asks about a peer that has been quiet for a while. The connection with one that has been silent for too long is to end.
    pub(super) fn is_alive(&mut self, now: Instant, index: u32) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        if !peer.is_waiting() {
            peer.liveness.wait_no_more();
            return Ok(());
        }
        let since = *peer.liveness.waiting_since.get_or_insert(now);
        let quiet_since = peer.liveness.heard_at.max(since);
        let is_open = matches!(peer.connection.phase, Phase::Open);
        let is_doubted = is_open && now >= peer.liveness.doubt.ask_at.max(quiet_since.plus(DOUBT_NS));
        if is_doubted {
            self.doubt(now, index);
        }
        let peer = &self.peers[index as usize];
        if is_open && now < self.ask_at(peer, quiet_since) {
            return Ok(());
        }
        let late = now >= quiet_since.plus(self.options.peer_timeout_ns) && defect!(SilentUnasked);
        if is_open && peer.liveness.asks < ASKS && !late {
            // Ours may all be acknowledged and its message be half here: ask for a sign of life.
            let peer = &mut self.peers[index as usize];
            peer.liveness.asked_at = now;
            peer.liveness.asks += 1;
            self.ask(index);
            return Ok(());
        }
        let patience_ns = self.patience_ns(peer);
        if now < quiet_since.max(peer.liveness.doubt.vouched_at).plus(patience_ns) {
            return Ok(());
        }
        // What kernels said last is out of date when they are to be asked again, or an owner that makes no calls was away.
        if is_doubted || is_open && peer.liveness.doubt.is_asked() {
            return Ok(());
        }
        if is_open && now.since(peer.liveness.doubt.answered_at) > patience_ns / 2 {
            self.doubt(now, index);
            return Ok(());
        }
        let patience = Duration::from_nanos(patience_ns);
        let reason = match peer.connection.phase {
            Phase::Handshake(_) => match peer.liveness.doubt.version {
                Some(version) => Reason::OtherVersion(version),
                None => Reason::Unreachable(patience, peer.liveness.doubt.said),
            },
            Phase::Leaving(_) => Reason::Closed,
            _ => Reason::Silent(patience, peer.liveness.doubt.said),
        };
        Err(Ended(index, reason))
    }

    /// Has kernels asked about a peer with the next packets that are sent.
    fn doubt(&mut self, now: Instant, index: u32) {
        let doubt = &mut self.peers[index as usize].liveness.doubt;
        // Before that, only the answer is looked for.
        doubt.ask_at = now.plus(LOOK_NS_MAX);
        self.schedule.doubt(index);
        self.schedule(index);
    }

    /// Asks kernels about the peers of whom that is due.
    pub(super) fn ask_kernels<R: Rail + ?Sized>(&mut self, now: Instant, rail: &mut R) {
        while let Some(index) = self.schedule.next_doubted() {
            let peer = &mut self.peers[index as usize];
            if !matches!(peer.connection.phase, Phase::Open) || !peer.is_waiting() {
                continue;
            }
            let quiet_since =
                peer.liveness.waiting_since.map_or(now, |since| since.max(peer.liveness.heard_at));
            let question = match peer.connection.remote {
                Some(remote) if remote.listens => Question::Process,
                _ => Question::Host,
            };
            let address = peer.usual_address();
            if let Some(nic) = link_down(now, peer, rail).filter(|_| !defect!(LinkDownIgnored)) {
                let outcome = self.on_evidence(now, index, Evidence::LinkDown(nic), question);
                self.apply(outcome);
                let due = self.due(index);
                self.schedule_at(index, due);
                continue;
            }
            peer.liveness.doubt.no_link_since = None;
            let begins = !peer.liveness.doubt.is_asked();
            if begins {
                peer.liveness.doubt.asked_at = now;
            }
            let is_unasked = defect!(EvidenceNotAsked);
            match if is_unasked { Evidence::None } else { rail.inquire(now, quiet_since, address, question) }
            {
                Evidence::Asked => {
                    let waited_ns = now.since(peer.liveness.doubt.asked_at);
                    peer.liveness.doubt.ask_at = now.plus(waited_ns.clamp(LOOK_NS_MIN, LOOK_NS_MAX));
                }
                evidence => {
                    let outcome = self.on_evidence(now, index, evidence, question);
                    self.apply(outcome);
                }
            }
            if begins {
                // The peer's kernel reports a packet that nobody takes.
                self.ask(index);
            }
            let due = self.due(index);
            self.schedule_at(index, due);
        }
    }

    /// A kernel has said something of a peer that is silent.
    fn on_evidence(
        &mut self,
        now: Instant,
        index: u32,
        evidence: Evidence,
        question: Question,
    ) -> Result<(), Ended> {
        let patience_ns = self.options.peer_timeout_ns;
        let peer = &mut self.peers[index as usize];
        let quiet_since = peer.liveness.waiting_since.map_or(now, |since| since.max(peer.liveness.heard_at));
        let quiet_ns = now.since(quiet_since);
        let doubt = &mut peer.liveness.doubt;
        (doubt.asked_at, doubt.answered_at) = (Instant(0), now);
        let pause_ns = (quiet_ns / 4).clamp(DOUBT_NS, ASK_KERNELS_NS_MAX);
        doubt.ask_at = now.plus(pause_ns.min(patience_ns / u64::from(ASKS + 1)));
        match evidence {
            Evidence::Gone | Evidence::PortUnreachable if doubt.is_away || defect!(RefusalNotBelieved) => {}
            Evidence::Gone => return Err(Ended(index, Reason::Gone)),
            Evidence::PortUnreachable => {
                doubt.refusals += 1;
                doubt.ask_at = now.plus(LOOK_NS_MAX);
                if doubt.refusals >= REFUSALS {
                    return Err(Ended(index, Reason::Gone));
                } else {
                    doubt.said = evidence;
                }
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
                let patience = Duration::from_nanos(patience_ns) * LINK_DOWN_TIMES;
                if u128::from(now.since(since)) >= patience.as_nanos() {
                    return Err(Ended(index, Reason::LinkDown(patience, nic)));
                }
                (doubt.no_link_since, doubt.vouched_at, doubt.refusals) = (Some(since), now, 0);
                doubt.said = evidence;
                // What it was asked has not left; it is asked again when the link is back.
                peer.liveness.asks = 0;
            }
            Evidence::NoRoute(_) => doubt.said = evidence,
            // What was said before is out of date.
            Evidence::None => doubt.said = Evidence::None,
            Evidence::Asked => {}
        }
        Ok(())
    }

    /// Takes in what our own kernel says of a HELLO that was just sent, and asks others after a while.
    pub(super) fn ask_about_handshake<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        let since = peer.liveness.waiting_since.unwrap_or(now);
        let question = if now.since(since) < HANDSHAKE_NS { Question::Errors } else { Question::Host };
        let evidence = rail.inquire(now, since, peer.address, question);
        let evidence = link_down(now, peer, rail).map_or(evidence, Evidence::LinkDown);
        match evidence {
            Evidence::NoRoute(error) if is_final(error) => return Err(Ended(index, Reason::NoRoute(error))),
            Evidence::None | Evidence::Asked => {}
            evidence => peer.liveness.doubt.said = evidence,
        }
        Ok(())
    }

    /// Tells peers that this process leaves and another will go on.
    ///
    /// # Errors
    /// The rail is broken.
    pub(crate) fn say_away<R: Rail + ?Sized>(&mut self, now: Instant, rail: &mut R) -> Result<(), RailError> {
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            if !matches!(self.peers[index as usize].connection.phase, Phase::Open) {
                continue;
            }
            let Some(packet) = self.answer_packet(now, index, Kind::Ack, Psn(0), Flags::AWAY) else {
                continue;
            };
            let peer = &self.peers[index as usize];
            for _ in 0..AWAYS {
                rail.send(now, peer.usual_address(), &[Packet { head: &packet, body: &[] }])?;
            }
        }
        Ok(())
    }
}

/// The first of our NICs that lead to a peer, if the links of all of them are down.
fn link_down<R: Rail + ?Sized>(now: Instant, peer: &Peer, rail: &mut R) -> Option<NicName> {
    let nic = rail.link_down(now, peer.address)?;
    peer.paths.iter().all(|path| rail.link_down(now, path.address).is_some()).then_some(nic)
}

/// Whether an error says that nothing can be sent to an address, now or in a moment.
fn is_final(error: i32) -> bool {
    matches!(
        error,
        libc::ENETUNREACH
            | libc::EAFNOSUPPORT
            | libc::EADDRNOTAVAIL
            | libc::EPERM
            | libc::EACCES
            | libc::EINVAL
    )
}
