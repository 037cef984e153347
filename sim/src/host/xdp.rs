//! The XDP program on a host's NIC: it gets what arrives first, when it arrives, whether the process runs or not.

use super::{Host, watch};
use crate::forge::crc32c;
use crate::ledger::Wrong;
use crate::world::World;
use std::net::SocketAddr;
use tsumugi_proto::xdp::{self, Fate};
use tsumugi_proto::{ReceiveMemory, Verdict};
use tsumugi_rail::Rail;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::frame::{Frame, Frames};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Instant};

/// What is noted of the acknowledgements of whoever sent a datagram.
fn noted(memory: &dyn ReceiveMemory, datagram: &[u8]) -> Option<(u64, u64)> {
    let (header, ..) = Header::decode(datagram).ok()?;
    let noted = &memory.flow(header.flow)?.acknowledged.0;
    Some((noted.ack.load(Ordering::Relaxed), noted.limit.load(Ordering::Relaxed)))
}

/// Whether a datagram holds a write of remote memory that is not what its CRC says.
fn is_damaged_write(datagram: &[u8]) -> bool {
    let Ok((header, body, _)) = Header::decode(datagram) else { return false };
    let Some(Ok(Frame::Remote(remote, _))) = Frames::new(body).next() else { return false };
    [Opcode::Write, Opcode::Piece].map(|opcode| opcode as u16).contains(&remote.opcode)
        && !header.flags.has(Flags::UNCHECKED)
        && crc32c(body) != header.body_crc
}

impl Host {
    /// When something arrives that the program takes: [`Instant::NEVER`] without one, or without a process.
    pub(crate) fn next_arrival(&self) -> Instant {
        match &self.process {
            Some(process) if self.attached => process.spy.rail.wake_at(),
            _ => Instant::NEVER,
        }
    }

    /// The program takes everything that has arrived.
    pub(crate) fn run_xdp(&mut self, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut arrived = Vec::new();
        let received = process.spy.rail.receive(now, &mut |from, bytes| arrived.push((from, bytes.to_vec())));
        received.map_err(|error| error.to_string())?;
        for (from, bytes) in arrived {
            self.run_xdp_on(world, now, from, bytes)?;
        }
        Ok(())
    }

    /// The program takes a datagram.
    pub(super) fn run_xdp_on(
        &mut self,
        world: &mut World,
        now: Instant,
        from: SocketAddr,
        bytes: Vec<u8>,
    ) -> Result<(), Wrong> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let me = world.addresses[self.index];
        let memory = process.core.receive_memory();
        let scattered = bytes.len() > self.plan.buffer_bytes;
        if memory.window_pages() > 0 && is_damaged_write(&bytes) {
            return Ok(()); // no CRC is compared for a direct write: an errand would go wrong. It is lost instead
        }
        let is_left = now.0.checked_div(self.plan.answers_left_ns).is_some_and(|times| times % 2 == 1);
        memory.control().answers_left.store(is_left.into(), Ordering::Relaxed);
        let noted_before = noted(memory, &bytes);
        let (fate, verdict) = xdp::receive(memory, &bytes, scattered, crc32c);
        if scattered && matches!(fate, Fate::Answer(_)) {
            return Err("a frame in several buffers was sent back".to_owned());
        }
        if is_left && matches!(fate, Fate::Answer(_)) {
            return Err("the program gave an answer that was left to the owner".to_owned());
        }
        if fate == Fate::Pass {
            process.spy.passed.push_back((from, bytes));
            return Ok(());
        }
        watch(&process.core, &mut process.spy, now, me, from, &bytes, false);
        // The process is told of what left a record, was written directly, or is noted though it did neither.
        let taken = matches!(verdict, Some(Verdict::Deposited | Verdict::WrittenDirectly));
        if taken || noted(process.core.receive_memory(), &bytes) != noted_before {
            process.heard_from.push(from);
        }
        if taken {
            let mut wire = world.wire.borrow_mut();
            wire.by_xdp += 1;
            wire.direct_writes += u64::from(verdict == Some(Verdict::WrittenDirectly));
        }
        if let (Fate::Answer(answer), Ok((question, ..))) = (fate, Header::decode(&bytes)) {
            let flow = (question.token, question.epoch);
            process.spy.answer(now, from, &answer, flow)?;
            let limit = process.core.peer_of_flow(question.flow).and_then(|id| process.core.view(id));
            world.wire.borrow().check_told(flow, limit.map_or(0, |view| view.limit), me)?;
        }
        Ok(())
    }

    /// The program is attached or detached. What had arrived before it was attached is the process's.
    pub(crate) fn attach(&mut self, now: Instant, attached: bool) -> Result<(), Wrong> {
        self.attached = attached;
        let Some(process) = &mut self.process else { return Ok(()) };
        process.spy.hold(now).map_err(|error| error.to_string())?;
        process.spy.attached = attached;
        Ok(())
    }
}
