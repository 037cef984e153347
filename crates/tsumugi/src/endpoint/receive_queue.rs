//! Reading the receive queue: what was deposited there, in the order of the ring, and giving it back.
//!
//! A record is given back when it was read, nobody needs a message in it any more, and the same holds of every record before it.

use std::collections::VecDeque;
use tsumugi_proto::{ReceiveMemory, queue};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::defect;
use tsumugi_wire::memory::Record;

/// Pieces in which the queue is given back.
const PIECES: u64 = 16;
/// Part of the queue that must be free before senders that had XOFF get XON: one in so many.
const ROOM_FOR_XON: u64 = 4;

/// A message's bytes.
#[derive(Debug)]
pub enum Payload {
    /// In the receive queue, in record number `record`.
    InPlace {
        /// Number of the record that it is a part of.
        record: u64,
        /// Where the record's body begins in the ring. Only from there on are its bytes contiguous: they may run
        /// into the pad.
        position: u64,
        /// Where the message begins in the body, bytes.
        at: u32,
        /// How long it is, bytes.
        bytes: u32,
    },
    /// In memory of its own.
    Owned(Vec<u8>),
}

/// A record that was read and not given back.
#[derive(Debug)]
struct Kept {
    span: u64,
    /// Messages in it that somebody still needs, and one while it is read.
    messages: u32,
}

/// A record that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its number.
    pub(crate) record: u64,
    /// Where its body begins in the ring.
    pub(crate) position: u64,
}

/// How far the queue was read, and what of it is kept.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    /// Position up to which it has been read.
    read: u64,
    /// The records that were read and not given back.
    kept: VecDeque<Kept>,
    /// Number of the first of them.
    first: u64,
    /// Where it begins.
    position: u64,
    /// Everything before this position is given back to the receive paths.
    given_back: u64,
}

impl ReceiveQueue {
    /// The record that was deposited next.
    #[inline]
    pub(crate) fn next<M: ReceiveMemory + ?Sized>(&self, memory: &M) -> Option<Record> {
        queue::read(memory, self.read)
    }

    /// Begins to read it. It is kept while it is read, and for every message in it that is [needed](ReceiveQueue::need). `None`:
    /// somebody wrote garbage into our memory, and nothing behind it can be found any more.
    pub(crate) fn take<M: ReceiveMemory + ?Sized>(&mut self, memory: &M, record: &Record) -> Option<Taken> {
        let span = Record::span(record.bytes);
        if self.read + span > self.given_back + memory.ring_bytes() {
            return None;
        }
        let position = self.read + Record::HEADER_BYTES;
        let number = self.first + self.kept.len() as u64;
        self.read += span;
        self.kept.push_back(Kept { span, messages: 1 });
        Some(Taken { record: number, position })
    }

    /// A record is needed for one thing more.
    #[inline]
    pub(crate) fn need(&mut self, record: u64) {
        self.kept[(record - self.first) as usize].messages += 1;
    }

    /// A record is needed for one thing less. Returns whether it is the first, and nobody needs it.
    #[inline]
    pub(crate) fn let_go(&mut self, record: u64) -> bool {
        let Some(kept) = self.kept.get_mut((record - self.first) as usize) else { return false };
        kept.messages -= 1;
        kept.messages == 0 && record == self.first
    }

    /// Counts off what nobody needs any more. It is given back in large pieces, unless a receive path waits for room:
    /// the words written for it are in the cache of the receive path's CPU, and every access here takes them away.
    pub(crate) fn release<M: ReceiveMemory + ?Sized>(&mut self, memory: &M) {
        while let Some(record) = self.kept.front()
            && record.messages <= u32::from(defect!(RecordReleasedEarly))
        {
            self.position += record.span;
            self.first += 1;
            self.kept.pop_front();
        }
        if self.spare_bytes() >= memory.ring_bytes() / PIECES {
            self.give_back(memory);
        }
    }

    fn give_back<M: ReceiveMemory + ?Sized>(&mut self, memory: &M) {
        if self.spare_bytes() > 0 {
            queue::release(memory, self.position);
            self.given_back = self.position;
        }
    }

    /// Gives everything back that nobody needs. Returns whether senders that had XOFF may send again.
    pub(crate) fn make_room<M: ReceiveMemory + ?Sized>(&mut self, memory: &M) -> bool {
        self.give_back(memory);
        queue::free_bytes(memory) >= memory.ring_bytes() / ROOM_FOR_XON
    }

    /// Bytes that are kept and how many there are, if reading alone will not make room for senders that had XOFF.
    pub(crate) fn exhausted<M: ReceiveMemory + ?Sized>(&self, memory: &M) -> Option<(u64, u64)> {
        let (kept, ring) = (self.kept_bytes(), memory.ring_bytes());
        (ring - kept < ring / ROOM_FOR_XON).then_some((kept, ring))
    }

    /// Bytes that are free or were not read. The queue's head would say how far receive paths have got, but it is in the cache of
    /// a receive path's CPU.
    pub(crate) fn unused_bytes<M: ReceiveMemory + ?Sized>(&self, memory: &M) -> u64 {
        memory.ring_bytes() - (self.read - self.given_back)
    }

    /// Whether everything that was deposited has been read.
    pub(crate) fn is_all_read<M: ReceiveMemory + ?Sized>(&self, memory: &M) -> bool {
        memory.control().ring_head.0.load(Ordering::Acquire) == self.read
    }

    /// Says in the memory how far the queue has been read.
    pub(crate) fn tell_read<M: ReceiveMemory + ?Sized>(&self, memory: &M) {
        memory.control().ring_read.0.store(self.read, Ordering::Release);
    }

    /// Bytes that are read, and needed or behind what is.
    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|record| record.span).sum()
    }

    /// Bytes that nobody needs and that are not given back yet.
    const fn spare_bytes(&self) -> u64 {
        self.position - self.given_back
    }

    /// Records that are read and not given back.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// What must hold.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn audit<M: ReceiveMemory + ?Sized>(&self, memory: &M) -> Result<(), String> {
        let control = memory.control();
        let head = control.ring_head.0.load(Ordering::Relaxed);
        let tail = control.ring_tail.0.load(Ordering::Relaxed);
        let (read, ring) = (self.read, memory.ring_bytes());
        if tail > head || head > tail + ring {
            return Err(format!("ring: tail {tail}, head {head} of {ring}"));
        }
        if read < tail || read > head {
            return Err(format!("ring: read up to {read} between {tail} and {head}"));
        }
        let kept = self.kept_bytes() + self.spare_bytes();
        if kept != read - tail {
            return Err(format!("queue: {kept} bytes kept, {} read and not given back", read - tail));
        }
        Ok(())
    }
}
