//! Which message goes where, whole, by every protocol.

use crate::pair::*;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use tsumugi::message::{Buffer, MessageOptions, Pattern, Port, RequestError, Status, WaitError};
use tsumugi::{Config, Endpoint, FaultOptions, PeerId, SendError};

#[test]
fn messages_of_all_sizes_arrive_by_every_protocol_whether_they_are_expected_or_not() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for (number, bytes) in SIZES.into_iter().enumerate() {
            let (tag, data) = (number as u64, payload(number as u64, bytes));
            for expected in [true, false] {
                let early = expected.then(|| pair.to.receive(Pattern::tagged(tag), buffer(bytes)));
                let send = pair.from.send(pair.peer, tag, &data).unwrap();
                let receive = early.unwrap_or_else(|| {
                    pair.until(|pair| pair.to.probe(Pattern::tagged(tag)).unwrap());
                    pair.to.receive(Pattern::of(PeerId(0), tag), buffer(bytes))
                });
                let mut receive = receive;
                let received = pair.until(|pair| pair.to.test(&mut receive).unwrap());
                let status = Status { peer: PeerId(0), tag, immediate: None, bytes: bytes as u64 };
                assert_eq!(received.outcome, Ok(status), "{protocol:?}");
                assert!(received.data() == data, "{protocol:?}: {bytes} bytes are altered");
                let status = Status { peer: pair.peer, ..status };
                assert_eq!(pair.sent(send).outcome, Ok(status));
                assert!(matches!(pair.to.test(&mut receive), Err(WaitError::Spent)), "given out twice");
            }
        }
        assert_eq!((pair.to.posted(), pair.to.unexpected()), (0, 0));
        assert_eq!(pair.there.counters().get("violation"), 0);
        assert!(pair.to.detach().is_ok() && pair.from.detach().is_ok(), "something is left");
    }
}

#[test]
fn buffers_are_sent_in_place_by_every_protocol() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for (number, bytes) in SIZES.into_iter().enumerate() {
            let data = payload(number as u64, bytes);
            let mut message = pair.from.buffer(bytes).unwrap();
            message.copy_from_slice(&data);
            let receive = pair.to.receive(Pattern::any(), buffer(bytes));
            let send = pair.from.send_buffer(pair.peer, 1, message).unwrap();
            assert!(pair.received(receive).data() == data, "{protocol:?}: {bytes} bytes are altered");
            assert!(pair.sent(send).outcome.is_ok());
        }
    }
}

#[test]
fn a_receive_takes_the_messages_of_its_pattern_in_the_order_in_which_they_were_sent() {
    let mut pair = pair(&MessageOptions::default());
    for (tag, number) in [(0x11, 0u8), (0x21, 1), (0x11, 2), (0x22, 3)] {
        pair.deliver(tag, &[number]);
    }
    assert_eq!(pair.to.unexpected(), 4);
    let patterns = [
        (Pattern::of(PeerId(0), 0x21), 1),
        (Pattern::tagged(0x01).ignoring(0xf0), 0),
        (Pattern::of(PeerId(0), 0).ignoring(u64::MAX), 2),
        (Pattern::any(), 3),
    ];
    for (pattern, number) in patterns {
        let receive = pair.to.receive(pattern, buffer(1));
        assert_eq!(pair.received(receive).data(), [number]);
    }
}

#[test]
fn a_message_takes_the_receive_that_was_posted_first() {
    let mut pair = pair(&MessageOptions::default());
    pair.deliver(0, b"for a start");
    let start = pair.to.receive(Pattern::any(), buffer(20));
    pair.received(start);
    let mut receives: Vec<_> = [
        Pattern::tagged(7).ignoring(1),
        Pattern::of(PeerId(0), 6),
        Pattern::of(PeerId(0), 7),
        Pattern::any(),
        Pattern::of(PeerId(0), 7),
    ]
    .map(|pattern| Some(pair.to.receive(pattern, buffer(5000))))
    .into();
    let expected = [(7, 0), (7, 2), (6, 1), (8, 3), (7, 4)];
    for (number, (tag, place)) in expected.into_iter().enumerate() {
        // Short and long ones alike.
        let data = payload(number as u64, if number % 2 == 0 { 8 } else { 5000 });
        pair.from.send(pair.peer, tag, &data).unwrap();
        let received = pair.received(receives[place].take().unwrap());
        assert!(received.data() == data, "message {number}: {:?}", received.outcome);
        assert_eq!(received.outcome.unwrap().tag, tag);
    }
}

#[test]
fn a_message_longer_than_the_buffer_is_cut_and_nothing_is_overrun() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for (bytes, room) in [(100, 60), (100_000, 70_000), (100_000, 10), (5000, 0), (10, 0)] {
            for expected in [true, false] {
                let mut memory = vec![0xee; room + 64];
                // SAFETY: `memory` outlives the buffer and is not touched before that is dropped.
                let lent =
                    unsafe { Buffer::from_raw_parts(NonNull::new(memory.as_mut_ptr()).unwrap(), room) };
                let data = payload(1, bytes);
                let receive = if expected {
                    let receive = pair.to.receive(Pattern::tagged(1), lent);
                    pair.from.send(pair.peer, 1, &data).unwrap();
                    receive
                } else {
                    pair.from.send(pair.peer, 1, &data).unwrap();
                    pair.until(|pair| pair.to.probe(Pattern::any()).unwrap());
                    pair.to.receive(Pattern::tagged(1), lent)
                };
                let received = pair.received(receive);
                let status = Status { peer: PeerId(0), tag: 1, immediate: None, bytes: bytes as u64 };
                assert_eq!(received.outcome, Err(RequestError::Truncated { status, room }), "{protocol:?}");
                assert!(received.data() == &data[..room], "{protocol:?}: {bytes} into {room}");
                drop(received);
                assert!(memory[..room] == data[..room] && memory[room..] == [0xee; 64]);
            }
        }
        // The next one is as it should be.
        let receive = pair.to.receive(Pattern::any(), buffer(8));
        pair.from.send(pair.peer, 2, &[9; 8]).unwrap();
        assert_eq!(pair.received(receive).data(), [9; 8]);
    }
}

#[test]
fn what_is_cancelled_matches_nothing_and_what_has_matched_a_message_is_not_cancelled() {
    let mut pair = pair(&MessageOptions::default());
    let [first, second, third] = [(); 3].map(|()| pair.to.receive(Pattern::tagged(1), buffer(8)));
    assert!(pair.to.cancel(&first));
    assert!(!pair.to.cancel(&first), "twice");
    let cancelled = pair.received(first);
    assert_eq!(cancelled.outcome, Err(RequestError::Cancelled));
    assert_eq!(cancelled.buffer.unwrap().into_vec(), [0; 8]);
    pair.deliver(1, b"message!");
    assert!(!pair.to.cancel(&second));
    assert_eq!(pair.received(second).data(), b"message!");
    drop(third);
    assert_eq!(pair.to.posted(), 0, "nobody asks for it any more");
    let send = pair.from.send(pair.peer, 1, b"").unwrap();
    assert!(!pair.from.cancel(&send), "it has left");
    pair.until(|pair| pair.to.probe(Pattern::any()).unwrap());
}

#[test]
fn a_claimed_message_is_received_by_its_claim_alone() {
    for bytes in [8, 100_000] {
        for protocol in PROTOCOLS {
            let mut pair = pair(&self::protocol(protocol));
            let (first, second) = (payload(1, bytes), payload(2, bytes));
            pair.from.send(pair.peer, 1, &first).unwrap();
            pair.from.send(pair.peer, 1, &second).unwrap();
            // While it is arriving, if it is long.
            let claim = pair.until(|pair| pair.to.claim(Pattern::tagged(1)).unwrap());
            assert_eq!(
                claim.status(),
                Status { peer: PeerId(0), tag: 1, immediate: None, bytes: bytes as u64 }
            );
            let receive = pair.to.receive(Pattern::any(), buffer(bytes));
            assert!(pair.received(receive).data() == second, "{protocol:?}");
            let receive = pair.to.receive_claimed(claim, buffer(bytes));
            assert!(pair.received(receive).data() == first, "{protocol:?}");
        }
    }
}

#[test]
fn what_is_dropped_leaves_nothing_behind() {
    for protocol in PROTOCOLS {
        let mut pair = pair(&self::protocol(protocol));
        for (tag, bytes) in [(1, 8), (2, 100_000)] {
            // A send, a receive that has matched, a claim, and a receive that matches nothing.
            let receive = pair.to.receive(Pattern::tagged(tag), buffer(bytes));
            drop(pair.from.send(pair.peer, tag, &payload(tag, bytes)).unwrap());
            drop(pair.from.send(pair.peer, tag, &payload(tag, bytes)).unwrap());
            drop(pair.until(|pair| pair.to.claim(Pattern::tagged(tag)).unwrap()));
            drop(receive);
            drop(pair.to.receive(Pattern::any(), buffer(8)));
        }
        let marker = pair.to.receive(Pattern::tagged(3), buffer(0));
        pair.from.send(pair.peer, 3, b"").unwrap();
        assert!(pair.received(marker).outcome.is_ok());
        pair.until(|pair| (pair.here.is_flushed() && pair.there.is_flushed()).then_some(()));
        for _ in 0..100 {
            pair.from.progress().unwrap();
            pair.to.progress().unwrap();
        }
        assert_eq!((pair.to.posted(), pair.to.unexpected()), (0, 0), "{protocol:?}");
        assert!(pair.to.detach().is_ok() && pair.from.detach().is_ok(), "{protocol:?}: something is left");
    }
}

#[test]
fn a_request_is_waited_for_where_it_was_begun() {
    let pair = pair(&MessageOptions::default());
    let mut receive = pair.to.receive(Pattern::any(), buffer(8));
    assert!(matches!(pair.from.test(&mut receive), Err(WaitError::OtherPort)));
    assert!(!pair.from.cancel(&receive) && pair.to.cancel(&receive));
    // After its port has gone there is nothing to wait for, and nothing breaks.
    let (mut orphan, to) = (pair.to.receive(Pattern::any(), buffer(8)), pair.to);
    drop(to);
    assert!(matches!(pair.from.test(&mut orphan), Err(WaitError::OtherPort)));
    drop((orphan, receive));
}

#[test]
fn many_requests_are_waited_for_at_once() {
    let config = config();
    transfer(
        config.clone(),
        config,
        &MessageOptions::default(),
        |port, peer| {
            for tag in (0..200).rev() {
                port.wait_for_room(peer, 2000).unwrap();
                port.send(peer, tag, &payload(tag, tag as usize * 10)).unwrap();
            }
            port.send(peer, 1000, b"").unwrap();
        },
        |port| {
            let mut requests: Vec<_> =
                (0..200).map(|tag| port.receive(Pattern::tagged(tag), buffer(2000))).collect();
            let (at, completion) = port.wait_any_timeout(&mut requests[198..], PATIENCE).unwrap();
            assert_eq!(completion.outcome.unwrap().tag, 198 + at as u64);
            assert!(requests[198 + at].is_spent());
            assert!(matches!(port.wait_all(&mut requests), Err(WaitError::Spent)), "one of them is");
            requests.swap_remove(198 + at);
            let mut never = port.receive(Pattern::tagged(2000), buffer(0));
            requests.push(never);
            let timeout = Duration::from_millis(1);
            assert!(matches!(port.wait_all_timeout(&mut requests, timeout), Err(WaitError::TimedOut(_))));
            assert!(requests.iter().all(|request| !request.is_spent()), "no completion is lost");
            never = requests.pop().unwrap();
            for (tag, completion) in (0..).zip(port.wait_all(&mut requests[..198]).unwrap()) {
                assert!(completion.data() == payload(tag, tag as usize * 10));
            }
            let (at, completion) = port.wait_any(&mut requests).unwrap();
            assert!(at == 198 && completion.outcome.is_ok(), "spent ones are passed over");
            assert!(matches!(port.wait_any(&mut requests), Err(WaitError::Nothing)));
            assert!(port.cancel(&never));
            assert_eq!(port.wait(&mut never).unwrap().outcome, Err(RequestError::Cancelled));
            let claim = port.wait_probe_timeout(Pattern::any(), PATIENCE).unwrap();
            assert_eq!(claim.status().tag, 1000);
            let mut never = port.receive(Pattern::any(), buffer(0));
            let timeout = Duration::from_millis(1);
            assert!(matches!(port.wait_timeout(&mut never, timeout), Err(WaitError::TimedOut(_))));
            assert!(matches!(port.wait_any(&mut []), Err(WaitError::Nothing)));
        },
    );
}

#[test]
fn sixty_four_mebibytes_arrive_by_every_protocol() {
    const BYTES: usize = 64 << 20;
    for protocol in PROTOCOLS {
        let options = self::protocol(protocol);
        transfer(
            config(),
            config(),
            &options,
            |port, peer| {
                let mut request = port.send(peer, 1, &payload(3, BYTES)).unwrap();
                assert_eq!(port.wait(&mut request).unwrap().outcome.unwrap().bytes, BYTES as u64);
            },
            move |port| {
                let mut request = port.receive(Pattern::tagged(1), buffer(BYTES));
                let received = port.wait_timeout(&mut request, PATIENCE).unwrap();
                assert!(received.data() == payload(3, BYTES), "{protocol:?}");
            },
        );
    }
}

#[test]
fn faults_do_not_show_by_any_protocol() {
    for protocol in PROTOCOLS {
        let faults: FaultOptions = "loss=3%,dup=3%,reorder=10%,corrupt=1%,seed=11".parse().unwrap();
        let config = config().faults(Some(faults));
        let options = self::protocol(protocol);
        const COUNT: u64 = 60;
        let size = |number: u64| SIZES[number as usize % SIZES.len()] / 4;
        transfer(
            config.clone(),
            config,
            &options,
            move |port, peer| {
                let mut sends: Vec<_> = (0..COUNT)
                    .map(|number| {
                        port.wait_for_room(peer, size(number)).unwrap();
                        port.send(peer, number % 3, &payload(number, size(number))).unwrap()
                    })
                    .collect();
                for completion in port.wait_all(&mut sends).unwrap() {
                    completion.outcome.unwrap();
                }
            },
            move |port| {
                // Some are expected, some are not; those of one tag come in order.
                let mut receives = Vec::new();
                for number in 0..COUNT {
                    let receive = port.receive(Pattern::tagged(number % 3), buffer(size(number)));
                    receives.push((number, receive));
                    if number % 7 == 6 {
                        for (number, mut receive) in receives.drain(..) {
                            let received = port.wait_timeout(&mut receive, PATIENCE).unwrap();
                            assert!(received.outcome.is_ok(), "{protocol:?} {number}: {received:?}");
                            assert!(
                                received.data() == payload(number, size(number)),
                                "{protocol:?} {number}"
                            );
                        }
                    }
                }
                for (number, mut receive) in receives {
                    let received = port.wait_timeout(&mut receive, PATIENCE).unwrap();
                    assert!(received.data() == payload(number, size(number)), "{protocol:?} {number}");
                }
            },
        );
    }
}

#[test]
fn one_message_goes_to_a_whole_group() {
    let here = Endpoint::open(config()).unwrap();
    // One takes long messages in one packet, the others in several.
    let there: Vec<_> =
        [config(), config(), Config::loopback()].map(|config| Endpoint::open(config).unwrap()).into();
    let group: Vec<_> =
        there.iter().map(|there| here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap()).collect();
    let from = Port::open(&here, CHANNEL).unwrap();
    let mut to: Vec<_> = there.iter().map(|there| Port::open(there, CHANNEL).unwrap()).collect();
    let started = Instant::now();
    for (number, bytes) in [(1, 8), (2, 5000), (3, 200_000), (4, 0)] {
        let data = payload(number, bytes);
        let receives: Vec<_> =
            to.iter_mut().map(|port| port.receive(Pattern::tagged(number), buffer(bytes))).collect();
        let sends = from.send_to_group(&group, number, &data).unwrap();
        assert_eq!(sends.len(), 3);
        for (port, mut receive) in to.iter_mut().zip(receives) {
            let received = loop {
                from.progress().unwrap();
                if let Some(received) = port.test(&mut receive).unwrap() {
                    break received;
                }
                assert!(started.elapsed() < PATIENCE);
            };
            assert!(received.data() == data, "{bytes} bytes");
        }
    }
    let nobody = [group[0], PeerId(99)];
    assert!(matches!(from.send_to_group(&nobody, 9, b""), Err(SendError::NoSuchPeer(PeerId(99)))));
    for _ in 0..100 {
        from.progress().unwrap();
        assert!(to[0].probe(Pattern::tagged(9)).unwrap().is_none(), "to all or to none");
    }
}
