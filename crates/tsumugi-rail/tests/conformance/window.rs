//! Remote writes into the window: what is written directly, where, and what is left to the owner.

use super::frames::Wrapping;
use super::pair::{FIRST_BUFFER_BYTES, Pair};
use super::{FLOW, View, data, on_two_cpus, open};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tsumugi_proto::translation::{ReplacementChoice, Translations};
use tsumugi_proto::{ReceiveMemory, Verdict, queue, receive_bitmap, receiver};
use tsumugi_rail::Memory;
use tsumugi_rail::xdp::Action;
use tsumugi_wire::ack::Sack;
use tsumugi_wire::frame::RemoteFrame;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{Counter, Geometry, PAGE_BYTES};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Psn};

/// Few pages, and fewer translations.
pub(crate) const WINDOW: Geometry =
    Geometry { window_pages: 6, translations: 4, ..Geometry::plain(9, 1 << 16) };
/// Where the process has the window mapped.
pub(crate) const START: u64 = 0x7fff_1234_5000;
const PAGE: u64 = PAGE_BYTES as u64;

/// The body of a packet that writes.
pub(crate) fn write(opcode: Opcode, key: u64, address: u64, data: &[u8]) -> Vec<u8> {
    let remote = RemoteFrame { opcode: opcode as u16, key, address, operation: 1 };
    [&remote.encode(data.len() as u32)[..], data].concat()
}

pub(crate) fn cache(geometry: Geometry, choice: ReplacementChoice) -> Translations {
    let slots = geometry.buckets() * tsumugi_wire::memory::TRANSLATION_WAYS;
    Translations::new(slots, geometry.translations as usize, choice.replacement())
}

/// Installs the page that an address lies on in both memories.
pub(crate) fn install(pair: &Pair, caches: &mut [Translations; 2], key: u64, address: u64) {
    let frame = ((address - START) / PAGE) as u32;
    let memories = [View(&pair.xdp.memory), View(&pair.rust)];
    for (cache, memory) in caches.iter_mut().zip(memories) {
        cache.install(&memory, key, address / PAGE, frame);
    }
}

/// Bytes of the window that nobody writes meanwhile.
fn window_bytes(memory: &Memory, at: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    memory.window(0..memory.geometry().window_pages, ()).read(at, &mut copy).expect("within the window");
    copy
}

#[test]
fn a_piece_is_written_whole_wherever_it_is_aligned_and_across_pages() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    for (six, vlan) in [(false, false), (false, true), (true, false), (true, true)] {
        open(&pair, Repeat::Selective);
        let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
        for page in 0..4 {
            install(&pair, &mut caches, 7, START + page * PAGE);
        }
        for (psn, bytes) in (1..300).chain([1000, 1400]).enumerate() {
            let at = (psn * 61) % (4 * PAGE_BYTES - bytes);
            let body: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let packet = write(Opcode::Piece, 7, START + at as u64, &body);
            let wrapping = Wrapping { six, vlan, trailer: 0 };
            let taken = pair.take(wrapping, &data(psn as u64, Flags(psn as u8 & 1), &packet));
            assert_eq!(taken, Ok(Some(Verdict::WrittenDirectly)), "{bytes} bytes at {at}");
            assert_eq!(window_bytes(&pair.xdp.memory, at, bytes), body);
        }
        let done = pair.xdp.memory.flow(FLOW).unwrap().direct_writes.0.done.load(Ordering::Relaxed);
        assert_eq!((done, pair.xdp.memory.control().ring_head.0.load(Ordering::Relaxed)), (301, 0));
    }
}

#[test]
fn what_has_no_translation_is_deposited() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    open(&pair, Repeat::Selective);
    let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
    install(&pair, &mut caches, 7, START);
    install(&pair, &mut caches, 7, START + PAGE);
    // The same address under another key lies elsewhere, so what crosses from one to the other is not written directly.
    let last = START + 5 * PAGE;
    install(&pair, &mut caches, 7, last);
    let body = [5; 40];
    let untranslated = [
        ("another key", 8, START),
        ("no key", 0, START),
        ("before", 7, START - 8),
        ("across the beginning", 7, START - 1),
        ("behind", 7, START + 2 * PAGE),
        ("across the end", 7, START + 2 * PAGE - 1),
        ("behind the window", 7, START + 6 * PAGE),
        ("across the window's end", 7, START + 6 * PAGE - 1),
        ("an address that wraps", 7, u64::MAX - 10),
        ("an address that nobody has", 7, START | 1 << 60),
        ("a page more by what is cut off", 7, START + (1 << 58)),
    ];
    for (psn, (name, key, address)) in untranslated.into_iter().enumerate() {
        let packet = data(psn as u64, Flags(0), &write(Opcode::Piece, key, address, &body));
        assert_eq!(pair.take(Wrapping::PLAIN, &packet), Ok(Some(Verdict::Deposited)), "{name}");
        let counted = &pair.xdp.memory.control().counters.0[Counter::Untranslated as usize];
        assert_eq!(counted.load(Ordering::Relaxed), psn as u64 + 1, "{name}");
    }
    // What is no write, or more than one, or makes no sense, is not even looked up.
    let good = write(Opcode::Piece, 7, START, &body);
    let mut longer = good.clone();
    longer[4] = 41;
    let others = [
        ("a read", write(Opcode::Read, 7, START, &[8; 8])),
        ("a reply", write(Opcode::Reply, 0, START, &body)),
        ("nothing", write(Opcode::Piece, 7, START, &[])),
        ("two", [&good[..], &good].concat()),
        ("more than it has", longer),
        ("a header cut short", good[..31].to_vec()),
        ("padding of a word too much", [&good[..], &[0; 8]].concat()),
    ];
    for (psn, (name, body)) in (untranslated.len()..).zip(others) {
        let taken = pair.take(Wrapping::PLAIN, &data(psn as u64, Flags(0), &body));
        assert_eq!(taken, Ok(Some(Verdict::Deposited)), "{name}");
        let counted = &pair.xdp.memory.control().counters.0[Counter::Untranslated as usize];
        assert_eq!(counted.load(Ordering::Relaxed), untranslated.len() as u64, "{name}");
    }
    let whole = window_bytes(&pair.xdp.memory, 0, 6 * PAGE_BYTES);
    assert!(whole.iter().all(|byte| *byte == 0), "something was written all the same");
}

#[test]
fn a_short_direct_write_has_its_turn() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    open(&pair, Repeat::Selective);
    let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
    install(&pair, &mut caches, 7, START);
    let short = |psn| data(psn, Flags(0), &write(Opcode::Write, 7, START + 8 * psn, &psn.to_le_bytes()));
    let mut take = |packet: &[u8]| pair.take(Wrapping::PLAIN, packet).expect("the same").expect("a verdict");
    assert_eq!(take(&short(0)), Verdict::WrittenDirectly);
    assert_eq!(take(&short(0)), Verdict::Duplicate);
    assert_eq!(take(&short(2)), Verdict::Deposited, "the one before it is missing");
    assert_eq!(take(&short(1)), Verdict::Deposited, "a record has not been read");
    let flow = |pair: &Pair, change: &dyn Fn(&tsumugi_wire::memory::Flow)| {
        pair.both(|memory| change(memory.flow(FLOW).expect("an entry of the table")));
    };
    let read = |pair: &Pair| {
        pair.both(|memory| {
            let control = memory.control();
            control.ring_read.0.store(control.ring_head.0.load(Ordering::Relaxed), Ordering::Release);
        });
    };
    read(&pair);
    flow(&pair, &|flow| flow.direct_writes.0.held.store(1, Ordering::Relaxed));
    assert_eq!(pair.take(Wrapping::PLAIN, &short(3)), Ok(Some(Verdict::Deposited)), "one is held");
    read(&pair);
    flow(&pair, &|flow| flow.direct_writes.0.held.store(0, Ordering::Relaxed));
    flow(&pair, &|flow| flow.direct_writes.0.started.store(2, Ordering::Relaxed));
    assert_eq!(
        pair.take(Wrapping::PLAIN, &short(4)),
        Ok(Some(Verdict::Deposited)),
        "another CPU still writes"
    );
    read(&pair);
    flow(&pair, &|flow| flow.direct_writes.0.started.store(1, Ordering::Relaxed));
    assert_eq!(pair.take(Wrapping::PLAIN, &short(5)), Ok(Some(Verdict::WrittenDirectly)));
}

/// Who looks on from another CPU must find nothing of the write missing.
#[test]
fn the_last_word_of_a_short_direct_write_is_written_last() {
    const ROUNDS: u64 = 20_000;
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    open(&pair, Repeat::Selective);
    let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
    install(&pair, &mut caches, 7, START);
    let window = pair.xdp.memory.window(0..1, ());
    for bytes in [24, 128, 136, 1032, 1400] {
        let (flow, base) =
            (View(&pair.xdp.memory), |flow: &tsumugi_wire::memory::Flow| receive_bitmap::base(flow).0);
        let first = base(flow.flow(FLOW).expect("an entry of the table"));
        let address = window.address() as usize;
        let word = move |at: usize| {
            let place = std::ptr::with_exposed_provenance_mut(address + at);
            // SAFETY: aligned, in the window, which outlives the threads below, and nobody treats it but as an atomic.
            unsafe { std::sync::atomic::AtomicU64::from_ptr(place) }
        };
        std::thread::scope(|scope| {
            let seen = scope.spawn(move || {
                let (mut last, mut writes) = (0, 0_u64);
                while last < first + ROUNDS {
                    let flag = word(bytes - 8).load(Ordering::Acquire);
                    if flag > last.max(first) {
                        let others =
                            [0, bytes / 16 * 8 - 8, bytes - 16].map(|at| word(at).load(Ordering::Relaxed));
                        assert!(
                            others.iter().all(|other| *other >= flag),
                            "{bytes} bytes: {others:?} before {flag}"
                        );
                        (last, writes) = (flag, writes + 1);
                    }
                    last = last.max(flag);
                }
                writes
            });
            for psn in first..first + ROUNDS {
                let body = write(Opcode::Write, 7, START, &(psn + 1).to_le_bytes().repeat(bytes / 8));
                let question = Wrapping::PLAIN.question(&data(psn, Flags(0), &body));
                let (action, _) = pair.run_xdp(&question);
                assert_eq!(action, Action::Drop);
            }
            println!(
                "{bytes} bytes: {} of {ROUNDS} writes were looked at",
                seen.join().expect("nothing was missing")
            );
        });
    }
}

#[test]
fn direct_writes_take_up_no_credit() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    open(&pair, Repeat::Selective);
    pair.both(|memory| memory.flow(FLOW).expect("an entry").limit.store(3, Ordering::Relaxed));
    let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
    install(&pair, &mut caches, 7, START);
    for psn in 0..100 {
        let packet = data(psn, Flags::ACK_REQUEST, &write(Opcode::Piece, 7, START, &[1; 8]));
        assert_eq!(pair.take(Wrapping::PLAIN, &packet), Ok(Some(Verdict::WrittenDirectly)), "{psn}");
    }
    for (psn, verdict) in [(103, Verdict::Beyond), (102, Verdict::Deposited), (100, Verdict::Deposited)] {
        assert_eq!(pair.take(Wrapping::PLAIN, &data(psn, Flags(0), &[])), Ok(Some(verdict)), "{psn}");
    }
    pair.both(|memory| memory.flow(FLOW).expect("an entry").limit.store(u64::MAX, Ordering::Relaxed));
    assert_eq!(pair.take(Wrapping::PLAIN, &data(103, Flags(0), &[])), Ok(Some(Verdict::Deposited)));
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 ^ self.0 >> 29) >> 20) % below
    }
}

#[test]
fn random_writes_leave_the_same_behind() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    let mut counts = BTreeMap::<_, u64>::new();
    for (seed, &choice) in ReplacementChoice::ALL.iter().cycle().take(9).enumerate() {
        open(&pair, if seed % 4 == 3 { Repeat::GoBackN } else { Repeat::Selective });
        let mut caches = [(); 2].map(|()| cache(WINDOW, choice));
        let mut random = Random(seed as u64);
        let start = random.below(1 << 40);
        pair.both(|memory| {
            receive_bitmap::restore(memory.flow(FLOW).expect("an entry"), Psn(start), &Sack::EMPTY);
        });
        for step in 0..4000 {
            let key = 1 + random.below(3);
            let address = START + random.below(6 * PAGE);
            let event = random.below(100);
            match event {
                0..10 => install(&pair, &mut caches, key, address),
                10 => {
                    let memories = [View(&pair.xdp.memory), View(&pair.rust)];
                    for (cache, memory) in caches.iter_mut().zip(memories) {
                        cache.remove(&memory, key);
                    }
                }
                11..25 => pair.both(|memory| {
                    let control = memory.control();
                    let head = control.ring_head.0.load(Ordering::Relaxed);
                    control.ring_read.0.store(head, Ordering::Release);
                    queue::release(memory, head);
                }),
                25 => pair.both(|memory| {
                    let direct_writes = &memory.flow(FLOW).expect("an entry").direct_writes.0;
                    direct_writes.held.store(u64::from(key == 1), Ordering::Relaxed);
                }),
                _ => {
                    let base = receive_bitmap::base(pair.rust.flow(FLOW).expect("an entry"));
                    let psn = if event < 80 { base.0 } else { (base.0 + random.below(60)).saturating_sub(5) };
                    let opcode = [Opcode::Write, Opcode::Piece, Opcode::Piece, Opcode::Notify]
                        [random.below(4) as usize];
                    let bytes = [8, random.below(64), random.below(1400)][random.below(3) as usize];
                    let bytes: Vec<u8> = (0..bytes).map(|at| (at + step) as u8).collect();
                    let mut body = write(opcode, key, address, &bytes);
                    if random.below(8) == 0 {
                        body.resize(body.len().next_multiple_of(8), 0);
                    }
                    let trailer = if random.below(8) == 0 { FIRST_BUFFER_BYTES } else { 0 };
                    let wrapping = Wrapping { six: random.below(2) == 0, trailer, ..Wrapping::PLAIN };
                    let flags = Flags(random.below(8) as u8);
                    let mut header = Header::decode(&data(psn, flags, &body)).expect("our own packet").0;
                    (header.ack, header.credit) = (Psn(random.below(1000)), random.below(1000) as u16);
                    let packet = [&header.encode()[..], &body].concat();
                    let verdict = pair
                        .take(wrapping, &packet)
                        .unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"))
                        .expect("a verdict");
                    *counts.entry(Counter::ALL[verdict.counter() as usize].1).or_default() += 1;
                }
            }
            pair.compare().unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"));
        }
    }
    println!("{counts:?}");
    for verdict in ["direct_writes", "deposited", "duplicate", "out_of_order"] {
        assert!(counts.get(verdict).is_some_and(|count| *count >= 100), "{counts:?}");
    }
}

#[test]
fn two_cpus_write_every_packet_once_and_in_turn_what_has_a_turn() {
    const PACKETS: u64 = 60_000;
    /// Every so many packets one has its turn.
    const TURN: u64 = 8;
    let geometry = Geometry { window_pages: 256, translations: 256, ..Geometry::plain(9, 1 << 23) };
    let Some(pair) = Pair::load(geometry) else { return };
    open(&pair, Repeat::Selective);
    let mut caches = [(); 2].map(|()| cache(geometry, ReplacementChoice::Clock));
    for page in 0..256 {
        install(&pair, &mut caches, 7, START + page * PAGE);
    }
    let packet = |psn: u64| {
        let opcode = if psn % TURN == TURN - 1 { Opcode::Write } else { Opcode::Piece };
        let word = [psn + 1; 2].map(u64::to_le_bytes).concat();
        data(psn, Flags(0), &write(opcode, 7, START + 16 * psn, &word))
    };
    on_two_cpus(&pair.receiver, PACKETS, packet, || |_, _: &[u8]| ());
    let memory = View(&pair.xdp.memory);
    let flow = memory.flow(FLOW).expect("an entry of the table");
    assert_eq!(receive_bitmap::base(flow), Psn(PACKETS));
    assert!(receiver::no_direct_write_in_progress(flow));
    let done = flow.direct_writes.0.done.load(Ordering::Relaxed);
    let (mut at, mut deposited) = (0, vec![false; PACKETS as usize]);
    while at < memory.control().ring_head.0.load(Ordering::Acquire) {
        let record = queue::read(&memory, at).expect("published");
        if record.flow == FLOW {
            assert_eq!(record.psn % TURN, TURN - 1, "a piece had its translation");
            deposited[record.psn as usize] = true;
        }
        at += tsumugi_wire::memory::Record::span(record.bytes);
    }
    let left = deposited.iter().filter(|deposited| **deposited).count() as u64;
    println!("{done} direct writes, {left} were not in their turn");
    assert_eq!(done + left, PACKETS);
    let bytes = window_bytes(&pair.xdp.memory, 0, 16 * PACKETS as usize);
    for (psn, place) in bytes.chunks(16).enumerate() {
        let expected = if deposited[psn] { 0 } else { psn as u64 + 1 };
        assert_eq!(place, [expected; 2].map(u64::to_le_bytes).concat(), "{psn}");
    }
}
