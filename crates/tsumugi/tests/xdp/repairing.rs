//! Packets that are damaged on their way to a NIC with the program, which cannot compare them with their CRC.

use crate::cluster::{Cluster, PORT, four};
use crate::remote::{Remote, conclude};

/// An endpoint whose packets are damaged on the way: one bit of so many of them.
fn open(cluster: &Cluster, node: usize, corrupt: &str, more: &str) -> Remote {
    let peer = four(1 - node, PORT);
    let faults = format!("faults=corrupt={corrupt},seed=16");
    Remote::open(cluster, node, &format!("port={PORT} peer={peer} send=udp receive=xdp {faults} {more}"))
}

#[test]
fn a_packet_that_is_damaged_on_its_way_to_the_xdp_program_comes_again() {
    let test = "a_packet_that_is_damaged_on_its_way_to_the_xdp_program_comes_again";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let [mut one, mut other] = [0, 1].map(|node| open(&cluster, node, "1%", ""));
    one.order("stream");
    other.order("stream");
    one.until_taken(500);
    other.until_taken(500);
    for report in conclude(&mut one, &mut other) {
        println!("{report:?}");
        assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
        assert!(report.get("corrupt") > 0 && report.get("packets_repaired") > 0, "{report:?}");
        let lost = (report.get("packets_unrepaired"), report.get("peers_lost"), report.get("violation"));
        assert_eq!(lost, (0, 0, 0), "{report:?}");
    }
}

#[test]
fn what_is_damaged_while_the_process_computes_is_not_lost() {
    /// Within the credit.
    const MESSAGES: u64 = 200;
    let Some(cluster) = Cluster::with_xdp("what_is_damaged_while_the_process_computes_is_not_lost", "")
    else {
        return;
    };
    let mut one = open(&cluster, 0, "30%", "lengths=short");
    let mut other = open(&cluster, 1, "0%", "lengths=short");
    one.order("post 10");
    other.until_taken(10);
    one.order("flush");
    other.order("compute");
    // Acknowledged by the program, damaged or not.
    one.order(&format!("post {MESSAGES}"));
    one.order("flush");
    assert_eq!(one.report().get("pending"), 0);
    assert!(other.is_silent(), "it computes still");
    other.order("go on");
    let report = other.until_taken(10 + MESSAGES);
    assert!(report.get("packets_repaired") > 0 && report.get("packets_unrepaired") == 0, "{report:?}");
    assert_eq!((one.failure(), other.failure()), (String::new(), String::new()));
}
