//! What finding the receive for a message costs, and the message for a receive, with few and with many entries waiting.
//!
//! ```text
//! taskset -c 1 cargo run --release --example matching_cost
//! ```
//!
//! Pinned to one CPU, so that the scheduler does not move it. Core the load average beside the figures.
//!
//! Each figure is the median over many rounds. The entry that matches is the one put in last, or a different one each time: a
//! list that is searched in order would take as long as it is.

use std::hint::black_box;
use std::time::Instant;
use tsumugi::internal::{Matching, Wanted};

const COUNTS: [u64; 4] = [10, 100, 1_000, 10_000];
const ROUNDS: usize = 201;
/// Matches timed together.
const BATCH: u64 = 1_000;

fn exact(tag: u64) -> Wanted {
    Wanted { source: Some((tag % 7) as u32), tag, ignore: 0 }
}

/// A tag of the `count` that wait, a different one each time, in no order.
fn some(step: u64, count: u64) -> u64 {
    step.wrapping_mul(7_919) % count
}

/// Median time of one of a batch, ns.
fn time(mut step: impl FnMut(u64)) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let started = Instant::now();
            (0..BATCH).for_each(|at| step(round as u64 * BATCH + at));
            started.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// A message matches one of `count` exact receives, which is posted again.
fn posted(count: u64, wild: bool) -> f64 {
    let mut matching = Matching::default();
    for tag in 0..count {
        matching.post(exact(tag), tag);
    }
    if wild {
        // Receives that leave something open and that no message here matches.
        matching.post(Wanted { source: None, tag: u64::MAX, ignore: 0 }, 0);
        matching.post(Wanted { source: Some(9), tag: 0, ignore: u64::MAX }, 0);
        matching.post(Wanted { source: None, tag: 1 << 63, ignore: u64::MAX >> 1 }, 0);
    }
    let matched = time(|step| {
        let tag = some(step, count);
        let receive = matching.arrive((tag % 7) as u32, tag);
        assert_eq!(receive, Some(tag));
        matching.post(exact(tag), tag);
    });
    black_box(&mut matching as &mut Matching<u64, ()>);
    matched
}

/// A receive finds one of `count` unexpected messages, which is kept again.
fn unexpected(count: u64) -> f64 {
    let mut matching = Matching::<(), u64>::default();
    for tag in 0..count {
        matching.keep((tag % 7) as u32, tag, tag);
    }
    time(|step| {
        let tag = some(step, count);
        let message = matching.find(&exact(tag)).and_then(|at| matching.take(at));
        assert_eq!(message, Some(tag));
        matching.keep((tag % 7) as u32, tag, tag);
    })
}

/// A receive is cancelled among `count`, and posted again.
fn cancelled(count: u64) -> f64 {
    let mut matching = Matching::<u64, ()>::default();
    let mut places: Vec<_> = (0..count).map(|tag| matching.post(exact(tag), tag)).collect();
    time(|step| {
        let tag = some(step, count);
        assert_eq!(matching.cancel(places[tag as usize]), Some(tag));
        places[tag as usize] = matching.post(exact(tag), tag);
    })
}

fn main() {
    println!("ns for one match and putting its entry back, by entries that wait");
    print!("{:<42}", "");
    COUNTS.iter().for_each(|count| print!("{count:>9}"));
    println!("  last/first");
    let rows: [(&str, &dyn Fn(u64) -> f64); 4] = [
        ("message matches an exact receive", &|count| posted(count, false)),
        ("… beside three kinds of wildcards", &|count| posted(count, true)),
        ("receive finds an unexpected message", &unexpected),
        ("receive is cancelled", &cancelled),
    ];
    for (name, measure) in rows {
        let times: Vec<f64> = COUNTS.iter().map(|count| measure(*count)).collect();
        print!("{name:<42}");
        times.iter().for_each(|time| print!("{time:>9.0}"));
        println!("{:>10.2}", times[times.len() - 1] / times[0]);
    }
}
