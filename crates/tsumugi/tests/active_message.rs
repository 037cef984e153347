//! What active messages promise, over real sockets on the loopback interface.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::{cluster, connected, eventually, in_time, open, payload};
use proptest::prelude::*;
use std::time::Duration;
use tsumugi::active_message::{
    ActiveMessageOptions, ActiveMessages, CallError, ReplyError, RequestError, Unanswered,
};
use tsumugi::{
    Config, Endpoint, FaultOptions, NameError, PeerId, PortError, Reason, SendError, TicketStatus,
};

const CHANNEL: u16 = 3;

fn port<S>(endpoint: &Endpoint, options: ActiveMessageOptions, state: S) -> ActiveMessages<S> {
    ActiveMessages::open(endpoint, CHANNEL, options, state).unwrap()
}

/// A port whose handler `echo` replies with what it gets, each word plus one.
fn echo(endpoint: &Endpoint, options: ActiveMessageOptions) -> ActiveMessages<u64> {
    let mut port = port(endpoint, options, 0);
    port.register("echo", |served: &mut u64, request, reply| {
        *served += 1;
        reply.send_bulk(request.words.map(|word| word + 1), request.data).unwrap();
    })
    .unwrap();
    port
}

/// Calls a handler of `server`, both sides in this thread.
fn call<S, T>(
    client: &mut ActiveMessages<S>,
    server: &mut ActiveMessages<T>,
    mut ask: impl FnMut(&mut ActiveMessages<S>, &std::rc::Rc<std::cell::RefCell<Option<Outcome>>>),
) -> Outcome {
    let outcome = std::rc::Rc::default();
    ask(client, &outcome);
    eventually("the request completes", || {
        server.poll().unwrap();
        client.poll().unwrap();
        outcome.borrow().is_some()
    });
    outcome.take().unwrap()
}

type Outcome = Result<([u64; 4], Vec<u8>), Unanswered>;

/// Keeps an answer for [`call`].
macro_rules! keep {
    ($outcome:expr) => {{
        let place = std::rc::Rc::clone($outcome);
        move |_: &mut _, answer: Result<tsumugi::active_message::Answer<'_>, Unanswered>| {
            let answer = answer.map(|answer| (answer.words, answer.data.to_vec()));
            assert!(place.borrow_mut().replace(answer).is_none(), "completed twice");
        }
    }};
}

#[test]
fn requests_of_all_sizes_are_answered() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut server, mut client) =
        (echo(&there, ActiveMessageOptions::default()), port(&here, ActiveMessageOptions::default(), ()));
    for bytes in [0, 1, 7, 1400, 5000, 65536] {
        let data = payload(bytes as u64, bytes);
        let words = [1, 2, 3, u64::MAX - 1];
        let outcome = call(&mut client, &mut server, |client, outcome| {
            client.request_bulk(peer, "echo", words, &data, keep!(outcome)).unwrap();
        });
        assert_eq!(outcome, Ok(([2, 3, 4, u64::MAX], data.clone())));
    }
    assert_eq!((*server.state(), client.outstanding()), (6, 0));
}

#[test]
fn a_handler_that_does_not_reply_completes_the_request_all_the_same() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let options = ActiveMessageOptions::default().tokens(1);
    let (mut server, mut client) = (port(&there, options, Vec::new()), port(&here, options, ()));
    server.register("note", |seen: &mut Vec<u64>, request, _reply| seen.push(request.words[0])).unwrap();
    for number in 0..20 {
        let outcome = call(&mut client, &mut server, |client, outcome| {
            client.request(peer, "note", [number, 0, 0, 0], keep!(outcome)).unwrap();
        });
        assert_eq!(outcome, Ok(([0; 4], Vec::new())));
    }
    assert!(server.state().iter().copied().eq(0..20));
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let small = ActiveMessageOptions::default().bulk_bytes(100);
    let (mut server, mut client) = (echo(&there, small), port(&here, ActiveMessageOptions::default(), ()));
    server
        .register("long", |_, _, reply| {
            assert!(matches!(
                reply.send_bulk([0; 4], &[0; 101]),
                Err(ReplyError::TooLong { bytes: 101, limit: 100 })
            ));
        })
        .unwrap();
    let mut ask = |handler: &'static str, bytes: usize| {
        call(&mut client, &mut server, |client, outcome| {
            client.request_bulk(peer, handler, [0; 4], &vec![0; bytes], keep!(outcome)).unwrap();
        })
    };
    let error = ask("no such handler", 0).unwrap_err();
    assert_eq!(error, Unanswered::UnknownHandler { peer, name: "no such handler" });
    assert!(error.to_string().contains("'no such handler'"), "{error}");
    assert_eq!(ask("echo", 101).unwrap_err(), Unanswered::TooLong { peer, limit: 100 });
    assert_eq!(ask("long", 0).unwrap_err(), Unanswered::ReplyTooLong { peer, limit: 100 });
    assert!(ask("echo", 100).is_ok());
    assert_eq!(server.register("echo", |_, _, _| {}), Err(NameError::Twice("echo".into())));
    assert!(matches!(
        client.request_bulk(peer, "echo", [0; 4], &[0; 65537], |_, _| {}),
        Err(RequestError::TooLong { bytes: 65537, limit: 65536 })
    ));
    assert!(matches!(
        client.request(PeerId(9), "echo", [0; 4], |_, _| {}),
        Err(RequestError::Send(SendError::NoSuchPeer(PeerId(9))))
    ));
    let taken = ActiveMessages::open(&here, CHANNEL, ActiveMessageOptions::default(), ());
    assert!(matches!(taken.err(), Some(PortError::Channel(_))));
    let none = ActiveMessages::open(&here, 4, ActiveMessageOptions::default().tokens(0), ());
    assert_eq!(none.err(), Some(PortError::Zero("tokens")));
    let short = open(Config::loopback().message_bytes_max(1000));
    assert!(matches!(
        ActiveMessages::open(&short, CHANNEL, ActiveMessageOptions::default(), ()).err(),
        Some(PortError::MessageBytes { limit: 1000, .. })
    ));
}

#[test]
fn tokens_bound_what_is_outstanding_and_come_back() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let options = ActiveMessageOptions::default().tokens(20);
    let (mut server, mut client) = (echo(&there, options.tokens(12)), port(&here, options, 0));
    let mut fill = |client: &mut ActiveMessages<i32>| {
        let mut sent = 0;
        while client.may_request(peer, 0).is_ok() {
            client
                .try_request(peer, "echo", [0; 4], |done, answer| *done += i32::from(answer.is_ok()))
                .unwrap();
            sent += 1;
        }
        assert!(matches!(client.try_request(peer, "echo", [0; 4], |_, _| {}), Err(RequestError::WouldBlock)));
        eventually("they are answered", || {
            server.poll().unwrap();
            client.poll().unwrap();
            client.outstanding() == 0
        });
        sent
    };
    assert_eq!(fill(&mut client), 8, "before the peer has said what it takes");
    assert_eq!(fill(&mut client), 12, "what the peer takes");
    assert_eq!(*client.state(), 20);
}

#[test]
fn who_waits_for_a_token_serves_meanwhile() {
    // Two threads that do nothing but ask each other would wait for each other forever otherwise.
    for tokens in [1, 4] {
        in_time(move || {
            const REQUESTS: u64 = 2000;
            let options = ActiveMessageOptions::default().tokens(tokens);
            let config = Config::loopback().send_bytes(1);
            let ports = std::sync::mpsc::channel();
            let (to_main, from_main) = (ports.0, std::sync::mpsc::channel::<u16>());
            let run = move |endpoint: Endpoint, peer: PeerId| {
                let mut port = port(&endpoint, options, (0, 0));
                port.register("count", |(served, _): &mut (u64, u64), request, reply| {
                    *served += 1;
                    reply.send_bulk([0; 4], request.data).unwrap();
                })
                .unwrap();
                for number in 0..REQUESTS {
                    let data = payload(number, (number % 3000) as usize);
                    let expected = data.clone();
                    port.request_bulk(peer, "count", [0; 4], &data, move |(_, done), answer| {
                        assert_eq!(answer.unwrap().data, expected);
                        *done += 1;
                    })
                    .unwrap();
                }
                while *port.state() != (REQUESTS, REQUESTS) {
                    port.poll_timeout(Duration::MAX).unwrap();
                }
                drop(port);
                // The other side may have closed first.
                let _ = endpoint.close();
            };
            let other = {
                let config = config.clone();
                std::thread::spawn(move || {
                    let endpoint = open(config);
                    to_main.send(endpoint.port()).unwrap();
                    let port = from_main.1.recv().unwrap();
                    let peer = endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap();
                    run(endpoint, peer);
                })
            };
            let endpoint = open(config);
            let peer = endpoint.add_peer(format!("127.0.0.1:{}", ports.1.recv().unwrap())).unwrap();
            from_main.0.send(endpoint.port()).unwrap();
            run(endpoint, peer);
            other.join().unwrap();
        });
    }
}

#[test]
fn a_call_waits_for_its_reply() {
    in_time(|| {
        let (port_out, port_in) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let endpoint = open(Config::loopback());
            let mut port = echo(&endpoint, ActiveMessageOptions::default());
            port_out.send(endpoint.port()).unwrap();
            while *port.state() != 3 {
                port.poll_timeout(Duration::MAX).unwrap();
            }
            drop(port);
            let _ = endpoint.close();
        });
        let endpoint = open(Config::loopback());
        let peer = endpoint.add_peer(format!("127.0.0.1:{}", port_in.recv().unwrap())).unwrap();
        let mut port = port(&endpoint, ActiveMessageOptions::default(), ());
        for number in 0..3 {
            let (words, data) = port.call(peer, "echo", [number, 0, 0, 0], b"ping").unwrap();
            assert_eq!((words[0], &data[..]), (number + 1, &b"ping"[..]));
        }
        eventually("the server has closed", || {
            port.poll().unwrap();
            server.is_finished()
        });
        server.join().unwrap();
        // Nobody is there any more, which the port learns sooner or later.
        eventually("the peer is known to be gone", || match port.call(peer, "echo", [0; 4], b"") {
            Err(CallError::NotSent(_) | CallError::Unanswered(Unanswered::Peer(_))) => true,
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn requests_to_a_peer_that_goes_away_fail_and_those_to_others_do_not() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let other = open(Config::loopback());
    let other_peer = here.add_peer(format!("127.0.0.1:{}", other.port())).unwrap();
    let mut client = port(&here, ActiveMessageOptions::default(), Vec::new());
    let mut living = echo(&other, ActiveMessageOptions::default());
    for number in 0..5 {
        for to in [peer, other_peer] {
            client
                .request(to, "echo", [number, 0, 0, 0], move |seen: &mut Vec<_>, answer| {
                    seen.push((to, number, answer.map(|answer| answer.words[0])));
                })
                .unwrap();
        }
    }
    // It has taken the requests in, and nobody handles them.
    for _ in 0..10 {
        here.progress().unwrap();
        there.progress().unwrap();
    }
    drop(there);
    eventually("everything completes", || {
        living.poll().unwrap();
        client.poll().unwrap();
        client.state().len() == 10
    });
    let mut lost = client.state().iter().filter(|(to, ..)| *to == peer);
    for number in 0..5 {
        let (_, which, outcome) = lost.next().unwrap();
        assert_eq!(*which, number, "in order");
        assert!(matches!(outcome, Err(Unanswered::Peer(failure)) if failure.peer == peer), "{outcome:?}");
    }
    let kept = client.state().iter().filter(|(to, ..)| *to == other_peer);
    assert!(kept.map(|(_, _, outcome)| outcome.clone()).eq((1..6).map(Ok)));
    assert!(matches!(
        client.request(peer, "echo", [0; 4], |_, _| {}),
        Err(RequestError::Send(SendError::Peer(_)))
    ));
}

#[test]
fn requests_to_a_restarted_peer_do_not_fail_with_those_to_its_predecessor() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let mut client = port(&here, ActiveMessageOptions::default(), Vec::new());
    let ask = |client: &mut ActiveMessages<Vec<_>>, number| {
        client
            .request(peer, "echo", [number, 0, 0, 0], move |seen: &mut Vec<_>, answer| {
                seen.push((number, answer.map(|answer| answer.words[0]).is_ok()));
            })
            .unwrap();
    };
    (0..3).for_each(|number| ask(&mut client, number));
    let address = there.port();
    drop(there);
    eventually("the peer is known to be gone", || {
        here.progress().unwrap();
        client.may_request(peer, 0).is_err()
    });
    // Nobody has heard yet that the requests have failed.
    here.reset_peer(peer);
    ask(&mut client, 3);
    let there = open(Config::loopback().port(address));
    let mut successor = echo(&there, ActiveMessageOptions::default());
    eventually("everything completes", || {
        successor.poll().unwrap();
        client.poll().unwrap();
        client.state().len() == 4
    });
    assert_eq!(client.state()[..], [(0, false), (1, false), (2, false), (3, true)]);
}

#[test]
fn a_peer_that_falls_silent_after_it_has_acknowledged_a_request_is_noticed() {
    let config = Config::loopback()
        .peer_timeout(Duration::from_millis(200))
        .faults(Some("firewall=on".parse().unwrap()));
    let (here, there, peer) = connected(config, Config::loopback());
    let mut client = port(&here, ActiveMessageOptions::default(), None);
    client.request(peer, "echo", [0; 4], |seen, answer| *seen = answer.err()).unwrap();
    // What was sent behind it is acknowledged, so it is, too.
    let ticket = here.channel(9).unwrap().post(peer, b"behind").unwrap();
    eventually("the request is acknowledged", || {
        there.progress().unwrap();
        client.poll().unwrap();
        here.status(ticket) == TicketStatus::Delivered
    });
    // From here on nobody calls `there`, as if its process hung.
    eventually("the request fails", || {
        client.poll().unwrap();
        client.state().is_some()
    });
    assert!(
        matches!(client.state(), Some(Unanswered::Peer(failure)) if matches!(failure.reason, Reason::Silent(..))),
        "{:?}",
        client.state()
    );
}

#[test]
fn a_store_is_where_the_handler_and_a_get_see_it() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut server, mut client) = (
        port(&there, ActiveMessageOptions::default(), Vec::new()),
        port(&here, ActiveMessageOptions::default(), ()),
    );
    server.register_segment("board", vec![0; 1000]).unwrap();
    assert_eq!(server.register_segment("board", vec![]), Err(NameError::Twice("board".into())));
    server
        .register("stored", |seen: &mut Vec<_>, request, reply| {
            seen.push((request.offset, request.words[0], request.data.to_vec()));
            reply.send([7; 4]).unwrap();
        })
        .unwrap();
    let data = payload(1, 600);
    let outcome = call(&mut client, &mut server, |client, outcome| {
        client.store(peer, ("board", 400), &data, "stored", [5; 4], keep!(outcome)).unwrap();
    });
    assert_eq!(outcome, Ok(([7; 4], vec![])));
    assert_eq!(server.state()[..], [(Some(400), 5, data.clone())]);
    assert_eq!(server.segment("board").unwrap()[400..], data);
    let outcome = call(&mut client, &mut server, |client, outcome| {
        client.get(peer, ("board", 390), 20, keep!(outcome)).unwrap();
    });
    assert_eq!(outcome, Ok(([0; 4], [&[0; 10], &data[..10]].concat())));
    // Nothing outside, however it is asked for, and nothing is written then.
    let before = server.segment("board").unwrap().to_vec();
    for (offset, bytes) in [(401, 600), (1001, 0), (u64::MAX, 600), (u64::MAX - 599, 600)] {
        let outcome = call(&mut client, &mut server, |client, outcome| {
            client.store(peer, ("board", offset), &vec![9; bytes], "stored", [0; 4], keep!(outcome)).unwrap();
        });
        let expected = Unanswered::OutOfBounds { peer, name: "board", bytes: 1000 };
        assert_eq!(outcome, Err(expected.clone()));
        let outcome = call(&mut client, &mut server, |client, outcome| {
            client.get(peer, ("board", offset), bytes, keep!(outcome)).unwrap();
        });
        assert_eq!(outcome, Err(expected));
    }
    for (segment, handler) in [("table", "stored"), ("board", "table")] {
        let outcome = call(&mut client, &mut server, |client, outcome| {
            client.store(peer, (segment, 0), &[9], handler, [0; 4], keep!(outcome)).unwrap();
        });
        let expected = match handler {
            "stored" => Unanswered::UnknownSegment { peer, name: "table" },
            _ => Unanswered::UnknownHandler { peer, name: "table" },
        };
        assert_eq!(outcome, Err(expected));
    }
    assert_eq!(server.segment("board").unwrap(), before);
    assert_eq!(server.remove_segment("board"), Some(before));
}

/// A request for a handler that nobody has, as bytes.
fn raw_request(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 56];
    bytes[0] = 1;
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn who_asks_without_tokens_is_not_answered() {
    let (here, there, _) = connected(Config::loopback(), Config::loopback());
    let mut server = port(&here, ActiveMessageOptions::default().tokens(1), ());
    let hostile = there.channel(CHANNEL).unwrap();
    for number in 0..20 {
        hostile.post(PeerId(0), &raw_request(number)).unwrap();
    }
    there.progress().unwrap();
    // No acknowledgement of a reply can arrive meanwhile.
    let mut handled = 0;
    eventually("they all arrive", || {
        handled += server.poll().unwrap();
        handled == 20
    });
    assert_eq!(here.counters().get("violation"), 12);
    let mut answers = 0;
    eventually("the first eight are answered", || {
        here.progress().unwrap();
        answers += usize::from(hostile.try_receive().unwrap().is_some());
        answers == 8
    });
    // With the tokens back it may ask again.
    hostile.post(PeerId(0), &raw_request(20)).unwrap();
    eventually("it is answered", || {
        server.poll().unwrap();
        hostile.try_receive().unwrap().is_some()
    });
}

#[test]
fn garbage_is_counted_and_answered_to_nobody() {
    let (here, there, _) = connected(Config::loopback(), Config::loopback());
    let mut server = echo(&here, ActiveMessageOptions::default());
    let hostile = there.channel(CHANNEL).unwrap();
    let mut handled = 0;
    for round in 0..500u64 {
        let mut bytes = payload(round, (round % 120) as usize);
        if let Some(first) = bytes.first_mut() {
            *first = (round % 8) as u8;
        }
        hostile.post(PeerId(0), &bytes).unwrap();
        handled += server.poll().unwrap();
        while there.progress().unwrap() > 0 {}
        while hostile.try_receive().unwrap().is_some() {}
    }
    eventually("everything is handled", || {
        there.progress().unwrap();
        handled += server.poll().unwrap();
        while hostile.try_receive().unwrap().is_some() {}
        handled == 500
    });
    assert!(here.counters().get("violation") > 100, "{}", here.counters());
    drop(hostile);
    let mut client = port(&there, ActiveMessageOptions::default(), ());
    let outcome = call(&mut client, &mut server, |client, outcome| {
        client.request(PeerId(0), "echo", [1; 4], keep!(outcome)).unwrap();
    });
    assert_eq!(outcome, Ok(([2; 4], vec![])));
}

/// What the handlers of the property below answer with.
fn reply_bytes(words: [u64; 4]) -> usize {
    (words[1] % 4000) as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_request_completes_exactly_once_whatever_is_lost(
        endpoints in 2..=4usize,
        tokens in prop_oneof![Just(1u16), 2..40u16],
        send_bytes in prop_oneof![Just(1u64), Just(1 << 20)],
        queue_bytes in prop_oneof![Just(32u64 << 10), Just(1 << 20)],
        requests in prop::collection::vec((0..4usize, 1..4usize, 0..5000usize, any::<u64>()), 1..150),
        seed in any::<u64>(),
    ) {
        let faults: FaultOptions = format!("loss=3%,dup=3%,reorder=5%,seed={seed}").parse().unwrap();
        let config = Config::loopback().send_bytes(send_bytes).queue_bytes(queue_bytes).receive_bytes(queue_bytes).datagram_bytes(Some(1472)).faults(Some(faults));
        let (endpoints, peers) = cluster(endpoints, &config);
        let options = ActiveMessageOptions::default().tokens(tokens).bulk_bytes(5000);
        // Requests served, and how often each request of ours was completed.
        let mut ports: Vec<ActiveMessages<(u64, Vec<u32>)>> = endpoints
            .iter()
            .map(|endpoint| {
                let mut port = port(endpoint, options, (0, vec![0; requests.len()]));
                port.register("work", |(served, _): &mut (u64, Vec<u32>), request, reply| {
                    *served += 1;
                    assert_eq!(request.data, payload(request.words[0], request.data.len()));
                    match request.words[1] % 3 {
                        0 => {}
                        1 => reply.send(request.words).unwrap(),
                        _ => {
                            let data = payload(request.words[0], reply_bytes(request.words));
                            reply.send_bulk(request.words, &data).unwrap();
                        }
                    }
                })
                .unwrap();
                port
            })
            .collect();
        let count = ports.len();
        let mut waiting: Vec<Vec<_>> = vec![Vec::new(); count];
        for (at, &(from, step, bytes, seed)) in requests.iter().enumerate().rev() {
            let from = from % count;
            let to = (from + 1 + step % (count - 1)) % count;
            waiting[from].push((at, peers[from][to], bytes, seed));
        }
        eventually("everything completes", || {
            for (port, waiting) in ports.iter_mut().zip(&mut waiting) {
                if let Some(&(at, peer, bytes, seed)) = waiting.last() {
                    let (words, data) = ([at as u64, seed, 0, 0], payload(at as u64, bytes));
                    let sent = port.try_request_bulk(peer, "work", words, &data, move |(_, done), answer| {
                        done[at] += 1;
                        let answer = answer.unwrap();
                        match seed % 3 {
                            0 => assert_eq!((answer.words, answer.data), ([0; 4], &[][..])),
                            1 => assert_eq!((answer.words, answer.data), (words, &[][..])),
                            _ => assert_eq!(answer.data, payload(words[0], reply_bytes(words))),
                        }
                    });
                    match sent {
                        Ok(()) => {
                            waiting.pop();
                        }
                        Err(RequestError::WouldBlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            for port in &mut ports {
                port.poll().unwrap();
            }
            waiting.iter().all(Vec::is_empty) && ports.iter().all(|port| port.outstanding() == 0)
        });
        let served: u64 = ports.iter().map(|port| port.state().0).sum();
        prop_assert_eq!(served, requests.len() as u64);
        for at in 0..requests.len() {
            let completed: u32 = ports.iter().map(|port| port.state().1[at]).sum();
            prop_assert_eq!(completed, 1, "request {}", at);
        }
        for endpoint in &endpoints {
            prop_assert_eq!(endpoint.counters().get("violation"), 0);
        }
    }
}
