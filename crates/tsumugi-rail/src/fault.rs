//! A wrapper that lets chance loose on what any rail sends.

mod options;

pub use options::{FaultOptions, MalformedFaults};

use crate::dice::Dice;
use crate::{Deliver, Packet, Rail, RailError};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MICROSECOND_NS;

/// A packet that is held back lets so many others pass at most.
const OVERTAKEN_MAX: u64 = 8;
/// And goes after so long when nothing follows it.
const HELD_NS: u64 = 100 * MICROSECOND_NS;
/// Most packets held back at a time; beyond, packets are spared this fate.
const HELD_MAX: usize = 64;
/// Most packets that wait out their delay; beyond, the rail behaves as if its queue were full.
const DELAYED_MAX: usize = 64 * 1024;
/// Most packets of a delayed burst.
const BURST_MAX: usize = 64;

/// What a [`Faulty`] rail has done so far, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Taken from the sender.
    pub taken: u64,
    /// Thrown away.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Sent with a bit flipped.
    pub corrupted: u64,
}

/// A rail that mistreats what is sent through it. What it receives is left alone.
#[derive(Debug)]
pub struct Faulty<R> {
    inner: R,
    options: FaultOptions,
    dice: Dice,
    held: Vec<Held>,
    delayed: VecDeque<Delayed>,
    /// Packets passed so far, to count how many overtook a held one.
    passed: u64,
    spare: Vec<Vec<u8>>,
    counters: FaultCounters,
}

/// A packet that others overtake.
#[derive(Debug)]
struct Held {
    /// Goes when this many packets have passed, or …
    due: u64,
    /// … at this time.
    until: Instant,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A packet that waits out its delay.
#[derive(Debug)]
struct Delayed {
    until: Instant,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// What chance decided for a packet.
enum Fate {
    Passes,
    Lost,
    Doubled,
    Held,
    Damaged,
}

impl<R: Rail> Faulty<R> {
    /// Puts faults around `inner`.
    pub fn new(inner: R, options: FaultOptions) -> Faulty<R> {
        Faulty {
            inner,
            options,
            dice: Dice::new(options.seed),
            held: Vec::new(),
            delayed: VecDeque::new(),
            passed: 0,
            spare: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// What happened so far.
    pub const fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// The rail inside.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    fn fate(&mut self) -> Fate {
        let FaultOptions { loss, duplicate, reorder, corrupt, .. } = self.options;
        if self.dice.chance(loss) {
            Fate::Lost
        } else if self.dice.chance(corrupt) {
            Fate::Damaged
        } else if self.dice.chance(reorder) && self.held.len() < HELD_MAX {
            Fate::Held
        } else if self.dice.chance(duplicate) {
            Fate::Doubled
        } else {
            Fate::Passes
        }
    }

    /// Sends packets on, or lets them wait out the delay; returns how many were taken.
    fn pass(&mut self, now: Instant, to: SocketAddr, run: &[Packet<'_>]) -> Result<usize, RailError> {
        let taken = if run.is_empty() {
            0
        } else if self.options.delay_ns == 0 {
            self.inner.send(now, to, run)?
        } else {
            let room = DELAYED_MAX.saturating_sub(self.delayed.len()).min(run.len());
            for packet in &run[..room] {
                let bytes = self.copy(packet);
                self.delayed.push_back(Delayed { until: now.plus(self.options.delay_ns), to, bytes });
            }
            room
        };
        self.passed += taken as u64;
        Ok(taken)
    }

    fn copy(&mut self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet.head);
        bytes.extend_from_slice(packet.body);
        bytes
    }

    fn discard(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < BURST_MAX {
            self.spare.push(bytes);
        }
    }

    /// Does to `packet` what is not simply passing it on. False: the rail is full, try again later.
    fn mistreat(
        &mut self,
        now: Instant,
        to: SocketAddr,
        packet: &Packet<'_>,
        fate: &Fate,
    ) -> Result<bool, RailError> {
        match fate {
            Fate::Passes => return Ok(self.pass(now, to, &[*packet])? == 1),
            Fate::Lost => self.counters.lost += 1,
            Fate::Doubled => {
                if self.pass(now, to, &[*packet])? == 0 {
                    return Ok(false);
                }
                self.counters.duplicated += self.pass(now, to, &[*packet])? as u64;
            }
            Fate::Held => {
                let bytes = self.copy(packet);
                let due = self.passed + 1 + self.dice.below(OVERTAKEN_MAX);
                self.held.push(Held { due, until: now.plus(HELD_NS), to, bytes });
                self.counters.reordered += 1;
            }
            Fate::Damaged => {
                let mut bytes = self.copy(packet);
                self.dice.damage(&mut bytes);
                let taken = self.pass(now, to, &[Packet { head: &bytes, body: &[] }])?;
                self.discard(bytes);
                if taken == 0 {
                    return Ok(false);
                }
                self.counters.corrupted += 1;
            }
        }
        Ok(true)
    }

    /// Lets go of held packets that enough others have overtaken, or whose time is up.
    fn release_held(&mut self, now: Instant) -> Result<(), RailError> {
        while let Some(at) = self.held.iter().position(|held| held.due <= self.passed || held.until <= now) {
            let Held { to, bytes, due, until } = self.held.remove(at);
            if self.pass(now, to, &[Packet { head: &bytes, body: &[] }])? == 0 {
                self.held.insert(at, Held { due, until, to, bytes });
                break; // full: next time
            }
            self.discard(bytes);
        }
        Ok(())
    }

    /// Sends on what has waited long enough.
    fn release_delayed(&mut self, now: Instant) -> Result<(), RailError> {
        while let Some(to) = self.delayed.front().filter(|first| first.until <= now).map(|first| first.to) {
            let mut burst = [Packet { head: &[], body: &[] }; BURST_MAX];
            let due = self.delayed.iter().take_while(|next| next.until <= now && next.to == to);
            let mut count = 0;
            for (packet, next) in burst.iter_mut().zip(due) {
                packet.head = &next.bytes;
                count += 1;
            }
            let taken = self.inner.send(now, to, &burst[..count])?;
            for _ in 0..taken {
                if let Some(gone) = self.delayed.pop_front() {
                    self.discard(gone.bytes);
                }
            }
            if taken < count {
                break;
            }
        }
        Ok(())
    }

    /// Lets go of everything whose time has come.
    fn release(&mut self, now: Instant) -> Result<(), RailError> {
        if !self.held.is_empty() {
            self.release_held(now)?;
        }
        if !self.delayed.is_empty() {
            self.release_delayed(now)?;
        }
        Ok(())
    }
}

impl<R: Rail> Rail for Faulty<R> {
    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn datagram_bytes(&self) -> usize {
        self.inner.datagram_bytes()
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        self.release(now)?;
        // Packets from `start` on that chance spares, and that go on together, as one burst.
        let mut start = 0;
        let mut done = burst.len();
        for (at, packet) in burst.iter().enumerate() {
            let fate = self.fate();
            let passing = self.passed + (at - start) as u64;
            let overtaken = self.held.iter().any(|held| held.due <= passing);
            if matches!(fate, Fate::Passes) && !overtaken {
                continue;
            }
            start += self.pass(now, to, &burst[start..at])?;
            if start < at {
                done = start;
                break;
            }
            self.release_held(now)?;
            if !matches!(fate, Fate::Passes) {
                if !self.mistreat(now, to, packet, &fate)? {
                    done = at;
                    break;
                }
                start = at + 1;
            }
        }
        if done == burst.len() {
            done = start + self.pass(now, to, &burst[start..])?;
            self.release_held(now)?;
        }
        self.counters.taken += done as u64;
        Ok(done)
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        self.release(now)?;
        self.inner.receive(now, deliver)
    }

    fn wake_at(&self) -> Instant {
        let held = self.held.iter().map(|held| held.until).min().unwrap_or(Instant::NEVER);
        let delayed = self.delayed.front().map_or(Instant::NEVER, |first| first.until);
        self.inner.wake_at().min(held).min(delayed)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        self.inner.watch(on)
    }

    fn meet(&mut self, peer: SocketAddr) {
        self.inner.meet(peer);
    }

    fn part(&mut self, peer: SocketAddr) {
        self.inner.part(peer);
    }
}

#[cfg(test)]
mod tests;
