//! The `udp` send path on real sockets, over loopback.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tsumugi_rail::{Evidence, Packet, Question, Rail, Udp, UdpError, UdpOptions};
use tsumugi_wire::Instant;

type Datagrams = Vec<(SocketAddr, Vec<u8>)>;

fn options(address: &str) -> UdpOptions {
    UdpOptions { address: address.parse().unwrap(), port: 0, ..UdpOptions::default() }
}

fn open(address: &str) -> Udp {
    Udp::open(&options(address)).unwrap()
}

/// What a test means when it says that time passes: nothing, unless it wants to.
struct Clock(u64);

impl Clock {
    fn tick(&mut self) -> Instant {
        self.0 += 1000;
        Instant(self.0)
    }
}

/// Receives until `bytes` have come. Fails when they do not come.
fn receive(rail: &mut Udp, bytes: usize) -> Datagrams {
    let mut clock = Clock(0);
    let mut datagrams = Datagrams::new();
    let mut waited = 0;
    while datagrams.iter().map(|(_, data)| data.len()).sum::<usize>() < bytes {
        let taken =
            rail.receive(clock.tick(), &mut |from, data| datagrams.push((from, data.to_vec()))).unwrap();
        if taken == 0 {
            waited += 1;
            assert!(waited < 5000, "waited for {bytes} bytes, have {datagrams:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    datagrams
}

fn send(rail: &mut Udp, to: SocketAddr, body: &[u8]) {
    assert_eq!(rail.send(Instant(0), to, &[Packet { head: b"<", body }]).unwrap(), 1);
}

fn concatenated(datagrams: &Datagrams) -> Vec<u8> {
    datagrams.iter().flat_map(|(_, data)| data.clone()).collect()
}

/// Packets of the given sizes with payloads that differ, and all of them in a row.
fn bodies(sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let bodies: Vec<Vec<u8>> =
        sizes.iter().enumerate().map(|(n, size)| (0..*size).map(|at| (n * 7 + at) as u8).collect()).collect();
    let whole = bodies.concat();
    (bodies, whole)
}

fn send_all(from: &mut Udp, to: SocketAddr, bodies: &[Vec<u8>]) {
    let burst: Vec<Packet<'_>> = bodies
        .iter()
        .map(|body| {
            let (head, body) = body.split_at(body.len() / 3);
            Packet { head, body }
        })
        .collect();
    assert_eq!(from.send(Instant(0), to, &burst).unwrap(), burst.len());
}

fn burst_arrives(address: &str, offloads: bool, connected: bool) {
    let options = UdpOptions { offloads, ..options(address) };
    let (mut a, mut b) = (Udp::open(&options).unwrap(), Udp::open(&options).unwrap());
    assert!(offloads || !a.segments());
    if connected {
        a.connect(b.address());
        b.connect(a.address());
    }
    let mut sizes = vec![1400; 150];
    sizes.extend([
        900, 900, 900, 900, 10, 1400, 1400, 30, 31, 32, 1, 8972, 8972, 8972, 8972, 8972, 8972, 8972,
    ]);
    sizes.extend([8972, 8972, 100]);
    let (bodies, whole) = bodies(&sizes);
    send_all(&mut a, b.address(), &bodies);
    let received = receive(&mut b, whole.len());
    assert_eq!(concatenated(&received), whole, "whole and in order");
    assert!(received.iter().all(|(from, _)| *from == a.address()));
    assert_eq!(a.counters().sent, sizes.len() as u64);
    assert_eq!(a.counters().lost, 0);
}

#[test]
fn a_segmented_burst_arrives_whole_and_in_order() {
    assert!(open("127.0.0.1").segments(), "this kernel should know UDP_SEGMENT");
    burst_arrives("127.0.0.1", true, true);
}

#[test]
fn an_unsegmented_burst_arrives_whole_and_in_order() {
    burst_arrives("127.0.0.1", false, true);
}

#[test]
fn a_burst_to_a_peer_that_was_not_connected_arrives() {
    burst_arrives("127.0.0.1", true, false);
    burst_arrives("127.0.0.1", false, false);
}

#[test]
fn bursts_arrive_over_ipv6() {
    burst_arrives("::1", true, true);
    burst_arrives("::1", false, false);
}

#[test]
fn a_rail_of_both_families_has_peers_of_both() {
    for (connected, offloads) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut server = Udp::open(&UdpOptions { offloads, ..options("::") }).unwrap();
        for (own, asked) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "127.0.0.5"), ("::1", "::1")] {
            let mut client = Udp::open(&UdpOptions { offloads, ..options(own) }).unwrap();
            let to = SocketAddr::new(asked.parse().unwrap(), server.address().port());
            if connected {
                client.connect(to);
            }
            let (bodies, whole) = bodies(&[1400, 1400, 1400, 1400, 10, 30, 8972, 8972, 8972, 100]);
            send_all(&mut client, to, &bodies);
            let received = receive(&mut server, whole.len());
            assert_eq!(concatenated(&received), whole, "to {to}");
            assert!(received.iter().all(|(from, _)| *from == client.address()), "plainly of its family");
            if connected {
                server.connect(client.address());
            }
            send_all(&mut server, client.address(), &bodies);
            let received = receive(&mut client, whole.len());
            assert_eq!(concatenated(&received), whole, "from {to}");
            assert!(received.iter().all(|(from, _)| *from == to), "not from the address that was asked");
        }
        assert_eq!((server.counters().lost, server.dedicated_peers()), (0, if connected { 3 } else { 0 }));
    }
}

#[test]
fn a_rail_of_both_families_hears_of_ports_that_nobody_has() {
    let mut rail = open("::");
    for ip in ["127.0.0.1", "::1"] {
        let gone = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
        rail.connect(gone);
        send(&mut rail, gone, b"?");
        let mut clock = Clock(1_000_000);
        let mut evidence = Evidence::None;
        for _ in 0..1000 {
            rail.receive(clock.tick(), &mut |_, _| ()).unwrap();
            evidence = rail.inquire(clock.tick(), Instant(0), gone, Question::Errors);
            if evidence != Evidence::None {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(evidence, Evidence::PortUnreachable, "of {gone}");
    }
}

#[test]
fn a_rail_of_both_families_has_its_port_in_both() {
    let mut first = open("::");
    let port = first.address().port();
    let taken = || {
        for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let error = Udp::open(&UdpOptions { port, ..options(address) }).unwrap_err();
            assert!(matches!(error, UdpError::PortTaken(_)), "{error}");
        }
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(stranger_with_reuse(address).is_err(), "a stranger may not share the port");
    };
    taken();
    for ip in ["127.0.0.1", "::1"] {
        first.connect(open(ip).address());
    }
    assert_eq!(first.dedicated_peers(), 2);
    taken();
}

#[test]
fn a_segmented_burst_reaches_an_ordinary_socket_as_separate_datagrams() {
    let mut a = open("127.0.0.1");
    let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (bodies, _) = bodies(&[700, 700, 700, 20]);
    send_all(&mut a, plain.local_addr().unwrap(), &bodies);
    for body in &bodies {
        let mut buffer = [0; 2000];
        let length = plain.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], &body[..]);
    }
}

#[test]
fn a_port_that_is_free_in_a_moment_is_waited_for() {
    let first = open("127.0.0.1");
    let port = first.address().port();
    let wanted = UdpOptions { port, ..options("127.0.0.1") };
    assert!(matches!(Udp::open_when_free(&wanted), Err(UdpError::PortTaken(_))), "it stays taken");
    // A process that was killed lets go of it a moment later.
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(40));
        drop(first);
    });
    let second = Udp::open_when_free(&wanted).unwrap();
    assert_eq!(second.address().port(), port);
    letting_go.join().unwrap();
}

#[test]
fn a_taken_port_is_named_even_against_reuse() {
    let mut first = open("127.0.0.1");
    let port = first.address().port();
    let taken = |address: &str| {
        let error = Udp::open(&UdpOptions { port, ..options(address) }).unwrap_err();
        assert!(matches!(error, UdpError::PortTaken(_)), "{error}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    };
    taken("127.0.0.1");
    taken("0.0.0.0");
    // Dedicated sockets share the port among themselves, and with nobody else.
    let peer = open("127.0.0.1");
    first.connect(peer.address());
    assert_eq!(first.dedicated_peers(), 1);
    taken("127.0.0.1");
    taken("0.0.0.0");
    assert!(stranger_with_reuse(first.address()).is_err(), "a stranger may not share the port");
}

/// Tries to bind as a process would that wants to share the port.
fn stranger_with_reuse(address: SocketAddr) -> std::io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &address)?)
}

#[test]
fn a_foreign_address_is_named() {
    let error = Udp::open(&options("192.0.2.77")).unwrap_err();
    assert!(matches!(error, UdpError::NoSuchAddress(_)), "{error}");
    assert!(error.to_string().contains("192.0.2.77"), "{error}");
}

#[test]
fn dedicated_and_main_socket_both_deliver_with_the_true_source() {
    for address in ["127.0.0.1", "0.0.0.0"] {
        let mut server = open(address);
        let at = SocketAddr::new("127.0.0.1".parse().unwrap(), server.address().port());
        let mut peers: Vec<Udp> = (0..5).map(|_| open("127.0.0.1")).collect();
        send(&mut peers[0], at, b"before");
        for peer in &peers[..3] {
            server.connect(peer.address());
        }
        assert_eq!(server.dedicated_peers(), 3);
        for round in 0u8..20 {
            for peer in &mut peers {
                send(peer, at, &[round]);
            }
        }
        let received = receive(&mut server, 7 + 5 * 20 * 2);
        assert_eq!(received[..].iter().filter(|(_, data)| data == b"<before").count(), 1);
        for peer in &peers {
            let rounds: Vec<u8> = received
                .iter()
                .filter(|(from, data)| *from == peer.address() && data.len() == 2)
                .map(|(_, data)| data[1])
                .collect();
            assert_eq!(rounds, (0..20).collect::<Vec<u8>>());
        }
        // And back.
        for peer in &mut peers {
            send(&mut server, peer.address(), b"answer");
            assert_eq!(receive(peer, 7), [(at, b"<answer".to_vec())]);
        }
    }
}

#[test]
fn a_chatterbox_does_not_silence_the_others() {
    let mut server = open("127.0.0.1");
    let (mut loud, mut soft) = (open("127.0.0.1"), open("127.0.0.1"));
    server.connect(loud.address());
    server.connect(soft.address());
    send(&mut soft, server.address(), b"psst");
    let mut clock = Clock(0);
    let mut heard = false;
    for _ in 0..40 {
        send(&mut loud, server.address(), &[b'!'; 1000]);
        server.receive(clock.tick(), &mut |from, _| heard |= from == soft.address()).unwrap();
    }
    assert!(heard);
}

#[test]
fn what_a_disconnected_peer_had_sent_is_delivered() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.1"));
    a.connect(b.address());
    for number in 0..10 {
        send(&mut b, a.address(), &[number]);
    }
    a.disconnect(b.address());
    assert_eq!(a.dedicated_peers(), 0);
    assert_eq!(receive(&mut a, 20).len(), 10);
    // After that the main socket serves it, and it may be connected again.
    for _ in 0..10 {
        a.receive(Instant(1), &mut |_, _| panic!("nothing was sent")).unwrap();
    }
    send(&mut b, a.address(), b"again");
    assert_eq!(receive(&mut a, 6), [(b.address(), b"<again".to_vec())]);
    a.connect(b.address());
    send(&mut b, a.address(), b"new");
    assert_eq!(receive(&mut a, 4), [(b.address(), b"<new".to_vec())]);
    // Disconnected and connected again before anything was received: the same socket stays in use.
    a.disconnect(b.address());
    a.connect(b.address());
    assert_eq!(a.dedicated_peers(), 1);
    send(&mut b, a.address(), b"kept");
    assert_eq!(receive(&mut a, 5), [(b.address(), b"<kept".to_vec())]);
    send(&mut a, b.address(), b"back");
    assert_eq!(receive(&mut b, 5), [(a.address(), b"<back".to_vec())]);
}

#[test]
fn a_dead_peer_is_counted_and_no_error() {
    let mut a = open("127.0.0.1");
    let b = open("127.0.0.1");
    let gone = b.address();
    drop(b);
    a.connect(gone);
    for _ in 0..10 {
        send(&mut a, gone, b"anyone?");
        a.receive(Instant(1), &mut |_, _| panic!("nobody answers")).unwrap();
    }
    assert!(a.counters().refused > 0, "{:?}", a.counters());
    // A successor on the same port hears at once what is sent to it: a stale refusal loses nothing.
    let mut b = Udp::open(&UdpOptions { port: gone.port(), ..options("127.0.0.1") }).unwrap();
    send(&mut a, gone, b"hello");
    assert_eq!(receive(&mut b, 6), [(a.address(), b"<hello".to_vec())]);
}

#[test]
fn packets_that_cannot_go_are_lost_and_counted() {
    let mut a = open("127.0.0.1");
    let b = open("127.0.0.1");
    let long = vec![0; 65_600];
    send(&mut a, b.address(), &long);
    assert_eq!(a.counters().too_long, 1);
    send(&mut a, "[::1]:9".parse().unwrap(), b"wrong family");
    send(&mut a, "127.0.0.1:0".parse().unwrap(), b"no port");
    assert_eq!(a.counters().unreachable, 2);
    assert_eq!(a.counters().lost, 3);
    assert_eq!(a.counters().sent, 0);
}

#[test]
fn peers_beyond_the_cap_share_the_main_socket() {
    let mut server = open("127.0.0.1");
    let mut peers: Vec<UdpSocket> = (0..70).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for peer in &peers {
        server.connect(peer.local_addr().unwrap());
    }
    assert_eq!(server.dedicated_peers(), 64);
    assert_eq!(server.counters().shared, 6);
    for peer in &mut peers {
        peer.send_to(b"x", server.address()).unwrap();
    }
    let mut sources: Vec<SocketAddr> = receive(&mut server, 70).iter().map(|(from, _)| *from).collect();
    let mut expected: Vec<SocketAddr> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
    sources.sort();
    expected.sort();
    assert_eq!(sources, expected);
}

fn readable(rail: &Udp) -> bool {
    let descriptor = rail.descriptor().unwrap();
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
}

#[test]
fn the_descriptor_is_readable_while_something_waits() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.1"));
    assert!(!readable(&a));
    send(&mut b, a.address(), b"main");
    assert!(readable(&a));
    receive(&mut a, 5);
    assert!(!readable(&a));
    a.connect(b.address());
    send(&mut b, a.address(), b"dedicated");
    assert!(readable(&a));
    receive(&mut a, 10);
    assert!(!readable(&a));
}

#[test]
fn after_a_sleep_the_first_call_finds_whoever_spoke() {
    let mut server = open("127.0.0.1");
    let mut peers: Vec<Udp> = (0..3).map(|_| open("127.0.0.1")).collect();
    for peer in &peers {
        server.connect(peer.address());
    }
    let mut now = 0;
    for index in [0, 1, 2, 1, 0, 2, 2, 0] {
        let peer = &mut peers[index];
        send(peer, server.address(), b"!");
        now += 1_000_000;
        let mut from = None;
        assert_eq!(server.receive(Instant(now), &mut |source, _| from = Some(source)).unwrap(), 1);
        assert_eq!(from, Some(peer.address()));
    }
}

/// Runs the test called `inside` in a network namespace of its own whose loopback has an MTU of 1500.
#[test]
fn in_a_namespace_with_an_ordinary_mtu() {
    let script = "ip link set lo mtu 1500 up && exec \"$0\" --exact inside --ignored --nocapture";
    let output = std::process::Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        }
        other => {
            assert!(std::env::var_os("CI").is_none(), "CI needs user namespaces, unshare and ip: {other:?}");
            eprintln!("SKIPPED: no user namespaces, unshare or ip here: {other:?}");
        }
    }
}

#[test]
#[ignore = "run by in_a_namespace_with_an_ordinary_mtu"]
fn inside() {
    let mut b = open("127.0.0.1");
    assert_eq!(b.datagram_bytes(), 1472);
    assert_eq!(open("0.0.0.0").datagram_bytes(), 1472);
    assert_eq!(open("::1").datagram_bytes(), 1452);
    // Who insists on longer datagrams than the NIC carries loses them, and can see why.
    let mut a = Udp::open(&UdpOptions { datagram_bytes: Some(8000), ..options("127.0.0.1") }).unwrap();
    a.connect(b.address());
    let (long, _) = bodies(&[4000; 8]);
    send_all(&mut a, b.address(), &long);
    assert_eq!((a.counters().too_long, a.counters().lost, a.counters().sent), (8, 8, 0));
    assert!(a.segments(), "too long is no reason to give up segmentation");
    let (fitting, whole) = bodies(&[1472; 100]);
    send_all(&mut a, b.address(), &fitting);
    assert_eq!(concatenated(&receive(&mut b, whole.len())), whole);
}

/// An owner that spins has one long conversation; then others speak, and then it sleeps.
#[test]
fn unwatched_sockets_are_heard_and_are_watched_again_before_sleep() {
    let mut server = open("127.0.0.1");
    let mut peers: Vec<Udp> = (0..3).map(|_| open("127.0.0.1")).collect();
    for peer in &peers {
        server.connect(peer.address());
    }
    let at = server.address();
    server.watch(false).unwrap();
    for talker in [0, 1, 0] {
        for _ in 0..200 {
            send(&mut peers[talker], at, b"talk");
            assert_eq!(receive(&mut server, 5), [(peers[talker].address(), b"<talk".to_vec())]);
        }
        send(&mut peers[talker], at, b"more");
        assert!(!readable(&server), "the conversation should have left epoll");
        send(&mut peers[2], at, b"also");
        assert!(readable(&server));
        assert_eq!(receive(&mut server, 10).len(), 2);
        send(&mut peers[talker], at, b"last");
        server.watch(true).unwrap();
        assert!(readable(&server), "what waits must be told before the owner sleeps");
        assert_eq!(receive(&mut server, 5), [(peers[talker].address(), b"<last".to_vec())]);
        assert!(!readable(&server));
        server.watch(false).unwrap();
    }
    // What a peer sent before it was disconnected is still delivered.
    for _ in 0..200 {
        send(&mut peers[1], at, b"talk");
        receive(&mut server, 5);
    }
    send(&mut peers[1], at, b"bye");
    server.disconnect(peers[1].address());
    assert_eq!(receive(&mut server, 4), [(peers[1].address(), b"<bye".to_vec())]);
    server.connect(peers[1].address());
    send(&mut peers[1], at, b"hello");
    assert_eq!(receive(&mut server, 6), [(peers[1].address(), b"<hello".to_vec())]);
}

/// What `client` hears next, and from whom.
fn hear(client: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2000];
    let (length, from) = client.recv_from(&mut buffer).expect("an answer within a second");
    (buffer[..length].to_vec(), from)
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let mut server = open("0.0.0.0");
    let asked = |last| SocketAddr::from(([127, 0, 0, last], server.address().port()));
    let (nine, eight) = (asked(9), asked(8));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let peer = client.local_addr().unwrap();
    // A stranger's question, short and in a burst that the kernel segments.
    client.send_to(b"who", nine).unwrap();
    receive(&mut server, 3);
    send(&mut server, peer, b"one");
    assert_eq!(hear(&client), (b"<one".to_vec(), nine));
    let body = [7; 1000];
    let burst = [Packet { head: b"<", body: &body }; 3];
    assert_eq!(server.send(Instant(0), peer, &burst).unwrap(), 3);
    for _ in 0..3 {
        assert_eq!(hear(&client).1, nine);
    }
    // Once it has a socket of its own, too; and another address can be asked beside it.
    server.connect(peer);
    assert_eq!(server.dedicated_peers(), 1);
    assert_eq!(server.local_to(peer), Some(nine.ip()));
    send(&mut server, peer, b"two");
    assert_eq!(hear(&client), (b"<two".to_vec(), nine));
    client.send_to(b"and who", eight).unwrap();
    receive(&mut server, 7);
    send(&mut server, peer, b"three");
    assert_eq!(hear(&client), (b"<three".to_vec(), eight));
    client.send_to(b"again", nine).unwrap();
    receive(&mut server, 5);
    send(&mut server, peer, b"four");
    assert_eq!(hear(&client), (b"<four".to_vec(), nine));
}
