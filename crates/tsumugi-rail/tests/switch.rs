//! The switch's program, as loaded into the kernel, against a model in Rust: both get the same frames, and action, counters and what
//! is known of the addresses must be equal after each. Needs root and the compiled program.

#[path = "switch/model.rs"]
mod model;
#[path = "switch/node.rs"]
mod node;

use model::Model;
use node::{as_root_with_the_program, in_a_node};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use tsumugi_rail::switch::{
    Forwarder, Hook, IDLE_S, LONG_S, Outcome, PLACES_MAX, PortEntry, Rules, SHOW_MAX_S, SHOW_S, place_key,
};
use tsumugi_rail::xdp::Action;

const SEEDS: u64 = 16;
const STEPS: usize = 4000;
/// Ports, of two networks. The last one sends nothing.
const PORTS: u32 = 6;
/// Bytes of a frame that a test run of the kernel lays into one buffer (see `conformance/pair.rs`).
const FIRST_BUFFER_BYTES: usize = 4096 - 256 - 320;
/// This host's address.
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0xff];

fn random(rng: &mut Pcg64Mcg, below: u32) -> u32 {
    rng.next_u32() % below
}

fn address(rng: &mut Pcg64Mcg) -> [u8; 6] {
    match random(rng, 24) {
        0 => OWN,
        1 => [0; 6],
        2 => [0xff; 6],
        3 => [0x33, 0x33, 0, 0, 0, 1],
        other => [2, 0, 0, 0, 0, other as u8 % 8],
    }
}

/// A frame that comes in by a port, most often from the host that lives there.
fn frame(rng: &mut Pcg64Mcg, port: u32) -> Vec<u8> {
    let source = if random(rng, 8) == 0 { address(rng) } else { [2, 0, 0, 0, 0, port as u8] };
    let mut frame = [address(rng), source].concat();
    match random(rng, 10) {
        0 => frame.extend([0x81, 0x00, random(rng, 256) as u8 & 0xf0, random(rng, 3) as u8, 8, 0]),
        1 => frame.extend([0x88, 0xa8, 0, 2, 8, 0]),
        _ => frame.extend([8, 0]),
    }
    let bytes = match random(rng, 12) {
        // A tag that is cut off. Without a tag the kernel tries no program on so little.
        0..3 if frame[12] != 8 => 15 + random(rng, 3) as usize,
        3 => 1514 + random(rng, 10) as usize,
        4 => FIRST_BUFFER_BYTES - 1 + random(rng, 3) as usize,
        5 => 9000,
        other => 60 + other as usize,
    };
    frame.resize(bytes, 0x77);
    frame
}

#[test]
fn the_program_does_what_the_model_does() {
    let Some(_watched) = as_root_with_the_program("the_program_does_what_the_model_does") else { return };
    in_a_node(PORTS, |nics| {
        let mut seen = [0; Outcome::ALL.len()];
        for seed in 0..SEEDS {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let hook = [Hook::Native, Hook::Generic, Hook::Tc][seed as usize % 3];
            let rules = Rules { ageing_s: 300, floods_per_s: 3, ..Rules::default() };
            let mut forwarder = Forwarder::load(rules, hook, true).unwrap_or_else(|error| panic!("{error}"));
            let mut model = Model::new(rules, hook);
            forwarder.own(OWN).expect("there is room");
            model.own(OWN);
            for (number, nic) in (0..PORTS).zip(nics) {
                // A redirection says nothing of where to; so another port is one that nobody sends for.
                let sends = number + 1 < PORTS && number != seed as u32 % 4;
                let port = PortEntry {
                    nic: if sends { *nic } else { 0 },
                    number,
                    network: number / 4,
                    frame_bytes_max: [1518, 9018][number as usize % 2],
                    is_virtual: u32::from(random(&mut rng, 2) == 0),
                };
                forwarder.enter(*nic, port).expect("there is room");
                model.enter(port);
            }
            let mut now_s = rng.next_u32();
            for step in 0..STEPS {
                now_s = now_s.wrapping_add(match random(&mut rng, 2000) {
                    0 => 299 + random(&mut rng, 2),
                    1 => SHOW_MAX_S - 1 + random(&mut rng, 2),
                    2..4 => SHOW_S,
                    4..6 => IDLE_S.max(LONG_S),
                    6..160 => 1,
                    _ => 0,
                });
                let port = random(&mut rng, PORTS);
                let mut frame = frame(&mut rng, port);
                if hook == Hook::Tc {
                    // A test run takes no more.
                    frame.truncate(3000);
                }
                let is_long = frame.len() > FIRST_BUFFER_BYTES;
                let (action, outcome) = model.take(port, &frame, is_long, now_s);
                forwarder.give(now_s, [0; 2]).expect("the clock moves");
                let done =
                    forwarder.run(&frame, nics[port as usize]).unwrap_or_else(|error| panic!("{error}"));
                let context =
                    || format!("seed {seed}, step {step}, {outcome}: {:02x?}", &frame[..frame.len().min(20)]);
                assert_eq!(done, action, "{}", context());
                assert_eq!(forwarder.counts(port).expect("a port"), model.counts(port), "{}", context());
                for key in model.keys_of(port, &frame) {
                    assert_eq!(
                        forwarder.place(key).expect("it can be asked"),
                        model.place(key),
                        "{}",
                        context()
                    );
                }
                seen[outcome as usize] += 1;
            }
        }
        assert!(
            seen[..Outcome::Counted as usize].iter().all(|count| *count > 50),
            "not all happened often: {seen:?}"
        );
    });
}

#[test]
fn what_is_no_port_is_left_to_the_kernel() {
    let Some(_watched) = as_root_with_the_program("what_is_no_port_is_left_to_the_kernel") else { return };
    in_a_node(PORTS, |nics| {
        let forwarder = Forwarder::load(Rules::default(), Hook::Native, false);
        let mut forwarder = forwarder.unwrap_or_else(|error| panic!("{error}"));
        let frame = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat().into_iter().chain([0; 60]);
        let frame: Vec<u8> = frame.collect();
        assert_eq!(forwarder.run(&frame, nics[0]).expect("it runs"), Action::Pass);
        assert_eq!(forwarder.place(place_key(0, 0, [2, 0, 0, 0, 0, 2])).expect("it can be asked"), None);
    });
}

/// Whoever sends from ever new addresses has others forgotten, but not those that are used.
#[test]
fn what_is_known_is_bounded_and_what_is_used_stays() {
    let Some(_watched) = as_root_with_the_program("what_is_known_is_bounded_and_what_is_used_stays") else {
        return;
    };
    in_a_node(PORTS, |nics| {
        let forwarder =
            Forwarder::load(Rules { floods_per_s: u32::MAX, ..Rules::default() }, Hook::Generic, false);
        let mut forwarder = forwarder.unwrap_or_else(|error| panic!("{error}"));
        for (number, nic) in (0..2).zip(nics) {
            let port = PortEntry { nic: *nic, number, network: 0, frame_bytes_max: 1518, is_virtual: 1 };
            forwarder.enter(*nic, port).expect("there is room");
        }
        let frame = |destination: u32, source: u32| {
            let address = |number: u32| [&[2, 0][..], &number.to_be_bytes()].concat();
            [address(destination), address(source), vec![8, 0], vec![0; 46]].concat()
        };
        let (one, other) = (1 << 24, 1 << 25);
        let run = |nic, frame: &[u8]| forwarder.run(frame, nic).unwrap_or_else(|error| panic!("{error}"));
        run(nics[0], &frame(other, one));
        run(nics[1], &frame(one, other));
        for stranger in 0..2 * PLACES_MAX {
            run(nics[0], &frame(0xff_ffff, stranger));
            if stranger % 64 == 0 {
                assert_eq!(run(nics[1], &frame(one, other)), Action::Redirect, "{stranger} strangers");
                assert_eq!(run(nics[0], &frame(other, one)), Action::Redirect, "{stranger} strangers");
            }
        }
        let known = (0..2 * PLACES_MAX).filter(|stranger| {
            let [a, b, c, d] = stranger.to_be_bytes();
            forwarder.place(place_key(0, 0, [2, 0, a, b, c, d])).expect("it can be asked").is_some()
        });
        let known = known.count();
        assert!(known > 0 && known <= PLACES_MAX as usize, "{known} strangers are known");
    });
}
