//! Traffic both ways, between hosts that have the XDP receive path and hosts that have not.

use crate::cluster::{Cluster, NIC, PORT, four, six};
use crate::remote::{Remote, Report, conclude};
use std::net::SocketAddr;

/// Port for which the XDP program has no receive memory.
const WITHOUT_XDP: u16 = 9000;
const FAULTS: &str = "loss=1%,dup=1%,reorder=2%";

/// Streams of messages between an endpoint in each node, until each has received so many. Every message is compared.
fn converse(cluster: &Cluster, at: [SocketAddr; 2], settings: [&str; 2], messages: u64) -> [Report; 2] {
    let mut remotes = [0, 1].map(|node| {
        let (own, peer) = (at[node], at[1 - node]);
        let settings = format!("port={} peer={peer} {}", own.port(), settings[node]);
        Remote::open(cluster, node, &settings)
    });
    for remote in &mut remotes {
        remote.order("stream");
    }
    for remote in &mut remotes {
        remote.until_taken(messages);
    }
    let [one, other] = &mut remotes;
    let reports = conclude(one, other);
    for (node, report) in reports.iter().enumerate() {
        println!("node {node}: {report:?}");
        // What the library and `tsumugi status` say agree.
        if let Some(port) = cluster.status(node).ports.get(&at[node].port()).filter(|_| report.uses_xdp()) {
            assert_eq!((port["claimed"], port["deposited"]), (1, report.get("deposited")));
        }
    }
    reports
}

/// That the endpoint uses XDP, and that its packets came by XDP rather than through its socket.
fn assert_with_xdp(report: &Report) {
    assert!(report.uses_xdp(), "{report:?}");
    let (by_xdp, deposited) = (report.get("packets_by_xdp"), report.get("deposited"));
    assert!(by_xdp > 0 && by_xdp >= deposited / 10 * 9, "{by_xdp} of {deposited} packets: {report:?}");
}

fn assert_without_xdp(report: &Report) {
    assert!(!report.uses_xdp() && report.get("packets_by_xdp") == 0, "{report:?}");
}

fn under_faults(test: &str, send_path: &str) {
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let settings = [1, 2].map(|seed| format!("receive=xdp send={send_path} faults={FAULTS},seed={seed}"));
    let settings = settings.each_ref().map(String::as_str);
    for report in converse(&cluster, [four(0, PORT), four(1, PORT)], settings, 200) {
        assert_with_xdp(&report);
        assert!(report.get("packets_resent") > 0 && report.get("duplicate") > 0, "no faults: {report:?}");
    }
}

#[test]
fn messages_of_all_lengths_survive_a_bad_wire_by_sockets() {
    under_faults("messages_of_all_lengths_survive_a_bad_wire_by_sockets", "udp");
}

#[test]
fn messages_of_all_lengths_survive_a_bad_wire_by_frames() {
    under_faults("messages_of_all_lengths_survive_a_bad_wire_by_frames", "packet");
}

#[test]
fn hosts_with_and_without_xdp_talk() {
    let Some(cluster) = Cluster::with_xdp("hosts_with_and_without_xdp_talk", "") else { return };
    cluster.add_six();
    let xdp = "receive=xdp send=udp";
    for other in ["receive=socket", "receive=auto"] {
        let [with, without] = converse(&cluster, [four(0, PORT), four(1, WITHOUT_XDP)], [xdp, other], 50);
        assert_with_xdp(&with);
        assert_without_xdp(&without);
        let [without, with] = converse(&cluster, [six(0, WITHOUT_XDP), six(1, PORT)], [other, xdp], 50);
        assert_with_xdp(&with);
        assert_without_xdp(&without);
    }
    for report in converse(&cluster, [six(0, PORT), six(1, PORT)], [xdp; 2], 50) {
        assert_with_xdp(&report);
    }
}

#[test]
fn an_endpoint_with_xdp_has_peers_of_both_families_at_once() {
    const ROUNDS: u64 = 500;
    let test = "an_endpoint_with_xdp_has_peers_of_both_families_at_once";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    cluster.add_six();
    for send_path in ["udp", "packet", "xsk"] {
        let settings = format!("port={PORT} receive=xdp send={send_path}");
        let mut server = Remote::open(&cluster, 0, &settings);
        let mut clients = [four(0, PORT), six(0, PORT)]
            .map(|peer| Remote::open(&cluster, 1, &format!("peer={peer} send={send_path}")));
        assert_eq!(server.ask(&format!("throw_back {}", 2 * ROUNDS)), "ready");
        clients.iter_mut().for_each(|client| client.0.tell(&format!("throw {ROUNDS}")));
        for thrower in clients.iter_mut().chain([&mut server]) {
            assert_eq!(thrower.0.hear(), "yes");
        }
        for end in clients.iter_mut().chain([&mut server]) {
            assert_with_xdp(&end.report());
        }
    }
}

#[test]
fn where_the_program_runs_makes_no_difference() {
    let Some(cluster) = Cluster::new("where_the_program_runs_makes_no_difference") else { return };
    cluster.add_six();
    cluster.up(0, "xdp=native").unwrap();
    cluster.up(1, "xdp=generic").unwrap();
    assert_eq!(cluster.status(0).nics[NIC], "native");
    assert_eq!(cluster.status(1).nics[NIC], "generic");
    for at in [four, six] {
        // Frames that are alone: what segmentation leaves in one piece reaches a generic program in one piece, and
        // the program leaves it to the socket.
        let [native, generic] = converse(&cluster, [0, 1].map(|node| at(node, PORT)), ["send=xsk"; 2], 50);
        assert_with_xdp(&native);
        assert_with_xdp(&generic);
    }
    let [native, generic] = converse(&cluster, [four(0, PORT), four(1, PORT)], ["send=udp"; 2], 50);
    assert_with_xdp(&native);
    assert!(generic.uses_xdp() && generic.get("packets_by_xdp") > 0, "{generic:?}");
    // And beside a host without the program at all.
    cluster.down(0);
    let settings = ["send=xsk", "receive=xdp send=xsk"];
    let [plain, generic] = converse(&cluster, [four(0, PORT), four(1, PORT)], settings, 50);
    assert_without_xdp(&plain);
    assert_with_xdp(&generic);
}
