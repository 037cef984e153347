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
    cut_bytes: usize,
    /// When the length of datagrams is probed on some path.
    due: Instant,
    /// That will be soon, whether or not anything else is sent.
    searches: bool,
    /// When a packet was sent whose loss has been looked into.
    asked_about: Instant,
    /// When it last answered a probe of length, which only its process does.
    acked_at: Instant,
    /// The first packet outstanding, of which not even pieces arrive, since then.
    stuck: Option<Stuck>,
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

impl Sizes {
    /// Longest body of a packet that is cut now, bytes.
    #[inline]
    pub(crate) const fn cut_bytes(&self) -> usize {
        self.cut_bytes
    }

    /// When the length of datagrams is probed on some path.
    #[inline]
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether that will be soon, whether or not anything else is sent.
    #[inline]
    pub(crate) const fn searches(&self) -> bool {
        self.searches
    }

    /// The loss of a packet that was sent then is to be looked into. `false` if it has been.
    pub(crate) fn look_into(&mut self, sent_at: Instant) -> bool {
        std::mem::replace(&mut self.asked_about, sent_at) != sent_at
    }

    /// Its process has answered a probe of length.
    pub(crate) fn on_acked(&mut self, now: Instant) {
        self.acked_at = now;
    }

    /// Whether it has done so since then.
    pub(crate) fn has_acked_since(&self, then: Instant) -> bool {
        self.acked_at > then
    }

    /// The first packet outstanding is suspected not to arrive though it is as short as any. Returns since when, ns.
    pub(crate) fn suspect(&mut self, base: Psn, now: Instant) -> u64 {
        let stuck = Stuck::suspect(self.stuck, base, now);
        self.stuck = Some(stuck);
        now.since(stuck.since)
    }
}

/// A packet that does not arrive though it is as short as any.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    base: Psn,
    /// When that was suspected first, and last.
    since: Instant,
    suspected_at: Instant,
}

impl Stuck {
    /// The packet `base` is suspected again, or for the first time.
    fn suspect(before: Option<Stuck>, base: Psn, now: Instant) -> Stuck {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Since when a packet is suspected that was suspected at these times, in tenths of a second.
    fn since(times: &[u64]) -> u64 {
        let suspect =
            |before, tenths: &u64| Some(Stuck::suspect(before, Psn(7), Instant(tenths * SECOND_NS / 10)));
        times.iter().fold(None, suspect).expect("it was suspected").since.0 * 10 / SECOND_NS
    }

    #[test]
    fn a_packet_is_suspected_since_it_first_was_but_for_pauses_and_others() {
        assert_eq!(since(&[5, 10, 19, 28]), 5);
        // The peer was stopped meanwhile.
        assert_eq!(since(&[5, 10, 90, 95]), 90);
        let other = Stuck::suspect(None, Psn(6), Instant(SECOND_NS));
        let now = Instant(SECOND_NS + 1);
        assert_eq!(Stuck::suspect(Some(other), Psn(7), now).since, now);
    }
}
