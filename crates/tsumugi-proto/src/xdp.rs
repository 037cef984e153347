//! The XDP receive path as a whole: what becomes of a datagram that reaches a NIC before its owner runs.
//!
//! The XDP program does the same in C (`bpf/receive.bpf.c`), and one suite compares the two after every
//! datagram. The simulation puts this in the program's place.

use crate::answer;
use crate::memory::ReceiveMemory;
use crate::receiver::{self, Verdict};
use alloc::vec::Vec;
use tsumugi_wire::ack::BODY_BYTES_MAX;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::header::MalformedHeader;
use tsumugi_wire::memory::{ASLEEP, Counter, Flow, RUNG};
use tsumugi_wire::{Flags, Header, Kind};

/// What becomes of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on to the kernel, and so to the socket receive path.
    Pass,
    /// It is done with, and there is nothing to say.
    Drop,
    /// It is done with, and this datagram goes back.
    Answer(Vec<u8>),
}

/// Takes a datagram that is for the owner of `memory`, and says what becomes of it, and the verdict on it if it is a
/// DATA packet or belongs to no flow. `crc32c` is asked for an answer's CRC32C.
///
/// `scattered`: its frame lies in several buffers. Such a frame is read and dropped, never sent back: the XDP program
/// may not resize it.
///
/// The body's CRC is not compared, and nobody looks for the owner's socket.
pub fn receive<M: ReceiveMemory + ?Sized>(
    memory: &M,
    datagram: &[u8],
    scattered: bool,
    crc32c: impl FnOnce(&[u8]) -> u32,
) -> (Fate, Option<Verdict>) {
    if memory.control().epoch.load(Ordering::Relaxed) == 0 {
        return (Fate::Pass, None); // nobody owns it
    }
    let (header, body) = match Header::decode(datagram) {
        // The owner tells both sides that their versions differ.
        Err(MalformedHeader::Version(_))
            if matches!(Header::kind_in_any_version(datagram), Some(Kind::Hello | Kind::Reset)) =>
        {
            return (Fate::Pass, None);
        }
        Err(_) => {
            memory.count(Counter::Malformed, 1);
            return (Fate::Drop, None);
        }
        // Alone in its datagram, which others may have been coalesced with in transit.
        Ok((header, body, [])) if matches!(header.kind, Kind::Data | Kind::Probe) => (header, body),
        Ok(_) => return (Fate::Pass, None),
    };
    let flow = match receiver::find(memory, &header) {
        Ok(flow) => flow,
        Err(verdict) => {
            let fate = if answer::refuse(memory, verdict, header.kind) { Fate::Pass } else { Fate::Drop };
            return (fate, Some(verdict));
        }
    };
    let (verdict, due, news);
    if header.kind == Kind::Probe {
        // As long as nobody else can answer, the owner does, over the path that is asked about.
        if !answer::ready(flow) || answer::is_left(memory) {
            return (Fate::Pass, None);
        }
        answer::note(flow, &header);
        (verdict, due, news) = (None, Some(Kind::Ack), true);
    } else {
        let done = receiver::write_directly(memory, flow, &header, body)
            .unwrap_or_else(|| receiver::deposit(memory, flow, &header, body, false));
        if done != Verdict::Deposited {
            answer::note(flow, &header); // of what is deposited the record tells
        }
        news =
            matches!(done, Verdict::Deposited | Verdict::WrittenDirectly) || header.flags.has(Flags::HAS_ACK);
        (verdict, due) = (Some(done), answer::due(flow, &header, done));
    }
    let mut kind = answer::take_owed(flow, due);
    let owed = kind.take_if(|_| (scattered && !defect!(LongFrameSentBack)) || answer::is_left(memory));
    if let Some(kind) = owed {
        answer::owe(memory, flow, kind, scattered);
    }
    if news || owed.is_some() {
        ring(memory);
    }
    let fate = match kind {
        Some(kind) => make(memory, flow, kind, &header, crc32c),
        None => Fate::Drop,
    };
    (fate, verdict)
}

/// Wakes the owner if it sleeps, once. Here nobody hears it.
fn ring<M: ReceiveMemory + ?Sized>(memory: &M) {
    let sleeping = &memory.control().sleeping.0;
    if sleeping.load(Ordering::Relaxed) == ASLEEP {
        let _ = sleeping.compare_exchange(ASLEEP, RUNG, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn make<M: ReceiveMemory + ?Sized>(
    memory: &M,
    flow: &Flow,
    kind: Kind,
    to: &Header,
    crc32c: impl FnOnce(&[u8]) -> u32,
) -> Fate {
    match answer::make(memory.control(), flow, kind, to.psn, crc32c) {
        Some((header, sack)) => {
            Fate::Answer([&header.encode()[..], sack.encode(&mut [0; BODY_BYTES_MAX])].concat())
        }
        None => Fate::Drop,
    }
}
