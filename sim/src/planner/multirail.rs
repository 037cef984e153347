//! Runs in which hosts have several NICs: which networks there are, who is on them, and what becomes of them.

use crate::plan::{Event, MultirailHost, MultirailPlan, NetworkPlan, Plan};
use crate::random::Random;
use tsumugi::Policy;
use tsumugi_rail::sim::{LinkOptions, NicOptions};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS};

/// Networks of a run, at most.
const NETWORKS_MAX: u64 = 4;
/// Shortest storm in which NICs come and go, ns.
const STORM_NS_MIN: u64 = 60 * MILLISECOND_NS;
/// What a network loses at most that is called sound: a share of its datagrams.
const SOUND_LOSS_MAX: f64 = 0.01;
/// Longest time that a NIC is away in a run in which nobody may be given up, ns.
const CALM_AWAY_NS_MAX: u64 = 100 * MILLISECOND_NS;

/// Makes a plan one with several NICs to a host.
pub(super) fn apply(random: &mut Random, plan: &mut Plan) {
    lengthen(plan);
    let count = random.between(2, NETWORKS_MAX) as usize;
    let hub = random.below(count as u64) as usize;
    let sound = match random.below(9) {
        0..3 => None,
        3..6 => Some(hub),
        _ => Some(random.below(count as u64) as usize),
    };
    if sound.is_some() {
        // A lone packet that the NIC has no room for is lost, as good as in transit.
        plan.habits.short_burst = plan.habits.short_burst.min(SOUND_LOSS_MAX);
    }
    let networks = (0..count).map(|number| network(random, plan, sound == Some(number))).collect();
    let hosts: Vec<MultirailHost> = plan.hosts.iter().map(|_| host(random, count, hub)).collect();
    let multirail =
        MultirailPlan { networks, connect_on: networks_to_connect_on(random, &hosts), hosts, sound };
    // A patient host may call nobody silent, whatever NICs do.
    if !plan.patient {
        add_flaps(random, &multirail, plan);
    }
    add_policies(random, &multirail, plan);
    plan.events.sort_by_key(|(at, _)| *at);
    plan.multirail = Some(multirail);
}

/// Hosts that change how they spread packets.
fn add_policies(random: &mut Random, multirail: &MultirailPlan, plan: &mut Plan) {
    for _ in 0..random.below(5) {
        let host = random.below(multirail.hosts.len() as u64) as usize;
        if multirail.hosts[host].policy.is_some() {
            let at = Instant(random.below(plan.ends_at.0));
            plan.events.push((at, Event::Policy { host, policy: policy(random) }));
        }
    }
}

/// NICs and networks that go away and come back.
fn add_flaps(random: &mut Random, multirail: &MultirailPlan, plan: &mut Plan) {
    let ends_at = plan.ends_at.0;
    for _ in 0..if plan.calm { random.below(4) } else { random.below(8) } {
        let host = random.below(multirail.hosts.len() as u64) as usize;
        let network = random.pick(&multirail.hosts[host].networks);
        let nics: Vec<(usize, usize)> = match random.below(4) {
            // The switch.
            0 => (0..multirail.hosts.len()).map(|host| (host, network)).collect(),
            // Everything that the host has.
            1 => multirail.hosts[host].networks.iter().map(|network| (host, *network)).collect(),
            _ => vec![(host, network)],
        };
        let times = if random.one_in(4) { random.between(2, 5) } else { 1 };
        let mut at = random.below(ends_at);
        for _ in 0..times {
            let options = away(random);
            let away_ns = away_ns(random, plan);
            for (host, network) in &nics {
                add_flap(multirail, plan, (*host, *network), at, away_ns, options);
            }
            at += away_ns + random.between(1, away_ns);
        }
    }
    // NICs that appear later.
    for host in 0..multirail.hosts.len() {
        for network in &multirail.hosts[host].networks {
            if random.one_in(8) {
                let most = if plan.calm { CALM_AWAY_NS_MAX } else { ends_at };
                add_flap(multirail, plan, (host, *network), 0, random.below(most), NicOptions::UNPLUGGED);
            }
        }
    }
}

/// How long a NIC is away this time, ns.
fn away_ns(random: &mut Random, plan: &Plan) -> u64 {
    let timeout_ns = plan.hosts[0].options.peer_timeout_ns;
    let most =
        random.pick(&[MILLISECOND_NS, 20 * MILLISECOND_NS, CALM_AWAY_NS_MAX, timeout_ns / 2, 2 * timeout_ns]);
    let most = if plan.calm { most.min(CALM_AWAY_NS_MAX) } else { most };
    random.between(most / 2, most)
}

/// A NIC goes away and comes back, unless its network works all the time.
fn add_flap(
    multirail: &MultirailPlan,
    plan: &mut Plan,
    nic: (usize, usize),
    at: u64,
    away_ns: u64,
    options: NicOptions,
) {
    let (host, network) = nic;
    if multirail.sound == Some(network) || !multirail.hosts[host].networks.contains(&network) {
        return;
    }
    plan.events.push((Instant(at), Event::Nic { host, network, options }));
    let options = NicOptions::WORKS;
    plan.events.push((Instant(at + away_ns), Event::Nic { host, network, options }));
}

/// Gives NICs time to come and go, with messages all the while.
fn lengthen(plan: &mut Plan) {
    let longer = STORM_NS_MIN.div_ceil(plan.ends_at.0);
    plan.ends_at = Instant(plan.ends_at.0 * longer);
    for host in &mut plan.hosts {
        host.gap_ns *= longer;
    }
}

fn policy(random: &mut Random) -> Policy {
    random.pick(Policy::ALL)
}

fn network(random: &mut Random, plan: &Plan, sound: bool) -> NetworkPlan {
    let mild = sound || plan.patient;
    let most = match () {
        () if mild => SOUND_LOSS_MAX,
        () if plan.calm => 0.05,
        () => random.pick(&[0.02, 0.1, 0.3]),
    };
    let rate_bits_per_s =
        random.pick(&[0, 100_000_000, 1_000_000_000, 1_000_000_000, 2_500_000_000, 10_000_000_000]);
    let slow = mild || plan.bytes_max > 1 << 20;
    let link = LinkOptions {
        latency_ns: random.pick(&[1, 5, 20, 100]) * MICROSECOND_NS,
        jitter_ns: random.pick(&[0, 0, 2, 50]) * MICROSECOND_NS,
        rate_bits_per_s: if slow && rate_bits_per_s == 100_000_000 { 1_000_000_000 } else { rate_bits_per_s },
        queue_bytes: if plan.patient { 1 << 20 } else { random.pick(&[20_000, 100_000, 1 << 20]) },
        loss: random.share(most),
        duplicate: random.share(most),
        reorder: random.share(4.0 * most),
        corrupt: if mild { 0.0 } else { plan.link.corrupt },
        ..LinkOptions::default()
    };
    let speed_mbits = (link.rate_bits_per_s / 1_000_000) as u32;
    NetworkPlan { link, speed_mbits: random.pick(&[speed_mbits, speed_mbits, 0, 1000]) }
}

/// A host that is on the hub, and on most of the other networks.
fn host(random: &mut Random, count: usize, hub: usize) -> MultirailHost {
    let mut networks: Vec<usize> =
        (0..count).filter(|network| *network == hub || !random.one_in(4)).collect();
    let first = random.below(networks.len() as u64) as usize;
    networks.rotate_left(first);
    let policy = (!random.one_in(8)).then(|| policy(random));
    MultirailHost { networks, policy }
}

/// For each pair of hosts one of the networks that both are on.
fn networks_to_connect_on(random: &mut Random, hosts: &[MultirailHost]) -> Vec<Vec<usize>> {
    let mut connect_on = vec![vec![0; hosts.len()]; hosts.len()];
    for a in 0..hosts.len() {
        for b in 0..a {
            let common = hosts[a].networks.iter().filter(|network| hosts[b].networks.contains(network));
            let network = random.pick(&common.copied().collect::<Vec<_>>());
            (connect_on[a][b], connect_on[b][a]) = (network, network);
        }
    }
    connect_on
}

/// How a NIC is away: cut both ways or one, and its host may or may not know.
fn away(random: &mut Random) -> NicOptions {
    random.pick(&[
        NicOptions::SILENT,
        NicOptions::SILENT,
        NicOptions::UNPLUGGED,
        NicOptions { sends: false, ..NicOptions::WORKS },
        NicOptions { receives: false, ..NicOptions::WORKS },
    ])
}
