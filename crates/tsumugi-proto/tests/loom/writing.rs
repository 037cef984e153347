//! Direct writes, which pass the queue by, and the translations that they go by.

use super::{KEY, Owner, Small, cache, explore, receive_path};
use loom::sync::Arc;
use loom::thread;
use tsumugi_proto::receiver::{self, Verdict};
use tsumugi_proto::translation;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::remote::Opcode;

#[test]
fn a_direct_write_that_has_its_turn_comes_after_what_was_before_it() {
    explore(4, || {
        let memory = Arc::new(Small::windowed(2, true));
        let piece = thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.write_directly(Opcode::Piece, 0)
        });
        let write = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                let verdict = memory.write_directly(Opcode::Write, 1);
                if verdict.is_some() {
                    assert!(memory.is_written(0), "it was written before what was sent before it");
                }
                verdict
            }
        });
        assert_eq!(piece.join().unwrap(), Some(Verdict::WrittenDirectly));
        match write.join().unwrap() {
            Some(verdict) => assert_eq!((verdict, memory.base()), (Verdict::WrittenDirectly, 2)),
            None => assert_eq!(memory.base(), 1),
        }
        assert!(receiver::no_direct_write_in_progress(&memory.flow));
    });
}

#[test]
fn no_short_write_is_written_directly_while_packets_before_it_are_held() {
    explore(3, || {
        let memory = Arc::new(Small::windowed(2, true));
        memory.flow.direct_writes.0.held.store(1, Ordering::Relaxed);
        let pieces = [(); 2].map(|()| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write_directly(Opcode::Piece, 1))
        });
        assert_eq!((memory.write_directly(Opcode::Write, 0), memory.base()), (None, 0));
        // A piece goes to its place at any time.
        pieces.into_iter().for_each(|it| assert!(it.join().unwrap().is_some()));
        memory.flow.direct_writes.0.held.store(0, Ordering::Relaxed);
        assert_eq!(memory.write_directly(Opcode::Write, 0), Some(Verdict::WrittenDirectly));
    });
}

#[test]
fn one_psn_is_written_directly_once() {
    explore(4, || {
        let memory = Arc::new(Small::windowed(2, true));
        let direct_writes = [(); 2].map(|()| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write_directly(Opcode::Piece, 0))
        });
        let mut verdicts = direct_writes.map(|it| it.join().unwrap().unwrap());
        verdicts.sort_by_key(|verdict| *verdict != Verdict::WrittenDirectly);
        assert_eq!(verdicts, [Verdict::WrittenDirectly, Verdict::Duplicate]);
        assert!(receiver::no_direct_write_in_progress(&memory.flow) && memory.is_written(0));
        assert_eq!((memory.base(), memory.flow.direct_writes.0.done.load(Ordering::Relaxed)), (1, 1));
    });
}

#[test]
fn the_owner_passes_over_finished_direct_writes_only() {
    explore(3, || {
        let memory = Arc::new(Small::windowed(2, true));
        let piece = thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.write_directly(Opcode::Piece, 0)
        });
        let record = receive_path(&memory, 1);
        let mut owner = Owner::default();
        for _ in 0..2 {
            owner.read(&memory);
            // As an endpoint looks: the base, the direct writes in progress, the queue's head.
            let base = memory.base();
            let none_in_progress = receiver::no_direct_write_in_progress(&memory.flow);
            if none_in_progress && memory.control.ring_head.0.load(Ordering::Acquire) == owner.read {
                assert!(base == 0 || memory.is_written(0), "what was passed over is not written");
                assert!(base < 2 || owner.seen == [Some(1)], "its record has not been read");
            }
        }
        assert_eq!(piece.join().unwrap(), Some(Verdict::WrittenDirectly));
        assert_eq!(record.join().unwrap(), Verdict::Deposited);
        assert_eq!(memory.base(), 2);
    });
}

#[test]
fn a_translation_is_whole() {
    explore(4, || {
        let memory = Arc::new(Small::windowed(1, false));
        let looking = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                [1, 2].map(|number| translation::look_up(&*memory, KEY + number, 5).map(|found| found.frame))
            }
        });
        // One page of addresses lies elsewhere under another key; there is room for one of them.
        let mut cache = cache();
        cache.install(&*memory, KEY + 1, 5, 0);
        cache.install(&*memory, KEY + 2, 5, 1);
        let [one, other] = looking.join().unwrap();
        assert!(matches!(one, None | Some(0)) && matches!(other, None | Some(1)), "{one:?}, {other:?}");
    });
}
