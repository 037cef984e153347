//! What each of our NICs has carried, shown in the control page to whoever looks on (`tsumugi status`).

use super::State;
use crate::endpoint::peer::Peer;
use std::net::IpAddr;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::Instant;
use tsumugi_wire::atomic::Ordering::Relaxed;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::time::MILLISECOND_NS;

/// Time between two looks at what was carried, ns: in calls, and before a sleep of which nobody knows the end.
const SHOW_EVERY_NS: u64 = 100 * MILLISECOND_NS;
const SHOW_BEFORE_SLEEP_NS: u64 = 10 * MILLISECOND_NS;

/// What one of our NICs has carried, over the paths from it to all peers.
#[derive(Clone, Copy, Debug)]
struct Carried {
    ip: IpAddr,
    delivered: u64,
    lost: u64,
    paths: u32,
    silent: u32,
}

/// What our NICs have carried.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    nics: [Option<Carried>; RAILS_MAX],
    shown_at: Option<Instant>,
}

impl Ledger {
    /// The entry of the NIC with this address; there are more addresses than entries where many came and went, or many NICs
    /// have peers in both families.
    fn of(&mut self, ip: IpAddr) -> Option<&mut Carried> {
        let entry = self.nics.iter().position(|nic| nic.is_some_and(|nic| nic.ip == ip));
        let entry = entry.or_else(|| self.nics.iter().position(Option::is_none))?;
        Some(self.nics[entry].get_or_insert(Carried { ip, delivered: 0, lost: 0, paths: 0, silent: 0 }))
    }

    /// Adds what the paths to a peer have delivered and lost since the last time.
    pub(super) fn count(&mut self, peer: &mut Peer) {
        for (path, stats) in peer.paths.iter_mut().zip(peer.sender.paths()) {
            let (delivered, lost) = std::mem::replace(&mut path.counted, (stats.delivered, stats.lost));
            if let Some(carried) = path.nic.and_then(|ip| self.of(ip)) {
                carried.delivered += stats.delivered.saturating_sub(delivered);
                carried.lost += stats.lost.saturating_sub(lost);
                carried.paths += 1;
                carried.silent += u32::from(!stats.is_usable());
            }
        }
    }
}

impl State {
    /// Shows what our NICs have carried, if that was not done for a while.
    pub fn show_rails(&mut self, now: Instant, before_sleep: bool) {
        let every_ns = if before_sleep { SHOW_BEFORE_SLEEP_NS } else { SHOW_EVERY_NS };
        if self.nics.is_empty() || self.ledger.shown_at.is_some_and(|at| now.since(at) < every_ns) {
            return;
        }
        self.ledger.shown_at = Some(now);
        for carried in self.ledger.nics.iter_mut().flatten() {
            (carried.paths, carried.silent) = (0, 0);
        }
        self.peers.iter_mut().for_each(|peer| self.ledger.count(peer));
        for (entry, carried) in self.memory.control().rails.0.iter().zip(&self.ledger.nics) {
            let Some(carried) = carried else { continue };
            let ip = match carried.ip {
                IpAddr::V4(four) => four.to_ipv6_mapped(),
                IpAddr::V6(six) => six,
            };
            let halves = [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64];
            entry.ip.iter().zip(halves).for_each(|(word, half)| word.store(half, Relaxed));
            entry.delivered.store(carried.delivered, Relaxed);
            entry.lost.store(carried.lost, Relaxed);
            entry.paths.store(carried.paths, Relaxed);
            entry.silent.store(carried.silent, Relaxed);
        }
    }
}
