//! What groups promise, over real sockets on the loopback interface, each participant in a thread of its own.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::{cluster, connected, eventually, in_time, open, payload};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use tsumugi::collective::{
    Broken, Collective, CollectiveError, Group, GroupError, Operation, Reduction, Why,
};
use tsumugi::{Config, Endpoint, FaultOptions, PeerId};

const CHANNEL: u16 = 3;
/// Longer than anything takes that is not stuck.
const LONG: Duration = Duration::from_secs(30);

/// Where each participant is.
struct Site {
    endpoint: Endpoint,
    rank: usize,
    peers: Vec<Option<PeerId>>,
}

impl Site {
    fn group(&self, channel: u16) -> Group {
        Group::open(&self.endpoint, channel, self.rank, &self.peers).unwrap()
    }
}

/// Has `size` participants do some work, each in a thread of its own, with an endpoint each, and returns what came of it.
fn together<T: Send + 'static>(
    size: usize,
    config: impl Fn(usize) -> Config + Send + Sync + 'static,
    work: impl Fn(&Site) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let ports = Arc::new((Mutex::new(vec![0; size]), Barrier::new(size)));
    let shared = Arc::new((config, work));
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            let (ports, shared) = (Arc::clone(&ports), Arc::clone(&shared));
            std::thread::spawn(move || {
                let endpoint = open(shared.0(rank));
                ports.0.lock().unwrap()[rank] = endpoint.port();
                ports.1.wait();
                let known = ports.0.lock().unwrap().clone();
                let peer = |(at, port): (usize, &u16)| {
                    (at != rank).then(|| endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap())
                };
                let peers = known.iter().enumerate().map(peer).collect();
                let site = Site { endpoint, rank, peers };
                let outcome = shared.1(&site);
                // Some may have left before.
                let _ = site.endpoint.close();
                outcome
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// The sum of everybody's numbers, bracketed as it is promised to be.
fn sum(inputs: &[Vec<f64>]) -> Vec<f64> {
    let add = |pair: &[Vec<f64>]| -> Vec<f64> {
        pair[1..].iter().fold(pair[0].clone(), |sum, more| sum.iter().zip(more).map(|(a, b)| a + b).collect())
    };
    let pairs = inputs.len() - (1 << inputs.len().ilog2());
    let mut values: Vec<Vec<f64>> = inputs[..2 * pairs].chunks(2).map(add).collect();
    values.extend_from_slice(&inputs[2 * pairs..]);
    while values.len() > 1 {
        values = values.chunks(2).map(add).collect();
    }
    values.remove(0)
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

const OPERATIONS: [Collective; 12] = [
    Collective::Barrier,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::Gather,
    Collective::Gatherv,
    Collective::Allgather,
    Collective::Allgatherv,
    Collective::Scatter,
    Collective::Scatterv,
    Collective::AllToAll,
    Collective::AllToAllv,
];

/// One operation of a program that all participants run.
#[derive(Clone, Debug)]
struct Step {
    operation: Collective,
    number: usize,
    root: usize,
    count: usize,
    lengths: Vec<usize>,
}

fn program(seed: u64, size: usize, steps: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let step = |number| {
        let operation = OPERATIONS[random.random_range(0..OPERATIONS.len())];
        let most = [4, 40, 600, 3000, 20_000][random.random_range(0..5)];
        let lengths = (0..size).map(|_| random.random_range(0..=most / 2)).collect();
        let root = random.random_range(0..size);
        Step { operation, number, root, count: random.random_range(0..=most), lengths }
    };
    (0..steps).map(step).collect()
}

/// What one participant gives, as floating-point numbers.
fn floats(step: &Step, rank: usize) -> Vec<f64> {
    let number = |at: usize| {
        let mixed = ((rank + 1) * (at + 3) + step.number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed as i64 as f64 * 10f64.powi((mixed % 31) as i32 - 15)
    };
    (0..step.count).map(number).collect()
}

/// What one participant gives, as bytes.
fn bytes(step: &Step, rank: usize, bytes: usize) -> Vec<u8> {
    payload((step.number * 100 + rank) as u64, bytes)
}

/// An operation that was started, and what it should come to.
enum Started {
    Nothing(Operation<()>),
    Floats(Operation<Vec<f64>>, Vec<f64>),
    FloatsAtRoot(Operation<Option<Vec<f64>>>, Option<Vec<f64>>),
    Bytes(Operation<Vec<u8>>, Vec<u8>),
    BytesAtRoot(Operation<Option<Vec<u8>>>, Option<Vec<u8>>),
}

impl Started {
    fn wait(self) {
        match self {
            Started::Nothing(mut operation) => operation.wait().unwrap(),
            Started::Floats(mut operation, expected) => {
                assert_eq!(bits(&operation.wait().unwrap()), bits(&expected));
            }
            Started::FloatsAtRoot(mut operation, expected) => {
                let result = operation.wait().unwrap();
                assert_eq!(result.map(|result| bits(&result)), expected.map(|expected| bits(&expected)));
            }
            Started::Bytes(mut operation, expected) => assert_eq!(operation.wait().unwrap(), expected),
            Started::BytesAtRoot(mut operation, expected) => assert_eq!(operation.wait().unwrap(), expected),
        }
    }
}

fn start(group: &Group, step: &Step) -> Started {
    let Step { operation, root, count, lengths, .. } = step;
    let (rank, size, root, count) = (group.rank(), group.size(), *root, *count);
    let own = || bytes(step, rank, count);
    let block = |of: usize| bytes(step, of, lengths[of]);
    let at_root = |result: Vec<u8>| (rank == root).then_some(result);
    let all = || (0..size).flat_map(|of| bytes(step, of, count)).collect::<Vec<u8>>();
    let all_blocks = || (0..size).flat_map(block).collect::<Vec<u8>>();
    let total = || sum(&(0..size).map(|of| floats(step, of)).collect::<Vec<_>>());
    let reduction = Reduction::sum();
    match operation {
        Collective::Barrier => Started::Nothing(group.start_barrier().unwrap()),
        Collective::Broadcast => {
            let data = if rank == root { own() } else { vec![0; count] };
            Started::Bytes(group.start_broadcast(root, &data).unwrap(), bytes(step, root, count))
        }
        Collective::Reduce => Started::FloatsAtRoot(
            group.start_reduce(root, &floats(step, rank), &reduction).unwrap(),
            (rank == root).then(total),
        ),
        Collective::Allreduce => {
            Started::Floats(group.start_allreduce(&floats(step, rank), &reduction).unwrap(), total())
        }
        Collective::Gather => Started::BytesAtRoot(group.start_gather(root, &own()).unwrap(), at_root(all())),
        Collective::Gatherv => Started::BytesAtRoot(
            group.start_gatherv(root, &block(rank), lengths).unwrap(),
            at_root(all_blocks()),
        ),
        Collective::Allgather => Started::Bytes(group.start_allgather(&own()).unwrap(), all()),
        Collective::Allgatherv => {
            Started::Bytes(group.start_allgatherv(&block(rank), lengths).unwrap(), all_blocks())
        }
        Collective::Scatter => {
            let data = if rank == root { all() } else { Vec::new() };
            Started::Bytes(group.start_scatter(root, &data, count).unwrap(), own())
        }
        Collective::Scatterv => {
            let data = if rank == root { all_blocks() } else { Vec::new() };
            Started::Bytes(group.start_scatterv(root, &data, lengths).unwrap(), block(rank))
        }
        Collective::AllToAll => {
            let part = |of: usize| bytes(step, of, size * count);
            let expected = (0..size).flat_map(|of| part(of)[rank * count..][..count].to_vec()).collect();
            Started::Bytes(group.start_all_to_all(&part(rank)).unwrap(), expected)
        }
        Collective::AllToAllv => {
            let length = |from: usize, to: usize| lengths[(from + 2 * to) % size];
            let part = |from: usize, to: usize| bytes(step, from * size + to, length(from, to));
            let data: Vec<u8> = (0..size).flat_map(|to| part(rank, to)).collect();
            let sent: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
            let expected = (0..size).flat_map(|from| part(from, rank)).collect();
            Started::Bytes(group.start_all_to_allv(&data, &sent, &received).unwrap(), expected)
        }
        other => panic!("{other}"),
    }
}

/// Runs a program; some operations are waited for at once, others later, and some never.
fn run(group: &Group, program: &[Step], seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut under_way = Vec::new();
    for step in program {
        let started = start(group, step);
        match random.random_range(0..4) {
            0 => started.wait(),
            1 if random.random_ratio(1, 4) => drop(started),
            _ => under_way.push(started),
        }
        while under_way.len() > 8 || !under_way.is_empty() && random.random_ratio(1, 4) {
            under_way.swap_remove(random.random_range(0..under_way.len())).wait();
        }
    }
    under_way.into_iter().for_each(Started::wait);
    // What nobody waits for has ended, too, when all have come through a barrier and nothing is outstanding.
    group.barrier().unwrap();
    eventually("what was dropped ends", || {
        group.progress().unwrap();
        group.outstanding() == 0
    });
}

fn programs(size: usize, seed: u64, steps: usize, config: impl Fn(usize) -> Config + Send + Sync + 'static) {
    in_time(move || {
        together(size, config, move |site| {
            let group = site.group(CHANNEL);
            run(&group, &program(seed, size, steps), seed * 100 + site.rank as u64);
        });
    });
}

#[test]
fn random_operations_come_to_what_they_should() {
    for (size, seed) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (7, 6)] {
        programs(size, seed, 60, |_| Config::loopback());
    }
}

#[test]
fn random_operations_come_to_what_they_should_where_packets_are_lost_doubled_and_reordered() {
    for (size, seed) in [(2, 11), (3, 12), (4, 13), (6, 14)] {
        programs(size, seed, 40, move |rank| {
            let faults: FaultOptions =
                format!("loss=3%,dup=3%,reorder=5%,seed={}", seed * 10 + rank as u64).parse().unwrap();
            Config::loopback().faults(Some(faults))
        });
    }
}

#[test]
fn random_operations_come_to_what_they_should_where_there_is_little_room() {
    for (size, seed) in [(3, 21), (4, 22)] {
        programs(size, seed, 40, |rank| {
            // One takes shorter messages than the others.
            let longest = if rank == 1 { 1000 } else { 1 << 20 };
            let config = Config::loopback().send_bytes(1).queue_bytes(32 << 10).receive_bytes(64 << 10);
            config.message_bytes_max(longest)
        });
    }
}

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

/// Where participants leave early, so that others look for them in vain: not for long.
fn impatient(_: usize) -> Config {
    Config::loopback().connect_timeout(Duration::from_secs(2))
}

/// Has each of two participants do something that does not fit, and returns what they are told.
fn mismatch(work: impl Fn(&Group) -> Result<(), CollectiveError> + Send + Sync + 'static) -> [Broken; 2] {
    let outcomes = together(2, impatient, move |site| {
        let group = site.group(CHANNEL);
        // Who has sent all that it has to send may be through, and learns of it next.
        let outcome = work(&group).and_then(|()| group.barrier());
        let Err(CollectiveError::Broken(broken)) = outcome else { panic!("{outcome:?}") };
        // Broken it stays.
        assert!(matches!(group.start_barrier(), Err(CollectiveError::Broken(_))));
        // The other may have to be told first.
        let _ = site.endpoint.flush();
        broken
    });
    outcomes.try_into().unwrap()
}

fn is_mismatch(broken: &Broken) -> bool {
    matches!(
        broken,
        Broken::Mismatch { .. }
            | Broken::Length { .. }
            | Broken::Unexpected { .. }
            | Broken::OtherGroup { .. }
            | Broken::Told { why: Why::Mismatch, .. }
    )
}

#[test]
fn who_does_something_else_is_told_and_nobody_waits_for_ever() {
    in_time(|| {
        let first = |group: &Group| group.rank() == 0;
        type Work = Box<dyn Fn(&Group) -> Result<(), CollectiveError> + Send + Sync>;
        let works: Vec<(&str, Work)> = vec![
            (
                "operation",
                Box::new(move |group| match first(group) {
                    true => group.barrier(),
                    false => group.allreduce(&mut [1u64], &Reduction::sum()),
                }),
            ),
            (
                "length",
                Box::new(move |group| group.broadcast(0, &mut vec![0u8; if first(group) { 10 } else { 20 }])),
            ),
            (
                "reduction",
                Box::new(move |group| {
                    group.allreduce(
                        &mut [1u64],
                        &if first(group) { Reduction::sum() } else { Reduction::bxor() },
                    )
                }),
            ),
            (
                "function",
                Box::new(move |group| {
                    let name = if first(group) { "one" } else { "other" };
                    group.allreduce(&mut [1u64], &Reduction::new(name, |a, _| a))
                }),
            ),
            (
                "type",
                Box::new(move |group| match first(group) {
                    true => group.broadcast(0, &mut [0u64]),
                    false => group.broadcast(0, &mut [0i64]),
                }),
            ),
            // Both wait, and neither has anything to send.
            ("root, each the other", Box::new(|group| group.broadcast(1 - group.rank(), &mut [0u8]))),
            // Both send, and are through.
            ("root, each itself", Box::new(|group| group.broadcast(group.rank(), &mut [0u8]))),
            (
                "blocks",
                Box::new(move |group| {
                    let lengths = if first(group) { [1, 2] } else { [1, 3] };
                    let (data, own) = (vec![0u8; 3 + group.rank()], [lengths[group.rank()]; 2]);
                    let sent = if first(group) { [1, 2] } else { [1, 3] };
                    group.all_to_allv(&data, &sent, &[sent[0].min(own[0]), sent[1]]).map(drop)
                }),
            ),
        ];
        for (what, work) in works {
            let told = mismatch(work);
            assert!(told.iter().all(is_mismatch), "{what}: {told:?}");
            assert!(told.iter().any(|broken| !matches!(broken, Broken::Told { .. })), "{what}: {told:?}");
        }
    });
}

#[test]
fn who_has_another_list_is_told() {
    in_time(|| {
        let told = together(3, impatient, |site| {
            let mut peers = site.peers.clone();
            let mut rank = site.rank;
            if rank == 2 {
                peers.swap(1, 2);
                rank = 1;
            }
            let group = Group::open(&site.endpoint, CHANNEL, rank, &peers).unwrap();
            let Err(CollectiveError::Broken(broken)) = group.barrier() else { panic!("it fits") };
            let _ = site.endpoint.flush();
            broken
        });
        assert!(told.iter().any(|broken| matches!(broken, Broken::OtherGroup { .. })), "{told:?}");
        // Who is slow may find that the others have given up and left.
        assert!(
            told.iter().all(|broken| is_mismatch(broken) || matches!(broken, Broken::Gone { .. })),
            "{told:?}"
        );
    });
}

#[test]
fn a_participant_that_goes_away_breaks_the_group_for_all() {
    in_time(|| {
        for size in [2, 4, 5] {
            let outcomes = together(size, impatient, move |site| {
                let group = site.group(CHANNEL);
                let mut data = vec![1.0; 1000];
                for round in 0.. {
                    if site.rank == size - 1 && round == 5 {
                        return None; // closes in good order, but the others need it
                    }
                    if let Err(error) = group.allreduce(&mut data, &Reduction::sum()) {
                        assert_eq!(round, 5);
                        let CollectiveError::Broken(broken) = error else { panic!("{error}") };
                        assert!(matches!(group.barrier(), Err(CollectiveError::Broken(_))));
                        let _ = site.endpoint.flush();
                        return Some(broken);
                    }
                }
                None
            });
            for broken in &outcomes[..size - 1] {
                let broken = broken.as_ref().unwrap();
                assert_eq!(broken.rank(), Some(size - 1), "{broken}");
            }
        }
    });
}

#[test]
fn a_participant_that_gives_its_group_up_tells_the_others() {
    in_time(|| {
        let outcomes = together(3, impatient, |site| {
            let group = site.group(CHANNEL);
            group.barrier().unwrap();
            if site.rank == 0 {
                // It has begun, and nobody goes on with it.
                drop(group.start_allreduce(&[1u64], &Reduction::sum()).unwrap());
                drop(group);
                let _ = site.endpoint.flush();
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
            // Whatever is summed up passes rank 0.
            let error = group.allreduce(&mut [1u64], &Reduction::sum()).unwrap_err();
            let _ = site.endpoint.flush();
            Some(error.to_string())
        });
        for told in &outcomes[1..] {
            assert!(told.as_ref().unwrap().contains("rank 0 has dropped its group"), "{told:?}");
        }
    });
}

#[test]
fn garbage_is_counted_and_dropped() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let group = Group::open(&here, CHANNEL, 0, &[None, Some(peer)]).unwrap();
    let channel = there.channel(CHANNEL).unwrap();
    let mut random = StdRng::seed_from_u64(5);
    let mut operation = group.start_barrier().unwrap();
    for number in 0..300 {
        let mut garbage: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
        if number % 2 == 0 && garbage.len() >= 16 {
            // What looks like a participant, and says anything.
            garbage[0] = 1 + number as u8 % 3;
            garbage[8..16].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        } else if let Some(kind) = garbage.first_mut() {
            *kind |= 0x80;
        }
        channel.post(PeerId(0), &garbage).unwrap();
    }
    let ticket = channel.post(PeerId(0), b"the last").unwrap();
    eventually("all of it arrives", || {
        there.progress().unwrap();
        let _ = operation.test();
        there.status(ticket) == tsumugi::TicketStatus::Delivered
    });
    for _ in 0..10 {
        let _ = operation.test();
    }
    assert!(here.counters().get("violation") > 100, "{}", here.counters());
}

#[test]
fn what_is_sent_too_far_ahead_is_dropped() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let group = Group::open(&here, CHANNEL, 0, &[None, Some(peer)]).unwrap();
    let channel = there.channel(CHANNEL).unwrap();
    let mut message = vec![0u8; 60_000];
    (message[0], message[1]) = (1, 1);
    message[4..8].copy_from_slice(&[255; 4]);
    message[8..16].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    message[16] = 7;
    for _ in 0..19 {
        channel.post(PeerId(0), &message).unwrap();
    }
    let last = channel.post(PeerId(0), &message).unwrap();
    eventually("all of it arrives", || {
        there.progress().unwrap();
        group.progress().unwrap();
        there.status(last) == tsumugi::TicketStatus::Delivered
    });
    for _ in 0..10 {
        group.progress().unwrap();
    }
    assert!((15..=17).contains(&here.counters().get("violation")), "{}", here.counters());
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
