//! Both receive halves side by side, each with its own memory.

use super::View;
use super::frames::{PORT, Wrapping};
use crc_fast::{CrcAlgorithm, checksum};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_proto::Verdict;
use tsumugi_proto::xdp::{self, Fate};
use tsumugi_rail::Memory;
use tsumugi_rail::xdp::{Action, Endpoint, Receiver};
use tsumugi_wire::memory::{Control, Geometry};

/// Epoch of the endpoint.
pub(crate) const EPOCH: u32 = 0x00c0_ffee;

/// What the endpoint seals records with.
const SEAL: u64 = 0x5ea1_0f5e_a15e_a150;

/// A time that no clock of a test reaches: nobody looks for the owner's socket. Most tests have none.
pub(crate) const NEVER: u64 = i64::MAX as u64;

/// Words of the control page that only the XDP program writes, bytes from its beginning.
const CHECKED_AT: usize = offset_of!(Control, checked_at);
const CHECKED_TICK: usize = offset_of!(Control, checked_tick) - 4;

/// What must become of a packet: its fate, and its verdict if it has one.
fn reference(memory: &View<'_>, packet: &[u8], scattered: bool) -> (Fate, Option<Verdict>) {
    xdp::receive(memory, packet, scattered, |body| checksum(CrcAlgorithm::Crc32Iscsi, body) as u32)
}

/// Bytes of a frame that a test run of the kernel lays into one buffer: a page less the room in front and behind
/// (`bpf_prog_test_run_xdp` in net/bpf/test_run.c). The rest goes into others.
pub(crate) const FIRST_BUFFER_BYTES: usize = 4096 - 256 - 320;

/// Both receive halves.
pub(crate) struct Pair {
    pub(crate) receiver: Receiver,
    /// The XDP program's memory.
    pub(crate) xdp: Endpoint,
    /// The Rust receiver's.
    pub(crate) rust: Memory,
    /// The words of an empty memory.
    empty: Vec<u64>,
    out: Vec<u8>,
    /// Looks at the kernel's log in the end.
    _watched: Watched,
}

impl Pair {
    /// Loads the program; `None`, said loudly, where that cannot be and nobody insists on it.
    pub(crate) fn load(geometry: Geometry) -> Option<Pair> {
        let missing = "needs a build with the XDP program (clang and libbpf-dev)";
        let test = std::thread::current().name().unwrap_or("a conformance test").to_owned();
        let watched = as_root(&test, (!tsumugi_rail::xdp::IS_COMPILED).then_some(missing))?;
        let mut receiver = Receiver::load(geometry).unwrap_or_else(|error| panic!("{error}"));
        let xdp = receiver.endpoint(PORT).unwrap_or_else(|error| panic!("{error}"));
        let rust = Memory::new(geometry).expect("receive memory");
        for memory in [&xdp.memory, &rust] {
            memory.control().epoch.store(EPOCH, Ordering::Relaxed);
            memory.control().seal.store(SEAL, Ordering::Relaxed);
            memory.control().checked_at.store(NEVER, Ordering::Relaxed);
        }
        let empty = rust.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Some(Pair { receiver, xdp, rust, empty, out: vec![0; 1 << 16], _watched: watched })
    }

    /// Does the same to both memories.
    pub(crate) fn both(&self, act: impl Fn(&View<'_>)) {
        act(&View(&self.xdp.memory));
        act(&View(&self.rust));
    }

    /// Empties both memories.
    pub(crate) fn reset(&self) {
        for memory in [&self.xdp.memory, &self.rust] {
            for (word, empty) in memory.words().iter().zip(&self.empty) {
                word.store(*empty, Ordering::Relaxed);
            }
        }
    }

    /// Whether the bell has rung and nobody has heard it.
    pub(crate) fn rung(&self) -> bool {
        let mut bells = [PollFd::from_borrowed_fd(self.xdp.bell(), PollFlags::IN)];
        poll(&mut bells, Some(&Timespec::default())).expect("polling the bell") == 1
    }

    /// Runs the XDP program alone on a frame, and returns what it did and the frame as it left it.
    pub(crate) fn run_xdp(&mut self, frame: &[u8]) -> (Action, Vec<u8>) {
        let run = self.receiver.run(frame, &mut self.out, 1).unwrap_or_else(|error| panic!("{error}"));
        (run.action, self.out[..run.frame_bytes].to_vec())
    }

    /// Gives a packet to both, compares what they make of it and all of their memories, and tells the verdict.
    pub(crate) fn take(&mut self, wrapping: Wrapping, packet: &[u8]) -> Result<Option<Verdict>, String> {
        self.fate(wrapping, packet).map(|(_, verdict)| verdict)
    }

    /// The same, and tells the packet's fate, too.
    pub(crate) fn fate(
        &mut self,
        wrapping: Wrapping,
        packet: &[u8],
    ) -> Result<(Fate, Option<Verdict>), String> {
        let question = wrapping.question(packet);
        let scattered = question.len() > FIRST_BUFFER_BYTES;
        let (fate, verdict) = reference(&View(&self.rust), packet, scattered);
        let (action, frame) = self.run_xdp(&question);
        let expected = match &fate {
            Fate::Pass => (Action::Pass, question),
            Fate::Drop => (Action::Drop, question),
            Fate::Answer(packet) => (Action::Transmit, wrapping.answer(packet)),
        };
        if action != expected.0 {
            return Err(format!("the XDP program does {action:?}, must do {fate:?} ({verdict:?})"));
        }
        if frame != expected.1 {
            let (frame, must_be) = (Hex(&frame), Hex(&expected.1));
            return Err(format!(
                "the XDP program leaves the frame\n{frame:?}, must leave\n{must_be:?} ({verdict:?})"
            ));
        }
        self.compare().map(|()| (fate, verdict))
    }

    /// Compares the memories, but for the times when the XDP program looked for the owner: nobody else does.
    pub(crate) fn compare(&self) -> Result<(), String> {
        let words = self.xdp.memory.words().iter().zip(self.rust.words());
        for (index, (xdp, rust)) in words.enumerate() {
            let mask = match 8 * index {
                // The epoch, and behind it the tick.
                CHECKED_TICK => u64::from(u32::MAX),
                CHECKED_AT => 0,
                _ => u64::MAX,
            };
            let (xdp, rust) = (xdp.load(Ordering::Acquire) & mask, rust.load(Ordering::Relaxed) & mask);
            if xdp != rust {
                return Err(format!(
                    "at byte {:#x} the XDP program left {xdp:#x}, must be {rust:#x}",
                    index * 8
                ));
            }
        }
        Ok(())
    }
}

struct Hex<'b>(&'b [u8]);

impl std::fmt::Debug for Hex<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}
