//! What a port does not take, from the wire and from its caller.

use crate::pair::*;
use std::time::Instant;
use tsumugi::message::{MessageOptions, Pattern, Port, Protocol, RequestError, WaitError};
use tsumugi::{Endpoint, PeerId, SendError};

#[test]
fn what_makes_no_sense_is_counted_and_nothing_else() {
    let there = Endpoint::open(config()).unwrap();
    let here = Endpoint::open(config()).unwrap();
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let raw = here.channel(CHANNEL).unwrap();
    let to = Port::open(&there, CHANNEL).unwrap();
    let word = |kind: u64, bytes: u64| (kind | bytes << 16).to_le_bytes();
    let message = |kind, bytes, numbers: &[u64]| {
        let mut message = word(kind, bytes).to_vec();
        numbers.iter().for_each(|number| message.extend_from_slice(&number.to_le_bytes()));
        message
    };
    let long = |mut message: Vec<u8>| {
        message.resize(10_000, 0);
        message
    };
    let nonsense = [
        vec![],
        vec![1; 15],
        message(0, 0, &[0]),
        message(1, 5, &[0]),          // more data announced than there are
        message(7, 0, &[0]),          // no such kind
        message(3, 1 << 40, &[1, 2]), // an offer of an absurd length
        message(4, 10, &[1, 2]),      // wants what was not offered
        message(4, 0, &[u64::MAX, u64::MAX]),
        message(5, 0, &[1]), // data that nobody wanted
        message(6, 0, &[1]), // refuses what was not offered
        long(message(5, 10_000 - 16, &[1])),
        long(message(2, 3, &[1])),
        long(message(3, 1, &[1, 2])),
        long(vec![0xff; 20]),
    ];
    let mut receive = to.receive(Pattern::tagged(77), buffer(8));
    let mut random = 1u64;
    let begun = Instant::now();
    for round in 0..1000 {
        let mut data = nonsense[round % nonsense.len()].clone();
        if round >= nonsense.len() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % data.len().clamp(1, 24);
            if let Some(byte) = data.get_mut(at) {
                *byte ^= (random >> 56) as u8;
            }
        }
        while raw.post(peer, &data).is_err() {
            here.progress().unwrap();
            to.progress().unwrap();
            assert!(begun.elapsed() < PATIENCE);
        }
        here.progress().unwrap();
        to.progress().unwrap();
        while raw.try_receive().unwrap().is_some() {}
    }
    raw.post(peer, &[&message(1, 2, &[77])[..], b"ok"].concat()).unwrap();
    let received = loop {
        here.progress().unwrap();
        if let Some(received) = to.test(&mut receive).unwrap() {
            break received;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!(received.data(), b"ok");
    assert!(there.counters().get("violation") >= nonsense.len() as u64, "{}", there.counters());
    assert_eq!(there.counters().get("peers_lost"), 0);
}

#[test]
fn a_second_grant_and_the_data_of_a_stranger_are_refused() {
    let there = Endpoint::open(config()).unwrap();
    let here = Endpoint::open(config()).unwrap();
    let to_there = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let mut port = Port::open_with(&here, CHANNEL, protocol(Protocol::Rendezvous)).unwrap();
    let raw = there.channel(CHANNEL).unwrap();
    let data = payload(1, 2000);
    let mut send = port.send(to_there, 5, &data).unwrap();
    let begun = Instant::now();
    let receive_raw = |port: &mut Port| loop {
        port.progress().unwrap();
        if let Some(message) = raw.try_receive().unwrap() {
            break message.to_vec();
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    let offer = receive_raw(&mut port);
    assert_eq!(offer.len(), 24);
    let grant =
        |bytes: u64| [&(4 | bytes << 16).to_le_bytes()[..], &99u64.to_le_bytes(), &offer[16..24]].concat();
    let raw_post = |message: &[u8]| raw.post(PeerId(0), message).map(|_| ()).unwrap();
    raw_post(&grant(2001)); // more than was offered
    raw_post(&grant(1999));
    raw_post(&grant(1999));
    raw_post(&grant(10));
    let answer = loop {
        port.progress().unwrap();
        if let Some(message) = raw.try_receive().unwrap() {
            break message.to_vec();
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!(answer.len(), 16 + 1999);
    assert!(answer[16..] == data[..1999]);
    assert_eq!(u64::from_le_bytes(answer[8..16].try_into().unwrap()), 99);
    assert!(port.wait_timeout(&mut send, PATIENCE).unwrap().outcome.is_ok());
    while here.counters().get("violation") < 3 {
        port.progress().unwrap();
        there.progress().unwrap();
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(raw.try_receive().unwrap().is_none(), "sent twice");
}

#[test]
fn an_offer_over_the_receivers_limit_fails_at_its_sender() {
    let there = config().message_bytes_max(10_000);
    let mut pair = pair_of(config(), there, &protocol(Protocol::Rendezvous));
    // The limit is not known yet.
    let send = pair.from.send(pair.peer, 1, &payload(1, 10_001)).unwrap();
    assert_eq!(pair.sent(send).outcome, Err(RequestError::TooLong { peer: pair.peer, limit: 10_000 - 16 }));
    assert!(matches!(pair.from.send(pair.peer, 1, &payload(1, 10_001)), Err(SendError::TooLong { .. })));
    let receive = pair.to.receive(Pattern::any(), buffer(10_000));
    pair.from.send(pair.peer, 1, &payload(2, 10_000 - 16)).unwrap();
    assert!(pair.received(receive).data() == payload(2, 10_000 - 16));
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let pair = pair(&MessageOptions::default());
    assert!(Port::open(&pair.here, CHANNEL).is_err(), "the channel is taken");
    assert!(matches!(pair.from.send(PeerId(9), 1, b""), Err(SendError::NoSuchPeer(PeerId(9)))));
    let mut receive = pair.from.receive(Pattern::of(PeerId(9), 1), buffer(3));
    let completion = pair.from.wait(&mut receive).unwrap();
    assert_eq!(completion.outcome, Err(RequestError::NoSuchPeer(PeerId(9))));
    assert_eq!(completion.buffer.unwrap().len(), 3);
    assert!(matches!(pair.from.wait(&mut receive), Err(WaitError::Spent)));
}

/// Pages that this thread touched for the first time.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name of the program may have spaces in it, and ends with the last parenthesis; minor faults are the eighth word after.
    let (_, words) = stat.rsplit_once(')').unwrap();
    words.split_whitespace().nth(7).and_then(|count| count.parse().ok()).unwrap()
}

#[test]
fn what_may_not_be_offered_yet_is_not_copied() {
    const BYTES: usize = 40 << 20;
    let mut pair = pair(&protocol(Protocol::Rendezvous));
    let data = vec![0; BYTES];
    let first = pair.from.send(pair.peer, 1, &data).unwrap();
    // Memory that nobody has touched: to copy it means a fault a page, of its own and of the copy's.
    let untouched = vec![0; BYTES];
    let before = page_faults();
    for _ in 0..3 {
        assert!(matches!(pair.from.send(pair.peer, 1, &untouched), Err(SendError::WouldBlock)));
    }
    let faults = page_faults() - before;
    assert!(faults < 10, "{faults} page faults");

    // There is room when the first has gone.
    let receive = pair.to.receive(Pattern::any(), buffer(BYTES));
    pair.until(|pair| pair.from.send(pair.peer, 2, &untouched).ok());
    assert!(pair.received(receive).outcome.is_ok());
    assert!(pair.sent(first).outcome.is_ok());
}
