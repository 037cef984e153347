use super::*;
use proptest::prelude::*;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7411))
}

fn send(rail: &mut SimRail, now: u64, to: u8, body: &[u8]) {
    assert_eq!(rail.send(Instant(now), address(to), &[Packet { head: &[], body }]).unwrap(), 1);
}

fn receive(rail: &mut SimRail, now: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while rail.receive(Instant(now), &mut |_, bytes| all.push(bytes.to_vec())).unwrap() > 0 {}
    all
}

/// Numbers of `count` packets sent in one nanosecond each, as they arrive.
fn run(seed: u64, options: LinkOptions, count: u32) -> (Vec<u32>, Statistics) {
    let network = Network::new(seed, options);
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    let mut arrived = Vec::new();
    for number in 0..count {
        send(&mut a, u64::from(number), 2, &number.to_le_bytes());
    }
    while network.next_delivery() != Instant::NEVER {
        for bytes in receive(&mut b, network.next_delivery().0) {
            arrived.push(u32::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
    (arrived, network.statistics())
}

#[test]
fn a_flawless_link_keeps_order_and_time() {
    let options = LinkOptions { latency_ns: 1000, jitter_ns: 5000, ..LinkOptions::default() };
    assert_eq!(run(1, options, 1000).0, (0..1000).collect::<Vec<u32>>());
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    send(&mut a, 10, 2, b"x");
    assert_eq!(network.next_delivery(), Instant(1010));
    assert_eq!(b.wake_at(), Instant(1010));
    assert_eq!(a.wake_at(), Instant::NEVER);
    assert!(receive(&mut b, 1009).is_empty());
    assert_eq!(receive(&mut b, 1010), [b"x"]);
}

#[test]
fn the_rate_is_kept_and_the_queue_overflows() {
    // 1000 B and 66 B of framing at 8 Gbit/s take 1066 ns.
    let options = LinkOptions {
        latency_ns: 0,
        rate_bits_per_s: 8_000_000_000,
        queue_bytes: 10_000,
        ..LinkOptions::default()
    };
    let network = Network::new(1, options);
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    for _ in 0..20 {
        send(&mut a, 0, 2, &[0; 1000]);
    }
    assert_eq!(receive(&mut b, 1065).len(), 0);
    assert_eq!(receive(&mut b, 1066).len(), 1);
    assert_eq!(receive(&mut b, 1_000_000).len(), 8);
    assert_eq!(network.statistics().queue_full, 11);
}

#[test]
fn chances_come_as_often_as_told() {
    let options =
        LinkOptions { loss: 0.02, duplicate: 0.03, reorder: 0.05, corrupt: 0.01, ..LinkOptions::default() };
    let (arrived, statistics) = run(42, options, 100_000);
    let Statistics { sent, delivered, lost, duplicated, reordered, corrupted, .. } = statistics;
    assert_eq!(sent, 100_000);
    assert_eq!(delivered, sent - lost + duplicated);
    assert_eq!(delivered, arrived.len() as u64);
    // Five standard deviations of a binomial distribution, about 4 √(n p).
    assert!(lost.abs_diff(2000) < 220, "{statistics:?}");
    assert!(duplicated.abs_diff(2940) < 270, "{statistics:?}");
    assert!(reordered.abs_diff(4900) < 350, "{statistics:?}");
    assert!(corrupted.abs_diff(980) < 160, "{statistics:?}");
    assert!(arrived.windows(2).any(|pair| pair[0] > pair[1] && pair[0] - pair[1] < 30_000));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let options =
        LinkOptions { loss: 0.1, duplicate: 0.1, reorder: 0.1, corrupt: 0.1, ..LinkOptions::default() };
    assert_eq!(run(3, options, 500), run(3, options, 500));
    assert_ne!(run(3, options, 500), run(4, options, 500));
}

#[test]
fn corruption_flips_one_bit() {
    let network = Network::new(5, LinkOptions { corrupt: 1.0, ..LinkOptions::default() });
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    for _ in 0..100 {
        send(&mut a, 0, 2, &[0; 64]);
    }
    let received = receive(&mut b, 1_000_000);
    assert_eq!(received.len(), 100);
    assert!(received.iter().all(|bytes| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>() == 1));
}

#[test]
fn a_cut_separates_and_heals_and_knows_directions() {
    let network = Network::new(1, LinkOptions::default());
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    send(&mut a, 0, 2, b"under way");
    network.cut(address(1), address(2));
    send(&mut a, 0, 2, b"lost");
    send(&mut b, 0, 1, b"lost");
    network.heal(address(1), address(2));
    network.cut_one_way(address(2), address(1));
    send(&mut a, 0, 2, b"healed");
    send(&mut b, 0, 1, b"lost");
    assert_eq!(receive(&mut b, 1_000_000), [&b"under way"[..], b"healed"]);
    assert!(receive(&mut a, 1_000_000).is_empty());
    assert_eq!(network.statistics().cut, 3);
}

#[test]
fn a_rail_that_is_gone_gets_nothing_and_its_successor_what_is_under_way() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let mut a = network.rail(address(1), 1472);
    send(&mut a, 0, 2, b"never was");
    let b = network.rail(address(2), 1472);
    send(&mut a, 500, 2, b"crash");
    assert_eq!(network.next_delivery(), Instant(1000));
    assert!(receive(&mut a, 1200).is_empty()); // time passes
    drop(b);
    assert_eq!(network.statistics().nobody, 1, "what had arrived died with the rail");
    assert_eq!(network.next_delivery(), Instant::NEVER);
    send(&mut a, 1300, 2, b"to nobody");
    assert!(receive(&mut a, 2000).is_empty());
    send(&mut a, 2000, 2, b"for the next");
    let mut b = network.rail(address(2), 1472);
    assert_eq!(receive(&mut b, 10_000), [&b"to nobody"[..], b"for the next"]);
    assert_eq!(network.statistics().nobody, 2);
}

#[test]
fn sending_to_nobody_does_not_grow() {
    let network = Network::new(1, LinkOptions::default());
    let mut a = network.rail(address(1), 1472);
    for number in 0..100_000 {
        send(&mut a, number * 1000, 9, &[0; 100]);
    }
    assert!(network.0.borrow().datagrams.len() < 10);
}

#[test]
fn links_can_differ_and_change() {
    let network = Network::new(1, LinkOptions::default());
    let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
    network.set_link(address(1), address(2), Some(LinkOptions { loss: 1.0, ..LinkOptions::default() }));
    send(&mut a, 0, 2, b"lost");
    send(&mut b, 0, 1, b"there");
    network.set_link(address(1), address(2), None);
    send(&mut a, 0, 2, b"found");
    network.set_options(LinkOptions { loss: 1.0, ..LinkOptions::default() });
    send(&mut a, 0, 2, b"lost");
    assert_eq!(receive(&mut b, 1_000_000), [b"found"]);
    assert_eq!(receive(&mut a, 1_000_000), [b"there"]);
}

#[test]
fn long_datagrams_are_lost() {
    let network = Network::new(1, LinkOptions::default());
    let (mut a, mut b) = (network.rail(address(1), 100), network.rail(address(2), 1472));
    send(&mut a, 0, 2, &[0; 101]);
    send(&mut a, 0, 2, &[1; 100]);
    assert_eq!(receive(&mut b, 1_000_000), [[1; 100]]);
    assert_eq!(network.statistics().too_long, 1);
}

#[test]
#[should_panic(expected = "open at 10.0.0.1:7411 already")]
fn two_rails_cannot_share_an_address() {
    let network = Network::new(1, LinkOptions::default());
    let _first = network.rail(address(1), 1472);
    let _second = network.rail(address(1), 1472);
}

proptest! {
    /// However bursts are cut and datagrams coalesced, the bytes are the same, in order.
    #[test]
    fn host_habits_lose_nothing(seed: u64, sizes in proptest::collection::vec(prop_oneof![Just(100usize), 1usize..200], 1..200)) {
        let network = Network::new(seed, LinkOptions::default());
        network.set_host_options(HostOptions { short_burst: 0.5, coalesce: 0.5 });
        let (mut a, mut b) = (network.rail(address(1), 1472), network.rail(address(2), 1472));
        let bodies: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size]).collect();
        let burst: Vec<Packet<'_>> = bodies.iter().map(|body| Packet { head: &body[..1], body: &body[1..] }).collect();
        let mut taken = 0;
        while taken < burst.len() {
            taken += a.send(Instant(0), address(2), &burst[taken..]).unwrap();
        }
        prop_assert_eq!(receive(&mut b, 1_000_000).concat(), bodies.concat());
        prop_assert_eq!(network.statistics().delivered, sizes.len() as u64);
    }
}
