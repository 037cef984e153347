//! Groups that a switch box counts for, between real namespaces, with the program loaded: what comes of operations, and that groups go on
//! when the box counts no more. Needs root and the compiled program.

use aya::maps::{Array, Map, MapData};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tsumugi::collective::{Broken, CollectiveError, Group, Reduction};
use tsumugi::{Config, Endpoint, FaultOptions, Wait};
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, Spec, Wire};
use tsumugi_proto::group::member::seal;
use tsumugi_rail::switch::groups::GroupEntry;
use tsumugi_rail::switch::{self, Hook, Options};
use tsumugi_rail::xdp::IS_COMPILED;
use tsumugi_wire::group::{BODY_BYTES, Contribution, Join, Operation};
use tsumugi_wire::{Header, Kind, Psn};

const PORT: u16 = 7411;
const CHANNEL: u16 = 3;

fn as_root_with_the_program(test: &str) -> Option<Watched> {
    let missing = "needs a build with the XDP program (clang and libbpf-dev)";
    as_root(test, (!IS_COMPILED).then_some(missing))
}

fn lab(nodes: u32, mtu: u32) -> tsumugi_lab::LabGuard {
    let spec = Spec { nodes, mtu, wire: Some(Wire::XdpSwitch), ..Spec::unique("box") };
    Lab::up(&spec).expect("the lab is made").guarded()
}

/// The address of a node's NIC.
fn address(lab: &Lab, node: usize) -> String {
    format!("{}:{PORT}", lab.nodes()[node].nics[0].address)
}

/// A host that takes part: a node of a lab, and where its endpoint is.
struct Place<'a> {
    lab: &'a Lab,
    node: usize,
    address: String,
}

/// The first nodes of a lab.
fn places(lab: &Lab, size: usize) -> Vec<Place<'_>> {
    (0..size).map(|node| Place { lab, node, address: address(lab, node) }).collect()
}

fn config(seed: u64, faults: Option<FaultOptions>) -> Config {
    let mut config = Config::default();
    config.port = PORT;
    config.wait = Wait::Block;
    config.faults = faults.map(|mut faults| {
        faults.seed = seed;
        faults
    });
    config
}

/// Says at its end that it has come, also if that is a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has hosts do some work in a group, each in a thread of its own, while something else is done, which is told when the first of them
/// has ended.
fn together<T: Send>(
    places: &[Place<'_>],
    config: impl Fn(usize) -> Config + Sync,
    work: impl Fn(&Endpoint, &Group) -> T + Sync,
    meanwhile: impl FnOnce(&AtomicBool) + Send,
) -> Vec<T> {
    let has_ended = AtomicBool::new(false);
    let one = |rank: usize| {
        let _ends = Ends(&has_ended);
        let Place { lab, node, .. } = &places[rank];
        lab.enter(*node).expect("the node can be entered");
        let endpoint = Endpoint::open(config(rank)).unwrap_or_else(|error| panic!("{error}"));
        let peer = |other: usize| {
            (other != rank).then(|| endpoint.add_peer(&places[other].address).expect("an address"))
        };
        let peers: Vec<_> = (0..places.len()).map(peer).collect();
        let group = Group::open(&endpoint, CHANNEL, rank, &peers).expect("a group");
        let outcome = work(&endpoint, &group);
        drop(group);
        // Some may have left before.
        let _ = endpoint.close();
        outcome
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..places.len()).map(|rank| scope.spawn(move || one(rank))).collect();
        let other = scope.spawn(|| meanwhile(&has_ended));
        let outcomes = threads.into_iter().map(|thread| thread.join());
        let outcomes: Vec<_> = outcomes.collect();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcomes.into_iter().map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Runs in the switch of a lab.
fn in_the_switch<T: Send>(lab: &Lab, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let within = scope.spawn(|| {
            lab.enter_switch().expect("the switch can be entered");
            work()
        });
        within.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes the box away and makes it anew, at a hook.
fn at_hook(lab: &Lab, hook: Hook) {
    in_the_switch(lab, || {
        let ports = switch::status().expect("there is one").ports;
        let ports: Vec<String> = ports.into_iter().filter_map(|port| port.attached.nic).collect();
        switch::down(&[]).expect("it goes");
        let options = Options { hook: Some(hook), ..Options::default() };
        switch::up(&ports, &options).unwrap_or_else(|error| panic!("{error}"));
    });
    for node in 0..lab.nodes().len() {
        // What a veth needs when programs in drivers send to it; `tsumugi switch up` says so.
        let mut command = lab.command(node, "ethtool").expect("the node can be entered");
        let told = command.args(["-K", "nic0", "tx", "off", "txvlan", "off", "gro", "on"]).output();
        assert!(told.is_ok_and(|told| told.status.success()));
    }
}

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
    match random.random_range(0..6) {
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
                group.is_counted_by_a_box()
            },
            |_| {},
        );
        assert!(counted.iter().all(|counted| *counted), "at hook {hook}");
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

/// Joins the switches of two labs by a link.
fn link(one: &Lab, other: &Lab, name: &str) {
    let run = |lab: &Lab, arguments: &[&str]| {
        let mut command = lab.switch_command("ip").expect("the switch can be entered");
        let output = command.args(arguments).output().expect("ip starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let there = format!("tsu-{}-switch", other.name());
    run(one, &["link", "add", name, "type", "veth", "peer", "name", name, "netns", &there]);
    for lab in [one, other] {
        run(lab, &["link", "set", name, "up"]);
        in_the_switch(lab, || {
            switch::up(&[name.to_owned()], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        });
    }
}

/// Three boxes in a row: the first has member 0, the second is between, and the third is behind that.
#[test]
fn a_tree_of_boxes_counts() {
    let Some(_watched) = as_root_with_the_program("a_tree_of_boxes_counts") else { return };
    let labs = [lab(2, 1500), lab(2, 1500), lab(2, 1500)];
    link(&labs[0], &labs[1], "up0");
    link(&labs[1], &labs[2], "up1");
    let mut places = Vec::new();
    for (number, lab) in labs.iter().enumerate() {
        for node in 0..2 {
            // All labs have the same addresses.
            let address = format!("10.99.0.{}", 10 * (number + 1) + node);
            let line = format!("ip addr flush dev nic0 && ip addr add {address}/24 dev nic0");
            let mut shell = lab.command(node, "sh").expect("the node can be entered");
            assert!(shell.args(["-c", &line]).status().is_ok_and(|done| done.success()));
            // One behind the second box is left out, so that it has one member and a box.
            if (number, node) != (1, 1) {
                places.push(Place { lab, node, address: format!("{address}:{PORT}") });
            }
        }
    }
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
    assert_eq!(seen, [vec![(true, 5, 3)], vec![(false, 3, 2)], vec![(false, 2, 2)]]);
}

/// Has the box of the switch that the thread is in forget all groups, as one does that is restarted.
fn forget_groups() {
    let folders = std::fs::read_dir("/sys/fs/bpf/tsumugi").expect("the box has pinned its maps");
    for folder in folders.flatten() {
        let Ok(groups) = MapData::from_pin(folder.path().join("groups")) else { continue };
        let mut groups: Array<_, GroupEntry> = Map::Array(groups).try_into().expect("an array");
        for place in 0..groups.len() {
            if groups.get(&place, 0).is_ok_and(|group| group.size != 0) {
                // SAFETY: numbers, of which 0 is a value.
                groups.set(place, unsafe { std::mem::zeroed::<GroupEntry>() }, 0).expect("it is forgotten");
            }
        }
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
                enough = [u64::from(forgotten.load(Ordering::Relaxed) >= 60)];
                group.allreduce(&mut enough, &Reduction::min()).expect("agreed");
            }
            group.is_counted_by_a_box()
        },
        |has_ended| {
            lab.enter_switch().expect("the switch can be entered");
            while !has_ended.load(Ordering::Relaxed) {
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
        assert!(!has_box && took < Duration::from_secs(1), "{has_box}, after {took:?}");
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
    let kind = [Kind::Join, Kind::Arrive, Kind::Leave, Kind::Notice, Kind::Release, Kind::Data];
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
    let (header, body) = seal(header, body);
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
