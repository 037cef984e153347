//! What a sender knows about one path: how long it takes, how much it carries, what it has proved lost.

mod congestion;
mod rate;
mod round_trip;

pub use congestion::Congestion;
pub use round_trip::RoundTrip;

use rate::RateMeter;
use tsumugi_wire::time::{Instant, MILLISECOND_NS};

/// A path that was silent for longer may be another link than it was.
const ANOTHER_NS: u64 = 100 * MILLISECOND_NS;
/// Time in which an idle path's measured rate counts for half of what is expected of it, ns.
const FORGET_NS: u64 = 2 * MILLISECOND_NS;

/// What is known of one path.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// How long it takes.
    pub rtt: RoundTrip,
    /// How much it may carry at a time.
    pub congestion: Congestion,
    rate: RateMeter,
    /// Packets under way.
    pub in_flight: u32,
    /// Since when nothing is under way.
    idle_since: Instant,
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
    /// Transmission number and time of the newest packet known to have arrived.
    pub(super) newest: (u64, Instant),
    /// Transmission number of the newest packet that is known to have come there, and to have been refused.
    pub(super) refused: u64,
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
        self.congestion.cwnd_packets.saturating_sub(self.in_flight)
    }

    /// Whether packets may be sent over it.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.suspended_at.is_none()
    }

    /// For how long nothing has been sent over it, ns; 0: something may be.
    #[must_use]
    pub fn suspended_ns(&self, now: Instant) -> u64 {
        self.suspended_at.map_or(0, |since| now.since(since))
    }

    /// How long ago the newest packet was sent that is known to have arrived over it, ns.
    #[must_use]
    pub const fn unheard_ns(&self, now: Instant) -> u64 {
        now.since(self.newest.1)
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
        let assumed = || u64::from(self.congestion.cwnd_packets) * 1_000_000_000 / self.rtt.srtt_ns.max(1);
        self.rate.rate().unwrap_or_else(assumed)
    }

    /// The rate to expect: what was measured, and more the longer ago that is, or a path that was slow once would never
    /// be tried again.
    #[must_use]
    pub fn rate_expected(&self, now: Instant) -> u64 {
        let idle_ns = if self.in_flight == 0 { now.since(self.idle_since) } else { 0 };
        self.rate().saturating_mul(1 + idle_ns / FORGET_NS)
    }

    /// Takes a measured round trip into account, ns.
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = self.rtt.sample(rtt_ns);
        self.congestion.sample(rtt_ns);
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.rate.begin(now);
        }
        self.in_flight += 1;
        self.congestion.sent(self.in_flight);
    }

    pub(super) fn lost(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.lost += 1;
        self.congestion.lost();
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
        self.delivered += 1;
        self.congestion.acked();
        self.rate.acked();
        if order >= self.newest.0 {
            self.newest = (order, sent_at);
        }
        if self.congestion.is_round_over(order) {
            self.rate.end_round(now);
            self.congestion.end_round(order_next, self.in_flight, self.rtt.min_ns, cwnd_packets_max);
        }
        if self.in_flight == 0 {
            self.idle_since = now;
            self.rate.end_burst(now);
        }
    }

    /// Transmission number of the newest packet that is known to have come there, taken or refused.
    pub(super) fn arrived(&self) -> u64 {
        self.newest.0.max(self.refused)
    }

    /// The path has been silent for several time-outs: begin carefully.
    pub(super) fn collapse(&mut self) {
        self.congestion.collapse();
    }
}
