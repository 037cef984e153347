//! Thousands of clusters, on every processor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tsumugi_sim::{Complaint, ModelsReport, Report, run, run_models};

/// Runs seeds until one complains, and sums their reports up.
fn run_all<R: Default + Send>(
    seeds: u64,
    run: impl Fn(u64) -> Result<R, Box<Complaint>> + Sync,
    add: impl Fn(&mut R, &R) + Sync,
) -> R {
    let next = AtomicU64::new(0);
    let outcomes = Mutex::new((Vec::<Complaint>::new(), R::default()));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let outcome = run(seed);
                    let mut outcomes = outcomes.lock().expect("no thread panics with the lock");
                    match outcome {
                        Ok(report) => add(&mut outcomes.1, &report),
                        Err(complaint) => {
                            outcomes.0.push(*complaint);
                            next.store(seeds, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (complaints, all) = outcomes.into_inner().expect("no thread panics with the lock");
    let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    all
}

#[test]
fn ten_thousand_seeds_keep_every_promise() {
    let all = run_all(10_000, |seed| run(seed, false), Report::add);
    println!("{all:?}");
    // What never happens is not tested: the storm must have been one.
    assert!(
        all.taken > 1_000_000
            && all.failed > 10_000
            && all.stops > 500
            && all.driven > 300_000
            && all.landed > 100_000,
        "{all:?}"
    );
    assert!(all.followed > 100_000 && all.left > 2000, "{all:?}");
}

#[test]
fn four_thousand_seeds_of_all_models_arrive() {
    let all = run_all(4000, run_models, ModelsReport::add);
    println!("{all:?}");
    let ModelsReport { letters, requests, threads, tagged, counters, faults } = all;
    assert!(
        [letters, requests, threads, tagged, counters, faults].iter().all(|count| *count > 200_000),
        "{all:?}"
    );
}

#[test]
fn a_seed_is_the_same_twice() {
    for seed in 0..20 {
        let again = || format!("{:?}", run(seed, false));
        assert_eq!(again(), again());
        let again = || format!("{:?}", run_models(seed));
        assert_eq!(again(), again());
    }
}
