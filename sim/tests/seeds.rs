//! Thousands of clusters, on every processor.

use std::io::{Write, stderr};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tsumugi_sim::{Complaint, Costs, GroupsReport, ModelsReport, Report, run, run_groups, run_models, scale};

/// Seeds beside those that every run takes, and from where on they lie.
const FRESH_SEEDS: u64 = 4_000;
const FRESH_FROM: u64 = 1_000_000;

/// Seeds that have complained before: every one of them has found something.
fn known() -> impl Iterator<Item = u64> {
    let lines = include_str!("../seeds.txt").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let seed = line.split_whitespace().next().and_then(|seed| seed.parse().ok());
        seed.unwrap_or_else(|| panic!("seeds.txt: '{line}' begins with no seed"))
    })
}

/// Runs seeds until one complains, and sums their reports up.
fn run_all<R: Default + Send>(
    seeds: impl Iterator<Item = u64>,
    run: impl Fn(u64) -> Result<R, Box<Complaint>> + Sync,
    add: impl Fn(&mut R, &R) + Sync,
) -> R {
    let seeds: Vec<u64> = seeds.collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new((Vec::<Complaint>::new(), R::default()));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(seed);
                    let mut outcomes = outcomes.lock().expect("no thread panics with the lock");
                    match outcome {
                        Ok(report) => add(&mut outcomes.1, &report),
                        Err(complaint) => {
                            outcomes.0.push(*complaint);
                            next.store(seeds.len(), Ordering::Relaxed);
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
fn three_thousand_seeds_keep_every_promise() {
    let all = run_all((0..3000).chain(known()), |seed| run(seed, false), Report::add);
    println!("{all:?}");
    // What never happens is not tested: the storm must have been one.
    assert!(
        all.taken > 300_000
            && all.failed > 3000
            && all.xoffs > 150
            && all.by_xdp > 90_000
            && all.direct_writes > 30_000,
        "{all:?}"
    );
    assert!(all.followed > 30_000 && all.left > 600, "{all:?}");
    assert!(all.multicasts > 3000 && all.parts > 2 * all.multicasts, "{all:?}");
}

#[test]
fn two_thousand_seeds_of_all_models_arrive() {
    let all = run_all(0..2000, run_models, ModelsReport::add);
    println!("{all:?}");
    let ModelsReport { letters, requests, threads, tagged, counters, collectives, faults } = all;
    assert!(
        [letters, requests, threads, tagged, counters, collectives, faults]
            .iter()
            .all(|count| *count > 100_000),
        "{all:?}"
    );
}

/// Where seeds begin that only this commit runs, and what says so; fixed ones where there is no commit to ask.
fn first_of_commit() -> (u64, String) {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let head = git.output().ok().filter(|output| output.status.success());
    let head = head.and_then(|output| String::from_utf8(output.stdout).ok());
    let place = head.as_deref().and_then(|head| u64::from_str_radix(head.get(..8)?, 16).ok());
    let first = FRESH_FROM + place.unwrap_or(0) * FRESH_SEEDS;
    (first, head.map_or("no commit can be asked".to_owned(), |head| format!("commit {}", head.trim())))
}

#[test]
fn ten_thousand_seeds_of_groups_keep_every_barrier() {
    let all = run_all(0..10_000, run_groups, GroupsReport::add);
    println!("{all:?}");
    let GroupsReport { left, told, learned, unknown, restarts, .. } = all;
    assert!(left > 500_000 && told > 20_000 && restarts > 10_000, "{all:?}");
    assert!(learned > 1000 && unknown > 50_000, "{all:?}");
}

/// A barrier grows with the layers of the tree, and within a box with the copies that it sends, but not with the members of the tree.
#[test]
fn a_barrier_of_thousands_grows_with_the_depth_of_the_tree() {
    let costs = Costs { link_ns: 1500, packet_ns: 300, copy_ns: 100 };
    let all = scale(&[2, 8, 64, 128, 4096], 3, 64, costs).expect("nothing is broken");
    let of = |members: usize| all.iter().find(|row| row.members == members).expect("it was run").barrier_ns;
    // One box: up, and down to the last of so many.
    for members in [2, 8, 64] {
        let expected = 2 * costs.link_ns + costs.packet_ns + members as u64 * costs.copy_ns;
        assert!(of(members).abs_diff(expected) <= costs.copy_ns * 8, "{members}: {all:?}");
    }
    // Two layers: no more than three times as far, however many.
    assert!(of(4096) <= 3 * of(64) && of(4096) <= 2 * of(128), "{all:?}");
}

#[test]
fn seeds_that_the_commit_decides_keep_every_promise() {
    let (first, why) = first_of_commit();
    // Past the test harness, which shows what is printed only of a test that failed.
    let said = writeln!(stderr(), "fresh seeds: {first}..{} ({why})", first + FRESH_SEEDS);
    said.expect("somebody to tell");
    run_all(first..first + FRESH_SEEDS, |seed| run(seed, false), Report::add);
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
