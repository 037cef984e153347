//! What an answer does: what it acknowledges, the round trips that it tells, and whether the receiver takes packets.

use super::{Cause, Sender, Slot, State, word_of};
use crate::receive_bitmap::REACH_PACKETS;
use tsumugi_wire::Psn;
use tsumugi_wire::ack::{Sack, WORD_PSNS, WORDS_MAX};
use tsumugi_wire::defect;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::time::Instant;

/// Which answer carried an acknowledgement, beside the acknowledgement itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It rode on a DATA packet.
    Piggyback,
    /// ACK.
    Ack,
    /// NAK: go back.
    Nak,
    /// XOFF: the queue is full.
    Xoff,
    /// XON: there is room again.
    Xon,
}

/// An acknowledgement of what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PSN {ack} acknowledged, but {next} has not been sent")]
pub struct ImpossibleAck {
    /// What was acknowledged.
    pub ack: Psn,
    /// The next PSN to be sent.
    pub next: Psn,
}

impl<P> Sender<P> {
    /// An answer arrived. Numbers and payloads of acknowledged packets go to `release`.
    ///
    /// Returns how many packets it acknowledged.
    ///
    /// # Errors
    /// It acknowledges what was never sent: the peer is broken. Nothing is changed.
    pub fn on_answer(
        &mut self,
        now: Instant,
        answer: Answer,
        ack: Psn,
        credit: u16,
        sack: Option<&Sack>,
        mut release: impl FnMut((Psn, P)),
    ) -> Result<usize, ImpossibleAck> {
        if ack > self.next() {
            return Err(ImpossibleAck { ack, next: self.next() });
        }
        self.limit = self.limit.max(ack.plus(u64::from(credit)));
        let echoed = self.sample_echo(now, ack, sack);
        let mut newly = 0;
        let mut resent = false;
        let mut after_xoff = false;
        while self.base < ack {
            let slot = self.slots.pop_front().expect("ack is not beyond next");
            if slot.state == State::Acked {
                self.acked.count -= 1;
            } else {
                newly += 1;
                resent |= slot.resent;
                after_xoff |= self.xoff_at.is_some_and(|xoff_at| slot.sent_at > xoff_at);
                self.on_acked(now, self.base, slot, &mut release);
            }
            self.base = self.base.next();
            if self.base.0.is_multiple_of(WORD_PSNS) {
                self.acked.bits[word_of(self.base.0 - 1)] = 0;
            }
        }
        if let Some(sack) = sack {
            for (at, bits) in sack.bitmap[..sack.words.min(WORDS_MAX)].iter().enumerate() {
                let first = ack.0 - ack.0 % WORD_PSNS + at as u64 * WORD_PSNS;
                let mut news = bits & !self.acked.bits[word_of(first)];
                while news != 0 {
                    let psn =
                        Psn(first + u64::from(news.trailing_zeros()) + u64::from(defect!(SackOffByOne)));
                    news &= news - 1;
                    let Some(index) = psn.since(self.base) else { continue };
                    let Some(slot) = self.slots.get_mut(index as usize) else { break };
                    let acked = Slot { packet: slot.packet.take(), ..*slot };
                    slot.state = State::Acked;
                    self.acked.count += 1;
                    self.acked.bits[word_of(psn.0)] |= 1 << (psn.0 % WORD_PSNS);
                    newly += 1;
                    resent |= acked.resent;
                    after_xoff |= self.xoff_at.is_some_and(|xoff_at| acked.sent_at > xoff_at);
                    self.on_acked(now, psn, acked, &mut release);
                }
            }
        }
        if newly > 0 {
            self.timers.quiet_since = now;
            self.timers.timeouts = 0;
            (self.urgent.last, self.urgent.again) = (None, false);
            // What a time-out asked for is answered. Left behind, it would have everything sent past cwnd and policy.
            self.urgent.resends = 0;
            self.sample_others(now, echoed);
            self.find_silent(now);
        }
        if after_xoff {
            self.on_xon();
        }
        match answer {
            Answer::Xoff if defect!(XoffIgnored) => {}
            Answer::Xoff => self.on_xoff(now),
            Answer::Xon => self.on_xon(),
            Answer::Nak if self.repeat == Repeat::GoBackN => self.go_back(now, ack),
            Answer::Nak | Answer::Ack | Answer::Piggyback => {}
        }
        if self.repeat == Repeat::Selective && resent {
            // Something sent again arrived: whatever was sent before it, anywhere in the flow, is suspect.
            self.find_lost(now, self.next());
        } else if self.repeat == Repeat::Selective && self.acked.count > 0 {
            let reported = sack.map_or(self.base, |sack| sack.end(ack));
            self.find_lost(now, reported.min(self.next()));
        } else if self.slots.is_empty() {
            self.timers.loss_due = Instant::NEVER;
        }
        Ok(newly)
    }

    /// Takes the round trip of the packet that arrived last before the answer into account. Returns its path.
    fn sample_echo(&mut self, now: Instant, ack: Psn, sack: Option<&Sack>) -> Option<u8> {
        let sack = sack?;
        // Before anything has arrived the echo is 0 all the same, in the answer to a PROBE for one.
        if sack.echo >= ack && !sack.has(ack, sack.echo) {
            return None;
        }
        let index = sack.echo.since(self.base)?;
        let slot = self.slots.get(index as usize)?;
        // Karn: of a packet that was sent twice nobody knows which one arrived.
        if slot.state != State::InFlight || slot.resent {
            return None;
        }
        let rtt_ns = now.since(slot.sent_at).saturating_sub(u64::from(sack.delay_ns));
        self.paths[usize::from(slot.path)].sample(rtt_ns.max(1));
        Some(slot.path)
    }

    /// Packets of a slow path are seldom the last to arrive. What an answer acknowledges of it took no longer than that.
    fn sample_others(&mut self, now: Instant, echoed: Option<u8>) {
        if self.paths.len() == 1 {
            return;
        }
        for (number, path) in (0..).zip(&mut self.paths) {
            if let Some(sent_at) = path.heard_of.take()
                && Some(number) != echoed
            {
                path.sample(now.since(sent_at).max(1));
            }
        }
    }

    /// Accounts for a slot that has just been acknowledged, and gives its payload back.
    fn on_acked(&mut self, now: Instant, psn: Psn, slot: Slot<P>, release: &mut impl FnMut((Psn, P))) {
        let path = &mut self.paths[usize::from(slot.path)];
        if slot.state == State::Lost {
            // It had only been late, and is not under way.
            self.lost -= 1;
            path.in_flight += 1;
        }
        if slot.state == State::InFlight && !slot.resent {
            path.heard_of = path.heard_of.max(Some(slot.sent_at));
        }
        path.acked(now, slot.order, slot.sent_at, self.order, REACH_PACKETS as u32);
        release((psn, slot.packet.expect("a slot that is not acknowledged has its packet")));
    }

    /// The answer that packet `psn` was refused came over `path`: the path has carried it.
    pub fn on_refused(&mut self, now: Instant, psn: Psn, path: u8) {
        let index = psn.since(self.base).map(|index| index as usize);
        let Some(slot) = index.and_then(|index| self.slots.get(index)) else { return };
        if slot.path == path {
            let refused = &mut self.paths[usize::from(path)].refused;
            *refused = (*refused).max(slot.order);
            self.find_silent(now);
        }
    }

    fn on_xoff(&mut self, now: Instant) {
        self.xoff_at = Some(now);
        self.urgent.resends = 0;
        if let Some(head) = self.slots.front_mut() {
            head.sends = 0; // what was refused has arrived
        }
    }

    /// The receiver takes packets again: what it has not acknowledged, it refused.
    fn on_xon(&mut self) {
        if self.xoff_at.take().is_some() {
            self.urgent.resends = 0;
            self.lose_all(Cause::Refused);
        }
    }
}
