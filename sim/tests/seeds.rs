//! Ten thousand clusters, on every processor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tsumugi_sim::{Complaint, Report, run};

const SEEDS: u64 = 10_000;

#[test]
fn ten_thousand_seeds_keep_every_promise() {
    let next = AtomicU64::new(0);
    let outcomes = Mutex::new((Vec::<Complaint>::new(), Report::default()));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        break;
                    }
                    let outcome = run(seed, false);
                    let mut outcomes = outcomes.lock().expect("no thread panics with the lock");
                    match outcome {
                        Ok(report) => outcomes.1.add(&report),
                        Err(complaint) => {
                            outcomes.0.push(*complaint);
                            next.store(SEEDS, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (complaints, all) = outcomes.into_inner().expect("no thread panics with the lock");
    let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    println!("{all:?}");
    // What never happens is not tested: the storm must have been one.
    assert!(
        all.taken > 1_000_000 && all.failed > 10_000 && all.stops > 500 && all.driven > 300_000,
        "{all:?}"
    );
    assert!(all.followed > 100_000 && all.left > 2000, "{all:?}");
}

#[test]
fn a_seed_is_the_same_twice() {
    for seed in 0..20 {
        let again = || format!("{:?}", run(seed, false));
        assert_eq!(again(), again());
    }
}
