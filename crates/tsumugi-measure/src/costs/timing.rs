//! Times of short things.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::statistics::Percentiles;

/// Time from one sample to the next: about a message's one-way time, so that caches and predictors are as in a
/// conversation and not as in a tight loop.
const PACE: Duration = Duration::from_micros(3);

/// The median, ns; zero where there are no samples.
pub(super) fn median_ns(samples: &mut [u64]) -> f64 {
    Percentiles::of(samples).map_or(0.0, |percentiles| percentiles.p50 as f64)
}

/// What reading the clock adds to an interval, ns: the median of many empty ones.
pub(super) fn clock_ns() -> f64 {
    let empty = |_| {
        let before = Instant::now();
        before.elapsed().as_nanos() as u64
    };
    median_ns(&mut (0..10_001).map(empty).collect::<Vec<_>>())
}

/// Median time of `work`, ns, without reading the clock; `prepare` comes before each and is not timed.
pub(super) fn paced<T>(
    count: usize,
    clock_ns: f64,
    object: &mut T,
    mut prepare: impl FnMut(&mut T),
    mut work: impl FnMut(&mut T),
) -> f64 {
    let mut samples = Vec::with_capacity(count);
    let mut due = Instant::now();
    for _ in 0..count {
        prepare(object);
        due += PACE;
        let mut before = Instant::now();
        while before < due {
            before = Instant::now();
        }
        work(black_box(object));
        samples.push(before.elapsed().as_nanos() as u64);
        // Whoever was interrupted does not make up for it.
        due = due.max(before);
    }
    (median_ns(&mut samples) - clock_ns).max(0.0)
}

/// Two cache lines through which two threads answer each other. Lines are fetched in pairs on some CPUs.
#[derive(Debug, Default)]
pub(super) struct Lines {
    question: Line,
    answer: Line,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// Questions of one sample.
const QUESTIONS: u32 = 64;

impl Lines {
    /// Median one-way time, ns, over `count` samples; the other thread answers.
    pub(super) fn ask(&self, count: u32) -> f64 {
        let mut samples = Vec::with_capacity(count as usize);
        for sample in 0..count {
            let before = Instant::now();
            for question in 1..=QUESTIONS {
                let number = sample * QUESTIONS + question;
                self.question.0.store(number, Ordering::Release);
                while self.answer.0.load(Ordering::Acquire) != number {}
            }
            samples.push(before.elapsed().as_nanos() as u64);
        }
        median_ns(&mut samples) / f64::from(2 * QUESTIONS)
    }

    /// The other side of [`Lines::ask`].
    pub(super) fn answer(&self, count: u32) {
        for number in 1..=count * QUESTIONS {
            while self.question.0.load(Ordering::Acquire) != number {}
            self.answer.0.store(number, Ordering::Release);
        }
    }
}

/// Keeps this CPU as busy as an endpoint that waits, until `over`.
pub(super) fn wait_busily(over: &std::sync::atomic::AtomicBool) {
    while !over.load(Ordering::Acquire) {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_answer_each_other() {
        let lines = Lines::default();
        let one_way_ns = std::thread::scope(|scope| {
            scope.spawn(|| lines.answer(3));
            lines.ask(3)
        });
        assert!(one_way_ns > 0.0);
    }

    #[test]
    fn work_is_done_as_often_as_asked() {
        let mut done = (0, 0);
        paced(10, 0.0, &mut done, |done| done.0 += 1, |done| done.1 += 1);
        assert_eq!(done, (10, 10));
        assert_eq!(median_ns(&mut []), 0.0);
    }
}
