//! The receive queue: a byte ring with several writers and one reader.
//!
//! A writer claims space by compare-and-swap on the head, never past the tail, so that a full queue is
//! known before anything is taken; copies; and publishes by writing the record's first word last
//! (as Aeron's log buffers do). The reader sees records in ring order, may keep some, and frees the
//! released prefix, zeroed, by moving the tail. Invariants 1 and 2 of [`tsumugi_wire::memory`].

use crate::memory::ReceiveMemory;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::Record;

/// There is no room for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Claims space for a record with a body of `bytes` and returns its position.
///
/// # Errors
/// The queue has no room now.
#[inline]
pub fn claim<M: ReceiveMemory + ?Sized>(memory: &M, bytes: u32) -> Result<u64, Full> {
    let control = memory.control();
    let span = Record::span(bytes);
    let mut head = control.ring_head.0.load(Ordering::Relaxed);
    loop {
        // Acquire: the zeroes behind the tail happened before the tail moved (invariant 1).
        let tail = control.ring_tail.0.load(Ordering::Acquire);
        if head.wrapping_add(span).wrapping_sub(tail) > memory.ring_bytes() {
            return Err(Full);
        }
        match control.ring_head.0.compare_exchange_weak(
            head,
            head.wrapping_add(span),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return Ok(head),
            Err(seen) => head = seen,
        }
    }
}

/// Makes the record at a claimed `position` visible to the reader; its body is in place.
#[inline]
pub fn publish<M: ReceiveMemory + ?Sized>(memory: &M, position: u64, record: Record) {
    let [first, second, third] = record.words();
    memory.word(position + 8).store(second, Ordering::Relaxed);
    memory.word(position + 16).store(third, Ordering::Relaxed);
    memory.word(position).store(first, Ordering::Release);
}

/// The record at `position`, if it is published.
#[inline]
pub fn read<M: ReceiveMemory + ?Sized>(memory: &M, position: u64) -> Option<Record> {
    let first = memory.word(position).load(Ordering::Acquire);
    if first == 0 {
        return None;
    }
    let second = memory.word(position + 8).load(Ordering::Relaxed);
    let third = memory.word(position + 16).load(Ordering::Relaxed);
    Record::from_words([first, second, third])
}

/// Gives everything before `to` back to the writers; `from` is where the last release ended.
#[inline]
pub fn release<M: ReceiveMemory + ?Sized>(memory: &M, from: u64, to: u64) {
    memory.zero(from, to - from);
    memory.control().ring_tail.0.store(to, Ordering::Release);
}

/// Bytes that can be claimed now.
#[must_use]
pub fn free_bytes<M: ReceiveMemory + ?Sized>(memory: &M) -> u64 {
    let control = memory.control();
    let tail = control.ring_tail.0.load(Ordering::Relaxed);
    let used = control.ring_head.0.load(Ordering::Relaxed).wrapping_sub(tail);
    memory.ring_bytes().saturating_sub(used)
}
