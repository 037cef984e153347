//! The receive queue: a byte ring with several writers and one reader.
//!
//! A writer claims space by compare-and-swap on the head, never past the tail, so that a full queue is
//! known before anything is taken; copies; and publishes by writing the record's seal last
//! (as Aeron's log buffers do with a length). The reader sees records in ring order, may keep some, and frees the
//! released prefix by moving the tail. Invariants 1 and 2 of [`tsumugi_wire::memory`].

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
pub fn claim<M: ReceiveMemory + ?Sized>(memory: &M, bytes: u16) -> Result<u64, Full> {
    let control = memory.control();
    let span = Record::span(bytes);
    let mut head = control.ring_head.0.load(Ordering::Relaxed);
    loop {
        // Acquire: the owner has read what lay here before the tail moved.
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
    for (word, at) in record.words().into_iter().zip((position + 8..).step_by(8)) {
        memory.word(at).store(word, Ordering::Relaxed);
    }
    memory.word(position).store(memory.control().seal_at(position), Ordering::Release);
}

/// The record at `position`, if it is published.
#[inline]
pub fn read<M: ReceiveMemory + ?Sized>(memory: &M, position: u64) -> Option<Record> {
    if memory.word(position).load(Ordering::Acquire) != memory.control().seal_at(position) {
        return None;
    }
    Some(Record::from_words([8, 16, 24, 32].map(|at| memory.word(position + at).load(Ordering::Relaxed))))
}

/// Gives everything before `to` back to the writers.
#[inline]
pub fn release<M: ReceiveMemory + ?Sized>(memory: &M, to: u64) {
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
