//! Who says good-bye, and what was sent about then.

use super::{address, connected};
use tsumugi::Reason;
use tsumugi_rail::Rail;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

#[test]
fn who_leaves_hears_of_what_it_posted_afterwards_and_the_peer_did_not_wait_for() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let now = Instant(MILLISECOND_NS);
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"wait!").unwrap();
    there.call(now.plus(2000));
    here.call(now.plus(4000));
    let failure = here.core.take_failure().unwrap();
    assert_eq!((failure.reason, failure.undelivered), (Reason::Closed, 1));
    assert!(here.core.has_left());
}

#[test]
fn a_bye_that_arrives_after_later_data_is_an_orderly_close() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let now = Instant(MILLISECOND_NS);
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"and this").unwrap();
    here.call(now);
    let mut arrived = Vec::new();
    there.rail.receive(now.plus(2000), &mut |from, bytes| arrived.push((from, bytes.to_vec()))).unwrap();
    let kinds = arrived.iter().map(|(_, bytes)| Header::decode(bytes).unwrap().0.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::Bye, Kind::Data]);
    for (from, bytes) in arrived.iter().rev() {
        there.core.on_datagram(now.plus(2000), *from, bytes);
    }
    assert_eq!(there.read(), [b"and this"]);
    assert_eq!(there.core.take_failure().unwrap().reason, Reason::Closed);
    there.call(now.plus(2000));
    here.call(now.plus(4000));
    assert!(here.core.has_left() && here.core.take_failure().is_none());
    assert!(here.core.was_delivered(peer, 2), "BYE_ACK acknowledged it");
}

#[test]
fn who_leaves_sends_again_what_is_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let mut now = Instant(MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"and this").unwrap();
    here.call(now);
    network.heal(address(1), address(2));
    // Sooner than BYE is said again.
    while now < Instant(15 * MILLISECOND_NS) {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
    }
    assert_eq!(there.read(), [b"and this"]);
    while now < Instant(50 * MILLISECOND_NS) {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
    }
    assert!(here.core.has_left() && here.core.take_failure().is_none());
}

#[test]
fn who_goes_in_the_middle_of_a_message_has_not_closed_in_good_order() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let now = Instant(MILLISECOND_NS);
    here.core.post(now, peer, 1, &vec![7; 1 << 20]).unwrap();
    here.call(now);
    // All that was sent has arrived, and it is not the whole message.
    there.call(now.plus(2000));
    here.core.abort();
    here.call(now.plus(2000));
    there.call(now.plus(4000));
    assert_eq!(there.read(), [[0; 0]; 0]);
    let failure = there.core.take_failure().unwrap();
    assert!(failure.reason == Reason::Aborted && !failure.is_orderly(), "{failure:?}");
}
