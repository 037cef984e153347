//! Plans a run. Everything follows from the seed.

mod kernels;
mod multirail;

use crate::plan::{Event, HostPlan, Plan, Reader};
use crate::random::Random;
use tsumugi::internal::EndpointOptions;
use tsumugi::{Integrity, Repeat};
use tsumugi_rail::sim::{HostOptions, LinkOptions};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// Longest message of any run, bytes.
const MESSAGE_BYTES_MAX: u64 = 300 << 10;

/// The plan of a seed.
pub(crate) fn plan(seed: u64) -> Plan {
    let random = &mut Random::new(seed, 1);
    let calm = random.one_in(3);
    let count = random.pick(&[2, 2, 2, 3, 3, 4, 5, 6]);
    let flood = random.one_in(12);
    let ends_at = Instant(random.pick(&[5, 20, 60, 200]) * MILLISECOND_NS);
    let timeout_ns = if calm { 3 * SECOND_NS } else { random.pick(&[50, 100, 300, 2000]) * MILLISECOND_NS };
    let most = if calm { 0.05 } else { random.pick(&[0.02, 0.1, 0.3]) };
    let link = LinkOptions {
        latency_ns: random.pick(&[1, 5, 20, 100]) * MICROSECOND_NS,
        jitter_ns: random.pick(&[0, 0, 2, 50]) * MICROSECOND_NS,
        rate_bits_per_s: random.pick(&[0, 0, 1_000_000_000, 10_000_000_000]),
        queue_bytes: random.pick(&[20_000, 1 << 20]),
        loss: random.share(most),
        duplicate: random.share(most),
        reorder: random.share(4.0 * most),
        corrupt: random.share(most / 2.0),
        ..LinkOptions::default()
    };
    let habits = HostOptions { short_burst: random.share(0.2), coalesce: random.share(0.9) };
    let message_bytes_max = if flood { 8 << 10 } else { random.pick(&[2000, 20_000, MESSAGE_BYTES_MAX]) };
    let hosts = (0..count).map(|_| host(random, timeout_ns, ends_at, flood)).collect();
    let events =
        if calm { calm_events(random, count, ends_at) } else { events(random, count, ends_at, timeout_ns) };
    let mut plan = Plan {
        calm,
        patient: false,
        hosts,
        channels: random.between(1, 3) as u16,
        link,
        habits,
        events,
        ends_at,
        message_bytes_max,
        long_one_in: if flood { 2 } else { random.pick(&[5, 20, 50]) },
        bytes_max: if flood { 4 << 20 } else { 700 << 10 },
        forged_one_in: if random.one_in(2) { random.pick(&[3, 10, 50]) } else { 0 },
        has_kernels: false,
        memory: Random::new(seed, 4).one_in(3),
        has_box: count > 2 && Random::new(seed, 10).one_in(2),
        multirail: None,
    };
    // Chance of its own: the other seeds stay as they are.
    let random = &mut Random::new(seed, 2);
    if random.one_in(2) {
        attach_xdp(random, &mut plan);
    }
    let random = &mut Random::new(seed, 3);
    if random.one_in(4) {
        multirail::apply(random, &mut plan);
    }
    let random = &mut Random::new(seed, 5);
    for host in &mut plan.hosts {
        host.buffer_bytes = random.pick(&[ONE_BUFFER_BYTES as u64, 3500, u64::MAX]) as usize;
    }
    let random = &mut Random::new(seed, 7);
    for host in &mut plan.hosts {
        let left_ns = random.pick(&[0, 0, 0, 1, 50, 1000]) * MILLISECOND_NS;
        // Where the XDP program alone may be there to answer, its answers leave the NIC.
        if !plan.patient && host.computes_ns == 0 {
            host.answers_left_ns = left_ns;
        }
    }
    let random = &mut Random::new(seed, 6);
    if plan.multirail.is_none() && random.one_in(3) {
        change_mtus(random, &mut plan);
    }
    let random = &mut Random::new(seed, 8);
    if !plan.calm && !plan.patient && plan.multirail.is_none() && random.one_in(4) {
        kernels::apply(random, &mut plan);
    }
    plan.has_box &= plan.multirail.is_none();
    let random = &mut Random::new(seed, 9);
    let networks = plan.multirail.iter().flat_map(|multirail| &multirail.networks);
    if plan.link.corrupt == 0.0 && networks.fold(0.0, |most, network| network.link.corrupt.max(most)) == 0.0 {
        // Nothing is altered, and most need no CRC to see that.
        for host in &mut plan.hosts {
            if !random.one_in(4) {
                host.options.integrity = Integrity::Wire;
            }
        }
    }
    plan
}

/// Puts routers between the hosts, or tunnels, that carry less than the hosts' NICs, and not always the same.
fn change_mtus(random: &mut Random, plan: &mut Plan) {
    let always_tells = random.one_in(3);
    for nth in 0..random.between(1, 4) {
        let at = Instant(if nth == 0 && random.one_in(2) { 0 } else { random.below(plan.ends_at.0) });
        let most = random.pick(&[508, 600, 1200, 1300, 1372, 1472, 3000, 9000]);
        let least = most.min(508 + random.below(800));
        let datagram_bytes = random.between(least, most) as usize;
        plan.events.push((at, Event::Mtu { datagram_bytes, tells: always_tells || random.one_in(2) }));
    }
    plan.events.sort_by_key(|(at, _)| *at);
}

/// Attaches XDP programs to the NICs of some hosts.
fn attach_xdp(random: &mut Random, plan: &mut Plan) {
    plan.patient = !plan.calm && random.one_in(4);
    for host in &mut plan.hosts {
        host.uses_xdp = plan.patient || !random.one_in(3);
        if host.uses_xdp {
            host.computes_ns =
                random.pick(&[0, 100 * MICROSECOND_NS, 2 * MILLISECOND_NS, 20 * MILLISECOND_NS]);
        }
    }
    if !plan.calm && random.one_in(2) {
        plan.link.corrupt = 0.0;
    }
    if plan.patient {
        be_patient(random, plan);
    } else {
        for host in 0..plan.hosts.len() {
            if plan.hosts[host].uses_xdp && random.one_in(4) {
                let at = Instant(random.below(plan.ends_at.0));
                plan.events.push((at, Event::Program { host, attached: false }));
                let again = at.plus(random.below(20 * MILLISECOND_NS));
                plan.events.push((again, Event::Program { host, attached: true }));
            }
        }
    }
    plan.events.sort_by_key(|(at, _)| *at);
}

/// Hosts that compute for longer than the time-out, and nothing else that could make one silent.
fn be_patient(random: &mut Random, plan: &mut Plan) {
    let timeout_ns = 50 * MILLISECOND_NS;
    plan.ends_at = Instant(random.pick(&[100, 300]) * MILLISECOND_NS);
    plan.link.loss = plan.link.loss.min(0.02);
    plan.link.corrupt = 0.0;
    plan.link.queue_bytes = 1 << 20;
    plan.habits.short_burst = 0.0;
    plan.events.clear();
    for host in &mut plan.hosts {
        host.options.peer_timeout_ns = timeout_ns;
        host.options.connect_timeout_ns = timeout_ns;
        host.gap_ns = plan.ends_at.0 / 20;
    }
    for _ in 0..random.between(1, 5) {
        let at = Instant(random.below(plan.ends_at.0));
        let host = random.below(plan.hosts.len() as u64) as usize;
        let until = at.plus(random.between(timeout_ns / 2, 3 * timeout_ns));
        plan.events.push((at, Event::Silence { host, until }));
    }
}

/// What a host is like.
fn host(random: &mut Random, timeout_ns: u64, ends_at: Instant, flood: bool) -> HostPlan {
    let slow = flood || random.one_in(4);
    let opens = |random: &mut Random| Instant(if random.one_in(5) { random.below(ends_at.0) } else { 0 });
    HostPlan {
        options: EndpointOptions {
            job: 7,
            accept_unknown: true,
            peers_max: 12,
            repeat: if random.one_in(3) { Repeat::GoBackN } else { Repeat::Selective },
            peer_timeout_ns: timeout_ns,
            connect_timeout_ns: timeout_ns,
            listens: false,
            integrity: Integrity::Crc32c,
            message_bytes_max: MESSAGE_BYTES_MAX,
            receive_bytes: if slow { 64 << 10 } else { random.pick(&[256 << 10, 4 << 20]) },
            send_bytes: random.pick(&[4 << 10, 64 << 10, 1 << 20]),
            datagram_bytes: random.pick(&[508, 1472, 1472, 1472, 3472, 8972]) as usize,
            seed: None,
        },
        queue_bytes: random.pick(&[32 << 10, 32 << 10, 128 << 10]),
        uses_xdp: false,
        buffer_bytes: usize::MAX,
        answers_left_ns: 0,
        computes_ns: 0,
        reader: Reader {
            keep_max: if slow { random.pick(&[20, 1000, 1_000_000]) } else { random.pick(&[0, 0, 5]) }
                as usize,
            keep_ns: if slow { random.between(1, 40) * MILLISECOND_NS } else { 300 * MICROSECOND_NS },
            take_max: random.pick(&[1, 4, 1000]),
            every_ns: random.pick(&[1, 10, 200]) * MICROSECOND_NS,
            opens_at: [opens(random), opens(random), opens(random)],
        },
        call_ns: random.pick(&[300, 2000, 20_000]),
        flushes_acks: random.one_in(2),
        messages: if flood { 2000 } else { random.pick(&[0, 5, 40, 150]) },
        burst_max: if flood { 200 } else { random.pick(&[1, 5, 40]) },
        gap_ns: ends_at.0 / random.pick(&[5, 20, 100]),
        errand_gap_ns: 0,
        sulks_ns: random.pick(&[0, 1, 20]) * MILLISECOND_NS,
    }
}

/// Faults that no peer may give up over: far shorter than the time-out, and never two of them.
fn calm_events(random: &mut Random, count: usize, ends_at: Instant) -> Vec<(Instant, Event)> {
    let mut events = Vec::new();
    let at = Instant(random.below(ends_at.0));
    let long_ns = random.between(1, 300) * MILLISECOND_NS;
    let host = random.below(count as u64) as usize;
    match random.below(3) {
        0 => events.push((at, Event::Silence { host, until: at.plus(long_ns) })),
        1 => {
            let to = (host + 1) % count;
            events.push((at, Event::Cut { from: host, to, one_way: random.one_in(3) }));
            events.push((at.plus(long_ns), Event::Heal { from: host, to }));
        }
        _ => {}
    }
    events
}

/// Faults of every kind, as long as they like.
fn events(random: &mut Random, count: usize, ends_at: Instant, timeout_ns: u64) -> Vec<(Instant, Event)> {
    let mut events = Vec::new();
    for _ in 0..random.between(0, 5) {
        let at = Instant(random.below(ends_at.0));
        let host = random.below(count as u64) as usize;
        let long_ns =
            random.pick(&[timeout_ns / 8, timeout_ns / 2, timeout_ns, 2 * timeout_ns, MILLISECOND_NS]);
        let long_ns = random.between(long_ns / 2, long_ns);
        match random.below(5) {
            0 => events.push((at, Event::Silence { host, until: at.plus(long_ns) })),
            1 => {
                let to = (host + 1 + random.below(count as u64 - 1) as usize) % count;
                events.push((at, Event::Cut { from: host, to, one_way: random.one_in(3) }));
                events.push((at.plus(long_ns), Event::Heal { from: host, to }));
            }
            2 | 3 => {
                let down_ns = random.pick(&[1000, MILLISECOND_NS, long_ns]);
                events.push((at, Event::Stop { host, orderly: random.one_in(3) }));
                events.push((at.plus(down_ns), Event::Start { host }));
            }
            _ => {
                events.push((at, Event::Leave { host }));
                events.push((at.plus(long_ns), Event::Stop { host, orderly: false }));
                events.push((at.plus(long_ns + 1000), Event::Start { host }));
            }
        }
    }
    events.sort_by_key(|(at, _)| *at);
    events
}
