//! Any operations against a model in which they are done one by one.

use super::*;
use proptest::prelude::*;

/// Something done to memory, or a message: what comes of it depends on the order.
#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, bytes: usize, seed: u64 },
    Add { word: usize, operand: u64 },
    Read { at: usize, bytes: usize },
    Message,
}

fn any_step(memory: usize) -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1usize..64, 1000usize..1400, 1400usize..9000];
    prop_oneof![
        (0..memory, bytes.clone(), any::<u64>()).prop_map(move |(at, bytes, seed)| Step::Write {
            at,
            bytes: bytes.min(memory - at),
            seed
        }),
        (0..memory / 8, any::<u64>()).prop_map(|(word, operand)| Step::Add { word, operand }),
        (0..memory, bytes).prop_map(move |(at, bytes)| Step::Read { at, bytes: bytes.min(memory - at) }),
        Just(Step::Message),
    ]
}

/// Whether a write is so long that it needs a fence before it, if it may touch what something before it does.
fn is_long(bytes: usize) -> bool {
    bytes > 1472 - 48 - 32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_do_what_they_would_do_one_by_one(
        steps in proptest::collection::vec(any_step(20_000), 1..40),
        seed in any::<u32>(),
    ) {
        let faults: FaultOptions = format!("loss=5%,dup=5%,reorder=10%,seed={seed}").parse().unwrap();
        let pair = Pair::open(faulty().faults(Some(faults)));
        let (memory, registration) = registered(&pair.there, 20_000, Rights::ALL);
        let channel = pair.here.channel(5).unwrap();
        let heard = pair.there.channel(5).unwrap();
        pair.fence(); // from now on both know how long a packet may be
        let mut model = vec![0u8; 20_000];
        let (mut reads, mut adds, mut messages) = (Vec::new(), Vec::new(), 0);
        for step in steps {
            match step {
                Step::Write { at, bytes, seed } => {
                    if is_long(bytes) {
                        pair.fence();
                    }
                    let data = payload(seed, bytes);
                    model[at..at + bytes].copy_from_slice(&data);
                    pair.write(registration.target().plus(at as u64), &region_of(&data).slice(0..bytes).unwrap());
                }
                Step::Add { word, operand } => {
                    let place = &mut model[8 * word..8 * word + 8];
                    let old = u64::from_le_bytes(place.try_into().unwrap());
                    place.copy_from_slice(&old.wrapping_add(operand).to_le_bytes());
                    let to = registration.target().plus(8 * word as u64);
                    adds.push((pair.post(|| pair.here.remote().fetch_add(pair.peer, to, operand)), old));
                }
                Step::Read { at, bytes } if is_long(bytes) => {
                    // It is read when its packets leave: nothing may be written meanwhile.
                    let into = Region::new(bytes).unwrap();
                    let from = registration.target().plus(at as u64);
                    let read = pair.post(|| pair.here.remote().read(pair.peer, from, &into.all()));
                    pair.until("the read", || read.outcome().is_some());
                    prop_assert!(bytes_of(&into, 0, bytes) == model[at..at + bytes]);
                }
                Step::Read { at, bytes } => {
                    let into = Region::new(bytes).unwrap();
                    let from = registration.target().plus(at as u64);
                    let read = pair.post(|| pair.here.remote().read(pair.peer, from, &into.all()));
                    reads.push((read, into, model[at..at + bytes].to_vec()));
                }
                Step::Message => {
                    pair.post(|| channel.post(pair.peer, b"a message"));
                    messages += 1;
                }
            }
        }
        pair.fence();
        for (add, old) in adds {
            prop_assert_eq!(add.outcome(), Some(Ok(old)));
        }
        for (read, into, expected) in reads {
            prop_assert_eq!(read.outcome(), DONE);
            prop_assert!(bytes_of(&into, 0, expected.len()) == expected);
        }
        prop_assert!(bytes_of(&memory, 0, 20_000) == model);
        for _ in 0..messages {
            prop_assert_eq!(&heard.try_receive().unwrap().expect("it came before the fence")[..], b"a message");
        }
    }
}
