//! What is lost: overtaken and late, on a path that is silent, or refused.

use super::timer::RTO_NS_MAX;
use super::{Cause, Path, Sender, State, word_of};
use core::ops::RangeInclusive;
use tsumugi_wire::Psn;
use tsumugi_wire::ack::WORD_PSNS;
use tsumugi_wire::defect;
use tsumugi_wire::time::Instant;

impl<P> Sender<P> {
    pub(super) fn mark_lost(&mut self, index: usize, cause: Cause) {
        if defect!(NothingSentAgain) {
            return;
        }
        let slot = &mut self.slots[index];
        debug_assert_eq!(slot.state, State::InFlight);
        (slot.state, slot.cause) = (State::Lost, cause);
        self.lost += 1;
        self.first_lost = self.first_lost.min(self.base.plus(index as u64));
        self.paths[usize::from(slot.path)].lost();
    }

    /// Something has arrived that was sent over `path` behind the first packet outstanding. If that packet is in flight
    /// on the same path and has been sent as often as `sends` says, it counts as lost, and is sent again whatever the
    /// congestion window says: `true`. `sends` has an end, because each repetition may be overtaken again, at the pace
    /// of round trips.
    pub fn lose_overtaken_head(&mut self, path: u8, sends: RangeInclusive<u8>) -> bool {
        // If the receiver has refused it, `on_xoff` has counted anew.
        let overtaken = self.slots.front().is_some_and(|head| {
            head.state == State::InFlight && head.path == path && sends.contains(&head.sends)
        });
        if overtaken {
            self.mark_lost(0, Cause::Overtaken);
            self.urgent.resends = self.urgent.resends.max(1);
        }
        overtaken
    }

    /// An answer has come over `path` and did not acknowledge what a time-out has sent there last, though it may well answer the
    /// PROBE behind that. Then that was lost by chance, and goes over the same path again at once: `true`. Others have had their turn
    /// in vain, and would have the next before it. Once after each time-out: the path may carry short packets and lose long ones.
    pub fn lose_tried(&mut self, now: Instant, path: u8) -> bool {
        let Some((_, order, sent_at)) = self.urgent.last.filter(|(tried, ..)| *tried == path) else {
            return false;
        };
        let early = now < sent_at.plus(self.paths[usize::from(path)].rtt.empty_ns());
        if early || self.urgent.has_gone_again || self.xoff_at.is_some() {
            return false;
        }
        let tried = self.slots.iter().position(|slot| slot.order == order && slot.state == State::InFlight);
        if let Some(index) = tried {
            self.mark_lost(index, Cause::TimedOut);
            self.urgent.resends = self.urgent.resends.max(1);
            (self.urgent.again, self.urgent.has_gone_again) = (true, true);
        }
        tried.is_some()
    }

    /// RACK (RFC 8985), per path: lost is what was overtaken by something sent later on the same path,
    /// and has had time to arrive late; or, after a longer time, by something on another path. Looks at what lies
    /// before `end`.
    pub(super) fn find_lost(&mut self, now: Instant, end: Psn) {
        self.timers.loss_due = Instant::NEVER;
        let newest = self.paths.iter().map(|path| path.newest.0).max().unwrap_or(0);
        let mut silent = None;
        let mut psn = self.base;
        while psn < end {
            // Word by word: almost everything beyond a hole is acknowledged.
            let acked = if defect!(LossMarksAcked) { 0 } else { self.acked.bits[word_of(psn.0)] };
            let missing = !acked & (u32::MAX << (psn.0 % WORD_PSNS));
            let first = psn.0 - psn.0 % WORD_PSNS;
            psn = Psn(first + WORD_PSNS);
            let mut left = missing;
            while left != 0 {
                let suspect = Psn(first + u64::from(left.trailing_zeros()));
                left &= left - 1;
                if suspect < end {
                    silent = self.suspect(now, (suspect.0 - self.base.0) as usize, newest).or(silent);
                }
            }
        }
        if let Some(path) = silent {
            self.suspend(now, path);
        }
    }

    /// Looks whether a packet is lost, when packet number `newest` has arrived. The path, if it has delivered nothing
    /// since the packet was sent, while another has.
    fn suspect(&mut self, now: Instant, index: usize, newest: u64) -> Option<u8> {
        let slot = &self.slots[index];
        let (number, path) = (slot.path, &self.paths[usize::from(slot.path)]);
        let is_open =
            slot.state == State::InFlight || (slot.state == State::Acked && defect!(LossMarksAcked));
        if !is_open || slot.order >= newest {
            return None;
        }
        let overtaken = slot.order < path.newest.0;
        let patience_ns =
            if overtaken { path.rtt.srtt_ns + path.rtt.reorder_ns() } else { path.rtt.overtaken_ns() };
        let due = slot.sent_at.plus(patience_ns);
        if due > now {
            self.timers.loss_due = self.timers.loss_due.min(due);
            return None;
        }
        self.mark_lost(index, if overtaken { Cause::Overtaken } else { Cause::PathSilent });
        (!overtaken).then_some(number)
    }

    /// Suspends paths on which a packet timed out, and from which nothing has been heard since while another path has
    /// delivered, for as long as a packet may be overtaken.
    pub(super) fn find_silent(&mut self, now: Instant) {
        let newest = self.paths.iter().map(Path::arrived).max().unwrap_or(0);
        self.timers.silent_due = Instant::NEVER;
        for number in 0..self.paths.len() {
            let path = &mut self.paths[number];
            let Some((doubted, sent_at)) = path.doubted else { continue };
            let due = sent_at.plus(path.rtt.overtaken_ns());
            if path.arrived() >= doubted {
                path.doubted = None;
            } else if newest > doubted && due <= now {
                path.doubted = None;
                self.suspend(now, number as u8);
            } else if newest > doubted {
                self.timers.silent_due = self.timers.silent_due.min(due);
            }
        }
    }

    pub(super) fn go_back(&mut self, now: Instant, ack: Psn) {
        let Some(head) = self.slots.front() else { return };
        let (last, at, times) = self.gone_back;
        let times = if last == ack { times } else { 0 };
        // Each packet of the run before that still arrives is answered by a NAK, so one round trip has to pass. If the
        // packet is missing after that, too, something holds it up, and every further run waits twice as long, as a
        // time-out does.
        let path = &self.paths[usize::from(head.path)];
        let round_ns = path.rtt.srtt_ns + path.rtt.reorder_ns();
        let patience_ns = round_ns.saturating_mul(1 << times.min(20) >> 1).min(RTO_NS_MAX.max(round_ns));
        if last == ack && now.since(at) < patience_ns {
            return;
        }
        self.gone_back = (ack, now, times + 1);
        self.lose_all(Cause::WentBack);
    }

    pub(super) fn lose_all(&mut self, cause: Cause) {
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::InFlight {
                self.mark_lost(index, cause);
            }
        }
        self.timers.loss_due = Instant::NEVER;
    }
}
