//! A receive half as plain as can be: sets of PSNs and a list of records.

use super::{GEOMETRY, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tsumugi_wire::ack::{Sack, WORD_PSNS};
use tsumugi_wire::atomic::{AtomicU64, Ordering};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::limits::BITMAP_PACKETS;
use tsumugi_wire::memory::{Control, Counter, Flow, Record};
use tsumugi_wire::{Flags, Header, Psn};

/// Receive memory as [`Model::check`] looks at it.
pub(crate) trait View {
    /// The control page.
    fn control(&self) -> &Control;
    /// An entry of the flow table.
    fn flow(&self, index: u32) -> &Flow;
    /// A word of the ring, at a position since the beginning.
    fn word(&self, position: u64) -> &AtomicU64;
    /// Bytes of the ring, contiguous into the pad.
    fn bytes(&self, position: u64, bytes: usize) -> Vec<u8>;
}

/// An open flow.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) token: u64,
    pub(crate) epoch: u32,
    pub(crate) repeat: Repeat,
    pub(crate) limit: u64,
    /// Every PSN before is deposited.
    pub(crate) base: u64,
    /// What is deposited beyond.
    pub(crate) beyond: BTreeSet<u64>,
    pub(crate) echo: u64,
    pub(crate) xoff: bool,
}

impl Open {
    /// The PSN after the highest that is deposited.
    pub(crate) fn newest(&self) -> u64 {
        self.beyond.last().map_or(self.base, |last| last + 1)
    }

    /// The base, and what an answer says of what lies beyond it.
    pub(crate) fn snapshot(&self) -> (Psn, Sack) {
        let first = self.base - self.base % WORD_PSNS;
        let mut sack = Sack { echo: Psn(self.echo), ..Sack::EMPTY };
        for psn in first..self.newest() {
            if psn < self.base || self.beyond.contains(&psn) {
                sack.bitmap[((psn - first) / WORD_PSNS) as usize] |= 1 << ((psn - first) % WORD_PSNS);
            }
        }
        if let Some(last) = self.beyond.last() {
            sack.words = ((last - first) / WORD_PSNS) as usize + 1;
        }
        (Psn(self.base), sack)
    }
}

/// What must come of a sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    flows: BTreeMap<u32, Open>,
    /// Published and not released, with their bodies.
    records: VecDeque<(u64, Record, Vec<u8>)>,
    head: u64,
    tail: u64,
    xoff: bool,
    counters: [u64; Counter::ALL.len()],
}

impl Model {
    /// The flow of an entry, if it is open.
    pub(crate) fn flow(&self, index: u32) -> Option<&Open> {
        self.flows.get(&index)
    }

    /// Bytes of ring that can be claimed.
    pub(crate) fn free_bytes(&self) -> u64 {
        GEOMETRY.ring_bytes - (self.head - self.tail)
    }

    /// Where the ring must be released up to by [`Step::Release`].
    pub(crate) fn release_to(&self, records: usize) -> u64 {
        self.records.get(records).map_or(self.head, |(position, ..)| *position)
    }

    /// Takes a step; for a packet, says what it must be counted as. A PROBE of an open flow is not counted.
    pub(crate) fn apply(&mut self, step: &Step) -> Option<Counter> {
        match *step {
            Step::Open { flow, token, epoch, repeat, limit } => {
                let (base, beyond) = (0, BTreeSet::new());
                let open = Open { token, epoch, repeat, limit, base, beyond, echo: 0, xoff: false };
                self.flows.insert(flow, open);
            }
            Step::Close { flow } => drop(self.flows.remove(&flow)),
            Step::Credit { flow, limit } => {
                self.flows.get_mut(&flow).expect("credit is granted to open flows").limit = limit;
            }
            Step::Release { records } => {
                self.tail = self.release_to(records);
                self.records.drain(..records.min(self.records.len()));
            }
            Step::Data { ref header, ref body, checked } => {
                let counter = self.data(header, body, checked);
                self.counters[counter as usize] += 1;
                return Some(counter);
            }
            Step::Probe { ref header } => {
                let counter = self.find(header).err()?;
                self.counters[counter as usize] += 1;
                return Some(counter);
            }
        }
        None
    }

    /// The flow that a packet belongs to, or what the packet is counted as.
    fn find(&mut self, header: &Header) -> Result<&mut Open, Counter> {
        let flow = self.flows.get_mut(&header.flow).ok_or(Counter::UnknownFlow)?;
        if flow.token != header.token {
            return Err(Counter::WrongToken);
        }
        if flow.epoch != header.epoch {
            return Err(Counter::WrongEpoch);
        }
        Ok(flow)
    }

    fn data(&mut self, header: &Header, body: &[u8], checked: bool) -> Counter {
        let free_bytes = self.free_bytes();
        let flow = match self.find(header) {
            Ok(flow) => flow,
            Err(counter) => return counter,
        };
        let psn = header.psn.0;
        if psn < flow.base || flow.beyond.contains(&psn) {
            return Counter::Duplicate;
        }
        let bitmap_end = flow.base - flow.base % WORD_PSNS + BITMAP_PACKETS;
        if psn >= bitmap_end.min(flow.limit) {
            return Counter::BeyondBitmap;
        }
        if flow.repeat == Repeat::GoBackN && psn != flow.base {
            return Counter::OutOfOrder;
        }
        let span = (40 + body.len() as u64).div_ceil(64) * 64;
        if span > free_bytes {
            flow.xoff = true;
            self.xoff = true;
            return Counter::QueueFull;
        }
        flow.echo = psn;
        flow.beyond.insert(psn);
        while flow.beyond.remove(&flow.base) {
            flow.base += 1;
        }
        let record = Record {
            bytes: body.len() as u16,
            flow: header.flow,
            psn,
            ack: header.ack.0,
            credit: header.credit,
            has_ack: header.flags.has(Flags::HAS_ACK),
            body_crc: header.body_crc,
            stamp: (header.token & 0x3fff_ffff) as u32,
            checked,
        };
        self.records.push_back((self.head, record, body.to_vec()));
        self.head += span;
        Counter::Deposited
    }

    /// Compares all of receive memory with what it must be.
    pub(crate) fn check(&self, view: &impl View) -> Result<(), String> {
        let control = view.control();
        same("head", control.ring_head.0.load(Ordering::Acquire), self.head)?;
        same("tail", control.ring_tail.0.load(Ordering::Acquire), self.tail)?;
        same("xoff", control.xoff.0.load(Ordering::Acquire) != 0, self.xoff)?;
        for (counter, name) in Counter::ALL {
            let counted = control.counters.0[counter as usize].load(Ordering::Relaxed);
            same(name, counted, self.counters[counter as usize])?;
        }
        for index in 0..GEOMETRY.flows {
            let (entry, open) = (view.flow(index), self.flows.get(&index));
            let token = entry.token.load(Ordering::Acquire);
            same("token", token, open.map_or(0, |open| open.token))?;
            let Some(open) = open else { continue };
            same("base", entry.received.0.base.load(Ordering::Acquire), open.base)?;
            same("echo", entry.received.0.echo.load(Ordering::Relaxed), open.echo)?;
            same("flow xoff", entry.received.0.xoff.load(Ordering::Relaxed) != 0, open.xoff)?;
        }
        for (position, record, body) in &self.records {
            let seal = control.seal.load(Ordering::Relaxed).wrapping_add(*position);
            same("seal", view.word(*position).load(Ordering::Acquire), seal)?;
            let words = [8, 16, 24, 32].map(|at| view.word(position + at).load(Ordering::Relaxed));
            same("record", Record::from_words(words), *record)?;
            same("body", &view.bytes(position + Record::HEADER_BYTES, body.len()), body)?;
        }
        // No possible start of a record that is not there is sealed (invariant 1).
        let free = self.head..self.tail + GEOMETRY.ring_bytes;
        for position in free.step_by(64) {
            let seal = control.seal.load(Ordering::Relaxed).wrapping_add(position);
            same("sealed free place", view.word(position).load(Ordering::Acquire) == seal, false)?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, must_be: T) -> Result<(), String> {
    if is == must_be { Ok(()) } else { Err(format!("{what} is {is:?}, must be {must_be:?}")) }
}
