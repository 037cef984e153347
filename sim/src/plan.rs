//! What a run will be like. Everything follows from the seed.

use crate::evidence;
use crate::multirail::MultirailPlan;
use crate::random::Random;
use tsumugi::internal::EndpointOptions;
use tsumugi::{Policy, Repeat};
use tsumugi_rail::sim::{HostOptions, LinkOptions, NicOptions};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// Longest message of any run, bytes.
const MESSAGE_BYTES_MAX: u64 = 300 << 10;

/// One thing that goes wrong, or gets right again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The host makes no calls until then.
    Silence { host: usize, until: Instant },
    /// What `from` sends to `to` is lost from now on, and the other way round unless `one_way`.
    Cut { from: usize, to: usize, one_way: bool },
    /// The end of a cut.
    Heal { from: usize, to: usize },
    /// The host's process ends; says BYE first if `orderly`, as when it returns from `main`.
    Stop { host: usize, orderly: bool },
    /// A new process begins there.
    Start { host: usize },
    /// Hosts say that they leave, once all is delivered; a new process begins later.
    Leave { host: usize },
    /// The host's XDP program is attached or detached.
    Program { host: usize, attached: bool },
    /// A host's NIC on a network changes.
    Nic { host: usize, network: usize, options: NicOptions },
    /// A host follows another path policy from now on.
    Policy { host: usize, policy: Policy },
    /// What is between the hosts carries datagrams of so many bytes from now on, and says so or not.
    Mtu { datagram_bytes: usize, tells: bool },
}

/// How a host's application reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    /// Messages that it keeps at most.
    pub(crate) keep_max: usize,
    /// How long it keeps each, ns, at most.
    pub(crate) keep_ns: u64,
    /// Messages that it takes in one go, at most.
    pub(crate) take_max: u64,
    /// Time between two goes, ns.
    pub(crate) every_ns: u64,
    /// When it opens its channels.
    pub(crate) opens_at: [Instant; 3],
}

/// What one host is like.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) options: EndpointOptions,
    pub(crate) queue_bytes: u64,
    /// An XDP program deposits what arrives.
    pub(crate) uses_xdp: bool,
    /// Longest datagram that the NIC's driver receives in one buffer, bytes.
    pub(crate) buffer_bytes: usize,
    /// What the XDP program sends back leaves the NIC for so long, ns. For as long after that it does not, and the owner
    /// answers. 0: it always leaves.
    pub(crate) answers_left_ns: u64,
    /// How long the application computes now and then without a call, ns, at most.
    pub(crate) computes_ns: u64,
    pub(crate) reader: Reader,
    /// Time that a call takes, ns, at least: it is not called again before.
    pub(crate) call_ns: u64,
    /// Flushes ACKs before it sleeps.
    pub(crate) flushes_acks: bool,
    /// Messages to send in all.
    pub(crate) messages: u64,
    /// Most messages in a burst.
    pub(crate) burst_max: u64,
    /// Time between two bursts, ns, at most.
    pub(crate) gap_ns: u64,
    /// Time between the beginnings of two errands, ns, at least.
    pub(crate) errand_gap_ns: u64,
    /// How long it lets a failed peer be before it tries again, ns.
    pub(crate) sulks_ns: u64,
}

/// What a run is like.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Nothing happens that may make a peer give up: every message must be delivered.
    pub(crate) calm: bool,
    /// Hosts compute for longer than the time-out, and their XDP programs give signs of life for them: nobody is
    /// silent.
    pub(crate) patient: bool,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) channels: u16,
    pub(crate) link: LinkOptions,
    pub(crate) habits: HostOptions,
    pub(crate) events: Vec<(Instant, Event)>,
    /// When faults and posting stop.
    pub(crate) ends_at: Instant,
    /// Longest message, bytes.
    pub(crate) message_bytes_max: u64,
    /// Share of long messages: one in this many.
    pub(crate) long_one_in: u64,
    /// Bytes that all hosts send together, at most.
    pub(crate) bytes_max: u64,
    /// A datagram that nobody sent arrives with one call in this many; 0: never.
    pub(crate) forged_one_in: u64,
    /// Kernels answer for processes that do not: nobody may be called dead without evidence.
    pub(crate) has_kernels: bool,
    /// Hosts use each other's memory.
    pub(crate) memory: bool,
    /// Hosts have several NICs.
    pub(crate) multirail: Option<MultirailPlan>,
}

/// A probability between 0 and `most`, often 0.
pub(crate) fn share(random: &mut Random, most: f64) -> f64 {
    if random.one_in(3) { 0.0 } else { most * random.below(1000) as f64 / 1000.0 }
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64) -> Plan {
        let random = &mut Random::new(seed, 1);
        let calm = random.one_in(3);
        let count = random.pick(&[2, 2, 2, 3, 3, 4, 5, 6]);
        let flood = random.one_in(12);
        let ends_at = Instant(random.pick(&[5, 20, 60, 200]) * MILLISECOND_NS);
        let timeout_ns =
            if calm { 3 * SECOND_NS } else { random.pick(&[50, 100, 300, 2000]) * MILLISECOND_NS };
        let most = if calm { 0.05 } else { random.pick(&[0.02, 0.1, 0.3]) };
        let link = LinkOptions {
            latency_ns: random.pick(&[1, 5, 20, 100]) * MICROSECOND_NS,
            jitter_ns: random.pick(&[0, 0, 2, 50]) * MICROSECOND_NS,
            rate_bits_per_s: random.pick(&[0, 0, 1_000_000_000, 10_000_000_000]),
            queue_bytes: random.pick(&[20_000, 1 << 20]),
            loss: share(random, most),
            duplicate: share(random, most),
            reorder: share(random, 4.0 * most),
            corrupt: share(random, most / 2.0),
            ..LinkOptions::default()
        };
        let habits = HostOptions { short_burst: share(random, 0.2), coalesce: share(random, 0.9) };
        let message_bytes_max = if flood { 8 << 10 } else { random.pick(&[2000, 20_000, MESSAGE_BYTES_MAX]) };
        let hosts = (0..count).map(|_| HostPlan::new(random, timeout_ns, ends_at, flood)).collect();
        let events = if calm {
            calm_events(random, count, ends_at)
        } else {
            events(random, count, ends_at, timeout_ns)
        };
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
            multirail: None,
        };
        // Chance of its own: the other seeds stay as they are.
        let random = &mut Random::new(seed, 2);
        if random.one_in(2) {
            plan.attach_xdp(random);
        }
        let random = &mut Random::new(seed, 3);
        if random.one_in(4) {
            MultirailPlan::apply(random, &mut plan);
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
            plan.change_mtus(random);
        }
        let random = &mut Random::new(seed, 8);
        if !plan.calm && !plan.patient && plan.multirail.is_none() && random.one_in(4) {
            evidence::apply(random, &mut plan);
        }
        plan
    }

    /// Puts routers between the hosts, or tunnels, that carry less than the hosts' NICs, and not always the same.
    fn change_mtus(&mut self, random: &mut Random) {
        let always_tells = random.one_in(3);
        for nth in 0..random.between(1, 4) {
            let at = Instant(if nth == 0 && random.one_in(2) { 0 } else { random.below(self.ends_at.0) });
            let most = random.pick(&[508, 600, 1200, 1300, 1372, 1472, 3000, 9000]);
            let least = most.min(508 + random.below(800));
            let datagram_bytes = random.between(least, most) as usize;
            self.events.push((at, Event::Mtu { datagram_bytes, tells: always_tells || random.one_in(2) }));
        }
        self.events.sort_by_key(|(at, _)| *at);
    }

    /// Attaches XDP programs to the NICs of some hosts.
    fn attach_xdp(&mut self, random: &mut Random) {
        self.patient = !self.calm && random.one_in(4);
        for host in &mut self.hosts {
            host.uses_xdp = self.patient || !random.one_in(3);
            if host.uses_xdp {
                host.computes_ns =
                    random.pick(&[0, 100 * MICROSECOND_NS, 2 * MILLISECOND_NS, 20 * MILLISECOND_NS]);
            }
        }
        if !self.calm && random.one_in(2) {
            self.link.corrupt = 0.0;
        }
        if self.patient {
            self.be_patient(random);
        } else {
            for host in 0..self.hosts.len() {
                if self.hosts[host].uses_xdp && random.one_in(4) {
                    let at = Instant(random.below(self.ends_at.0));
                    self.events.push((at, Event::Program { host, attached: false }));
                    let again = at.plus(random.below(20 * MILLISECOND_NS));
                    self.events.push((again, Event::Program { host, attached: true }));
                }
            }
        }
        self.events.sort_by_key(|(at, _)| *at);
    }

    /// Hosts that compute for longer than the time-out, and nothing else that could make one silent.
    fn be_patient(&mut self, random: &mut Random) {
        let timeout_ns = 50 * MILLISECOND_NS;
        self.ends_at = Instant(random.pick(&[100, 300]) * MILLISECOND_NS);
        self.link.loss = self.link.loss.min(0.02);
        self.link.corrupt = 0.0;
        self.link.queue_bytes = 1 << 20;
        self.habits.short_burst = 0.0;
        self.events.clear();
        for host in &mut self.hosts {
            host.options.peer_timeout_ns = timeout_ns;
            host.options.connect_timeout_ns = timeout_ns;
            host.gap_ns = self.ends_at.0 / 20;
        }
        for _ in 0..random.between(1, 5) {
            let at = Instant(random.below(self.ends_at.0));
            let host = random.below(self.hosts.len() as u64) as usize;
            let until = at.plus(random.between(timeout_ns / 2, 3 * timeout_ns));
            self.events.push((at, Event::Silence { host, until }));
        }
    }

    /// How long after the last fault everything must be settled, ns.
    pub(crate) fn patience_ns(&self) -> u64 {
        let timeout = self.hosts.iter().map(|host| host.options.peer_timeout_ns).max().unwrap_or(0);
        timeout + SECOND_NS
    }
}

impl HostPlan {
    fn new(random: &mut Random, timeout_ns: u64, ends_at: Instant, flood: bool) -> HostPlan {
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
