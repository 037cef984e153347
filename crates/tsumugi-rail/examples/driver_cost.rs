//! What the driver program costs per packet, without a NIC: `cargo run --release --example driver_cost`, as root.
//!
//! A packet can be deposited once only, so the kernel runs the program once for each, and a run by itself
//! carries the cost of reading the clock. The cost of a frame that is not ours, once and a million times, tells
//! how much that is; it is taken off.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use tsumugi_rail::Memory;
use tsumugi_rail::xdp::{Action, Receiver, XdpError};
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::{Flags, Header, Kind, Psn};

const GEOMETRY: Geometry = Geometry::plain(64, 1 << 20);
const PORT: u16 = 7411;
const RUNS: usize = 20_000;
const REPEAT: u32 = 1_000_000;
const TOKEN: u64 = 0x1234_5678;
const EPOCH: u32 = 7;

/// A frame with a packet of the flow.
fn frame(kind: Kind, psn: u64, flags: Flags, body_bytes: usize) -> Vec<u8> {
    let mut header = Header::new(kind, EPOCH);
    (header.token, header.flow, header.flags) = (TOKEN, 3, flags);
    header.psn = Psn(if kind == Kind::Data { psn } else { 0 });
    // As in a conversation: each packet acknowledges one more.
    (header.ack, header.credit) = (Psn(psn), 900);
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

/// The owner's work: everything is read and given back.
fn release(memory: &Memory) {
    let control = memory.control();
    control.ring_tail.0.store(control.ring_head.0.load(Ordering::Relaxed), Ordering::Release);
}

/// Instructions that the verifier looked at of the program that was loaded last; it gives up at a million.
fn verified() -> Option<u32> {
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let last = programs.filter(|program| program.name_as_str() == Some("receive")).last();
    last?.verified_instruction_count()
}

fn measure() -> Result<(), XdpError> {
    let mut receiver = Receiver::load(GEOMETRY)?;
    if let Some(count) = verified() {
        println!("the verifier looked at {count} instructions");
    }
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

    let mut other = frame(Kind::Data, 0, Flags(0), 64);
    other[37] = 1;
    let pass_ns = receiver.run(&other, &mut out, REPEAT)?.duration.as_nanos();
    let mut once = Vec::new();
    for _ in 0..RUNS {
        once.push(receiver.run(&other, &mut out, 1)?.duration.as_nanos());
    }
    let alone_ns = median(once) - pass_ns;
    println!("not ours {pass_ns} ns; reading the clock adds {alone_ns} ns to a single run, taken off below");
    let acknowledging = |flags: Flags| Flags(flags.0 | Flags::HAS_ACK.0);
    let mut rows = vec![("PROBE", Kind::Probe, acknowledging(Flags(0)), 0)];
    for body_bytes in [8, 16, 72, 136, 1400, 3300] {
        rows.extend([
            ("deposit", Kind::Data, Flags(0), body_bytes),
            ("deposit, note an ACK", Kind::Data, acknowledging(Flags(0)), body_bytes),
            ("deposit and ACK", Kind::Data, Flags::ACK_REQUEST, body_bytes),
            ("deposit, note, ACK", Kind::Data, acknowledging(Flags::ACK_REQUEST), body_bytes),
        ]);
    }
    let mut psn = 0;
    for (name, kind, flags, body_bytes) in rows {
        let mut costs = Vec::new();
        for _ in 0..RUNS {
            let run = receiver.run(&frame(kind, psn, flags, body_bytes), &mut out, 1)?;
            let answered = kind == Kind::Probe || flags.has(Flags::ACK_REQUEST);
            assert_eq!(run.action, if answered { Action::Transmit } else { Action::Drop });
            costs.push(run.duration.as_nanos());
            psn += u64::from(kind == Kind::Data);
            release(memory);
        }
        println!("{body_bytes:5} B {name:20} {:4} ns", median(costs).saturating_sub(alone_ns));
    }
    flow.peer_token.store(0, Ordering::Relaxed);
    let mut wrong = frame(Kind::Data, 0, Flags(0), 64);
    wrong[50] ^= 1;
    for (name, frame) in [
        ("duplicate, unanswered", frame(Kind::Data, 0, Flags(0), 64)),
        ("malformed", wrong),
        ("PROBE, left to the owner", frame(Kind::Probe, 0, Flags(0), 0)),
    ] {
        println!("{name} {} ns", receiver.run(&frame, &mut out, REPEAT)?.duration.as_nanos());
    }
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
