//! What becomes of requests and buffers when a peer, a port or the memory goes.

use crate::pair::*;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use tsumugi::message::{Buffer, MessageOptions, Pattern, Port, Protocol, RequestError, WaitError};
use tsumugi::{Endpoint, PeerId, Reason};

#[test]
fn what_needs_a_peer_fails_with_it_and_what_does_not_stays() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        pair.deliver(7, b"before it went");
        // A long message that ends nowhere, an offer that nobody wants, a receive that nothing comes for.
        let other = Endpoint::open(config()).unwrap();
        let exact = pair.to.receive(Pattern::of(PeerId(0), 1), buffer(8));
        let mut anybody = pair.to.receive(Pattern::tagged(1), buffer(8));
        // An eager message matches nothing before it is whole.
        let source = (protocol == Protocol::Eager).then_some(PeerId(0));
        let middle = pair.to.receive(Pattern { source, ..Pattern::tagged(2) }, buffer(8 << 20));
        let offered = (protocol == Protocol::Rendezvous)
            .then(|| pair.to.send(PeerId(0), 3, &payload(1, 100_000)).unwrap());
        pair.from.send(pair.peer, 2, &payload(1, 8 << 20)).unwrap();
        let begun = Instant::now();
        while pair.here.counters().get("packets_sent") < 100 {
            pair.from.progress().unwrap();
            pair.to.progress().unwrap();
            assert!(begun.elapsed() < PATIENCE);
        }
        let Pair { here, there, from, mut to, .. } = pair;
        drop((from, here)); // aborts
        let fails = |to: &mut Port, what: &str, mut request| {
            let completion = to.wait_timeout(&mut request, PATIENCE).expect(what);
            match completion.outcome {
                Err(RequestError::Peer(failure)) => {
                    assert!(matches!(failure.reason, Reason::Aborted | Reason::Closed), "{failure}");
                }
                other => panic!("{protocol:?}: {other:?}"),
            }
            completion.buffer.map(|buffer| buffer.len())
        };
        assert_eq!(fails(&mut to, "exact", exact), Some(8));
        assert_eq!(fails(&mut to, "middle", middle), Some(8 << 20));
        if let Some(offered) = offered {
            assert_eq!(fails(&mut to, "offered", offered), None);
        }
        assert_eq!(to.take_failure().unwrap().peer, PeerId(0));
        // What had arrived can be received, and nothing else from there.
        let mut receive = to.receive(Pattern::of(PeerId(0), 7), buffer(20));
        assert_eq!(to.wait_timeout(&mut receive, PATIENCE).unwrap().data(), b"before it went");
        let mut more = to.receive(Pattern::of(PeerId(0), 7), buffer(20));
        assert!(matches!(to.wait(&mut more).unwrap().outcome, Err(RequestError::Peer(_))));
        // What anybody else sends still matches the receive from anybody.
        let peer = other.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
        let from = Port::open(&other, CHANNEL).unwrap();
        from.send(peer, 1, b"hello").unwrap();
        let received = loop {
            from.progress().unwrap();
            if let Some(received) = to.test(&mut anybody).unwrap() {
                break received;
            }
            assert!(begun.elapsed() < PATIENCE);
        };
        assert_eq!((received.data(), received.outcome.as_ref().unwrap().peer), (&b"hello"[..], PeerId(1)));
        assert!(to.detach().is_ok(), "{protocol:?}: something is left");
    }
}

#[test]
fn the_silence_of_a_source_is_noticed_though_nothing_is_sent() {
    let config =
        config().peer_timeout(Duration::from_millis(100)).faults(Some("firewall=on".parse().unwrap()));
    for (watch_sources, gone) in [(true, true), (false, false)] {
        let options = MessageOptions::default().watch_sources(watch_sources);
        let mut pair = pair_of(config.clone(), config.clone(), &options);
        pair.deliver(1, b"");
        let mut receive = pair.to.receive(Pattern::of(PeerId(0), 2), buffer(8));
        // The other makes no call from now on.
        match pair.to.wait_timeout(&mut receive, Duration::from_secs(1)) {
            Ok(completion) => {
                assert!(gone, "it may compute");
                assert!(matches!(completion.outcome, Err(RequestError::Peer(_))), "{completion:?}");
            }
            Err(error) => assert!(!gone, "{error}"),
        }
    }
}

#[test]
fn a_port_may_go_while_messages_arrive_in_its_buffers() {
    for protocol in PROTOCOLS {
        let pair = pair(&self::protocol(protocol));
        let mut memory = vec![0xee; 1 << 20];
        // SAFETY: `memory` outlives the buffer and is not touched before the port has dropped it.
        let lent = unsafe { Buffer::from_raw_parts(NonNull::new(memory.as_mut_ptr()).unwrap(), 1 << 20) };
        let _receive = pair.to.receive(Pattern::tagged(1), lent);
        let data = payload(1, 1 << 20);
        pair.from.send(pair.peer, 1, &data).unwrap();
        pair.from.send(pair.peer, 2, &data).unwrap();
        let begun = Instant::now();
        while pair.here.counters().get("packets_sent") < 50 {
            pair.from.progress().unwrap();
            pair.to.progress().unwrap();
            assert!(begun.elapsed() < PATIENCE);
        }
        let Pair { here, there, from, to, peer } = pair;
        drop(to);
        memory.fill(0xdd);
        // The flow goes on: another port takes what comes next, whole.
        let to = Port::open_with(&there, CHANNEL, self::protocol(protocol)).unwrap();
        from.send(peer, 3, b"after all that").unwrap();
        let mut receive = to.receive(Pattern::tagged(3), buffer(20));
        let received = loop {
            from.progress().unwrap();
            if let Some(received) = to.test(&mut receive).unwrap() {
                break received;
            }
            assert!(begun.elapsed() < PATIENCE, "{protocol:?}\n{}", here.counters());
        };
        assert_eq!(received.data(), b"after all that");
        assert!(memory == [0xdd; 1 << 20], "{protocol:?}: written after it was given back");
    }
}

#[test]
fn unexpected_messages_are_bounded_by_the_endpoints_memory() {
    let there = config().receive_bytes(1 << 20).queue_bytes(64 << 10);
    for (protocol, bytes) in [(Protocol::Eager, 8), (Protocol::Eager, 9000), (Protocol::ActiveZeroCopy, 9000)]
    {
        let mut pair = pair_of(config(), there.clone(), &self::protocol(protocol));
        let mut sent = 0;
        let mut never = pair.to.receive(Pattern::tagged(u64::MAX), buffer(0));
        let begun = Instant::now();
        let mut went_on = Instant::now();
        // Until the sender waits, for longer than anything but want of memory takes.
        while went_on.elapsed() < Duration::from_millis(700) {
            while pair.from.send(pair.peer, sent, &payload(sent, bytes)).is_ok() {
                (sent, went_on) = (sent + 1, Instant::now());
            }
            pair.from.progress().unwrap();
            // Nothing fails: who waits here may have other receives to post.
            match pair.to.wait_timeout(&mut never, Duration::from_millis(1)) {
                Err(WaitError::TimedOut(_)) => {}
                other => panic!("{other:?}"),
            }
            assert!(begun.elapsed() < PATIENCE, "{protocol:?}: {sent} sent, {}", pair.to.unexpected());
        }
        match pair.to.wait_timeout(&mut never, Duration::from_millis(600)) {
            Err(WaitError::TimedOut(_)) => {}
            other => panic!("{other:?}"),
        }
        let held = pair.to.unexpected() * bytes;
        assert!(held > 0 && held < 3 << 20, "{held} bytes held");
        // Received, everything else comes.
        for number in 0..sent {
            let receive = pair.to.receive(Pattern::of(PeerId(0), number), buffer(bytes));
            assert!(
                pair.received(receive).data() == payload(number, bytes),
                "{protocol:?}: {number} of {sent}"
            );
        }
    }
}

#[test]
fn an_endpoint_is_suspended_only_when_nothing_of_its_ports_is_lost_and_goes_on() {
    let mut pair = pair(&MessageOptions::default());
    pair.deliver(1, b"one");
    let mut receive = pair.to.receive(Pattern::tagged(9), buffer(8));
    let Pair { here, there, from, to, peer } = pair;
    let there = there.suspend().map(|_| ()).expect_err("a port is held").1;
    let to = to.detach().expect_err("a receive and a message");
    assert!(to.cancel(&receive));
    to.wait(&mut receive).unwrap();
    let mut receive = to.receive(Pattern::any(), buffer(8));
    assert_eq!(to.wait(&mut receive).unwrap().data(), b"one");
    // In the middle of a long message that nobody knows of yet, and with others behind it.
    let data = payload(1, 1 << 20);
    to.detach().unwrap();
    from.send(peer, 2, &data).unwrap();
    from.send(peer, 3, b"three").unwrap();
    let before = here.counters().get("packets_sent");
    let begun = Instant::now();
    while here.counters().get("packets_sent") < before + 50 {
        from.progress().unwrap();
        there.progress().unwrap();
        assert!(begun.elapsed() < PATIENCE);
    }
    let context = there.suspend().map_err(|(error, _)| error).unwrap();
    let there = Endpoint::resume(&context, config()).unwrap();
    let to = Port::open(&there, CHANNEL).unwrap();
    for (tag, expected) in [(3, &b"three"[..]), (2, &data[..])] {
        let mut receive = to.receive(Pattern::of(PeerId(0), tag), buffer(expected.len()));
        let received = loop {
            from.progress().unwrap();
            if let Some(received) = to.test(&mut receive).unwrap() {
                break received;
            }
            assert!(begun.elapsed() < PATIENCE);
        };
        assert!(received.data() == expected, "{tag}: {:?}", received.outcome);
    }
}
