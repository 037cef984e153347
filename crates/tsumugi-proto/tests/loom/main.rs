//! Every interleaving, within a bound on preemptions, of receive paths and the owner of one receive memory.
//!
//! `loom` runs the code that ships: [`tsumugi_wire::atomic`] is its own atomics under `--cfg loom`. Run with
//! `cargo xtask loom`, which `cargo xtask test` includes.
//!
//! The models bite. Each of these changes to the code makes the named model fail, and often others:
//!
//! | change | model |
//! |---|---|
//! | `receive_bitmap::advance` looks at words by `load(Acquire)` instead of `fetch_or(0)` | `the_base_is_never_left_behind_at_a_word_boundary` |
//! | … takes the word that its claim left for every block | the same |
//! | … stops at the end of a word | the same |
//! | … gives up when another has moved the base | `the_base_is_never_left_behind_within_a_word` |
//! | `receive_bitmap::claim` sets the bit by load and store | `one_psn_is_deposited_once` |
//! | … keeps the bits of an older block | `a_snapshot_is_true_while_an_older_block_is_replaced` |
//! | `receive_bitmap::snapshot` takes an older block's bits for its own's | `a_snapshot_claims_nothing_that_was_not_claimed` |
//! | `receiver::deposit` deposits without having won the PSN, or leaves its place unpublished then | `one_psn_is_deposited_once` |
//! | … claims the PSN before the space | `a_full_ring_is_never_overwritten` |
//! | `queue::claim` moves the head by load and store | `two_psns_are_both_deposited` |
//! | … lets one record too many in, or reads the tail relaxed | `a_full_ring_is_never_overwritten` |
//! | `queue::publish` publishes relaxed, or before the other words; `queue::read` reads relaxed | `two_psns_are_both_deposited` |
//! | `queue::release` moves the tail relaxed | `a_full_ring_is_never_overwritten` |
//! | a seal does not depend on the position | the same |
//! | `receiver::write_directly` counts itself as started after it has claimed the PSN | `the_owner_passes_over_finished_direct_writes_only` |
//! | … counts itself as done before it has copied, or relaxed; `no_direct_write_in_progress` reads `done` relaxed | the same |
//! | the owner looks at the queue's head before the base | the same |
//! | `answer::owe` tells the owner before it says what is owed, or relaxed | `what_is_owed_is_answered_once` |
//! | the owner looks at the flows before it takes the notice; `answer::take_owed` does not see that another was faster | the same |
//! | `Translations` puts a place relaxed, or the key before the place; `look_up` reads the key once | `a_translation_is_whole` |
//!
//! Not shown: that the bitmap's read-modify-writes must be `AcqRel`. In loom's model a read-modify-write reads the newest
//! value whatever its ordering, and that is all these models ask of them. Nor that `no_direct_write_in_progress` reads `done`
//! before `started`: that takes two direct writes that start and end between the two loads.
#![cfg(loom)]

mod answering;
mod claiming;
mod depositing;
mod writing;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::array;
use std::sync::atomic::{AtomicUsize, Ordering as RealOrdering};
use tsumugi_proto::receiver::{self, Verdict};
use tsumugi_proto::translation::{ReplacementChoice, Translations};
use tsumugi_proto::{ReceiveMemory, queue};
use tsumugi_wire::ack::WORD_PSNS;
use tsumugi_wire::atomic::{AtomicU32, AtomicU64, Ordering};
use tsumugi_wire::frame::RemoteFrame;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::limits::{RECORD_ALIGN, VERSION};
use tsumugi_wire::memory::{
    Acknowledged, BITMAP_WORDS, Control, Counter, DirectWrites, Flow, Line, MAGIC, Received, Record,
    TRANSLATION_WAYS, Translation,
};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Header, Kind, Psn};

const TOKEN: u64 = 0x1234_5678_9abc_def0;
const EPOCH: u32 = 7;
const SEAL: u64 = 0x5ea1_0000;
const KEY: u64 = 0xcafe_0001;
/// Every body is one word, so that a record is one unit of the ring.
const BODY_BYTES: u16 = 8;
const SPAN: u64 = RECORD_ALIGN;
/// Stack of a model, words.
const STACK_WORDS: usize = 16 << 10;

/// Receive memory for a few records of one flow.
struct Small {
    control: Control,
    flow: Flow,
    /// The ring's words; those behind the record's header are not used.
    words: Vec<AtomicU64>,
    /// The window, a word for each PSN.
    window: Vec<AtomicU64>,
    translations: Vec<Translation>,
    /// The ring's bodies, one for each unit. Here `loom` sees who copies while somebody else reads.
    bodies: Vec<UnsafeCell<u64>>,
}

// SAFETY: `bodies` is all that is not `Sync`, and that nobody touches a body that is somebody else's is what
// the models check: loom panics at the first such access.
unsafe impl Sync for Small {}

impl Small {
    /// A ring of `records` records, and a flow of which everything before `base` is deposited.
    ///
    /// Words of blocks that the base has not reached hold the block before, as in a flow that has run so far.
    fn at(base: u64, records: u64) -> Small {
        let first = base / WORD_PSNS;
        let bitmap = array::from_fn(|index| {
            let index = index as u64;
            let newest = (0..=first).rev().find(|block| block % BITMAP_WORDS as u64 == index);
            AtomicU64::new(match newest {
                Some(block) if block == first => block << 32 | ((1 << (base % WORD_PSNS)) - 1),
                Some(block) => block << 32 | 0xffff_ffff,
                None => index << 32,
            })
        });
        Small {
            control: Control {
                magic: AtomicU64::new(MAGIC),
                version: AtomicU32::new(u32::from(VERSION)),
                flows: AtomicU32::new(1),
                ring_bytes: AtomicU64::new(records * SPAN),
                epoch: AtomicU32::new(1),
                checked_tick: AtomicU32::new(0),
                checked_at: AtomicU64::new(0),
                seal: AtomicU64::new(SEAL),
                answers_left: AtomicU32::new(0),
                ring_head: Line::default(),
                ring_tail: Line::default(),
                sleeping: Line::default(),
                xoff: Line::default(),
                ring_read: Line::default(),
                counters: Line(array::from_fn(|_| AtomicU64::new(0))),
                owed: Line::default(),
            },
            flow: Flow {
                token: AtomicU64::new(TOKEN),
                epoch: AtomicU32::new(EPOCH),
                repeat: AtomicU32::new(Repeat::Selective as u32),
                limit: AtomicU64::new(u64::MAX),
                peer_token: AtomicU64::new(0),
                peer_flow: AtomicU32::new(0),
                checked: AtomicU64::new(0),
                received: Line(Received {
                    base: AtomicU64::new(base),
                    echo: AtomicU64::new(0),
                    xoff: AtomicU32::new(0),
                    owed: AtomicU32::new(0),
                    ask_by_probe: AtomicU32::new(0),
                    newest: AtomicU64::new(first),
                }),
                acknowledged: Line(Acknowledged { ack: AtomicU64::new(0), limit: AtomicU64::new(0) }),
                bitmap: Line(bitmap),
                direct_writes: Line(DirectWrites {
                    started: AtomicU64::new(0),
                    done: AtomicU64::new(0),
                    held: AtomicU64::new(0),
                }),
            },
            words: (0..records * SPAN / 8).map(|_| AtomicU64::new(0)).collect(),
            bodies: (0..records).map(|_| UnsafeCell::new(0)).collect(),
            window: Vec::new(),
            translations: Vec::new(),
        }
    }

    /// The same with a window, of which nothing or the first page is translated.
    fn windowed(records: u64, translated: bool) -> Small {
        let mut small = Small::at(0, records);
        small.window = (0..4).map(|_| AtomicU64::new(0)).collect();
        small.translations = (0..TRANSLATION_WAYS).map(|_| Translation::default()).collect();
        if translated {
            cache().install(&small, KEY, 0, 0);
        }
        small
    }

    /// A write of a word at the place of its PSN.
    fn write_directly(&self, opcode: Opcode, psn: u64) -> Option<Verdict> {
        let mut header = Header::new(Kind::Data, EPOCH);
        (header.token, header.psn) = (TOKEN, Psn(psn));
        let remote = RemoteFrame { opcode: opcode as u16, key: KEY, address: 8 * psn, operation: 1 };
        let body = [&remote.encode(8)[..], &payload(psn).to_le_bytes()].concat();
        receiver::write_directly(self, &self.flow, &header, &body)
    }

    fn is_written(&self, psn: u64) -> bool {
        self.window[psn as usize].load(Ordering::Relaxed) == payload(psn)
    }

    fn unit(&self, position: u64) -> usize {
        (position / SPAN) as usize % self.bodies.len()
    }

    fn deposit(&self, psn: u64) -> Verdict {
        let mut header = Header::new(Kind::Data, EPOCH);
        (header.token, header.psn) = (TOKEN, Psn(psn));
        let flow = receiver::find(self, &header).expect("the flow is open");
        receiver::deposit(self, flow, &header, &payload(psn).to_le_bytes(), true)
    }

    fn base(&self) -> u64 {
        self.flow.received.0.base.load(Ordering::Acquire)
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.control.counters.0[counter as usize].load(Ordering::Relaxed)
    }
}

/// The owner's side of a cache of one translation.
fn cache() -> Translations {
    Translations::new(TRANSLATION_WAYS, 1, ReplacementChoice::Fifo.replacement())
}

/// The body of a packet, which no other has.
fn payload(psn: u64) -> u64 {
    0xb0d1_0000_0000_0001 | psn << 8
}

impl ReceiveMemory for Small {
    fn control(&self) -> &Control {
        &self.control
    }

    fn flow(&self, index: u32) -> Option<&Flow> {
        (index == 0).then_some(&self.flow)
    }

    fn ring_bytes(&self) -> u64 {
        self.bodies.len() as u64 * SPAN
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position / 8) as usize % self.words.len()]
    }

    fn copy_in(&self, position: u64, bytes: &[u8]) {
        assert_eq!(position % SPAN, Record::HEADER_BYTES);
        let body = u64::from_le_bytes(bytes.try_into().expect("a body of one word"));
        // SAFETY: the pointer is valid while the closure runs, and loom has checked that nobody else is at it.
        self.bodies[self.unit(position)].with_mut(|place| unsafe { *place = body });
    }

    fn translations(&self) -> &[Translation] {
        &self.translations
    }

    fn window_pages(&self) -> u32 {
        if self.window.is_empty() { 0 } else { 2 }
    }

    fn write_window(&self, at: u64, bytes: &[u8]) {
        let word = u64::from_le_bytes(bytes.try_into().expect("one word"));
        self.window[at as usize / 8].store(word, Ordering::Relaxed);
    }
}

/// The process that the memory belongs to.
#[derive(Default)]
struct Owner {
    /// Where the next record will begin.
    read: u64,
    /// PSNs of the records read, [`None`] for padding.
    seen: Vec<Option<u64>>,
}

impl Owner {
    /// Reads one record and checks it; `false` when none is published.
    fn read(&mut self, memory: &Small) -> bool {
        let Some(record) = queue::read(memory, self.read) else { return false };
        let stamp = Record::stamp_of(TOKEN);
        assert_eq!((record.bytes, record.stamp, record.checked), (BODY_BYTES, stamp, true), "torn");
        if record.flow == Record::PADDING {
            self.seen.push(None);
        } else {
            // SAFETY: as in `copy_in`.
            let body = memory.bodies[memory.unit(self.read)].with(|place| unsafe { *place });
            assert_eq!((record.flow, body), (0, payload(record.psn)), "torn");
            self.seen.push(Some(record.psn));
        }
        self.read += Record::span(record.bytes);
        true
    }

    fn release(&mut self, memory: &Small) {
        queue::release(memory, self.read);
    }

    /// Reads what is left, and returns the PSNs of everything in the order of their numbers; padding last.
    fn finish(mut self, memory: &Small) -> Vec<Option<u64>> {
        let head = memory.control.ring_head.0.load(Ordering::Relaxed);
        while self.read < head {
            assert!(self.read(memory), "a claimed place was never published");
        }
        self.seen.sort_by_key(|psn| psn.unwrap_or(u64::MAX));
        self.seen
    }
}

/// Runs a model under every interleaving with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + Clone + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    // The control page alone takes half of the stack that a model gets.
    let own_thread = || thread::Builder::new().stack_size(STACK_WORDS);
    // Not loom's, because it outlives a run.
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, RealOrdering::Relaxed);
        own_thread().spawn(model.clone()).unwrap().join().unwrap();
    });
    let runs = runs.load(RealOrdering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs >= 10, "{runs} interleavings: the threads did not meet");
}

/// A thread that deposits one packet.
fn receive_path(memory: &Arc<Small>, psn: u64) -> thread::JoinHandle<Verdict> {
    let memory = Arc::clone(memory);
    thread::spawn(move || memory.deposit(psn))
}
