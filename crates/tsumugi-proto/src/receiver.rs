//! The receive half: check a packet, claim its PSN, place its body.
//!
//! Everything here works on shared memory through atomics, keeps nothing else, and may run on
//! several CPUs at once for one flow. A program in the NIC's driver does the same in C.

use crate::memory::ReceiveMemory;
use crate::queue;
use crate::window::{self, Claim};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{Counter, Flow, Record};
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its body lies in the receive queue, or is the caller's to place.
    Deposited,
    /// It had been deposited before.
    Duplicate,
    /// Go-back-N: not the next one.
    OutOfOrder,
    /// It lies beyond window or credit.
    Beyond,
    /// The receive queue is full; nothing was taken.
    Full,
    /// No such flow.
    UnknownFlow,
    /// The flow exists, the token is another.
    WrongToken,
    /// The token is right, the epoch is another.
    WrongEpoch,
}

impl Verdict {
    /// The counter that it goes to.
    #[must_use]
    pub const fn counter(self) -> Counter {
        match self {
            Verdict::Deposited => Counter::Deposited,
            Verdict::Duplicate => Counter::Duplicate,
            Verdict::OutOfOrder => Counter::OutOfOrder,
            Verdict::Beyond => Counter::BeyondWindow,
            Verdict::Full => Counter::QueueFull,
            Verdict::UnknownFlow => Counter::UnknownFlow,
            Verdict::WrongToken => Counter::WrongToken,
            Verdict::WrongEpoch => Counter::WrongEpoch,
        }
    }

    /// The answer that the sender must have at once, whatever it asked for; `None`: an ACK when it is due,
    /// or nothing at all for a packet that is not ours.
    #[must_use]
    pub const fn answer(self) -> Option<Kind> {
        match self {
            Verdict::Duplicate | Verdict::Beyond => Some(Kind::Ack),
            Verdict::OutOfOrder => Some(Kind::Lose),
            Verdict::Full => Some(Kind::Stop),
            Verdict::Deposited | Verdict::UnknownFlow | Verdict::WrongToken | Verdict::WrongEpoch => None,
        }
    }
}

/// Finds the flow that a packet belongs to.
///
/// # Errors
/// The verdict on a packet that belongs to none. The caller counts it.
#[inline]
pub fn find<'m, M: ReceiveMemory + ?Sized>(memory: &'m M, header: &Header) -> Result<&'m Flow, Verdict> {
    let flow = memory.flow(header.flow).ok_or(Verdict::UnknownFlow)?;
    // Acquire: the token is published after the rest of the entry.
    let token = flow.token.load(Ordering::Acquire);
    if token == 0 {
        return Err(Verdict::UnknownFlow);
    }
    if token != header.token {
        return Err(Verdict::WrongToken);
    }
    if flow.epoch.load(Ordering::Relaxed) != header.epoch {
        return Err(Verdict::WrongEpoch);
    }
    Ok(flow)
}

/// Whether the flow would take this DATA packet now.
#[inline]
fn admit(flow: &Flow, header: &Header) -> Verdict {
    match window::look(flow, header.psn) {
        Claim::Taken => Verdict::Duplicate,
        Claim::Beyond => Verdict::Beyond,
        Claim::Mine(_) if header.psn.0 >= flow.limit.load(Ordering::Relaxed) => Verdict::Beyond,
        Claim::Mine(_)
            if flow.repeat.load(Ordering::Relaxed) == Repeat::GoBackN as u32
                && header.psn != window::base(flow) =>
        {
            Verdict::OutOfOrder
        }
        Claim::Mine(_) => Verdict::Deposited,
    }
}

/// Deposits a DATA packet of `flow` into the receive queue.
///
/// Counts the verdict. `checked` says whether the caller has compared the body's CRC; otherwise
/// whoever hands the data on does.
#[inline]
pub fn deposit<M: ReceiveMemory + ?Sized>(
    memory: &M,
    flow: &Flow,
    header: &Header,
    body: &[u8],
    checked: bool,
) -> Verdict {
    let verdict = place(memory, flow, header, body, checked);
    memory.count(verdict.counter(), 1);
    verdict
}

#[inline]
fn place<M: ReceiveMemory + ?Sized>(
    memory: &M,
    flow: &Flow,
    header: &Header,
    body: &[u8],
    checked: bool,
) -> Verdict {
    let verdict = admit(flow, header);
    if verdict != Verdict::Deposited {
        return verdict;
    }
    // Space first, the PSN second: what is claimed as received is sure to be deposited (invariant 2).
    let bytes = body.len() as u16;
    let Ok(position) = queue::claim(memory, bytes) else {
        flow.received.0.stopped.store(1, Ordering::Relaxed);
        memory.control().stopped.0.store(1, Ordering::Release);
        return Verdict::Full;
    };
    let claim = window::claim(flow, header.psn);
    let owner = match claim {
        Claim::Mine(_) => {
            memory.copy_in(position + Record::HEADER_BYTES, body);
            header.flow
        }
        // Another depositor was faster.
        Claim::Taken | Claim::Beyond => Record::PADDING,
    };
    let record = Record {
        bytes,
        flow: owner,
        psn: header.psn.0,
        ack: header.ack.0,
        credit: header.credit,
        has_ack: header.flags.has(Flags::HAS_ACK),
        body_crc: header.body_crc,
        stamp: Record::stamp_of(header.token),
        checked,
    };
    queue::publish(memory, position, record);
    conclude(flow, header.psn, claim)
}

/// Moves the flow on after a claim, and says what it was.
#[inline]
fn conclude(flow: &Flow, psn: Psn, claim: Claim) -> Verdict {
    let Claim::Mine(word) = claim else { return Verdict::Duplicate };
    flow.received.0.echo.store(psn.0, Ordering::Relaxed);
    window::advance(flow, psn, word);
    Verdict::Deposited
}

/// Claims the PSN of a DATA packet that the caller, the memory's owner, consumes on the spot.
///
/// The user depositor runs in the process that would read the queue next; for a fragment of a long
/// message it goes straight to the fragment's place and saves the copy through the queue.
#[inline]
pub fn consume<M: ReceiveMemory + ?Sized>(memory: &M, flow: &Flow, header: &Header) -> Verdict {
    let mut verdict = admit(flow, header);
    if verdict == Verdict::Deposited {
        verdict = conclude(flow, header.psn, window::claim(flow, header.psn));
    }
    memory.count(verdict.counter(), 1);
    verdict
}

/// Opens a flow table entry for a peer.
pub fn open(flow: &Flow, token: u64, epoch: u32, repeat: Repeat, limit: u64) {
    flow.epoch.store(epoch, Ordering::Relaxed);
    flow.repeat.store(repeat as u32, Ordering::Relaxed);
    flow.limit.store(limit, Ordering::Relaxed);
    flow.peer_token.store(0, Ordering::Relaxed);
    flow.peer_flow.store(0, Ordering::Relaxed);
    flow.received.0.base.store(0, Ordering::Relaxed);
    flow.received.0.echo.store(0, Ordering::Relaxed);
    flow.received.0.stopped.store(0, Ordering::Relaxed);
    flow.received.0.newest.store(0, Ordering::Relaxed);
    flow.acknowledged.0.ack.store(0, Ordering::Relaxed);
    flow.acknowledged.0.limit.store(0, Ordering::Relaxed);
    for (index, word) in flow.window.0.iter().enumerate() {
        // No bits of block `index`, the first that will use this word.
        word.store((index as u64) << 32, Ordering::Relaxed);
    }
    flow.token.store(token, Ordering::Release);
}

/// Closes a flow table entry: nothing more is deposited under it.
pub fn close(flow: &Flow) {
    flow.token.store(0, Ordering::Release);
}
