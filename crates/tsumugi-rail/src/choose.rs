//! Which send path sends a burst: the one that was quickest with bursts of its kind.
//!
//! The best send path for a kind of burst differs from machine to machine, by more than a factor of two either way: one
//! saves system calls, another copies less, a third has the kernel segment. So the first bursts of each kind go
//! through each send path in turn, with a clock beside them, and later ones through the winner; now and then the
//! losers are tried again.

use std::time::Instant;

/// Bursts of a kind that each send path sends before one is preferred.
const TRIALS: u32 = 8;
/// Bursts of a kind after which the losers are tried again, and how often each.
const BURSTS_PER_RETRIAL: u32 = 8192;
const RETRIALS: u32 = 2;
/// Most send paths to choose from.
pub(crate) const SEND_PATHS_MAX: usize = 3;
/// Kinds: by number of packets and by length of the first.
const COUNTS: [usize; 3] = [1, 3, 15];
const LENGTHS: [usize; 2] = [256, 1500];
const KINDS: usize = (COUNTS.len() + 1) * (LENGTHS.len() + 1);

/// What is known of one kind of burst.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Shortest time per packet that each send path has taken, ns; a preempted send says nothing.
    best_ns: [u64; SEND_PATHS_MAX],
    trials_left: [u32; SEND_PATHS_MAX],
    winner: usize,
    until_retrial: u32,
}

/// Chooses among send paths, which are numbered from 0.
#[derive(Debug)]
pub(crate) struct Chooser {
    send_paths: usize,
    kinds: [Kind; KINDS],
}

/// A burst that is about to be sent.
#[derive(Debug)]
pub(crate) struct Trial {
    kind: usize,
    /// The send path that is to send it.
    pub(crate) send_path: usize,
    /// When it began, if this is one that is timed.
    begun: Option<Instant>,
}

impl Chooser {
    /// A choice among the first `send_paths`.
    pub(crate) fn new(send_paths: usize) -> Chooser {
        let kind = Kind {
            best_ns: [u64::MAX; SEND_PATHS_MAX],
            trials_left: [TRIALS; SEND_PATHS_MAX],
            winner: 0,
            until_retrial: BURSTS_PER_RETRIAL,
        };
        Chooser { send_paths: send_paths.clamp(1, SEND_PATHS_MAX), kinds: [kind; KINDS] }
    }

    /// Chooses a send path for a burst of that many packets, whose first has that many bytes.
    #[inline]
    pub(crate) fn choose(&mut self, packets: usize, bytes: usize) -> Trial {
        let count = COUNTS.iter().position(|most| packets <= *most).unwrap_or(COUNTS.len());
        let length = LENGTHS.iter().position(|most| bytes <= *most).unwrap_or(LENGTHS.len());
        let number = count * (LENGTHS.len() + 1) + length;
        let kind = &mut self.kinds[number];
        let most_left = (0..self.send_paths)
            .max_by_key(|send_path| (kind.trials_left[*send_path], usize::MAX - send_path));
        match most_left.filter(|send_path| self.send_paths > 1 && kind.trials_left[*send_path] > 0) {
            Some(send_path) => Trial { kind: number, send_path, begun: Some(Instant::now()) },
            None => {
                kind.until_retrial -= 1;
                if kind.until_retrial == 0 {
                    kind.until_retrial = BURSTS_PER_RETRIAL;
                    kind.best_ns = [u64::MAX; SEND_PATHS_MAX];
                    kind.trials_left = [RETRIALS; SEND_PATHS_MAX];
                }
                Trial { kind: number, send_path: kind.winner, begun: None }
            }
        }
    }

    /// The burst was sent: so many of its packets were taken.
    #[inline]
    pub(crate) fn sent(&mut self, trial: &Trial, taken: usize) {
        let Some(begun) = trial.begun else { return };
        let ns = begun.elapsed().as_nanos() as u64 / taken.max(1) as u64;
        self.conclude(trial, if taken == 0 { u64::MAX } else { ns });
    }

    /// The send path cannot reach that peer now.
    pub(crate) fn refused(&mut self, trial: &Trial) {
        self.conclude(trial, u64::MAX);
    }

    fn conclude(&mut self, trial: &Trial, ns: u64) {
        let kind = &mut self.kinds[trial.kind];
        if trial.begun.is_none() {
            return;
        }
        kind.trials_left[trial.send_path] -= 1;
        kind.best_ns[trial.send_path] = kind.best_ns[trial.send_path].min(ns);
        let quickest = (0..self.send_paths).min_by_key(|send_path| kind.best_ns[*send_path]);
        kind.winner = quickest.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many bursts, send path `n` taking `cost_ns[n]` a packet; returns how many went through each.
    fn send(
        chooser: &mut Chooser,
        bursts: usize,
        packets: usize,
        bytes: usize,
        cost_ns: [u64; 3],
    ) -> [usize; 3] {
        let mut through = [0; 3];
        for _ in 0..bursts {
            let trial = chooser.choose(packets, bytes);
            through[trial.send_path] += 1;
            chooser.conclude(&trial, cost_ns[trial.send_path]);
        }
        through
    }

    #[test]
    fn the_quickest_wins_for_each_kind_by_itself() {
        let mut chooser = Chooser::new(3);
        let short = send(&mut chooser, 1000, 1, 100, [900, 700, 800]);
        assert_eq!(short, [8, 984, 8]);
        let long = send(&mut chooser, 1000, 32, 1472, [300, 700, 800]);
        assert_eq!(long, [984, 8, 8]);
    }

    #[test]
    fn losers_get_another_chance() {
        let mut chooser = Chooser::new(2);
        send(&mut chooser, 100, 1, 100, [500, 400, 0]);
        let later = send(&mut chooser, 20_000, 1, 100, [300, 400, 0]);
        assert!(later[0] > 11_000, "{later:?}");
    }

    #[test]
    fn what_reaches_nobody_never_wins() {
        let mut chooser = Chooser::new(2);
        for _ in 0..100 {
            let trial = chooser.choose(1, 100);
            if trial.send_path == 1 { chooser.refused(&trial) } else { chooser.sent(&trial, 1) }
        }
        assert_eq!(chooser.choose(1, 100).send_path, 0);
    }

    #[test]
    fn with_one_send_path_nothing_is_timed() {
        let mut chooser = Chooser::new(1);
        assert!(chooser.choose(1, 100).begun.is_none());
    }
}
