//! What one sends to several: that each gets it, in order and unaltered, and how often it has left.

use crate::places::{
    Place, as_root_with_the_program, at_hook, config, forget_groups, in_the_switch, lab, places, places_in,
    row_of_three, together,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tsumugi::multicast::{MulticastGroup, Sender};
use tsumugi::{Channel, Endpoint, FaultOptions, PeerId, TicketStatus};
use tsumugi_rail::switch::{self, Hook};

/// The channel of the messages.
const CHANNEL: u16 = 9;

/// Message `number` of a run: its length is anything from a byte to many packets.
fn message(seed: u64, number: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed ^ number << 20);
    let longest = [1, 8, 100, 1_400, 5_000, 70_000][random.random_range(0..6)];
    let mut bytes = vec![0; random.random_range(1..=longest)];
    random.fill(&mut bytes[..]);
    bytes
}

fn group(size: usize) -> MulticastGroup {
    MulticastGroup { key: 77, number: 5, size: size as u16 }
}

/// What the first of several hosts does: sends so many messages to all, and some to one of them between.
fn send(
    endpoint: &Endpoint,
    places: &[Place<'_>],
    seed: u64,
    count: u64,
    mut each: impl FnMut(&Sender, &Channel, u64),
) -> (u64, u64) {
    let receivers: Vec<PeerId> =
        places[1..].iter().map(|place| endpoint.add_peer(&place.address).expect("a peer")).collect();
    let channel = endpoint.channel(CHANNEL).expect("a channel");
    let sender = endpoint.multicast_to(group(places.len()), &receivers).expect("a group");
    let mut random = StdRng::seed_from_u64(seed);
    let mut tickets = Vec::new();
    for number in 0..count {
        tickets.extend(sender.send(&channel, &message(seed, number)).expect("sent"));
        if random.random_range(0..4) == 0 {
            let one = receivers[random.random_range(0..receivers.len())];
            channel.send(one, b"for you alone").expect("sent");
        }
        each(&sender, &channel, number);
    }
    endpoint.flush().expect("all have it");
    let has_arrived = |ticket| endpoint.status(ticket) == TicketStatus::Delivered;
    assert!(tickets.into_iter().all(has_arrived), "who has it is known");
    sender.packets()
}

/// What the others do: check what comes.
fn receive(endpoint: &Endpoint, places: &[Place<'_>], rank: usize, seed: u64, count: u64) {
    let sender = endpoint.add_peer(&places[0].address).expect("a peer");
    let channel = endpoint.channel(CHANNEL).expect("a channel");
    let _member =
        endpoint.hear_multicast(group(places.len()), rank as u16, sender).expect("a member of the group");
    let mut number = 0;
    while number < count {
        let message_here = channel.receive().expect("a message");
        assert_eq!(message_here.source(), sender);
        if &message_here[..] != b"for you alone" {
            assert!(message_here[..] == message(seed, number), "message {number} at {rank}");
            number += 1;
        }
    }
}

/// Packets have left once for several. How many do depends on how busy the machine is: a receiver that falls behind for some
/// milliseconds gets its own.
fn assert_shared((packets, parts): (u64, u64), hook: Hook) {
    assert!(packets > 0 && parts >= 2 * packets, "at hook {hook}: {packets} packets, {parts} parts");
}

/// Has hosts send and receive so many messages. Returns the packets that left once for several, and the parts that were to be made.
fn run(
    places: &[Place<'_>],
    faults: Option<FaultOptions>,
    seed: u64,
    count: u64,
    each: impl Fn(&Sender, &Channel, u64) + Sync,
    meanwhile: impl FnOnce(&AtomicBool) + Send,
) -> (u64, u64) {
    let outcomes = together(
        places,
        |rank| config(rank as u64, faults),
        |endpoint, group| {
            let rank = group.rank();
            let packets = if rank == 0 {
                send(endpoint, places, seed, count, &each)
            } else {
                receive(endpoint, places, rank, seed, count);
                (0, 0)
            };
            group.barrier().expect("all are done");
            packets
        },
        meanwhile,
    );
    outcomes[0]
}

fn wait_for_box(sender: &Sender, _: &Channel, number: u64) {
    if number == 5 {
        assert!(sender.wait_for_box(Duration::from_secs(10)).expect("asked"), "there is a box");
    }
}

#[test]
fn what_leaves_once_comes_to_all_at_every_hook_under_faults() {
    let Some(_watched) = as_root_with_the_program("what_leaves_once_comes_to_all_at_every_hook_under_faults")
    else {
        return;
    };
    for (hook, size, mtu) in [(Hook::Tc, 5, 1500), (Hook::Native, 4, 1500), (Hook::Generic, 4, 9000)] {
        let lab = lab(size as u32, mtu);
        if hook != Hook::Tc {
            at_hook(&lab, hook);
        }
        let mut faults = FaultOptions::default();
        (faults.loss, faults.duplicate, faults.reorder) = (0.02, 0.02, 0.05);
        let left = run(&places(&lab, size), Some(faults), 21, 300, wait_for_box, |_| {});
        assert_shared(left, hook);
    }
}

#[test]
fn a_tree_of_boxes_brings_it_to_all() {
    let Some(_watched) = as_root_with_the_program("a_tree_of_boxes_brings_it_to_all") else { return };
    let labs = row_of_three();
    assert_shared(run(&places_in(&labs), None, 22, 200, wait_for_box, |_| {}), Hook::Tc);
}

#[test]
fn a_sender_goes_on_when_its_box_forgets_and_when_it_goes() {
    let Some(_watched) = as_root_with_the_program("a_sender_goes_on_when_its_box_forgets_and_when_it_goes")
    else {
        return;
    };
    let lab = lab(4, 1500);
    let (done, forgotten) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_gone = AtomicBool::new(false);
    let left = run(
        &places(&lab, 4),
        None,
        23,
        600,
        |sender, channel, number| {
            wait_for_box(sender, channel, number);
            done.store(number, Ordering::Relaxed);
            if number == 250 {
                while forgotten.load(Ordering::Relaxed) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if number == 300 {
                assert!(sender.wait_for_box(Duration::from_secs(10)).expect("asked"), "it is found again");
            }
            if number == 500 {
                while !is_gone.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        },
        |has_ended| {
            let reached = |number| {
                while done.load(Ordering::Relaxed) < number && !has_ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            reached(200);
            in_the_switch(&lab, forget_groups);
            forgotten.store(1, Ordering::Relaxed);
            reached(450);
            in_the_switch(&lab, || switch::down(&[]).expect("it goes"));
            is_gone.store(true, Ordering::Relaxed);
        },
    );
    assert_shared(left, Hook::Tc);
}
