//! What groups promise, over real sockets on the loopback interface, each participant in a thread of its own.

#[path = "../common"]
mod common {
    pub(crate) mod loopback;
    pub(crate) mod process;
}
mod failing;
mod random;
mod site;

use common::loopback::{cluster, in_time, open};
use site::{CHANNEL, together};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tsumugi::collective::{CollectiveError, Group, GroupError, Operation, Reduction};
use tsumugi::{Config, PeerId};

#[test]
fn a_role_of_another_test() {
    if std::env::var_os(common::process::ROLE).is_some() {
        failing::be_killed();
    }
}

/// Longer than anything takes that is not stuck.
const LONG: Duration = Duration::from_secs(30);

#[test]
fn nobody_leaves_a_barrier_before_the_last_has_come() {
    in_time(|| {
        let entered = Arc::new(Mutex::new(vec![0; 4]));
        together(
            4,
            |_| Config::loopback(),
            move |site| {
                let group = site.group(CHANNEL);
                for round in 1..=50 {
                    if site.rank == round % 4 {
                        std::thread::sleep(Duration::from_micros(500));
                    }
                    entered.lock().unwrap()[site.rank] = round;
                    group.barrier().unwrap();
                    assert!(entered.lock().unwrap().iter().all(|other| *other >= round));
                }
            },
        );
    });
}

#[test]
fn who_only_sends_runs_ahead_no_further_than_it_may() {
    in_time(|| {
        together(
            3,
            |_| Config::loopback(),
            |site| {
                let group = site.group(CHANNEL);
                for number in 0..2000u64 {
                    // The others are late, and the root does not wait for them.
                    if site.rank > 0 && number == 0 {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    let mut data = [number * u64::from(site.rank == 0); 100];
                    group.broadcast(0, &mut data).unwrap();
                    assert_eq!(data, [number; 100]);
                }
            },
        );
    });
}

#[test]
fn two_groups_and_their_tasks_do_not_disturb_each_other() {
    in_time(|| {
        together(
            3,
            |_| Config::loopback(),
            |site| {
                let (one, other) = (site.group(CHANNEL), site.group(CHANNEL + 1));
                let own = [site.rank as u64 + 1];
                for round in 0..20 {
                    // In another order at each.
                    let (mut a, mut b) = match (site.rank + round) % 2 {
                        0 => {
                            let a = one.start_allreduce(&own, &Reduction::sum()).unwrap();
                            (a, other.start_allreduce(&own, &Reduction::product()).unwrap())
                        }
                        _ => {
                            let b = other.start_allreduce(&own, &Reduction::product()).unwrap();
                            (one.start_allreduce(&own, &Reduction::sum()).unwrap(), b)
                        }
                    };
                    let both = async { (a.by_ref().await.unwrap(), b.by_ref().await.unwrap()) };
                    assert_eq!(site.endpoint.block_on(both).unwrap(), (vec![6], vec![6]));
                    assert!(matches!(a.wait(), Err(CollectiveError::Spent)));
                }
            },
        );
    });
}

trait ByRef: Sized {
    fn by_ref(&mut self) -> &mut Self {
        self
    }
}

impl<T> ByRef for Operation<T> {}

#[test]
fn a_group_of_one_needs_nobody() {
    let endpoint = open(Config::loopback());
    let group = Group::open(&endpoint, CHANNEL, 0, &[None]).unwrap();
    assert_eq!((group.rank(), group.size()), (0, 1));
    let mut operation = group.start_barrier().unwrap();
    assert_eq!(operation.test().unwrap(), Some(()));
    assert!(matches!(operation.test(), Err(CollectiveError::Spent)));
    let mut data = [1.5, -2.0];
    group.broadcast(0, &mut data).unwrap();
    group.allreduce(&mut data, &Reduction::min()).unwrap();
    assert_eq!(data, [1.5, -2.0]);
    assert_eq!(group.reduce(0, &data, &Reduction::max()).unwrap(), Some(data.to_vec()));
    assert_eq!(group.gather(0, &data).unwrap(), Some(data.to_vec()));
    assert_eq!(group.scatterv(0, &data, &[2]).unwrap(), data);
    assert_eq!(group.all_to_all(&data).unwrap(), data);
    assert_eq!(group.outstanding(), 0);
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let (endpoints, peers) = cluster(3, &Config::loopback());
    let [one, two] = [peers[0][1], peers[0][2]].map(Some);
    let open = |rank, list: &[Option<PeerId>]| Group::open(&endpoints[0], CHANNEL, rank, list).err();
    assert_eq!(open(3, &[None, one, two]), Some(GroupError::NoSuchRank { rank: 3, size: 3 }));
    assert_eq!(open(0, &[]), Some(GroupError::NoSuchRank { rank: 0, size: 0 }));
    assert_eq!(open(1, &[None, one, two]), Some(GroupError::OwnPeer { rank: 1, peer: one.unwrap() }));
    assert_eq!(open(0, &[None, None, two]), Some(GroupError::NoPeer { rank: 1 }));
    assert_eq!(open(0, &[None, one, one]), Some(GroupError::Twice { peer: one.unwrap(), ranks: (1, 2) }));
    let nobody = PeerId(99);
    assert_eq!(open(0, &[None, one, Some(nobody)]), Some(GroupError::NoSuchPeer { rank: 2, peer: nobody }));
    let group = Group::open(&endpoints[0], CHANNEL, 0, &[None, one, two]).unwrap();
    assert!(matches!(open(0, &[None, one, two]), Some(GroupError::Channel(_))));
    let error = group.broadcast(3, &mut [0u8]).unwrap_err();
    assert!(matches!(error, CollectiveError::NoSuchRoot { root: 3, size: 3 }), "{error}");
    assert!(matches!(group.gatherv(0, &[1u8], &[1]), Err(CollectiveError::Lengths { given: 1, size: 3 })));
    assert!(matches!(
        group.gatherv(0, &[1u8], &[2, 0, 0]),
        Err(CollectiveError::DataLength { given: 1, needed: 2 })
    ));
    assert!(matches!(group.scatter(0, &[1u8], 2), Err(CollectiveError::DataLength { given: 1, needed: 6 })));
    assert!(matches!(group.all_to_all(&[1u8, 2]), Err(CollectiveError::Uneven { given: 2, size: 3 })));
    // None of that was started.
    assert_eq!(group.outstanding(), 0);
    let error = group.start_barrier().unwrap().wait_timeout(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, CollectiveError::TimedOut(_)), "{error}");
}

#[test]
fn an_operation_that_is_waited_for_in_vain_goes_on() {
    in_time(|| {
        together(
            2,
            |_| Config::loopback(),
            |site| {
                let group = site.group(CHANNEL);
                let mut operation = group.start_allgather(&[site.rank as u32]);
                if site.rank == 0 {
                    let mut operation = operation.unwrap();
                    let waited = operation.wait_timeout(Duration::from_nanos(1));
                    assert!(matches!(waited, Err(CollectiveError::TimedOut(_)) | Ok(_)), "{waited:?}");
                    if waited.is_err() {
                        assert_eq!(operation.wait_timeout(LONG).unwrap(), [0, 1]);
                    }
                } else {
                    std::thread::sleep(Duration::from_millis(20));
                    assert_eq!(operation.as_mut().unwrap().wait().unwrap(), [0, 1]);
                }
            },
        );
    });
}

#[test]
fn a_search_for_a_box_can_be_tested() {
    in_time(|| {
        together(
            3,
            |_| Config::loopback(),
            |site| {
                let group = site.group(CHANNEL);
                let mut search = group.start_use_switch_box().unwrap();
                assert!(matches!(group.start_barrier(), Err(CollectiveError::Searching)));
                assert!(matches!(group.start_use_switch_box(), Err(CollectiveError::Searching)));
                let has_box = loop {
                    if let Some(has_box) = search.test().unwrap() {
                        break has_box;
                    }
                };
                // All are on one host.
                assert!(!has_box && matches!(search.test(), Err(CollectiveError::Spent)));
                // One that is over has no part in another.
                let mut other = group.start_use_switch_box().unwrap();
                assert!(matches!(search.test(), Err(CollectiveError::Spent)));
                assert!(matches!(group.start_barrier(), Err(CollectiveError::Searching)));
                assert!(!other.wait().unwrap());
                group.barrier().unwrap();
                assert!(!group.use_switch_box().unwrap() && !group.is_counted_by_a_box());
            },
        );
    });
}
