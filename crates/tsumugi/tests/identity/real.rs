//! Networks as they are: addresses that several hosts have, hosts that have several, between real namespaces.

use crate::process::Process;
use std::time::Duration;
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, LabGuard, Spec};

pub(crate) const PORT: u16 = 7500;

pub(crate) struct Hosts {
    lab: LabGuard,
    _watched: Watched,
}

impl Hosts {
    /// Two hosts with so many NICs on direct links; `None`, after saying so loudly, without root.
    pub(crate) fn up(test: &str, nics: u32) -> Option<Hosts> {
        Hosts::of(test, 2, nics)
    }

    pub(crate) fn of(test: &str, nodes: u32, nics: u32) -> Option<Hosts> {
        let watched = as_root(test, None)?;
        let lab = Lab::up(&Spec { nodes, nics, ..Spec::unique("who") }).expect("the lab is made").guarded();
        Some(Hosts { lab, _watched: watched })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.lab.nodes().len()
    }

    pub(crate) fn shell(&self, node: usize, line: &str) {
        let mut command = self.lab.command(node, "/bin/sh").expect("the node can be entered");
        let output = command.args(["-c", line]).output().expect("the shell starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "'{line}' in node {node}: {:?} {complaint}", output.status);
    }

    /// An endpoint in a node.
    pub(crate) fn open(&self, node: usize, settings: &str) -> Process {
        let program = std::env::current_exe().expect("this program");
        let command = self.lab.command(node, program).expect("the node can be entered");
        let mut process = Process::start_by(command, &format!("endpoint {settings}"));
        assert_eq!(process.hear(), "open");
        process
    }
}

pub(crate) fn ask(process: &mut Process, order: &str) -> String {
    process.tell(order);
    process.hear()
}

/// Sends from one to the peer number that it knows the other by, and back; all is from whom it should be.
pub(crate) fn talk(one: &mut Process, peer: &str, other: &mut Process) {
    for text in ["how-do-you-do", "well-and-you"] {
        assert_eq!(ask(one, &format!("post {peer} {text}")), "posted");
        let heard = ask(other, "hear");
        let (source, what) = heard.split_once(' ').expect("a source and a text");
        assert_eq!(what, text);
        assert_eq!(ask(other, &format!("post {source} {text}")), "posted");
        assert_eq!(ask(one, "hear"), format!("{peer} {text}"));
    }
}

/// Waits until a peer's paths are these, while messages go both ways: the kernel takes a second or more to say that a new NIC has a
/// carrier.
pub(crate) fn until_paths(one: &mut Process, peer: &str, other: &mut Process, paths: &str) {
    let mut found = String::new();
    for _ in 0..200 {
        found = ask(one, &format!("paths {peer}"));
        if found == paths {
            return;
        }
        talk(one, peer, other);
        assert_eq!(ask(one, "quiet 20"), "quiet");
    }
    panic!("paths {found}, not {paths}: {}", ask(one, &format!("explain {peer}")));
}

/// Nobody was taken for dead or restarted.
pub(crate) fn nobody_lost(processes: [&mut Process; 2]) {
    for process in processes {
        assert_eq!(ask(process, "lost"), "0");
    }
}

#[test]
fn a_second_address_of_a_nic_answers() {
    let Some(hosts) = Hosts::up("a_second_address_of_a_nic_answers", 1) else { return };
    hosts.shell(1, "ip addr add 10.77.0.99/24 dev nic0");
    for node in 0..2 {
        hosts.shell(
            node,
            &format!(
                "cd /proc/sys/net/ipv6/conf/nic0 && echo 0 > accept_dad && echo 0 > disable_ipv6 && \
                 ip addr add fd77::{node}:1/64 dev nic0 nodad && ip addr add fd77::{node}:9/64 dev nic0 nodad"
            ),
        );
    }
    for send_path in ["auto", "udp", "packet"] {
        for (bind, at) in
            [("0.0.0.0", "10.77.0.99"), ("::", "10.77.0.99"), ("::", "[fd77::1:9]"), ("::", "[fd77::1:1]")]
        {
            let settings = format!("port={PORT} bind={bind} send={send_path}");
            let mut there = hosts.open(1, &settings);
            let mut here = hosts.open(0, &format!("bind={bind} send={send_path}"));
            let peer = ask(&mut here, &format!("add {at}:{PORT}"));
            talk(&mut here, &peer, &mut there);
            nobody_lost([&mut here, &mut there]);
        }
    }
}

#[test]
fn the_own_name_of_a_host_may_be_any_loopback_address() {
    let Some(hosts) = Hosts::up("the_own_name_of_a_host_may_be_any_loopback_address", 1) else { return };
    for at in ["127.0.1.1", "127.0.0.1", "10.77.0.1"] {
        let mut here = hosts.open(0, &format!("port={PORT}"));
        assert_eq!(ask(&mut here, &format!("add {at}:{PORT}")), "0");
        assert_eq!(ask(&mut here, "post 0 to-myself"), "posted");
        assert_eq!(ask(&mut here, "hear"), "0 to-myself", "by {at}");
        assert_eq!(ask(&mut here, "peers"), "1");
    }
}

#[test]
fn an_address_that_every_host_has_is_no_path() {
    let Some(hosts) = Hosts::up("an_address_that_every_host_has_is_no_path", 2) else { return };
    for node in 0..2 {
        // What container runtimes make, with a container that has a port.
        hosts.shell(
            node,
            "ip link add docker0 type veth peer name vc1 && ip addr add 172.17.0.1/16 dev docker0 && \
             ip link set docker0 up && ip link set vc1 up",
        );
    }
    let mut there = hosts.open(1, &format!("port={PORT}"));
    let mut here = hosts.open(0, &format!("port={PORT}"));
    let peer = ask(&mut here, &format!("add 10.77.0.2:{PORT}"));
    talk(&mut here, &peer, &mut there);
    // Long enough for every path to be tried.
    for _ in 0..10 {
        assert_eq!(ask(&mut here, "quiet 50"), "quiet");
        talk(&mut here, &peer, &mut there);
    }
    until_paths(&mut here, &peer, &mut there, "10.77.0.2 10.77.1.2");
    until_paths(&mut there, "0", &mut here, "10.77.0.1 10.77.1.1");
    nobody_lost([&mut here, &mut there]);
}

#[test]
fn whoever_has_the_peer_s_address_elsewhere_ends_nothing() {
    let test = "whoever_has_the_peer_s_address_elsewhere_ends_nothing";
    let Some(hosts) = Hosts::of(test, 3, 1) else { return };
    // What host 1 calls 10.99.0.2 is another network than the one on which host 0 has a neighbour of that address.
    hosts.shell(
        1,
        "ip link add lone type veth peer name end && ip addr add 10.99.0.2/24 dev lone && \
         ip link set lone up && ip link set end up",
    );
    let third = format!("tsu-{}-n2", hosts.lab.name());
    hosts.shell(
        0,
        &format!(
            "ip link add other type veth peer name here netns {third} && ip addr add 10.99.0.1/24 dev other && \
             ip link set other up"
        ),
    );
    hosts.shell(2, "ip addr add 10.99.0.2/24 dev here && ip link set here up");
    let [mut here, mut there, mut third] = [0, 1, 2].map(|node| hosts.open(node, &format!("port={PORT}")));
    let peer = ask(&mut here, &format!("add 10.77.0.2:{PORT}"));
    for _ in 0..5 {
        talk(&mut here, &peer, &mut there);
        assert_eq!(ask(&mut here, "quiet 20"), "quiet");
    }
    assert_eq!(ask(&mut here, &format!("paths {peer}")), "10.77.0.2");
    // Whoever is there is a peer of its own.
    let from_third = ask(&mut third, &format!("add 10.99.0.1:{PORT}"));
    talk(&mut third, &from_third, &mut here);
    talk(&mut here, &peer, &mut there);
    nobody_lost([&mut here, &mut there]);
    assert_eq!(ask(&mut here, "peers"), "2");
}

#[test]
fn a_peer_called_by_an_address_that_it_does_not_come_from_is_one_peer() {
    let test = "a_peer_called_by_an_address_that_it_does_not_come_from_is_one_peer";
    let Some(hosts) = Hosts::up(test, 2) else { return };
    for later_ms in [0, 0, 0, 5, 50] {
        let mut there = hosts.open(1, &format!("port={PORT}"));
        let mut here = hosts.open(0, &format!("port={PORT}"));
        assert_eq!(ask(&mut there, &format!("add 10.77.0.1:{PORT}")), "0");
        assert_eq!(ask(&mut here, &format!("add 10.77.1.2:{PORT}")), "0");
        assert_eq!(ask(&mut here, "post 0 from-here"), "posted");
        std::thread::sleep(Duration::from_millis(later_ms));
        assert_eq!(ask(&mut there, "post 0 from-there"), "posted");
        assert_eq!(ask(&mut here, "hear"), "0 from-there");
        assert_eq!(ask(&mut there, "hear"), "0 from-here");
        talk(&mut here, "0", &mut there);
        nobody_lost([&mut here, &mut there]);
    }
}

#[test]
fn a_peer_with_two_names_is_one_peer() {
    let Some(hosts) = Hosts::up("a_peer_with_two_names_is_one_peer", 2) else { return };
    hosts.shell(1, "ip addr add 10.77.0.99/24 dev nic0");
    let mut there = hosts.open(1, &format!("port={PORT}"));
    let mut here = hosts.open(0, &format!("port={PORT}"));
    for (number, at) in ["10.77.0.2", "10.77.1.2", "10.77.0.99"].into_iter().enumerate() {
        assert_eq!(ask(&mut here, &format!("add {at}:{PORT}")), number.to_string());
        assert_eq!(ask(&mut here, &format!("post {number} message-{number}")), "posted");
    }
    let mut heard: Vec<String> = (0..3).map(|_| ask(&mut there, "hear")).collect();
    heard.sort();
    assert_eq!(heard, ["0 message-0", "0 message-1", "0 message-2"]);
    for number in 0..3 {
        assert_eq!(ask(&mut here, &format!("canonical {number}")), "0");
    }
    assert_eq!(ask(&mut there, "post 0 back"), "posted");
    assert_eq!(ask(&mut here, "hear"), "0 back");
    nobody_lost([&mut here, &mut there]);
}

#[test]
fn only_networks_of_the_list_are_used_and_the_choice_is_explained() {
    let test = "only_networks_of_the_list_are_used_and_the_choice_is_explained";
    let Some(hosts) = Hosts::up(test, 3) else { return };
    // Has two talk until they have found these paths to each other. Returns why they are those.
    let talked = |settings: [&str; 2], [from_here, from_there]: [&str; 2]| {
        let [mut here, mut there] =
            [0, 1].map(|node| hosts.open(node, &format!("port={PORT} {}", settings[node])));
        let peer = ask(&mut here, &format!("add 10.77.0.2:{PORT}"));
        talk(&mut here, &peer, &mut there);
        assert_eq!(ask(&mut here, "quiet 200"), "quiet");
        until_paths(&mut here, &peer, &mut there, from_here);
        until_paths(&mut there, "0", &mut here, from_there);
        nobody_lost([&mut here, &mut there]);
        ask(&mut here, "explain 0")
    };
    talked(["", ""], ["10.77.0.2 10.77.1.2 10.77.2.2", "10.77.0.1 10.77.1.1 10.77.2.1"]);
    let why = talked(["networks=!nic1", ""], ["10.77.0.2 10.77.2.2", "10.77.0.1 10.77.2.1"]);
    assert!(why.contains("10.77.1.2 no path: none of the NICs in use here is on its link"), "{why}");
    let why = talked(
        ["networks=10.77.0.0/16,!10.77.2.2", ""],
        ["10.77.0.2 10.77.1.2", "10.77.0.1 10.77.1.1 10.77.2.1"],
    );
    assert!(why.contains("10.77.2.2 no path: it is excluded by '!10.77.2.2'"), "{why}");
    talked(["networks=nic0,nic2", "networks=nic0,nic1"], ["10.77.0.2", "10.77.0.1"]);
    // Who may not be sent to is not added.
    let mut here = hosts.open(0, "networks=!10.77.1.0/24");
    let refused = ask(&mut here, &format!("add 10.77.1.2:{PORT}"));
    assert!(refused.contains("10.77.1.2:7500") && refused.contains("'!10.77.1.0/24'"), "{refused}");
}

#[test]
fn traffic_stays_on_the_kind_of_network_that_was_named() {
    let test = "traffic_stays_on_the_kind_of_network_that_was_named";
    let Some(hosts) = Hosts::up(test, 2) else { return };
    for node in 0..2 {
        let host = node + 1;
        // Beside the cluster's own networks one with public addresses, and one that is a tunnel as far as can be told.
        hosts.shell(node, &format!("ip addr flush dev nic1; ip addr add 203.0.113.{host}/24 dev nic1"));
    }
    let third = format!("tsu-{}-n1", hosts.lab.name());
    hosts.shell(0, &format!("ip link add wg0 type veth peer name wg0 netns {third}"));
    for node in 0..2 {
        hosts.shell(node, &format!("ip addr add 10.8.0.{}/24 dev wg0 && ip link set wg0 up", node + 1));
    }
    for (named, why) in [
        ("10.77.0.2", "10.8.0.2 no path: the connection was made without a tunnel, and this is one"),
        ("10.8.0.2", "10.77.0.2 no path: the connection was made through a tunnel, and this is none"),
        (
            "203.0.113.2",
            "10.77.0.2 no path: the connection was made on a public network, and this is a private one",
        ),
    ] {
        let mut there = hosts.open(1, &format!("port={PORT}"));
        let mut here = hosts.open(0, &format!("port={PORT}"));
        let peer = ask(&mut here, &format!("add {named}:{PORT}"));
        talk(&mut here, &peer, &mut there);
        // The kernel takes a second to say that a new NIC has a carrier.
        let mut explained = String::new();
        for _ in 0..100 {
            explained = ask(&mut here, &format!("explain {peer}"));
            if explained.contains(why) {
                break;
            }
            assert_eq!(ask(&mut here, "quiet 50"), "quiet");
            talk(&mut here, &peer, &mut there);
        }
        assert!(explained.contains(why), "{explained}");
        assert_eq!(ask(&mut here, "quiet 200"), "quiet");
        talk(&mut here, &peer, &mut there);
        assert_eq!(ask(&mut here, &format!("paths {peer}")), named);
        nobody_lost([&mut here, &mut there]);
    }
}
