//! Random sequences of what can happen to receive memory.

use super::{GEOMETRY, Model};
use std::ops::Range;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::Record;
use tsumugi_wire::{Header, Kind, Psn};

/// Something that happens to receive memory. [`steps`] makes sequences of it that depend on the seed only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The owner opens an entry of the flow table.
    Open {
        /// Index of the entry.
        flow: u32,
        /// Not 0.
        token: u64,
        /// Epoch of the peer.
        epoch: u32,
        /// How the peer repairs losses.
        repeat: Repeat,
        /// First PSN beyond the credit.
        limit: u64,
    },
    /// The owner closes an entry of the flow table.
    Close {
        /// Index of the entry.
        flow: u32,
    },
    /// The owner grants credit.
    Credit {
        /// Index of the entry.
        flow: u32,
        /// First PSN beyond the credit; never less than before.
        limit: u64,
    },
    /// A DATA packet arrives.
    Data {
        /// Its header. The CRC in it is not that of the body; nobody here compares.
        header: Header,
        /// Its body.
        body: Vec<u8>,
        /// Whether the receive path says that it has compared the CRC.
        checked: bool,
    },
    /// A PROBE arrives.
    Probe {
        /// Its header, the CRC as random as that of a DATA packet.
        header: Header,
    },
    /// The owner gives its oldest records back.
    Release {
        /// How many.
        records: usize,
    },
}

/// A random sequence, always the same for the same seed.
pub(crate) fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut maker = Maker { random: Random(seed), model: Model::default(), mood: Mood::InOrder };
    (0..count)
        .map(|_| {
            let step = maker.step();
            maker.model.apply(&step);
            step
        })
        .collect()
}

/// SplitMix64: a few lines that make the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn of(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.of(0..100) < percent
    }
}

/// What packets come in at present.
#[derive(Clone, Copy, Debug)]
enum Mood {
    InOrder,
    /// From all over the bitmap, the gaps filled now and then.
    Shuffled,
    /// Around bounds.
    Odd,
}

struct Maker {
    random: Random,
    /// Run along, so that packets can be aimed at where it matters.
    model: Model,
    mood: Mood,
}

impl Maker {
    fn step(&mut self) -> Step {
        if self.random.percent(1) {
            self.mood = [Mood::InOrder, Mood::Shuffled, Mood::Odd][self.random.of(0..3) as usize];
        }
        // The first flow has most of the traffic, so that its bitmap goes round.
        let flow = [0, 0, 0, 0, 0, 1, 1, 2][self.random.of(0..8) as usize];
        let Some(open) = self.model.flow(flow) else {
            return if self.random.percent(5) { self.data(flow) } else { self.open(flow) };
        };
        let (base, limit) = (open.base, open.limit);
        match self.random.of(0..10_000) {
            0..=1 => Step::Close { flow },
            2..=4 => self.open(flow),
            5..=899 => {
                let credit = [0, 3, 64, 1024, 5000][self.random.of(0..5) as usize];
                Step::Credit { flow, limit: limit.max(base + credit) }
            }
            // Rarer than packets: the queue fills, and is emptied.
            900..=1999 => Step::Release { records: self.random.of(1..30) as usize },
            2000..=2199 => Step::Probe { header: self.header(Kind::Probe, flow) },
            _ => self.data(flow),
        }
    }

    fn open(&mut self, flow: u32) -> Step {
        let repeat = if flow == 1 { Repeat::GoBackN } else { Repeat::Selective };
        let limit = [16, 1024, u64::MAX][self.random.of(0..3) as usize];
        Step::Open {
            flow,
            token: self.random.of(1..u64::MAX),
            epoch: self.random.of(1..9) as u32,
            repeat,
            limit,
        }
    }

    fn data(&mut self, flow: u32) -> Step {
        let psn = self.psn(flow);
        let bytes = self.body_bytes();
        let mut header = self.header(Kind::Data, flow);
        (header.psn, header.body_bytes) = (Psn(psn), bytes as u16);
        let body = (0..bytes).map(|_| self.random.next() as u8).collect();
        Step::Data { header, body, checked: self.random.percent(50) }
    }

    /// A header of this flow's, now and then with something wrong in it.
    fn header(&mut self, kind: Kind, flow: u32) -> Header {
        let mut header = Header::new(kind, 1);
        if let Some(open) = self.model.flow(flow) {
            (header.token, header.epoch) = (open.token, open.epoch);
        }
        (header.flow, header.body_crc) = (flow, self.random.next() as u32);
        match self.random.of(0..200) {
            0 => header.token ^= 1 << self.random.of(0..64),
            1 => header.token = 0,
            2 => header.epoch = self.random.of(1..9) as u32,
            3 => {
                header.flow =
                    [3, GEOMETRY.flows, u32::MAX, Record::PADDING - 1][self.random.of(0..4) as usize]
            }
            4 => header.flow = self.random.of(0..3) as u32,
            _ => {}
        }
        header
    }

    fn body_bytes(&mut self) -> u64 {
        match self.random.of(0..20) {
            0 => 0,
            1 => self.random.of(1000..1425),
            // What fills the ring to its end, and one byte more.
            2 => {
                let room = self.model.free_bytes().saturating_sub(Record::HEADER_BYTES);
                (room + self.random.of(0..2)).min(1424)
            }
            _ => self.random.of(1..80),
        }
    }

    fn psn(&mut self, flow: u32) -> u64 {
        let Some(open) = self.model.flow(flow) else { return self.random.of(0..4) };
        let (base, limit, newest) = (open.base, open.limit, open.newest());
        let end = (base / 32 + 32) * 32;
        match self.mood {
            Mood::InOrder if self.random.percent(95) => base,
            Mood::InOrder => newest.saturating_add(self.random.of(0..3)),
            Mood::Shuffled => match self.random.of(0..10) {
                0..=2 => base,
                3..=6 => newest.saturating_add(self.random.of(0..4)),
                7 => self.random.of(base..newest.max(base) + 1),
                8 => self.random.of(base..end),
                _ => base.saturating_sub(self.random.of(0..70)),
            },
            Mood::Odd => match self.random.of(0..12) {
                0..=3 => base,
                4 => end - 1,
                5 => end + self.random.of(0..3),
                6 => limit.saturating_sub(1),
                7 => limit.saturating_add(self.random.of(0..2)),
                // The same word of the bitmap, with a block number that looks the same in 32 bits.
                8 => base.wrapping_add(1 << 37),
                9 => u64::MAX - self.random.of(0..40),
                10 => base.wrapping_sub(self.random.of(0..2000)),
                _ => self.random.of(base..end),
            },
        }
    }
}
