//! Packets that become records of the queue, while the owner reads.

use super::{Owner, Small, explore, receive_path};
use loom::sync::Arc;
use loom::thread;
use tsumugi_proto::receive_bitmap::{self, Claim};
use tsumugi_proto::receiver::Verdict;
use tsumugi_wire::Psn;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::Counter;

#[test]
fn two_psns_are_both_deposited() {
    explore(3, || {
        let memory = Arc::new(Small::at(0, 2));
        let receive_paths = [receive_path(&memory, 0), receive_path(&memory, 1)];
        let mut owner = Owner::default();
        owner.read(&memory);
        assert_eq!(receive_paths.map(|it| it.join().unwrap()), [Verdict::Deposited; 2]);
        assert_eq!(owner.finish(&memory), [Some(0), Some(1)]);
        assert_eq!(memory.base(), 2, "both are before the base");
        assert_eq!(memory.counted(Counter::Deposited), 2);
    });
}

#[test]
fn one_psn_is_deposited_once() {
    explore(3, || {
        let memory = Arc::new(Small::at(0, 2));
        let receive_paths = [receive_path(&memory, 0), receive_path(&memory, 0)];
        let mut owner = Owner::default();
        owner.read(&memory);
        let mut verdicts = receive_paths.map(|it| it.join().unwrap());
        verdicts.sort_by_key(|verdict| *verdict != Verdict::Deposited);
        assert_eq!(verdicts, [Verdict::Deposited, Verdict::Duplicate]);
        // Who sees the other's bit before it claims space leaves no trace, who sees it later leaves padding.
        let seen = owner.finish(&memory);
        assert!(seen == [Some(0)] || seen == [Some(0), None], "{seen:?}");
        assert_eq!(memory.base(), 1);
        assert_eq!(memory.counted(Counter::Duplicate), 1);
    });
}

/// A full ring of two records: the owner reads and releases one after the other, while receive paths look for room.
fn against_a_full_ring(receive_paths: &'static [&'static [u64]], preemptions: usize) {
    explore(preemptions, move || {
        let memory = Arc::new(Small::at(0, 2));
        assert_eq!([0, 1].map(|psn| memory.deposit(psn)), [Verdict::Deposited; 2]);
        let threads = Vec::from_iter(receive_paths.iter().map(|psns| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || Vec::from_iter(psns.iter().map(|psn| (*psn, memory.deposit(*psn)))))
        }));
        let mut owner = Owner::default();
        for _ in 0..2 {
            assert!(owner.read(&memory), "was overwritten");
            owner.release(&memory);
        }
        let verdicts = Vec::from_iter(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
        let mut expected = vec![Some(0), Some(1)];
        for (psn, verdict) in &verdicts {
            match verdict {
                Verdict::Deposited => expected.push(Some(*psn)),
                Verdict::Full => assert_eq!(memory.control.xoff.0.load(Ordering::Acquire), 1),
                other => panic!("{psn}: {other:?}"),
            }
        }
        expected.sort();
        let (taken, base) = (expected.len() as u64, memory.base());
        assert_eq!(owner.finish(&memory), expected);
        assert_eq!(memory.counted(Counter::QueueFull), 4 - taken);
        // A refused packet was not taken: its PSN is still to be had.
        assert!(base == taken || !expected.contains(&Some(base)), "base {base} of {expected:?}");
        for (psn, verdict) in verdicts {
            let free = matches!(receive_bitmap::look(&memory.flow, Psn(psn)), Claim::Mine(_));
            assert_eq!(free, verdict == Verdict::Full, "{psn}");
        }
    });
}

#[test]
fn a_full_ring_is_never_overwritten() {
    against_a_full_ring(&[&[2, 3]], 5);
}

#[test]
fn a_full_ring_is_never_overwritten_by_two() {
    against_a_full_ring(&[&[2], &[3]], 2);
}
