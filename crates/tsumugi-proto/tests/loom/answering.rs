//! Answers that are owed, and who gives them.

use super::{Small, explore};
use loom::sync::Arc;
use loom::thread;
use tsumugi_proto::answer;
use tsumugi_wire::Kind;
use tsumugi_wire::atomic::Ordering;

#[test]
fn what_is_owed_is_answered_once() {
    explore(4, || {
        let memory = Arc::new(Small::windowed(2, true));
        let owing = thread::spawn({
            let memory = Arc::clone(&memory);
            move || answer::owe(&*memory, &memory.flow, Kind::Ack, true)
        });
        // A packet in one buffer, which is answered where it arrives.
        let passing = thread::spawn({
            let memory = Arc::clone(&memory);
            move || answer::take_owed(&memory.flow, None).is_some()
        });
        let look = || {
            memory.control.owed.0.load(Ordering::Relaxed) != 0 && {
                memory.control.owed.0.swap(0, Ordering::AcqRel);
                answer::take_owed(&memory.flow, None).is_some()
            }
        };
        let early = look();
        owing.join().unwrap();
        let answers = [early, passing.join().unwrap(), look()];
        assert_eq!(answers.iter().filter(|is_answer| **is_answer).count(), 1, "{answers:?}");
        assert_eq!(memory.flow.received.0.owed.load(Ordering::Relaxed), 0);
    });
}
