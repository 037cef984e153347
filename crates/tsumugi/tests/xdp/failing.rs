//! Processes that are killed or stopped, and NICs that go down.

use crate::cluster::{Cluster, NIC, PORT, eventually, four};
use crate::remote::{Remote, conclude};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn a_receiver_that_is_killed_is_missed_though_the_program_stays() {
    const PEER_TIMEOUT: Duration = Duration::from_secs(1);
    /// For the program, which looks for the owner every 100 ms, and for a machine that has other things to do.
    const MARGIN: Duration = Duration::from_secs(1);
    let test = "a_receiver_that_is_killed_is_missed_though_the_program_stays";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let timeout_ms = PEER_TIMEOUT.as_millis();
    let settings =
        format!("port={PORT} peer={} peer_timeout_ms={timeout_ms} send_bytes=100000000", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} receive=xdp"));
    // More than it can have taken when it is killed, for the program to have something to deposit.
    sender.order("stream");
    let report = receiver.until_taken(20);
    assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
    assert_ne!(cluster.status(1).ports[&PORT]["epoch"], 0);
    receiver.0.kill();
    let killed = Instant::now();
    let failure =
        eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
    let took = killed.elapsed();
    println!("after {took:?}: {failure}");
    assert!(failure.contains("Gone"), "{failure}");
    assert!(took <= PEER_TIMEOUT + MARGIN, "heard of it after {took:?}");
    let fates = sender.ask("tickets");
    assert!(fates.contains("pending=0") && !fates.contains("failed=0"), "{fates}");
    // Its kernel may have told of the end before the program saw another packet, and took the memory from it.
    assert_eq!(cluster.status(1).ports[&PORT]["claimed"], 0);
}

#[test]
fn a_peer_that_is_killed_is_missed_by_who_waits_for_it_though_all_is_acknowledged() {
    const MARGIN: Duration = Duration::from_secs(5);
    let test = "a_peer_that_is_killed_is_missed_by_who_waits_for_it_though_all_is_acknowledged";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let settings = format!("port={PORT} peer={} receive=xdp", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} receive=xdp"));
    sender.order("post 20");
    receiver.until_taken(20);
    assert_eq!(sender.ask("flush"), "yes");
    // From now on it only receives.
    receiver.0.kill();
    let killed = Instant::now();
    let failure =
        eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
    let took = killed.elapsed();
    println!("after {took:?}: {failure}");
    assert!(failure.contains("Gone"), "{failure}");
    assert!(took <= MARGIN, "heard of it after {took:?}");
}

#[test]
fn a_nic_that_goes_down_for_a_while_loses_nothing() {
    let test = "a_nic_that_goes_down_for_a_while_loses_nothing";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    for send_path in ["udp", "packet"] {
        let mut remotes = [0, 1].map(|node| {
            let peer = four(1 - node, PORT);
            Remote::open(&cluster, node, &format!("port={PORT} peer={peer} send={send_path} receive=xdp"))
        });
        for remote in &mut remotes {
            remote.order("stream");
        }
        for node in [0, 1] {
            let taken = remotes.each_mut().map(|remote| remote.until_taken(50).get("taken"));
            cluster.shell(node, &format!("ip link set {NIC} down; sleep 0.3; ip link set {NIC} up"));
            for (remote, taken) in remotes.iter_mut().zip(taken) {
                remote.until_taken(taken + 100);
            }
        }
        let [one, other] = &mut remotes;
        for report in conclude(one, other) {
            assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
        }
    }
}

#[test]
fn a_peer_without_a_route_is_an_error_at_once() {
    let test = "a_peer_without_a_route_is_an_error_at_once";
    let Some(cluster) = Cluster::new(test) else { return };
    for send_path in ["udp", "packet", "auto"] {
        let mut sender = Remote::open(&cluster, 0, &format!("send={send_path} peer=192.0.2.1:{PORT}"));
        let asked = Instant::now();
        sender.order("post 1");
        let failure =
            eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
        let took = asked.elapsed();
        println!("{send_path}: after {took:?}: {failure}");
        assert!(failure.contains("Network is unreachable (os error 101)"), "{failure}");
        assert!(took < Duration::from_secs(5), "heard of it after {took:?}");
    }
}

/// Long against the time-out of a peer that is silent, and short against the patience of the tests.
const STANDS_STILL: Duration = Duration::from_secs(3);

#[test]
fn a_receiver_that_is_stopped_is_not_dead_and_loses_nothing() {
    let test = "a_receiver_that_is_stopped_is_not_dead_and_loses_nothing";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    for receive_path in ["xdp", "socket"] {
        let settings = |node| {
            let peer = four(1 - node, PORT);
            format!("port={PORT} peer={peer} receive={receive_path} peer_timeout_ms=300")
        };
        let [mut sender, mut receiver] = [0, 1].map(|node| Remote::open(&cluster, node, &settings(node)));
        sender.order("stream");
        receiver.until_taken(20);
        receiver.0.signal(Signal::STOP);
        let stopped = Instant::now();
        while stopped.elapsed() < STANDS_STILL {
            assert_eq!(sender.failure(), "", "{receive_path}: after {:?}", stopped.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        receiver.0.signal(Signal::CONT);
        let taken = receiver.report().get("taken");
        receiver.until_taken(taken + 20);
        // All that was posted is taken, whole and in order.
        let [_, report] = conclude(&mut sender, &mut receiver);
        assert_eq!(report.uses_xdp(), receive_path == "xdp", "{report:?}");
    }
}

#[test]
fn a_link_that_is_down_here_for_longer_than_the_time_out_is_not_the_peers_fault() {
    let test = "a_link_that_is_down_here_for_longer_than_the_time_out_is_not_the_peers_fault";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    // Off by root's hand, and without a carrier because the other end is off.
    for (node, receive_path) in [(0, "xdp"), (0, "socket"), (1, "xdp")] {
        let settings = |node| {
            let peer = four(1 - node, PORT);
            // The other side sees a host that is silent, and has more patience.
            let timeout_ms = if node == 0 { 500 } else { 60_000 };
            format!("port={PORT} peer={peer} receive={receive_path} peer_timeout_ms={timeout_ms}")
        };
        let mut remotes = [0, 1].map(|node| Remote::open(&cluster, node, &settings(node)));
        for remote in &mut remotes {
            remote.order("stream");
        }
        let taken = remotes.each_mut().map(|remote| remote.until_taken(50).get("taken"));
        cluster.shell(node, &format!("ip link set {NIC} down"));
        let down = Instant::now();
        while down.elapsed() < STANDS_STILL {
            for remote in &mut remotes {
                assert_eq!(remote.failure(), "", "after {:?}", down.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let uses = remotes[0].ask("uses");
        assert!(uses.contains(&format!("no link on {NIC}")), "{uses}");
        cluster.shell(node, &format!("ip link set {NIC} up"));
        for (remote, taken) in remotes.iter_mut().zip(taken) {
            remote.until_taken(taken + 100);
        }
        let uses = remotes[0].ask("uses");
        assert!(!uses.contains("no link on"), "{uses}");
        let [one, other] = &mut remotes;
        conclude(one, other);
    }
}

#[test]
fn a_link_that_stays_down_here_is_why_a_peer_is_given_up() {
    let test = "a_link_that_stays_down_here_is_why_a_peer_is_given_up";
    let Some(cluster) = Cluster::new(test) else { return };
    let settings = format!("port={PORT} peer={} peer_timeout_ms=200", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT}"));
    sender.order("stream");
    receiver.until_taken(20);
    cluster.shell(0, &format!("ip link set {NIC} down"));
    let down = Instant::now();
    let failure =
        eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
    println!("after {:?}: {failure}", down.elapsed());
    assert!(
        failure.contains(&format!("the link of {NIC} here, which leads to it, has been down")),
        "{failure}"
    );
    assert!(down.elapsed() >= Duration::from_secs(2), "ten times the time-out: {:?}", down.elapsed());
}
