//! How long packets to a peer may be.

use super::Peer;
use std::net::SocketAddr;
use tsumugi_proto::path_mtu::PathMtu;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::DATAGRAM_BYTES_MAX;
use tsumugi_wire::time::SECOND_NS;
use tsumugi_wire::{Instant, Psn};

/// Time after which the same packet is suspected again while the peer answers, ns, at most: in between it was silent,
/// because it was stopped or our link was down, and that is no fault of the packet's length.
const STUCK_NS_MAX: u64 = SECOND_NS;

/// How long its packets may be.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Longest body of a packet that is cut now, bytes: what every path in use carries.
    pub(crate) cut_bytes: usize,
    /// When the length of datagrams is probed on some path.
    pub(crate) due: Instant,
    /// That will be soon, whether or not anything else is sent.
    pub(crate) searches: bool,
    /// When a packet was sent whose loss has been looked into.
    pub(crate) asked_about: Instant,
    /// When it last answered a probe of length, which only its process does.
    pub(crate) acked_at: Instant,
    /// The first packet outstanding, of which not even pieces arrive, since then.
    pub(crate) stuck: Option<Stuck>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            cut_bytes: 0,
            due: Instant::NEVER,
            searches: false,
            asked_about: Instant(0),
            acked_at: Instant(0),
            stuck: None,
        }
    }
}

/// A packet that does not arrive though it is as short as any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    pub(crate) base: Psn,
    /// When that was suspected first, and last.
    pub(crate) since: Instant,
    pub(crate) suspected_at: Instant,
}

impl Stuck {
    /// The packet `base` is suspected again, or for the first time.
    pub(crate) fn suspect(before: Option<Stuck>, base: Psn, now: Instant) -> Stuck {
        let goes_on = |it: &Stuck| it.base == base && now.since(it.suspected_at) < STUCK_NS_MAX;
        let since = before.filter(goes_on).map_or(now, |it| it.since);
        Stuck { base, since, suspected_at: now }
    }
}

/// Who said last that a path carries less than both ends take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Our kernel: its NIC's or its route's MTU, or a router's ICMP.
    Kernel,
    /// Nobody: long packets were lost.
    Nobody,
}

impl Peer {
    /// What a path that has just become one carries, as long as nothing else is known.
    pub(crate) fn fresh_mtu(&self, address: SocketAddr) -> PathMtu {
        PathMtu::new(
            self.connection.remote.map_or(DATAGRAM_BYTES_MAX, |remote| remote.datagram_bytes_at(address)),
        )
    }

    /// Cuts packets from now on for the path in use that carries least, so that each may take any of them.
    pub(crate) fn fit(&mut self) {
        let Some(remote) = self.connection.remote else { return };
        let paths = self.paths.iter().zip(self.sender.paths());
        let usable = paths.filter(|(_, stats)| stats.is_usable()).map(|(path, _)| path.mtu);
        let carried = usable.clone().map(|mtu| mtu.bytes()).min().unwrap_or(usize::MAX);
        self.sizes.cut_bytes = carried.min(remote.datagram_bytes()) - HEADER_BYTES;
        self.sizes.searches = usable.clone().any(|mtu| mtu.is_searching());
        self.sizes.due = usable.map(|mtu| mtu.due()).min().unwrap_or(Instant::NEVER);
    }
}

impl Said {
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Said::Kernel => "the kernel says so here (MTU of its NIC or route, or a router's ICMP)",
            Said::Nobody => "longer ones are lost though the peer answers, and nobody says why",
        }
    }

    pub(crate) fn remedy(self, address: SocketAddr) -> String {
        match self {
            Said::Kernel => format!("`ip route get {}` and `tracepath {0}` show where", address.ip()),
            Said::Nobody => format!(
                "`tracepath {}` shows how far long packets come; let that device have the ends' MTU, or let its ICMP pass",
                address.ip()
            ),
        }
    }
}
