//! Which engine sends a burst: the one that was quickest with bursts of its kind.
//!
//! Which engine is best for what differs from machine to machine, by more than a factor of two either way: one
//! saves system calls, another copies less, a third has the kernel segment. So the first bursts of each kind go
//! through each engine in turn, with a clock beside them, and later ones through the winner; now and then the
//! losers are tried again.

use std::time::Instant;

/// Bursts of a kind that each engine sends before one is preferred.
const TRIALS: u32 = 8;
/// Bursts of a kind after which the losers are tried again, and how often each.
const BURSTS_PER_RETRIAL: u32 = 8192;
const RETRIALS: u32 = 2;
/// Most engines to choose from.
pub(crate) const ENGINES_MAX: usize = 3;
/// Kinds: by number of packets and by length of the first.
const COUNTS: [usize; 3] = [1, 3, 15];
const LENGTHS: [usize; 2] = [256, 1500];
const KINDS: usize = (COUNTS.len() + 1) * (LENGTHS.len() + 1);

/// What is known of one kind of burst.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Shortest time per packet that each engine has taken, ns; a preempted send says nothing.
    best_ns: [u64; ENGINES_MAX],
    trials_left: [u32; ENGINES_MAX],
    winner: usize,
    until_retrial: u32,
}

/// Chooses among engines, which are numbered from 0.
#[derive(Debug)]
pub(crate) struct Chooser {
    engines: usize,
    kinds: [Kind; KINDS],
}

/// A burst that is about to be sent.
#[derive(Debug)]
pub(crate) struct Trial {
    kind: usize,
    /// The engine that is to send it.
    pub(crate) engine: usize,
    /// When it began, if this is one that is timed.
    begun: Option<Instant>,
}

impl Chooser {
    /// A choice among the first `engines`.
    pub(crate) fn new(engines: usize) -> Chooser {
        let kind = Kind {
            best_ns: [u64::MAX; ENGINES_MAX],
            trials_left: [TRIALS; ENGINES_MAX],
            winner: 0,
            until_retrial: BURSTS_PER_RETRIAL,
        };
        Chooser { engines: engines.clamp(1, ENGINES_MAX), kinds: [kind; KINDS] }
    }

    /// Chooses an engine for a burst of so many packets, the first of so many bytes.
    #[inline]
    pub(crate) fn choose(&mut self, packets: usize, bytes: usize) -> Trial {
        let count = COUNTS.iter().position(|most| packets <= *most).unwrap_or(COUNTS.len());
        let length = LENGTHS.iter().position(|most| bytes <= *most).unwrap_or(LENGTHS.len());
        let number = count * (LENGTHS.len() + 1) + length;
        let kind = &mut self.kinds[number];
        let most_left =
            (0..self.engines).max_by_key(|engine| (kind.trials_left[*engine], usize::MAX - engine));
        match most_left.filter(|engine| self.engines > 1 && kind.trials_left[*engine] > 0) {
            Some(engine) => Trial { kind: number, engine, begun: Some(Instant::now()) },
            None => {
                kind.until_retrial -= 1;
                if kind.until_retrial == 0 {
                    kind.until_retrial = BURSTS_PER_RETRIAL;
                    kind.best_ns = [u64::MAX; ENGINES_MAX];
                    kind.trials_left = [RETRIALS; ENGINES_MAX];
                }
                Trial { kind: number, engine: kind.winner, begun: None }
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

    /// The engine cannot reach that peer now.
    pub(crate) fn refused(&mut self, trial: &Trial) {
        self.conclude(trial, u64::MAX);
    }

    fn conclude(&mut self, trial: &Trial, ns: u64) {
        let kind = &mut self.kinds[trial.kind];
        if trial.begun.is_none() {
            return;
        }
        kind.trials_left[trial.engine] -= 1;
        kind.best_ns[trial.engine] = kind.best_ns[trial.engine].min(ns);
        let quickest = (0..self.engines).min_by_key(|engine| kind.best_ns[*engine]);
        kind.winner = quickest.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many bursts, engine `e` taking `cost_ns[e]` a packet; returns how many went through each.
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
            through[trial.engine] += 1;
            chooser.conclude(&trial, cost_ns[trial.engine]);
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
            if trial.engine == 1 { chooser.refused(&trial) } else { chooser.sent(&trial, 1) }
        }
        assert_eq!(chooser.choose(1, 100).engine, 0);
    }

    #[test]
    fn with_one_engine_nothing_is_timed() {
        let mut chooser = Chooser::new(1);
        assert!(chooser.choose(1, 100).begun.is_none());
    }
}
