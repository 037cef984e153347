//! How much one path may carry at a time.

use tsumugi_wire::time::MILLISECOND_NS;

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

/// Congestion window of one path.
///
/// It follows delay first and loss second: it doubles each round until either says stop, then grows by a few packets a
/// round and shrinks by a quarter. A round is a round trip.
#[derive(Clone, Debug)]
pub struct Congestion {
    /// Packets that may be under way.
    pub cwnd_packets: u32,
    slow_start: bool,
    /// Transmission number with which the round ends.
    round_end: u64,
    acked: u32,
    lost: u32,
    rtt_ns_min: u64,
    /// Whether a larger window would have been of use in the round.
    limited: bool,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            cwnd_packets: CWND_PACKETS_INITIAL,
            slow_start: true,
            round_end: 0,
            acked: 0,
            lost: 0,
            rtt_ns_min: u64::MAX,
            limited: false,
        }
    }
}

impl Congestion {
    pub(super) fn sample(&mut self, rtt_ns: u64) {
        self.rtt_ns_min = self.rtt_ns_min.min(rtt_ns);
    }

    pub(super) fn sent(&mut self, in_flight: u32) {
        self.limited |= self.limits(in_flight);
    }

    pub(super) fn lost(&mut self) {
        self.lost += 1;
    }

    pub(super) fn acked(&mut self) {
        self.acked += 1;
    }

    /// Whether transmission number `order` is the next round's.
    pub(super) const fn is_round_over(&self, order: u64) -> bool {
        order >= self.round_end
    }

    /// Ends the round: the next one ends with transmission number `order_next`.
    pub(super) fn end_round(
        &mut self,
        order_next: u64,
        in_flight: u32,
        rtt_ns_min: u64,
        cwnd_packets_max: u32,
    ) {
        let all = self.acked + self.lost;
        let lossy = self.lost >= LOSSES_MIN && self.lost > all / LOSS_ONE_IN;
        let slow = self.rtt_ns_min != u64::MAX
            && self.rtt_ns_min - rtt_ns_min > QUEUE_DELAY_NS_MAX
            && self.cwnd_packets > CWND_PACKETS_MIN_BY_DELAY;
        if lossy || slow {
            let floor = if lossy { CWND_PACKETS_MIN } else { CWND_PACKETS_MIN_BY_DELAY };
            self.slow_start = false;
            self.cwnd_packets = (self.cwnd_packets - self.cwnd_packets / 4).max(floor);
        } else if self.limited {
            let growth = if self.slow_start { self.cwnd_packets } else { GROWTH_PACKETS };
            self.cwnd_packets = (self.cwnd_packets + growth).min(cwnd_packets_max);
        }
        self.acked = 0;
        self.lost = 0;
        self.rtt_ns_min = u64::MAX;
        self.limited = self.limits(in_flight);
        self.round_end = order_next;
    }

    /// Whether the window holds packets back; at the beginning, whether the next doubling might (as Linux' TCP has it): what is
    /// sent then need not be acknowledged before the window is half used.
    const fn limits(&self, in_flight: u32) -> bool {
        let enough = if self.slow_start { self.cwnd_packets / 2 } else { self.cwnd_packets };
        in_flight >= enough
    }

    /// The path has been silent for several time-outs: begin carefully.
    pub(super) fn collapse(&mut self) {
        self.cwnd_packets = (self.cwnd_packets / 2).max(CWND_PACKETS_MIN);
        self.slow_start = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Path;
    use super::*;
    use tsumugi_wire::time::Instant;

    /// Rounds of a full congestion window in which one packet in `loss` is lost and each takes `rtt_ns`.
    fn rounds(path: &mut Path, rounds: u32, loss: u32, rtt_ns: u64) {
        let mut order = path.congestion.round_end;
        for _ in 0..rounds {
            let cwnd = path.congestion.cwnd_packets;
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
            assert_eq!(path.congestion.cwnd_packets, 1000, "one in {loss} lost");
        }
    }

    #[test]
    fn it_shrinks_when_a_tenth_is_lost_and_when_the_queue_grows() {
        let mut path = Path::default();
        rounds(&mut path, 10, 0, 50_000);
        rounds(&mut path, 10, 10, 50_000);
        assert!(path.congestion.cwnd_packets < 100, "{}", path.congestion.cwnd_packets);
        let mut path = Path::default();
        rounds(&mut path, 10, 0, 50_000);
        rounds(&mut path, 10, 0, 5_000_000);
        assert_eq!(path.congestion.cwnd_packets, CWND_PACKETS_MIN_BY_DELAY);
    }
}
