//! A peer that was added twice, by two addresses, has two numbers: every programming model takes either, before it is known
//! that they are the same and after.

use crate::loopback::{eventually, open, payload};
use std::cell::RefCell;
use std::rc::Rc;
use tsumugi::active_message::{self, ActiveMessageOptions, ActiveMessages};
use tsumugi::message::{Pattern, Port};
use tsumugi::stream::{Incoming, StreamOptions, Streams};
use tsumugi::{Config, Context, Endpoint, Networks, PeerId, Region, Rights, TicketStatus};

/// Reached by every address of the loopback interface, and by no other.
fn config() -> Config {
    let networks: Networks = "127.0.0.0/8".parse().unwrap();
    Config::loopback().bind("0.0.0.0".parse().unwrap()).networks(Some(networks))
}

fn add(here: &Endpoint, there: &Endpoint) -> [PeerId; 2] {
    ["127.0.0.1", "127.0.1.1"].map(|at| here.add_peer(format!("{at}:{}", there.port())).unwrap())
}

/// Two endpoints, and the two numbers of the second with the first.
fn pair() -> (Endpoint, Endpoint, [PeerId; 2]) {
    let (here, there) = (open(config()), open(config()));
    let peers = add(&here, &there);
    (here, there, peers)
}

fn are_one(here: &Endpoint, peers: [PeerId; 2]) {
    assert_eq!(peers.map(|peer| here.canonical(peer)), [peers[0]; 2]);
}

#[test]
fn tagged_messages() {
    let (here, there, peers) = pair();
    let (ours, theirs) = (Port::open(&here, 1).unwrap(), Port::open(&there, 1).unwrap());
    // Short ones, and such as are fetched by who receives them.
    for (round, bytes) in [10, 300_000, 10, 300_000].into_iter().enumerate() {
        let round = round as u64;
        let data = [0, 1].map(|at| payload(2 * round + at as u64, bytes));
        let expected: Vec<_> =
            peers.iter().map(|peer| ours.receive(Pattern::of(*peer, round), vec![0; bytes].into())).collect();
        let sent: Vec<_> =
            (0..2).map(|at| ours.send(peers[at], 10 * round + at as u64, &data[at]).unwrap()).collect();
        let mut got = [false; 2];
        let mut answered = 0;
        eventually("both arrive and are answered", || {
            ours.progress().unwrap();
            for at in 0..2 {
                let tag = 10 * round + at as u64;
                let Some(claim) = theirs.claim(Pattern::tagged(tag)).unwrap() else { continue };
                let mut request = theirs.receive_claimed(claim, vec![0; bytes].into());
                let mut done = None;
                eventually("it is received", || {
                    ours.progress().unwrap();
                    done = theirs.test(&mut request).unwrap();
                    done.is_some()
                });
                let done = done.unwrap();
                let status = done.outcome.unwrap();
                assert_eq!(
                    (status.peer, done.buffer.as_ref().unwrap()[..] == data[at][..]),
                    (PeerId(0), true)
                );
                theirs.send(status.peer, round, &data[at]).unwrap();
                (got[at], answered) = (true, answered + 1);
            }
            theirs.progress().unwrap();
            got == [true; 2]
        });
        assert_eq!(answered, 2);
        let mut open: Vec<_> = sent.into_iter().map(|request| (request, None)).collect();
        open.extend(expected.into_iter().map(|request| (request, Some(peers[0]))));
        eventually("all is completed", || {
            theirs.progress().unwrap();
            open.retain_mut(|(request, from)| match ours.test(request).unwrap() {
                None => true,
                Some(done) => {
                    let status = done.outcome.unwrap();
                    assert!(from.is_none_or(|peer| peer == status.peer), "{status:?}");
                    false
                }
            });
            open.is_empty()
        });
        are_one(&here, peers);
    }
}

#[test]
fn active_messages() {
    let (here, there, peers) = pair();
    let port = |endpoint, state| ActiveMessages::open(endpoint, 1, ActiveMessageOptions::default(), state);
    let (mut client, mut server) = (port(&here, Vec::new()).unwrap(), port(&there, Vec::new()).unwrap());
    server
        .register("double", |seen: &mut Vec<u64>, request, reply| {
            seen.push(request.words[0]);
            reply.send(request.words.map(|word| 2 * word)).unwrap();
        })
        .unwrap();
    for round in 0..3u64 {
        for (at, peer) in peers.into_iter().enumerate() {
            let word = 2 * round + at as u64;
            let kept = move |answers: &mut Vec<u64>, answer: Result<active_message::Answer<'_>, _>| {
                answers.push(
                    answer.map_err(|error: active_message::Unanswered| error.to_string()).unwrap().words[0],
                );
            };
            client.request(peer, "double", [word; 4], kept).unwrap();
        }
        eventually("both are answered", || {
            server.poll().unwrap();
            client.poll().unwrap();
            client.outstanding() == 0
        });
        are_one(&here, peers);
    }
    client.state_mut().sort_unstable();
    assert_eq!(*client.state(), [0, 2, 4, 6, 8, 10]);
    assert_eq!(server.state().len(), 6);
}

#[test]
fn streams() {
    let (here, there, peers) = pair();
    let port = |endpoint| Streams::open(endpoint, 1, StreamOptions::default(), Vec::new()).unwrap();
    let (mut from, mut to) = (port(&here), port(&there));
    to.register("keep", |mut incoming: Incoming<Vec<Vec<u8>>>| async move {
        let mut data = vec![0; 100_000];
        incoming.read_exact(&mut data).await.unwrap();
        incoming.with(|kept| kept.push(data));
    })
    .unwrap();
    for round in 0..3u64 {
        for (at, peer) in peers.into_iter().enumerate() {
            let mut message = from.begin(peer, "keep").unwrap();
            from.spawn(async move {
                for part in payload(2 * round + at as u64, 100_000).chunks(7000) {
                    message.piece(part).await.unwrap();
                }
                message.end().await.unwrap();
            });
        }
        eventually("both are read", || {
            from.poll().unwrap();
            to.poll().unwrap();
            to.with(|kept| kept.len() as u64 == 2 * (round + 1))
        });
        are_one(&here, peers);
    }
    let mut kept = to.with(std::mem::take);
    let mut sent: Vec<_> = (0..6).map(|number| payload(number, 100_000)).collect();
    kept.sort();
    sent.sort();
    assert!(kept == sent, "something is altered");
}

#[test]
fn remote_memory() {
    let (here, there, peers) = pair();
    let region = Region::new(1 << 20).unwrap();
    let registration = there.remote().register(&region.all(), Rights::ALL).unwrap();
    let target = registration.target();
    for round in 0..3u64 {
        let mut operations = Vec::new();
        for (at, peer) in peers.into_iter().enumerate() {
            let place = tsumugi::Target { address: target.address + 4096 * at as u64, ..target };
            here.remote().write_bytes(peer, place, &payload(2 * round + at as u64, 1000)).unwrap();
            operations.push(here.remote().fence(peer).unwrap());
            operations.push(
                here.remote()
                    .fetch_add(peer, tsumugi::Target { address: target.address + 8192, ..target }, 1)
                    .unwrap(),
            );
        }
        eventually("all is done", || {
            there.progress().unwrap();
            here.progress().unwrap();
            operations.iter().all(|operation| operation.outcome().is_some())
        });
        let mut before: Vec<u64> = [1, 3].map(|at| operations[at].outcome().unwrap().unwrap()).to_vec();
        before.sort_unstable();
        assert_eq!(before, [2 * round, 2 * round + 1]);
        for at in 0..2 {
            let mut data = vec![0; 1000];
            region.read(4096 * at, &mut data).unwrap();
            assert!(data == payload(2 * round + at as u64, 1000), "round {round}, by number {at}");
        }
        are_one(&here, peers);
    }
}

/// Sends under every number, and hears all from the first.
fn talk(here: &Endpoint, there: &Endpoint, peers: [PeerId; 2]) {
    let (ours, theirs) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    let tickets = peers.map(|peer| ours.post(peer, b"one way").unwrap());
    let heard = Rc::new(RefCell::new(0));
    eventually("both ways", || {
        if let Some(message) = theirs.try_receive().unwrap() {
            let source = message.source();
            drop(message);
            theirs.post(source, b"and back").unwrap();
        }
        if let Some(message) = ours.try_receive().unwrap() {
            assert_eq!(message.source(), peers[0]);
            *heard.borrow_mut() += 1;
        }
        *heard.borrow() == 2 && tickets.iter().all(|ticket| here.status(*ticket) == TicketStatus::Delivered)
    });
}

#[test]
fn suspended_and_resumed() {
    let (here, there, peers) = pair();
    talk(&here, &there, peers);
    are_one(&here, peers);
    let context = here.suspend().map_err(|(error, _)| error).unwrap();
    let context = Context::from_bytes(&context.to_bytes()).unwrap();
    let here = Endpoint::resume(&context, config()).unwrap();
    // Both numbers stay good.
    are_one(&here, peers);
    talk(&here, &there, peers);
    // And both addresses are known to be the same peer's.
    assert_eq!(add(&here, &there).map(|peer| here.canonical(peer)), [peers[0]; 2]);
    talk(&here, &there, peers);
}
