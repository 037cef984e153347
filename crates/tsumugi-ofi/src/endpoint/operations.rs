//! Operations that are under way, and who is told of their end.

use crate::abi::*;
use crate::counter::Counter;
use crate::error::Trouble;
use crate::queue::{Entry, Queue};
use crate::waiting::Sources;
use libc::iovec;
use slab::Slab;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;
use tsumugi::message::Listed;
use tsumugi::remote::Operation;
use tsumugi::{PeerId, Region, Ticket};
use tsumugi_rail::copy;

/// Kinds of operations, by whom they are told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Receive,
    Read,
    Write,
}

/// Who is told: a queue and a counter for each kind.
#[derive(Clone, Default)]
pub(super) struct Reports([Report; 4]);

#[derive(Clone, Default)]
struct Report {
    queue: Option<Rc<Queue>>,
    /// Only operations that ask for it, and errors, come to the queue.
    selective: bool,
    counter: Option<Rc<Counter>>,
}

impl Reports {
    /// `false`: there is a queue already for some of these operations, and nothing is changed.
    pub(super) fn bind_queue(&mut self, queue: &Rc<Queue>, flags: u64) -> bool {
        let directions = [
            (Side::Send, FI_TRANSMIT),
            (Side::Receive, FI_RECV),
            (Side::Read, FI_TRANSMIT),
            (Side::Write, FI_TRANSMIT),
        ];
        let sides = directions.into_iter().filter(|(_, flag)| flags & flag != 0);
        let sides = sides.map(|(side, _)| side as usize);
        if sides.clone().any(|side| self.0[side].queue.is_some()) {
            return false;
        }
        sides.for_each(|side| {
            self.0[side].queue = Some(Rc::clone(queue));
            self.0[side].selective = flags & FI_SELECTIVE_COMPLETION != 0;
        });
        true
    }

    /// `false`: there is a counter already for some of these operations, and nothing is changed.
    pub(super) fn bind_counter(&mut self, counter: &Rc<Counter>, flags: u64) -> bool {
        let kinds =
            [(Side::Send, FI_SEND), (Side::Receive, FI_RECV), (Side::Read, FI_READ), (Side::Write, FI_WRITE)];
        let sides = kinds.into_iter().filter(|(_, flag)| flags & flag != 0);
        let sides = sides.map(|(side, _)| side as usize);
        if sides.clone().any(|side| self.0[side].counter.is_some()) {
            return false;
        }
        sides.for_each(|side| self.0[side].counter = Some(Rc::clone(counter)));
        true
    }

    /// Whether anybody is told of anything.
    pub(super) fn is_heard(&self) -> bool {
        self.0.iter().any(|report| report.queue.is_some() || report.counter.is_some())
    }

    /// Everything that one may wait for.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Sources> {
        self.0.iter().flat_map(|report| {
            let queue = report.queue.as_ref().map(|queue| &queue.sources);
            queue.into_iter().chain(report.counter.as_ref().map(|counter| &counter.sources))
        })
    }

    /// Whether the end of an operation with these flags is an entry of the queue.
    #[inline]
    pub(super) fn wants(&self, side: Side, flags: u64) -> bool {
        !self.0[side as usize].selective || flags & FI_COMPLETION != 0
    }

    /// An operation is complete.
    #[inline]
    pub(super) fn done(&self, side: Side, entry: Entry, wanted: bool) {
        let report = &self.0[side as usize];
        if wanted && let Some(queue) = &report.queue {
            queue.done(entry);
        }
        if let Some(counter) = &report.counter {
            counter.count(true);
        }
    }

    /// An operation has failed, which is told whether it was asked for or not.
    pub(super) fn failed(&self, side: Side, entry: Entry, trouble: Trouble, lost_bytes: usize) {
        let report = &self.0[side as usize];
        if let Some(queue) = &report.queue {
            queue.failed(entry, trouble, lost_bytes);
        }
        if let Some(counter) = &report.counter {
            counter.count(false);
        }
    }

    /// The buffer of a receive for several messages is its owner's again: said with the last of them, if that is the newest entry.
    pub(super) fn released(&self, context: *mut c_void) {
        if let Some(queue) = &self.0[Side::Receive as usize].queue
            && !queue.mark_newest(context, FI_MULTI_RECV)
        {
            queue.done(Entry::new(context, FI_MULTI_RECV));
        }
    }
}

/// An operation that is under way.
pub(super) struct Begun {
    pub(super) side: Side,
    pub(super) context: *mut c_void,
    /// What has completed, as flags of the entry.
    pub(super) flags: u64,
    /// Whether its success is an entry of the queue.
    pub(super) wanted: bool,
    /// Complete only when the peer has it.
    pub(super) delivered: bool,
    /// Where what was received or read goes, if not straight to the caller's buffer.
    pub(super) pieces: Pieces,
    /// A receive, as the library knows it.
    pub(super) request: Option<Listed>,
}

/// The caller's buffer, if it is in several pieces.
#[derive(Default)]
pub(super) enum Pieces {
    #[default]
    One,
    /// What is received comes from the completion's buffer, what is read from the region.
    Several(Vec<iovec>, Option<Region>),
}

impl Begun {
    pub(super) fn entry(&self) -> Entry {
        Entry::new(self.context, self.flags)
    }
}

/// What is under way.
#[derive(Default)]
pub(super) struct Operations {
    pub(super) begun: Slab<Begun>,
    /// By peer, what is known only when it is asked for.
    awaited: Vec<Awaited>,
}

/// What was asked of one peer, in the order in which it will be done.
pub(super) struct Awaited {
    pub(super) peer: PeerId,
    /// Messages that are to be on their way, or to have arrived.
    pub(super) tickets: VecDeque<(Ticket, usize)>,
    /// Reads, and fences behind writes.
    pub(super) operations: VecDeque<(Operation, Behind)>,
    /// Writes that no fence stands behind yet.
    pub(super) unfenced: Vec<(Ticket, usize)>,
}

/// What is done when an operation of the library is.
pub(super) enum Behind {
    Read(usize),
    Writes(Vec<(Ticket, usize)>),
}

impl Operations {
    /// What is awaited of a peer.
    pub(super) fn of(&mut self, peer: PeerId) -> &mut Awaited {
        let at = self.awaited.iter().position(|awaited| awaited.peer == peer).unwrap_or_else(|| {
            let (tickets, operations, unfenced) = (VecDeque::new(), VecDeque::new(), Vec::new());
            self.awaited.push(Awaited { peer, tickets, operations, unfenced });
            self.awaited.len() - 1
        });
        &mut self.awaited[at]
    }

    /// Whether anything is awaited of anybody.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Whether nothing is awaited of a peer.
    pub(super) fn is_clear(&self, peer: PeerId) -> bool {
        !self.awaited.iter().any(|awaited| awaited.peer == peer)
    }

    /// What is awaited of everybody, to be looked through.
    pub(super) fn take_awaited(&mut self) -> Vec<Awaited> {
        std::mem::take(&mut self.awaited)
    }

    /// What is left of it.
    pub(super) fn put_awaited(&mut self, mut left: Vec<Awaited>) {
        left.retain(|awaited| {
            !(awaited.tickets.is_empty() && awaited.operations.is_empty() && awaited.unfenced.is_empty())
        });
        // What was begun meanwhile is behind it.
        for later in std::mem::replace(&mut self.awaited, left) {
            let awaited = self.of(later.peer);
            awaited.tickets.extend(later.tickets);
            awaited.operations.extend(later.operations);
            awaited.unfenced.extend(later.unfenced);
        }
    }

    /// The write of a ticket that nobody has been told of yet.
    pub(super) fn take_write(&mut self, ticket: Ticket) -> Option<usize> {
        for awaited in &mut self.awaited {
            let groups = awaited.operations.iter_mut().filter_map(|(_, behind)| match behind {
                Behind::Writes(writes) => Some(writes),
                Behind::Read(_) => None,
            });
            for writes in groups.chain([&mut awaited.unfenced]) {
                if let Some(at) = writes.iter().position(|(known, _)| *known == ticket) {
                    return Some(writes.remove(at).1);
                }
            }
        }
        None
    }
}

/// Copies bytes to the pieces of a buffer, as far as they go.
///
/// # Safety
/// The pieces are there.
pub(super) unsafe fn scatter(mut data: &[u8], pieces: &[iovec]) {
    for piece in pieces {
        let bytes = piece.iov_len.min(data.len());
        // SAFETY: as the caller promises.
        unsafe { copy::bytes(data.as_ptr(), piece.iov_base.cast(), bytes) };
        data = &data[bytes..];
    }
}
