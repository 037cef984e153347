//! How long datagrams over one path may be, and how that is found out (RFC 8899).
//!
//! A path begins with what both ends take and our own kernel's route has room for: on a network that both are on that
//! is right, and nothing is ever probed. It becomes less when our kernel says so (its NIC, a router's ICMP), or when long
//! packets are lost again and again while the peer answers short ones (a *black hole*: something on the path drops
//! them and says nothing). It becomes more only by probes: datagrams of one length at a time that carry nothing, so that
//! their loss harms nobody and is no sign of congestion.

use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN};
use tsumugi_wire::time::{Instant, MILLISECOND_NS, SECOND_NS};

/// What nearly every path carries, bytes (RFC 8899's BASE_PLPMTU): a black hole leaves so much, at first.
pub const BASE_BYTES: usize = 1200;
/// Time in which a probe must be answered, ns, at least. It doubles with each of the same length.
const ANSWER_NS_MIN: u64 = 10 * MILLISECOND_NS;
/// Probes of one length that must be lost before it counts as too long.
const PROBES: u32 = 3;
/// Time after which a path that carries less than both ends take is probed again, ns: routes change.
const RAISE_NS: u64 = 5 * SECOND_NS;
/// Lengths that are not told apart, bytes.
const STEP_BYTES: usize = 16;
/// What paths usually carry, bytes of datagram: jumbo frames, a page, Ethernet, and that in tunnels, over IPv4 and IPv6.
const COMMON: [usize; 12] =
    [DATAGRAM_BYTES_MAX, 8952, 8922, 4052, 1472, 1452, 1432, 1422, 1402, 1392, 1372, 1252];

/// How long datagrams over a path may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// What both ends take.
    ceiling: usize,
    /// Datagrams of this length arrive, as far as is known.
    bytes: usize,
    /// Of this length they do not; beyond the ceiling: nothing is known.
    fails: usize,
    /// What is being probed, and how often it was.
    probed: usize,
    probes: u32,
    /// When the next probe is due; [`Instant::NEVER`]: there is nothing to find.
    due: Instant,
    /// A search has begun and not ended.
    searches: bool,
}

impl PathMtu {
    /// A path between ends that take datagrams of `ceiling` bytes.
    #[must_use]
    pub const fn new(ceiling: usize) -> PathMtu {
        PathMtu {
            ceiling,
            bytes: ceiling,
            fails: ceiling + 1,
            probed: 0,
            probes: 0,
            due: Instant::NEVER,
            searches: false,
        }
    }

    /// Longest datagram that may be sent, bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// When [`PathMtu::probe`] wants to be called.
    #[must_use]
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// Whether a search has begun, which ends soon: it goes on even if nothing else is to be sent.
    #[must_use]
    pub const fn is_searching(&self) -> bool {
        self.searches
    }

    /// Our kernel says that no longer datagrams than these pass. Whether that is news.
    pub fn limit(&mut self, now: Instant, bytes: usize) -> bool {
        let bytes = bytes.max(DATAGRAM_BYTES_MIN);
        if bytes >= self.ceiling {
            return false;
        }
        // That was about a probe: it is not sent again.
        if self.probes > 0 && self.probed > bytes && bytes > self.bytes {
            (self.fails, self.probes, self.due) = (self.fails.min(bytes + 1), 0, now);
        } else if self.probes > 0 && self.probed > bytes {
            self.rest(now);
        }
        if bytes >= self.bytes {
            return false;
        }
        self.bytes = bytes;
        self.rest(now);
        true
    }

    /// Long packets are lost, and nobody says why. Whether there is anything shorter to be tried.
    pub fn on_black_hole(&mut self, now: Instant) -> bool {
        let less = if self.bytes > BASE_BYTES { BASE_BYTES } else { DATAGRAM_BYTES_MIN };
        if self.bytes <= less {
            return false;
        }
        self.bytes = less;
        // It may have been chance: what was is tried first.
        self.fails = self.ceiling + 1;
        (self.probes, self.due, self.searches) = (0, now, true);
        true
    }

    /// Datagrams of so many bytes have arrived. Whether that is news.
    pub fn on_arrived(&mut self, now: Instant, bytes: usize) -> bool {
        if bytes <= self.bytes || bytes > self.ceiling {
            return false;
        }
        self.bytes = bytes;
        if self.fails <= bytes {
            self.fails = self.ceiling + 1;
        }
        (self.probes, self.due, self.searches) = (0, now, true);
        if self.bytes == self.ceiling {
            (self.due, self.searches) = (Instant::NEVER, false);
        }
        true
    }

    /// The length of the probe that is to be sent now, if it is time for one. `rtt_ns`: the path's round trip.
    pub fn probe(&mut self, now: Instant, rtt_ns: u64) -> Option<usize> {
        if now < self.due {
            return None;
        }
        if self.probes == PROBES {
            (self.fails, self.probes) = (self.probed.min(self.fails), 0);
        }
        if self.probes == 0 {
            match self.next() {
                Some(bytes) => self.probed = bytes,
                None => {
                    self.rest(now);
                    return None;
                }
            }
        }
        self.searches = true;
        self.due = now.plus(ANSWER_NS_MIN.max(2 * rtt_ns) << self.probes);
        self.probes += 1;
        Some(self.probed)
    }

    /// Everything is found for now.
    fn rest(&mut self, now: Instant) {
        (self.probes, self.due, self.searches) = (0, now.plus(RAISE_NS), false);
        // The next search begins anew.
        self.fails = self.ceiling + 1;
    }

    /// What to probe next between what arrives and what does not.
    fn next(&self) -> Option<usize> {
        if self.fails > self.ceiling {
            return Some(self.ceiling).filter(|bytes| *bytes > self.bytes);
        }
        if self.fails - self.bytes <= STEP_BYTES {
            return None;
        }
        let mut usual = COMMON.into_iter().filter(|bytes| *bytes > self.bytes && *bytes < self.fails);
        let count = usual.clone().count();
        Some(usual.nth(count / 2).unwrap_or(self.bytes.midpoint(self.fails)))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    /// Searches on a path that carries `carried` bytes until nothing is to be done; returns how long it took, and how many
    /// probes.
    fn search(mtu: &mut PathMtu, mut now: Instant, carried: usize) -> (u64, u32) {
        let (begun, mut probes) = (now, 0);
        loop {
            let mut due = mtu.due();
            if due == Instant::NEVER {
                due = now;
            }
            now = now.max(due);
            let Some(bytes) = mtu.probe(now, 50_000) else { return (now.since(begun), probes) };
            probes += 1;
            assert!(probes < 200, "{mtu:?}");
            if bytes <= carried {
                mtu.on_arrived(now, bytes);
            }
        }
    }

    #[test]
    fn a_path_that_nobody_complains_of_is_never_probed() {
        let mut mtu = PathMtu::new(1472);
        assert_eq!((mtu.bytes(), mtu.due()), (1472, Instant::NEVER));
        assert!(!mtu.limit(Instant(1), 1472) && !mtu.limit(Instant(1), 9000));
        assert_eq!(mtu.due(), Instant::NEVER);
    }

    proptest! {
        #[test]
        fn a_black_hole_is_measured(ceiling in DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX, carried in DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX) {
            let mut mtu = PathMtu::new(ceiling);
            while mtu.bytes() > carried {
                prop_assert!(mtu.on_black_hole(Instant(0)));
            }
            let (took_ns, _) = search(&mut mtu, Instant(0), carried);
            let carried = carried.min(ceiling);
            prop_assert!(mtu.bytes() <= carried && mtu.bytes() + STEP_BYTES >= carried, "{mtu:?}, {carried}");
            prop_assert!(took_ns < SECOND_NS, "{took_ns}");
        }

        #[test]
        fn what_a_router_says_is_believed_and_tried_again_later(said in DATAGRAM_BYTES_MIN..1472, later in DATAGRAM_BYTES_MIN..=1472usize) {
            let mut mtu = PathMtu::new(1472);
            prop_assert!(mtu.limit(Instant(0), said));
            prop_assert_eq!((mtu.bytes(), mtu.due()), (said, Instant(RAISE_NS)));
            prop_assert_eq!(mtu.probe(Instant(RAISE_NS - 1), 0), None);
            search(&mut mtu, Instant(RAISE_NS), later.max(said));
            prop_assert!(mtu.bytes() >= said && mtu.bytes() + STEP_BYTES >= later);
            prop_assert!(mtu.due() > Instant(RAISE_NS));
        }
    }

    #[test]
    fn a_probe_that_a_router_answers_is_not_sent_again() {
        let mut mtu = PathMtu::new(1472);
        mtu.limit(Instant(0), 1372);
        let now = Instant(RAISE_NS);
        assert_eq!(mtu.probe(now, 0), Some(1472));
        assert!(!mtu.limit(now, 1372), "no news");
        assert_eq!((mtu.bytes(), mtu.due()), (1372, now.plus(RAISE_NS)));
    }

    #[test]
    fn chance_costs_one_probe() {
        let mut mtu = PathMtu::new(8972);
        assert!(mtu.on_black_hole(Instant(0)));
        assert_eq!((mtu.bytes(), mtu.probe(Instant(0), 0)), (BASE_BYTES, Some(8972)));
        assert!(mtu.on_arrived(Instant(1), 8972));
        assert_eq!((mtu.bytes(), mtu.due()), (8972, Instant::NEVER));
    }

    #[test]
    fn there_is_an_end_below() {
        let mut mtu = PathMtu::new(1472);
        assert!(mtu.on_black_hole(Instant(0)) && mtu.on_black_hole(Instant(0)));
        assert_eq!(mtu.bytes(), DATAGRAM_BYTES_MIN);
        assert!(!mtu.on_black_hole(Instant(0)));
        assert!(!mtu.limit(Instant(0), 100));
        assert_eq!(mtu.bytes(), DATAGRAM_BYTES_MIN);
    }
}
