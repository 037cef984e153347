//! The sending half of a flow: what is outstanding, what is lost, what may be sent.
//!
//! The library asks, in this order, each time it may have something to send:
//! [`Sender::resend`] until it says `None`, then [`Sender::room`] and [`Sender::send`]. Whatever arrives goes
//! into [`Sender::on_answer`]; when [`Sender::timeout`] has passed, [`Sender::on_timeout`] is called.
//!
//! # Invariants
//!
//! 1. `slots` holds exactly the PSNs from `base` to `next`, in order; its first slot is not acknowledged.
//! 2. Every slot under way is counted in its path's `in_flight`, and no other is.
//! 3. At most [`REACH_PACKETS`] PSNs are outstanding: the receiver's bitmap always covers them.
//! 4. A packet's payload is given back exactly once: when it is acknowledged, or by [`Sender::abandon`].

mod answer;
mod barred;
mod cause;
mod loss;
mod path;
mod timer;

use crate::receive_bitmap::REACH_PACKETS;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
pub use answer::{Answer, ImpossibleAck};
pub use barred::Barred;
pub use cause::Cause;
pub use path::{Congestion, Path, RoundTrip};
use timer::Timers;
use tsumugi_wire::Psn;
use tsumugi_wire::ack::{WORD_PSNS, WORDS_MAX};
use tsumugi_wire::defect;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::time::Instant;

/// Words of 32 PSNs that cover a bitmap wherever it begins: a power of two.
const ACKED_WORDS: usize = 64;
const _: () = assert!(ACKED_WORDS > WORDS_MAX && ACKED_WORDS.is_power_of_two());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Acked,
    Lost,
}

#[derive(Clone, Debug)]
struct Slot<P> {
    packet: Option<P>,
    sent_at: Instant,
    /// Transmissions before this one, over all packets of the flow: orders what `sent_at` cannot.
    order: u64,
    path: u8,
    state: State,
    /// Why it was lost last.
    cause: Cause,
    resent: bool,
    /// Transmissions, as far as none of them is known to have arrived and been refused.
    sends: u8,
}

/// Slots that are `Acked`, and so lie beyond a hole.
#[derive(Clone, Debug)]
struct Acked {
    count: usize,
    /// A bit for each, by PSN, as a SACK's words lie.
    bits: [u32; ACKED_WORDS],
}

impl Default for Acked {
    fn default() -> Self {
        Self { count: 0, bits: [0; ACKED_WORDS] }
    }
}

/// What a time-out wants sent again.
#[derive(Clone, Debug, Default)]
struct Urgent {
    /// Resends that may exceed the congestion window.
    resends: u32,
    /// Path, number and time of the last such transmission, since when nothing was acknowledged.
    last: Option<(u8, u64, Instant)>,
    /// The one before it: a NIC may not take that transmission after all.
    before: Option<(u8, u64, Instant)>,
    /// The next goes over the same path as the last, and whether one has since the time-out.
    again: bool,
    has_gone_again: bool,
}

/// The sending half of a flow. `P` is the payload of a packet, whatever the library makes of it.
#[derive(Clone, Debug)]
pub struct Sender<P> {
    repeat: Repeat,
    base: Psn,
    slots: VecDeque<Slot<P>>,
    limit: Psn,
    paths: Vec<Path>,
    /// Transmissions so far.
    order: u64,
    acked: Acked,
    /// No slot before this PSN is `Lost`.
    first_lost: Psn,
    /// Slots that are `Lost`.
    lost: usize,
    /// Packets sent again, by cause.
    resent: [u64; Cause::ALL.len()],
    urgent: Urgent,
    timers: Timers,
    /// Since when the receiver takes nothing.
    xoff_at: Option<Instant>,
    /// Where a Go-back-N sender went back to last, when, and how often in a row.
    gone_back: (Psn, Instant, u32),
}

impl<P> Sender<P> {
    /// A flow over `paths` paths that may send `credit` packets at first.
    #[must_use]
    pub fn new(repeat: Repeat, paths: usize, credit: u16) -> Sender<P> {
        Sender {
            repeat,
            base: Psn(0),
            slots: VecDeque::new(),
            limit: Psn(u64::from(credit)),
            paths: vec![Path::default(); paths.max(1)],
            order: 1,
            acked: Acked::default(),
            first_lost: Psn(0),
            lost: 0,
            resent: [0; Cause::ALL.len()],
            urgent: Urgent::default(),
            timers: Timers::default(),
            xoff_at: None,
            gone_back: (Psn(u64::MAX), Instant(0), 0),
        }
    }

    /// The next PSN to be sent.
    #[must_use]
    pub fn next(&self) -> Psn {
        self.base.plus(self.slots.len() as u64)
    }

    /// Every PSN before this one is acknowledged.
    #[must_use]
    pub const fn base(&self) -> Psn {
        self.base
    }

    /// Packets sent and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.acked.count
    }

    /// Statistics of the paths.
    #[must_use]
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Packets sent again so far, by [`Cause`].
    #[must_use]
    pub const fn resent(&self) -> [u64; Cause::ALL.len()] {
        self.resent
    }

    /// Takes a round trip that somebody else measured (the handshake) into account, ns.
    pub fn sample(&mut self, path: u8, rtt_ns: u64) {
        self.paths[usize::from(path)].sample(rtt_ns);
    }

    /// Whether something counts as lost and waits to be sent again.
    #[must_use]
    pub const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// The first packet that is not acknowledged, if it is lost: how often it was sent, when last, and over which path.
    /// Others may be lost for its sake.
    #[must_use]
    pub fn lost_head(&self) -> Option<(u8, Instant, u8)> {
        let head = self.slots.front().filter(|slot| slot.state == State::Lost)?;
        Some((head.sends, head.sent_at, head.path))
    }

    /// The payload of the first packet that is not acknowledged.
    #[must_use]
    pub fn head(&self) -> Option<&P> {
        self.slots.front()?.packet.as_ref()
    }

    /// The payload of a packet that is not acknowledged.
    #[must_use]
    pub fn packet(&self, psn: Psn) -> Option<&P> {
        self.slots.get(psn.since(self.base)? as usize)?.packet.as_ref()
    }

    /// What has been lost so far was lost for a reason that is mended: count its transmissions anew.
    pub fn forget_losses(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.sends = 0);
    }

    /// Whether something before an acknowledged packet is not acknowledged.
    #[must_use]
    pub const fn has_holes(&self) -> bool {
        self.acked.count > 0
    }

    /// How many new packets may be sent over `path` now.
    #[must_use]
    pub fn room(&self, path: u8) -> u64 {
        let path = &self.paths[usize::from(path)];
        if self.lost > 0 || !path.is_usable() {
            return 0;
        }
        let forced = if self.xoff_at.is_some() { u64::from(self.urgent.resends) } else { u64::MAX };
        let limit = if defect!(CreditIgnored) { u64::MAX } else { self.limit.0 };
        let credit = limit.saturating_sub(self.next().0);
        let reach = if defect!(BitmapNotLimited) { 4 * REACH_PACKETS } else { REACH_PACKETS };
        let free = reach - (self.slots.len() as u64).min(reach);
        credit.min(free).min(forced).min(u64::from(path.room()))
    }

    /// Whether a time-out wants something sent whatever the congestion window says.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        self.urgent.resends > 0
    }

    /// The path that failed last: what the last of several time-outs sent again got lost on it, or else the next packet to
    /// be sent again.
    #[must_use]
    pub fn lost_on(&self) -> Option<u8> {
        let lost = &self.slots[self.next_lost()?];
        Some(self.urgent.last.map_or(lost.path, |(path, ..)| path))
    }

    /// Whether what a time-out sends again goes once more [where it was lost](Sender::lost_on): that path has answered.
    #[must_use]
    pub const fn tries_again(&self) -> bool {
        self.urgent.again
    }

    /// Adds a path over which nothing is sent until it has been [revived](Sender::revive), and returns its number.
    pub fn add_path(&mut self, speed_bits: u64) -> u8 {
        self.paths.push(Path::untried(speed_bits));
        (self.paths.len() - 1) as u8
    }

    /// Another path takes the place and the number of one that is [suspended](Sender::suspend).
    pub fn replace_path(&mut self, path: u8, speed_bits: u64) {
        debug_assert!(!self.paths[usize::from(path)].is_usable());
        self.paths[usize::from(path)] = Path::untried(speed_bits);
    }

    /// The NICs of a path say what speed they have, bits a second; 0: they do not.
    pub fn set_speed(&mut self, path: u8, speed_bits: u64) {
        self.paths[usize::from(path)].speed_bits = speed_bits;
    }

    /// The path is gone: what is under way there counts as lost, and goes over others.
    pub fn suspend(&mut self, now: Instant, path: u8) {
        if !defect!(SilentPathNotLeft) {
            self.paths[usize::from(path)].suspend(now);
        }
        for index in 0..self.slots.len() {
            let is_there = self.slots[index].path == path && !defect!(SilentPathKeepsPackets);
            if self.slots[index].state == State::InFlight && is_there {
                self.mark_lost(index, Cause::PathSilent);
            }
        }
    }

    /// The path has given a sign of life.
    pub fn revive(&mut self, now: Instant, path: u8) {
        self.paths[usize::from(path)].revive(now);
    }

    /// A new packet goes out over `path`. The caller has asked for [`Sender::room`].
    pub fn send(&mut self, now: Instant, path: u8, packet: P) -> Psn {
        let psn = self.next();
        if self.slots.len() == self.acked.count {
            self.timers.quiet_since = now;
            if self.xoff_at.is_none() {
                self.timers.timeouts = 0; // those were for want of credit, which has come
            }
        }
        self.timers.starving_since = None;
        if self.xoff_at.is_some() {
            self.urgent.resends = self.urgent.resends.saturating_sub(1);
        }
        self.slots.push_back(Slot {
            packet: Some(packet),
            sent_at: now,
            order: self.order,
            path,
            state: State::InFlight,
            cause: Cause::NotTaken,
            resent: false,
            sends: 1,
        });
        self.order += 1;
        self.paths[usize::from(path)].sent(now);
        psn
    }

    /// The next packet to be sent again over `path`, if one is lost and may go now.
    pub fn resend(&mut self, now: Instant, path: u8) -> Option<(Psn, &P)> {
        if self.lost == 0 || (self.xoff_at.is_some() && self.urgent.resends == 0) {
            return None;
        }
        if self.urgent.resends == 0 && self.paths[usize::from(path)].room() == 0 {
            return None;
        }
        let index = self.next_lost()?;
        self.first_lost = self.base.plus(index as u64 + 1);
        let order = self.order;
        if self.urgent.resends > 0 {
            self.urgent.resends -= 1;
            self.urgent.before = self.urgent.last.replace((path, order, now));
            self.urgent.again = false;
        }
        self.lost -= 1;
        self.order += 1;
        self.paths[usize::from(path)].sent(now);
        let slot = &mut self.slots[index];
        self.resent[slot.cause as usize] += 1;
        slot.state = State::InFlight;
        slot.sent_at = now;
        slot.order = order;
        slot.path = path;
        slot.resent = true;
        slot.sends = slot.sends.saturating_add(1);
        let packet = slot.packet.as_ref().expect("a slot that is not acknowledged has its packet");
        Some((self.base.plus(index as u64), packet))
    }

    /// Index of the first slot that is `Lost`.
    fn next_lost(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let from = self.first_lost.since(self.base).unwrap_or(0) as usize;
        let ahead = self.slots.iter().skip(from).position(|slot| slot.state == State::Lost)?;
        Some(from + ahead)
    }

    /// The NIC did not take `psn` after all: it waits to be sent again.
    pub fn not_taken(&mut self, psn: Psn) {
        let Some(index) = psn.since(self.base).map(|index| index as usize) else { return };
        if let Some(slot) = self.slots.get_mut(index)
            && slot.state == State::InFlight
        {
            (slot.state, slot.cause) = (State::Lost, Cause::NotTaken);
            self.lost += 1;
            self.first_lost = self.first_lost.min(psn);
            if self.urgent.last.is_some_and(|(_, order, _)| order == slot.order) {
                // Nothing was tried over that path: it still has its turn.
                self.urgent.last = self.urgent.before;
                self.urgent.resends += 1;
            }
            let path = &mut self.paths[usize::from(slot.path)];
            path.in_flight = path.in_flight.saturating_sub(1);
        }
    }

    /// Credit for the first packets of the flow, unless it has come already.
    pub fn grant(&mut self, credit: u16) {
        self.limit = self.limit.max(Psn(u64::from(credit)));
    }

    /// Something waits to be sent. If nothing under way will bring credit or XON, ask for it from time to time; at once, where
    /// there never was any.
    pub fn starve(&mut self, now: Instant) {
        let is_xoff = self.xoff_at.is_some() && !defect!(LostXonForgotten);
        let barred = self.limit <= self.next() || is_xoff;
        if self.slots.len() == self.acked.count && barred && self.timers.starving_since.is_none() {
            self.timers.starving_since = Some(now);
            self.timers.probe_wanted |= self.limit == Psn(0);
        }
    }

    /// Somebody waits for what has been sent to be acknowledged.
    pub fn want_probe(&mut self) {
        self.timers.probe_wanted = true;
    }

    /// Whether so much is under way over `path` that the receiver must not wait long before it acknowledges it: half of what may
    /// be.
    #[must_use]
    pub fn needs_ack(&self, path: u8) -> bool {
        u64::from(self.in_flight(path)) >= self.room(path)
    }

    /// Packets that are under way over `path`.
    #[must_use]
    pub fn in_flight(&self, path: u8) -> u32 {
        self.paths[usize::from(path)].in_flight
    }

    /// Whether a PROBE should be sent now; asking answers for it.
    pub fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.timers.probe_wanted)
    }

    /// Gives back the payloads of everything outstanding, in order; the flow is over.
    pub fn abandon(&mut self) -> impl Iterator<Item = P> + '_ {
        self.acked.count = 0;
        self.acked.bits = [0; ACKED_WORDS];
        self.lost = 0;
        self.timers.starving_since = None;
        self.timers.loss_due = Instant::NEVER;
        self.slots.drain(..).filter_map(|slot| slot.packet)
    }

    /// Everything outstanding in PSN order; `None` stands for a packet that is acknowledged already.
    pub fn outstanding_packets(&self) -> impl Iterator<Item = Option<&P>> {
        self.slots.iter().map(|slot| slot.packet.as_ref())
    }

    /// PSNs from here on are beyond the credit granted.
    #[must_use]
    pub const fn limit(&self) -> Psn {
        self.limit
    }

    /// Continues a flow that was suspended with `packets` outstanding from `base` on (`None`: acknowledged
    /// beyond a hole). All of them count as lost and are sent again.
    #[must_use]
    pub fn resume(repeat: Repeat, paths: usize, base: Psn, limit: Psn, packets: Vec<Option<P>>) -> Sender<P> {
        let mut sender = Sender::new(repeat, paths, 0);
        sender.base = base;
        let now = Instant(0);
        for packet in packets {
            let state = if packet.is_some() { State::Lost } else { State::Acked };
            let psn = sender.next().0;
            if state == State::Acked {
                sender.acked.count += 1;
                sender.acked.bits[word_of(psn)] |= 1 << (psn % WORD_PSNS);
            }
            sender.lost += usize::from(state == State::Lost);
            sender.slots.push_back(Slot {
                packet,
                sent_at: now,
                order: 0,
                path: 0,
                state,
                cause: Cause::Suspended,
                resent: true,
                sends: 1,
            });
        }
        sender.limit = limit;
        sender
    }
}

/// Index of the word of [`Sender::acked_bits`] for a PSN.
const fn word_of(psn: u64) -> usize {
    (psn / WORD_PSNS) as usize % ACKED_WORDS
}

#[cfg(test)]
mod tests;
