//! Labs of real namespaces: what is promised about them while they stand.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{assert_gone, role, shell};
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, LabError, Spec, Wire, down};

const PORT: u16 = 4711;
const PAYLOAD_BYTES: usize = 1 << 20;

/// Accepts one connection and counts what comes.
#[test]
#[ignore = "a role that other tests play in a node"]
fn receive() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("the port is free");
    println!("listening");
    let (mut stream, _) = listener.accept().expect("somebody connects");
    let begun = Instant::now();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the stream ends");
    println!("received {} {}", all.len(), begun.elapsed().as_millis());
}

/// Connects by name and sends.
#[test]
#[ignore = "a role that other tests play in a node"]
fn send() {
    let host = std::env::var("SEND_TO").expect("a host is given");
    let mut stream = TcpStream::connect((host.as_str(), PORT)).expect("the host listens");
    stream.write_all(&vec![7; PAYLOAD_BYTES]).expect("the stream takes it");
}

/// Sends datagrams by name; whoever does not know the host's address yet loses some.
#[test]
#[ignore = "a role that other tests play in a node"]
fn scatter() {
    let host = std::env::var("SEND_TO").expect("a host is given");
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    for _ in 0..20 {
        for _ in 0..100 {
            // A datagram before may be told to have been refused.
            let _ = socket.send_to(&[7], (host.as_str(), PORT));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Sends a mebibyte from one node to another, by name; returns how long receiving it took.
fn transfer(lab: &Lab, from: usize, to: usize, host: &str) -> Duration {
    let mut receiver = role(Some((lab, to)), "receive", &[]).spawn().expect("the receiver starts");
    let mut lines = BufReader::new(receiver.stdout.take().expect("its output is ours")).lines();
    let mut await_line = |start: &str| {
        let found = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("the receiver ended without '{start}'"))
    };
    await_line("listening");
    let sent = role(Some((lab, from)), "send", &[("SEND_TO", host.to_owned())]).output();
    let sent = sent.expect("the sender starts");
    assert!(sent.status.success(), "{from} to {host}: {}", String::from_utf8_lossy(&sent.stdout));
    let report = await_line("received");
    let mut numbers = report.split(' ').skip(1).map(|number| number.parse::<u64>().expect("a number"));
    assert_eq!(numbers.next(), Some(PAYLOAD_BYTES as u64));
    assert!(receiver.wait().expect("it ends").success());
    Duration::from_millis(numbers.next().expect("the time"))
}

#[test]
fn nodes_are_machines_of_their_own() {
    let Some(_watched) = as_root("nodes_are_machines_of_their_own", None) else { return };
    let spec = Spec { nics: 2, mtu: 3500, ..Spec::unique("own") };
    let lab = Lab::up(&spec).expect("the lab is made").guarded();
    assert_eq!(lab.wire(), Wire::Direct);
    let outside = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("we have a name");
    for node in 0..2 {
        assert_eq!(shell(&lab, node, "hostname"), format!("n{node}"), "kept between two commands");
        assert_eq!(shell(&lab, node, "cat /sys/class/net/nic1/mtu"), "3500");
        assert_eq!(shell(&lab, node, "ls /sys/class/net"), "lo\nnic0\nnic1");
        assert_eq!(shell(&lab, node, "getent ahostsv4 n1 | head -1 | cut -d' ' -f1"), "10.77.0.2");
        assert_eq!(shell(&lab, node, "getent ahostsv4 n0-nic1 | head -1 | cut -d' ' -f1"), "10.77.1.1");
        assert_eq!(shell(&lab, node, "cat /proc/sys/net/ipv6/conf/nic0/disable_ipv6"), "1");
        assert_eq!(shell(&lab, node, "echo $TSUMUGI_LAB $TSUMUGI_NODE"), format!("{} n{node}", lab.name()));
    }
    shell(&lab, 0, "touch /dev/shm/here");
    assert_eq!(shell(&lab, 1, "ls /dev/shm"), "", "shared memory of one node shows in another");
    assert_eq!(shell(&lab, 0, "ls /dev/shm"), "here", "shared memory is gone with the process");
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/hostname").ok(), Some(outside));
    let hosts = std::fs::read_to_string(lab.host_file()).expect("there is a host file");
    assert_eq!(hosts, "n0 10.77.0.1 10.77.1.1\nn1 10.77.0.2 10.77.1.2\n");
    transfer(&lab, 0, 1, "n1");
    transfer(&lab, 1, 0, "n0-nic1");
    let name = lab.name().to_owned();
    drop(lab);
    assert_gone(&name, "after the guard was dropped");
}

#[test]
fn every_wire_joins_every_pair() {
    let Some(_watched) = as_root("every_wire_joins_every_pair", None) else { return };
    let with_program = tsumugi_rail::xdp::IS_COMPILED.then_some(Wire::XdpSwitch);
    for wire in [Wire::Switch, Wire::Router].into_iter().chain(with_program) {
        let spec = Spec { nodes: 3, nics: 2, wire: Some(wire), ..Spec::unique("pairs") };
        let lab = Lab::up(&spec).expect("the lab is made").guarded();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            transfer(&lab, from, to, &format!("n{to}"));
            transfer(&lab, from, to, &format!("n{to}-nic1"));
        }
    }
}

#[test]
fn rate_and_offloads_are_kept() {
    let Some(_watched) = as_root("rate_and_offloads_are_kept", None) else { return };
    let rate = Some("20mbit".parse().expect("a rate"));
    let lab =
        Lab::up(&Spec { rate, offloads: false, ..Spec::unique("rate") }).expect("the lab is made").guarded();
    assert_eq!(lab.wire(), Wire::Switch);
    // 8.4 Mbit need 420 ms; only a lower bound, because a busy machine may take any time.
    let took = transfer(&lab, 0, 1, "n1");
    assert!(took >= Duration::from_millis(350), "8.4 Mbit passed 20 Mb/s in {took:?}");
    let switch = format!("tsu-{}-switch", lab.name());
    let port = Command::new("ip").args(["netns", "exec", &switch, "ethtool", "-k", "n0-nic0"]).output();
    let port = String::from_utf8(port.expect("ethtool runs").stdout).expect("text");
    for features in [shell(&lab, 0, "/usr/sbin/ethtool -k nic0"), port] {
        for feature in ["tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"] {
            assert!(features.contains(&format!("{feature}: off")), "{feature} is on:\n{features}");
        }
        assert!(!features.contains("tx-udp-segmentation: on"), "{features}");
    }
}

#[test]
fn a_share_of_the_packets_is_lost() {
    let Some(_watched) = as_root("a_share_of_the_packets_is_lost", None) else { return };
    let loss = Some("30%".parse().expect("a share"));
    let lab = Lab::up(&Spec { loss, ..Spec::unique("loss") }).expect("the lab is made").guarded();
    let switch = format!("tsu-{}-switch", lab.name());
    let counted = |port: &str, what: &str| -> u64 {
        let file = format!("/sys/class/net/{port}/statistics/{what}");
        let output = Command::new("ip").args(["netns", "exec", &switch, "cat", &file]).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text").trim().parse().expect("a number")
    };
    // Nobody listens: what the switch lets pass counts.
    let sent = role(Some((&lab, 0)), "scatter", &[("SEND_TO", "n1".to_owned())]).output().expect("it starts");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stdout));
    let (came, went) = (counted("n0-nic0", "rx_packets"), counted("n1-nic0", "tx_packets"));
    // 700 in 1000; twenty standard deviations each way.
    assert!(came >= 1000 && (0.5..0.9).contains(&(went as f64 / came as f64)), "{went} of {came} passed");
}

#[test]
fn labs_do_not_see_each_other() {
    let Some(_watched) = as_root("labs_do_not_see_each_other", None) else { return };
    let one = Lab::up(&Spec::unique("one")).expect("the first is made").guarded();
    let two = Lab::up(&Spec::unique("two")).expect("the second is made").guarded();
    let mut receiver = role(Some((&one, 1)), "receive", &[]).spawn().expect("the receiver starts");
    let mut line = String::new();
    let mut output = BufReader::new(receiver.stdout.take().expect("its output is ours"));
    while !line.contains("listening") {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("it speaks"), 0, "the receiver ended");
    }
    let stray = role(Some((&two, 0)), "send", &[("SEND_TO", "n1".into())]).output().expect("it starts");
    assert!(!stray.status.success(), "a node reached another lab");
    let gone = two.name().to_owned();
    drop(two);
    assert_gone(&gone, "after down");
    let sent = role(Some((&one, 0)), "send", &[("SEND_TO", "n1".into())]).output().expect("it starts");
    assert!(sent.status.success(), "removing a lab harmed another one");
    assert!(receiver.wait().expect("it ends").success());
}

#[test]
fn a_name_is_given_once() {
    let Some(_watched) = as_root("a_name_is_given_once", None) else { return };
    let spec = Spec::unique("twice");
    let lab = Lab::up(&spec).expect("the lab is made").guarded();
    let again = Lab::up(&spec).expect_err("made twice");
    assert!(matches!(&again, LabError::Exists { half_made: false, .. }), "{again}");
    assert!(again.to_string().contains("tsumugi lab down --name"), "{again}");
    assert_eq!(shell(&lab, 1, "hostname"), "n1", "the second attempt harmed the first lab");
    assert!(matches!(lab.command(2, "true"), Err(LabError::NoNode { .. })));
    assert_eq!(lab.find_node("10.77.0.2").ok(), Some(1));
    assert_eq!(lab.find_node("n1-nic0").ok(), Some(1));
    assert!(matches!(lab.find_node("n1-nic1"), Err(LabError::NoNode { .. })));
}

#[test]
fn down_ends_what_runs_inside_and_nothing_else() {
    let Some(_watched) = as_root("down_ends_what_runs_inside_and_nothing_else", None) else { return };
    let lab = Lab::up(&Spec::unique("ends")).expect("the lab is made");
    let name = lab.name().to_owned();
    let start = |mut command: Command, line: &str| {
        let mut child = command.args(["-c", line]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut ready = [0; 2];
        child.stdout.take().expect("its output is ours").read_exact(&mut ready).expect("it says so");
        child
    };
    let mut polite = start(lab.command(0, "/bin/sh").expect("enters"), "echo y; exec sleep 1000");
    let mut deaf =
        start(lab.command(1, "/bin/sh").expect("enters"), "trap '' TERM; echo y; sleep 999; sleep 999");
    let mut stranger = start(Command::new("/bin/sh"), "echo y; exec sleep 1000");
    // SIGTERM ends the sleep of the deaf shell, which then starts the next one, under SIGKILL's eyes.
    assert_eq!(lab.processes(0).len(), 1);
    let removed = lab.down().expect("the lab is removed");
    assert!(removed.processes >= 3, "{removed:?}");
    assert_eq!(removed.namespaces, 2);
    assert_eq!(polite.wait().expect("it ended").signal(), Some(15));
    assert_eq!(deaf.wait().expect("it ended").signal(), Some(9));
    assert!(stranger.try_wait().expect("it can be asked").is_none(), "a process outside was ended");
    stranger.kill().expect("it runs");
    stranger.wait().expect("it ended");
    assert_gone(&name, "after down with processes");
    assert!(matches!(down(&name), Err(LabError::NotFound { .. })));
}
