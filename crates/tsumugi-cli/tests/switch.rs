//! `tsumugi switch` on real NICs: traffic of every kind passes, the box is as its status says, and nothing stays behind. Needs root
//! and the compiled program.

mod common;

use common::with_xdp;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tsumugi_lab::testing::Watched;
use tsumugi_lab::{Lab, LabGuard, Spec, Wire};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");
/// The ports of the box.
const PORTS: [&str; 3] = ["n0-nic0", "n1-nic0", "n2-nic0"];

/// Three nodes around a switch box.
struct Cluster(LabGuard, #[allow(dead_code, reason = "looks at the kernel's log in the end")] Watched);

impl Cluster {
    /// `None`, after saying so loudly, where there can be none; never where CI=true.
    fn new(test: &str, mtu: u32) -> Option<Cluster> {
        let watched = with_xdp(test)?;
        let spec = Spec { nodes: 3, mtu, wire: Some(Wire::XdpSwitch), ..Spec::unique("switch") };
        Some(Cluster(Lab::up(&spec).expect("the lab is made").guarded(), watched))
    }

    /// Runs a command of the shell in the box; returns what it prints.
    fn box_runs(&self, line: &str) -> String {
        run(self.0.switch_command("sh").expect("it can be entered"), line)
    }

    /// Runs a command of the shell in a node; returns what it prints.
    fn node_runs(&self, node: usize, line: &str) -> String {
        run(self.0.command(node, "sh").expect("it can be entered"), line)
    }

    /// Runs `tsumugi switch LINE` in the box, and returns what it prints, if it ends with that code.
    fn expect(&self, line: &str, code: i32) -> (String, String) {
        let mut command = self.0.switch_command(TSUMUGI).expect("it can be entered");
        let output = command.arg("switch").args(line.split_whitespace()).output().expect("it starts");
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        (out, err)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.expect("status --json", 0).0).expect("one JSON object")
    }

    /// How many frames that came in by a port had this outcome.
    fn frames(&self, port: &str, outcome: &str) -> u64 {
        let status = self.status();
        let ports = status["ports"].as_array().expect("a list");
        let port = ports.iter().find(|it| it["nic"] == port).expect("a port");
        port["frames"][outcome].as_u64().expect("a number")
    }

    /// Has a node answer the measurements of others.
    fn serve(&self, node: usize) -> Process {
        let mut command = self.0.command(node, TSUMUGI).expect("it can be entered");
        command.args(["perf", "serve"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Process(command.spawn().expect("it starts"));
        // Who comes too early tries again; see `perf`.
        sleep(Duration::from_millis(300));
        server
    }

    /// Measures from a node; returns the rows.
    fn perf(&self, node: usize, line: &str) -> Vec<Value> {
        let out = self.node_runs(node, &format!("{TSUMUGI} perf {line} --rounds 1 --time 0.1 --json 2>&1"));
        let object =
            out.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{line}: {out}"));
        let report: Value = serde_json::from_str(object).expect("one JSON object");
        report["rows"].as_array().expect("a list").clone()
    }

    /// What is left of a switch, and in which bridge which port is. Programs go with what is pinned.
    fn traces(&self) -> String {
        self.box_runs(
            "ls -d /sys/fs/bpf/tsumugi 2>/dev/null; ip -o link | grep -o 'prog/xdp\\|n[0-9]*-nic0.* master [^ ]*' | \
             sed 's/@.* master / in /'; ip -o link show type bridge | cut -d: -f2; :",
        )
    }
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(mut shell: Command, line: &str) -> String {
    let output = shell.args(["-c", line]).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    out
}

#[test]
fn traffic_of_every_kind_passes() {
    for (hook, mtu) in [("tc", 1500), ("tc", 9000), ("generic", 9000), ("native", 1500)] {
        let Some(cluster) = Cluster::new("traffic_of_every_kind_passes", mtu) else { return };
        if hook == "native" {
            for node in 0..3 {
                cluster.node_runs(node, "/usr/sbin/ethtool -K nic0 tx off txvlan off gro on");
            }
        }
        let (_, err) = cluster.expect(&format!("up --hook {hook}"), 0);
        assert_eq!(err.contains("is a veth"), hook == "native", "{err}");
        for node in 0..3 {
            cluster.node_runs(
                node,
                &format!(
                    "echo 0 > /proc/sys/net/ipv6/conf/nic0/disable_ipv6; ip addr add fd77::{}/64 dev nic0 nodad",
                    node + 1
                ),
            );
        }
        // Ours tell of damage; TCP and IPv6 find their neighbours by ARP and by multicast.
        let _server = cluster.serve(1);
        for (from, line) in [
            (2, "latency n1 --transport udp --size 8,1K"),
            (0, "bandwidth n1 --transport tsumugi --size 1K,1M"),
            (2, "latency fd77::2 --transport tsumugi --size 8,1K"),
            (0, "bandwidth fd77::2 --transport tcp-block --size 1K,1M"),
        ] {
            assert_eq!(cluster.perf(from, line).len(), 2, "{hook} {mtu} {line}");
        }
        for port in PORTS {
            assert!(cluster.frames(port, "forwarded") > 0, "{hook} {mtu}: {}", cluster.status());
            assert_eq!(
                cluster.frames(port, "malformed") + cluster.frames(port, "storm"),
                0,
                "{}",
                cluster.status()
            );
        }
        // XDP leaves to the bridge what lies in several buffers, such as what TCP leaves to be cut up.
        let is_bridged = cluster.frames("n0-nic0", "bridged") > 0;
        assert_eq!(is_bridged, hook == "generic", "{hook} {mtu}: {}", cluster.status());
        let status = cluster.status();
        let addresses = status["addresses"].as_array().expect("a list").len();
        assert_eq!(addresses, 3, "each host is known once: {status}");
    }
}

#[test]
fn nodes_with_the_receive_path_are_reached_though_they_compute() {
    let Some(cluster) = Cluster::new("nodes_with_the_receive_path_are_reached_though_they_compute", 1500)
    else {
        return;
    };
    for node in 0..2 {
        cluster.node_runs(node, &format!("{TSUMUGI} up nic0 2>&1"));
    }
    let _server = cluster.serve(1);
    let rows = cluster.perf(0, "latency n1 --size 8,1K --receive xdp");
    assert_eq!(rows.len(), 2);
    assert!(cluster.frames("n0-nic0", "forwarded") > 0, "{}", cluster.status());
}

#[test]
fn a_box_from_up_to_down() {
    let Some(cluster) = Cluster::new("a_box_from_up_to_down", 1500) else { return };
    let status = cluster.status();
    assert_eq!(status["bridges"], json!([{ "name": "br0", "made": false }]));
    assert_eq!((&status["ageing_s"], &status["floods_per_s"]), (&json!(300), &json!(10000)));
    for (port, name) in status["ports"].as_array().expect("a list").iter().zip(PORTS) {
        assert_eq!((&port["nic"], &port["bridge"]), (&json!(name), &json!("br0")));
        assert_eq!((&port["hook"], &port["attached"]), (&json!("tc"), &json!(true)));
    }
    // Other settings, and one port less.
    let (out, err) = cluster.expect("up --ageing 60 --floods 50", 0);
    assert!(out.contains("after 60 s, 50 frames a second") && err.is_empty(), "{out}{err}");
    assert_eq!(cluster.expect("down n2-nic0", 0).1, "n2-nic0 is no port any more\n");
    let status = cluster.status();
    assert_eq!((&status["ageing_s"], status["ports"].as_array().map(Vec::len)), (&json!(60), Some(2)));
    // It is a port of the bridge as before, and reached by it.
    let _server = cluster.serve(2);
    assert_eq!(cluster.perf(0, "latency n2 --transport udp --size 8").len(), 1);
    cluster.expect("up n2-nic0", 0);
    assert_eq!(cluster.perf(0, "latency n2 --transport udp --size 8").len(), 1);
    assert!(cluster.frames("n2-nic0", "forwarded") > 0, "{}", cluster.status());
    let (out, _) = cluster.expect("down --json", 0);
    assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON"), json!({ "gone": PORTS }));
    assert_eq!(cluster.traces(), "n0-nic0 in br0\nn1-nic0 in br0\nn2-nic0 in br0\n br0\n");
    assert!(cluster.expect("status", 0).0.contains("There is no switch here"));
    assert_eq!(cluster.expect("down", 0), Default::default(), "there is nothing to do");
}

#[test]
fn a_bridge_is_made_and_goes_with_the_box() {
    let Some(cluster) = Cluster::new("a_bridge_is_made_and_goes_with_the_box", 1500) else { return };
    cluster.expect("down", 0);
    cluster.box_runs("ip link del br0; ip link set n1-nic0 down");
    let before = cluster.traces();
    assert_eq!(before, "");
    cluster.expect("up n0-nic0 n1-nic0", 0);
    let status = cluster.status();
    assert_eq!(status["bridges"], json!([{ "name": "tsumugi0", "made": true }]));
    // One more joins the same; and it is reached.
    cluster.expect("up n2-nic0", 0);
    assert_eq!(cluster.box_runs("ls /sys/class/net/tsumugi0/brif | wc -l"), "3\n");
    let _server = cluster.serve(1);
    assert_eq!(cluster.perf(0, "latency n1 --transport tcp-block --size 8").len(), 1);
    assert!(cluster.frames("n0-nic0", "forwarded") > 0, "{}", cluster.status());
    // This host itself is reached, and does not count as an unknown address.
    cluster.box_runs("ip addr add 10.77.0.200/24 dev tsumugi0");
    let mut host = cluster.0.switch_command(TSUMUGI).expect("it can be entered");
    let _host = Process(
        host.args(["perf", "serve"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"),
    );
    sleep(Duration::from_millis(300));
    assert_eq!(cluster.perf(0, "latency 10.77.0.200 --transport tcp-block --size 8").len(), 1);
    assert!(cluster.frames("n0-nic0", "local") > 0, "{}", cluster.status());
    cluster.expect("down n2-nic0", 0);
    assert_eq!(cluster.box_runs("ls /sys/class/net/tsumugi0/brif | wc -l"), "2\n");
    cluster.expect("down", 0);
    assert_eq!(cluster.traces(), before);
    assert_eq!(cluster.box_runs("ip -o link show n1-nic0 | grep -c 'state DOWN'"), "1\n", "as it was found");
}

#[test]
fn killed_at_any_moment_it_is_taken_away() {
    let Some(cluster) = Cluster::new("killed_at_any_moment_it_is_taken_away", 1500) else { return };
    cluster.expect("down", 0);
    cluster.box_runs("ip link del br0; ip link set n1-nic0 down");
    for moment in 0..16 {
        let mut up = cluster.0.switch_command(TSUMUGI).expect("it can be entered");
        up.arg("switch").arg("up").args(PORTS).stdout(Stdio::null()).stderr(Stdio::null());
        let up = Process(up.spawn().expect("it starts"));
        // Which moment it is does not matter, only that they differ.
        sleep(Duration::from_millis(4 * moment));
        drop(up);
        cluster.expect("down", 0);
        assert_eq!(cluster.traces(), "", "moment {moment}");
        assert_eq!(
            cluster.box_runs("ip -o link show n1-nic0 | grep -c 'state DOWN'"),
            "1\n",
            "moment {moment}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let Some(cluster) = Cluster::new("what_cannot_be_is_refused_and_leaves_nothing", 1500) else { return };
    let wrong_usage =
        ["", "up n0-nic0 --hook fast", "up n0-nic0 --ageing 1", "up n0-nic0 --floods 0", "status n0-nic0"];
    for line in wrong_usage {
        cluster.expect(line, 2);
    }
    // A box that is there goes on.
    let (_, err) = cluster.expect("up nic9", 1);
    assert!(err.contains("no NIC is called 'nic9'"), "{err}");
    assert_eq!(cluster.status()["ports"].as_array().map(Vec::len), Some(3));
    let (_, err) = cluster.expect("down n0-nic0 nic9", 1);
    assert!(err.contains("nic9 is no port of the switch"), "{err}");
    cluster.expect("down", 0);
    cluster.box_runs(
        "ip link set n2-nic0 nomaster; ip addr add 10.9.9.9/24 dev n2-nic0; ip link add br1 type bridge stp_state 1",
    );
    let before = cluster.traces();
    for (line, reason) in [
        ("up", "name those that are to be its ports"),
        ("up lo", "carries no Ethernet frames"),
        ("up n0-nic0 n2-nic0", "n2-nic0 has the address 10.9.9.9"),
        ("up n0-nic0 --bridge br9", "n0-nic0 is a port of br0 already"),
        ("up n2-nic0 --bridge br1", "br1 is set to 'stp_state 1'"),
        ("up n2-nic0 --bridge n1-nic0", "n1-nic0 is there and is no bridge"),
        ("down n0-nic0", "n0-nic0 is no port of the switch"),
    ] {
        let (out, err) = cluster.expect(line, 1);
        assert!(out.is_empty() && err.contains(reason), "{line}: {out}{err}");
        assert_eq!(cluster.traces(), before, "{line}");
    }
    // Somebody else's program, ours of the receive path; and the other way round.
    cluster.box_runs(&format!("{TSUMUGI} up n1-nic0 --endpoints 1 --xdp generic 2>&1"));
    let (_, err) = cluster.expect("up n0-nic0 n1-nic0 --hook generic", 1);
    assert!(
        err.contains("n1-nic0 has another XDP program") && err.contains("`tsumugi down n1-nic0`"),
        "{err}"
    );
    assert_eq!(cluster.status()["ports"], json!([]));
    cluster.box_runs(&format!("{TSUMUGI} down 2>&1"));
    cluster.expect("up n0-nic0 --hook generic", 0);
    let refused = cluster.box_runs(&format!("{TSUMUGI} up n0-nic0 2>&1 || :"));
    assert!(refused.contains("`tsumugi switch down n0-nic0`"), "{refused}");
    cluster.expect("down", 0);
    assert_eq!(cluster.traces(), before);
}

#[test]
fn a_host_that_moves_is_found_and_storms_are_held() {
    let Some(cluster) = Cluster::new("a_host_that_moves_is_found_and_storms_are_held", 1500) else { return };
    {
        let _server = cluster.serve(1);
        assert_eq!(cluster.perf(0, "latency n1 --transport udp --size 8").len(), 1);
    }
    // Another host has its addresses from now on, as a virtual machine that moves.
    let mac = cluster.node_runs(1, "cat /sys/class/net/nic0/address");
    cluster.node_runs(1, "ip link set nic0 down");
    cluster.node_runs(
        2,
        &format!("ip link set nic0 down; ip link set nic0 address {}; ip addr flush dev nic0", mac.trim()),
    );
    cluster.node_runs(2, "ip addr add 10.77.0.2/24 dev nic0; ip link set nic0 up");
    cluster.box_runs("until ip -o link show n2-nic0 | grep -q 'state UP'; do sleep 0.05; done");
    {
        let _server = cluster.serve(2);
        // It has not said a word yet, so what is sent to it goes where it was; its own first frame mends that.
        cluster.node_runs(2, "bash -c 'echo > /dev/udp/10.77.0.1/9'");
        assert_eq!(cluster.perf(0, "latency 10.77.0.2 --transport udp --size 8").len(), 1);
    }
    let status = cluster.status();
    let addresses = status["addresses"].as_array().expect("a list");
    let moved = addresses.iter().find(|it| it["address"] == mac.trim()).expect("it is known");
    assert_eq!(moved["nic"], "n2-nic0", "{status}");

    cluster.expect("up --floods 100", 0);
    cluster.node_runs(
        0,
        "ip neigh add 10.77.0.99 lladdr 02:00:00:00:00:99 dev nic0; bash -c 'for i in $(seq 3000); do echo > \
         /dev/udp/10.77.0.99/9; done'",
    );
    let (flooded, held) = (cluster.frames("n0-nic0", "flooded"), cluster.frames("n0-nic0", "storm"));
    assert!(held > 100 && flooded >= 100 && flooded + held >= 3000, "{flooded} flooded, {held} held");
    let _server = cluster.serve(2);
    assert_eq!(cluster.perf(0, "latency 10.77.0.2 --transport udp --size 8").len(), 1);
}
