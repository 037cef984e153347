//! What was damaged on its way and the XDP program has acknowledged all the same.

use super::{Host, TIMEOUT_NS, address, connected, host};
use tsumugi::Reason;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

/// Two hosts of which the second has a program, for as long as it takes; what the second takes. Everything is damaged that
/// `harm` says.
fn run_xdp_until(
    (here, there): (&mut Host, &mut Host),
    mut now: Instant,
    harm: impl Fn(&Header) -> bool,
    done: impl Fn(&Host, &Host) -> bool,
) -> (Instant, Vec<Vec<u8>>) {
    let (end, mut taken) = (now.plus(4 * TIMEOUT_NS), there.read());
    while !done(here, there) {
        assert!(now < end, "it does not come to an end");
        here.call(now);
        now = now.plus(2000);
        there.run_xdp(now, |bytes| {
            if Header::decode(bytes).is_ok_and(|(header, ..)| harm(&header)) {
                *bytes.last_mut().unwrap() ^= 1;
            }
        });
        there.call(now);
        taken.append(&mut there.read());
        now = now.plus(2000);
    }
    (now, taken)
}

#[test]
fn a_packet_that_was_damaged_and_acknowledged_comes_again() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    assert_eq!(there.read(), [b"hello"]);
    let mut now = Instant(MILLISECOND_NS);
    // Short messages, a long one, and one behind it that waits for its turn.
    let messages: Vec<Vec<u8>> = vec![vec![7; 100], vec![8; 1300], vec![9; 20_000], vec![10; 60]];
    for message in &messages {
        here.core.post(now, peer, 1, message).unwrap();
    }
    here.core.transmit(now, &mut here.rail).unwrap();
    now = now.plus(2000);
    there.run_xdp(now, |bytes| *bytes.last_mut().unwrap() ^= 1);
    // The program has acknowledged all of it, and the process has not run.
    here.call(now.plus(2000));
    assert!(here.core.is_flushed(), "acknowledged by the program");
    let done = |_: &Host, there: &Host| there.core.counters().get("messages_received") == 5;
    let (now, taken) = run_xdp_until((&mut here, &mut there), now.plus(2000), |_| false, done);
    assert_eq!(taken, messages);
    let counters = there.core.counters();
    assert_eq!(counters.get("packets_repaired"), counters.get("corrupt"));
    assert!(counters.get("packets_repaired") > 15 && counters.get("packets_unrepaired") == 0);
    assert!(here.core.take_failure().is_none() && there.core.take_failure().is_none());
    // And what it has compared the sender does not keep.
    let kept = |here: &Host, _: &Host| here.core.unchecked() == 0;
    run_xdp_until((&mut here, &mut there), now, |_| false, kept);
}

/// The question and the answer may be lost, or damaged in their turn.
#[test]
fn a_damaged_packet_is_asked_for_until_it_comes() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, loss: 0.3, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    let messages: Vec<Vec<u8>> = (0..200u8).map(|number| vec![number; 1 + 7 * number as usize]).collect();
    for message in &messages {
        here.core.post(Instant(0), peer, 1, message).unwrap();
    }
    let damaged = std::cell::Cell::new(0);
    let harm = |header: &Header| {
        let harms = header.body_bytes > 0 && header.psn.0.is_multiple_of(3) && damaged.get() < 120;
        damaged.set(damaged.get() + u32::from(harms));
        harms && matches!(header.kind, Kind::Data | Kind::Piece)
    };
    let done = |_: &Host, there: &Host| there.core.counters().get("messages_received") == 200;
    let (_, taken) = run_xdp_until((&mut here, &mut there), Instant(0), harm, done);
    assert_eq!(taken, messages);
    assert!(there.core.counters().get("packets_repaired") > 10);
}

#[test]
fn who_says_good_bye_stays_for_what_was_damaged() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let now = Instant(MILLISECOND_NS);
    for number in 0..3 {
        here.core.post(now, peer, 1, &[number; 1400]).unwrap();
    }
    here.core.transmit(now, &mut here.rail).unwrap();
    there.run_xdp(now.plus(2000), |bytes| *bytes.last_mut().unwrap() ^= 1);
    here.call(now.plus(4000));
    assert!(here.core.is_flushed(), "acknowledged by the program");
    here.core.leave(now.plus(4000));
    let left = |here: &Host, _: &Host| here.core.has_left();
    let (_, taken) = run_xdp_until((&mut here, &mut there), now.plus(4000), |_| false, left);
    assert_eq!(taken, [[0; 1400], [1; 1400], [2; 1400]]);
    assert_eq!(there.core.take_failure().unwrap().reason, Reason::Closed);
}
