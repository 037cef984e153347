//! What is acknowledged, when, and by whom: the process or the XDP program.

use super::{Host, connected, connected_with_datagrams};
use tsumugi::PeerId;
use tsumugi_rail::Rail;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant};

#[test]
fn an_answer_tells_no_more_credit_than_there_is_though_not_all_is_read() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let now = Instant(MILLISECOND_NS);
    // The answer to a packet that the socket brought, which waits.
    here.core.post(now, peer, 1, b"one").unwrap();
    here.core.transmit(now, &mut here.rail).unwrap();
    let later = now.plus(2000);
    let there_rail = &mut there.rail;
    there_rail.receive(later, &mut |from, bytes| there.core.on_datagram(later, from, bytes)).unwrap();
    there.core.flush_acks();
    // And meanwhile others are deposited.
    for _ in 0..5 {
        here.core.post(later, peer, 1, &[0; 1400]).unwrap();
        here.core.transmit(later, &mut here.rail).unwrap();
    }
    there.run_xdp(later.plus(2000), |_| {});
    there.core.transmit(later.plus(2000), &mut there.rail).unwrap();
    let limit = there.core.view(PeerId(0)).unwrap().limit;
    let mut told = 0;
    here.rail
        .receive(later.plus(4000), &mut |_, bytes| {
            let header = Header::decode(bytes).unwrap().0;
            told = told.max(header.ack.0 + u64::from(header.credit));
        })
        .unwrap();
    assert!(told > 0 && told <= limit, "told of credit up to {told}, takes {limit}");
}

#[test]
fn an_acknowledgement_rides_along_with_the_reply_comes_from_xdp_at_once_and_comes_when_somebody_waits_for_it()
{
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let answered = |host: &Host| host.core.counters().get("answers_sent");
    let (before, mut now) = ((answered(&here), answered(&there)), Instant(MILLISECOND_NS));
    for _ in 0..20 {
        here.core.post(now, peer, 1, &[5; 5000]).unwrap();
        here.call(now);
        now = now.plus(2000);
        there.call(now);
        assert_eq!(there.read().pop(), Some(vec![5; 5000]));
        there.core.post(now, PeerId(0), 1, &[6; 5000]).unwrap();
        there.call(now);
        now = now.plus(2000);
        here.call(now);
        assert_eq!(here.read().pop(), Some(vec![6; 5000]));
    }
    assert_eq!((answered(&here), answered(&there)), before, "every reply has brought it");
    here.core.post(now, peer, 1, &[7; 5000]).unwrap();
    here.call(now);
    assert!(!here.core.is_flushed());
    there.run_xdp(now.plus(2000), |_| {});
    here.call(now.plus(4000));
    assert!(here.core.is_flushed(), "nobody has called there");
    here.core.post(now.plus(4000), peer, 1, &[8; 5000]).unwrap();
    here.call(now.plus(4000));
    there.call(now.plus(6000));
    here.call(now.plus(8000));
    assert!(!here.core.is_flushed(), "nobody waits for it");
    let probes = here.core.counters().get("answers_sent");
    for _ in 0..3 {
        here.core.hasten_acks();
        here.call(now.plus(8000));
    }
    there.call(now.plus(10_000));
    here.call(now.plus(12_000));
    assert!(here.core.is_flushed(), "it was asked for");
    assert_eq!(here.core.counters().get("answers_sent"), probes + 1, "once is enough");
}

/// The NIC's driver of `there` receives long packets in several buffers. The XDP program may not send such a frame
/// back.
#[test]
fn long_packets_to_a_process_that_computes_are_acknowledged_by_xdp() {
    // Several packets: a lone one asks for nothing.
    for bytes in [20_000, 26_000] {
        let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
        let (mut here, mut there, peer) = connected_with_datagrams(&network, 8972);
        there.read();
        let mut now = Instant(MILLISECOND_NS);
        let mut took = [0; 3];
        for took_ns in &mut took {
            let begun = now;
            here.core.post(now, peer, 1, &vec![7; bytes]).unwrap();
            while !here.core.is_flushed() {
                here.call(now);
                there.run_xdp(now, |_| {});
                now = now.plus(500);
                assert!(now.since(begun) < 20 * MILLISECOND_NS, "it is never acknowledged");
            }
            *took_ns = now.since(begun);
            there.call(now);
            assert_eq!(there.read().len(), 1);
            now = now.plus(MILLISECOND_NS);
        }
        // The first time it is asked in vain, and then told how to ask.
        assert!(took[1..].iter().all(|ns| *ns <= 5000), "{took:?} ns");
    }
}

#[test]
fn a_process_that_runs_answers_the_long_packets_that_xdp_could_not() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected_with_datagrams(&network, 8972);
    let mut now = Instant(MILLISECOND_NS);
    here.core.post(now, peer, 1, &[7; 20_000]).unwrap();
    here.call(now);
    now = now.plus(1500);
    there.run_xdp(now, |_| {});
    assert!(there.core.has_news());
    there.call(now);
    now = now.plus(1500);
    here.call(now);
    assert!(here.core.is_flushed(), "it waits for a time-out");
}
