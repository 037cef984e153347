//! The layout of receive memory: one mapping that the endpoint owns and that receive paths write.
//!
//! ```text
//! page 0            Control      geometry, the queue's head and tail, doorbell, counters
//! pages 1 …         Flow × n     eight to a page
//! ring              records      a power of two of bytes, claimed in units of 64
//! pad               64 KiB       a record that begins before the ring's end may run into it
//! translations      Translation  where pages that may be written lie in the window; a cache
//! window            pages        memory that remote writes go to
//! pad               64 KiB       a write that begins before the window's end may run into it
//! ```
//!
//! Memory without a window ends with the first pad.
//!
//! Everything lies at a multiple of 4 KiB and no structure crosses a page, so that the XDP program
//! can address it either as one large map element or page by page.
//!
//! # Who writes what
//!
//! | words                          | written by            | how                                    |
//! |--------------------------------|-----------------------|----------------------------------------|
//! | geometry, `Flow` identity, `limit` | owner             | before the flow's token is published    |
//! | `peer_flow`, `peer_token`      | owner                 | when the peer is known; the token last (release) |
//! | `epoch`                        | owner; a receive path that finds it dead | compare-and-swap from the epoch seen to 0 |
//! | `checked_tick`, `checked_at`   | the XDP program       | plain store with each tick; compare-and-swap, every 100 ms at most |
//! | `seal`                         | owner                 | before the epoch                        |
//! | `answers_left`                 | owner                 | plain store                            |
//! | `ring_tail`                    | owner                 | plain store (release)                  |
//! | `sleeping`                     | owner; who rings      | swap; compare-and-swap from asleep to rung |
//! | `ring_head`                    | receive paths         | compare-and-swap, never past tail + ring |
//! | `Flow::bitmap`, `Flow::received` | receive paths       | compare-and-swap; `base` and `newest` only grow |
//! | `Flow::received`: `owed`       | receive paths; owner  | plain store; swap with 0 by who answers |
//! | `Flow::acknowledged`           | receive paths         | compare-and-swap; only grows           |
//! | `Flow::direct_writes`: `started`, `done` | receive paths | fetch-and-add                        |
//! | `Flow::direct_writes`: `held`; `ring_read` | owner     | plain store (release)                  |
//! | a record                       | whoever claimed it    | its seal last (release)                |
//! | a translation's key and place  | owner                 | the key 0, the place, the key (release) |
//! | a translation's `used`         | receive paths; owner  | plain store                            |
//! | the window                     | receive paths, owner  | copies, as packets arrive; short writes by words, where a receive path can |
//! | counters                       | receive paths         | fetch-and-add                          |
//!
//! # Invariants
//!
//! 1. `ring_tail ≤ ring_head ≤ ring_tail + ring_bytes`; between tail and head every byte belongs to
//!    exactly one record. A record is published when its first word is its seal: the owner's secret plus its
//!    position. Earlier bytes of that place are no seal: they are of another position, or from a peer, which does not
//!    know the secret. So what is released is not cleared, and its lines stay where they are.
//! 2. A PSN's bit in `Flow::bitmap` is set by exactly one receive path, and that one publishes its record.
//!    Space is claimed *before* the bit is set: a full queue is known before anything is taken. The one that
//!    loses the race for the bit publishes its claimed space as padding.
//! 3. A word of the bitmap holds the number of its block of 32 PSNs beside the bits. A word whose block is older
//!    counts as empty, so nothing is ever cleared, and no packet can fall between clearing and use.
//! 4. A direct write into the window leaves no record. `started` grows before its PSN's bit is set and `done` after its
//!    copy. So whoever reads the base and then finds `done` and `started` equal, read in this order, knows that
//!    everything before the base that has no record is done. A write that was sent behind others is written directly
//!    only when all those are done: when its PSN is the base, no direct write is in progress, every record has been
//!    read (`ring_read` is `ring_head`) and none is `held`.
//! 5. A key means the same place for an address as long as it lives, and is never used again. So a translation whose
//!    key reads the same before and after its place belongs together.
//! 6. A writer of garbage in this memory can hurt the memory's owner only: indices are bounded by
//!    whoever reads them, each time.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::defect;
use crate::limits::BITMAP_PACKETS;

/// Bytes of a page of the layout.
pub const PAGE_BYTES: usize = 4096;
/// Flow entries in a page.
pub const FLOWS_PER_PAGE: usize = PAGE_BYTES / FLOW_BYTES;
/// Bytes of a flow entry.
pub const FLOW_BYTES: usize = 512;
/// Bytes behind the ring; no record is longer.
pub const PAD_BYTES: usize = 64 * 1024;
/// Says that a mapping is receive memory ("tsumugi\1").
pub const MAGIC: u64 = u64::from_le_bytes(*b"tsumugi\x01");
/// Translations in a bucket: an address has its translation in one of two buckets.
pub const TRANSLATION_WAYS: usize = 4;
/// Bytes of a translation.
pub const TRANSLATION_BYTES: usize = 32;
/// Bits of a [`Translation::place`] that number the window's page; the others number the address's.
pub const FRAME_BITS: u32 = 18;
/// [`Control::sleeping`]: the owner sleeps, and the next who has news rings.
pub const ASLEEP: u32 = 1;
/// [`Control::sleeping`]: somebody has rung, and nobody else does until the owner sleeps again.
pub const RUNG: u32 = 2;
/// Words of a flow's receive bitmap.
pub const BITMAP_WORDS: usize = (BITMAP_PACKETS / 32) as usize;

/// What receive paths count. The number is the index into [`Control::counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// DATA packets deposited.
    Deposited = 0,
    /// DATA packets that had been deposited before.
    Duplicate,
    /// DATA packets beyond the bitmap or credit.
    BeyondBitmap,
    /// DATA packets out of order in a Go-back-N flow.
    OutOfOrder,
    /// DATA packets refused because the receive queue was full.
    QueueFull,
    /// Bytes that are no packet: short, of another version, damaged in the header, of unknown kind.
    Malformed,
    /// Packets whose body fails its CRC.
    Corrupt,
    /// Packets for a flow index that is not open.
    UnknownFlow,
    /// Packets with the wrong token.
    WrongToken,
    /// Packets with the wrong epoch.
    WrongEpoch,
    /// Bodies that do not parse though their CRC is right, or that break the protocol's rules.
    Violation,
    /// HELLO, CHALLENGE and WELCOME that were refused (job, cookie, nonce, no room for another flow).
    HandshakeRefused,
    /// What was to be done to remote memory and was not: key, bounds, rights.
    RemoteRefused,
    /// DATA packets that were written directly into the window, and left no record.
    DirectWrites,
    /// DATA packets that would have been written directly, had there been a translation: they were deposited.
    Untranslated,
}

impl Counter {
    /// Every counter with the name that tools print.
    pub const ALL: [(Counter, &'static str); 15] = [
        (Counter::Deposited, "deposited"),
        (Counter::Duplicate, "duplicate"),
        (Counter::BeyondBitmap, "beyond_bitmap"),
        (Counter::OutOfOrder, "out_of_order"),
        (Counter::QueueFull, "queue_full"),
        (Counter::Malformed, "malformed"),
        (Counter::Corrupt, "corrupt"),
        (Counter::UnknownFlow, "unknown_flow"),
        (Counter::WrongToken, "wrong_token"),
        (Counter::WrongEpoch, "wrong_epoch"),
        (Counter::Violation, "violation"),
        (Counter::HandshakeRefused, "handshake_refused"),
        (Counter::RemoteRefused, "remote_refused"),
        (Counter::DirectWrites, "direct_writes"),
        (Counter::Untranslated, "untranslated"),
    ];
}

/// Room for counters of later versions.
pub const COUNTERS: usize = 64;

/// Words that one side writes often, on a cache line of their own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line<T>(pub T);

/// The control page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::limits::VERSION`].
    pub version: AtomicU32,
    /// Entries of the flow table.
    pub flows: AtomicU32,
    /// Bytes of the ring: a power of two.
    pub ring_bytes: AtomicU64,
    /// Epoch of the endpoint that owns the memory; 0 while nobody does. Set when the endpoint's UDP socket is bound.
    pub epoch: AtomicU32,
    /// The kernel's tick when the XDP program last read the clock, which advances with the tick only.
    pub checked_tick: AtomicU32,
    /// When the XDP program last looked for the owner's UDP socket: `CLOCK_MONOTONIC_COARSE`, ns. It looks
    /// again with a packet 100 ms later, and sets `epoch` to 0 when there is none: the owner was killed.
    pub checked_at: AtomicU64,
    /// The owner's secret, random with each epoch: see [`Control::seal_at`].
    pub seal: AtomicU64,
    /// Not 0 while what the XDP program sends back does not leave the NIC: it leaves every answer to the owner.
    pub answers_left: AtomicU32,
    /// Bytes claimed since the beginning.
    pub ring_head: Line<AtomicU64>,
    /// Bytes released since the beginning.
    pub ring_tail: Line<AtomicU64>,
    /// [`ASLEEP`] while the owner sleeps and wants the doorbell rung; [`RUNG`] when it has been.
    pub sleeping: Line<AtomicU32>,
    /// Not 0 when some flow's `xoff` is.
    pub xoff: Line<AtomicU32>,
    /// Bytes read since the beginning, and done or held.
    pub ring_read: Line<AtomicU64>,
    /// See [`Counter`].
    pub counters: Line<[AtomicU64; COUNTERS]>,
    /// Not 0 when some flow's `owed` is.
    pub owed: Line<AtomicU32>,
}

impl Control {
    /// What the first word of a record at this position of the ring reads once it is published.
    #[inline]
    #[must_use]
    pub fn seal_at(&self, position: u64) -> u64 {
        let position = if defect!(SealWithoutPosition) { 0 } else { position };
        self.seal.load(crate::atomic::Ordering::Relaxed).wrapping_add(position)
    }
}

/// One peer's flow towards this endpoint, and what its acknowledgements say of ours towards it.
#[repr(C, align(512))]
#[derive(Debug)]
pub struct Flow {
    /// Token of the flow; 0 while the entry is free. Published last (release).
    pub token: AtomicU64,
    /// Epoch of the peer that sends it.
    pub epoch: AtomicU32,
    /// [`crate::handshake::Repeat`] as a number.
    pub repeat: AtomicU32,
    /// PSNs from here on, and as many more as direct writes are [`done`](DirectWrites::done), are beyond the credit
    /// granted: a direct write takes up none. Only grows.
    pub limit: AtomicU64,
    /// Token of our flow to this peer, for receive paths that answer by themselves; 0 while the owner does not
    /// know it: they answer nothing. Published after `peer_flow` (release).
    pub peer_token: AtomicU64,
    /// Index of our flow to this peer in the peer's flow table.
    pub peer_flow: AtomicU32,
    /// Every PSN before this one has been compared with its CRC, as far as the owner has said; answers tell it.
    /// Goes with `limit`.
    pub checked: AtomicU64,
    /// How far the flow has been received.
    pub received: Line<Received>,
    /// How far our flow to this peer has been acknowledged.
    pub acknowledged: Line<Acknowledged>,
    /// Receive bitmap: upper half the number of the block of 32 PSNs, lower half its bits.
    pub bitmap: Line<[AtomicU64; BITMAP_WORDS]>,
    /// What is written directly, without a record.
    pub direct_writes: Line<DirectWrites>,
}

/// How many packets have been written directly.
#[repr(C)]
#[derive(Debug, Default)]
pub struct DirectWrites {
    /// Direct writes begun: those done, and those in progress, which may still come to nothing. While the owner places a
    /// packet itself, that counts, too.
    pub started: AtomicU64,
    /// Direct writes that are done; what the owner has placed itself does not count. Only grows.
    pub done: AtomicU64,
    /// Packets that the owner has read and holds because one before them is missing, and those that it wants again.
    pub held: AtomicU64,
}

/// Where a page that may be written under a key lies in the window.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct Translation {
    /// The key; 0: none.
    pub key: AtomicU64,
    /// Number of the page that addresses name, above [`FRAME_BITS`] that number the window's page.
    pub place: AtomicU64,
    /// One more than there were [direct writes](Counter::DirectWrites) when it was used last; 0: not since the owner
    /// looked.
    pub used: AtomicU64,
}

impl Translation {
    /// The place that says that a page of addresses is a page of the window.
    #[must_use]
    pub const fn place_of(page: u64, frame: u32) -> u64 {
        page << FRAME_BITS | frame as u64
    }
}

/// How far a flow has been received.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Received {
    /// Every PSN before this one is deposited. Only grows.
    pub base: AtomicU64,
    /// PSN deposited last, in order of time.
    pub echo: AtomicU64,
    /// Not 0 after a packet was refused for want of room, until the owner has said XON.
    pub xoff: AtomicU32,
    /// [`crate::Kind`] of the answer that was due for a packet in several buffers, which cannot carry one: the next packet
    /// in one buffer does, or the owner answers, whoever comes first; 0: none.
    pub owed: AtomicU32,
    /// Number of the newest block of 32 PSNs that may have a bit in the bitmap: an answer looks no further. Only
    /// grows, before the block's first bit is set.
    pub newest: AtomicU64,
    /// Not 0 once an answer was owed: answers ask for [PROBEs](crate::Flags::ASK_BY_PROBE).
    pub ask_by_probe: AtomicU32,
}

/// How far the flow in the other direction has been acknowledged, by packets that left no record: PROBEs and what
/// was refused.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// Every PSN before this one is acknowledged. Only grows.
    pub ack: AtomicU64,
    /// PSNs from here on are beyond the credit we have. Only grows.
    pub limit: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Control>() == PAGE_BYTES);
    assert!(size_of::<Flow>() == FLOW_BYTES);
    assert!(size_of::<Translation>() == TRANSLATION_BYTES);
};

/// Header of a record in the ring: its seal, then the words that describe it, then the packet's body.
///
/// ```text
/// seal u64                                               written last: see Control::seal_at
/// bytes u16 | credit u16 | flow u32
/// psn u64
/// ack u64
/// body_crc u32 | stamp u30 | has_ack 1 | checked 1
/// ```
///
/// The words are read and written as [`AtomicU64`]; this describes what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of body that follow the record's header.
    pub bytes: u16,
    /// Flow that the body came by, or [`Record::PADDING`].
    pub flow: u32,
    /// The packet's number in that flow.
    pub psn: u64,
    /// What the packet acknowledges of the flow in the other direction, as its header says it: every PSN before this.
    pub ack: u64,
    /// PSNs from `ack` on that the peer takes.
    pub credit: u16,
    /// Whether `ack` and `credit` mean anything.
    pub has_ack: bool,
    /// CRC32C that the packet announced for its body.
    pub body_crc: u32,
    /// Lower bits of the flow's token: tells a record of an entry's former flow from one of its present flow.
    pub stamp: u32,
    /// Whether the receive path has compared the CRC. If not, whoever hands the data on does.
    pub checked: bool,
}

impl Record {
    /// Bytes of a record's header.
    pub const HEADER_BYTES: u64 = 40;
    /// In place of a flow: claimed, but nothing was deposited.
    pub const PADDING: u32 = u32::MAX;
    /// Bits of the last word.
    const CHECKED: u64 = 1 << 63;
    const HAS_ACK: u64 = 1 << 62;
    const STAMP: u32 = (1 << 30) - 1;

    /// The stamp of records of a flow with this token.
    #[must_use]
    pub const fn stamp_of(token: u64) -> u32 {
        token as u32 & Self::STAMP
    }

    /// Bytes of ring that a record with a body of `bytes` takes up.
    #[must_use]
    pub const fn span(bytes: u16) -> u64 {
        (Self::HEADER_BYTES + bytes as u64).next_multiple_of(crate::limits::RECORD_ALIGN)
    }

    /// The words behind the seal.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        let flags =
            if self.checked { Self::CHECKED } else { 0 } | if self.has_ack { Self::HAS_ACK } else { 0 };
        [
            (self.flow as u64) << 32 | (self.credit as u64) << 16 | self.bytes as u64,
            self.psn,
            self.ack,
            flags | ((self.stamp & Self::STAMP) as u64) << 32 | self.body_crc as u64,
        ]
    }

    /// The record that the words behind a seal describe.
    #[must_use]
    pub const fn from_words([sizes, psn, ack, crc]: [u64; 4]) -> Record {
        Record {
            bytes: sizes as u16,
            credit: (sizes >> 16) as u16,
            flow: (sizes >> 32) as u32,
            psn,
            ack,
            has_ack: crc & Self::HAS_ACK != 0,
            body_crc: crc as u32,
            stamp: (crc >> 32) as u32 & Self::STAMP,
            checked: crc & Self::CHECKED != 0,
        }
    }
}

/// Sizes of a receive memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Entries of the flow table.
    pub flows: u32,
    /// Bytes of the ring: a power of two.
    pub ring_bytes: u64,
    /// Pages of the window; 0: there is none.
    pub window_pages: u32,
    /// Translations that are kept at a time, at most; 0: nothing is written directly.
    pub translations: u32,
}

impl Geometry {
    /// Smallest ring, bytes.
    pub const RING_BYTES_MIN: u64 = 4096;

    /// Receive memory without a window.
    #[must_use]
    pub const fn plain(flows: u32, ring_bytes: u64) -> Geometry {
        Geometry { flows, ring_bytes, window_pages: 0, translations: 0 }
    }

    /// Bytes before the ring.
    #[must_use]
    pub const fn ring_offset(&self) -> usize {
        PAGE_BYTES + (self.flows as usize).div_ceil(FLOWS_PER_PAGE) * PAGE_BYTES
    }

    /// Bytes of the entry of flow `index` from the start.
    #[must_use]
    pub const fn flow_offset(index: u32) -> usize {
        PAGE_BYTES + index as usize * FLOW_BYTES
    }

    /// Bytes before the translations.
    #[must_use]
    pub const fn translations_offset(&self) -> usize {
        self.ring_offset() + self.ring_bytes as usize + PAD_BYTES
    }

    /// Buckets of translations: a power of two, with room for twice as many as are kept; 0 without a window.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        if self.window_pages == 0 {
            return 0;
        }
        (2 * self.translations as usize).div_ceil(TRANSLATION_WAYS).next_power_of_two()
    }

    /// Bytes before the window.
    #[must_use]
    pub const fn window_offset(&self) -> usize {
        let bytes = self.buckets() * TRANSLATION_WAYS * TRANSLATION_BYTES;
        self.translations_offset() + bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the whole mapping.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self.window_pages {
            0 => self.translations_offset(),
            pages => self.window_offset() + pages as usize * PAGE_BYTES + PAD_BYTES,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbered_in_order() {
        for (index, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }

    #[test]
    fn records_come_back() {
        let none = Record::from_words([0; 4]);
        for record in [
            none,
            Record { bytes: 8972, flow: 7, psn: u64::MAX, body_crc: u32::MAX, stamp: 0x3fff_ffff, ..none },
            Record { ack: u64::MAX, credit: u16::MAX, ..none },
            Record { has_ack: true, ..none },
            Record { checked: true, ..none },
            Record { bytes: u16::MAX, flow: Record::PADDING, body_crc: 1, stamp: 5, ..none },
        ] {
            assert_eq!(Record::from_words(record.words()), record);
        }
    }

    #[test]
    fn the_layout_is_what_the_xdp_program_is_compiled_against() {
        use core::mem::offset_of;
        assert_eq!(offset_of!(Control, ring_bytes), 16);
        assert_eq!(offset_of!(Control, checked_tick), 28);
        assert_eq!(offset_of!(Control, checked_at), 32);
        assert_eq!(offset_of!(Control, seal), 40);
        assert_eq!(offset_of!(Control, answers_left), 48);
        assert_eq!(offset_of!(Control, ring_head), 64);
        assert_eq!(offset_of!(Control, ring_tail), 128);
        assert_eq!(offset_of!(Control, sleeping), 192);
        assert_eq!(offset_of!(Control, xoff), 256);
        assert_eq!(offset_of!(Control, ring_read), 320);
        assert_eq!(offset_of!(Control, counters), 384);
        assert_eq!(offset_of!(Control, owed), 1216);
        assert_eq!(offset_of!(Flow, limit), 16);
        assert_eq!(offset_of!(Flow, peer_token), 24);
        assert_eq!(offset_of!(Flow, peer_flow), 32);
        assert_eq!(offset_of!(Flow, received), 64);
        assert_eq!(offset_of!(Flow, acknowledged), 128);
        assert_eq!(offset_of!(Flow, bitmap), 192);
        assert_eq!(offset_of!(Flow, direct_writes), 448);
    }

    #[test]
    fn a_window_lies_behind_the_ring_and_its_translations() {
        let plain = Geometry::plain(9, 4096);
        assert_eq!((plain.buckets(), plain.bytes()), (0, plain.ring_offset() + 4096 + PAD_BYTES));
        let none_kept = Geometry { window_pages: 3, ..plain };
        assert_eq!((none_kept.buckets(), none_kept.window_offset()), (1, plain.bytes() + PAGE_BYTES));
        let kept = Geometry { translations: 65, ..none_kept };
        assert_eq!((kept.buckets(), kept.window_offset()), (64, plain.bytes() + 2 * PAGE_BYTES));
        assert_eq!(kept.bytes(), kept.window_offset() + 3 * PAGE_BYTES + PAD_BYTES);
    }
}
