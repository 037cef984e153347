//! Traffic both ways, between hosts that have the driver depositor and hosts that have not.

use crate::cluster::{Cluster, NIC, PORT, four, six};
use crate::remote::{Remote, Report, conclude};
use std::net::SocketAddr;

/// Port of an endpoint for which there is no memory in the driver.
const UNDRIVEN: u16 = 9000;
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
        if let Some(port) = cluster.status(node).ports.get(&at[node].port()).filter(|_| report.is_driven()) {
            assert_eq!((port["claimed"], port["deposited"]), (1, report.get("deposited")));
        }
    }
    reports
}

/// That the endpoint believes in the driver, and that its packets came by it rather than through its socket.
fn assert_driven(report: &Report) {
    assert!(report.is_driven(), "{report:?}");
    let (driven, deposited) = (report.get("packets_driven"), report.get("deposited"));
    assert!(driven > 0 && driven >= deposited / 10 * 9, "{driven} of {deposited} packets: {report:?}");
}

fn assert_not_driven(report: &Report) {
    assert!(!report.is_driven() && report.get("packets_driven") == 0, "{report:?}");
}

fn under_faults(test: &str, engine: &str) {
    let Some(cluster) = Cluster::driven(test, "") else { return };
    let settings = [1, 2].map(|seed| format!("depositor=driver engine={engine} faults={FAULTS},seed={seed}"));
    let settings = settings.each_ref().map(String::as_str);
    for report in converse(&cluster, [four(0, PORT), four(1, PORT)], settings, 200) {
        assert_driven(&report);
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
fn hosts_with_and_without_the_driver_talk() {
    let Some(cluster) = Cluster::driven("hosts_with_and_without_the_driver_talk", "") else { return };
    cluster.add_six();
    let driver = "depositor=driver engine=udp";
    for user in ["depositor=user", "depositor=auto"] {
        let [driven, plain] = converse(&cluster, [four(0, PORT), four(1, UNDRIVEN)], [driver, user], 50);
        assert_driven(&driven);
        assert_not_driven(&plain);
        let [plain, driven] = converse(&cluster, [six(0, UNDRIVEN), six(1, PORT)], [user, driver], 50);
        assert_driven(&driven);
        assert_not_driven(&plain);
    }
    for report in converse(&cluster, [six(0, PORT), six(1, PORT)], [driver; 2], 50) {
        assert_driven(&report);
    }
}

#[test]
fn an_endpoint_in_the_driver_has_peers_of_both_families_at_once() {
    const ROUNDS: u64 = 500;
    let test = "an_endpoint_in_the_driver_has_peers_of_both_families_at_once";
    let Some(cluster) = Cluster::driven(test, "") else { return };
    cluster.add_six();
    for engine in ["udp", "packet", "xsk"] {
        let settings = format!("port={PORT} depositor=driver engine={engine}");
        let mut server = Remote::open(&cluster, 0, &settings);
        let mut clients = [four(0, PORT), six(0, PORT)]
            .map(|peer| Remote::open(&cluster, 1, &format!("peer={peer} engine={engine}")));
        assert_eq!(server.ask(&format!("throw_back {}", 2 * ROUNDS)), "ready");
        clients.iter_mut().for_each(|client| client.0.tell(&format!("throw {ROUNDS}")));
        for thrower in clients.iter_mut().chain([&mut server]) {
            assert_eq!(thrower.0.hear(), "yes");
        }
        for end in clients.iter_mut().chain([&mut server]) {
            assert_driven(&end.report());
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
        let [native, generic] = converse(&cluster, [0, 1].map(|node| at(node, PORT)), ["engine=xsk"; 2], 50);
        assert_driven(&native);
        assert_driven(&generic);
    }
    let [native, generic] = converse(&cluster, [four(0, PORT), four(1, PORT)], ["engine=udp"; 2], 50);
    assert_driven(&native);
    assert!(generic.is_driven() && generic.get("packets_driven") > 0, "{generic:?}");
    // And beside a host without the program at all.
    cluster.down(0);
    let settings = ["engine=xsk", "depositor=driver engine=xsk"];
    let [plain, generic] = converse(&cluster, [four(0, PORT), four(1, PORT)], settings, 50);
    assert_not_driven(&plain);
    assert_driven(&generic);
}
