//! Groups that a switch box counts for, between real namespaces, with the program loaded: what comes of operations, and that groups go on
//! when the box counts no more. [`several`] is about what one sends to several. Needs root and the compiled program.

mod places;
mod several;

use places::{
    PORT, Place, address, as_root_with_the_program, at_hook, config, forget_groups, in_the_switch, lab,
    places, places_in, row_of_three, together,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tsumugi::FaultOptions;
use tsumugi::collective::{Broken, CollectiveError, Group, Reduction};
use tsumugi_proto::group::member::seal;
use tsumugi_rail::switch::{self, Hook};
use tsumugi_wire::group::{BODY_BYTES, Contribution, Join, Operation};
use tsumugi_wire::{Header, Kind, Psn, multicast};

/// A random operation, the same at all, and whether its result is right.
fn operate(group: &Group, random: &mut StdRng) {
    let (rank, size) = (group.rank() as u64, group.size() as u64);
    let seed: u64 = random.random();
    let numbers = |rank: u64, count: usize| -> Vec<u64> {
        let mut random = StdRng::seed_from_u64(seed ^ rank);
        (0..count).map(|_| random.random()).collect()
    };
    let count = random.random_range(1..=9usize);
    let all = || (0..size).map(|rank| numbers(rank, count));
    match random.random_range(0..8) {
        0 => group.barrier().expect("a barrier"),
        1 => {
            let mut data = numbers(rank, count);
            group.allreduce(&mut data, &Reduction::sum()).expect("a sum");
            let sum = all().reduce(|sum, of_one| {
                sum.iter().zip(of_one).map(|(sum, number)| sum.wrapping_add(number)).collect()
            });
            assert_eq!(Some(data), sum);
        }
        2 => {
            let mut data: Vec<i64> = numbers(rank, count).into_iter().map(|number| number as i64).collect();
            group.allreduce(&mut data, &Reduction::max()).expect("a maximum");
            for (at, number) in data.into_iter().enumerate() {
                assert_eq!(Some(number), all().map(|of_one| of_one[at] as i64).max());
            }
        }
        3 => {
            // One of each: collected, and summed up by everybody.
            let value = |rank: u64| numbers(rank, 1)[0] as f64 / 3.0;
            let mut data = [value(rank)];
            group.allreduce(&mut data, &Reduction::sum()).expect("a sum");
            let expected: f64 = (0..size).map(value).sum();
            assert!((data[0] - expected).abs() <= expected.abs() * 1e-12, "{} {expected}", data[0]);
        }
        4 => {
            // Three at once.
            let mut one = group.start_barrier().expect("started");
            let mut sum = group.start_allreduce(&[rank], &Reduction::sum()).expect("started");
            let mut other = group.start_broadcast(1, &numbers(rank, 2)).expect("started");
            assert_eq!(other.wait().expect("a broadcast"), numbers(1, 2));
            assert_eq!(sum.wait().expect("a sum"), [(0..size).sum::<u64>()]);
            one.wait().expect("a barrier");
        }
        5 | 6 => {
            // Of many packets, or few; from anybody.
            let root = random.random_range(0..size);
            let count = [1, 100, 9_000][random.random_range(0..3)];
            let mut data = if rank == root { numbers(root, count) } else { vec![0; count] };
            group.broadcast(root as usize, &mut data).expect("a broadcast");
            assert!(data == numbers(root, count), "{count} numbers of {root} at {rank}");
        }
        _ => assert_eq!(group.allgather(&[rank]).expect("gathered"), (0..size).collect::<Vec<_>>()),
    }
}

#[test]
fn what_a_box_counts_is_right_at_every_hook_under_faults() {
    let Some(_watched) = as_root_with_the_program("what_a_box_counts_is_right_at_every_hook_under_faults")
    else {
        return;
    };
    for (hook, size, mtu) in [(Hook::Tc, 5, 1500), (Hook::Native, 3, 1500), (Hook::Generic, 4, 9000)] {
        let lab = lab(size as u32, mtu);
        if hook != Hook::Tc {
            at_hook(&lab, hook);
        }
        let mut faults = FaultOptions::default();
        (faults.loss, faults.duplicate, faults.reorder) = (0.02, 0.02, 0.05);
        let counted = together(
            &places(&lab, size),
            |rank| config(rank as u64, Some(faults)),
            |_, group| {
                assert!(group.use_switch_box().expect("asked"), "there is a box at hook {hook}");
                let mut random = StdRng::seed_from_u64(7);
                for _ in 0..150 {
                    operate(group, &mut random);
                }
                [group.is_counted_by_a_box(), group.is_broadcast_by_a_box()]
            },
            |_| {},
        );
        assert!(counted.iter().all(|counted| *counted == [true; 2]), "at hook {hook}: {counted:?}");
    }
}

#[test]
fn who_closes_after_a_broadcast_breaks_it_for_nobody() {
    let Some(_watched) = as_root_with_the_program("who_closes_after_a_broadcast_breaks_it_for_nobody") else {
        return;
    };
    // Enough for a tree of some depth, in which some wait for others that have what they need from the root.
    const SIZE: usize = 8;
    const ROUNDS: u32 = 5;
    let lab = lab(SIZE as u32, 1500);
    let mut faults = FaultOptions::default();
    faults.loss = 0.02;
    let mut by_box = 0;
    for round in 0..ROUNDS {
        let sent = together(
            &places(&lab, SIZE),
            |rank| config(u64::from(round) << 8 | rank as u64, Some(faults)),
            |_, group| {
                assert!(group.use_switch_box().expect("asked"), "there is a box");
                let mut was_by_box = false;
                for number in 0..4 {
                    // So that the last is sent to all or not, by chance; in the last round it is.
                    let start = Instant::now();
                    let is_last = round == ROUNDS - 1;
                    let patience =
                        if is_last { Duration::from_secs(10) } else { Duration::from_millis(15) * round };
                    while number > 2
                        && group.rank() == 0
                        && start.elapsed() < patience
                        && !(is_last && group.is_broadcast_by_a_box())
                    {
                        group.progress().expect("progress");
                    }
                    was_by_box = group.is_broadcast_by_a_box();
                    let mut data = [if group.rank() == 0 { number } else { u64::MAX }; 3000];
                    group.broadcast(0, &mut data).expect("a broadcast");
                    assert_eq!(data, [number; 3000]);
                }
                was_by_box
            },
            |_| {},
        );
        by_box += usize::from(sent[0]);
    }
    assert!(by_box > 0, "the last was never sent to all at once");
}

#[test]
fn who_closes_before_a_broadcast_keeps_nobody_waiting() {
    let Some(_watched) = as_root_with_the_program("who_closes_before_a_broadcast_keeps_nobody_waiting")
    else {
        return;
    };
    // In the tree of eight, 6 passes on to 7 what 4 has from 0.
    const SIZE: usize = 8;
    let lab = lab(SIZE as u32, 1500);
    for round in 0..3u32 {
        together(
            &places(&lab, SIZE),
            |rank| config(rank as u64, None).connect_timeout(Duration::from_secs(2)),
            |_, group| {
                assert!(group.use_switch_box().expect("asked"), "there is a box");
                (0..2 + round).for_each(|_| group.broadcast(0, &mut [0u8]).expect("a broadcast"));
                if group.rank() != 6 {
                    std::thread::sleep(Duration::from_millis(20) * round);
                    let last = group.start_broadcast(0, &[0u8]);
                    let outcome = last.and_then(|mut last| last.wait_timeout(Duration::from_secs(20)));
                    assert!(!matches!(outcome, Err(CollectiveError::TimedOut(_))), "{outcome:?}");
                }
            },
            |_| {},
        );
    }
}

#[test]
fn a_broadcast_outlives_the_box_that_it_began_with() {
    let Some(_watched) = as_root_with_the_program("a_broadcast_outlives_the_box_that_it_began_with") else {
        return;
    };
    const NUMBERS: usize = 500_000;
    let lab = lab(4, 1500);
    together(
        &places(&lab, 4),
        |rank| config(rank as u64, None),
        |_, group| {
            let numbers = |of: u64| (0..NUMBERS as u64).map(|at| at ^ of << 32).collect::<Vec<_>>();
            assert!(group.use_switch_box().expect("asked"), "there is a box");
            for round in 0..6 {
                let data = if group.rank() == 0 { numbers(round) } else { vec![0; NUMBERS] };
                let mut broadcast = group.start_broadcast(0, &data).expect("started");
                if round == 5 {
                    assert!(group.rank() != 0 || group.is_broadcast_by_a_box());
                    assert!(group.use_switch_box().expect("asked"), "there is a box");
                }
                assert!(broadcast.wait().expect("a broadcast") == numbers(round), "{round}");
            }
        },
        |_| {},
    );
    let left = in_the_switch(&lab, || switch::status().expect("there is one").groups);
    assert!(left.is_empty(), "all have left, and the box still has {left:?}");
}

#[test]
fn in_xdp_a_box_counts_only_where_no_two_are_behind_one_port() {
    let Some(_watched) =
        as_root_with_the_program("in_xdp_a_box_counts_only_where_no_two_are_behind_one_port")
    else {
        return;
    };
    let lab = lab(3, 1500);
    for hook in [Hook::Tc, Hook::Native] {
        if hook != Hook::Tc {
            at_hook(&lab, hook);
        }
        let mut places = places(&lab, 3);
        let port = PORT + 1;
        let address = format!("{}:{port}", lab.nodes()[2].nics[0].address);
        places.push(Place { lab: &lab, node: 2, address });
        let outcomes = together(
            &places,
            |rank| {
                let mut config = config(rank as u64, None);
                config.port = if rank == 3 { port } else { PORT };
                config
            },
            |_, group| {
                let has_box = group.use_switch_box().expect("asked");
                let mut sum = [1u64];
                for round in 1..6 {
                    group.allreduce(&mut sum, &Reduction::sum()).expect("a sum");
                    assert_eq!(sum, [4u64.pow(round)]);
                }
                (has_box, group.is_counted_by_a_box())
            },
            |_| {},
        );
        let expected = hook == Hook::Tc;
        assert!(outcomes.iter().all(|it| *it == (expected, expected)), "at hook {hook}: {outcomes:?}");
    }
}

#[test]
fn a_group_goes_on_when_its_box_goes() {
    let Some(_watched) = as_root_with_the_program("a_group_goes_on_when_its_box_goes") else { return };
    let lab = lab(4, 1500);
    let done = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let before_and_after = together(
        &places(&lab, 4),
        |rank| config(rank as u64, None),
        |_, group| {
            assert!(group.use_switch_box().expect("asked"), "there is a box");
            let mut random = StdRng::seed_from_u64(8);
            let mut counted = 0;
            let mut more = 300;
            // All see at the same operation that it is gone.
            while more > 0 {
                operate(group, &mut random);
                if group.rank() == 0 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
                let mut gone = [u64::from(is_over.load(Ordering::Relaxed))];
                group.allreduce(&mut gone, &Reduction::min()).expect("agreed");
                if gone[0] == 1 {
                    more -= 1;
                } else {
                    counted += 1;
                }
            }
            (counted, group.is_counted_by_a_box())
        },
        |has_ended| {
            while done.load(Ordering::Relaxed) < 100 && !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            in_the_switch(&lab, || switch::down(&[]).expect("it goes"));
            is_over.store(true, Ordering::Relaxed);
        },
    );
    for (counted, is_counted) in before_and_after {
        assert!(counted >= 100 && !is_counted, "{counted} {is_counted}");
    }
}

/// Three boxes in a row: the first has member 0, the second is between, and the third is behind that.
#[test]
fn a_tree_of_boxes_counts() {
    let Some(_watched) = as_root_with_the_program("a_tree_of_boxes_counts") else { return };
    let labs = row_of_three();
    let places = places_in(&labs);
    let counted = together(
        &places,
        |rank| config(rank as u64, None),
        |_, group| {
            assert!(group.use_switch_box().expect("asked"), "there are boxes");
            let mut random = StdRng::seed_from_u64(11);
            for _ in 0..150 {
                operate(group, &mut random);
            }
            let is_counted = group.is_counted_by_a_box();
            let seen = (group.rank() == 0).then(|| {
                labs.each_ref().map(|lab| {
                    let groups = in_the_switch(lab, || switch::status().expect("there is one").groups);
                    groups.iter().map(|group| (group.is_root, group.joined, group.slots)).collect::<Vec<_>>()
                })
            });
            group.barrier().expect("a barrier");
            (is_counted, seen)
        },
        |_| {},
    );
    assert!(counted.iter().all(|(is_counted, _)| *is_counted));
    let seen = counted.into_iter().find_map(|(_, seen)| seen).expect("rank 0 has looked");
    // One that is counted for, and one for each that sends to all: its root is where the sender is, or member 0.
    for (groups, (counted, senders)) in
        seen.iter().zip([((true, 5, 3), 2), ((false, 3, 2), 1), ((false, 2, 2), 2)])
    {
        let roots = groups.iter().filter(|(is_root, ..)| *is_root).count();
        assert_eq!((groups.len(), roots), (6, senders + usize::from(counted.0)), "{seen:?}");
        assert!(groups.contains(&counted), "{seen:?}");
    }
}

#[test]
fn a_box_that_forgets_is_joined_anew() {
    let Some(_watched) = as_root_with_the_program("a_box_that_forgets_is_joined_anew") else { return };
    let lab = lab(4, 1500);
    let (arrived, forgotten) = (AtomicU64::new(0), AtomicU64::new(0));
    let counted = together(
        &places(&lab, 4),
        |rank| config(rank as u64, None),
        |_, group| {
            assert!(group.use_switch_box().expect("asked"), "there is a box");
            let mut random = StdRng::seed_from_u64(12);
            let mut enough = [0];
            let mut round = 0;
            while enough[0] == 0 {
                round += 1;
                arrived.fetch_add(1, Ordering::AcqRel);
                group.barrier().expect("a barrier");
                assert!(arrived.load(Ordering::Acquire) >= round * 4, "left before all had arrived");
                operate(group, &mut random);
                enough = [u64::from(forgotten.load(Ordering::Relaxed) == 60)];
                group.allreduce(&mut enough, &Reduction::min()).expect("agreed");
            }
            group.is_counted_by_a_box()
        },
        |has_ended| {
            lab.enter_switch().expect("the switch can be entered");
            // Not for ever: whoever has asked in vain for long asks less often than this, and all must be heard between two times.
            for _ in 0..60 {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(15));
                forget_groups();
                forgotten.fetch_add(1, Ordering::Relaxed);
            }
        },
    );
    assert!(counted.iter().all(|counted| *counted), "{counted:?}");
}

#[test]
fn without_a_box_all_are_told_so_at_once() {
    let Some(_watched) = as_root_with_the_program("without_a_box_all_are_told_so_at_once") else { return };
    let lab = lab(3, 1500);
    in_the_switch(&lab, || switch::down(&[]).expect("it goes"));
    let outcomes = together(
        &places(&lab, 3),
        |rank| config(rank as u64, None),
        |_, group| {
            group.barrier().expect("a barrier");
            let start = Instant::now();
            let has_box = group.use_switch_box().expect("asked");
            let took = start.elapsed();
            group.barrier().expect("a barrier");
            (has_box, took)
        },
        |_| {},
    );
    for (has_box, took) in outcomes {
        assert!(!has_box && took < Duration::from_secs(5), "{has_box}, after {took:?}");
    }
}

#[test]
fn a_member_whose_host_dies_ends_the_group_for_all() {
    let Some(_watched) = as_root_with_the_program("a_member_whose_host_dies_ends_the_group_for_all") else {
        return;
    };
    let lab = lab(4, 1500);
    let outcomes = together(
        &places(&lab, 4),
        |rank| {
            let mut config = config(rank as u64, None);
            config.peer_timeout = Duration::from_secs(2);
            config
        },
        |_, group| {
            assert!(group.use_switch_box().expect("asked"), "there is a box");
            for _ in 0..20 {
                group.barrier().expect("a barrier");
            }
            if group.rank() == 2 {
                let down = std::process::Command::new("ip").args(["link", "set", "nic0", "down"]).status();
                assert!(down.is_ok_and(|down| down.success()));
                return None;
            }
            Some(group.barrier().expect_err("one is dead"))
        },
        |_| {},
    );
    for (rank, outcome) in outcomes.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
        match outcome {
            Some(CollectiveError::Broken(broken)) => {
                assert_eq!(broken.rank(), Some(2), "rank {rank}: {broken}");
                assert!(matches!(broken, Broken::Gone { .. } | Broken::Told { .. }), "rank {rank}: {broken}");
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

/// Packets of all kinds that somebody who knows neither key nor token may make up.
fn forged(random: &mut StdRng) -> Vec<u8> {
    let kind = [
        Kind::Join,
        Kind::Arrive,
        Kind::Leave,
        Kind::Notice,
        Kind::Release,
        Kind::Multicast,
        Kind::Relay,
        Kind::Data,
    ];
    let kind = kind[random.random_range(0..kind.len())];
    let mut header = Header::new(kind, random.random_range(1..=u32::MAX));
    (header.token, header.flow) = (random.random(), random.random_range(0..1 << 14));
    (header.psn, header.ack) = (Psn(random.random_range(0..2000)), Psn(random.random()));
    let generation = random.random_range(1..2000);
    let arrive = Contribution { via: 0, operation: Operation::None, count: 0, generation, words: [0; 8] };
    let body = match kind {
        Kind::Join => Join {
            job: 0,
            key: random.random(),
            group: random.random(),
            box_number: random.random_range(0..2),
            first: 1,
            size: 4,
            member: random.random_range(0..4),
            weight: 1,
            via: 0,
        }
        .encode(),
        Kind::Arrive | Kind::Release | Kind::Data => arrive.encode(),
        _ => std::array::from_fn::<u8, BODY_BYTES, _>(|_| random.random()),
    };
    let (mut header, body) = seal(header, body);
    if matches!(kind, Kind::Multicast | Kind::Relay) {
        // Frames and a table of noise, with a right check.
        header.credit = random.random_range(1..=9);
        header.body_crc =
            multicast::split(header.credit, &body).map_or(0, |(_, table)| multicast::check(table));
    }
    let mut packet = [&header.encode()[..], &body].concat();
    if random.random_range(0..4) == 0 {
        let at = random.random_range(0..packet.len());
        packet[at] ^= 1 << random.random_range(0..8);
    }
    packet
}

#[test]
fn a_stranger_neither_releases_nor_stops_anybody() {
    let Some(_watched) = as_root_with_the_program("a_stranger_neither_releases_nor_stops_anybody") else {
        return;
    };
    let lab = lab(4, 1500);
    let arrived = AtomicU64::new(0);
    let counted = together(
        &places(&lab, 3),
        |rank| config(rank as u64, None),
        |_, group| {
            assert!(group.use_switch_box().expect("asked"), "there is a box");
            let mut random = StdRng::seed_from_u64(9);
            for round in 0..400u64 {
                let before = arrived.fetch_add(1, Ordering::AcqRel);
                assert!(before >= round * 3, "{before} before round {round}");
                group.barrier().expect("a barrier");
                assert!(arrived.load(Ordering::Acquire) >= (round + 1) * 3, "left before all had arrived");
                operate(group, &mut random);
            }
            group.is_counted_by_a_box()
        },
        |has_ended| {
            lab.enter(3).expect("the node can be entered");
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            let mut random = StdRng::seed_from_u64(10);
            while !has_ended.load(Ordering::Relaxed) {
                for to in 0..3 {
                    // Somebody else's host may say that nobody is there.
                    let _ = socket.send_to(&forged(&mut random), address(&lab, to));
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        },
    );
    assert!(counted.iter().all(|counted| *counted), "{counted:?}");
}
