//! Runs in which hosts have kernels: processes that stop for long, are killed, or whose hosts fall silent, and links that
//! are down. What may be said of each is in `check/silence.rs`.

use crate::plan::{Event, Plan};
use crate::random::Random;
use tsumugi_rail::sim::NicOptions;
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// Lost datagrams, and damaged ones, at most: a share. A kernel is asked several times before a peer is given up.
const LOSS_MAX: f64 = 0.02;

/// Gives the hosts of a plan kernels, and replaces what goes wrong there by what those are to tell apart.
pub(super) fn apply(random: &mut Random, plan: &mut Plan) {
    plan.has_kernels = true;
    plan.link.loss = plan.link.loss.min(LOSS_MAX);
    plan.link.corrupt = plan.link.corrupt.min(LOSS_MAX);
    plan.link.queue_bytes = 1 << 20;
    plan.habits.short_burst = 0.0;
    let timeout_ns = random.pick(&[300, 300, 1000]) * MILLISECOND_NS;
    for host in &mut plan.hosts {
        host.options.peer_timeout_ns = timeout_ns;
        host.options.connect_timeout_ns = timeout_ns;
        // Somebody else may have the TCP port of its number.
        host.options.listens = !random.one_in(6);
    }
    plan.events.retain(|(_, event)| matches!(event, Event::Mtu { .. } | Event::Program { .. }));
    let uses_xdp = plan.hosts.iter().any(|host| host.uses_xdp);
    // One after the other: what is said of each must be known.
    let mut at = random.below(20 * MILLISECOND_NS);
    for _ in 0..random.between(1, 3) {
        let host = random.below(plan.hosts.len() as u64) as usize;
        let long_ns = random.pick(&[timeout_ns / 3, timeout_ns, 3 * timeout_ns]);
        let long_ns = random.between(long_ns / 2, long_ns);
        let mut until = at + long_ns;
        // An XDP program drops most of what belongs to no flow. A process that was given up, or whose peer has begun
        // anew, is told late, while the kernel says that there is a process.
        match random.below(if uses_xdp { 3 } else { 5 }) {
            0 | 1 => {
                until = at + if random.one_in(4) { 8 * SECOND_NS } else { random.between(2, 4) * timeout_ns };
                plan.events.push((Instant(at), Event::Silence { host, until: Instant(until) }));
            }
            2 => {
                if uses_xdp {
                    until = at + timeout_ns / 4 + SECOND_NS;
                }
                plan.events.push((Instant(at), Event::Stop { host, orderly: random.one_in(4) }));
                plan.events.push((Instant(until), Event::Start { host }));
            }
            kind => {
                let options = if kind == 3 { NicOptions::SILENT } else { NicOptions::UNPLUGGED };
                // Longer than a link that is down is waited for, now and then.
                if kind == 4 && random.one_in(4) {
                    until = at + 12 * timeout_ns;
                }
                plan.events.push((Instant(at), Event::Nic { host, network: 0, options }));
                let options = NicOptions::WORKS;
                plan.events.push((Instant(until), Event::Nic { host, network: 0, options }));
            }
        }
        at = until + random.below(timeout_ns);
    }
    plan.events.sort_by_key(|(at, _)| *at);
    plan.ends_at = plan.ends_at.max(Instant(at));
    for host in &mut plan.hosts {
        host.gap_ns = plan.ends_at.0 / random.pick(&[10, 40]);
        // Such a run lasts for seconds; it need not be busy all the time.
        host.errand_gap_ns = host.gap_ns / 10;
    }
}
