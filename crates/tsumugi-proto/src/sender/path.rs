//! What a sender knows about one path: how long it takes, how much it carries, what it has proved lost.

use tsumugi_wire::time::{Instant, MICROSECOND_NS, MILLISECOND_NS};

/// Round trip assumed before one was measured, ns.
const RTT_NS_INITIAL: u64 = MILLISECOND_NS;
/// Longest round trip that is believed, ns: ten times what a long queue in a cluster costs. More is our own absence,
/// in which the answer waited for us, and would put off every time-out to come.
const RTT_NS_MAX: u64 = 50 * MILLISECOND_NS;
/// Queueing delay that is taken for congestion, ns. The same for all: a flow that came late and has never seen the path
/// empty must not be more patient than the others.
const QUEUE_DELAY_NS_MAX: u64 = MILLISECOND_NS;
/// Share of a round's packets lost that is taken for congestion: one in this many.
/// Below it, with no delay, loss is the wire's and slowing down would not mend it.
const LOSS_ONE_IN: u32 = 20;
/// Fewest losses in a round that say anything about a share.
const LOSSES_MIN: u32 = 3;
/// Congestion window at the beginning, packets.
const CWND_PACKETS_INITIAL: u32 = 64;
/// Smallest congestion window, packets.
const CWND_PACKETS_MIN: u32 = 8;
/// Smallest congestion window that delay alone leads to, packets: less than what a switch's port can queue. A peer's
/// scheduler and other flows cause delay, too, and a window that followed it further down would give way to them for
/// ever. Below it only loss counts.
const CWND_PACKETS_MIN_BY_DELAY: u32 = 64;
/// Growth of the congestion window in a round, packets, once it has been too large. Not a share of it: flows that share
/// a link grow alike and shrink in proportion, and so become equal (AIMD).
const GROWTH_PACKETS: u32 = 4;
/// How long after another path's packets one of this path may arrive before it counts as lost, ns, beside twice the
/// round trip: paths are not equally long, and queues on them neither.
const OVERTAKEN_NS: u64 = 5 * MILLISECOND_NS;
/// A path that was silent for longer may be another link than it was.
const ANOTHER_NS: u64 = 100 * MILLISECOND_NS;
/// Time in which an idle path's measured rate counts for half of what is expected of it, ns.
const FORGET_NS: u64 = 2 * MILLISECOND_NS;
/// Longest queue of reordered packets that is not held against a path, ns, at least.
const REORDER_NS_MIN: u64 = 20 * MICROSECOND_NS;

/// Statistics and congestion window of one path.
///
/// The congestion window follows delay first and loss second: it doubles each round until either says stop,
/// then grows by a few packets a round and shrinks by a quarter. A round is a round trip.
#[derive(Clone, Debug)]
pub struct Path {
    /// Smoothed round trip, ns (RFC 6298).
    pub srtt_ns: u64,
    /// Its variation, ns.
    pub rttvar_ns: u64,
    /// Shortest round trip seen, ns.
    pub rtt_ns_min: u64,
    /// Packets that may be under way.
    pub cwnd_packets: u32,
    /// Packets under way.
    pub in_flight: u32,
    /// Packets found lost, ever.
    pub lost: u64,
    /// Packets that arrived, ever.
    pub delivered: u64,
    /// Speed that the NIC says it has, bits a second; 0: unknown.
    pub speed_bits: u64,
    /// When the newest packet was sent that an answer has just acknowledged.
    pub(super) heard_of: Option<Instant>,
    /// Number and time of the first transmission over it that timed out, since when nothing was heard of it.
    pub(super) doubted: Option<(u64, Instant)>,
    /// Since when nothing is sent over it, until it gives a sign of life.
    suspended_at: Option<Instant>,
    /// Packets a second that arrived over it while there was always something under way; 0: unknown.
    rate: u64,
    /// Since when arrivals are counted for the rate, and how many there were; `None` before the first after a pause.
    counted_since: Option<Instant>,
    counted: u32,
    /// When something was sent after a pause, and arrivals since then.
    busy_since: Instant,
    busy_counted: u32,
    /// Since when nothing is under way.
    idle_since: Instant,
    measured: bool,
    slow_start: bool,
    /// Transmission number and time of the newest packet known to have arrived.
    pub(super) newest: (u64, Instant),
    /// Transmission number of the newest packet that is known to have come there, and to have been refused.
    pub(super) refused: u64,
    round_end: u64,
    round_acked: u32,
    round_lost: u32,
    round_rtt_ns_min: u64,
    round_limited: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            srtt_ns: RTT_NS_INITIAL,
            rttvar_ns: RTT_NS_INITIAL / 2,
            rtt_ns_min: u64::MAX,
            cwnd_packets: CWND_PACKETS_INITIAL,
            in_flight: 0,
            lost: 0,
            delivered: 0,
            speed_bits: 0,
            heard_of: None,
            doubted: None,
            suspended_at: None,
            rate: 0,
            counted_since: None,
            counted: 0,
            busy_since: Instant(0),
            busy_counted: 0,
            idle_since: Instant(0),
            measured: false,
            slow_start: true,
            newest: (0, Instant(0)),
            refused: 0,
            round_end: 0,
            round_acked: 0,
            round_lost: 0,
            round_rtt_ns_min: u64::MAX,
            round_limited: false,
        }
    }
}

impl Path {
    /// A path of which nothing is known but the NIC's speed, bits a second.
    #[must_use]
    pub fn of_speed(speed_bits: u64) -> Path {
        Path { speed_bits, ..Path::default() }
    }

    /// A path that has given no sign of life yet.
    pub(super) fn untried(speed_bits: u64) -> Path {
        Path { suspended_at: Some(Instant(0)), ..Path::of_speed(speed_bits) }
    }

    /// Packets that may still be sent now.
    #[must_use]
    pub const fn room(&self) -> u32 {
        self.cwnd_packets.saturating_sub(self.in_flight)
    }

    /// Whether packets may be sent over it.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.suspended_at.is_none()
    }

    /// Nothing arrives over it any more.
    pub fn suspend(&mut self, now: Instant) {
        self.suspended_at.get_or_insert(now);
    }

    /// It has given a sign of life. After a while it begins as an unknown one.
    pub fn revive(&mut self, now: Instant) {
        if self.suspended_at.take().is_some_and(|since| now.since(since) > ANOTHER_NS) {
            *self = Path {
                in_flight: self.in_flight,
                lost: self.lost,
                delivered: self.delivered,
                speed_bits: self.speed_bits,
                newest: self.newest,
                refused: self.refused,
                ..Path::default()
            };
        }
    }

    /// Packets a second that it delivers, as far as is known.
    #[must_use]
    pub fn rate(&self) -> u64 {
        if self.rate > 0 {
            self.rate
        } else {
            u64::from(self.cwnd_packets) * 1_000_000_000 / self.srtt_ns.max(1)
        }
    }

    /// The rate to expect: what was measured, and more the longer ago that is, or a path that was slow once would never
    /// be tried again.
    #[must_use]
    pub fn rate_expected(&self, now: Instant) -> u64 {
        let idle_ns = if self.in_flight == 0 { now.since(self.idle_since) } else { 0 };
        self.rate().saturating_mul(1 + idle_ns / FORGET_NS)
    }

    /// Round trip when nothing queues, ns.
    #[must_use]
    pub const fn empty_rtt_ns(&self) -> u64 {
        if self.rtt_ns_min == u64::MAX { self.srtt_ns } else { self.rtt_ns_min }
    }

    /// How long a packet may be overtaken by others on other paths before it counts as lost, ns.
    pub(super) fn overtaken_ns(&self) -> u64 {
        2 * self.srtt_ns + 4 * self.rttvar_ns + OVERTAKEN_NS
    }

    /// Takes a measured round trip into account, ns.
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.min(RTT_NS_MAX);
        self.rtt_ns_min = self.rtt_ns_min.min(rtt_ns);
        self.round_rtt_ns_min = self.round_rtt_ns_min.min(rtt_ns);
        if self.measured {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(rtt_ns)) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
        } else {
            self.measured = true;
            self.srtt_ns = rtt_ns;
            self.rttvar_ns = rtt_ns / 2;
        }
    }

    /// How long a packet may be overtaken on this path before it counts as lost, ns, beside a round trip. Four times the
    /// variation, as for a time-out: some packets may pass by a queue in which others wait (another send path, another
    /// queue of the NIC), and the short round trips that they have are not those of the others.
    pub(super) fn reorder_ns(&self) -> u64 {
        (self.srtt_ns / 2).max(4 * self.rttvar_ns).max(REORDER_NS_MIN)
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        if self.in_flight == 0 {
            // What arrived before the pause says nothing about the time after it.
            (self.busy_since, self.busy_counted, self.counted_since) = (now, 0, None);
        }
        self.in_flight += 1;
        self.round_limited |= self.in_flight >= self.cwnd_packets;
    }

    pub(super) fn lost(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.lost += 1;
        self.round_lost += 1;
    }

    /// Packet number `order`, sent at `sent_at`, arrived; `order_next` is the next one to be sent.
    pub(crate) fn acked(
        &mut self,
        now: Instant,
        order: u64,
        sent_at: Instant,
        order_next: u64,
        cwnd_packets_max: u32,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.round_acked += 1;
        self.counted += 1;
        self.busy_counted += 1;
        self.delivered += 1;
        if order >= self.newest.0 {
            self.newest = (order, sent_at);
        }
        if order >= self.round_end {
            self.measure_round(now);
            self.end_round(cwnd_packets_max);
            self.round_end = order_next;
        }
        if self.in_flight == 0 {
            self.idle_since = now;
            self.measure_burst(now);
        }
    }

    /// A round in which something was always under way tells how fast the path is.
    fn measure_round(&mut self, now: Instant) {
        if let Some(rate) = self.counted_since.and_then(|since| rate(self.counted, since, now)) {
            self.rate = if self.rate == 0 { rate } else { (7 * self.rate + rate) / 8 };
        }
        (self.counted_since, self.counted) = (Some(now), 0);
    }

    /// Everything under way has arrived: the path was at least so fast.
    fn measure_burst(&mut self, now: Instant) {
        if let Some(rate) = rate(self.busy_counted, self.busy_since, now)
            && rate > self.rate
        {
            self.rate = if self.rate == 0 { rate } else { (7 * self.rate + rate) / 8 };
        }
    }

    fn end_round(&mut self, cwnd_packets_max: u32) {
        let all = self.round_acked + self.round_lost;
        let lossy = self.round_lost >= LOSSES_MIN && self.round_lost > all / LOSS_ONE_IN;
        let slow = self.round_rtt_ns_min != u64::MAX
            && self.round_rtt_ns_min - self.rtt_ns_min > QUEUE_DELAY_NS_MAX
            && self.cwnd_packets > CWND_PACKETS_MIN_BY_DELAY;
        if lossy || slow {
            let floor = if lossy { CWND_PACKETS_MIN } else { CWND_PACKETS_MIN_BY_DELAY };
            self.slow_start = false;
            self.cwnd_packets = (self.cwnd_packets - self.cwnd_packets / 4).max(floor);
        } else if self.round_limited {
            let growth = if self.slow_start { self.cwnd_packets } else { GROWTH_PACKETS };
            self.cwnd_packets = (self.cwnd_packets + growth).min(cwnd_packets_max);
        }
        self.round_acked = 0;
        self.round_lost = 0;
        self.round_rtt_ns_min = u64::MAX;
        self.round_limited = self.in_flight >= self.cwnd_packets;
    }

    /// Transmission number of the newest packet that is known to have come there, taken or refused.
    pub(super) fn arrived(&self) -> u64 {
        self.newest.0.max(self.refused)
    }

    /// The path has been silent for several time-outs: begin carefully.
    pub(super) fn collapse(&mut self) {
        self.cwnd_packets = (self.cwnd_packets / 2).max(CWND_PACKETS_MIN);
        self.slow_start = true;
    }
}

/// Packets a second, when so many arrived since then.
fn rate(packets: u32, since: Instant, now: Instant) -> Option<u64> {
    (u64::from(packets) * 1_000_000_000).checked_div(now.since(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a full congestion window in which one packet in `loss` is lost and each takes `rtt_ns`.
    fn rounds(path: &mut Path, rounds: u32, loss: u32, rtt_ns: u64) {
        let mut order = path.round_end;
        for _ in 0..rounds {
            let cwnd = path.cwnd_packets;
            for _ in 0..cwnd {
                path.sent(Instant(0));
            }
            path.sample(rtt_ns);
            for packet in 0..cwnd {
                if loss != 0 && packet % loss == loss - 1 {
                    path.lost();
                } else {
                    path.acked(Instant(0), order, Instant(0), order + u64::from(cwnd), 1000);
                }
                order += 1;
            }
        }
    }

    #[test]
    fn it_grows_to_the_limit_on_a_clean_path_and_with_one_loss_in_a_hundred() {
        for loss in [0, 100] {
            let mut path = Path::default();
            rounds(&mut path, 40, loss, 50_000);
            assert_eq!(path.cwnd_packets, 1000, "one in {loss} lost");
        }
    }

    #[test]
    fn it_shrinks_when_a_tenth_is_lost_and_when_the_queue_grows() {
        let mut path = Path::default();
        rounds(&mut path, 10, 0, 50_000);
        rounds(&mut path, 10, 10, 50_000);
        assert!(path.cwnd_packets < 100, "{}", path.cwnd_packets);
        let mut path = Path::default();
        rounds(&mut path, 10, 0, 50_000);
        rounds(&mut path, 10, 0, 5_000_000);
        assert_eq!(path.cwnd_packets, CWND_PACKETS_MIN_BY_DELAY);
    }
}
