//! How long a path takes.

use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS};

/// Round trip assumed before one was measured, ns.
const RTT_NS_INITIAL: u64 = MILLISECOND_NS;
/// Longest round trip that is believed, ns: ten times what a long queue in a cluster costs. More is our own absence,
/// in which the answer waited for us, and would put off every time-out to come.
const RTT_NS_MAX: u64 = 50 * MILLISECOND_NS;
/// How long after another path's packets one of this path may arrive before it counts as lost, ns, beside twice the
/// round trip: paths are not equally long, and queues on them neither.
const OVERTAKEN_NS: u64 = 5 * MILLISECOND_NS;
/// Longest queue of reordered packets that is not held against a path, ns, at least.
const REORDER_NS_MIN: u64 = 20 * MICROSECOND_NS;

/// The round trips of one path, by RFC 6298.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// Smoothed round trip, ns.
    pub srtt_ns: u64,
    /// Its variation, ns.
    pub rttvar_ns: u64,
    /// Shortest round trip seen, ns; `u64::MAX` before the first.
    pub min_ns: u64,
    measured: bool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self { srtt_ns: RTT_NS_INITIAL, rttvar_ns: RTT_NS_INITIAL / 2, min_ns: u64::MAX, measured: false }
    }
}

impl RoundTrip {
    /// Takes a measured round trip into account, ns, and returns what of it is believed.
    pub(super) fn sample(&mut self, rtt_ns: u64) -> u64 {
        let rtt_ns = rtt_ns.min(RTT_NS_MAX);
        self.min_ns = self.min_ns.min(rtt_ns);
        if self.measured {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(rtt_ns)) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
        } else {
            self.measured = true;
            self.srtt_ns = rtt_ns;
            self.rttvar_ns = rtt_ns / 2;
        }
        rtt_ns
    }

    /// Round trip when nothing queues, ns.
    #[must_use]
    pub const fn empty_ns(&self) -> u64 {
        if self.min_ns == u64::MAX { self.srtt_ns } else { self.min_ns }
    }

    /// How long a packet may be overtaken by others on other paths before it counts as lost, ns.
    pub(in crate::sender) fn overtaken_ns(&self) -> u64 {
        2 * self.srtt_ns + 4 * self.rttvar_ns + OVERTAKEN_NS
    }

    /// How long a packet may be overtaken on this path before it counts as lost, ns, beside a round trip. Four times the
    /// variation, as for a time-out: some packets may pass by a queue in which others wait (another send path, another
    /// queue of the NIC), and the short round trips that they have are not those of the others.
    pub(in crate::sender) fn reorder_ns(&self) -> u64 {
        (self.srtt_ns / 2).max(4 * self.rttvar_ns).max(REORDER_NS_MIN)
    }
}
