//! Random operations, waited for at once, later or never, against what they should come to.

use crate::common::loopback::{eventually, in_time, payload};
use crate::site::{CHANNEL, together};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tsumugi::collective::{Collective, Group, Operation, Reduction};
use tsumugi::{Config, FaultOptions};

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
            // Everybody hears how long messages everybody takes.
            group.all_to_allv(&vec![0u8; size], &vec![1; size], &vec![1; size]).unwrap();
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
