//! How fast one path delivers.

use tsumugi_wire::time::Instant;

/// Measures the packets a second that arrive over a path while there is something under way.
#[derive(Clone, Debug, Default)]
pub(super) struct RateMeter {
    /// Packets a second, smoothed; 0: unknown.
    rate: u64,
    /// Since when arrivals are counted for the rate, and how many there were; `None` before the first after a pause.
    counted_since: Option<Instant>,
    counted: u32,
    /// When something was sent after a pause, and arrivals since then.
    busy_since: Instant,
    busy_counted: u32,
}

impl RateMeter {
    /// Packets a second; `None`: not measured yet.
    pub(super) fn rate(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.rate)
    }

    /// Something is sent after a pause: what arrived before it says nothing about the time after it.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.busy_since, self.busy_counted, self.counted_since) = (now, 0, None);
    }

    pub(super) fn acked(&mut self) {
        self.counted += 1;
        self.busy_counted += 1;
    }

    /// A round has ended. One in which something was always under way tells how fast the path is.
    pub(super) fn end_round(&mut self, now: Instant) {
        if let Some(rate) = self.counted_since.and_then(|since| per_second(self.counted, since, now)) {
            self.smooth(rate);
        }
        (self.counted_since, self.counted) = (Some(now), 0);
    }

    /// Everything under way has arrived: the path was at least so fast.
    pub(super) fn end_burst(&mut self, now: Instant) {
        if let Some(rate) = per_second(self.busy_counted, self.busy_since, now)
            && rate > self.rate
        {
            self.smooth(rate);
        }
    }

    fn smooth(&mut self, rate: u64) {
        self.rate = if self.rate == 0 { rate } else { (7 * self.rate + rate) / 8 };
    }
}

/// Packets a second, when so many arrived since then.
fn per_second(packets: u32, since: Instant, now: Instant) -> Option<u64> {
    (u64::from(packets) * 1_000_000_000).checked_div(now.since(since))
}
