//! When messages leave whose sender makes no further call.

use crate::pair::*;
use std::time::Instant;
use tsumugi::message::MessageOptions;

/// So many messages are there, while the sender makes no call.
fn arrive(pair: &mut Pair, count: usize) {
    let begun = Instant::now();
    while pair.to.unexpected() < count {
        pair.to.progress().unwrap();
        assert!(begun.elapsed() < PATIENCE, "{} have come", pair.to.unexpected());
    }
}

#[test]
fn a_message_behind_others_leaves_when_it_is_pushed() {
    let mut pair = pair(&MessageOptions::default());
    assert!(!pair.here.connect(pair.peer).unwrap(), "it has not answered yet");
    pair.until(|pair| pair.here.connect(pair.peer).unwrap().then_some(()));
    for tag in 0..4 {
        if tag % 2 == 0 {
            pair.from.inject(pair.peer, tag, b"behind others").unwrap();
        } else {
            pair.from.send(pair.peer, tag, b"behind others").unwrap();
            pair.here.push(pair.peer).unwrap();
        }
        assert!(pair.here.is_handed_over(pair.peer));
    }
    arrive(&mut pair, 4);
}

#[test]
fn a_long_run_of_pushed_messages_shares_packets_and_leaves_with_the_next_call() {
    let mut pair = pair(&MessageOptions::default());
    pair.deliver(0, b"hello");
    let before = pair.here.counters().get("packets_sent");
    for tag in 1..=100 {
        pair.from.inject(pair.peer, tag, b"one of many").unwrap();
    }
    assert!(!pair.here.is_handed_over(pair.peer), "nobody has acknowledged anything");
    pair.here.progress().unwrap();
    arrive(&mut pair, 101);
    let packets = pair.here.counters().get("packets_sent") - before;
    assert!(packets < 20, "100 messages took {packets} packets");
}

#[test]
fn what_was_acknowledged_meanwhile_is_looked_for() {
    let mut pair = pair(&MessageOptions::default());
    pair.deliver(0, b"hello");
    for tag in 1..=40 {
        pair.from.send(pair.peer, tag, b"one after the other").unwrap();
        // Its receiver acknowledges, and that alone makes room: the sender makes no call but this.
        let begun = Instant::now();
        while !pair.here.is_handed_over(pair.peer) {
            pair.to.progress().unwrap();
            pair.here.push(pair.peer).unwrap();
            assert!(begun.elapsed() < PATIENCE, "message {tag} waits");
        }
    }
    arrive(&mut pair, 41);
}

#[test]
fn a_receiver_that_makes_no_further_call_has_acknowledged_what_somebody_waits_for() {
    let mut pair = pair(&MessageOptions::default());
    pair.deliver(0, b"hello");
    pair.here.want_ack(pair.peer);
    let mut request = pair.from.send(pair.peer, 1, b"awaited").unwrap();
    let ticket = pair.from.test(&mut request).unwrap().expect("a copy is sent at once").ticket.unwrap();
    arrive(&mut pair, 2);
    let begun = Instant::now();
    while pair.here.status(ticket) != tsumugi::TicketStatus::Delivered {
        pair.here.progress().unwrap();
        assert!(begun.elapsed() < PATIENCE, "it is not acknowledged");
    }
}
