//! The receive half: check a packet, claim its PSN, place its body.
//!
//! Everything here works on shared memory through atomics, keeps nothing else, and may run on
//! several CPUs at once for one flow. The XDP program does the same in C.

use crate::memory::ReceiveMemory;
use crate::receive_bitmap::{self, Claim};
use crate::{queue, translation};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{Frame, Frames, RemoteFrame, remote_frame_bytes};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{Counter, Flow, PAGE_BYTES, Record};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its body lies in the receive queue, or is the caller's to place.
    Deposited,
    /// Its data were written directly into the window, and there is nothing else to do.
    WrittenDirectly,
    /// It had been deposited before.
    Duplicate,
    /// Go-back-N: not the next one.
    OutOfOrder,
    /// It lies beyond bitmap or credit.
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
            Verdict::WrittenDirectly => Counter::DirectWrites,
            Verdict::Duplicate => Counter::Duplicate,
            Verdict::OutOfOrder => Counter::OutOfOrder,
            Verdict::Beyond => Counter::BeyondBitmap,
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
            Verdict::OutOfOrder => Some(Kind::Nak),
            Verdict::Full => Some(Kind::Xoff),
            Verdict::Deposited
            | Verdict::WrittenDirectly
            | Verdict::UnknownFlow
            | Verdict::WrongToken
            | Verdict::WrongEpoch => None,
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
    if token != header.token && !defect!(TokenNotChecked) {
        return Err(Verdict::WrongToken);
    }
    if flow.epoch.load(Ordering::Relaxed) != header.epoch && !defect!(EpochNotChecked) {
        return Err(Verdict::WrongEpoch);
    }
    Ok(flow)
}

/// PSNs from here on are beyond the credit granted.
#[inline]
#[must_use]
pub fn limit(flow: &Flow) -> Psn {
    let done =
        if defect!(DirectWriteTakesCredit) { 0 } else { flow.direct_writes.0.done.load(Ordering::Acquire) };
    Psn(flow.limit.load(Ordering::Relaxed).saturating_add(done))
}

/// Whether the flow would take this DATA packet now.
#[inline]
fn admit(flow: &Flow, header: &Header) -> Verdict {
    match receive_bitmap::look(flow, header.psn) {
        Claim::Taken => Verdict::Duplicate,
        Claim::Beyond => Verdict::Beyond,
        Claim::Mine(_) if header.psn >= limit(flow) => Verdict::Beyond,
        Claim::Mine(_)
            if flow.repeat.load(Ordering::Relaxed) == Repeat::GoBackN as u32
                && header.psn != receive_bitmap::base(flow)
                && !defect!(GoBackNOutOfOrder) =>
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
        defect!(BitBeforeSpace).then(|| receive_bitmap::claim(flow, header.psn));
        flow.received.0.xoff.store(1, Ordering::Relaxed);
        memory.control().xoff.0.store(1, Ordering::Release);
        return Verdict::Full;
    };
    let claim = receive_bitmap::claim(flow, header.psn);
    let owner = match claim {
        Claim::Mine(_) => {
            memory.copy_in(position + Record::HEADER_BYTES, body);
            header.flow
        }
        // Another receive path was faster.
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
    receive_bitmap::advance(flow, psn, word);
    Verdict::Deposited
}

/// Claims the PSNs of a run of `packets` DATA packets, of which `first` is the first's header, each PSN one more than the one
/// before. The caller, the memory's owner, consumes them on the spot: [`consumed`] says when it has.
///
/// The socket receive path runs in the process that would read the queue next; a fragment of a long message goes straight to its
/// place and saves the copy through the queue.
///
/// Returns how many it claimed from the first on, one at least. Those behind them are left as they were, for the next call to say what
/// stands in their way.
///
/// # Errors
/// What stands in the way of the first, which is counted.
#[inline]
pub fn consume<M: ReceiveMemory + ?Sized>(
    memory: &M,
    flow: &Flow,
    first: &Header,
    packets: u64,
) -> Result<u64, Verdict> {
    let mut verdict = admit(flow, first);
    if verdict == Verdict::Deposited {
        let wanted = packets.min(limit(flow).0.saturating_sub(first.psn.0)).max(1);
        begin(flow, wanted);
        let (claimed, last) = receive_bitmap::claim_run(flow, first.psn, wanted);
        if claimed < wanted {
            consumed(flow, wanted - claimed);
        }
        verdict = conclude(flow, first.psn.plus(claimed.max(1) - 1), last);
        if verdict == Verdict::Deposited {
            memory.count(Counter::Deposited, claimed);
            return Ok(claimed);
        }
    }
    memory.count(verdict.counter(), 1);
    Err(verdict)
}

/// So many packets that were [consumed](consume) are where they belong, or direct writes that were begun come to nothing.
#[inline]
pub fn consumed(flow: &Flow, packets: u64) {
    flow.direct_writes.0.started.fetch_sub(packets, Ordering::AcqRel);
}

/// From now on so many packets of the flow count as being written to their places, until they are done or
/// [taken back](consumed).
#[inline]
fn begin(flow: &Flow, packets: u64) {
    flow.direct_writes.0.started.fetch_add(packets, Ordering::AcqRel);
}

/// Whether no packet before the base is still being written to its place (invariant 4 of the memory). The caller has
/// read the base before.
#[inline]
#[must_use]
pub fn no_direct_write_in_progress(flow: &Flow) -> bool {
    // In this order: `started` less `done` are those in progress, and one that was in progress when `done` was read
    // cannot make up for another.
    let done = flow.direct_writes.0.done.load(Ordering::Acquire);
    flow.direct_writes.0.started.load(Ordering::Acquire) == done
}

/// Writes a DATA packet's data directly into the window, if that is all that there is to do with it, and counts
/// what became of it. `None`: it has to be [deposited](deposit).
///
/// That is a write of remote memory alone in its packet for which there is a translation: part of a long one at any time,
/// a short one when everything before it has been done. The body's CRC is not compared.
#[inline]
pub fn write_directly<M: ReceiveMemory + ?Sized>(
    memory: &M,
    flow: &Flow,
    header: &Header,
    body: &[u8],
) -> Option<Verdict> {
    if memory.window_pages() == 0 {
        return None;
    }
    let (remote, data) = lone_write(body)?;
    let mut verdict = admit(flow, header);
    if verdict == Verdict::Deposited {
        if remote.opcode == Opcode::Write as u16 && !is_in_turn(memory, flow, header.psn) {
            return None;
        }
        let Some((first, last)) = translate(memory, &remote, data) else {
            memory.count(Counter::Untranslated, 1);
            return None;
        };
        begin(flow, 1);
        let claimed = receive_bitmap::claim(flow, header.psn);
        if let Claim::Mine(_) = claimed {
            memory.write_window(
                u64::from(first.frame) * PAGE_BYTES as u64 + remote.address % PAGE_BYTES as u64,
                data,
            );
            let counter = &memory.control().counters.0[Counter::DirectWrites as usize];
            let before = counter.fetch_add(1, Ordering::Relaxed);
            translation::used(memory, first, before);
            translation::used(memory, last, before);
            flow.direct_writes.0.done.fetch_add(1, Ordering::Release);
            conclude(flow, header.psn, claimed);
            return Some(Verdict::WrittenDirectly);
        }
        consumed(flow, 1);
        verdict = Verdict::Duplicate;
    }
    memory.count(verdict.counter(), 1);
    Some(verdict)
}

/// A write of remote memory that is alone in its packet.
#[inline]
fn lone_write(body: &[u8]) -> Option<(RemoteFrame, &[u8])> {
    let Ok(Frame::Remote(remote, data)) = Frames::new(body).next()? else { return None };
    let writes = [Opcode::Write, Opcode::Piece].map(|opcode| opcode as u16).contains(&remote.opcode);
    (writes && !data.is_empty() && body.len() <= remote_frame_bytes(data.len())).then_some((remote, data))
}

/// Whether everything before the PSN has been done (invariant 4 of the memory).
#[inline]
fn is_in_turn<M: ReceiveMemory + ?Sized>(memory: &M, flow: &Flow, psn: Psn) -> bool {
    if (receive_bitmap::base(flow) != psn || !no_direct_write_in_progress(flow))
        && !defect!(DirectWriteOutOfTurn)
    {
        return false;
    }
    let control = memory.control();
    // What has been read first: it never overtakes the head.
    let read = control.ring_read.0.load(Ordering::Acquire);
    let all_read = control.ring_head.0.load(Ordering::Relaxed) == read || defect!(DirectWriteBeforeUnread);
    all_read && flow.direct_writes.0.held.load(Ordering::Relaxed) == 0
}

/// The translations of the first and the last page that are to be written. A key's pages lie in the window one behind the
/// other, as their addresses do.
#[inline]
fn translate<M: ReceiveMemory + ?Sized>(
    memory: &M,
    remote: &RemoteFrame,
    data: &[u8],
) -> Option<(translation::Found, translation::Found)> {
    let end = remote.address.checked_add(data.len() as u64 - 1)?;
    let (page, last_page) = (translation::page_of(remote.address)?, translation::page_of(end)?);
    let first = translation::look_up(memory, remote.key, page)?;
    if last_page == page {
        return Some((first, first));
    }
    let last = translation::look_up(memory, remote.key, last_page)?;
    (u64::from(last.frame) == u64::from(first.frame) + (last_page - page)).then_some((first, last))
}

/// Opens a flow table entry for a peer.
pub fn open(flow: &Flow, token: u64, epoch: u32, repeat: Repeat, limit: u64) {
    flow.epoch.store(epoch, Ordering::Relaxed);
    flow.repeat.store(repeat as u32, Ordering::Relaxed);
    flow.limit.store(limit, Ordering::Relaxed);
    flow.peer_token.store(0, Ordering::Relaxed);
    flow.peer_flow.store(0, Ordering::Relaxed);
    flow.checked.store(0, Ordering::Relaxed);
    flow.received.0.base.store(0, Ordering::Relaxed);
    flow.received.0.echo.store(0, Ordering::Relaxed);
    flow.received.0.xoff.store(0, Ordering::Relaxed);
    flow.received.0.owed.store(0, Ordering::Relaxed);
    flow.received.0.newest.store(0, Ordering::Relaxed);
    flow.received.0.ask_by_probe.store(0, Ordering::Relaxed);
    flow.acknowledged.0.ack.store(0, Ordering::Relaxed);
    flow.acknowledged.0.limit.store(0, Ordering::Relaxed);
    flow.direct_writes.0.started.store(0, Ordering::Relaxed);
    flow.direct_writes.0.done.store(0, Ordering::Relaxed);
    flow.direct_writes.0.held.store(0, Ordering::Relaxed);
    for (index, word) in flow.bitmap.0.iter().enumerate() {
        // No bits of block `index`, the first that will use this word.
        word.store((index as u64) << 32, Ordering::Relaxed);
    }
    flow.token.store(token, Ordering::Release);
}

/// Closes a flow table entry: nothing more is deposited under it.
pub fn close(flow: &Flow) {
    flow.token.store(0, Ordering::Release);
}
