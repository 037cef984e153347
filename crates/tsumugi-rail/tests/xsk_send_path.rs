//! The `xsk` send path between two nodes. Needs root.

mod nodes;

use nodes::pair::Pair;
use nodes::{NIC, Nodes, eventually, four, six};
use std::net::SocketAddr;
use tsumugi_rail::xdp::Mode;
use tsumugi_rail::xsk::{Redirect, XskCounters, XskError, XskSendPath, XskSendPathError};
use tsumugi_rail::{Packet, SendPath};

/// Room in the ring.
const FRAMES: u32 = 64;

fn index() -> u32 {
    tsumugi_rail::nics::index_of(NIC).expect("a NIC")
}

fn send_path(local: SocketAddr) -> Result<XskSendPath, XskSendPathError> {
    XskSendPath::open(local, index(), 0, FRAMES)
}

/// `wildcard`: the send path is not told its own address.
fn open(nodes: &Nodes, ipv4: bool, wildcard: bool) -> Pair<'_, XskSendPath> {
    Pair::open(nodes, ipv4, wildcard, |local| send_path(local).unwrap())
}

/// Alone, and beside an XDP program on either NIC, which must make no difference.
#[test]
fn packets_reach_an_ordinary_socket_whole_and_from_the_right_address() {
    let test = "packets_reach_an_ordinary_socket_whole_and_from_the_right_address";
    let Some(nodes) = Nodes::up(test) else { return };
    for mode in [None, Some(Mode::Native), Some(Mode::Generic)] {
        if mode.is_some() && !Redirect::IS_COMPILED {
            assert!(std::env::var_os("CI").is_none(), "CI compiles the redirect program");
            eprintln!("SKIPPED: {test}, in part: this build has no program to attach");
            continue;
        }
        let attach = |node| mode.map(|mode| nodes.inside(node, || Redirect::attach(index(), mode).unwrap()));
        let _programs = [0, 1].map(attach);
        for (ipv4, longest) in [(true, 1472), (false, 1452)] {
            let mut pair = open(&nodes, ipv4, mode.is_none());
            pair.reach();
            let before = pair.send_path.counters().sent;
            for size in [0, 1, 2, 3, 63, 64, 65, 100, longest - 1, longest] {
                pair.pass(&[size]);
            }
            // More than the ring holds: it goes in several kicks.
            pair.pass(&[longest; 3 * FRAMES as usize]);
            pair.pass(&(0..150).map(|n| n * 7 + 1).collect::<Vec<usize>>());
            let XskCounters { sent, full, stalled, too_long, .. } = pair.send_path.counters();
            assert_eq!((sent - before, full, stalled, too_long), (10 + 3 * 64 + 150, 0, 0, 0));
        }
    }
}

#[test]
fn long_packets_lie_in_several_chunks() {
    let Some(nodes) = Nodes::up_with_mtu("long_packets_lie_in_several_chunks", 9000) else { return };
    for (ipv4, headers) in [(true, 28), (false, 48)] {
        let mut pair = open(&nodes, ipv4, true);
        pair.reach();
        pair.pass(&[4096 - 14 - headers, 4097 - 14 - headers, 8192 - 14 - headers, 8193 - 14 - headers]);
        pair.pass(&[9000 - headers; 100]);
    }
}

#[test]
fn the_mtu_is_respected() {
    let Some(nodes) = Nodes::up("the_mtu_is_respected") else { return };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let before = pair.send_path.counters();
    let long = vec![7; 1473];
    let burst = [&long[1..], &long, &long, &long[2..], &long].map(|body| Packet { head: &[], body });
    assert_eq!(pair.send(&burst), Some(5));
    let left = pair.send_path.send(pair.now, pair.to, &burst[1..2]).unwrap();
    assert_eq!(left, None, "the sockets know more of it");
    let after = pair.send_path.counters();
    assert_eq!((after.too_long - before.too_long, after.sent - before.sent), (4, 2));
    for body in [&long[1..], &long[2..]] {
        assert_eq!(pair.receive(&mut [0; 2000]).0, body.len());
    }
    // Longer packets fit the NIC now, but not the socket.
    for node in [1, 0] {
        nodes.shell(node, &format!("ip link set {NIC} mtu 9000"));
    }
    pair.reach();
    let burst = [&long[1..], &long, &long[1..]].map(|body| Packet { head: &[], body });
    assert_eq!(pair.send(&burst), Some(1), "up to the long one");
    assert_eq!(pair.send(&burst[1..]), None, "the long one is for the socket");
    assert_eq!(pair.send(&burst[2..]), Some(1));
}

#[test]
fn whoever_is_not_connected_or_not_behind_the_nic_is_left_to_the_socket() {
    let Some(nodes) = Nodes::up("whoever_is_not_connected_or_not_behind_the_nic_is_left_to_the_socket")
    else {
        return;
    };
    nodes.shell(
        0,
        "ip link set lo up && ip link add other type veth peer name far && ip addr add 10.78.0.1/24 dev other && \
         ip link set far up && ip link set other up && \
         ip neigh add 10.78.0.2 dev other lladdr 02:00:00:00:00:99 nud permanent",
    );
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let packet = Packet { head: b"head", body: b"body" };
    let other = "10.78.0.2:9".parse().unwrap();
    for peer in [four(0, 9), "127.0.0.1:9".parse().unwrap(), six(1, 9), other] {
        pair.send_path.connect(peer, None);
        let left = pair.send_path.counters().left;
        assert_eq!(pair.send_path.send(pair.now, peer, &[packet; 3]).unwrap(), None, "{peer}");
        assert_eq!(pair.send_path.counters().left, left + 3);
    }
    assert_eq!(pair.send_path.send(pair.now, four(1, 9), &[packet]).unwrap(), None, "not connected");
    assert_eq!(pair.send(&[packet]), Some(1));
    assert_eq!(pair.send(&[]), Some(0));
    pair.send_path.disconnect(pair.to);
    assert_eq!(pair.send(&[packet]), None, "disconnected");
}

#[test]
fn a_nic_that_is_down_fills_the_ring_and_then_the_socket_sends() {
    let test = "a_nic_that_is_down_fills_the_ring_and_then_the_socket_sends";
    let Some(nodes) = Nodes::up(test) else { return };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    // Later than the question for the route, so that it may be asked again.
    pair.pass(&[100]);
    nodes.shell(0, &format!("ip link set {NIC} down"));
    // At the same time as before: the news of it has not been looked for yet.
    let packet = Packet { head: b"reach", body: b"!" };
    assert_eq!(pair.send_path.send(pair.now, pair.to, &[packet; 100]).unwrap(), Some(64), "what has room");
    let XskCounters { full, stalled, .. } = pair.send_path.counters();
    assert_eq!((full, stalled), (1, 1));
    assert_eq!(pair.send_path.send(pair.now, pair.to, &[packet]).unwrap(), None, "a stall raises doubt");
    nodes.shell(0, &format!("ip link set {NIC} up"));
    pair.reach();
    pair.pass(&[100; 100]);
}

#[test]
fn a_nic_that_is_gone_leaves_everything_to_the_socket() {
    let Some(nodes) = Nodes::up("a_nic_that_is_gone_leaves_everything_to_the_socket") else { return };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let before = nodes.inside(0, index);
    let namespace = nodes.namespace(1);
    // A new pair of NICs inside node 0, with the same index; the far one moves to node 1 through its namespace.
    nodes.shell(0, &format!("ip link del {NIC}"));
    let packet = Packet { head: b"reach", body: b"!" };
    assert_eq!(pair.send_path.send(pair.now, pair.to, &[packet]).unwrap(), Some(1), "lost, like any packet");
    nodes.shell(
        0,
        &format!(
            "ip link add {NIC} index {before} type veth peer name {NIC} index 60 netns {namespace} && \
             ip addr add 10.77.0.1/24 dev {NIC} && ip link set {NIC} up",
        ),
    );
    nodes.shell(1, &format!("ip addr add 10.77.0.2/24 dev {NIC} && ip link set {NIC} up"));
    for _ in 0..10 {
        assert_eq!(pair.send(&[packet]), None, "this socket is not bound any more");
    }
    eventually("a packet through the socket", || pair.peer.recv(&mut [0; 100]).ok());
    // Another send path finds the new NIC.
    drop(pair);
    let mut pair = open(&nodes, true, true);
    pair.reach();
}

#[test]
fn a_queue_has_one_send_path() {
    let Some(nodes) = Nodes::up("a_queue_has_one_send_path") else { return };
    let _pair = open(&nodes, true, true);
    let error = nodes.inside(0, || send_path(four(0, 7000))).unwrap_err();
    assert!(matches!(error, XskSendPathError::Socket(XskError::Busy { queue: 0, .. })), "{error}");
    let error = nodes.inside(0, || XskSendPath::open(four(0, 7000), 4000, 0, FRAMES)).unwrap_err();
    assert!(matches!(error, XskSendPathError::Nic { nic: 4000, .. }), "{error}");
}
