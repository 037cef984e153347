//! A peer that was added twice, by two addresses, has two numbers: every programming model takes either, before it is known
//! that they are the same and after.

use crate::loopback::{contents, eventually, open};
use std::cell::RefCell;
use std::rc::Rc;
use tsumugi::active_message::{self, ActiveMessages};
use tsumugi::message::{Pattern, Port};
use tsumugi::stream::{self, Incoming, Streams};
use tsumugi::{Config, Context, Endpoint, Networks, Node, Region, Rights, Status};

/// Reached by every address of the loopback interface, and by no other.
fn config() -> Config {
    let networks: Networks = "127.0.0.0/8".parse().unwrap();
    Config { bind: "0.0.0.0".parse().unwrap(), networks: Some(networks), ..Config::loopback() }
}

fn add(here: &Endpoint, there: &Endpoint) -> [Node; 2] {
    ["127.0.0.1", "127.0.1.1"].map(|at| here.add_peer(&format!("{at}:{}", there.port())).unwrap())
}

/// Two endpoints, and the two numbers of the second with the first.
fn pair() -> (Endpoint, Endpoint, [Node; 2]) {
    let (here, there) = (open(config()), open(config()));
    let nodes = add(&here, &there);
    (here, there, nodes)
}

fn are_one(here: &Endpoint, nodes: [Node; 2]) {
    assert_eq!(nodes.map(|node| here.the(node)), [nodes[0]; 2]);
}

#[test]
fn tagged_messages() {
    let (here, there, nodes) = pair();
    let (mut ours, mut theirs) = (Port::open(&here, 1).unwrap(), Port::open(&there, 1).unwrap());
    // Short ones, and such as are fetched by who receives them.
    for (round, bytes) in [10, 300_000, 10, 300_000].into_iter().enumerate() {
        let round = round as u64;
        let data = [0, 1].map(|at| contents(2 * round + at as u64, bytes));
        let expected: Vec<_> =
            nodes.iter().map(|node| ours.receive(Pattern::of(*node, round), vec![0; bytes].into())).collect();
        let sent: Vec<_> =
            (0..2).map(|at| ours.send(nodes[at], 10 * round + at as u64, &data[at]).unwrap()).collect();
        let mut got = [false; 2];
        let mut answered = 0;
        eventually("both arrive and are answered", || {
            ours.progress().unwrap();
            for at in 0..2 {
                let tag = 10 * round + at as u64;
                let Some(claim) = theirs.claim(Pattern::tagged(tag)).unwrap() else { continue };
                let request = theirs.receive_claimed(claim, vec![0; bytes].into());
                let mut done = None;
                eventually("it is received", || {
                    ours.progress().unwrap();
                    done = theirs.test(request).unwrap();
                    done.is_some()
                });
                let done = done.unwrap();
                let status = done.outcome.unwrap();
                assert_eq!((status.node, done.buffer.as_ref().unwrap()[..] == data[at][..]), (Node(0), true));
                let answer = theirs.send(status.node, round, &data[at]).unwrap();
                theirs.let_go(answer);
                (got[at], answered) = (true, answered + 1);
            }
            theirs.progress().unwrap();
            got == [true; 2]
        });
        assert_eq!(answered, 2);
        let mut open: Vec<_> = sent.into_iter().map(|request| (request, None)).collect();
        open.extend(expected.into_iter().map(|request| (request, Some(nodes[0]))));
        eventually("all is completed", || {
            theirs.progress().unwrap();
            open.retain(|(request, from)| match ours.test(*request).unwrap() {
                None => true,
                Some(done) => {
                    let status = done.outcome.unwrap();
                    assert!(from.is_none_or(|node| node == status.node), "{status:?}");
                    false
                }
            });
            open.is_empty()
        });
        are_one(&here, nodes);
    }
}

#[test]
fn active_messages() {
    let (here, there, nodes) = pair();
    let port = |endpoint, state| ActiveMessages::open(endpoint, 1, active_message::Options::default(), state);
    let (mut client, mut server) = (port(&here, Vec::new()).unwrap(), port(&there, Vec::new()).unwrap());
    server
        .register("double", |seen: &mut Vec<u64>, request, reply| {
            seen.push(request.words[0]);
            reply.send(request.words.map(|word| 2 * word)).unwrap();
        })
        .unwrap();
    for round in 0..3u64 {
        for (at, node) in nodes.into_iter().enumerate() {
            let word = 2 * round + at as u64;
            let kept = move |answers: &mut Vec<u64>, answer: Result<active_message::Answer<'_>, _>| {
                answers.push(
                    answer.map_err(|error: active_message::Unanswered| error.to_string()).unwrap().words[0],
                );
            };
            client.request(node, "double", [word; 4], kept).unwrap();
        }
        eventually("both are answered", || {
            server.poll().unwrap();
            client.poll().unwrap();
            client.outstanding() == 0
        });
        are_one(&here, nodes);
    }
    client.state_mut().sort_unstable();
    assert_eq!(*client.state(), [0, 2, 4, 6, 8, 10]);
    assert_eq!(server.state().len(), 6);
}

#[test]
fn streams() {
    let (here, there, nodes) = pair();
    let port = |endpoint| Streams::open(endpoint, 1, stream::Options::default(), Vec::new()).unwrap();
    let (mut from, mut to) = (port(&here), port(&there));
    to.register("keep", |mut incoming: Incoming<Vec<Vec<u8>>>| async move {
        let mut data = vec![0; 100_000];
        incoming.read_exact(&mut data).await.unwrap();
        incoming.with(|kept| kept.push(data));
    })
    .unwrap();
    for round in 0..3u64 {
        for (at, node) in nodes.into_iter().enumerate() {
            let mut message = from.begin(node, "keep").unwrap();
            from.spawn(async move {
                for part in contents(2 * round + at as u64, 100_000).chunks(7000) {
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
        are_one(&here, nodes);
    }
    let mut kept = to.with(std::mem::take);
    let mut sent: Vec<_> = (0..6).map(|number| contents(number, 100_000)).collect();
    kept.sort();
    sent.sort();
    assert!(kept == sent, "something is altered");
}

#[test]
fn remote_memory() {
    let (here, there, nodes) = pair();
    let region = Region::new(1 << 20).unwrap();
    let registration = there.remote().register(&region.all(), Rights::ALL).unwrap();
    let target = registration.target();
    for round in 0..3u64 {
        let mut operations = Vec::new();
        for (at, node) in nodes.into_iter().enumerate() {
            let place = tsumugi::Target { address: target.address + 4096 * at as u64, ..target };
            here.remote().write_bytes(node, place, &contents(2 * round + at as u64, 1000)).unwrap();
            operations.push(here.remote().fence(node).unwrap());
            operations.push(
                here.remote()
                    .fetch_add(node, tsumugi::Target { address: target.address + 8192, ..target }, 1)
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
            assert!(data == contents(2 * round + at as u64, 1000), "round {round}, by number {at}");
        }
        are_one(&here, nodes);
    }
}

/// Sends under every number, and hears all from the first.
fn talk(here: &Endpoint, there: &Endpoint, nodes: [Node; 2]) {
    let (mut ours, mut theirs) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    let tickets = nodes.map(|node| ours.post(node, b"one way").unwrap());
    let heard = Rc::new(RefCell::new(0));
    eventually("both ways", || {
        if let Some(message) = theirs.try_receive().unwrap() {
            let source = message.source();
            drop(message);
            theirs.post(source, b"and back").unwrap();
        }
        if let Some(message) = ours.try_receive().unwrap() {
            assert_eq!(message.source(), nodes[0]);
            *heard.borrow_mut() += 1;
        }
        *heard.borrow() == 2 && tickets.iter().all(|ticket| here.status(*ticket) == Status::Delivered)
    });
}

#[test]
fn suspended_and_resumed() {
    let (here, there, nodes) = pair();
    talk(&here, &there, nodes);
    are_one(&here, nodes);
    let context = here.suspend().map_err(|(error, _)| error).unwrap();
    let context = Context::from_bytes(&context.to_bytes()).unwrap();
    let here = Endpoint::resume(&context, config()).unwrap();
    // Both numbers stay good.
    are_one(&here, nodes);
    talk(&here, &there, nodes);
    // And both addresses are known to be the same peer's.
    assert_eq!(add(&here, &there).map(|node| here.the(node)), [nodes[0]; 2]);
    talk(&here, &there, nodes);
}
