//! The receive half against a model of sets and lists, over random sequences of packets.
#![cfg(not(loom))]

mod common;
mod plain;

use common::{Model, Step, steps};
use plain::Plain;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tsumugi_proto::{ReceiveMemory, Verdict, queue, receive_bitmap, receiver};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{Counter, Flow};
use tsumugi_wire::{Header, Kind, Psn};

const SEEDS: u64 = 32;
const STEPS: usize = 8000;
/// Steps between two looks at all of the memory. It is what a step costs most.
const STEPS_PER_CHECK: usize = 4;

/// Does a step to the memory; for a packet, says what came of it, if that is anything to be counted.
fn take(memory: &Plain, step: &Step, model: &Model) -> Option<Verdict> {
    let entry = |index| ReceiveMemory::flow(memory, index).expect("an entry of the table");
    match *step {
        Step::Open { flow, token, epoch, repeat, limit } => {
            receiver::open(entry(flow), token, epoch, repeat, limit);
        }
        Step::Close { flow } => receiver::close(entry(flow)),
        Step::Credit { flow, limit } => entry(flow).limit.store(limit, Ordering::Relaxed),
        Step::Release { records } => {
            queue::release(memory, model.release_to(records));
        }
        Step::Data { ref header, .. } | Step::Probe { ref header } => {
            let flow = match receiver::find(memory, header) {
                Ok(flow) => flow,
                Err(verdict) => {
                    memory.count(verdict.counter(), 1);
                    return Some(verdict);
                }
            };
            if let Step::Data { header, body, checked } = step {
                return Some(receiver::deposit(memory, flow, header, body, *checked));
            }
        }
    }
    None
}

/// Runs a sequence, and counts what came of its packets.
fn run(seed: u64, counts: &mut BTreeMap<&'static str, u64>) -> Result<u64, String> {
    let (memory, mut model, mut furthest) = (Plain::new(), Model::default(), 0);
    for (number, step) in steps(seed, STEPS).iter().enumerate() {
        let verdict = take(&memory, step, &model);
        let expected = model.apply(step);
        let fault = |what: String| format!("seed {seed}, step {number}: {what}\n{step:?}");
        if verdict.map(Verdict::counter) != expected {
            return Err(fault(format!("{verdict:?}, must be counted as {expected:?}")));
        }
        if number % STEPS_PER_CHECK == 0 || number + 1 == STEPS {
            model.check(&memory).map_err(fault)?;
        }
        if let Step::Data { header, .. } | Step::Probe { header } = step
            && let Some(open) = model.flow(header.flow)
        {
            furthest = furthest.max(open.base);
            let flow = ReceiveMemory::flow(&memory, header.flow).expect("an entry of the table");
            let (seen, must_be) = (receive_bitmap::snapshot(flow), open.snapshot());
            if (seen.0, seen.1.echo, seen.1.words) != (must_be.0, must_be.1.echo, must_be.1.words)
                || seen.1.bitmap[..seen.1.words] != must_be.1.bitmap[..seen.1.words]
            {
                return Err(fault(format!("the answer says {seen:?}, must say {must_be:?}")));
            }
        }
        if let Some(counter) = expected {
            *counts.entry(Counter::ALL[counter as usize].1).or_default() += 1;
        }
    }
    Ok(furthest)
}

#[test]
fn random_sequences_end_as_the_model_says() {
    let mut counts = BTreeMap::new();
    let mut furthest = 0;
    for seed in 0..SEEDS {
        furthest = furthest.max(run(seed, &mut counts).unwrap_or_else(|fault| panic!("{fault}")));
    }
    println!("{} steps, a base of {furthest}: {counts:?}", SEEDS * STEPS as u64);
    // The sequences go where it matters.
    assert!(furthest > 1100, "no bitmap went round: {furthest}");
    for counter in [
        Counter::Deposited,
        Counter::Duplicate,
        Counter::BeyondBitmap,
        Counter::OutOfOrder,
        Counter::QueueFull,
        Counter::UnknownFlow,
        Counter::WrongToken,
        Counter::WrongEpoch,
    ] {
        let (_, name) = Counter::ALL[counter as usize];
        let count = counts.get(name).copied().unwrap_or(0);
        assert!(count >= 200, "{name}: only {count} in {counts:?}");
    }
}

#[test]
fn a_bitmap_that_is_restored_says_what_it_said() {
    for seed in 0..4 {
        let (memory, other, mut model) = (Plain::new(), Plain::new(), Model::default());
        let entry = |memory, index| ReceiveMemory::flow(memory, index).expect("an entry of the table");
        for step in steps(seed, STEPS / 8) {
            take(&memory, &step, &model);
            model.apply(&step);
            for index in 0..3 {
                let (base, sack) = receive_bitmap::snapshot(entry(&memory, index));
                receiver::open(entry(&other, index), 1, 1, Repeat::Selective, u64::MAX);
                receive_bitmap::restore(entry(&other, index), base, &sack);
                let again = receive_bitmap::snapshot(entry(&other, index));
                assert_eq!((again.0, again.1.words), (base, sack.words), "flow {index}, seed {seed}");
                assert_eq!(
                    again.1.bitmap[..sack.words],
                    sack.bitmap[..sack.words],
                    "flow {index}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_seed_makes_one_sequence() {
    assert_eq!(steps(7, 1000), steps(7, 1000));
    assert_ne!(steps(7, 1000), steps(8, 1000));
}

/// Two memories with a flow, of which each has received what the other has.
struct Twins([Plain; 2]);

impl Twins {
    fn new(limit: u64) -> Twins {
        let memories = [Plain::new(), Plain::new()];
        for memory in &memories {
            receiver::open(flow_of(memory), TOKEN, EPOCH, Repeat::Selective, limit);
        }
        Twins(memories)
    }
}

const TOKEN: u64 = 7;
const EPOCH: u32 = 3;

fn flow_of(memory: &Plain) -> &Flow {
    ReceiveMemory::flow(memory, 1).expect("an entry of the table")
}

/// So many packets of the flow from this PSN on are claimed, and are where they belong.
fn consume_run(memory: &Plain, first: u64, packets: u64) -> Result<u64, Verdict> {
    let claimed = receiver::consume(memory, flow_of(memory), &data(first), packets)?;
    receiver::consumed(flow_of(memory), claimed);
    Ok(claimed)
}

/// A packet of the flow with this PSN is claimed, and is where it belongs.
fn consume(memory: &Plain, psn: u64) -> Verdict {
    consume_run(memory, psn, 1).err().unwrap_or(Verdict::Deposited)
}

fn data(psn: u64) -> Header {
    let mut header = Header::new(Kind::Data, EPOCH);
    (header.flow, header.token, header.psn) = (1, TOKEN, Psn(psn));
    header
}

proptest! {
    #[test]
    fn a_run_claimed_at_once_ends_as_its_packets_do_one_after_the_other(
        limit in 200u64..3000,
        runs in proptest::collection::vec((0u64..100, 1u64..80), 1..80),
        strays in proptest::collection::vec(0u64..400, 0..20),
    ) {
        let Twins([at_once, one_by_one]) = Twins::new(limit);
        let mut strays = strays.into_iter();
        for (ahead, packets) in runs {
            // From a little before the base to beyond a gap, among packets that have come alone.
            let first = (receive_bitmap::base(flow_of(&at_once)).0 + ahead / 3).saturating_sub(10);
            if let Some(stray) = strays.next() {
                prop_assert_eq!(consume(&at_once, first + stray), consume(&one_by_one, first + stray));
            }
            let outcome = consume_run(&at_once, first, packets);
            let verdicts = (first..first + packets).map(|psn| consume(&one_by_one, psn)).collect::<Vec<_>>();
            let free = verdicts.iter().take_while(|verdict| **verdict == Verdict::Deposited).count() as u64;
            let claimed = outcome.unwrap_or(0);
            prop_assert!(claimed <= free && (claimed == packets || free < packets), "{} of {} claimed", claimed, free);
            prop_assert_eq!(outcome.err().unwrap_or(Verdict::Deposited), verdicts[0]);
            // What stood in the way of the first has been counted.
            for psn in first + claimed.max(1)..first + packets {
                prop_assert_eq!(consume(&at_once, psn), verdicts[(psn - first) as usize]);
            }
            let [seen, right] = [&at_once, &one_by_one].map(|memory| receive_bitmap::snapshot(flow_of(memory)));
            prop_assert_eq!((seen.0, seen.1.words), (right.0, right.1.words));
            prop_assert_eq!(&seen.1.bitmap[..seen.1.words], &right.1.bitmap[..right.1.words]);
        }
        let counts = [&at_once, &one_by_one].map(|memory| {
            Counter::ALL.map(|(counter, _)| ReceiveMemory::control(memory).counters.0[counter as usize].load(Ordering::Relaxed))
        });
        prop_assert_eq!(counts[0], counts[1]);
        let started = flow_of(&at_once).direct_writes.0.started.load(Ordering::Relaxed);
        prop_assert_eq!(started, 0);
    }
}
