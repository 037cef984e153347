//! What the driver program costs per packet, without a NIC: `cargo run --release --example driver_cost`, as root.
//!
//! A packet can be deposited once only, so the kernel runs the program once for each, and a run by itself
//! carries the cost of reading the clock. The cost of a frame that is not ours, once and a million times, tells
//! how much that is; it is taken off.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use tsumugi_rail::xdp::{Action, Receiver, XdpError};
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::{Flags, Header, Kind, Psn};

const GEOMETRY: Geometry = Geometry { flows: 64, ring_bytes: 1 << 20 };
const PORT: u16 = 7411;
const RUNS: usize = 20_000;
const TOKEN: u64 = 0x1234_5678;
const EPOCH: u32 = 7;

/// A frame with a DATA packet.
fn frame(psn: u64, flags: Flags, body_bytes: usize) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, EPOCH);
    (header.token, header.flow, header.psn, header.flags) = (TOKEN, 3, Psn(psn), flags);
    header.body_bytes = body_bytes as u16;
    let packet = [&header.encode()[..], &vec![0x5a; body_bytes]].concat();
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(40_000, PORT)
        .write(&mut frame, &packet)
        .expect("a frame that is not too long");
    frame
}

fn median(mut costs: Vec<u128>) -> u128 {
    costs.sort_unstable();
    costs[costs.len() / 2]
}

fn measure() -> Result<(), XdpError> {
    let mut receiver = Receiver::load(GEOMETRY)?;
    let endpoint = receiver.endpoint(PORT)?;
    let memory = &endpoint.memory;
    let mut out = vec![0; 4096];
    memory.control().epoch.store(9, Ordering::Relaxed);
    // Nobody has the endpoint's socket, and nobody looks for it.
    memory.control().checked_at.store(i64::MAX as u64, Ordering::Relaxed);
    let flow = memory.flow(3).expect("an entry of the table");
    flow.epoch.store(EPOCH, Ordering::Relaxed);
    flow.limit.store(u64::MAX, Ordering::Relaxed);
    flow.peer_token.store(1, Ordering::Relaxed);
    flow.token.store(TOKEN, Ordering::Release);

    let mut other = frame(0, Flags(0), 64);
    other[37] = 1;
    let pass_ns = receiver.run(&other, &mut out, 1_000_000)?.duration.as_nanos();
    let mut once = Vec::new();
    for _ in 0..RUNS {
        once.push(receiver.run(&other, &mut out, 1)?.duration.as_nanos());
    }
    let alone_ns = median(once) - pass_ns;
    println!("not ours {pass_ns} ns; reading the clock adds {alone_ns} ns to a single run, taken off below");
    let mut psn = 0;
    for body_bytes in [8, 64, 1400, 3300] {
        for (name, flags) in [("deposit", Flags(0)), ("deposit and ACK", Flags::ACK_REQUEST)] {
            let mut costs = Vec::new();
            for _ in 0..RUNS {
                let run = receiver.run(&frame(psn, flags, body_bytes), &mut out, 1)?;
                assert!(matches!(run.action, Action::Drop | Action::Transmit), "{:?}", run.action);
                costs.push(run.duration.as_nanos());
                psn += 1;
                // The owner's work: everything is read and given back.
                let (from, to) = (&memory.control().ring_tail.0, &memory.control().ring_head.0);
                let (from, to) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
                memory.zero(from, (to - from) as usize);
                memory.control().ring_tail.0.store(to, Ordering::Release);
            }
            println!("{body_bytes:5} B {name:16} {:4} ns", median(costs).saturating_sub(alone_ns));
        }
    }
    flow.peer_token.store(0, Ordering::Relaxed);
    let duplicate_ns = receiver.run(&frame(0, Flags(0), 64), &mut out, 1_000_000)?.duration.as_nanos();
    println!("duplicate, unanswered {duplicate_ns} ns");
    let mut wrong = frame(0, Flags(0), 64);
    wrong[50] ^= 1;
    let malformed_ns = receiver.run(&wrong, &mut out, 1_000_000)?.duration.as_nanos();
    println!("malformed {malformed_ns} ns");
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
