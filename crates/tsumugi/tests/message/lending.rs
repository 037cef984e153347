//! Messages sent out of the caller's memory and received one behind the other, and the list of what is complete.

use crate::pair::*;
use std::collections::HashMap;
use std::ptr::NonNull;
use tsumugi::message::{Buffer, Completion, Envelope, Pattern, Port, RequestError};

/// The listed requests of both sides by their cookies, until there are so many.
fn listed(pair: &mut Pair, count: usize) -> (HashMap<u64, Completion>, Vec<(u64, Completion)>) {
    let (mut sent, mut received) = (HashMap::new(), Vec::new());
    pair.until(|pair| {
        while let Some((cookie, completion)) = pair.from.next_completion() {
            assert!(sent.insert(cookie, completion).is_none(), "{cookie} was complete twice");
        }
        received.extend(std::iter::from_fn(|| pair.to.next_completion()));
        (sent.len() + received.len() == count).then_some(())
    });
    (sent, received)
}

fn done(completion: &Completion) -> tsumugi::message::Status {
    *completion.outcome.as_ref().unwrap()
}

#[test]
fn what_is_lent_arrives_with_its_immediate_data_and_comes_back() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for expected in [true, false] {
            for (cookie, bytes) in (0..).zip(SIZES) {
                let immediate = (cookie % 2 == 0).then_some(cookie << 40 | 7);
                if expected {
                    pair.to.receive_listed(Pattern::tagged(cookie), buffer(bytes), cookie + 100);
                }
                let data = payload(cookie, bytes).into();
                let envelope = Envelope { tag: cookie, immediate };
                pair.from.send_lent(pair.peer, envelope, data, cookie).unwrap();
                if !expected {
                    for _ in 0..20 {
                        pair.from.progress().unwrap();
                        pair.to.progress().unwrap();
                    }
                    pair.to.receive_listed(Pattern::tagged(cookie), buffer(bytes), cookie + 100);
                }
                let (sent, received) = listed(&mut pair, 2);
                assert_eq!(sent[&cookie].buffer.as_deref(), Some(&payload(cookie, bytes)[..]));
                assert_eq!(received[0].0, cookie + 100);
                let status = done(&received[0].1);
                assert_eq!((status.tag, status.immediate, status.bytes), (cookie, immediate, bytes as u64));
                assert_eq!(received[0].1.data(), payload(cookie, bytes), "{protocol:?}, {bytes} bytes");
            }
        }
        assert!(pair.from.detach().is_ok() && pair.to.detach().is_ok(), "{protocol:?}: something is left");
    }
}

#[test]
fn what_is_sent_from_a_copy_has_immediate_data_too() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for (tag, bytes) in (0..).zip(SIZES) {
            let request = pair.to.receive(Pattern::tagged(tag), buffer(bytes));
            let envelope = Envelope { tag, immediate: Some(!tag) };
            pair.from.send(pair.peer, envelope, &payload(tag, bytes)).unwrap();
            let completion = pair.received(request);
            assert_eq!(done(&completion).immediate, Some(!tag));
            assert_eq!(completion.data(), payload(tag, bytes), "{protocol:?}, {bytes} bytes");
        }
    }
}

#[test]
fn several_messages_fill_a_buffer_one_behind_the_other() {
    // Those that wait are matched when the receive is posted, the others when they come.
    for (protocol, waiting) in PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, 0), (protocol, 3)]) {
        let mut pair = pair(&self::protocol(protocol));
        let sizes = [10, 2000, 0, 900, 30_000, 5];
        let send = |port: &mut Port, peer, number: usize| {
            port.send_lent(peer, number as u64, payload(number as u64, sizes[number]).into(), number as u64)
                .unwrap();
        };
        for number in 0..waiting {
            send(&mut pair.from, pair.peer, number);
        }
        pair.until(|pair| (pair.to.unexpected() == waiting).then_some(()));
        // Room for all but the last, which matches the next receive.
        let whole: usize = sizes[..5].iter().sum::<usize>() + 50;
        pair.to.receive_many(Pattern::any(), buffer(whole), 100, 7);
        pair.to.receive_many(Pattern::any(), buffer(100), 100, 8);
        for number in waiting..sizes.len() {
            send(&mut pair.from, pair.peer, number);
        }
        let (_, received) = listed(&mut pair, 6 + 6 + 2);
        let mut parts: HashMap<usize, (u64, Completion)> = HashMap::new();
        let mut ends = Vec::new();
        for (cookie, completion) in received {
            match &completion.outcome {
                Ok(status) => drop(parts.insert(status.tag as usize, (cookie, completion))),
                Err(RequestError::Filled { room }) => {
                    let matched = parts.values().filter(|(of, _)| *of == cookie).count();
                    assert_eq!(
                        matched,
                        if cookie == 7 { 5 } else { 1 },
                        "{protocol:?}: it ended before its messages"
                    );
                    ends.push((cookie, *room, completion.buffer.map(|rest| rest.len())));
                }
                Err(error) => panic!("{protocol:?}: {error}"),
            }
        }
        // The last message may be there before a long one that is still fetched.
        ends.sort_unstable();
        assert_eq!(ends, [(7, 50, Some(50)), (8, 95, Some(95))], "{protocol:?}");
        let mut behind = None;
        for (number, bytes) in sizes.into_iter().enumerate() {
            let (cookie, completion) = &parts[&number];
            assert_eq!(*cookie, if number < 5 { 7 } else { 8 }, "{protocol:?}");
            assert_eq!(completion.data(), payload(number as u64, bytes), "{protocol:?}, message {number}");
            let part = completion.buffer.as_ref().unwrap().as_ptr_range();
            if number < 5 {
                assert!(behind.is_none_or(|behind| behind == part.start), "a gap before message {number}");
                behind = Some(part.end);
            }
        }
    }
}

#[test]
fn a_receive_for_several_ends_when_it_is_cancelled_and_when_its_source_is_gone() {
    let mut pair = pair(&protocol(PROTOCOLS[0]));
    pair.deliver(9, b"so that they know each other");
    let cancelled = pair.to.receive_many(Pattern::tagged(1), buffer(1000), 10, 1);
    let source = pair.to.receive_many(Pattern::of(tsumugi::PeerId(0), 2), buffer(1000), 10, 2);
    pair.from.send(pair.peer, 1, b"one").unwrap();
    pair.from.send(pair.peer, 2, b"two").unwrap();
    let (_, received) = listed(&mut pair, 2);
    assert_eq!(
        received.iter().map(|(cookie, one)| (*cookie, one.data())).collect::<Vec<_>>(),
        [(1, &b"one"[..]), (2, &b"two"[..])]
    );
    assert!(pair.to.cancel_listed(cancelled) && !pair.to.cancel_listed(cancelled));
    let Pair { here, from, to, .. } = pair;
    drop((from, here));
    let ends: Vec<_> = (0..2)
        .map(|_| {
            loop {
                to.progress().unwrap();
                if let Some((cookie, completion)) = to.next_completion() {
                    break (cookie, completion);
                }
            }
        })
        .collect();
    assert!(matches!(ends[0], (1, Completion { outcome: Err(RequestError::Cancelled), .. })), "{ends:?}");
    assert!(matches!(ends[1], (2, Completion { outcome: Err(RequestError::Peer(_)), .. })), "{ends:?}");
    assert!(ends.iter().all(|(_, end)| end.buffer.as_ref().map(|rest| rest.len()) == Some(997)));
    assert!(!to.cancel_listed(source));
}

#[test]
fn lent_memory_comes_back_from_a_peer_that_is_gone() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        pair.deliver(9, b"so that they know each other");
        // One of them is on its way, or offered; the other waits for room.
        for cookie in 0..2 {
            let data = payload(cookie, 8 << 20).into();
            let _ = pair.from.send_lent(pair.peer, cookie, data, cookie);
        }
        let Pair { there, to, from, .. } = pair;
        drop((to, there));
        let begun = std::time::Instant::now();
        let (cookie, completion) = loop {
            from.progress().unwrap();
            if let Some(listed) = from.next_completion() {
                break listed;
            }
            assert!(begun.elapsed() < PATIENCE, "{protocol:?}");
        };
        assert_eq!(cookie, 0);
        assert!(matches!(completion.outcome, Err(RequestError::Peer(_))), "{protocol:?}: {completion:?}");
        assert_eq!(completion.buffer.unwrap()[..], payload(0, 8 << 20));
    }
}

#[test]
fn memory_is_the_callers_again_when_the_port_is_dropped() {
    let pair = pair(&protocol(tsumugi::message::Protocol::ActiveZeroCopy));
    let mut request = pair.to.receive(Pattern::tagged(1), buffer(1 << 20));
    let mut memory = payload(1, 1 << 20);
    let start = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: `memory` is not touched before the port is dropped.
    let lent = unsafe { Buffer::from_raw_parts(start, memory.len()) };
    pair.from.send_lent(pair.peer, 1, lent, 1).unwrap();
    pair.from.progress().unwrap();
    let Pair { here, there: _there, from, to, .. } = pair;
    drop(from);
    memory.fill(0);
    let begun = std::time::Instant::now();
    let received = loop {
        here.progress().unwrap();
        if let Some(received) = to.test(&mut request).unwrap() {
            break received;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!(received.data(), payload(1, 1 << 20));
}
