//! Answers of a receive path that answers by itself, from nothing but receive memory.
//!
//! The XDP program does the same in C. The socket receive path has more to go by (what else is due, how many
//! packets it left unanswered) and puts its answers together itself.

use crate::memory::ReceiveMemory;
use crate::receive_bitmap;
use crate::receiver::{self, Verdict};
use tsumugi_wire::ack::{BODY_BYTES_MAX, Sack};
use tsumugi_wire::atomic::{AtomicU64, Ordering};
use tsumugi_wire::defect;
use tsumugi_wire::memory::{Control, Flow};
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// Of so many packets of strangers of a kind one goes on to the owner.
pub const STRANGERS_PER_RESET: u64 = 64;
/// The same of PROBEs: they are rare, and their sender waits for the answer, because our kernel vouches for a process
/// that has forgotten the flow.
pub const PROBES_PER_RESET: u64 = 8;

/// Counts a packet that belongs to no flow, and says whether the owner is to see it all the same, who may answer
/// RESET: so the peer of an endpoint that is gone is told.
///
/// That is the first packet and then every [`STRANGERS_PER_RESET`]th of an unknown flow or with a wrong token, so that
/// a flood of them costs next to nothing, and if it is a PROBE every [`PROBES_PER_RESET`]th. Nobody is left of another epoch.
pub fn refuse<M: ReceiveMemory + ?Sized>(memory: &M, verdict: Verdict, kind: Kind) -> bool {
    let counter = &memory.control().counters.0[verdict.counter() as usize];
    let before = counter.fetch_add(1, Ordering::Relaxed);
    let one_in = if kind == Kind::Probe { PROBES_PER_RESET } else { STRANGERS_PER_RESET };
    verdict != Verdict::WrongEpoch && before.is_multiple_of(one_in)
}

/// Notes what a PROBE, or a DATA packet that was not deposited, acknowledges of our flow to the peer: the owner reads
/// it when it runs next. Of what is deposited the record tells it.
///
/// What the packet says is the peer's word; the owner compares it with what it has sent.
#[inline]
pub fn note(flow: &Flow, header: &Header) {
    if header.flags.has(Flags::HAS_ACK) {
        raise(&flow.acknowledged.0.ack, header.ack.0 + u64::from(defect!(NotedTooFar)));
        raise(&flow.acknowledged.0.limit, header.ack.0.saturating_add(header.credit.into()));
    }
}

/// The word becomes `to`, unless it is more.
fn raise(word: &AtomicU64, to: u64) {
    let mut is = word.load(Ordering::Relaxed);
    while is < to {
        match word.compare_exchange_weak(is, to, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => is = seen,
        }
    }
}

/// The answer that a DATA packet must have now.
///
/// An ACK is due at once when the sender asks for it or the packet lies behind a gap; otherwise the sender will
/// ask at the end of its burst.
#[inline]
#[must_use]
pub fn due(flow: &Flow, header: &Header, verdict: Verdict) -> Option<Kind> {
    let asked = header.flags.has(Flags::ACK_REQUEST);
    match verdict.answer() {
        None if matches!(verdict, Verdict::Deposited | Verdict::WrittenDirectly)
            && (asked || header.psn >= receive_bitmap::base(flow)) =>
        {
            Some(Kind::Ack)
        }
        answer => answer,
    }
}

/// Whether the owner has said that answers from here do not leave the NIC, so that it must answer itself.
#[inline]
#[must_use]
pub fn is_left<M: ReceiveMemory + ?Sized>(memory: &M) -> bool {
    memory.control().answers_left.load(Ordering::Relaxed) != 0
}

/// Notes that an answer of `kind` was due for a packet that cannot carry one: it lies in several buffers, `scattered`, or
/// answers [are left](is_left) to the owner.
///
/// It goes out with the next packet of the flow that can carry it, or the owner sends it. Once packets were scattered,
/// answers tell the peer to ask with PROBEs.
pub fn owe<M: ReceiveMemory + ?Sized>(memory: &M, flow: &Flow, kind: Kind, scattered: bool) {
    if scattered {
        flow.received.0.ask_by_probe.store(1, Ordering::Relaxed);
    }
    // Two that owe at once may leave the less urgent one: the sender asks again.
    if flow.received.0.owed.load(Ordering::Relaxed) < kind as u32 {
        flow.received.0.owed.store(kind as u32, Ordering::Relaxed);
    }
    // A swap: the owner either sees it before it sleeps or has said that it sleeps, and the bell is rung.
    memory.control().owed.0.swap(1, Ordering::AcqRel);
}

/// The answer to send now, when `due` is due of itself: that, or the one that is owed if it says more. It is not owed any
/// more.
#[inline]
#[must_use]
pub fn take_owed(flow: &Flow, due: Option<Kind>) -> Option<Kind> {
    if flow.received.0.owed.load(Ordering::Relaxed) == 0 {
        return due;
    }
    let owed = flow.received.0.owed.swap(0, Ordering::AcqRel);
    // An XOFF is out of date when XON has been sent since.
    let owed = match owed {
        // Another was faster.
        0 => return due,
        nak if nak == Kind::Nak as u32 => Kind::Nak,
        xoff if xoff == Kind::Xoff as u32 && flow.received.0.xoff.load(Ordering::Relaxed) != 0 => Kind::Xoff,
        _ => Kind::Ack,
    };
    due.filter(|due| *due as u8 > owed as u8).or(Some(owed))
}

/// What every answer on the flow says beside its acknowledgement.
#[inline]
#[must_use]
pub fn flags(flow: &Flow) -> Flags {
    match flow.received.0.ask_by_probe.load(Ordering::Relaxed) {
        0 => Flags::HAS_ACK,
        _ => Flags::HAS_ACK.with(Flags::ASK_BY_PROBE),
    }
}

/// Whether the owner has said how to address the peer. Until then a PROBE, which is nothing but a question, is left
/// to the owner.
#[inline]
#[must_use]
pub fn ready(flow: &Flow) -> bool {
    flow.peer_token.load(Ordering::Acquire) != 0
}

/// An answer, and the body that goes with it; `crc32c` is asked for the body's CRC32C. `None` while the owner has
/// not said how to address the peer.
///
/// The credit is what the owner has granted, as far as it reaches from the base.
#[must_use]
pub fn make(
    control: &Control,
    flow: &Flow,
    kind: Kind,
    refused: Psn,
    crc32c: impl FnOnce(&[u8]) -> u32,
) -> Option<(Header, Sack)> {
    // Acquire: the token is published after the index.
    let token = flow.peer_token.load(Ordering::Acquire);
    if token == 0 {
        return None;
    }
    let (base, sack) = receive_bitmap::snapshot(flow);
    let mut header = Header::new(kind, control.epoch.load(Ordering::Relaxed));
    header.flags = flags(flow);
    (header.token, header.flow) = (token, flow.peer_flow.load(Ordering::Relaxed));
    header.ack = base;
    let from = if defect!(CreditFromZero) { base.0 / 2 } else { base.0 };
    let credit = receiver::limit(flow).0.saturating_sub(from);
    header.credit = u16::try_from(credit).unwrap_or(u16::MAX);
    let checked = Psn(flow.checked.load(Ordering::Relaxed));
    header.psn = if kind == Kind::Xoff { refused } else { checked };
    let mut buffer = [0; BODY_BYTES_MAX];
    let body = sack.encode(&mut buffer);
    (header.body_bytes, header.body_crc) = (body.len() as u16, crc32c(body));
    Some((header, sack))
}

/// Says how to address the peer of a flow, so that receive paths may answer it by themselves.
pub fn address(flow: &Flow, peer_flow: u32, peer_token: u64) {
    flow.peer_flow.store(peer_flow, Ordering::Relaxed);
    flow.peer_token.store(peer_token, Ordering::Release);
}
