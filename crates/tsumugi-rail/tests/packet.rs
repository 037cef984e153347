//! The `packet` engine between two nodes. Needs root.

mod nodes;

use nodes::pair::Pair;
use nodes::{NIC, Nodes, four, six};
use tsumugi_rail::packet::PacketCounters;
use tsumugi_rail::{Engine, Packet, PacketEngine, PacketError};

const QUEUE_BYTES: u32 = 1 << 20;

/// `wildcard`: the engine is not told its own address.
fn open(nodes: &Nodes, ipv4: bool, wildcard: bool) -> Pair<'_, PacketEngine> {
    Pair::open(nodes, ipv4, wildcard, |local| PacketEngine::open(local, QUEUE_BYTES).unwrap())
}

#[test]
fn packets_reach_an_ordinary_socket_whole_and_from_the_right_address() {
    let test = "packets_reach_an_ordinary_socket_whole_and_from_the_right_address";
    let Some(nodes) = Nodes::up(test) else { return };
    for (ipv4, longest) in [(true, 1472), (false, 1452)] {
        for wildcard in [true, false] {
            let mut pair = open(&nodes, ipv4, wildcard);
            pair.reach();
            let before = pair.engine.counters().sent;
            for size in [0, 1, 2, 3, 63, 64, 65, 100, longest - 1, longest] {
                pair.pass(&[size]);
            }
            pair.pass(&[longest; 64]);
            pair.pass(&(0..150).map(|n| n * 7 + 1).collect::<Vec<usize>>());
            let PacketCounters { sent, full, lost, .. } = pair.engine.counters();
            assert_eq!((sent - before, full, lost), (10 + 64 + 150, 0, 0));
        }
    }
}

#[test]
fn the_mtu_is_respected() {
    let Some(nodes) = Nodes::up("the_mtu_is_respected") else { return };
    for (ipv4, headers) in [(true, 28), (false, 48)] {
        for node in 0..2 {
            nodes.shell(node, &format!("ip link set {NIC} mtu 1500"));
        }
        let mut pair = open(&nodes, ipv4, true);
        pair.reach();
        let before = pair.engine.counters();
        let long = vec![7; 1501 - headers];
        let burst = [&long[1..], &long, &long, &long[2..], &long].map(|body| Packet { head: &[], body });
        assert_eq!(pair.send(&burst), Some(5));
        assert_eq!(pair.send(&burst[1..2]), Some(1));
        let after = pair.engine.counters();
        assert_eq!((after.too_long - before.too_long, after.lost - before.lost), (4, 4));
        assert_eq!(after.sent - before.sent, 2);
        for body in [&long[1..], &long[2..]] {
            let mut buffer = vec![0; 2000];
            assert_eq!(pair.receive(&mut buffer).0, body.len());
        }
        for node in [1, 0] {
            nodes.shell(node, &format!("ip link set {NIC} mtu 9000"));
        }
        pair.pass(&[1501 - headers]);
        pair.pass(&[9000 - headers; 40]);
    }
}

#[test]
fn whoever_is_not_met_or_not_behind_a_nic_is_left_to_the_socket() {
    let Some(nodes) = Nodes::up("whoever_is_not_met_or_not_behind_a_nic_is_left_to_the_socket") else {
        return;
    };
    nodes.shell(0, "ip link set lo up");
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let packet = Packet { head: b"head", body: b"body" };
    for peer in [four(0, 9), "127.0.0.1:9".parse().unwrap(), "224.0.0.1:9".parse().unwrap(), six(1, 9)] {
        pair.engine.meet(peer);
        let left = pair.engine.counters().left;
        assert_eq!(pair.engine.send(pair.now, peer, &[packet; 3]).unwrap(), None);
        assert_eq!(pair.engine.counters().left, left + 3);
    }
    assert_eq!(pair.engine.send(pair.now, four(1, 9), &[packet]).unwrap(), None, "not met");
    assert_eq!(pair.send(&[packet]), Some(1));
    pair.engine.part(pair.to);
    assert_eq!(pair.send(&[packet]), None, "parted");
}

#[test]
fn a_peer_that_changes_its_hardware_address_is_found_again() {
    let Some(nodes) = Nodes::up("a_peer_that_changes_its_hardware_address_is_found_again") else { return };
    for (ipv4, mac) in [(true, "02:00:00:00:00:41"), (false, "02:00:00:00:00:42")] {
        let mut pair = open(&nodes, ipv4, true);
        pair.reach();
        nodes.shell(1, &format!("ip link set {NIC} address {mac}"));
        // Its own cache is empty now: to speak, it must ask for us, and our kernel learns from the question.
        pair.peer.send_to(b"still here", pair.beside.local_addr().unwrap()).unwrap();
        pair.beside.recv(&mut [0; 100]).unwrap();
        pair.reach();
        pair.pass(&[100; 10]);
    }
}

#[test]
fn nics_go_down_and_come_back() {
    let Some(nodes) = Nodes::up("nics_go_down_and_come_back") else { return };
    for ipv4 in [true, false] {
        let mut pair = open(&nodes, ipv4, true);
        let packet = Packet { head: b"reach", body: b"!" };

        // The other end goes down and takes the carrier. That looks like a full queue, which makes the engine ask
        // what is the matter: at once, unless it has just asked because of something else.
        let asked = (0..5).any(|_| {
            pair.reach();
            assert_eq!(pair.send(&[packet]), Some(1));
            nodes.shell(1, &format!("ip link set {NIC} down"));
            let before = pair.engine.counters();
            assert_eq!(pair.engine.send(pair.now, pair.to, &[packet; 3]).unwrap(), Some(0));
            assert_eq!(pair.engine.counters().full, before.full + 1);
            let second = pair.engine.send(pair.now, pair.to, &[packet]).unwrap();
            assert_eq!(pair.send(&[packet]), None, "without a carrier it is the socket's");
            nodes.shell(1, &format!("ip link set {NIC} up"));
            second.is_none()
        });
        assert!(asked);
        pair.reach();
        pair.pass(&[100; 10]);

        // Our own goes down, and with it the route.
        nodes.shell(0, &format!("ip link set {NIC} down"));
        let before = pair.engine.counters();
        assert_eq!(pair.engine.send(pair.now, pair.to, &[packet; 3]).unwrap(), Some(3));
        let after = pair.engine.counters();
        assert_eq!((after.lost - before.lost, after.unreachable - before.unreachable), (3, 3));
        assert_eq!(pair.send(&[packet]), None);
        nodes.shell(0, &format!("ip link set {NIC} up"));
        pair.reach();
        pair.pass(&[100; 10]);
    }
}

#[test]
fn a_nic_that_is_replaced_is_found_under_its_new_index() {
    let Some(nodes) = Nodes::up("a_nic_that_is_replaced_is_found_under_its_new_index") else { return };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let index = || pair.nodes.shell(0, &format!("cat /sys/class/net/{NIC}/ifindex"));
    let before = index();
    // A new pair of NICs inside node 0; the far one moves to node 1 through its namespace.
    let namespace = nodes.namespace(1);
    nodes.shell(
        0,
        &format!(
            "ip link del {NIC} && ip link add {NIC} index 50 type veth peer name {NIC} index 60 netns {namespace} && \
             ip addr add 10.77.0.1/24 dev {NIC} && ip link set {NIC} up",
        ),
    );
    nodes.shell(1, &format!("ip addr add 10.77.0.2/24 dev {NIC} && ip link set {NIC} up"));
    assert_ne!(index(), before);
    pair.reach();
    pair.pass(&[100; 10]);
}

#[test]
fn without_the_privilege_the_error_names_it() {
    let Some(nodes) = Nodes::up("without_the_privilege_the_error_names_it") else { return };
    let opened = nodes.inside(0, || {
        // SAFETY: no memory is passed. The bare system call changes this thread alone, which ends with the closure.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        PacketEngine::open(four(0, 7000), QUEUE_BYTES)
    });
    let error = opened.unwrap_err();
    assert!(matches!(error, PacketError::Forbidden), "{error}");
    assert!(error.to_string().contains("cap_net_raw"), "{error}");
}
