//! When nothing is heard: the last packet is sent again, then the first, over one path after the other.

use super::{Cause, Path, Sender, State};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::time::{Instant, MICROSECOND_NS, MILLISECOND_NS};

/// First time-out without an acknowledgement, ns, at least: the tail may be lost. Longer than a receiver
/// holds an ACK back.
const PROBE_NS_MIN: u64 = 500 * MICROSECOND_NS;
/// A time-out after which another path is tried that may do better, ns, at most.
const TRY_NS_MAX: u64 = 10 * MILLISECOND_NS;
/// Time-outs after the first, ns, at least: a peer that the scheduler has put aside survives it.
pub(super) const RTO_NS_MIN: u64 = 5 * MILLISECOND_NS;
/// Longest time-out, ns.
pub(super) const RTO_NS_MAX: u64 = 200 * MILLISECOND_NS;
/// Time-outs in a row after which the path is suspected.
const TIMEOUTS_SUSPICIOUS: u32 = 3;

/// What a sender waits for.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    /// Since when nothing was acknowledged though something is outstanding.
    pub(super) quiet_since: Instant,
    /// Time-outs in a row.
    pub(super) timeouts: u32,
    /// When a packet that was overtaken will count as lost.
    pub(super) loss_due: Instant,
    /// When a path that lost what another delivered will count as silent.
    pub(super) silent_due: Instant,
    /// Something waits for credit, and nothing under way will bring it.
    pub(super) starving_since: Option<Instant>,
    pub(super) probe_wanted: bool,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            quiet_since: Instant(0),
            timeouts: 0,
            loss_due: Instant::NEVER,
            silent_due: Instant::NEVER,
            starving_since: None,
            probe_wanted: false,
        }
    }
}

impl<P> Sender<P> {
    fn timeout_ns(&self) -> u64 {
        let usable = || self.paths.iter().filter(|path| path.is_usable());
        // The slowest path decides on which something is under way: the timer is the last resort. What another was like when
        // it was last used puts nothing off.
        let busy = usable().any(|path| path.in_flight > 0);
        let awaited = usable().filter(|path| !busy || path.in_flight > 0);
        let (srtt_ns, rttvar_ns) =
            awaited.map(|path| (path.rtt.srtt_ns, path.rtt.rttvar_ns)).max().unwrap_or((0, 0));
        let paths = usable().count().max(1) as u32;
        let timeout_ns = if self.timers.timeouts == 0 {
            (2 * srtt_ns + 4 * rttvar_ns).max(PROBE_NS_MIN)
        } else {
            let base = (srtt_ns + 4 * rttvar_ns).max(RTO_NS_MIN);
            // Each path has its turn before any has the next, and is to blame for no other.
            let rounds = (self.timers.timeouts - 1) / paths;
            base.saturating_mul(1 << rounds.min(20)).min(RTO_NS_MAX.max(base))
        };
        let untried = self.paths.len() > 1 && self.timers.timeouts < paths;
        if untried { timeout_ns.min(TRY_NS_MAX) } else { timeout_ns }
    }

    /// When [`Sender::on_timeout`] wants to be called.
    #[must_use]
    pub fn timeout(&self) -> Instant {
        let mut due = self.timers.loss_due.min(self.timers.silent_due);
        if self.slots.len() > self.acked.count {
            due = due.min(self.timers.quiet_since.plus(self.timeout_ns()));
        } else if let Some(since) = self.timers.starving_since {
            due = due.min(since.plus(self.timeout_ns()));
        }
        due
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.timers.loss_due <= now {
            self.find_lost(now, self.next());
        }
        if self.timers.silent_due <= now {
            self.find_silent(now);
        }
        if self.slots.len() > self.acked.count {
            if self.timers.quiet_since.plus(self.timeout_ns()) <= now {
                self.timers.quiet_since = now;
                self.timers.timeouts += 1;
                self.probe_outstanding();
            }
        } else if let Some(since) = self.timers.starving_since
            && since.plus(self.timeout_ns()) <= now
        {
            self.timers.starving_since = Some(now);
            self.timers.timeouts += 1;
            if self.limit <= self.next() {
                self.timers.probe_wanted = true;
            } else if self.xoff_at.is_some() {
                // The XON may be lost: one new packet finds out.
                self.urgent.resends = self.urgent.resends.max(1);
            }
            // Or else credit has come meanwhile, and nothing bars what waits.
        }
    }

    /// Sends one outstanding packet again, whatever the congestion window says; its acknowledgement tells the rest.
    fn probe_outstanding(&mut self) {
        if self.timers.timeouts >= TIMEOUTS_SUSPICIOUS {
            self.paths.iter_mut().for_each(Path::collapse);
        }
        if self.repeat == Repeat::GoBackN {
            self.lose_all(Cause::TimedOut);
        } else if self.lost == 0 {
            // First the tail, which nothing later can prove lost; then the head, which holds up the rest.
            let mut open = (0..self.slots.len()).filter(|&index| self.slots[index].state == State::InFlight);
            let index = if self.timers.timeouts == 1 { open.next_back() } else { open.next() };
            if let Some(index) = index {
                self.mark_lost(index, Cause::TimedOut);
            }
        } else if self.timers.timeouts > 1
            && self.slots.front().is_some_and(|head| head.state == State::InFlight)
        {
            // Before the next of many that are lost already.
            self.mark_lost(0, Cause::TimedOut);
        }
        let lost = self.next_lost().map(|index| &self.slots[index]);
        let lost = lost.map(|slot| (slot.path, slot.order, slot.sent_at));
        for (path, order, sent_at) in lost.into_iter().chain(self.urgent.last) {
            self.paths[usize::from(path)].doubted.get_or_insert((order, sent_at));
        }
        self.urgent.resends = self.urgent.resends.max(1);
        (self.urgent.again, self.urgent.has_gone_again) = (false, false);
    }
}
