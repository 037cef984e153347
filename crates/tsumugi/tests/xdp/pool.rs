//! Who has which endpoint of the pool.

use crate::cluster::{Cluster, PORT, four};
use crate::remote::{Remote, conclude};

/// Users without a name and without any capability.
const USERS: [u32; 2] = [65534, 54321];

#[test]
fn users_have_memories_of_their_own() {
    let test = "users_have_memories_of_their_own";
    let Some(mut cluster) = Cluster::new(test) else { return };
    for node in [0, 1] {
        for (nth, user) in USERS.iter().enumerate() {
            cluster.up(node, &format!("owner={user} port={} endpoints=2", PORT + 2 * nth as u16)).unwrap();
        }
    }
    // Each user with itself on the other node, both at once; the ports are any that they may have.
    let mut pairs = USERS.map(|user| {
        let mut open = |node: usize, settings: &str| {
            let role = format!("endpoint receive=xdp {settings}");
            Remote::try_open(cluster.start_as(user, node, &role)).unwrap()
        };
        let mut one =
            open(1, &format!("peer={}", four(0, if user == USERS[0] { PORT + 1 } else { PORT + 3 })));
        let port = one.report().get("port") as u16;
        [open(0, &format!("peer={}", four(1, port))), one]
    });
    for remote in pairs.as_flattened_mut() {
        remote.order("stream");
    }
    for (nth, [one, other]) in pairs.iter_mut().enumerate() {
        for report in [one.until_taken(100), other.until_taken(100)] {
            let (port, own) = (report.get("port") as u16, PORT + 2 * nth as u16);
            assert!(port == own || port == own + 1, "port {port} of user {}", USERS[nth]);
            assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
        }
    }
    // Neither may have what is the other's, whether it is in use or not.
    for (user, port) in [(USERS[0], PORT + 2), (USERS[0], PORT + 3), (USERS[1], PORT), (USERS[1], PORT + 1)] {
        let mut open = |receive_path: &str| {
            let role = format!("endpoint port={port} receive={receive_path}");
            Remote::try_open(cluster.start_as(user, 0, &role))
        };
        let refused = open("xdp").err().expect("it is the other's");
        assert!(refused.contains(&format!("PortForbidden({port})")), "{refused}");
        assert!(refused.contains("another user"), "{refused}");
        match open("auto") {
            Ok(mut opened) => assert!(!opened.report().uses_xdp(), "it goes on without XDP"),
            Err(taken) => assert!(taken.contains("PortTaken"), "{taken}"),
        }
        let mut intruder = cluster.start_as(user, 0, &format!("map_memory port={port}"));
        let told = intruder.hear();
        assert!(told.contains("PermissionDenied"), "{told}");
    }
    for [one, other] in &mut pairs {
        conclude(one, other);
    }
}

#[test]
fn an_exhausted_pool_is_an_error_only_for_who_demands_it() {
    let test = "an_exhausted_pool_is_an_error_only_for_who_demands_it";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let first = Remote::open(&cluster, 1, "receive=xdp");
    let mut second = Remote::open(&cluster, 1, "receive=auto");
    assert!(second.report().uses_xdp());
    let refused = || {
        let role = cluster.start(1, "endpoint receive=xdp");
        Remote::try_open(role).err().expect("none is free")
    };
    assert!(refused().contains("NoneFree") && refused().contains("all 2 are taken"), "{}", refused());
    // Without XDP it works.
    let mut third = Remote::open(&cluster, 1, &format!("receive=auto peer={}", four(0, PORT)));
    let port = third.report().get("port");
    let mut peer = Remote::open(&cluster, 0, &format!("port={PORT} peer=10.77.0.2:{port}"));
    for remote in [&mut third, &mut peer] {
        remote.order("stream");
    }
    third.until_taken(50);
    peer.until_taken(50);
    let [third_report, _] = conclude(&mut third, &mut peer);
    assert!(!third_report.uses_xdp() && third_report.get("packets_by_xdp") == 0, "{third_report:?}");
    // What is given back can be had again, whether its owner could say so or not.
    let port = second.report().get("port");
    second.end();
    let mut again = Remote::open(&cluster, 1, "receive=xdp");
    assert_eq!(again.report().get("port"), port);
    assert!(refused().contains("NoneFree"), "{}", refused());
    again.0.kill();
    let mut again = Remote::open(&cluster, 1, "receive=xdp");
    assert_eq!(again.report().get("port"), port);
    drop((first, third));
}

#[test]
fn the_next_owner_sees_nothing_of_one_that_was_killed() {
    let test = "the_next_owner_sees_nothing_of_one_that_was_killed";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let settings = format!("port={PORT} peer={} receive=xdp", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} receive=xdp"));
    let talk = |sender: &mut Remote, receiver: &mut Remote| {
        sender.order("stream");
        let report = receiver.until_taken(50);
        assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
    };
    talk(&mut sender, &mut receiver);
    receiver.0.kill();
    // A process in its place: the sender still means the other, and hears that it is another.
    let mut heir = Remote::open(&cluster, 1, &format!("port={PORT} receive=xdp"));
    let failure = crate::cluster::eventually("the sender to hear", || {
        Some(sender.failure()).filter(|failure| !failure.is_empty())
    });
    // By the heir's words, or by the kernel's if it came later than they were asked for.
    assert!(failure.contains("Restarted") || failure.contains("Gone"), "{failure}");
    let report = heir.report();
    assert_eq!((report.get("taken"), report.get("packets_by_xdp"), report.get("deposited")), (0, 0, 0));
    heir.0.kill();
    drop(sender);
    // Nothing at all is left in the memory.
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} receive=xdp"));
    talk(&mut sender, &mut receiver);
    receiver.0.kill();
    drop(sender);
    let mut look = cluster.start(1, &format!("look_into_memory port={PORT}"));
    assert_eq!(look.hear(), "0");
}

#[test]
fn a_port_whose_owner_was_killed_serves_without_xdp() {
    let test = "a_port_whose_owner_was_killed_serves_without_xdp";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let settings = |node: usize| format!("port={PORT} peer={}", four(1 - node, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings(0));
    let mut receiver = Remote::open(&cluster, 1, &format!("{} receive=xdp", settings(1)));
    sender.order("post 50");
    receiver.until_taken(50);
    sender.order("flush");
    // Nothing is under way, so nothing tells the program.
    receiver.0.kill();
    sender.end();
    let mut receiver = Remote::open(&cluster, 1, &format!("{} receive=socket", settings(1)));
    let mut sender = Remote::open(&cluster, 0, &settings(0));
    sender.order("post 50");
    let report = receiver.until_taken(50);
    assert!(!report.uses_xdp() && report.get("packets_by_xdp") == 0, "{report:?}");
}
