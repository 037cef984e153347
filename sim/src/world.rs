//! What all hosts of a run share: the plan, the network, the ledger, and what each knows of the others.

use crate::addresses::AddressPlan;
use crate::ledger::Ledger;
use crate::memory::Lanes;
use crate::plan::{Mute, Pause, Plan};
use crate::random::Random;
use crate::wire::Wire;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_rail::sim::{LinkOptions, Network, NicOptions, SimRail};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// A host that makes no call for longer is away, ns, and neither answers nor notices anything.
pub(crate) const AWAY_NS: u64 = MILLISECOND_NS;

/// What every host shares.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) network: Network,
    pub(crate) wire: Rc<RefCell<Wire>>,
    pub(crate) ledger: Ledger,
    /// By which hosts are named.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) address_plan: AddressPlan,
    /// What NICs that have changed do, and since when.
    pub(crate) nics: HashMap<(usize, usize), (NicOptions, Instant)>,
    pub(crate) hosts: Vec<HostFacts>,
    /// Bytes that may still be sent.
    pub(crate) bytes_left: u64,
    pub(crate) phase: Phase,
}

/// What there is to know of a host.
pub(crate) struct HostFacts {
    /// Since when it has been making calls; in the future if it is away.
    pub(crate) present_since: Instant,
    /// Epoch of its present incarnation.
    pub(crate) epoch: u32,
    /// When it last began, or ended its connection with each other host.
    pub(crate) changed: Vec<Instant>,
    /// When it last said that it leaves.
    pub(crate) left: Instant,
    /// When its last process ended, and its epoch.
    pub(crate) ended: Option<(Instant, u32)>,
    /// When nothing passes its NIC, where hosts have kernels.
    pub(crate) mutes: Vec<Mute>,
    /// When its process makes no call.
    pub(crate) pauses: Vec<Pause>,
    /// What of its memory others may use.
    pub(crate) lanes: Option<Lanes>,
    /// Tokens of the flows that it takes and can answer in, and since when it could.
    pub(crate) doors: HashMap<u64, Instant>,
}

impl HostFacts {
    /// Of a host that begins, one of `hosts`.
    pub(crate) fn new(plan: &Plan, host: usize, hosts: usize) -> HostFacts {
        HostFacts {
            present_since: Instant(0),
            epoch: 0,
            changed: vec![Instant(0); hosts],
            left: Instant(0),
            ended: None,
            mutes: plan.mutes(host),
            pauses: plan.pauses(host),
            lanes: None,
            doors: HashMap::new(),
        }
    }
}

/// What the run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults and traffic.
    Storm,
    /// Nothing goes wrong any more and nothing new is posted: everything outstanding must be resolved.
    Settling,
    /// Everybody sends everybody one message, which must arrive.
    Recovery,
    /// Everybody leaves.
    Closing,
}

impl World {
    /// Whether a host has a process.
    pub(crate) fn has_process(&self, host: usize) -> bool {
        self.hosts[host].present_since != Instant::NEVER
    }

    /// A rail for a host's process.
    pub(crate) fn rail(&self, host: usize, datagram_bytes: usize) -> SimRail {
        match &self.plan.multirail {
            None => self.network.rail(self.addresses[host], datagram_bytes),
            Some(multirail) => self.network.rail_of(&self.address_plan.nics(host, multirail), datagram_bytes),
        }
    }

    /// One of a host's addresses.
    pub(crate) fn any_address(&self, random: &mut Random, host: usize) -> SocketAddr {
        let all: Vec<SocketAddr> = self.address_plan.addresses(host).collect();
        if all.len() > 1 { random.pick(&all) } else { all[0] }
    }

    /// Makes the networks what they are planned to be, changed by `change`.
    pub(crate) fn set_links(&self, change: impl Fn(LinkOptions) -> LinkOptions) {
        let Some(multirail) = &self.plan.multirail else { return };
        for a in 0..self.address_plan.hosts() {
            for b in (0..self.address_plan.hosts()).filter(|b| *b != a) {
                for (network, here, there) in self.address_plan.common(a, b) {
                    self.network.set_link(here, there, Some(change(multirail.networks[network].link)));
                }
            }
        }
    }

    /// Cuts two hosts apart, but for a network that works all the time.
    pub(crate) fn cut(&self, from: usize, to: usize, one_way: bool) {
        let sound = self.plan.multirail.as_ref().and_then(|multirail| multirail.sound);
        for (network, here, there) in self.address_plan.common(from, to) {
            if Some(network) == sound {
                continue;
            }
            self.network.cut_one_way(here, there);
            if !one_way {
                self.network.cut_one_way(there, here);
            }
        }
    }

    /// Joins two hosts again.
    pub(crate) fn heal(&self, a: usize, b: usize) {
        for (_, here, there) in self.address_plan.common(a, b) {
            self.network.heal(here, there);
        }
    }

    /// Changes what a host's NIC does.
    pub(crate) fn set_nic(&mut self, now: Instant, host: usize, network: usize, options: NicOptions) {
        if let Some(address) = self.address_plan.address_on(host, network) {
            self.network.set_nic(address, options);
            self.nics.insert((host, network), (options, now));
        }
    }

    /// Since when nothing comes through between two hosts on a network; `None`: it does, or they were cut apart by something
    /// else than their NICs. Where one direction is left, answers to something else come over it, and look like signs
    /// of life.
    pub(crate) fn dead_since(&self, a: usize, b: usize, network: usize) -> Option<Instant> {
        let nics = [a, b].into_iter().filter_map(|host| self.nics.get(&(host, network)));
        nics.filter(|(does, _)| !does.sends && !does.receives).map(|(_, since)| *since).min()
    }

    /// From now on all NICs work.
    pub(crate) fn mend_nics(&mut self, now: Instant) {
        let changed: Vec<(usize, usize)> = self.nics.keys().copied().collect();
        for (host, network) in changed {
            self.set_nic(now, host, network, NicOptions::WORKS);
        }
    }
}
