//! Every algorithm, by all participants at once, in any order, against what it should come to. No endpoint is involved.

use super::algorithms::{
    binomial_broadcast, binomial_gather, binomial_reduce, binomial_scatter, bruck_all_to_all,
    bruck_allgather, dissemination, flat_broadcast, linear_gather, linear_scatter, pairwise,
    recursive_doubling, reduce_scatter_allgather, reduce_scatter_gather, ring, scatter_allgather,
};
use super::choose::{self, Shape, Way, choose};
use super::element::{Element, elements_in, put_all};
use super::execution::{Execution, Misfit};
use super::reduction::{Combine, Reduction};
use super::schedule::{Position, Schedule, piece};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

/// A part of a transfer under way: the transfer's length, where in it the part begins, and its bytes.
type Part = (u64, u64, Vec<u8>);

/// Has participants carry out schedules, everything that may happen next in any order, and returns their results.
fn run(executions: Vec<Execution>, seed: u64) -> Vec<Option<Vec<u8>>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut executions = executions;
    let mut wires: BTreeMap<(usize, usize), VecDeque<Part>> = BTreeMap::new();
    loop {
        let mut sends = Vec::new();
        for (rank, execution) in executions.iter().enumerate() {
            for (at, send) in execution.sends().iter().enumerate() {
                // Those to one participant in order.
                if execution.sends().iter().take(at).all(|other| other.rank != send.rank) {
                    sends.push((rank, at));
                }
            }
        }
        let arrivals: Vec<(usize, usize)> =
            wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(ends, _)| *ends).collect();
        match (sends.is_empty(), arrivals.is_empty()) {
            (true, true) => break,
            (false, _) if arrivals.is_empty() || random.random() => {
                let (rank, at) = sends[random.random_range(0..sends.len())];
                let send = executions[rank].sends()[at].clone();
                let left = send.range.len() - send.done;
                // Longer ones in one piece, mostly.
                let bytes =
                    if random.random_ratio(1, 4) { random.random_range(left.min(1)..=left) } else { left };
                let start = send.range.start + send.done;
                let part = executions[rank].bytes(start..start + bytes).to_vec();
                wires.entry((rank, send.rank)).or_default().push_back((
                    send.range.len() as u64,
                    send.done as u64,
                    part,
                ));
                executions[rank].on_sent(at, bytes);
                executions[rank].advance();
            }
            _ => {
                let (from, to) = arrivals[random.random_range(0..arrivals.len())];
                let (whole, at, data) = wires.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
                executions[to].on_arrived(from, whole, at, &data).unwrap();
                executions[to].advance();
            }
        }
    }
    let results = executions.into_iter().enumerate().map(|(rank, execution)| {
        assert!(execution.is_done(), "rank {rank} waits for {:?}", execution.awaited().collect::<Vec<_>>());
        let (buffer, output) = execution.finish();
        output.map(|range| buffer[range].to_vec())
    });
    results.collect()
}

/// Has everybody carry out an algorithm.
fn all(
    size: usize,
    seed: u64,
    schedule: impl Fn(Position) -> Schedule,
    input: impl Fn(usize) -> Vec<u8>,
    combine: Option<Combine>,
) -> Vec<Option<Vec<u8>>> {
    let begin = |rank| {
        let schedule = schedule(Position { rank, size });
        assert!(schedule.rounds.len() <= 3 * size + 4, "more rounds than anything needs");
        let input = input(rank);
        Execution::begin(schedule, |place| place[..input.len()].copy_from_slice(&input), combine.clone())
    };
    run((0..size).map(begin).collect(), seed)
}

/// Bytes that only this participant has.
fn data(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + rank * 101 + (at >> 8)) as u8).collect()
}

/// Numbers whose sum depends on how it is bracketed.
fn numbers(rank: usize, count: usize) -> Vec<f64> {
    let number = |at: usize| {
        let mixed = ((rank + 1) * (at + 3)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed as i64 as f64) * 10f64.powi((mixed % 31) as i32 - 15)
    };
    (0..count).map(number).collect()
}

/// What a reduction over so many participants is to come to: pairs first, then neighbours, then neighbours of neighbours.
fn reduced<T: Element>(inputs: &[Vec<T>], function: impl Fn(T, T) -> T + Copy) -> Vec<T> {
    let combine = |left: &Vec<T>, right: &Vec<T>| -> Vec<T> {
        left.iter().zip(right).map(|(left, right)| function(*left, *right)).collect()
    };
    let pairs = inputs.len() - (1 << inputs.len().ilog2());
    let (folded, rest) = inputs.split_at(2 * pairs);
    let mut values: Vec<Vec<T>> = folded.chunks(2).map(|pair| combine(&pair[0], &pair[1])).collect();
    values.extend_from_slice(rest);
    while values.len() > 1 {
        values = values.chunks(2).map(|pair| combine(&pair[0], &pair[1])).collect();
    }
    values.remove(0)
}

fn bytes_of<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(elements)];
    put_all(elements, &mut bytes);
    bytes
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A number of participants, a root, a seed.
fn groups() -> impl Strategy<Value = (usize, usize, u64)> {
    (1usize..=20).prop_flat_map(|size| (Just(size), 0..size, any::<u64>()))
}

/// Lengths around one at which another algorithm begins.
fn around(limit: usize) -> impl Strategy<Value = usize> {
    prop_oneof![0usize..40, limit.saturating_sub(9)..limit + 10, 0..3 * limit]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nobody_is_through_a_barrier_before_all_are_in_it((size, late, _) in groups()) {
        // All but one go as far as they can.
        let begin = |rank| Execution::begin(dissemination(Position { rank, size }), |_| {}, None);
        let mut executions: Vec<Execution> = (0..size).map(begin).collect();
        loop {
            let ready = (0..size).filter(|rank| *rank != late);
            let Some(rank) = ready.into_iter().find(|rank| !executions[*rank].sends().is_empty()) else { break };
            let to = executions[rank].sends()[0].rank;
            executions[rank].on_sent(0, 0);
            executions[to].on_arrived(rank, 0, 0, &[]).unwrap();
            executions[rank].advance();
            if to != late {
                executions[to].advance();
            }
        }
        let through = |rank: &usize| *rank != late && executions[*rank].is_done();
        prop_assert_eq!((0..size).find(through), None);
    }

    #[test]
    fn a_barrier_ends((size, _, seed) in groups()) {
        all(size, seed, dissemination, |_| Vec::new(), None);
    }

    #[test]
    fn a_broadcast_reaches_everybody((size, root, seed) in groups(), bytes in around(choose::BROADCAST_BYTES)) {
        let input = |rank| if rank == root { data(root, bytes) } else { Vec::new() };
        for algorithm in [binomial_broadcast, scatter_allgather, flat_broadcast] {
            let results = all(size, seed, |me| algorithm(me, root, bytes), input, None);
            prop_assert!(results.iter().all(|result| result.as_ref() == Some(&data(root, bytes))));
        }
    }

    #[test]
    fn a_reduction_is_the_same_to_the_last_bit_by_any_algorithm_in_any_order(
        (size, root, seed) in groups(),
        bytes in around(choose::REDUCE_BYTES),
    ) {
        let count = bytes / 8;
        let inputs: Vec<Vec<f64>> = (0..size).map(|rank| numbers(rank, count)).collect();
        let expected = bits(&reduced(&inputs, f64::sum));
        let (sum, bytes) = (Reduction::<f64>::sum().combine(), 8 * count);
        let input = |rank: usize| bytes_of(&inputs[rank]);
        type ToRoot = fn(Position, usize, usize) -> Schedule;
        let to_root: [ToRoot; 2] = [binomial_reduce, |me, root, bytes| reduce_scatter_gather(me, root, bytes, 8)];
        for algorithm in to_root {
            let results = all(size, seed, |me| algorithm(me, root, bytes), input, Some(sum.clone()));
            for (rank, result) in results.iter().enumerate() {
                let result = result.as_ref().map(|result| bits(&elements_in(result)));
                prop_assert_eq!(result.as_ref(), (rank == root).then_some(&expected));
            }
        }
        type ToAll = fn(Position, usize) -> Schedule;
        let to_all: [ToAll; 2] = [recursive_doubling, |me, bytes| reduce_scatter_allgather(me, bytes, 8)];
        for algorithm in to_all {
            let results = all(size, seed, |me| algorithm(me, bytes), input, Some(sum.clone()));
            for result in results {
                prop_assert_eq!(result.map(|result| bits(&elements_in(&result))), Some(expected.clone()));
            }
        }
    }

    #[test]
    fn functions_that_do_not_commute_get_the_lower_ranks_first(
        (size, root, seed) in groups(),
        count in 0usize..20,
    ) {
        // Composition of affine maps modulo 2^32: (a, b) then (c, d) is (ca, cb + d).
        let compose = |first: u64, then: u64| {
            let (a, b, c, d) = (first as u32, (first >> 32) as u32, then as u32, (then >> 32) as u32);
            u64::from(c.wrapping_mul(a)) | u64::from(c.wrapping_mul(b).wrapping_add(d)) << 32
        };
        let reduction = Reduction::new("compose", compose);
        let inputs: Vec<Vec<u64>> = (0..size)
            .map(|rank| (0..count).map(|at| (rank as u64 + 3) << 32 | (2 * at + 2 * rank + 1) as u64).collect())
            .collect();
        let mut expected = inputs[0].clone();
        for input in &inputs[1..] {
            expected = expected.iter().zip(input).map(|(first, then)| compose(*first, *then)).collect();
        }
        let input = |rank: usize| bytes_of(&inputs[rank]);
        let schedule = |me| reduce_scatter_gather(me, root, 8 * count, 8);
        let results = all(size, seed, schedule, input, Some(reduction.combine()));
        prop_assert_eq!(elements_in::<u64>(results[root].as_ref().unwrap()), expected.clone());
        let schedule = |me| recursive_doubling(me, 8 * count);
        for result in all(size, seed, schedule, input, Some(reduction.combine())) {
            prop_assert_eq!(elements_in::<u64>(&result.unwrap()), expected.clone());
        }
    }

    #[test]
    fn blocks_are_gathered_in_the_order_of_ranks((size, root, seed) in groups(), bytes in around(choose::BLOCK_BYTES)) {
        let together: Vec<u8> = (0..size).flat_map(|rank| data(rank, bytes)).collect();
        let lengths = vec![bytes; size];
        let input = |rank| data(rank, bytes);
        let linear = all(size, seed, |me| linear_gather(me, root, &lengths), input, None);
        let binomial = all(size, seed, |me| binomial_gather(me, root, bytes), input, None);
        for results in [linear, binomial] {
            for (rank, result) in results.iter().enumerate() {
                prop_assert_eq!(result.as_ref(), (rank == root).then_some(&together));
            }
        }
        let ring = all(size, seed, |me| ring(me, &lengths), input, None);
        let bruck = all(size, seed, |me| bruck_allgather(me, bytes), input, None);
        for result in ring.into_iter().chain(bruck) {
            prop_assert_eq!(result.as_ref(), Some(&together));
        }
    }

    #[test]
    fn blocks_of_any_lengths_are_gathered_and_scattered(
        (size, root, seed) in groups(),
        lengths in prop::collection::vec(0usize..300, 20),
    ) {
        let lengths = &lengths[..size];
        let input = |rank: usize| data(rank, lengths[rank]);
        let together: Vec<u8> = (0..size).flat_map(input).collect();
        let gathered = all(size, seed, |me| linear_gather(me, root, lengths), input, None);
        prop_assert_eq!(gathered[root].as_ref(), Some(&together));
        for result in all(size, seed, |me| ring(me, lengths), input, None) {
            prop_assert_eq!(result.as_ref(), Some(&together));
        }
        let whole = |rank| if rank == root { together.clone() } else { Vec::new() };
        let scattered = all(size, seed, |me| linear_scatter(me, root, lengths), whole, None);
        for (rank, result) in scattered.into_iter().enumerate() {
            prop_assert_eq!(result, Some(input(rank)));
        }
    }

    #[test]
    fn everybody_gets_its_block((size, root, seed) in groups(), bytes in around(choose::BLOCK_BYTES)) {
        let lengths = vec![bytes; size];
        let input = |rank| if rank == root { data(root, size * bytes) } else { Vec::new() };
        let linear = all(size, seed, |me| linear_scatter(me, root, &lengths), input, None);
        let binomial = all(size, seed, |me| binomial_scatter(me, root, bytes), input, None);
        for results in [linear, binomial] {
            for (rank, result) in results.into_iter().enumerate() {
                prop_assert_eq!(result.unwrap(), &input(root)[rank * bytes..][..bytes]);
            }
        }
    }

    #[test]
    fn everybody_gets_a_block_of_everybody((size, _, seed) in groups(), bytes in around(choose::ALL_TO_ALL_BYTES)) {
        let lengths = vec![bytes; size];
        let input = |rank| data(rank, size * bytes);
        let pairwise = all(size, seed, |me| pairwise(me, &lengths, &lengths), input, None);
        let bruck = all(size, seed, |me| bruck_all_to_all(me, bytes), input, None);
        for results in [pairwise, bruck] {
            for (rank, result) in results.into_iter().enumerate() {
                let block = |from| input(from)[rank * bytes..][..bytes].to_vec();
                prop_assert_eq!(result.unwrap(), (0..size).flat_map(block).collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn blocks_of_any_lengths_reach_whom_they_are_for((size, _, seed) in groups(), salt in any::<usize>()) {
        let length = |from: usize, to: usize| (from * 37 + to * 101 + salt % 64) % 90;
        let block = |from: usize, to: usize| data(from * 20 + to, length(from, to));
        let input = |from: usize| (0..size).flat_map(|to| block(from, to)).collect::<Vec<u8>>();
        let schedule = |me: Position| {
            let sent: Vec<usize> = (0..size).map(|to| length(me.rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| length(from, me.rank)).collect();
            pairwise(me, &sent, &received)
        };
        for (rank, result) in all(size, seed, schedule, input, None).into_iter().enumerate() {
            let expected: Vec<u8> = (0..size).flat_map(|from| block(from, rank)).collect();
            prop_assert_eq!(result.unwrap(), expected);
        }
    }

    #[test]
    fn what_is_chosen_is_right_on_either_side_of_a_limit((size, root, seed) in groups(), bytes in around(4096)) {
        let bytes = bytes / 8 * 8;
        let run = |shape: Shape, input: &dyn Fn(usize) -> Vec<u8>| {
            let sum = Reduction::<u64>::sum().combine();
            let schedule = |me| { let Way::Messages(schedule) = choose(&shape, me); schedule };
            all(size, seed, schedule, input, Some(sum))
        };
        let numbers = |rank| elements_in::<u64>(&data(rank, bytes));
        let sum = reduced(&(0..size).map(numbers).collect::<Vec<_>>(), u64::sum);
        let own = |rank| data(rank, bytes);
        for result in run(Shape::Allreduce { bytes, element: 8 }, &own) {
            prop_assert_eq!(elements_in::<u64>(&result.unwrap()), sum.clone());
        }
        let results = run(Shape::Reduce { root, bytes, element: 8 }, &own);
        prop_assert_eq!(elements_in::<u64>(results[root].as_ref().unwrap()), sum);
        let together: Vec<u8> = (0..size).flat_map(own).collect();
        let gathered = run(Shape::Gather { root, bytes }, &own);
        prop_assert_eq!(gathered[root].as_ref(), Some(&together));
        for result in run(Shape::Allgather { bytes }, &own) {
            prop_assert_eq!(result.as_ref(), Some(&together));
        }
    }

    #[test]
    fn pieces_are_as_equal_as_can_be(bytes in 0usize..1000, count in 1usize..30) {
        let pieces: Vec<_> = (0..count).map(|index| piece(bytes, count, index)).collect();
        prop_assert_eq!((pieces[0].start, pieces[count - 1].end), (0, bytes));
        prop_assert!(pieces.windows(2).all(|two| two[0].end == two[1].start && two[0].len() - two[1].len() <= 1));
    }
}

#[test]
fn what_does_not_fit_a_schedule_is_said_to() {
    let me = Position { rank: 1, size: 2 };
    let mut execution = Execution::begin(binomial_broadcast(me, 0, 10), |_| {}, None);
    assert_eq!(execution.on_arrived(1, 10, 0, &[0; 10]), Err(Misfit::Unexpected));
    assert_eq!(execution.on_arrived(7, 10, 0, &[0; 10]), Err(Misfit::Unexpected));
    assert_eq!(execution.on_arrived(0, 9, 0, &[0; 9]), Err(Misfit::Length { expected: 10, found: 9 }));
    assert_eq!(execution.on_arrived(0, 10, 1, &[0; 9]), Err(Misfit::Disorder));
    assert_eq!(execution.on_arrived(0, 10, 0, &[0; 11]), Err(Misfit::Disorder));
    assert_eq!(execution.on_arrived(0, 10, 0, &[]), Err(Misfit::Disorder));
    assert_eq!(execution.on_arrived(0, 10, 0, &[1; 6]), Ok(()));
    assert_eq!(execution.on_arrived(0, 10, 0, &[1; 4]), Err(Misfit::Disorder));
    assert_eq!(execution.on_arrived(0, 10, 6, &[1; 4]), Ok(()));
    execution.advance();
    assert!(execution.is_done());
    assert_eq!(execution.on_arrived(0, 10, 0, &[1; 10]), Err(Misfit::Unexpected));
}

#[test]
fn floating_point_numbers_are_defined_to_the_last_bit() {
    let strange = f64::from_bits(0x7ff8_0000_0000_1234);
    let nan = f64::NAN.to_bits();
    assert_eq!(strange.sum(1.0).to_bits(), nan);
    assert_eq!(f64::INFINITY.sum(f64::NEG_INFINITY).to_bits(), nan);
    assert_eq!((-strange).product(2.0).to_bits(), nan);
    for (one, other) in [(strange, 1.0), (1.0, strange)] {
        assert_eq!((one.least(other).to_bits(), one.greatest(other).to_bits()), (nan, nan));
    }
    for (one, other) in [(0.0f64, -0.0), (-0.0, 0.0)] {
        assert!(one.least(other).is_sign_negative());
        assert!(one.greatest(other).is_sign_positive());
    }
    assert_eq!((2.0f32.least(1.0), 2.0f32.greatest(1.0)), (1.0, 2.0));
    assert_eq!((i32::MAX.sum(1), u64::MAX.product(2)), (i32::MIN, u64::MAX - 1));
}
