//! Whether a peer is still there.
//!
//! An endpoint that waits for a silent peer asks it for a sign of life (PROBE), and then the kernels. A process that
//! computes, is stopped or is swapped out says nothing, and its kernel says that it is there; of one that has ended its
//! kernel says that nobody has its port. So a connection ends
//!
//! - at once, when the peer's kernel says that its process is gone;
//! - when nothing and nobody has answered for [`crate::Config::peer_timeout`]: host and network are silent;
//! - never over silence alone, as long as the peer's kernel says that the process is there;
//! - when every link here that leads to the peer has been down for [`LINK_DOWN_TIMES`](crate::endpoint::peer::liveness::LINK_DOWN_TIMES) times as long as silence is borne.
//!   Until then such silence is not the peer's, and what it is borne for begins anew when the link is back.
//!
//! A peer that has never answered is waited for, for [`crate::Config::connect_timeout`], because it may start late; unless
//! our own kernel says that nothing can be sent to it.

use super::EndpointOptions;
use super::{Core, Ended};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::liveness::{Look, Patience};
use crate::error::Reason;
use rustix::io::Errno;
use tsumugi_rail::{Evidence, NicName, Packet, Question, Rail, RailError};
use tsumugi_wire::defect;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};
use tsumugi_wire::{Flags, Instant, Kind, Psn};

/// How long a new peer is waited for before anybody but our own kernel is asked, ns.
const HANDSHAKE_NS: u64 = SECOND_NS;
/// Shortest and longest time between two looks at the peers that are watched, ns.
const WATCH_NS_MIN: u64 = 50 * MILLISECOND_NS;
const WATCH_NS_MAX: u64 = 250 * MILLISECOND_NS;
/// Times that AWAY is said: nobody acknowledges it.
const AWAYS: usize = 3;

impl Core {
    /// When something is to be done about the silence of a peer.
    pub(super) fn liveness_due(&self, peer: &Peer) -> Instant {
        peer.stage().map_or(Instant::NEVER, |stage| peer.liveness.due(stage, self.patience()))
    }

    /// How long silence is borne.
    fn patience(&self) -> Patience {
        let EndpointOptions { peer_timeout_ns, connect_timeout_ns, .. } = self.options;
        Patience { peer_timeout_ns, connect_timeout_ns }
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
            peer.liveness.watch();
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
        let patience = self.patience();
        let peer = &mut self.peers[index as usize];
        let Some(stage) = peer.stage().filter(|_| peer.is_waiting()) else {
            peer.liveness.wait_no_more();
            return Ok(());
        };
        let Look { asks_kernels, asks_peer, end } = peer.liveness.look(now, stage, patience);
        if asks_kernels {
            self.schedule.doubt(index);
            self.schedule(index);
        }
        if asks_peer {
            self.ask(index);
        }
        end.map_or(Ok(()), |reason| Err(Ended(index, reason)))
    }

    /// Asks kernels about the peers of whom that is due.
    pub(super) fn ask_kernels<R: Rail + ?Sized>(&mut self, now: Instant, rail: &mut R) {
        while let Some(index) = self.schedule.next_doubted() {
            let peer = &mut self.peers[index as usize];
            if !matches!(peer.connection.phase, Phase::Open) || !peer.is_waiting() {
                continue;
            }
            let quiet_since = peer.liveness.quiet_since(now);
            let question = match peer.connection.remote {
                Some(remote) if remote.listens => Question::Process,
                _ => Question::Host,
            };
            let address = peer.usual_address();
            if let Some(nic) = link_down(now, peer, rail).filter(|_| !defect!(LinkDownIgnored)) {
                self.on_evidence(now, index, Evidence::LinkDown(nic), question);
                let due = self.due(index);
                self.schedule_at(index, due);
                continue;
            }
            let begins = peer.liveness.inquire(now);
            let is_unasked = defect!(EvidenceNotAsked);
            match if is_unasked { Evidence::None } else { rail.inquire(now, quiet_since, address, question) }
            {
                Evidence::Asked => peer.liveness.on_asked(now),
                evidence => self.on_evidence(now, index, evidence, question),
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
    fn on_evidence(&mut self, now: Instant, index: u32, evidence: Evidence, question: Question) {
        let patience = self.patience();
        let outcome = self.peers[index as usize].liveness.on_evidence(now, evidence, question, patience);
        self.apply(outcome.map_err(|reason| Ended(index, reason)));
    }

    /// Takes in what our own kernel says of a HELLO that was just sent, and asks others after a while.
    pub(super) fn ask_about_handshake<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        let since = peer.liveness.waiting_since().unwrap_or(now);
        let question = if now.since(since) < HANDSHAKE_NS { Question::Errors } else { Question::Host };
        let evidence = rail.inquire(now, since, peer.address, question);
        let evidence = link_down(now, peer, rail).map_or(evidence, Evidence::LinkDown);
        match evidence {
            Evidence::NoRoute(error) if is_final(error) => return Err(Ended(index, Reason::NoRoute(error))),
            Evidence::None | Evidence::Asked => {}
            evidence => peer.liveness.note(evidence),
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
        Errno::from_raw_os_error(error),
        Errno::NETUNREACH
            | Errno::AFNOSUPPORT
            | Errno::ADDRNOTAVAIL
            | Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
    )
}
