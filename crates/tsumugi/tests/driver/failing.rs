//! Processes that are killed, and NICs that go down.

use crate::cluster::{Cluster, NIC, PORT, eventually, four};
use crate::remote::{Remote, conclude};
use std::time::{Duration, Instant};

#[test]
fn a_receiver_that_is_killed_is_missed_though_the_program_stays() {
    const PEER_TIMEOUT: Duration = Duration::from_secs(1);
    /// For the program, which looks for the owner every 100 ms, and for a machine that has other things to do.
    const MARGIN: Duration = Duration::from_secs(1);
    let test = "a_receiver_that_is_killed_is_missed_though_the_program_stays";
    let Some(cluster) = Cluster::driven(test, "") else { return };
    let timeout_ms = PEER_TIMEOUT.as_millis();
    let settings =
        format!("port={PORT} peer={} peer_timeout_ms={timeout_ms} send_bytes=100000000", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} depositor=driver"));
    // More than it can have taken when it is killed, for the program to have something to deposit.
    sender.order("stream");
    let report = receiver.until_taken(20);
    assert!(report.is_driven() && report.get("packets_driven") > 0, "{report:?}");
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
    let Some(cluster) = Cluster::driven(test, "") else { return };
    let settings = format!("port={PORT} peer={} depositor=driver", four(1, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings);
    let mut receiver = Remote::open(&cluster, 1, &format!("port={PORT} depositor=driver"));
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
    let Some(cluster) = Cluster::driven(test, "") else { return };
    for engine in ["udp", "packet"] {
        let mut remotes = [0, 1].map(|node| {
            let peer = four(1 - node, PORT);
            Remote::open(&cluster, node, &format!("port={PORT} peer={peer} engine={engine} depositor=driver"))
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
            assert!(report.is_driven() && report.get("packets_driven") > 0, "{report:?}");
        }
    }
}

#[test]
fn a_peer_without_a_route_is_an_error_at_once() {
    let test = "a_peer_without_a_route_is_an_error_at_once";
    let Some(cluster) = Cluster::new(test) else { return };
    for engine in ["udp", "packet", "auto"] {
        let mut sender = Remote::open(&cluster, 0, &format!("engine={engine} peer=192.0.2.1:{PORT}"));
        let asked = Instant::now();
        sender.order("post 1");
        let failure =
            eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
        let took = asked.elapsed();
        println!("{engine}: after {took:?}: {failure}");
        assert!(failure.contains("Network is unreachable (os error 101)"), "{failure}");
        assert!(took < Duration::from_secs(5), "heard of it after {took:?}");
    }
}
