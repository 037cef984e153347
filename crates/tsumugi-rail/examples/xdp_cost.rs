//! What the XDP program costs per packet, without a NIC: `cargo run --release --example xdp_cost`, as root.
//!
//! A packet can be deposited once only, so the kernel runs the program once for each, and a run by itself
//! carries the cost of reading the clock. The cost of a frame that is not ours, once and a million times, tells
//! how much that is; it is taken off.

#[path = "../tests/conformance/view.rs"]
mod view;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use tsumugi_proto::translation::{ReplacementChoice, Translations};
use tsumugi_rail::Memory;
use tsumugi_rail::xdp::{Action, Receiver, XdpError};
use tsumugi_wire::frame::RemoteFrame;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};
use view::View;

const GEOMETRY: Geometry = Geometry { window_pages: 64, translations: 64, ..Geometry::plain(64, 1 << 20) };
/// A key, and the address of the window under it.
const KEY: u64 = 0x8765_4321;
const ADDRESS: u64 = 0x7fff_0000_0000;
const PORT: u16 = 7411;
const RUNS: usize = 20_000;
const REPEAT: u32 = 1_000_000;
const TOKEN: u64 = 0x1234_5678;
const EPOCH: u32 = 7;

/// The body of a packet that writes into the window.
fn write(opcode: Opcode, at: u64, bytes: usize) -> Vec<u8> {
    let remote = RemoteFrame { opcode: opcode as u16, key: KEY, address: ADDRESS + at, operation: 1 };
    [&remote.encode(bytes as u32)[..], &vec![0x5a; bytes]].concat()
}

/// A frame with a packet of the flow.
fn frame(kind: Kind, psn: u64, flags: Flags, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(kind, EPOCH);
    (header.token, header.flow, header.flags) = (TOKEN, 3, flags);
    header.psn = Psn(if kind == Kind::Data { psn } else { 0 });
    // As in a conversation: each packet acknowledges one more.
    (header.ack, header.credit) = (Psn(psn), 900);
    header.body_bytes = body.len() as u16;
    let packet = [&header.encode()[..], body].concat();
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
    let head = control.ring_head.0.load(Ordering::Relaxed);
    control.ring_tail.0.store(head, Ordering::Release);
    control.ring_read.0.store(head, Ordering::Release);
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

    let mut cache = Translations::new(memory.translations().len(), 64, ReplacementChoice::Fifo.replacement());
    for page in 0..64 {
        cache.install(&View(memory), KEY, ADDRESS / 4096 + page, page as u32);
    }

    let mut other = frame(Kind::Data, 0, Flags(0), &[0; 64]);
    other[37] = 1;
    let pass_ns = receiver.run(&other, &mut out, REPEAT)?.duration.as_nanos();
    let mut once = Vec::new();
    for _ in 0..RUNS {
        once.push(receiver.run(&other, &mut out, 1)?.duration.as_nanos());
    }
    let alone_ns = median(once) - pass_ns;
    println!("not ours {pass_ns} ns; reading the clock adds {alone_ns} ns to a single run, taken off below");
    let acknowledging = |flags: Flags| Flags(flags.0 | Flags::HAS_ACK.0);
    let mut rows = vec![("PROBE", Kind::Probe, acknowledging(Flags(0)), Vec::new())];
    for body_bytes in [8, 16, 72, 136, 1400, 3300] {
        let body = vec![0x5a; body_bytes];
        rows.extend([
            ("deposit", Kind::Data, Flags(0), body.clone()),
            ("deposit, note an ACK", Kind::Data, acknowledging(Flags(0)), body.clone()),
            ("deposit and ACK", Kind::Data, Flags::ACK_REQUEST, body.clone()),
            ("deposit, note, ACK", Kind::Data, acknowledging(Flags::ACK_REQUEST), body),
        ]);
    }
    for (name, opcode, at, bytes) in [
        ("direct write in turn", Opcode::Write, 0, 8),
        ("direct write", Opcode::Piece, 0, 8),
        ("direct write", Opcode::Piece, 0, 1368),
        ("direct, across pages", Opcode::Piece, 4000, 1368),
    ] {
        rows.push((name, Kind::Data, Flags(0), write(opcode, at, bytes)));
    }
    let mut psn = 0;
    for (name, kind, flags, body) in rows {
        let mut costs = Vec::new();
        for _ in 0..RUNS {
            let run = receiver.run(&frame(kind, psn, flags, &body), &mut out, 1)?;
            let answered = kind == Kind::Probe || flags.has(Flags::ACK_REQUEST);
            assert_eq!(run.action, if answered { Action::Transmit } else { Action::Drop });
            costs.push(run.duration.as_nanos());
            psn += u64::from(kind == Kind::Data);
            release(memory);
        }
        println!("{:5} B {name:20} {:4} ns", body.len(), median(costs).saturating_sub(alone_ns));
    }
    flow.peer_token.store(0, Ordering::Relaxed);
    let mut wrong = frame(Kind::Data, 0, Flags(0), &[0; 64]);
    wrong[50] ^= 1;
    for (name, frame) in [
        ("duplicate, unanswered", frame(Kind::Data, 0, Flags(0), &[0; 64])),
        ("malformed", wrong),
        ("PROBE, left to the owner", frame(Kind::Probe, 0, Flags(0), &[])),
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
