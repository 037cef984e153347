//! What keeps messages for a peer waiting, and for how long: as the chronograph of Linux's TCP (`ss -ti`).

use tsumugi_proto::sender::Barred;
use tsumugi_wire::Instant;

/// What keeps messages for a peer waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hold {
    /// Nothing waits.
    #[default]
    Nothing = 0,
    /// There is no connection yet.
    Handshake,
    /// See [`Barred`].
    Xoff,
    Credit,
    Bitmap,
    Silence,
    Congestion,
    /// The NIC's queue is full.
    Nic,
    /// Anything else: what is lost goes first, the policy waits for a faster path.
    Other,
}

impl Hold {
    /// Every one with the name that tools print.
    pub(crate) const ALL: [(Hold, &'static str); 9] = [
        (Hold::Nothing, "nothing"),
        (Hold::Handshake, "handshake"),
        (Hold::Xoff, "xoff"),
        (Hold::Credit, "credit"),
        (Hold::Bitmap, "bitmap"),
        (Hold::Silence, "silence"),
        (Hold::Congestion, "congestion"),
        (Hold::Nic, "nic"),
        (Hold::Other, "other"),
    ];

    /// The name that tools print.
    pub(crate) const fn name(self) -> &'static str {
        Hold::ALL[self as usize].1
    }
}

impl From<Option<Barred>> for Hold {
    fn from(barred: Option<Barred>) -> Hold {
        match barred {
            Some(Barred::Xoff) => Hold::Xoff,
            Some(Barred::Credit) => Hold::Credit,
            Some(Barred::Bitmap) => Hold::Bitmap,
            Some(Barred::Silence) => Hold::Silence,
            Some(Barred::Congestion) => Hold::Congestion,
            None => Hold::Other,
        }
    }
}

/// How long each has lasted, ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    current: Hold,
    since: Instant,
    ns: [u64; Hold::ALL.len()],
}

impl Holds {
    /// From now on it is this.
    #[inline]
    pub(crate) fn turn(&mut self, now: Instant, hold: Hold) {
        if hold != self.current {
            self.ns[self.current as usize] += now.since(self.since);
            (self.current, self.since) = (hold, now);
        }
    }

    /// What it is now.
    pub(crate) const fn current(&self) -> Hold {
        self.current
    }

    /// How long each has lasted until now, ns; while nothing waited, nobody counts.
    pub(crate) fn until(&self, now: Instant) -> impl Iterator<Item = (&'static str, u64)> {
        let current = (self.current, now.since(self.since));
        let ns = self.ns;
        Hold::ALL.into_iter().filter(|(hold, _)| *hold != Hold::Nothing).map(move |(hold, name)| {
            let lasting = if hold == current.0 { current.1 } else { 0 };
            (name, ns[hold as usize] + lasting)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_while_it_lasts() {
        let mut holds = Holds::default();
        for (at, hold) in [(10, Hold::Credit), (15, Hold::Credit), (30, Hold::Nic), (37, Hold::Nothing)] {
            holds.turn(Instant(at), hold);
        }
        let at = |now| holds.until(Instant(now)).filter(|(_, ns)| *ns > 0).collect::<Vec<_>>();
        assert_eq!(at(1000), [("credit", 20), ("nic", 7)]);
        holds.turn(Instant(1000), Hold::Congestion);
        let now: Vec<_> = holds.until(Instant(1005)).filter(|(_, ns)| *ns > 0).collect();
        assert_eq!(now, [("credit", 20), ("congestion", 5), ("nic", 7)]);
    }
}
