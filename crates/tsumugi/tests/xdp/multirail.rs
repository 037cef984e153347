//! Nodes with several NICs, of which one is lost now and then.

use crate::cluster::{Cluster, PORT, eventually, four};
use crate::remote::{Remote, conclude};
use std::time::Duration;

/// Two nodes with two NICs each, and a stream in each direction; with the program in every NIC, if it deposits.
fn streams(test: &str, settings: &str) -> Option<(Cluster, [Remote; 2])> {
    let cluster = Cluster::with_nics(test, 2)?;
    if settings.contains("receive=xdp") {
        for (node, nic) in [(0, "nic0"), (0, "nic1"), (1, "nic0"), (1, "nic1")] {
            cluster.up(node, &format!("nic={nic}")).expect("the program in every NIC");
        }
    }
    let remotes = [0, 1].map(|node| {
        Remote::open(&cluster, node, &format!("port={PORT} peer={} {settings}", four(1 - node, PORT)))
    });
    Some((
        cluster,
        remotes.map(|mut remote| {
            remote.order("stream");
            remote
        }),
    ))
}

/// Waits until it uses so many of its two paths.
fn until_usable(remote: &mut Remote, paths: u64) {
    remote.until(&format!("{paths} usable paths"), |report| {
        report.get("paths") == 2 && report.get("usable") == paths
    });
}

/// Packets that arrived over each path.
fn delivered(remote: &mut Remote) -> [u64; 2] {
    let report = remote.report();
    ["delivered0", "delivered1"].map(|path| report.get(path))
}

/// Waits until both paths have carried more. Of round-robin that is sure; adaptive may find one to be enough where the
/// sender's processor is slower than either NIC.
fn until_both_carry(remote: &mut Remote) {
    let before = delivered(remote);
    eventually("both paths to carry packets", || {
        let now = delivered(remote);
        (now[0] > before[0] + 100 && now[1] > before[1] + 100).then_some(())
    });
}

#[test]
fn every_nic_carries_a_stream() {
    for policy in ["adaptive", "round-robin", "broadcast"] {
        for receive_path in ["socket", "xdp"] {
            let settings = format!("receive={receive_path} policy={policy}");
            let Some((_cluster, mut remotes)) = streams("every_nic_carries_a_stream", &settings) else {
                return;
            };
            for remote in &mut remotes {
                until_usable(remote, 2);
                if policy == "round-robin" {
                    until_both_carry(remote);
                }
                remote.until_taken(50);
            }
            let [one, other] = &mut remotes;
            for report in conclude(one, other) {
                assert_eq!(
                    (report.get("violation"), report.get("peers_lost")),
                    (0, 0),
                    "{settings}: {report:?}"
                );
                if policy == "broadcast" {
                    assert!(report.get("duplicate") > 100, "{report:?}");
                }
                assert_eq!(report.uses_xdp(), receive_path == "xdp");
            }
        }
    }
}

#[test]
fn a_policy_that_uses_one_nic_leaves_the_other_alone() {
    for policy in ["active-backup", "hash", "tlb"] {
        let settings = format!("receive=socket policy={policy}");
        let test = "a_policy_that_uses_one_nic_leaves_the_other_alone";
        let Some((_cluster, mut remotes)) = streams(test, &settings) else { return };
        for remote in &mut remotes {
            until_usable(remote, 2);
            let before = delivered(remote);
            remote.until_taken(100);
            let now = delivered(remote);
            // What was under way when the second path was found may have gone over either.
            let grown = [0, 1].map(|path| now[path] - before[path] > 64);
            assert!(grown != [true, true], "{policy}: {before:?}, {now:?}");
        }
        let [one, other] = &mut remotes;
        conclude(one, other);
    }
}

#[test]
fn a_nic_that_is_lost_in_mid_stream_is_missed_by_nobody() {
    for (nic, settings) in [
        ("nic0", "receive=socket policy=adaptive"),
        ("nic1", "receive=socket policy=round-robin"),
        ("nic0", "receive=socket policy=active-backup"),
        ("nic1", "receive=xdp policy=adaptive"),
    ] {
        let test = "a_nic_that_is_lost_in_mid_stream_is_missed_by_nobody";
        let Some((cluster, mut remotes)) = streams(test, settings) else { return };
        remotes.iter_mut().for_each(|remote| until_usable(remote, 2));
        cluster.shell(1, &format!("ip link set {nic} down"));
        for remote in &mut remotes {
            until_usable(remote, 1);
            let taken = remote.report().get("taken");
            remote.until_taken(taken + 50);
        }
        cluster.shell(1, &format!("ip link set {nic} up"));
        for remote in &mut remotes {
            until_usable(remote, 2);
            if settings.contains("round-robin") {
                until_both_carry(remote);
            }
        }
        let [one, other] = &mut remotes;
        for report in conclude(one, other) {
            assert_eq!((report.get("violation"), report.get("peers_lost")), (0, 0), "{settings}: {report:?}");
        }
    }
}

#[test]
fn a_stream_goes_on_by_itself_when_all_nics_were_lost_for_a_while() {
    let test = "a_stream_goes_on_by_itself_when_all_nics_were_lost_for_a_while";
    let Some((cluster, mut remotes)) = streams(test, "receive=socket policy=round-robin") else { return };
    remotes.iter_mut().for_each(|remote| until_usable(remote, 2));
    cluster.shell(0, "ip link set nic0 down; ip link set nic1 down");
    std::thread::sleep(Duration::from_secs(3));
    let taken = remotes.each_mut().map(|remote| remote.report().get("taken"));
    cluster.shell(0, "ip link set nic0 up; ip link set nic1 up");
    for (remote, taken) in remotes.iter_mut().zip(taken) {
        remote.until_taken(taken + 50);
        until_both_carry(remote);
    }
    let [one, other] = &mut remotes;
    conclude(one, other);
}

#[test]
fn a_nic_that_appears_later_is_used() {
    let Some(cluster) = Cluster::with_nics("a_nic_that_appears_later_is_used", 2) else { return };
    cluster.shell(0, "ip link set nic1 down");
    let mut remotes = [0, 1].map(|node| {
        Remote::open(
            &cluster,
            node,
            &format!("port={PORT} peer={} receive=socket policy=round-robin", four(1 - node, PORT)),
        )
    });
    remotes.iter_mut().for_each(|remote| remote.order("stream"));
    for remote in &mut remotes {
        assert_eq!(remote.until_taken(20).get("paths"), 1);
    }
    cluster.shell(0, "ip link set nic1 up");
    for remote in &mut remotes {
        until_usable(remote, 2);
        until_both_carry(remote);
    }
    let [one, other] = &mut remotes;
    conclude(one, other);
}
