//! A wrapper that injects random faults into what any rail sends.

mod options;

pub use options::{FaultOptions, MalformedFaults};

use crate::random::Random;
use crate::{Deliver, Packet, Rail, RailError};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MICROSECOND_NS;

/// A packet that is held back lets so many others pass at most.
const OVERTAKEN_MAX: u64 = 8;
/// And is sent after so long when nothing follows it.
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
    random: Random,
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
    /// Sent when this many packets have passed, or …
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

/// A packet that goes out.
enum Item {
    /// One of the burst, by its place.
    Offered(usize),
    /// A packet of an earlier burst, or a damaged copy.
    Copy(Vec<u8>),
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
            random: Random::new(options.seed),
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
        if self.random.chance(loss) {
            Fate::Lost
        } else if self.random.chance(corrupt) {
            Fate::Damaged
        } else if self.random.chance(reorder) && self.held.len() < HELD_MAX {
            Fate::Held
        } else if self.random.chance(duplicate) {
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

    /// Decides what becomes of a burst: what goes out, in which order. The rest is lost or held.
    fn arrange(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Vec<Item> {
        let mut items = Vec::with_capacity(burst.len() + self.held.len());
        for (at, packet) in burst.iter().enumerate() {
            match self.fate() {
                Fate::Passes => items.push(Item::Offered(at)),
                Fate::Lost => self.counters.lost += 1,
                Fate::Doubled => {
                    items.extend([Item::Offered(at), Item::Offered(at)]);
                    self.counters.duplicated += 1;
                }
                Fate::Held => {
                    let bytes = self.copy(packet);
                    let due = self.passed + items.len() as u64 + 1 + self.random.below(OVERTAKEN_MAX);
                    self.held.push(Held { due, until: now.plus(HELD_NS), to, bytes });
                    self.counters.reordered += 1;
                }
                Fate::Damaged => {
                    let mut bytes = self.copy(packet);
                    self.random.damage(&mut bytes);
                    items.push(Item::Copy(bytes));
                    self.counters.corrupted += 1;
                }
            }
            // Whoever has been overtaken by enough others goes next.
            let passed = self.passed + items.len() as u64;
            while let Some(at) = self.held.iter().position(|held| held.due <= passed && held.to == to) {
                items.push(Item::Copy(self.held.remove(at).bytes));
            }
        }
        items
    }

    /// Releases held packets that enough others have overtaken, or whose time is up.
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

    /// Releases everything whose time has come.
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
        if self.held.len() > HELD_MAX {
            return Ok(0); // the inner rail is full
        }
        // Everything goes out as one burst, in whatever order chance has put it, so that faults cost the
        // protocol what they cost on a wire and not system calls.
        let items = self.arrange(now, to, burst);
        let packets: Vec<Packet<'_>> = items
            .iter()
            .map(|item| match item {
                Item::Offered(at) => burst[*at],
                Item::Copy(bytes) => Packet { head: bytes, body: &[] },
            })
            .collect();
        let taken = self.pass(now, to, &packets)?;
        for packet in &packets[taken..] {
            // Offered and decided upon: kept until the inner rail has room.
            let bytes = self.copy(packet);
            self.held.push(Held { due: 0, until: now, to, bytes });
        }
        drop(packets);
        for item in items {
            if let Item::Copy(bytes) = item {
                self.discard(bytes);
            }
        }
        self.counters.taken += burst.len() as u64;
        Ok(burst.len())
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

    fn connect(&mut self, peer: SocketAddr) {
        self.inner.connect(peer);
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        self.inner.disconnect(peer);
    }

    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        self.inner.busy_poll(on)
    }

    fn send_path(&self) -> &'static str {
        self.inner.send_path()
    }

    fn uses_xdp(&self) -> bool {
        self.inner.uses_xdp()
    }

    fn report(&self) -> crate::RailReport {
        self.inner.report()
    }

    fn nics(&mut self, now: Instant) -> Option<Vec<crate::NicAddress>> {
        self.inner.nics(now)
    }

    fn listens(&self) -> bool {
        self.inner.listens()
    }

    fn inquire(
        &mut self,
        now: Instant,
        since: Instant,
        peer: SocketAddr,
        question: crate::Question,
    ) -> crate::Evidence {
        match self.options.firewall {
            true => crate::Evidence::None,
            false => self.inner.inquire(now, since, peer, question),
        }
    }

    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<crate::NicName> {
        self.inner.link_down(now, peer)
    }

    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        self.inner.path_bytes(peer)
    }

    fn too_long(&mut self) -> Option<SocketAddr> {
        self.inner.too_long()
    }

    fn quiesce(&mut self) {
        self.inner.quiesce();
    }
}

#[cfg(test)]
mod tests;
