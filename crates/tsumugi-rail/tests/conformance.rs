//! The receive half in C, as loaded into the kernel, against the one in Rust: the same packets go into both, and
//! verdict, answer and all of receive memory must be equal after each. Needs root and the compiled program.

#[path = "../../tsumugi-proto/tests/common/mod.rs"]
#[allow(dead_code, unused_imports)]
mod common;
#[path = "conformance/frames.rs"]
mod frames;
#[path = "conformance/owner.rs"]
mod owner;
#[path = "conformance/pair.rs"]
mod pair;
#[path = "conformance/probe.rs"]
mod probe;
#[path = "conformance/scattered.rs"]
mod scattered;
#[path = "conformance/view.rs"]
mod view;
#[path = "conformance/window.rs"]
mod window_writes;

use common::{GEOMETRY, Model, Step, steps};
use frames::Wrapping;
use pair::Pair;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tsumugi_proto::xdp::Fate;
use tsumugi_proto::{ReceiveMemory, Verdict, answer, queue, receive_bitmap, receiver};
use tsumugi_rail::xdp::{Action, Receiver};
use tsumugi_wire::ack::Sack;
use tsumugi_wire::frame::{REMOTE_BYTES, RemoteFrame};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{Counter, Geometry, Record, Translation};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};
use view::View;

const SEEDS: u64 = 16;
const STEPS: usize = 8000;

/// Gives both a packet, whose CRC is random, and nobody here compares it with the body: it decides what else varies.
fn wrapped(pair: &mut Pair, mut header: Header, body: &[u8]) -> Result<Option<Verdict>, String> {
    let random = header.body_crc;
    header.flags = Flags(random as u8 & 7);
    header.ack = Psn(u64::from(random) << (random >> 8 & 31));
    header.credit = (random >> 16) as u16;
    // Now and then Ethernet's padding, or so much of it that the frame lies in several buffers.
    let trailer = [9, 0, 0, 0, 0, 0, 0, pair::FIRST_BUFFER_BYTES][(random >> 24 & 7) as usize];
    let wrapping = Wrapping { vlan: random >> 3 & 1 != 0, six: random >> 4 & 1 != 0, trailer };
    pair.take(wrapping, &[&header.encode()[..], body].concat())
}

/// Does a step to both memories.
fn take(pair: &mut Pair, step: &Step, model: &Model) -> Result<Option<Verdict>, String> {
    match *step {
        Step::Open { flow, token, epoch, repeat, limit } => pair.both(|memory| {
            let entry = memory.flow(flow).expect("an entry of the table");
            receiver::open(entry, token, epoch, repeat, limit);
            // Nobody has told how to address the peer of the last flow.
            if flow != 2 {
                answer::address(entry, flow + 100, token.rotate_left(7) | 1);
            }
        }),
        Step::Close { flow } => {
            pair.both(|memory| receiver::close(memory.flow(flow).expect("an entry of the table")));
        }
        Step::Credit { flow, limit } => pair.both(|memory| {
            let entry = memory.flow(flow).expect("an entry of the table");
            entry.limit.store(limit, Ordering::Relaxed);
            // Answers repeat it, whatever it is.
            entry.checked.store(limit.rotate_left(17) ^ u64::from(flow), Ordering::Relaxed);
        }),
        Step::Release { records } => pair.both(|memory| {
            queue::release(memory, model.release_to(records));
        }),
        Step::Data { ref header, ref body, .. } => return wrapped(pair, *header, body),
        // A PROBE has no body, and whatever it has is not read.
        Step::Probe { mut header } => {
            let body = [0x77; 3];
            let body = &body[..usize::from(header.body_crc as u8 >> 6)];
            header.body_bytes = body.len() as u16;
            return wrapped(pair, header, body);
        }
    }
    Ok(None)
}

#[test]
fn random_sequences_leave_the_same_behind() {
    let Some(mut pair) = Pair::load(GEOMETRY) else { return };
    let (mut counts, mut probes) = (BTreeMap::<_, u64>::new(), 0);
    for seed in 0..SEEDS {
        pair.reset();
        let mut model = Model::default();
        for (number, step) in steps(seed, STEPS).iter().enumerate() {
            let done = take(&mut pair, step, &model);
            let fault = |what: &str| -> ! { panic!("seed {seed}, step {number}: {what}\n{step:?}") };
            let verdict = done.unwrap_or_else(|what| fault(&what));
            if verdict.map(Verdict::counter) != model.apply(step) {
                fault("not even the Rust receiver does what the model says");
            }
            probes += u64::from(verdict.is_none() && matches!(step, Step::Probe { .. }));
            if let Some(verdict) = verdict {
                *counts.entry(Counter::ALL[verdict.counter() as usize].1).or_default() += 1;
            }
        }
    }
    println!("{} steps: {counts:?}, {probes} probes", SEEDS * STEPS as u64);
    assert_eq!(counts.len(), 8, "every verdict must occur: {counts:?}");
    assert!(counts.values().all(|count| *count >= 100) && probes >= 100, "{counts:?}, {probes} probes");
}

/// The packets of the golden vectors, by name.
fn golden() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tsumugi-wire/vectors");
    let mut vectors: Vec<(String, Vec<u8>)> = Vec::new();
    for file in std::fs::read_dir(folder).expect("the folder of golden vectors") {
        let file = file.expect("a golden vector").path();
        if file.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        for line in std::fs::read_to_string(&file).expect("golden vectors").lines() {
            if let Some(name) = line.strip_prefix("name=") {
                vectors.push((name.to_owned(), Vec::new()));
            } else if let Some(hex) = line.strip_prefix("hex=") {
                let bytes = (0..hex.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
                vectors.last_mut().expect("a name first").1.extend(bytes);
            }
        }
    }
    vectors
}

/// Room for jumbo frames.
const ROOMY: Geometry = Geometry::plain(9, 1 << 16);
/// Who sends the golden vectors' packets: what most of them say.
const TOKEN: u64 = 0x0123_4567_89ab_cdef;
const PEER_EPOCH: u32 = 0xe90c_0001;
const FLOW: u32 = 5;

fn open(pair: &Pair, repeat: Repeat) {
    pair.reset();
    pair.both(|memory| {
        let flow = memory.flow(FLOW).expect("an entry of the table");
        receiver::open(flow, TOKEN, PEER_EPOCH, repeat, u64::MAX);
        answer::address(flow, 77, 0xfeed_beef_feed_beef);
    });
}

/// A DATA packet of the open flow.
fn data(psn: u64, flags: Flags, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, PEER_EPOCH);
    (header.token, header.flow, header.psn, header.flags) = (TOKEN, FLOW, Psn(psn), flags);
    header.body_bytes = body.len() as u16;
    [&header.encode()[..], body].concat()
}

#[test]
fn golden_vectors_mean_the_same() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    let vectors = golden();
    assert!(vectors.len() > 40, "only {} vectors", vectors.len());
    let mut deposited = 0;
    for wrapping in [false, true].map(|six| Wrapping { six, ..Wrapping::PLAIN }) {
        for (name, packet) in &vectors {
            // Most vectors are far from PSN 0; the receive bitmap is moved to them.
            open(&pair, Repeat::Selective);
            let psn = Header::decode(packet).map_or(0, |(header, ..)| header.psn.0);
            pair.both(|memory| {
                let flow = memory.flow(FLOW).expect("an entry of the table");
                receive_bitmap::restore(flow, Psn(psn), &Sack::EMPTY);
            });
            for _ in 0..2 {
                let verdict = pair.take(wrapping, packet).unwrap_or_else(|what| panic!("{name}: {what}"));
                deposited += u64::from(verdict == Some(Verdict::Deposited));
            }
        }
    }
    assert!(deposited >= 10, "only {deposited} were for the flow");
}

#[test]
fn a_body_of_every_length_is_deposited_whole() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    for (six, vlan) in [(false, false), (false, true), (true, false), (true, true)] {
        open(&pair, Repeat::Selective);
        for bytes in 0..300u16 {
            let body: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let wrapping = Wrapping { six, vlan, trailer: usize::from(bytes % 4) };
            let taken = pair.take(wrapping, &data(bytes.into(), Flags(0), &body));
            assert_eq!(taken, Ok(Some(Verdict::Deposited)), "{bytes} bytes");
            pair.both(|memory| {
                let tail = memory.control().ring_tail.0.load(Ordering::Relaxed);
                queue::release(memory, tail + Record::span(bytes));
            });
        }
    }
}

#[test]
fn a_jumbo_frame_is_deposited_whole() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let body: Vec<u8> = (0..8924u32).map(|at| (at * 7) as u8).collect();
    for (psn, bytes) in [3100, 3400, 3500, 4096, 8000, 8924, 0, 1].into_iter().enumerate() {
        let packet = data(psn as u64, Flags::ACK_REQUEST, &body[..bytes]);
        let verdict =
            pair.take(Wrapping::PLAIN, &packet).unwrap_or_else(|what| panic!("{bytes} bytes: {what}"));
        assert_eq!(verdict, Some(Verdict::Deposited), "{bytes} bytes");
    }
    // The ring is 64 KiB and has 32 KiB in it: the wrap into the pad, then full.
    let verdicts: Vec<_> = (8..16)
        .map(|psn| pair.take(Wrapping::PLAIN, &data(psn, Flags(0), &body)).expect("the same"))
        .collect();
    assert_eq!(verdicts[0], Some(Verdict::Deposited));
    assert_eq!(verdicts[7], Some(Verdict::Full));
    pair.both(|memory| {
        queue::release(memory, memory.control().ring_head.0.load(Ordering::Relaxed) - Record::span(8924))
    });
    let verdict = pair.take(Wrapping::PLAIN, &data(8 + 4, Flags(0), &body));
    assert_eq!(verdict, Ok(Some(Verdict::Deposited)), "into the pad");
}

#[test]
fn packets_out_of_order_are_answered_with_every_length_of_bitmap() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    for start in [0, 1, 31, 1 << 20, (1 << 37) - 40] {
        open(&pair, Repeat::Selective);
        pair.both(|memory| {
            let flow = memory.flow(FLOW).expect("an entry of the table");
            receive_bitmap::restore(flow, Psn(start), &Sack::EMPTY);
        });
        for six in [false, true] {
            for psn in (1..1000).step_by(if six { 7 } else { 13 }).chain([0]) {
                let packet = data(start + psn, Flags(0), &[psn as u8; 8]);
                let taken = pair.take(Wrapping { six, ..Wrapping::PLAIN }, &packet);
                taken.unwrap_or_else(|what| panic!("{psn} from {start}: {what}"));
            }
        }
        // The gaps between are filled from the end: the base moves once, over all of it.
        for psn in (0..992).rev() {
            let taken = pair.take(Wrapping::PLAIN, &data(start + psn, Flags(0), &[]));
            taken.unwrap_or_else(|what| panic!("back at {psn} from {start}: {what}"));
        }
        let flow = pair.rust.flow(FLOW).expect("an entry of the table");
        assert!(receive_bitmap::base(flow).0 >= start + 992);
    }
}

#[test]
fn credit_and_acknowledgements_are_bounded() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    // What the peer acknowledges is its word: it may be anything, and never goes back.
    for (psn, (ack, credit)) in [(9, 9), (3, 100), (u64::MAX - 3, 10), (5, 5)].into_iter().enumerate() {
        let mut header = Header::decode(&data(psn as u64, Flags::HAS_ACK, &[])).expect("our own packet").0;
        (header.ack, header.credit) = (Psn(ack), credit);
        assert_eq!(pair.take(Wrapping::PLAIN, &header.encode()), Ok(Some(Verdict::Deposited)));
    }
    // A base beyond the credit, as after a resumption with less of it.
    pair.both(|memory| {
        let flow = memory.flow(FLOW).expect("an entry of the table");
        flow.limit.store(1, Ordering::Relaxed);
    });
    assert_eq!(pair.take(Wrapping::PLAIN, &data(0, Flags(0), &[])), Ok(Some(Verdict::Duplicate)));
    assert_eq!(pair.take(Wrapping::PLAIN, &data(4, Flags(0), &[])), Ok(Some(Verdict::Beyond)));
}

#[test]
fn what_is_not_ours_is_left_to_the_kernel() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let good = Wrapping::PLAIN.question(&data(0, Flags(0), &[1; 40]));
    let six = Wrapping { six: true, ..Wrapping::PLAIN }.question(&data(0, Flags(0), &[1; 40]));
    let edit = |frame: &[u8], edits: &[(usize, u8)]| {
        let mut frame = frame.to_vec();
        edits.iter().for_each(|(at, byte)| frame[*at] = *byte);
        frame
    };
    let mut strangers = vec![
        ("another port", edit(&good, &[(37, 0)])),
        ("TCP", edit(&good, &[(23, 6)])),
        ("ARP", edit(&good, &[(12, 8), (13, 6)])),
        ("IPv4 that says 6", edit(&good, &[(14, 0x65)])),
        ("options", edit(&good, &[(14, 0x46)])),
        ("a first fragment", edit(&good, &[(20, 0x20)])),
        ("a later fragment", edit(&good, &[(21, 9)])),
        ("IP longer than the frame", edit(&good, &[(16, 1)])),
        ("IP shorter than its headers", edit(&good, &[(16, 0), (17, 27)])),
        ("UDP longer than IP", edit(&good, &[(38, 1)])),
        ("UDP shorter than its header", edit(&good, &[(38, 0), (39, 7)])),
        ("IPv6 that says 4", edit(&six, &[(14, 0x45)])),
        ("an extension header", edit(&six, &[(20, 44)])),
        ("IPv6 longer than the frame", edit(&six, &[(18, 1)])),
        ("a tag and nothing", edit(&good[..18], &[(12, 0x81), (13, 0)])),
        ("two tags", edit(&good, &[(12, 0x81), (13, 0), (16, 0x81), (17, 0)])),
    ];
    for bytes in 14..90 {
        strangers.push(("cut short", good[..bytes].to_vec()));
    }
    for (name, frame) in strangers {
        let (action, left) = pair.run_xdp(&frame);
        assert_eq!((action, left == frame), (Action::Pass, true), "{name}");
        pair.compare().unwrap_or_else(|what| panic!("{name}: {what}"));
    }
    // Several packets in one datagram are the owner's to cut apart, and so is everything but DATA and PROBE.
    let two = [data(0, Flags(0), &[1]), data(1, Flags(0), &[2])].concat();
    assert_eq!(pair.take(Wrapping::PLAIN, &two), Ok(None));
    for kind in Kind::ALL {
        let mut header = Header::new(kind, PEER_EPOCH);
        (header.token, header.flow) = (TOKEN, FLOW);
        let verdict = pair.take(Wrapping::PLAIN, &header.encode());
        assert_eq!(verdict, Ok((kind == Kind::Data).then_some(Verdict::Deposited)), "{kind:?}");
    }
    // Packets of another version are the owner's: it must see handshakes, and answers to its own.
    for kind in Kind::ALL {
        let mut packet = Header::new(kind, PEER_EPOCH).encode();
        packet[0] += 1;
        assert_eq!(pair.take(Wrapping::PLAIN, &packet), Ok(None), "{kind:?}");
        if matches!(kind, Kind::Hello | Kind::Reset) {
            assert_eq!(pair.run_xdp(&Wrapping::PLAIN.question(&packet)).0, Action::Pass, "{kind:?}");
        }
    }
    // Memory that nobody owns.
    pair.xdp.memory.control().epoch.store(0, Ordering::Relaxed);
    assert_eq!(pair.run_xdp(&good).0, Action::Pass);
}

#[test]
fn the_bell_rings_for_a_sleeper_only() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    assert_eq!(pair.take(Wrapping::PLAIN, &data(0, Flags(0), &[1])), Ok(Some(Verdict::Deposited)));
    assert!(!pair.rung(), "nobody sleeps");
    pair.both(|memory| memory.control().sleeping.0.store(1, Ordering::Release));
    assert_eq!(pair.take(Wrapping::PLAIN, &data(0, Flags(0), &[1])), Ok(Some(Verdict::Duplicate)));
    assert!(!pair.rung(), "a duplicate is no news");
    assert_eq!(pair.take(Wrapping::PLAIN, &data(1, Flags(0), &[1])), Ok(Some(Verdict::Deposited)));
    assert!(pair.rung());
    // Once, until the owner sleeps again; packets are deposited all the same.
    for psn in 2..900 {
        assert_eq!(pair.take(Wrapping::PLAIN, &data(psn, Flags(0), &[])), Ok(Some(Verdict::Deposited)));
    }
}

#[test]
fn garbage_in_its_own_memory_hurts_its_owner_only() {
    let geometry = Geometry { window_pages: 3, translations: 8, ..GEOMETRY };
    let Some(mut pair) = Pair::load(geometry) else { return };
    // A socket, so that nobody finds the owner dead whenever there is garbage in `checked_at`.
    owner::alone();
    let _socket = owner::socket("::");
    let neighbour = pair.receiver.endpoint(frames::PORT + 1).unwrap_or_else(|error| panic!("{error}")).memory;
    let before: Vec<u64> = neighbour.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    };
    let (mut answered, mut deposited, mut direct_writes) = (0, 0, 0);
    for round in 0..6000 {
        let memory = &pair.xdp.memory;
        if round % 4 == 0 {
            for word in memory.words() {
                // Small numbers go further than random ones; so do all ones.
                let value = [random(), random() >> 58, u64::MAX, u64::MAX - (random() >> 58)]
                    [(random() >> 40) as usize % 4];
                word.store(value, Ordering::Relaxed);
            }
        }
        // A packet that fits what the memory says, so that it goes as far as it can.
        let index = (random() >> 40) as u32 % GEOMETRY.flows;
        let flow = memory.flow(index).expect("an entry of the table");
        let base = flow.received.0.base.load(Ordering::Relaxed);
        if round % 2 == 0 {
            let block = base / 32;
            for at in 0..32 {
                let word = (block + at) << 32 | (random() & 0xffff_ffff) & !u64::from(at == 0);
                flow.bitmap.0[(block + at) as usize % 32].store(word, Ordering::Relaxed);
            }
            let head = memory.control().ring_head.0.load(Ordering::Relaxed);
            memory.control().ring_tail.0.store(head.wrapping_sub(random() >> 53), Ordering::Relaxed);
            flow.limit.store(u64::MAX, Ordering::Relaxed);
            // Seldom, or nothing would be answered.
            memory.control().answers_left.store(u32::from(random() >> 60 == 0), Ordering::Relaxed);
            for translation in memory.translations() {
                translation.key.store(1 + (random() >> 63), Ordering::Relaxed);
                let place = Translation::place_of(random() >> 62, (random() >> 61) as u32);
                translation.place.store(place, Ordering::Relaxed);
            }
        }
        let kind = if round % 8 == 5 { Kind::Probe } else { Kind::Data };
        let mut header = Header::new(kind, flow.epoch.load(Ordering::Relaxed).max(1));
        flow.epoch.store(header.epoch, Ordering::Relaxed);
        (header.token, header.flow) = (flow.token.load(Ordering::Relaxed), index);
        header.psn = Psn(base.wrapping_add(random() >> 55));
        header.flags = Flags(random() as u8 & 7);
        (header.ack, header.credit) = (Psn(random()), random() as u16);
        let mut body = vec![0x5a; (random() >> 40) as usize % 1400];
        if round % 3 != 0 && body.len() >= REMOTE_BYTES {
            let (opcode, address) = (Opcode::Piece as u16, random() >> 50);
            let remote = RemoteFrame { opcode, key: 1 + (random() >> 63), address, operation: random() };
            let data = body.len() - REMOTE_BYTES;
            body[..REMOTE_BYTES].copy_from_slice(&remote.encode(data as u32));
        }
        header.body_bytes = body.len() as u16;
        let wrapping = Wrapping { six: random() >> 63 != 0, ..Wrapping::PLAIN };
        let question = wrapping.question(&[&header.encode()[..], &body].concat());
        let count = |pair: &Pair| {
            [Counter::Deposited, Counter::DirectWrites]
                .map(|counter| pair.xdp.memory.control().counters.0[counter as usize].load(Ordering::Relaxed))
        };
        let before = count(&pair);
        let action = pair.run_xdp(&question).0;
        assert!(
            matches!(action, Action::Transmit | Action::Drop | Action::Pass),
            "round {round}: {action:?}"
        );
        answered += u64::from(action == Action::Transmit);
        let after = count(&pair);
        deposited += after[0].wrapping_sub(before[0]);
        direct_writes += after[1].wrapping_sub(before[1]);
    }
    println!("{answered} answered, {deposited} deposited, {direct_writes} direct writes");
    assert!(
        answered > 1000 && deposited > 500 && direct_writes > 100,
        "{answered}, {deposited}, {direct_writes}"
    );
    let after = neighbour.words().iter().map(|word| word.load(Ordering::Relaxed));
    assert!(before.into_iter().eq(after), "the neighbour's memory was written");
}

#[test]
fn a_receive_bitmap_that_has_moved_on_meanwhile_is_read_as_full() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    // As another CPU leaves it that has moved the base after this one read it: words of newer blocks.
    pair.both(|memory| {
        let flow = memory.flow(FLOW).expect("an entry of the table");
        flow.bitmap.0[3].store(35 << 32 | 1, Ordering::Relaxed);
        flow.bitmap.0[31].store(63 << 32, Ordering::Relaxed);
        flow.received.0.newest.store(63, Ordering::Relaxed);
    });
    for (psn, verdict) in [(100, Verdict::Duplicate), (1023, Verdict::Duplicate), (1, Verdict::Deposited)] {
        assert_eq!(
            pair.take(Wrapping::PLAIN, &data(psn, Flags::ACK_REQUEST, &[])),
            Ok(Some(verdict)),
            "{psn}"
        );
    }
}

#[test]
fn now_and_then_a_stranger_is_passed_to_the_owner() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let mut stranger = |change: &dyn Fn(&mut Header), kind, number: u32| {
        let mut header = Header::new(kind, PEER_EPOCH);
        (header.token, header.flow) = (TOKEN, FLOW);
        change(&mut header);
        let wrapping = Wrapping { six: number.is_multiple_of(3), ..Wrapping::PLAIN };
        pair.fate(wrapping, &header.encode()).expect("the same")
    };
    let one_in = |kind| if kind == Kind::Probe { 8 } else { 64 };
    let told = |number, kind| if number % one_in(kind) == 0 { Fate::Pass } else { Fate::Drop };
    for number in 0..200 {
        let kind = if number % 5 == 0 { Kind::Probe } else { Kind::Data };
        // Each kind of stranger by itself; of another epoch nobody is left who could be told.
        let closed = stranger(&|header| header.flow = 4, kind, number);
        assert_eq!(closed, (told(number, kind), Some(Verdict::UnknownFlow)), "{number}");
        let wrong = stranger(&|header| header.token ^= 1 << 63, kind, number);
        assert_eq!(wrong, (told(number, kind), Some(Verdict::WrongToken)), "{number}");
        let earlier = stranger(&|header| header.epoch ^= 1, kind, number);
        assert_eq!(earlier, (Fate::Drop, Some(Verdict::WrongEpoch)), "{number}");
        // No entry of the table at all is the same counter. 64 of them, and the count goes on where it was.
        if number == 130 {
            let beyond = |_| stranger(&|header| header.flow = u32::MAX, kind, number);
            let fates: Vec<_> = (0..64).map(beyond).collect();
            assert!(fates.iter().all(|(_, verdict)| *verdict == Some(Verdict::UnknownFlow)));
            assert_eq!(
                fates.iter().filter(|(fate, _)| *fate == Fate::Pass).count() as u32,
                64 / one_in(kind)
            );
        }
    }
}

#[test]
fn a_block_that_is_said_to_have_bits_may_have_none() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    for newest in [1, 31, 32, 63, u64::MAX] {
        open(&pair, Repeat::Selective);
        // As another CPU leaves it that is about to claim a packet, or somebody who writes what he likes.
        pair.both(|memory| {
            let flow = memory.flow(FLOW).expect("an entry of the table");
            flow.received.0.newest.store(newest, Ordering::Relaxed);
        });
        for (number, psn) in [0, 1, 2, 5, 3, 4].into_iter().enumerate() {
            let wrapping = Wrapping { six: number % 2 != 0, ..Wrapping::PLAIN };
            let packet = data(psn, Flags::ACK_REQUEST, &[]);
            assert_eq!(pair.take(wrapping, &packet), Ok(Some(Verdict::Deposited)), "{psn}, {newest}");
        }
    }
}

/// Has two CPUs bring the same packets, `packet` makes them of their PSNs, now and then in another order and no further
/// apart than the receive bitmap is long; `look` sees what each run left behind.
fn on_two_cpus<L: FnMut(Action, &[u8])>(
    receiver: &Receiver,
    packets: u64,
    packet: impl Fn(u64) -> Vec<u8> + Sync,
    look: impl Fn() -> L + Sync,
) {
    const APART_MAX: u64 = 64;
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (done, packet, look) = (&done, &packet, &look);
            scope.spawn(move || {
                let _leave = Leave(&done[me]);
                let (mut out, mut look) = ([0; 4096], look());
                for number in 0..packets {
                    while number
                        > done[1 - me].load(Ordering::Acquire) + if number % 3 == 0 { 0 } else { APART_MAX }
                    {
                        std::hint::spin_loop();
                    }
                    let psn = if number % 16 >= 8 + 4 * me as u64 { number ^ 3 } else { number };
                    let run = receiver.run(&Wrapping::PLAIN.question(&packet(psn)), &mut out, 1);
                    let run = run.unwrap_or_else(|error| panic!("{error}"));
                    assert!(matches!(run.action, Action::Transmit | Action::Drop), "{:?}", run.action);
                    look(run.action, &out[..run.frame_bytes]);
                    done[me].store(number + 1, Ordering::Release);
                }
            });
        }
    });
}

/// Lets whoever waits for this one go on, also after a failure.
struct Leave<'d>(&'d AtomicU64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX / 2, Ordering::Release);
    }
}

#[test]
fn two_cpus_deposit_every_packet_once() {
    const PACKETS: u64 = 60_000;
    let Some(pair) = Pair::load(Geometry::plain(9, 1 << 23)) else { return };
    open(&pair, Repeat::Selective);
    let packet = |psn: u64| data(psn, Flags::ACK_REQUEST, &psn.to_le_bytes());
    on_two_cpus(&pair.receiver, PACKETS, packet, || {
        let mut acknowledged = Psn(0);
        move |action, frame| {
            if action == Action::Transmit {
                let ack = Header::decode(&frame[Wrapping::PLAIN.bytes()..]).expect("an answer").0.ack;
                assert!(ack >= acknowledged, "the base went from {acknowledged:?} back to {ack:?}");
                acknowledged = ack;
            }
        }
    });
    let memory = View(&pair.xdp.memory);
    let head = memory.control().ring_head.0.load(Ordering::Acquire);
    let (mut at, mut seen, mut padding) = (0, vec![false; PACKETS as usize], 0);
    while at < head {
        let record =
            queue::read(&memory, at).unwrap_or_else(|| panic!("nothing published at {at} of {head}"));
        if record.flow == Record::PADDING {
            padding += 1;
        } else {
            // SAFETY: the program has stopped running, and no record was released.
            let body = unsafe { pair.xdp.memory.bytes(at + Record::HEADER_BYTES, record.bytes.into()) };
            assert_eq!((record.flow, body), (FLOW, &record.psn.to_le_bytes()[..]));
            assert!(!std::mem::replace(&mut seen[record.psn as usize], true), "{} twice", record.psn);
        }
        at += Record::span(record.bytes);
    }
    assert!(seen.iter().all(|seen| *seen));
    let flow = memory.flow(FLOW).expect("an entry of the table");
    assert_eq!(receive_bitmap::base(flow), Psn(PACKETS));
    let counters = &memory.control().counters.0;
    let [deposited, duplicate] = [0, 1].map(|counter: usize| counters[counter].load(Ordering::Relaxed));
    println!("{padding} races for a packet");
    assert_eq!((deposited, duplicate), (PACKETS, PACKETS));
}
