//! The `packet` send path between two nodes. Needs root.

mod nodes;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nodes::pair::{Pair, bodies, packets};
use nodes::{NIC, Nodes, eventually, four, six};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use std::os::fd::OwnedFd;
use tsumugi_rail::packet::PacketCounters;
use tsumugi_rail::{Packet, PacketError, PacketSendPath, SendPath};

const QUEUE_BYTES: u32 = 1 << 20;

/// `wildcard`: the send path is not told its own address.
fn open(nodes: &Nodes, ipv4: bool, wildcard: bool) -> Pair<'_, PacketSendPath> {
    Pair::open(nodes, ipv4, wildcard, |local| PacketSendPath::open(local, QUEUE_BYTES).unwrap())
}

/// Switches what NICs do for the stack on or off, in both nodes.
fn offloads(nodes: &Nodes, on: bool) {
    let word = if on { "on" } else { "off" };
    for node in 0..2 {
        nodes.shell(node, &format!("ethtool -K {NIC} tx {word} sg {word} tso {word} gso {word} gro {word}"));
    }
}

#[test]
fn packets_reach_an_ordinary_socket_whole_and_from_the_right_address() {
    let test = "packets_reach_an_ordinary_socket_whole_and_from_the_right_address";
    let Some(nodes) = Nodes::up(test) else { return };
    for (ipv4, longest) in [(true, 1472), (false, 1452)] {
        for wildcard in [true, false] {
            let mut pair = open(&nodes, ipv4, wildcard);
            pair.reach();
            let before = pair.send_path.counters().sent;
            for size in [0, 1, 2, 3, 63, 64, 65, 100, longest - 1, longest] {
                pair.pass(&[size]);
            }
            pair.pass(&[longest; 64]);
            pair.pass(&(0..150).map(|n| n * 7 + 1).collect::<Vec<usize>>());
            let PacketCounters { sent, full, lost, .. } = pair.send_path.counters();
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
        let before = pair.send_path.counters();
        let long = vec![7; 1501 - headers];
        let burst = [&long[1..], &long, &long, &long[2..], &long].map(|body| Packet { head: &[], body });
        assert_eq!(pair.send(&burst), Some(5));
        let left = pair.send_path.send(pair.now, pair.to, &burst[1..2]).unwrap();
        assert_eq!(left, None, "the sockets know more of it");
        let after = pair.send_path.counters();
        assert_eq!((after.too_long - before.too_long, after.lost - before.lost), (4, 3));
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
fn whoever_is_not_connected_or_not_behind_a_nic_is_left_to_the_socket() {
    let Some(nodes) = Nodes::up("whoever_is_not_connected_or_not_behind_a_nic_is_left_to_the_socket") else {
        return;
    };
    nodes.shell(0, "ip link set lo up");
    let mut pair = open(&nodes, true, true);
    pair.reach();
    let packet = Packet { head: b"head", body: b"body" };
    for peer in [four(0, 9), "127.0.0.1:9".parse().unwrap(), "224.0.0.1:9".parse().unwrap(), six(1, 9)] {
        pair.send_path.connect(peer, None);
        let left = pair.send_path.counters().left;
        assert_eq!(pair.send_path.send(pair.now, peer, &[packet; 3]).unwrap(), None);
        assert_eq!(pair.send_path.counters().left, left + 3);
    }
    assert_eq!(pair.send_path.send(pair.now, four(1, 9), &[packet]).unwrap(), None, "not connected");
    assert_eq!(pair.send(&[packet]), Some(1));
    pair.send_path.disconnect(pair.to);
    assert_eq!(pair.send(&[packet]), None, "disconnected");
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
        let different = [&b"!"[..], b"!!", b"!!!"].map(|body| Packet { head: b"reach", body });

        // The other end goes down and takes the carrier. That looks like a full queue, which makes the send path ask
        // what is the matter: at once, unless it has just asked because of something else. A moment later the kernel takes the
        // queue away, too, and what is sent vanishes: on a busy machine that may be over before we come to it.
        let asked = (0..20).any(|_| {
            pair.reach();
            assert_eq!(pair.send(&[packet]), Some(1));
            nodes.shell(1, &format!("ip link set {NIC} down"));
            let before = pair.send_path.counters();
            let looks_full = match pair.send_path.send(pair.now, pair.to, &different).unwrap() {
                Some(0) => {
                    assert_eq!(pair.send_path.counters().full, before.full + 1);
                    true
                }
                _ => false,
            };
            let second = pair.send_path.send(pair.now, pair.to, &[packet]).unwrap();
            if looks_full {
                assert_eq!(pair.send(&[packet]), None, "without a carrier it is the socket's");
            }
            nodes.shell(1, &format!("ip link set {NIC} up"));
            looks_full && second.is_none()
        });
        assert!(asked);
        pair.reach();
        pair.pass(&[100; 10]);

        // Of a run, the queueing discipline makes nothing, without a word, unless we come before it knows: then the carrier
        // is missed. The news comes either way.
        nodes.shell(1, &format!("ip link set {NIC} down"));
        eventually("the news that the carrier is lost", || match pair.send(&[packet; 3]) {
            None => Some(()),
            Some(0 | 3) => None,
            taken => panic!("{taken:?} of a run of three"),
        });
        nodes.shell(1, &format!("ip link set {NIC} up"));
        pair.reach();
        pair.pass(&[100; 10]);

        // Our own goes down, and with it the route.
        nodes.shell(0, &format!("ip link set {NIC} down"));
        let before = pair.send_path.counters();
        assert_eq!(pair.send_path.send(pair.now, pair.to, &[packet; 3]).unwrap(), Some(3));
        let after = pair.send_path.counters();
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
fn runs_are_cut_into_the_packets_they_were() {
    let Some(nodes) = Nodes::up("runs_are_cut_into_the_packets_they_were") else { return };
    for on in [true, false] {
        offloads(&nodes, on);
        for (ipv4, headers) in [(true, 28), (false, 48)] {
            let mut pair = open(&nodes, ipv4, true);
            pair.reach();
            let cut = |pair: &Pair<'_, PacketSendPath>| pair.send_path.counters().cut;
            let before = cut(&pair);
            let longest = 1500 - headers;
            pair.pass(&[vec![longest; 40], vec![333]].concat());
            assert_eq!(cut(&pair), before + 41);
            pair.pass(&[100; 150]);
            assert_eq!(cut(&pair), before + 191);
            // Alone, a run of 21, one of three, and alone again.
            let mixed =
                [&[7][..], &[longest; 20], &[700, 300, 300], &[1, 2, 3, 4], &[0, 0], &[5, 6]].concat();
            pair.pass(&mixed);
            assert_eq!(cut(&pair), before + 191 + 21 + 3);

            for node in [1, 0] {
                nodes.shell(node, &format!("ip link set {NIC} mtu 9000"));
            }
            pair.reach();
            let before = cut(&pair);
            pair.pass(&[vec![9000 - headers; 16], vec![8000]].concat());
            assert_eq!(cut(&pair), before + 17);
            pair.pass(&[64, 9000 - headers, 9000 - headers, 5000, 5001]);
            assert_eq!(cut(&pair), before + 20);
            for node in [0, 1] {
                nodes.shell(node, &format!("ip link set {NIC} mtu 1500"));
            }
        }
    }
}

#[test]
fn checksums_are_right_where_no_nic_completes_them() {
    let Some(nodes) = Nodes::up("checksums_are_right_where_no_nic_completes_them") else { return };
    offloads(&nodes, false);
    for ipv4 in [true, false] {
        let mut pair = open(&nodes, ipv4, true);
        pair.reach();
        let frames = nodes.inside(1, all_frames);
        let bodies = bodies(&[vec![1451; 40], vec![332, 9, 10, 11, 11]].concat());
        assert_eq!(pair.send(&packets(&bodies)), Some(bodies.len()));
        pair.expect(&bodies);
        let mut arrived = bodies.iter();
        while arrived.len() > 0 {
            let mut frame = [0; 2000];
            let (bytes, _) = recv(&frames, &mut frame, RecvFlags::DONTWAIT).unwrap();
            if let Some(payload) = checked_payload(&frame[..bytes]) {
                assert_eq!(payload, arrived.next().unwrap()[..]);
            }
        }
    }
}

/// A socket that sees all frames of this network.
fn all_frames() -> OwnedFd {
    socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL)).unwrap()
}

/// The payload of a UDP datagram, with the checksum that it should have compared; a packet that was alone
/// over IPv4 has none. `None`: a frame of another kind.
fn checked_payload(frame: &[u8]) -> Option<Vec<u8>> {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return None };
    let header = udp.to_header();
    let (checksum, payload) = (udp.checksum(), udp.payload());
    match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let alone = (9..=10).contains(&payload.len());
            let right = if alone { 0 } else { header.calc_checksum_ipv4(&ip, payload).unwrap() };
            assert_eq!(checksum, right, "{} bytes", payload.len());
        }
        NetSlice::Ipv6(ip) => {
            let right = header.calc_checksum_ipv6(&ip.header().to_header(), payload).unwrap();
            assert_eq!(checksum, right, "{} bytes", payload.len());
        }
        other => panic!("{other:?}"),
    }
    Some(payload.to_vec())
}

#[test]
fn nothing_overtakes_a_run_that_waits() {
    let Some(nodes) = Nodes::up("nothing_overtakes_a_run_that_waits") else { return };
    let queued = || -> u64 {
        let shown = nodes.shell(0, &format!("tc -s qdisc show dev {NIC} root"));
        let sent = shown.split_once(" bytes ").expect("a count").1;
        sent.split_once(" pkt").expect("a count").0.parse().expect("a count")
    };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    // 58 kB take some 20 ms.
    nodes.shell(0, &format!("tc qdisc add dev {NIC} root tbf rate 20mbit burst 4kb limit 1mb"));
    pair.reach();
    let first = bodies(&[1400; 40]);
    let then = bodies(&[200, 300, 400]);
    assert_eq!(pair.send(&packets(&first)), Some(40));
    assert_eq!(pair.send(&packets(&then[..1])), Some(1));
    assert_eq!(pair.send(&packets(&then[1..])), Some(2));
    pair.expect(&[first, then].concat());
    assert!(queued() >= 43);
    eventually("a packet past the queue again", || {
        let through = queued();
        pair.pass(&[100]);
        (queued() == through).then_some(())
    });
}

#[test]
fn a_queue_that_has_no_room_for_a_run_gets_packets() {
    let Some(nodes) = Nodes::up("a_queue_that_has_no_room_for_a_run_gets_packets") else { return };
    let mut pair = open(&nodes, true, true);
    pair.reach();
    // With room for a packet of the MTU, the kernel would not even ask it while it is empty.
    nodes.shell(0, &format!("tc qdisc add dev {NIC} root bfifo limit 1000"));
    pair.reach();
    let before = pair.send_path.counters();
    pair.pass(&[1400; 20]);
    assert_eq!(pair.send_path.counters().cut, before.cut);
    nodes.shell(0, &format!("tc qdisc del dev {NIC} root"));
    pair.pass(&[1400; 20]);
    assert_eq!(pair.send_path.counters().cut, before.cut + 20);
}

#[test]
fn where_nothing_is_cut_packets_go_alone() {
    let Some(nodes) = Nodes::up("where_nothing_is_cut_packets_go_alone") else { return };
    for (error, for_good) in
        [(libc::EINVAL, true), (libc::EIO, true), (libc::EOPNOTSUPP, true), (libc::ENOBUFS, false)]
    {
        let mut pair = open(&nodes, true, true);
        pair.reach();
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse_sendmsg(error);
                pair.pass(&[vec![1400; 40], vec![100, 200, 300, 300]].concat());
                assert_eq!(pair.send_path.counters().cut, 0);
            });
            refused.join().unwrap();
        });
        pair.pass(&[1400; 10]);
        assert_eq!(pair.send_path.counters().cut, if for_good { 0 } else { 10 });
    }
}

/// Has every `sendmsg` of this thread, and no other system call, fail from now on.
fn refuse_sendmsg(error: i32) {
    let code = |code: u32| code as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The number of the call is the first word of `struct seccomp_data`.
    let mut steps = [
        step(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0, 0),
        step(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), 0, 1, libc::SYS_sendmsg as u32),
        step(code(libc::BPF_RET | libc::BPF_K), 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(code(libc::BPF_RET | libc::BPF_K), 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the program, whose pointer and length describe `steps`; it holds for this thread alone.
    let returned =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    assert_eq!(returned, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn without_the_privilege_the_error_names_it() {
    let Some(nodes) = Nodes::up("without_the_privilege_the_error_names_it") else { return };
    let opened = nodes.inside(0, || {
        // SAFETY: no memory is passed. The bare system call changes this thread alone, which ends with the closure.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        PacketSendPath::open(four(0, 7000), QUEUE_BYTES)
    });
    let error = opened.unwrap_err();
    assert!(matches!(error, PacketError::Forbidden), "{error}");
    assert!(error.to_string().contains("cap_net_raw"), "{error}");
}
