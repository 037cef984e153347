//! The endpoint's clock.

use tsumugi_wire::Instant;

/// Counts nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: std::time::Instant::now() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant(self.origin.elapsed().as_nanos() as u64)
    }
}
