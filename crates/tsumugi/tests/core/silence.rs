//! When a peer of which nothing is heard counts as silent.

use super::{TIMEOUT_NS, address, connected};
use tsumugi::Reason;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// The XDP program answers PROBEs for a process that computes, which hears nothing of the peer meanwhile.
#[test]
fn nobody_is_silent_who_was_not_asked() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let mut now = Instant(MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.core.post(now, peer, 1, b"?").unwrap();
    here.call(now);
    network.heal(address(1), address(2));
    // `here` computes for longer than the time-out.
    now = now.plus(2 * TIMEOUT_NS);
    let end = now.plus(TIMEOUT_NS);
    here.call(now);
    assert!(here.core.take_failure().is_none(), "it was not even asked");
    while now < end {
        now = now.plus(MILLISECOND_NS);
        there.call(now);
        here.call(now);
    }
    assert!(here.core.take_failure().is_none() && here.core.is_flushed());
    // Nobody answers any more, and it asks in time.
    network.cut(address(1), address(2));
    here.core.post(now, peer, 1, b"?").unwrap();
    while now < end.plus(TIMEOUT_NS) {
        assert!(here.core.take_failure().is_none(), "given up too early");
        here.call(now);
        now = here.core.deadline().max(now.plus(1000));
    }
    here.call(now);
    here.call(now.plus(MILLISECOND_NS));
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Silent(..)));
}

/// It may have acknowledged all that was sent to it, and owe nothing but an answer that nobody knows of.
#[test]
fn who_receives_hears_of_a_peer_that_falls_silent_though_nothing_is_outstanding() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, _) = connected(&network);
    let mut now = Instant(MILLISECOND_NS);
    here.read();
    // As long as it is there, nothing is said, and nobody is busy with it.
    let mut calls = 0;
    while now < Instant(10 * TIMEOUT_NS) {
        here.call(now);
        there.call(now.plus(2000));
        here.call(now.plus(4000));
        now = here.core.deadline().min(there.core.deadline()).max(now.plus(5000));
        calls += 1;
    }
    assert!(here.core.take_failure().is_none());
    assert!(calls < 1000, "{calls} calls in {} ms", 10 * TIMEOUT_NS / MILLISECOND_NS);
    network.cut(address(1), address(2));
    let end = now.plus(2 * TIMEOUT_NS);
    let failure = loop {
        assert!(now < end, "nobody says that it is silent");
        here.call(now);
        if let Some(failure) = here.core.take_failure() {
            break failure;
        }
        now = here.core.deadline().max(now.plus(1000));
    };
    assert!(matches!(failure.reason, Reason::Silent(..)), "{failure}");
}
