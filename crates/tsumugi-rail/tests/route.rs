//! The route to a peer as the kernel of a real node tells it. Needs root.

mod nodes;

use nodes::{NIC, Nodes, eventually, four, six};
use std::net::{SocketAddr, UdpSocket};
use tsumugi_rail::ether::Hop;
use tsumugi_rail::{Reach, Routes, Template};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

const PORT: u16 = 7000;

/// The routes of node 0, asked at times that are far enough apart for every question to be a new one.
struct Asker<'a> {
    nodes: &'a Nodes,
    routes: Routes,
    now: Instant,
}

/// A [`Reach`] that owns what it shows.
#[derive(Debug, PartialEq)]
enum Answer {
    Frame(Template),
    NotYet,
    Never,
}

impl Asker<'_> {
    fn open(nodes: &Nodes, local: SocketAddr) -> Asker<'_> {
        let routes = nodes.inside(0, || Routes::open(local)).unwrap();
        Asker { nodes, routes, now: Instant(0) }
    }

    /// Asks after enough time for news to be looked for, but not for answers to be doubted without them.
    fn ask(&mut self, peer: SocketAddr) -> Answer {
        self.now = self.now.plus(10 * MILLISECOND_NS);
        self.routes.connect(peer, None);
        match self.routes.to(self.now, peer) {
            Reach::Frame(template) => Answer::Frame(*template),
            Reach::NotYet => Answer::NotYet,
            Reach::Never => Answer::Never,
        }
    }

    /// Asks until the answer is a frame, sending through a socket meanwhile.
    fn frame(&mut self, peer: SocketAddr) -> Template {
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = self.nodes.inside(0, || UdpSocket::bind(any)).unwrap();
        eventually("a frame", || {
            let answer = self.ask(peer);
            let _ = socket.send_to(b"whoever hears this", peer);
            if let Answer::Frame(template) = answer { Some(template) } else { None }
        })
    }

    /// What the template must be when the next hop is node 1.
    fn expected(&mut self, from: SocketAddr, to: SocketAddr, mtu_bytes: usize) -> Template {
        let interface = self.nodes.shell(0, &format!("cat /sys/class/net/{NIC}/ifindex")).parse().unwrap();
        let hop = Hop { interface, source: self.nodes.mac(0), destination: self.nodes.mac(1), mtu_bytes };
        Template::new(&hop, from, to).unwrap()
    }
}

#[test]
fn a_neighbour_is_reached_once_the_kernel_has_resolved_it() {
    let Some(nodes) = Nodes::up("a_neighbour_is_reached_once_the_kernel_has_resolved_it") else { return };
    for (local, from, to) in [
        ("0.0.0.0:7000".parse().unwrap(), four(0, PORT), four(1, 8000)),
        ("[::]:7000".parse().unwrap(), six(0, PORT), six(1, 8000)),
        (four(0, PORT), four(0, PORT), four(1, 8000)),
        (six(0, PORT), six(0, PORT), six(1, 8000)),
    ] {
        nodes.shell(0, &format!("ip neigh flush dev {NIC}"));
        let mut asker = Asker::open(&nodes, local);
        for _ in 0..3 {
            assert_eq!(asker.ask(to), Answer::NotYet, "nobody has sent anything yet");
        }
        let expected = asker.expected(from, to, 1500);
        assert_eq!(asker.frame(to), expected);
        assert_eq!(asker.ask(to), Answer::Frame(expected));
        let nic = asker.routes.nic(expected.interface()).unwrap();
        assert_eq!((nic.name.as_str(), nic.mac, nic.up, nic.ethernet), (NIC, nodes.mac(0), true, true));
        assert!(asker.routes.nic(4242).is_err());
    }
}

#[test]
fn a_stale_neighbour_is_left_to_the_kernel_to_ask_again() {
    let Some(nodes) = Nodes::up("a_stale_neighbour_is_left_to_the_kernel_to_ask_again") else { return };
    for to in [four(1, 8000), six(1, 8000)] {
        let any = SocketAddr::new(if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap(), PORT);
        let mut asker = Asker::open(&nodes, any);
        let resolved = asker.frame(to);
        nodes.shell(0, &format!("ip neigh change {} dev {NIC} nud stale", to.ip()));
        assert_eq!(asker.ask(to), Answer::NotYet);
        assert_eq!(asker.ask(to), Answer::NotYet);
        assert_eq!(asker.frame(to), resolved);
        nodes.shell(0, &format!("ip neigh change {} dev {NIC} nud failed", to.ip()));
        assert_eq!(asker.ask(to), Answer::NotYet);
        assert_eq!(asker.frame(to), resolved);
    }
}

#[test]
fn a_router_takes_what_is_for_those_behind_it() {
    let Some(nodes) = Nodes::up("a_router_takes_what_is_for_those_behind_it") else { return };
    nodes.shell(
        0,
        "ip route add 10.99.0.0/24 via 10.77.0.2 mtu 1400 && ip route add fd99::/64 via fd77::2 mtu 1300 && \
         ip route add 10.98.0.0/24 via inet6 fd77::2",
    );
    for (from, to, mtu_bytes) in [
        (four(0, PORT), SocketAddr::from(([10, 99, 0, 5], 8000)), 1400),
        (six(0, PORT), "[fd99::5]:8000".parse().unwrap(), 1300),
        (four(0, PORT), SocketAddr::from(([10, 98, 0, 5], 8000)), 1500),
    ] {
        let mut asker = Asker::open(&nodes, from);
        let expected = asker.expected(from, to, mtu_bytes);
        assert_eq!(asker.frame(to), expected, "to {to}");
    }
}

#[test]
fn the_nic_of_a_route_is_known_before_the_neighbour() {
    let Some(nodes) = Nodes::up("the_nic_of_a_route_is_known_before_the_neighbour") else { return };
    nodes.shell(0, "ip link set lo up");
    let mut routes = nodes.inside(0, || Routes::open(four(0, PORT))).unwrap();
    let nic = routes.nic_to(four(1, 8000)).unwrap().expect("a NIC");
    assert_eq!((nic.name.as_str(), nic.mac, nic.mtu_bytes), (NIC, nodes.mac(0), 1500));
    assert_eq!(routes.nic_to(four(0, 8000)).unwrap(), None, "stays on this machine");
    assert!(routes.nic_to("192.0.2.1:8000".parse().unwrap()).is_err(), "no route");
}

#[test]
fn what_does_not_leave_in_a_frame_to_one_receiver_is_never_reached() {
    let Some(nodes) = Nodes::up("what_does_not_leave_in_a_frame_to_one_receiver_is_never_reached") else {
        return;
    };
    nodes.shell(0, "ip link set lo up && ip route add unreachable 10.97.0.0/24");
    let mut four_only = Asker::open(&nodes, "0.0.0.0:7000".parse().unwrap());
    for peer in [
        "127.0.0.1:8000",
        "10.77.0.1:8000",
        "10.77.0.255:8000",
        "255.255.255.255:8000",
        "224.0.0.1:8000",
        "10.97.0.1:8000",
        "192.0.2.1:8000",
        "[fd77::2]:8000",
    ] {
        assert_eq!(four_only.ask(peer.parse().unwrap()), Answer::Never, "{peer}");
    }
    let mut six_only = Asker::open(&nodes, "[fd77::1]:7000".parse().unwrap());
    assert_eq!(six_only.ask("10.77.0.2:8000".parse().unwrap()), Answer::Never);
    let mut both = Asker::open(&nodes, "[::]:7000".parse().unwrap());
    for peer in [
        "[::1]:8000",
        "[fd77::1]:8000",
        "[ff02::1]:8000",
        "[2001:db8::1]:8000",
        "127.0.0.1:8000",
        "10.77.0.1:8000",
        "10.97.0.1:8000",
    ] {
        assert_eq!(both.ask(peer.parse().unwrap()), Answer::Never, "{peer}");
    }
    four_only.frame(four(1, 8000));
    four_only.routes.disconnect(four(1, 8000));
    assert_eq!(four_only.routes.to(four_only.now, four(1, 8000)), Reach::Never, "not connected");
    // What comes to exist later is found.
    nodes.shell(0, "ip route add 192.0.2.0/24 via 10.77.0.2");
    four_only.frame("192.0.2.1:8000".parse().unwrap());
    // Nobody can be asked for an address on a NIC without ARP.
    nodes.shell(0, &format!("ip link set {NIC} arp off"));
    assert_eq!(four_only.ask("192.0.2.1:8000".parse().unwrap()), Answer::Never);
}

#[test]
fn link_local_addresses_go_by_their_nic() {
    let Some(nodes) = Nodes::up("link_local_addresses_go_by_their_nic") else { return };
    let local = |node: usize| {
        eventually("a link-local address", || {
            let text = nodes.shell(node, &format!("ip -br -6 addr show dev {NIC} scope link -tentative"));
            text.split_whitespace().last().and_then(|word| word.split('/').next()?.parse().ok())
        })
    };
    let index: u32 = nodes.shell(0, &format!("cat /sys/class/net/{NIC}/ifindex")).parse().unwrap();
    let at = |ip, port| SocketAddr::from(std::net::SocketAddrV6::new(ip, port, 0, index));
    let (from, to) = (at(local(0), PORT), at(local(1), 8000));
    let mut asker = Asker::open(&nodes, from);
    let expected = asker.expected(from, to, 1500);
    assert_eq!(asker.frame(to), expected);
    let mut asker = Asker::open(&nodes, "[::]:7000".parse().unwrap());
    assert_eq!(asker.frame(to), expected);
}

#[test]
fn changes_are_followed() {
    let Some(nodes) = Nodes::up("changes_are_followed") else { return };
    for (from, to, new_mac) in [
        (four(0, PORT), four(1, 8000), "02:00:00:00:08:08"),
        (six(0, PORT), six(1, 8000), "02:00:00:00:09:09"),
    ] {
        let mut asker = Asker::open(&nodes, from);
        let first = asker.frame(to);

        nodes.shell(0, &format!("ip link set {NIC} mtu 1400"));
        let Answer::Frame(shorter) = asker.ask(to) else { panic!("still reachable") };
        assert_eq!(shorter.datagram_bytes(), first.datagram_bytes() - 100);
        nodes.shell(0, &format!("ip link set {NIC} mtu 1500"));
        assert_eq!(asker.ask(to), Answer::Frame(first));

        let other = "02:00:00:00:07:07";
        nodes.shell(0, &format!("ip neigh replace {} lladdr {other} dev {NIC} nud permanent", to.ip()));
        let Answer::Frame(moved) = asker.ask(to) else { panic!("still reachable") };
        assert_ne!(moved, first);
        // Such a neighbour outlives the carrier.
        nodes.shell(1, &format!("ip link set {NIC} down"));
        eventually("the lost carrier", || (asker.ask(to) == Answer::NotYet).then_some(()));
        nodes.shell(1, &format!("ip link set {NIC} up"));
        assert_eq!(asker.frame(to), moved);
        nodes.shell(0, &format!("ip neigh del {} dev {NIC}", to.ip()));
        assert_eq!(asker.ask(to), Answer::NotYet);
        assert_eq!(asker.frame(to), first);

        nodes.shell(0, &format!("ip link set {NIC} down"));
        assert_eq!(asker.ask(to), Answer::Never, "its route goes with the NIC");
        nodes.shell(0, &format!("ip link set {NIC} address {new_mac} && ip link set {NIC} up"));
        let healed = asker.frame(to);
        assert_eq!(healed, asker.expected(from, to, 1500));
        assert_ne!(healed, first);
    }
}

#[test]
fn what_is_doubted_is_asked_again_without_news() {
    let Some(nodes) = Nodes::up("what_is_doubted_is_asked_again_without_news") else { return };
    let to = four(1, 8000);
    let mut asker = Asker::open(&nodes, four(0, PORT));
    let first = asker.frame(to);
    assert_eq!(asker.ask(to), Answer::Frame(first));
    nodes.shell(0, &format!("ip link set {NIC} mtu 1400"));
    // Too soon after the last look for another one.
    asker.now = asker.now.plus(MILLISECOND_NS / 2);
    assert_eq!(asker.routes.to(asker.now, to), Reach::Frame(&first));
    asker.routes.doubt(to);
    let Reach::Frame(frame) = asker.routes.to(asker.now, to) else { panic!("still reachable") };
    assert_eq!(frame.datagram_bytes(), first.datagram_bytes() - 100);
}

#[test]
fn more_news_than_the_kernel_keeps_are_survived() {
    let Some(nodes) = Nodes::up("more_news_than_the_kernel_keeps_are_survived") else { return };
    let to = four(1, 8000);
    let mut asker = Asker::open(&nodes, four(0, PORT));
    let first = asker.frame(to);
    let many = "i=0; while [ $i -lt 3000 ]; do echo route add 10.96.$((i / 250)).$((i % 250))/32 via 10.77.0.2; \
                echo route del 10.96.$((i / 250)).$((i % 250))/32; i=$((i + 1)); done | ip -batch -";
    nodes.shell(0, many);
    nodes.shell(0, &format!("ip link set {NIC} mtu 1400"));
    eventually("the last of the news", || {
        let Answer::Frame(frame) = asker.ask(to) else { panic!("still reachable") };
        (frame.datagram_bytes() == first.datagram_bytes() - 100).then_some(())
    });
}
