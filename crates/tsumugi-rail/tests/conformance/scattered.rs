//! Frames in several buffers: what they bring is deposited, and what they ask for is answered later. Such a frame is never
//! resized and never sent back: on veth and in generic mode that frees pages of the kernel that are in use.

use super::frames::Wrapping;
use super::pair::{FIRST_BUFFER_BYTES, Pair};
use super::probe::probe;
use super::window_writes::{START, WINDOW, cache, install, write};
use super::{FLOW, PEER_EPOCH, ROOMY, TOKEN, data, open};
use std::sync::atomic::Ordering;
use tsumugi_proto::translation::ReplacementChoice;
use tsumugi_proto::xdp::Fate;
use tsumugi_proto::{ReceiveMemory, Verdict, answer, queue, receiver};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{ASLEEP, Counter, Flow};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};

const ANSWER: Flags = Flags::HAS_ACK.with(Flags::ASK_BY_PROBE);

/// A body that no single buffer takes.
fn long() -> Vec<u8> {
    (0..8900u32).map(|at| (at * 7) as u8).collect()
}

/// Gives a packet to both, and tells the answer's header if there is one.
fn answered(pair: &mut Pair, packet: &[u8]) -> Option<Header> {
    match pair.fate(Wrapping::PLAIN, packet).expect("the same") {
        (Fate::Answer(answer), _) => Some(Header::decode(&answer).expect("an answer").0),
        (Fate::Drop, _) => None,
        (Fate::Pass, _) => panic!("passed"),
    }
}

fn flow(pair: &Pair) -> &Flow {
    pair.xdp.memory.flow(FLOW).expect("an entry of the table")
}

fn is_owed(pair: &Pair) -> (u32, u32) {
    let control = pair.xdp.memory.control();
    (control.owed.0.load(Ordering::Relaxed), flow(pair).received.0.owed.load(Ordering::Relaxed))
}

#[test]
fn a_long_packet_is_deposited_and_its_answer_goes_with_the_next_short_one() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    for next in [
        probe(0).encode().to_vec(),
        data(1, Flags(0), &[1]),
        data(0, Flags(0), &[1]), // a duplicate
        data(0, Flags::ACK_REQUEST, &[]),
    ] {
        open(&pair, Repeat::Selective);
        // None before it was asked in vain.
        let before = answered(&mut pair, &probe(0).encode()).expect("an answer");
        assert_eq!((before.flags, is_owed(&pair)), (Flags::HAS_ACK, (0, 0)));
        assert_eq!(answered(&mut pair, &data(0, Flags::ACK_REQUEST, &long())), None);
        assert_eq!(is_owed(&pair), (1, Kind::Ack as u32));
        let answer = answered(&mut pair, &next).expect("an answer");
        assert_eq!((answer.kind, answer.flags), (Kind::Ack, ANSWER));
        assert!(answer.ack >= Psn(1));
        assert_eq!(is_owed(&pair).1, 0, "answered");
        let again = answered(&mut pair, &data(2, Flags(0), &[1]));
        assert!(again.is_none() || answer.ack < Psn(2), "nothing more is owed");
    }
}

#[test]
fn a_long_packet_that_asks_for_nothing_owes_nothing() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    assert_eq!(answered(&mut pair, &data(0, Flags(0), &long())), None);
    assert_eq!(is_owed(&pair), (0, 0));
    assert_eq!(answered(&mut pair, &probe(0).encode()).expect("an answer").flags, Flags::HAS_ACK);
}

#[test]
fn a_short_packet_in_a_long_frame_is_not_answered_either() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let last = Wrapping::PLAIN.question(&data(0, Flags(0), &[])).len();
    for (psn, trailer, several) in [
        (0, FIRST_BUFFER_BYTES - last, false),
        (1, FIRST_BUFFER_BYTES - last + 1, true),
        (2, 2 * FIRST_BUFFER_BYTES, true),
    ] {
        let packet = data(psn, Flags::ACK_REQUEST, &[]);
        let wrapping = Wrapping { trailer, ..Wrapping::PLAIN };
        let (fate, verdict) = pair.fate(wrapping, &packet).expect("the same");
        assert_eq!((fate == Fate::Drop, verdict), (several, Some(Verdict::Deposited)), "{psn}");
        // So is a question.
        let (fate, _) = pair.fate(wrapping, &probe(0).encode()).expect("the same");
        assert_eq!(fate == Fate::Drop, several, "{psn}");
    }
}

#[test]
fn what_is_refused_is_told_later_and_the_most_urgent_of_it() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::GoBackN);
    assert_eq!(answered(&mut pair, &data(0, Flags::ACK_REQUEST, &long())), None);
    assert_eq!(answered(&mut pair, &data(5, Flags::ACK_REQUEST, &long())), None, "out of order");
    assert_eq!(answered(&mut pair, &data(0, Flags::ACK_REQUEST, &long())), None, "a duplicate");
    let nak = answered(&mut pair, &probe(0).encode()).expect("an answer");
    assert_eq!((nak.kind, nak.ack), (Kind::Nak, Psn(1)));

    // The queue fills; an XOFF is out of date when the owner has said XON.
    for says_xon in [false, true] {
        open(&pair, Repeat::Selective);
        let verdict = |pair: &mut Pair, psn| {
            let taken = pair.take(Wrapping::PLAIN, &data(psn, Flags(0), &long()));
            taken.expect("the same").expect("a verdict")
        };
        let full = (0..).find(|psn| verdict(&mut pair, *psn) == Verdict::Full).expect("a full queue");
        assert_eq!(is_owed(&pair), (1, Kind::Xoff as u32));
        assert_eq!(answered(&mut pair, &data(0, Flags(0), &long())), None, "a duplicate");
        assert_eq!(is_owed(&pair), (1, Kind::Xoff as u32), "XOFF is the more urgent");
        if says_xon {
            pair.both(|memory| {
                memory.flow(FLOW).expect("an entry").received.0.xoff.store(0, Ordering::Relaxed);
            });
        }
        let answer = answered(&mut pair, &probe(0).encode()).expect("an answer");
        let expected = if says_xon { Kind::Ack } else { Kind::Xoff };
        assert_eq!((answer.kind, answer.ack), (expected, Psn(full)));
    }
}

#[test]
fn the_owner_is_woken_for_what_is_owed_and_can_answer_it() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    assert_eq!(answered(&mut pair, &data(0, Flags(0), &long())), None);
    pair.both(|memory| memory.control().sleeping.0.store(ASLEEP, Ordering::Release));
    assert_eq!(answered(&mut pair, &data(0, Flags(0), &long())), None, "a duplicate");
    assert!(pair.rung(), "a duplicate is no news, but its sender waits");
    assert_eq!(answer::take_owed(flow(&pair), None), Some(Kind::Ack));
    assert_eq!(answer::take_owed(flow(&pair), None), None);
    assert_eq!(answer::take_owed(flow(&pair), Some(Kind::Ack)), Some(Kind::Ack));
}

#[test]
fn garbage_in_what_is_owed_is_an_ack() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    for garbage in [Kind::Ack as u32, Kind::Hello as u32, 1 << 8, u32::MAX] {
        open(&pair, Repeat::Selective);
        pair.both(|memory| {
            memory.flow(FLOW).expect("an entry").received.0.owed.store(garbage, Ordering::Relaxed);
        });
        let answer = answered(&mut pair, &data(0, Flags(0), &[1])).expect("an answer");
        assert_eq!(answer.kind, Kind::Ack);
        // Nothing that a long packet is due is more urgent than that: the owner's own doing.
        pair.both(|memory| {
            memory.flow(FLOW).expect("an entry").received.0.owed.store(garbage, Ordering::Relaxed);
        });
        assert_eq!(answered(&mut pair, &data(0, Flags(0), &long())), None);
    }
}

#[test]
fn a_long_direct_write_is_answered_later() {
    let Some(mut pair) = Pair::load(WINDOW) else { return };
    open(&pair, Repeat::Selective);
    let mut caches = [(); 2].map(|()| cache(WINDOW, ReplacementChoice::Fifo));
    for page in 0..3 {
        install(&pair, &mut caches, 7, START + page * 4096);
    }
    let body = write(Opcode::Piece, 7, START + 100, &long());
    assert_eq!(
        pair.take(Wrapping::PLAIN, &data(0, Flags::ACK_REQUEST, &body)),
        Ok(Some(Verdict::WrittenDirectly))
    );
    let answer = answered(&mut pair, &probe(0).encode()).expect("an answer");
    assert_eq!((answer.kind, answer.ack, answer.flags), (Kind::Ack, Psn(1), ANSWER));
}

#[test]
fn a_new_flow_owes_nothing() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    assert_eq!(answered(&mut pair, &data(0, Flags::ACK_REQUEST, &long())), None);
    pair.both(|memory| {
        let entry = memory.flow(FLOW).expect("an entry of the table");
        receiver::close(entry);
        receiver::open(entry, TOKEN, PEER_EPOCH, Repeat::Selective, u64::MAX);
        answer::address(entry, 77, 0xfeed_beef_feed_beef);
    });
    assert_eq!(answered(&mut pair, &data(0, Flags(0), &[1])), None);
    assert_eq!(answered(&mut pair, &probe(0).encode()).expect("an answer").flags, Flags::HAS_ACK);
}

#[test]
fn packets_of_any_length_are_answered_if_and_only_if_they_lie_in_one_buffer() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let body = long();
    for (psn, bytes) in (3300..3600).step_by(3).chain([4096, 7600, 8900]).enumerate() {
        let packet = data(psn as u64, Flags::ACK_REQUEST, &body[..bytes]);
        let question = Wrapping::PLAIN.question(&packet);
        let fate = pair.fate(Wrapping::PLAIN, &packet).expect("the same").0;
        let several = question.len() > FIRST_BUFFER_BYTES;
        assert_eq!(fate == Fate::Drop, several, "{bytes} bytes");
        let deposited = &pair.xdp.memory.control().counters.0[Counter::Deposited as usize];
        assert_eq!(deposited.load(Ordering::Relaxed), psn as u64 + 1, "{bytes} bytes");
        pair.both(|memory| queue::release(memory, memory.control().ring_head.0.load(Ordering::Relaxed)));
    }
}

#[test]
fn answers_that_do_not_get_away_are_left_to_the_owner() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let leave = |pair: &Pair, on: u32| {
        pair.both(|memory| memory.control().answers_left.store(on, Ordering::Relaxed));
    };
    leave(&pair, 1);
    // A question about a path is answered by that path.
    let (fate, _) = pair.fate(Wrapping::PLAIN, &probe(0).encode()).expect("the same");
    assert_eq!((fate, is_owed(&pair)), (Fate::Pass, (0, 0)));
    for packet in [data(0, Flags::ACK_REQUEST, &[1]), data(3, Flags(0), &[1])] {
        assert_eq!(answered(&mut pair, &packet), None);
        assert_eq!(is_owed(&pair).0, 1);
    }
    assert_eq!(is_owed(&pair).1, Kind::Ack as u32);
    leave(&pair, 0);
    // Short packets carry answers: nobody need ask by PROBE.
    let answer = answered(&mut pair, &probe(0).encode()).expect("an answer");
    assert_eq!((answer.kind, answer.flags, answer.ack), (Kind::Ack, Flags::HAS_ACK, Psn(1)));
    assert_eq!(is_owed(&pair).1, 0);
}
