//! A bounded fuzz that runs with every `cargo test`: the golden vectors, damaged from fixed seeds.
//!
//! The fuzz targets in `fuzz/` run the same checks without an end, guided by coverage.

mod common;

use common::exercise::{self, Reached, seal};
use common::mutate::{Random, mutant};
use tsumugi_wire::header::{HEADER_BYTES, Header};
use tsumugi_wire::{Kind, Psn};

const SEEDS: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
const INPUTS_PER_SEED: usize = 50_000;

fn packets() -> Vec<Vec<u8>> {
    common::load().into_iter().map(|vector| vector.bytes).collect()
}

/// Runs `check` on every mutant; a failure names the input, which a fuzz target or a new vector can take up.
fn for_each_mutant(mut check: impl FnMut(&[u8])) {
    let packets = packets();
    for seed in SEEDS {
        let mut random = Random(seed);
        for number in 0..INPUTS_PER_SEED {
            let bytes = mutant(&mut random, &packets);
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bytes)));
            assert!(run.is_ok(), "seed {seed}, input {number}: {bytes:02x?}");
        }
    }
}

#[test]
fn damaged_packets_are_read_or_refused() {
    let mut reached = [0usize; 3];
    let mut multicasts = [0usize; 3];
    for_each_mutant(|bytes| {
        let how_far = exercise::packet(bytes) as usize;
        reached[how_far] += 1;
        if matches!(Header::kind_in_any_version(bytes), Some(Kind::Multicast | Kind::Relay)) {
            multicasts[how_far] += 1;
        }
    });
    // What this test is worth shows in how far its inputs get.
    let [nothing, header, body] = reached;
    println!("{nothing} refused by the header, {header} by the body, {body} accepted");
    assert!(header > INPUTS_PER_SEED && body > INPUTS_PER_SEED, "too few inputs get past the header check");
    assert_eq!(nothing + header + body, SEEDS.len() * INPUTS_PER_SEED);
    let [nothing, header, body] = multicasts;
    println!("for several receivers: {nothing} refused by the header, {header} by the body, {body} accepted");
    assert!(header > 1000 && body > 1000, "too few for several receivers get past the header check");
}

#[test]
fn damaged_bodies_are_read_or_refused() {
    let mut random = Random(0);
    for_each_mutant(|bytes| {
        let body = bytes.get(HEADER_BYTES..).unwrap_or(bytes);
        exercise::frames(body);
        exercise::sack(Psn(random.next() >> random.below(64)), body);
        exercise::offer(body);
        exercise::group(body);
        exercise::table(
            bytes.get(40..42).map_or(1, |credit| u16::from_le_bytes([credit[0], credit[1]])),
            body,
        );
    });
}

#[test]
fn the_check_written_twice_is_the_same() {
    let mut seen = 0;
    for_each_mutant(|bytes| {
        let mut sealed = bytes.to_vec();
        seal(&mut sealed);
        if let Ok((header, ..)) = Header::decode(&sealed) {
            assert_eq!(header.encode(), sealed[..HEADER_BYTES]);
            seen += 1;
        }
    });
    assert!(seen > INPUTS_PER_SEED);
    assert_eq!(Reached::Nothing, exercise::packet(&[]));
}
