//! Thousands of groups that switch boxes count for.

use tsumugi_sim::groups::{GroupsReport, run_groups};

#[test]
fn ten_thousand_seeds_keep_every_barrier() {
    let mut all = GroupsReport::default();
    for seed in 0..10_000 {
        match run_groups(seed) {
            Ok(report) => all.add(&report),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{all:?}");
}
