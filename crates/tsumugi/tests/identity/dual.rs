//! Peers of IPv4 and of IPv6 at one endpoint, between real namespaces.

use crate::ipv6::give;
use crate::real::{Hosts, PORT, ask, nobody_lost, talk, until_paths};
use std::time::{Duration, Instant};

#[test]
fn a_server_has_clients_of_ipv4_and_of_ipv6_at_once() {
    let test = "a_server_has_clients_of_ipv4_and_of_ipv6_at_once";
    let Some(hosts) = Hosts::of(test, 3, 1) else { return };
    give(&hosts, 1);
    // One host has no IPv6 at all, and one has no address of IPv4.
    hosts.shell(1, "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
    hosts.shell(2, "ip -4 addr flush dev nic0");
    for send_path in ["auto", "udp", "packet"] {
        let mut server = hosts.open(0, &format!("port={PORT} send={send_path}"));
        let [mut four, mut six] = [1, 2].map(|node| hosts.open(node, &format!("send={send_path}")));
        let bound = [&mut server, &mut four, &mut six].map(|end| ask(end, "address"));
        assert_eq!(bound, ["::", "0.0.0.0", "::"]);
        let at_four = ask(&mut four, &format!("add 10.77.0.1:{PORT}"));
        let at_six = ask(&mut six, &format!("add [fd77:0::0:1]:{PORT}"));
        for _ in 0..5 {
            talk(&mut four, &at_four, &mut server);
            talk(&mut six, &at_six, &mut server);
        }
        assert_eq!(ask(&mut server, "peers"), "2");
        // Packets are as long as each family lets them be, and no path is short.
        let lengths = [ask(&mut four, "datagram 0"), ask(&mut six, "datagram 0")];
        assert_eq!(lengths, ["1472", "1452"]);
        let lengths = [ask(&mut server, "datagram 0"), ask(&mut server, "datagram 1")];
        assert_eq!(lengths, ["1472", "1452"]);
        let report = ask(&mut server, "uses");
        assert!(report.contains("NICs nic0") && !report.contains("datagrams of"), "{report}");
        nobody_lost([&mut four, &mut six]);
    }
}

#[test]
fn an_endpoint_of_one_family_says_what_reaches_the_other() {
    let test = "an_endpoint_of_one_family_says_what_reaches_the_other";
    let Some(hosts) = Hosts::up(test, 1) else { return };
    give(&hosts, 1);
    for (bind, peer) in [("0.0.0.0", "[fd77::1:1]:7500"), ("fd77::1", "10.77.0.2:7500")] {
        let mut here = hosts.open(0, &format!("bind={bind}"));
        let refused = ask(&mut here, &format!("add {peer}"));
        for part in [peer, bind, "bind it to ::", "disable_ipv6"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
    // `0.0.0.0` is IPv4 alone, and no other family's packets are taken.
    let mut there = hosts.open(1, &format!("port={PORT} bind=0.0.0.0"));
    let mut here = hosts.open(0, "");
    let four = ask(&mut here, &format!("add 10.77.0.2:{PORT}"));
    talk(&mut here, &four, &mut there);
    let six = ask(&mut here, &format!("add [fd77::1:1]:{PORT}"));
    assert_eq!(ask(&mut here, &format!("post {six} into-the-void")), "posted");
    assert_eq!(ask(&mut there, "quiet 200"), "quiet");
}

#[test]
fn a_peer_that_is_called_by_both_families_is_one_peer() {
    let Some(hosts) = Hosts::up("a_peer_that_is_called_by_both_families_is_one_peer", 1) else { return };
    give(&hosts, 1);
    // Each by the address of another family, at the same time or one after the other.
    for later_ms in [0, 0, 5, 50] {
        for [at_there, at_here] in [["10.77.0.2", "[fd77::0:1]"], ["[fd77::1:1]", "10.77.0.1"]] {
            let [mut here, mut there] = [0, 1].map(|node| hosts.open(node, &format!("port={PORT}")));
            assert_eq!(ask(&mut here, &format!("add {at_there}:{PORT}")), "0");
            assert_eq!(ask(&mut there, &format!("add {at_here}:{PORT}")), "0");
            assert_eq!(ask(&mut here, "post 0 from-here"), "posted");
            std::thread::sleep(Duration::from_millis(later_ms));
            assert_eq!(ask(&mut there, "post 0 from-there"), "posted");
            assert_eq!(ask(&mut here, "hear"), "0 from-there");
            assert_eq!(ask(&mut there, "hear"), "0 from-here");
            talk(&mut here, "0", &mut there);
            assert_eq!([ask(&mut here, "peers"), ask(&mut there, "peers")], ["1", "1"]);
            nobody_lost([&mut here, &mut there]);
        }
    }
    // One side by both.
    for names in [["10.77.0.2", "[fd77::1:1]"], ["[fd77::1:1]", "10.77.0.2"]] {
        let [mut here, mut there] = [0, 1].map(|node| hosts.open(node, &format!("port={PORT}")));
        for (number, at) in names.into_iter().enumerate() {
            assert_eq!(ask(&mut here, &format!("add {at}:{PORT}")), number.to_string());
            assert_eq!(ask(&mut here, &format!("post {number} message-{number}")), "posted");
        }
        let mut heard = [ask(&mut there, "hear"), ask(&mut there, "hear")];
        heard.sort();
        assert_eq!(heard, ["0 message-0", "0 message-1"]);
        assert_eq!([ask(&mut here, "canonical 0"), ask(&mut here, "canonical 1")], ["0", "0"]);
        for number in 0..2 {
            assert_eq!(ask(&mut here, &format!("post {number} again-{number}")), "posted");
            assert_eq!(ask(&mut there, "hear"), format!("0 again-{number}"));
        }
        assert_eq!(ask(&mut there, "post 0 back"), "posted");
        assert_eq!(ask(&mut here, "hear"), "0 back");
        nobody_lost([&mut here, &mut there]);
    }
}

#[test]
fn nics_of_one_family_each_are_two_paths_and_either_may_fail() {
    let test = "nics_of_one_family_each_are_two_paths_and_either_may_fail";
    let Some(hosts) = Hosts::up(test, 2) else { return };
    give(&hosts, 2);
    for node in 0..2 {
        hosts.shell(
            node,
            "ip -6 addr flush dev nic0; ip -4 addr flush dev nic1; \
             for nic in nic0 nic1; do echo 1 > /proc/sys/net/ipv6/conf/$nic/keep_addr_on_down; done",
        );
    }
    for (send_path, named) in [("auto", "10.77.0.2"), ("udp", "[fd77:1::1:1]"), ("packet", "10.77.0.2")] {
        let settings = format!("port={PORT} send={send_path}");
        let [mut here, mut there] = [0, 1].map(|node| hosts.open(node, &settings));
        let peer = ask(&mut here, &format!("add {named}:{PORT}"));
        talk(&mut here, &peer, &mut there);
        until_paths(&mut here, &peer, &mut there, "10.77.0.2 fd77:1::1:1");
        for (lost, left) in [("nic0", "fd77:1::1:1"), ("nic1", "10.77.0.2")] {
            hosts.shell(0, &format!("ip link set {lost} down"));
            until_paths(&mut here, &peer, &mut there, left);
            for _ in 0..5 {
                talk(&mut here, &peer, &mut there);
            }
            hosts.shell(0, &format!("ip link set {lost} up"));
            until_paths(&mut here, &peer, &mut there, "10.77.0.2 fd77:1::1:1");
        }
        assert_eq!(ask(&mut here, "peers"), "1");
        nobody_lost([&mut here, &mut there]);
    }
}

#[test]
fn a_nic_with_addresses_of_both_families_is_one_path_and_loses_either() {
    let test = "a_nic_with_addresses_of_both_families_is_one_path_and_loses_either";
    let Some(hosts) = Hosts::up(test, 2) else { return };
    give(&hosts, 2);
    for (named, [used, spare], address) in [
        ("10.77.0.2", ["10.77.0.2 10.77.1.2", "10.77.1.2 fd77::1:1"], "10.77.0.1/24"),
        ("[fd77::1:1]", ["fd77:1::1:1 fd77::1:1", "10.77.0.2 fd77:1::1:1"], "fd77:0::0:1/64"),
    ] {
        let [mut here, mut there] = [0, 1].map(|node| hosts.open(node, &format!("port={PORT}")));
        let peer = ask(&mut here, &format!("add {named}:{PORT}"));
        talk(&mut here, &peer, &mut there);
        until_paths(&mut here, &peer, &mut there, used);
        let why = ask(&mut here, &format!("explain {peer}"));
        assert_eq!(why.matches("no path: the path to").count(), 2, "{why}");
        // Without the address of one family, the same NICs are joined by the other's.
        hosts.shell(0, &format!("ip addr del {address} dev nic0"));
        until_paths(&mut here, &peer, &mut there, spare);
        nobody_lost([&mut here, &mut there]);
        hosts
            .shell(0, &format!("ip addr add {address} dev nic0 $(case {address} in *:*) echo nodad;; esac)"));
    }
}

#[test]
fn the_end_of_a_peer_is_heard_of_at_once_in_either_family() {
    let test = "the_end_of_a_peer_is_heard_of_at_once_in_either_family";
    let Some(hosts) = Hosts::up(test, 1) else { return };
    give(&hosts, 1);
    for send_path in ["udp", "packet"] {
        for at in ["10.77.0.2", "[fd77::1:1]"] {
            let mut there = hosts.open(1, &format!("port={PORT}"));
            let mut here = hosts.open(0, &format!("send={send_path}"));
            let peer = ask(&mut here, &format!("add {at}:{PORT}"));
            talk(&mut here, &peer, &mut there);
            drop(there); // killed
            let killed = Instant::now();
            // It may have been asked after already.
            let posted = ask(&mut here, &format!("post {peer} anybody-there"));
            let heard = if posted == "posted" { ask(&mut here, "hear") } else { posted };
            assert!(heard.contains("its process has ended"), "{heard}");
            // Of 180 s for which a host may be silent.
            assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
        }
    }
}
