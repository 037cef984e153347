//! PSNs that are claimed in the bitmap, its base that follows, and snapshots of both.

use super::{Small, explore};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicBool, Ordering as RealOrdering};
use tsumugi_proto::receive_bitmap::{self, Claim};
use tsumugi_wire::Psn;
use tsumugi_wire::ack::WORD_PSNS;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::{BITMAP_WORDS, Flow};

/// Threads that each claim PSNs of a flow whose base is `base`, beyond which `early` is deposited already.
fn claims_meet(base: u64, early: &'static [u64], threads: &'static [&'static [u64]], preemptions: usize) {
    explore(preemptions, move || {
        let memory = Arc::new(Small::at(base, 1));
        for psn in early {
            claim(&memory.flow, *psn);
        }
        let claiming = Vec::from_iter(threads.iter().map(|psns| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || psns.iter().for_each(|psn| claim(&memory.flow, *psn)))
        }));
        claiming.into_iter().for_each(|thread| thread.join().unwrap());
        let end = base + (early.len() + threads.iter().map(|psns| psns.len()).sum::<usize>()) as u64;
        assert_eq!(memory.base(), end, "the base stayed behind");
    });
}

/// What a receive path does to the bitmap for a packet that is nobody else's.
fn claim(flow: &Flow, psn: u64) {
    let Claim::Mine(word) = receive_bitmap::claim(flow, Psn(psn)) else {
        panic!("{psn} was claimed by one only")
    };
    receive_bitmap::advance(flow, Psn(psn), word);
}

#[test]
fn the_base_is_never_left_behind_at_a_word_boundary() {
    claims_meet(31, &[], &[&[31], &[32]], 5);
}

#[test]
fn the_base_is_never_left_behind_by_three() {
    claims_meet(31, &[], &[&[31], &[32], &[33]], 2);
    claims_meet(30, &[], &[&[30], &[31], &[32]], 2);
}

#[test]
fn the_base_is_never_left_behind_by_two_that_go_on() {
    claims_meet(31, &[33], &[&[31, 34], &[32, 35]], 4);
}

#[test]
fn the_base_is_never_left_behind_within_a_word() {
    claims_meet(0, &[], &[&[0], &[1], &[2]], 2);
    claims_meet(0, &[], &[&[1, 2], &[0, 3]], 4);
}

#[test]
fn the_base_is_never_left_behind_where_an_older_block_is_replaced() {
    // Block 33 takes the word of block 1, which is full.
    claims_meet(33 * 32 - 1, &[], &[&[33 * 32 - 1], &[33 * 32]], 5);
    claims_meet(33 * 32 - 1, &[], &[&[33 * 32 - 1, 33 * 32 + 2], &[33 * 32 + 1, 33 * 32]], 4);
}

#[test]
fn one_of_two_claims_wins_where_an_older_block_is_replaced() {
    explore(5, || {
        let memory = Arc::new(Small::at(33 * 32, 1));
        let claims = [(); 2].map(|()| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || receive_bitmap::claim(&memory.flow, Psn(33 * 32)))
        });
        let mine = claims.map(|it| matches!(it.join().unwrap(), Claim::Mine(_)));
        assert!(mine[0] != mine[1], "{mine:?}");
    });
}

/// Changes and orders nothing, but makes loom try more.
///
/// It tries another order of two accesses by two threads only where nobody has accessed the word between
/// them. A claim reads before it writes, which hides its write from a snapshot that only reads.
fn nudge(flow: &Flow, psn: u64) {
    flow.received.0.base.fetch_or(0, Ordering::Relaxed);
    flow.bitmap.0[(psn / WORD_PSNS) as usize % BITMAP_WORDS].fetch_or(0, Ordering::Relaxed);
}

/// Snapshots are taken while PSNs are claimed, each marked before it is.
fn snapshots_are_true(base: u64, early: &'static [u64], psns: &'static [u64], preemptions: usize) {
    explore(preemptions, move || {
        let memory = Arc::new(Small::at(base, 1));
        for psn in early {
            claim(&memory.flow, *psn);
        }
        // Not loom's: a mark is no part of the model, and orders nothing in it.
        let marks = std::sync::Arc::new(Vec::from_iter(psns.iter().map(|_| AtomicBool::new(false))));
        let claiming = thread::spawn({
            let (memory, marks) = (Arc::clone(&memory), std::sync::Arc::clone(&marks));
            move || {
                for (psn, mark) in psns.iter().zip(&*marks) {
                    mark.store(true, RealOrdering::SeqCst);
                    nudge(&memory.flow, *psn);
                    claim(&memory.flow, *psn);
                }
            }
        });
        let check = |before: Psn| {
            let (ack, sack) = receive_bitmap::snapshot(&memory.flow);
            assert!(ack >= before, "the base went back");
            let end = ack.max(sack.end(ack));
            for psn in (base..end.0).filter(|psn| *psn < ack.0 || sack.has(ack, Psn(*psn))) {
                let mark = psns.iter().position(|claimed| *claimed == psn);
                let claimed = mark.map_or(early.contains(&psn), |it| marks[it].load(RealOrdering::SeqCst));
                assert!(claimed, "{psn} was not claimed when the snapshot said so");
            }
            (ack, sack)
        };
        let (before, _) = check(Psn(base));
        claiming.join().unwrap();
        let (ack, sack) = check(before);
        assert!(
            psns.iter().all(|psn| *psn < ack.0 || sack.has(ack, Psn(*psn))),
            "a claim is missing at the end"
        );
    });
}

#[test]
fn a_snapshot_claims_nothing_that_was_not_claimed() {
    snapshots_are_true(31, &[33], &[32, 31, 35], 4);
}

#[test]
fn a_snapshot_is_true_while_an_older_block_is_replaced() {
    snapshots_are_true(33 * 32 - 1, &[], &[33 * 32 - 1, 33 * 32], 4);
}

#[test]
fn a_snapshot_is_true_while_the_bitmap_moves_on_beneath_it() {
    // The base leaves its block, whose word is taken for the block a bitmap's length further on.
    snapshots_are_true(33 * 32 - 1, &[33 * 32 + 5], &[33 * 32 - 1, 64 * 32 + 3], 4);
}

/// What a receive path does to the bitmap for a run of packets, of which others may have some. Returns how many it got.
fn claim_run(flow: &Flow, first: u64, packets: u64) -> u64 {
    let (mut mine, mut next, end) = (0, first, first + packets);
    while next < end {
        let (claimed, last) = receive_bitmap::claim_run(flow, Psn(next), end - next);
        if let Claim::Mine(word) = last {
            receive_bitmap::advance(flow, Psn(next + claimed - 1), word);
        }
        mine += claimed;
        next += claimed.max(1);
    }
    mine
}

/// Threads that each claim a run, given by its first PSN and its length, which together are all from `base` to `end`: each PSN has one
/// owner, and the base comes to the end.
fn runs_meet(base: u64, end: u64, runs: &'static [(u64, u64)], preemptions: usize) {
    explore(preemptions, move || {
        let memory = Arc::new(Small::at(base, 1));
        let claiming = Vec::from_iter(runs.iter().map(|(first, packets)| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || claim_run(&memory.flow, *first, *packets))
        }));
        let claimed: u64 = claiming.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!((claimed, memory.base()), (end - base, end));
    });
}

#[test]
fn runs_side_by_side_do_not_leave_the_base_behind() {
    runs_meet(30, 35, &[(30, 3), (33, 2)], 4);
    runs_meet(31, 66, &[(31, 34), (65, 1)], 3);
}

#[test]
fn what_two_runs_share_has_one_owner() {
    runs_meet(30, 34, &[(30, 3), (31, 3)], 3);
    runs_meet(31, 34, &[(31, 2), (31, 3)], 3);
}

#[test]
fn a_run_replaces_an_older_block_once() {
    runs_meet(33 * 32 - 1, 33 * 32 + 3, &[(33 * 32 - 1, 3), (33 * 32, 3)], 3);
}
