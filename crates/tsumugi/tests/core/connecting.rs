//! How peers become known to each other, and what is left of connections that came to nothing.

use super::{TIMEOUT_NS, address, host};
use tsumugi::internal::Delivery;
use tsumugi::{PeerId, Reason};
use tsumugi_rail::Rail;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

#[test]
fn who_connects_in_vain_sleeps_between_two_hellos() {
    let network = Network::new(1, LinkOptions::default());
    let mut here = host(&network, 1, 1);
    let peer = here.core.add_peer("nobody", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"?").unwrap();
    let (mut now, mut calls) = (Instant(0), 0);
    while now < Instant(TIMEOUT_NS) {
        here.call(now);
        calls += 1;
        assert!(calls < 100, "the timer of {now:?} is always due");
        now = here.core.deadline().max(now);
    }
    here.call(now);
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Unreachable(..)));
}

#[test]
fn what_is_sent_to_a_peer_that_gave_up_connecting_is_not_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    here.call(Instant(0));
    there.call(Instant(2000)); // CHALLENGE
    here.call(Instant(4000)); // HELLO, which lies in a socket for long
    let mut now = Instant(TIMEOUT_NS + MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.call(now);
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Unreachable(..)));
    network.heal(address(1), address(2));
    there.call(now);
    there.core.post(now, PeerId(0), 1, b"news").unwrap();
    for _ in 0..40 {
        now = now.plus(10_000);
        there.call(now);
        here.call(now);
    }
    assert!(there.core.take_failure().is_none(), "it neither restarted nor is it gone");
    here.core.take(1).expect("the failure of its handshake");
    assert_eq!(here.read(), [b"news"]);
}

#[test]
fn a_packet_of_a_former_incarnation_is_answered_by_nothing() {
    let network = Network::new(1, LinkOptions::default());
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    for step in 0..20 {
        here.call(Instant(step * 10_000));
        there.call(Instant(step * 10_000));
    }
    assert_eq!(there.read(), [b"hello"]);
    let view = there.core.view(PeerId(0)).unwrap();
    let mut header = Header::new(Kind::Probe, view.epoch ^ 1);
    (header.token, header.flow) = (view.local_token, 0);
    there.core.on_datagram(Instant(MILLISECOND_NS), address(1), &header.encode());
    assert_eq!(there.core.counted(Counter::WrongEpoch), 1);
    let before = network.statistics().sent;
    there.core.transmit(Instant(MILLISECOND_NS), &mut there.rail).unwrap();
    assert_eq!(network.statistics().sent, before, "a RESET would end the present connection");
}

/// The peer accepted what a HELLO offered, sent in that flow, and gave up before its WELCOME arrived. What it sends
/// after the next HELLO must not count as a repetition of what it sent before.
#[test]
fn a_flow_is_begun_once_though_a_welcome_is_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let to_there = here.core.add_peer("there", address(2)).unwrap();
    let to_here = there.core.add_peer("here", address(1)).unwrap();
    here.core.post(Instant(0), to_there, 1, b"from here").unwrap();
    here.call(Instant(0));
    there.call(Instant(2_000)); // CHALLENGE
    here.call(Instant(4_000)); // HELLO with the cookie
    there.call(Instant(6_000)); // WELCOME: is lost
    let mut lost = 0;
    here.rail.receive(Instant(8_000), &mut |_, _| lost += 1).unwrap();
    assert_eq!(lost, 1);
    network.cut_one_way(address(1), address(2));
    there.core.post(Instant(8_000), to_here, 1, b"first, that arrives").unwrap();
    let mut now = Instant(8_000);
    while there.core.take_failure().is_none() {
        there.call(now);
        if now < Instant(MILLISECOND_NS) {
            here.call(now);
        }
        now = now.plus(MILLISECOND_NS / 10);
    }
    network.heal(address(1), address(2));
    there.core.reset_peer(to_here.0);
    there.core.post(now, to_here, 1, b"second").unwrap();
    let mut arrived = Vec::new();
    for _ in 0..30_000 {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
        arrived.extend(here.read());
        if there.core.take_failure().is_some() {
            // Told; it may be sent once more.
            there.core.reset_peer(to_here.0);
            there.core.post(now, to_here, 1, b"second").unwrap();
        }
    }
    assert!(there.core.is_flushed());
    assert_eq!(arrived.last().map(Vec::as_slice), Some(&b"second"[..]), "{arrived:?}");
}

/// More than there is room for, one after the other, over a network that loses packets.
#[test]
fn peers_that_come_and_leave_never_fill_an_endpoint_and_are_never_mistaken_for_each_other() {
    let options = LinkOptions { latency_ns: 1000, loss: 0.1, ..LinkOptions::default() };
    let network = Network::new(7, options);
    let mut server = host(&network, 1, 1);
    let (mut now, mut seen) = (Instant(0), Vec::new());
    for number in 2..32 {
        let mut client = host(&network, number, number.into());
        let peer = client.core.add_peer("server", address(1)).unwrap();
        client.core.post(now, peer, 1, &[number]).unwrap();
        let (mut source, mut leaving) = (None, false);
        let end = now.plus(10 * TIMEOUT_NS);
        while !leaving || !client.core.has_left() {
            assert!(now < end, "client {number} does not come to an end");
            client.call(now);
            server.call(now);
            while let Some(delivery) = server.core.take(1) {
                let Delivery::Message { source: from, payload } = delivery else { continue };
                assert_eq!(server.core.bytes_of(&payload), [number], "somebody else's message");
                server.core.release_message(payload);
                assert_eq!(server.core.address_of(PeerId(from)), Some(address(number)));
                source = Some(from);
            }
            if !leaving && client.core.is_flushed() {
                client.core.leave(now);
                leaving = true;
            }
            now = now.plus(MILLISECOND_NS / 10);
        }
        assert!(client.core.take_failure().is_none(), "client {number} was not served");
        let source = source.expect("its message has come");
        assert!(!seen.contains(&source), "number {source} was given twice");
        seen.push(source);
        assert!(server.core.peers() <= 4);
    }
    // An answer to the first is one to nobody.
    assert!(server.core.post(now, PeerId(seen[0]), 1, b"?").is_err());
}
