//! Programs that end: with something under way, in good order, or killed while somebody waits for them.

use crate::process::{PATIENCE, Process};
use crate::{CHANNEL, MARGIN, alone, open, peer_at, progress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::time::Timespec;
use std::time::{Duration, Instant};
use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages, CallError};
use tsumugi::{Channel, Config, Endpoint, PeerId, Reason, ReceiveError, Refusal, SendError};

#[test]
fn what_was_accepted_arrives_though_the_program_ends_without_closing() {
    const COUNT: u64 = 1000;
    let _alone = alone();
    for (how, faults) in
        [("post_and_end", "loss=0%"), ("post_and_end", "loss=10%"), ("end_first", "loss=10%")]
    {
        let endpoint = open(Config::loopback());
        let channel = endpoint.channel(CHANNEL).unwrap();
        let there = Process::start(&format!("{how} {} {COUNT} {faults}", endpoint.port()));
        for number in 0..COUNT {
            let message = channel.receive_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{how} with {faults}: message {number}: {error}");
            });
            assert_eq!(message[..], number.to_le_bytes(), "{how} with {faults}");
        }
        // It is told that its messages have arrived, and that its end was heard of.
        there.finish_while(|| progress(&endpoint));
        let failure = endpoint.take_failure().expect("it is gone");
        assert!(failure.is_orderly(), "{failure}");
    }
}

#[test]
fn a_program_that_ends_lingers_no_longer_than_it_may() {
    const LINGER: Duration = Duration::from_millis(400);
    let _alone = alone();
    for linger in [LINGER, Duration::ZERO] {
        let mut there = Process::start("serve 0");
        let endpoint = open(Config::loopback().linger(linger));
        let channel = endpoint.channel(CHANNEL).unwrap();
        let peer = peer_at(&endpoint, there.hear_number());
        channel.send(peer, b"taken").unwrap();
        endpoint.flush().unwrap();
        there.signal(Signal::STOP);
        channel.send(peer, b"not to be acknowledged").unwrap();
        let start = Instant::now();
        drop((channel, endpoint));
        let took = start.elapsed();
        assert!((linger..linger + MARGIN).contains(&took), "{took:?} with {linger:?}");
    }
}

/// A server that has acknowledged a request and will not answer it.
fn unanswered() -> (Endpoint, Channel, Process, PeerId) {
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start("serve 0");
    let peer = peer_at(&endpoint, there.hear_number());
    channel.send(peer, b"a request that is not answered").unwrap();
    endpoint.flush().unwrap();
    (endpoint, channel, there, peer)
}

#[test]
fn a_peer_that_is_killed_is_reported_to_who_waits_though_it_owes_no_acknowledgement() {
    let _alone = alone();
    let (_endpoint, channel, mut there, peer) = unanswered();
    match channel.receive_timeout(Duration::from_millis(300)) {
        Err(ReceiveError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    there.kill();
    let killed = Instant::now();
    match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            assert_eq!((failure.peer, failure.reason, failure.undelivered), (peer, Reason::Gone, 0));
        }
        other => panic!("{other:?}"),
    }
    println!("heard of it after {:?}", killed.elapsed());
    assert!(killed.elapsed() < MARGIN);
}

#[test]
fn an_event_loop_hears_of_a_peer_that_is_killed() {
    let _alone = alone();
    let (endpoint, channel, mut there, peer) = unanswered();
    there.kill();
    let killed = Instant::now();
    let descriptor = endpoint.descriptor().unwrap();
    let failure = loop {
        match channel.try_receive() {
            Ok(None) => {}
            Err(ReceiveError::Peer(failure)) => break failure,
            other => panic!("{other:?}"),
        }
        assert!(endpoint.deadline().is_some(), "it will look after the peer");
        let margin = Timespec::try_from(MARGIN).unwrap();
        let ready = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&margin));
        assert_eq!(ready, Ok(1), "nothing wakes the event loop");
    };
    assert_eq!((failure.peer, failure.reason), (peer, Reason::Gone));
    assert!(killed.elapsed() < MARGIN, "{:?}", killed.elapsed());
}

#[test]
fn clients_that_leave_in_good_order_do_not_end_a_server() {
    let _alone = alone();
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    for _ in 0..3 {
        let there = Process::start(&format!("send_and_close {} 5", endpoint.port()));
        for _ in 0..5 {
            channel.receive_timeout(PATIENCE).expect("no client's leaving is an error");
        }
        there.finish_while(|| progress(&endpoint));
        // It can be known all the same.
        assert!(endpoint.take_failure().expect("it has left").is_orderly());
    }
    match channel.receive_timeout(Duration::from_millis(200)) {
        Err(ReceiveError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_hears_when_the_last_server_has_left() {
    let _alone = alone();
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let servers = [(); 2].map(|()| {
        let mut there = Process::start("take_and_close");
        let peer = peer_at(&endpoint, there.hear_number());
        (there, peer)
    });
    for (_, peer) in &servers {
        channel.send(*peer, b"a request").unwrap();
    }
    endpoint.flush().unwrap();
    let [(mut first, _), (mut second, last)] = servers;
    first.tell("close");
    first.finish_while(|| progress(&endpoint));
    match channel.receive_timeout(Duration::from_millis(200)) {
        Err(ReceiveError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    second.tell("close");
    match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            assert_eq!((failure.peer, failure.reason), (last, Reason::Closed), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_to_a_server_that_has_stopped_ends_in_time() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let _alone = alone();
    let endpoint = open(Config::loopback());
    let mut there = Process::start("double");
    let peer = peer_at(&endpoint, there.hear_number());
    let mut port = ActiveMessages::open(&endpoint, CHANNEL, ActiveMessageOptions::default(), ()).unwrap();
    assert_eq!(port.call(peer, "double", [21, 0, 0, 0], &[]).unwrap().0[0], 42);
    there.signal(Signal::STOP);
    // What was on its way is answered before it stands still.
    let mut unanswered = 0;
    while unanswered < 3 {
        let start = Instant::now();
        match port.call_timeout(peer, "double", [1, 0, 0, 0], &[], TIMEOUT) {
            Err(CallError::TimedOut { peer: asked, .. }) => assert_eq!(asked, peer),
            Ok(_) if unanswered == 0 => continue,
            other => panic!("{other:?}"),
        }
        assert!((TIMEOUT..TIMEOUT + MARGIN).contains(&start.elapsed()), "{:?}", start.elapsed());
        unanswered += 1;
    }
    there.signal(Signal::CONT);
    // Late answers are dropped, each call gets its own.
    assert_eq!(port.call_timeout(peer, "double", [33, 0, 0, 0], &[], PATIENCE).unwrap().0[0], 66);
    assert_eq!(port.outstanding(), 0);
}

#[test]
fn a_server_sees_any_number_of_clients_one_after_the_other() {
    let _alone = alone();
    let endpoint = open(Config::loopback().peers_max(2));
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut sources = Vec::new();
    for _ in 0..6 {
        let there = Process::start(&format!("send_and_close {} 3", endpoint.port()));
        let mut source = None;
        for _ in 0..3 {
            source = Some(channel.receive_timeout(PATIENCE).expect("there is room for one more").source());
        }
        there.finish_while(|| progress(&endpoint));
        // Nobody is taken for somebody who was there before.
        assert!(source.is_some_and(|source| !sources.contains(&source)), "{source:?} after {sources:?}");
        sources.extend(source);
    }
    // What is meant for one that left long ago reaches nobody.
    assert!(matches!(channel.post(sources[0], b"?"), Err(SendError::NoSuchPeer(_))));
    assert!(matches!(channel.post(sources[5], b"?"), Err(SendError::Peer(_))));
    assert!(endpoint.report().given_up.iter().all(|it| !it.what.contains("peers")), "{}", endpoint.report());
}

#[test]
fn a_peer_for_which_there_is_no_room_is_told_and_one_that_was_killed_makes_room() {
    let _alone = alone();
    let mut there = Process::start("serve_few 1");
    let port: u16 = there.hear_number();
    let first = open(Config::loopback());
    let peer = peer_at(&first, port);
    let channel = first.channel(CHANNEL).unwrap();
    channel.send(peer, b"first").unwrap();
    assert_eq!(there.hear_while(|| progress(&first)), "5");

    let second = open(Config::loopback());
    let peer = peer_at(&second, port);
    let mut refused = second.channel(CHANNEL).unwrap();
    refused.post(peer, b"second").unwrap();
    let asked = Instant::now();
    match refused.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            assert_eq!((failure.reason, failure.undelivered), (Reason::Refused(Refusal::Full(1)), 1));
            assert!(failure.to_string().contains("peers_max"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert!(asked.elapsed() < MARGIN, "{:?}", asked.elapsed());
    there.tell("report");
    let report = there.hear_while(|| progress(&first));
    assert!(report.contains("peers beyond 1") && report.contains("raise Config::peers_max"), "{report}");

    // And when the one that has the place is killed, another gets it though nobody was told.
    drop((channel, first));
    let mut killed = Process::start(&format!("send_and_stay {port}"));
    assert_eq!(killed.hear(), "sent");
    assert_eq!(there.hear(), "4");
    killed.kill();
    let send_again = |refused: &mut Channel| {
        second.reset_peer(peer);
        refused.post(peer, b"second").unwrap();
    };
    send_again(&mut refused);
    let heard = there.hear_while(|| {
        progress(&second);
        // A slow machine may take longer to find out than a peer is asked again after a refusal.
        if let Some(failure) = second.take_failure() {
            assert_eq!(failure.reason, Reason::Refused(Refusal::Full(1)), "{failure}");
            send_again(&mut refused);
        }
    });
    assert_eq!(heard, "6");
}

#[test]
fn an_endpoint_of_another_job_and_one_that_is_on_no_list_are_told() {
    let _alone = alone();
    for (there, expected) in [
        (Config::loopback().job(7), Refusal::Job(7)),
        (Config::loopback().accept_unknown(false), Refusal::Stranger),
    ] {
        let there = Endpoint::open(there).unwrap();
        let here = open(Config::loopback());
        let peer = peer_at(&here, there.port());
        let channel = here.channel(CHANNEL).unwrap();
        channel.post(peer, b"?").unwrap();
        let asked = Instant::now();
        let failure = loop {
            progress(&there);
            match channel.try_receive() {
                Ok(None) => assert!(asked.elapsed() < MARGIN, "nothing is said"),
                Err(ReceiveError::Peer(failure)) => break failure,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failure.reason, Reason::Refused(expected), "{failure}");
    }
}
