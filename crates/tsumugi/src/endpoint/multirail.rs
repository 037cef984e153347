//! Our NICs, the policy by which packets are spread over the paths from them, and what they have carried.

use super::peer::Peer;
use crate::snapshot::NicSnapshot;
use std::net::IpAddr;
use tsumugi_proto::path_policy::{Policy, PolicyChoice};
use tsumugi_rail::{Networks, NicAddress};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::rails::RailAddress;

/// What there is beside the NIC that the endpoint is bound to.
pub(crate) struct Multirail {
    /// The NICs that peers can reach us by, and what is said of them.
    pub(crate) nics: Vec<NicAddress>,
    pub(crate) told: Vec<RailAddress>,
    /// Datagrams over IPv6 are to be as much shorter as its headers are longer.
    pub(crate) is_shorter_over_ipv6: bool,
    pub(crate) networks: Networks,
    pub(crate) ledger: Ledger,
    /// Spreads packets over the paths to a peer.
    pub(crate) policy: Box<dyn Policy>,
}

impl Multirail {
    pub(crate) fn new(repeat: Repeat) -> Multirail {
        Multirail {
            nics: Vec::new(),
            told: Vec::new(),
            is_shorter_over_ipv6: false,
            networks: Networks::default(),
            ledger: Ledger::default(),
            policy: PolicyChoice::default().under(repeat).policy(),
        }
    }
}

/// What our NICs have carried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    nics: [Option<NicSnapshot>; RAILS_MAX],
}

impl Ledger {
    /// The entry of the NIC with this address; there are more addresses than entries where many came and went, or many NICs
    /// have peers in both families.
    fn of(&mut self, ip: IpAddr) -> Option<&mut NicSnapshot> {
        let entry = self.nics.iter().position(|nic| nic.is_some_and(|nic| nic.ip == ip));
        let entry = entry.or_else(|| self.nics.iter().position(Option::is_none))?;
        Some(self.nics[entry].get_or_insert(NicSnapshot { ip, delivered: 0, lost: 0, paths: 0, silent: 0 }))
    }

    /// Adds what the paths to a peer have delivered and lost since the last time.
    pub(crate) fn count(&mut self, peer: &mut Peer) {
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

    /// Begins to count anew which paths there are.
    pub(crate) fn begin(&mut self) {
        for carried in self.nics.iter_mut().flatten() {
            (carried.paths, carried.silent) = (0, 0);
        }
    }

    /// What each NIC has carried.
    pub(crate) fn nics(&self) -> Vec<NicSnapshot> {
        self.nics.iter().flatten().copied().collect()
    }
}
