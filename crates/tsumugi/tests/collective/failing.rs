//! What does not fit, who goes away, and garbage.

use crate::common::loopback::{connected, eventually, in_time, open};
use crate::common::process::{Orders, Process, say};
use crate::site::{CHANNEL, together};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use tsumugi::collective::{Broken, CollectiveError, Group, Reduction, Why};
use tsumugi::{Config, PeerId};

/// Where participants leave early, so that others look for them in vain: not for long.
fn impatient(_: usize) -> Config {
    Config::loopback().connect_timeout(Duration::from_secs(2))
}

/// Has each of two participants do something that does not fit, and returns what they are told.
fn mismatch(work: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static) -> [Broken; 2] {
    let outcomes = together(2, impatient, move |site| {
        let group = site.group(CHANNEL);
        // Who has sent all that it has to send may be through, and learns of it next.
        let outcome = work(&group).and_then(|()| group.barrier());
        let Err(CollectiveError::Broken(broken)) = outcome else { panic!("{outcome:?}") };
        // Broken it stays.
        assert!(matches!(group.start_barrier(), Err(CollectiveError::Broken(_))));
        // The other may have to be told first.
        let _ = site.endpoint.flush();
        broken
    });
    outcomes.try_into().unwrap()
}

fn is_mismatch(broken: &Broken) -> bool {
    matches!(
        broken,
        Broken::Mismatch { .. }
            | Broken::Length { .. }
            | Broken::Unexpected { .. }
            | Broken::OtherGroup { .. }
            | Broken::Told { why: Why::Mismatch, .. }
    )
}

#[test]
fn who_does_something_else_is_told_and_nobody_waits_for_ever() {
    in_time(|| {
        let first = |group: &Group| group.rank() == 0;
        type Work = Box<dyn Fn(&Group) -> Result<(), CollectiveError> + Send + Sync>;
        let works: Vec<(&str, Work)> = vec![
            (
                "operation",
                Box::new(move |group| match first(group) {
                    true => group.barrier(),
                    false => group.allreduce(&mut [1u64], &Reduction::sum()),
                }),
            ),
            (
                "length",
                Box::new(move |group| group.broadcast(0, &mut vec![0u8; if first(group) { 10 } else { 20 }])),
            ),
            (
                "reduction",
                Box::new(move |group| {
                    group.allreduce(
                        &mut [1u64],
                        &if first(group) { Reduction::sum() } else { Reduction::bxor() },
                    )
                }),
            ),
            (
                "function",
                Box::new(move |group| {
                    let name = if first(group) { "one" } else { "other" };
                    group.allreduce(&mut [1u64], &Reduction::new(name, |a, _| a))
                }),
            ),
            (
                "type",
                Box::new(move |group| match first(group) {
                    true => group.broadcast(0, &mut [0u64]),
                    false => group.broadcast(0, &mut [0i64]),
                }),
            ),
            // Both wait, and neither has anything to send.
            ("root, each the other", Box::new(|group| group.broadcast(1 - group.rank(), &mut [0u8]))),
            // The same, by one who only looks.
            (
                "root, each the other, looking",
                Box::new(|group| {
                    let mut operation = group.start_broadcast(1 - group.rank(), &[0u8])?;
                    while operation.test()?.is_none() {}
                    Ok(())
                }),
            ),
            (
                "root, each the other, waiting for short times",
                Box::new(|group| {
                    let mut operation = group.start_broadcast(1 - group.rank(), &[0u8])?;
                    loop {
                        match operation.wait_timeout(Duration::from_millis(1)) {
                            Err(CollectiveError::TimedOut(_)) => {}
                            outcome => return outcome.map(drop),
                        }
                    }
                }),
            ),
            // Both send, and are through.
            ("root, each itself", Box::new(|group| group.broadcast(group.rank(), &mut [0u8]))),
            (
                "blocks",
                Box::new(move |group| {
                    let lengths = if first(group) { [1, 2] } else { [1, 3] };
                    let (data, own) = (vec![0u8; 3 + group.rank()], [lengths[group.rank()]; 2]);
                    let sent = if first(group) { [1, 2] } else { [1, 3] };
                    group.all_to_allv(&data, &sent, &[sent[0].min(own[0]), sent[1]]).map(drop)
                }),
            ),
        ];
        for (what, work) in works {
            let told = mismatch(work);
            assert!(told.iter().all(is_mismatch), "{what}: {told:?}");
            assert!(told.iter().any(|broken| !matches!(broken, Broken::Told { .. })), "{what}: {told:?}");
        }
    });
}

#[test]
fn who_has_another_list_is_told() {
    in_time(|| {
        let told = together(3, impatient, |site| {
            let mut peers = site.peers.clone();
            let mut rank = site.rank;
            if rank == 2 {
                peers.swap(1, 2);
                rank = 1;
            }
            let group = Group::open(&site.endpoint, CHANNEL, rank, &peers).unwrap();
            let Err(CollectiveError::Broken(broken)) = group.barrier() else { panic!("it fits") };
            let _ = site.endpoint.flush();
            broken
        });
        assert!(told.iter().any(|broken| matches!(broken, Broken::OtherGroup { .. })), "{told:?}");
        // Who is slow may find that the others have given up and left.
        assert!(
            told.iter().all(|broken| is_mismatch(broken) || matches!(broken, Broken::Gone { .. })),
            "{told:?}"
        );
    });
}

#[test]
fn a_participant_that_goes_away_breaks_the_group_for_all() {
    in_time(|| {
        for size in [2, 4, 5] {
            let outcomes = together(size, impatient, move |site| {
                let group = site.group(CHANNEL);
                let mut data = vec![1.0; 1000];
                for round in 0.. {
                    if site.rank == size - 1 && round == 5 {
                        return None; // closes in good order, but the others need it
                    }
                    if let Err(error) = group.allreduce(&mut data, &Reduction::sum()) {
                        assert_eq!(round, 5);
                        let CollectiveError::Broken(broken) = error else { panic!("{error}") };
                        assert!(matches!(group.barrier(), Err(CollectiveError::Broken(_))));
                        let _ = site.endpoint.flush();
                        return Some(broken);
                    }
                }
                None
            });
            for broken in &outcomes[..size - 1] {
                let broken = broken.as_ref().unwrap();
                assert_eq!(broken.rank(), Some(size - 1), "{broken}");
            }
        }
    });
}

/// The role of rank 2 of 3: goes through barriers until it is killed.
pub(crate) fn be_killed() {
    let endpoint = open(Config::loopback());
    say(endpoint.port());
    let orders = Orders::listen();
    let peer = || Some(endpoint.add_peer(format!("127.0.0.1:{}", orders.next())).unwrap());
    let group = Group::open(&endpoint, CHANNEL, 2, &[peer(), peer(), None]).unwrap();
    for _ in 0..20 {
        group.barrier().unwrap();
    }
    say("through");
    let _ = group.start_barrier();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_participant_that_is_killed_breaks_the_group_for_all() {
    in_time(|| {
        let mut third = Process::start("third");
        let third_port: u16 = third.hear_number();
        let (tell, ports) = std::sync::mpsc::channel();
        let known: Vec<_> = (0..2).map(|_| std::sync::mpsc::channel::<[u16; 3]>()).collect();
        let (tells, listens): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let threads: Vec<_> = listens
            .into_iter()
            .enumerate()
            .map(|(rank, listen)| {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let endpoint = open(impatient(rank));
                    tell.send((rank, endpoint.port())).unwrap();
                    let peer = |(at, port): (usize, u16)| {
                        (at != rank).then(|| endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap())
                    };
                    let peers: Vec<_> = listen.recv().unwrap().into_iter().enumerate().map(peer).collect();
                    let group = Group::open(&endpoint, CHANNEL, rank, &peers).unwrap();
                    let broken = loop {
                        if let Err(error) = group.barrier() {
                            break error;
                        }
                    };
                    let _ = endpoint.flush();
                    broken
                })
            })
            .collect();
        let mut all = [0, 0, third_port];
        for _ in 0..2 {
            let (rank, port) = ports.recv().unwrap();
            all[rank] = port;
        }
        all[..2].iter().for_each(|port| third.tell(&port.to_string()));
        tells.iter().for_each(|tell| tell.send(all).unwrap());
        assert_eq!(third.hear(), "through");
        third.kill();
        for thread in threads {
            let CollectiveError::Broken(broken) = thread.join().unwrap() else { panic!("not broken") };
            assert_eq!(broken.rank(), Some(2), "{broken}");
            assert!(matches!(broken, Broken::Gone { .. } | Broken::Told { why: Why::Gone, .. }), "{broken}");
        }
    });
}

#[test]
fn a_participant_that_gives_its_group_up_tells_the_others() {
    in_time(|| {
        let outcomes = together(3, impatient, |site| {
            let group = site.group(CHANNEL);
            group.barrier().unwrap();
            if site.rank == 0 {
                // It has begun, and nobody goes on with it.
                drop(group.start_allreduce(&[1u64], &Reduction::sum()).unwrap());
                drop(group);
                let _ = site.endpoint.flush();
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
            // Whatever is summed up passes rank 0.
            let error = group.allreduce(&mut [1u64], &Reduction::sum()).unwrap_err();
            let _ = site.endpoint.flush();
            Some(error.to_string())
        });
        for told in &outcomes[1..] {
            assert!(told.as_ref().unwrap().contains("rank 0 has dropped its group"), "{told:?}");
        }
    });
}

#[test]
fn who_drops_a_search_for_a_box_tells_the_others() {
    in_time(|| {
        let outcomes = together(3, impatient, |site| {
            let group = site.group(CHANNEL);
            group.barrier().unwrap();
            let search = group.start_use_switch_box().unwrap();
            if site.rank == 0 {
                drop(search);
                let error = group.barrier().unwrap_err();
                assert!(matches!(error, CollectiveError::Broken(Broken::SearchDropped { .. })), "{error}");
                let _ = site.endpoint.flush();
                return None;
            }
            let mut search = search;
            let outcome = search.wait().and_then(|_| group.barrier());
            let _ = site.endpoint.flush();
            Some(outcome.unwrap_err().to_string())
        });
        for told in &outcomes[1..] {
            // Or its endpoint has closed before it had said so.
            let told = told.as_ref().unwrap();
            assert!(
                ["has dropped its group", "is gone"].iter().any(|it| told.contains(&format!("rank 0 {it}"))),
                "{told}"
            );
        }
    });
}

#[test]
fn garbage_is_counted_and_dropped() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let group = Group::open(&here, CHANNEL, 0, &[None, Some(peer)]).unwrap();
    let channel = there.channel(CHANNEL).unwrap();
    let mut random = StdRng::seed_from_u64(5);
    let mut operation = group.start_barrier().unwrap();
    for number in 0..300 {
        let mut garbage: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
        if number % 2 == 0 && garbage.len() >= 16 {
            // What looks like a participant, and says anything.
            garbage[0] = 1 + number as u8 % 3;
            garbage[8..16].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        } else if let Some(kind) = garbage.first_mut() {
            *kind |= 0x80;
        }
        channel.post(PeerId(0), &garbage).unwrap();
    }
    let ticket = channel.post(PeerId(0), b"the last").unwrap();
    eventually("all of it arrives", || {
        there.progress().unwrap();
        let _ = operation.test();
        there.status(ticket) == tsumugi::TicketStatus::Delivered
    });
    for _ in 0..10 {
        let _ = operation.test();
    }
    assert!(here.counters().get("violation") > 100, "{}", here.counters());
}

#[test]
fn what_is_sent_too_far_ahead_is_dropped() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let group = Group::open(&here, CHANNEL, 0, &[None, Some(peer)]).unwrap();
    let channel = there.channel(CHANNEL).unwrap();
    let mut message = vec![0u8; 60_000];
    (message[0], message[1]) = (1, 1);
    message[4..8].copy_from_slice(&[255; 4]);
    message[8..16].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    message[16] = 7;
    for _ in 0..19 {
        channel.post(PeerId(0), &message).unwrap();
    }
    let last = channel.post(PeerId(0), &message).unwrap();
    eventually("all of it arrives", || {
        there.progress().unwrap();
        group.progress().unwrap();
        there.status(last) == tsumugi::TicketStatus::Delivered
    });
    for _ in 0..10 {
        group.progress().unwrap();
    }
    assert!((15..=17).contains(&here.counters().get("violation")), "{}", here.counters());
}
