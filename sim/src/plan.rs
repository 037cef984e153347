//! What a run is like, as plain data. `planner.rs` makes it.

use tsumugi::Policy;
use tsumugi::internal::EndpointOptions;
use tsumugi_rail::sim::{HostOptions, LinkOptions, NicOptions};
use tsumugi_wire::Instant;
use tsumugi_wire::time::SECOND_NS;

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
    /// A switch box is between the hosts, and they send messages to all others at once.
    pub(crate) has_box: bool,
    /// Hosts have several NICs.
    pub(crate) multirail: Option<MultirailPlan>,
}

/// A network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    /// What it is like from everybody to everybody.
    pub(crate) link: LinkOptions,
    /// Speed that NICs on it say they have, megabits a second; 0: they do not say.
    pub(crate) speed_mbits: u32,
}

/// A host's part.
#[derive(Clone, Debug)]
pub(crate) struct MultirailHost {
    /// Networks that it has a NIC on, in its own order.
    pub(crate) networks: Vec<usize>,
    /// How it spreads packets at first; `None`: it knows of no NICs and uses the one that it connected over.
    pub(crate) policy: Option<Policy>,
}

/// Networks, and who is on them.
#[derive(Clone, Debug)]
pub(crate) struct MultirailPlan {
    pub(crate) networks: Vec<NetworkPlan>,
    pub(crate) hosts: Vec<MultirailHost>,
    /// The network on which each pair of hosts connects: `[from][to]`.
    pub(crate) connect_on: Vec<Vec<usize>>,
    /// This network works all the time, and loses little.
    pub(crate) sound: Option<usize>,
}

/// Time in which nothing passes a host's NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mute {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// Whether its own kernel believes that something does.
    pub(crate) carrier: bool,
}

/// Time in which a process makes no call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Plan {
    /// How long after the last fault everything must be settled, ns.
    pub(crate) fn patience_ns(&self) -> u64 {
        let timeout = self.hosts.iter().map(|host| host.options.peer_timeout_ns).max().unwrap_or(0);
        timeout + SECOND_NS
    }

    /// When nothing passes the NIC of a host, where hosts have kernels.
    pub(crate) fn mutes(&self, host: usize) -> Vec<Mute> {
        if !self.has_kernels {
            return Vec::new();
        }
        let changes = self.events.iter().filter_map(|(at, event)| match event {
            Event::Nic { host: of, options, .. } if *of == host => Some((*at, *options)),
            _ => None,
        });
        let changes: Vec<_> = changes.collect();
        let pairs = changes.windows(2).filter(|pair| pair[0].1 != NicOptions::WORKS);
        pairs.map(|pair| Mute { from: pair[0].0, until: pair[1].0, carrier: pair[0].1.carrier }).collect()
    }

    /// When the process on a host makes no call.
    pub(crate) fn pauses(&self, host: usize) -> Vec<Pause> {
        let pauses = self.events.iter().filter_map(|(from, event)| match event {
            Event::Silence { host: of, until } if *of == host => Some(Pause { from: *from, until: *until }),
            _ => None,
        });
        pauses.collect()
    }
}
