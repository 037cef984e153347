//! Copying data of any length at full speed.
//!
//! C libraries copy a few KiB and more by the CPU's own copying instruction, up to the size of its second cache. Zen 3 and 4
//! take 15 to 25 times as long over that where the destination lies 1 to 31 bytes behind the source modulo 4096: 64 KiB 22 µs
//! instead of 1.5 (EPYC, glibc 2.36). Two blocks of `malloc` and a frame header in front of the message make just that. Steps that
//! are too short for that instruction are as fast as it is, wherever they lie.

use std::ops::{Deref, DerefMut};
use std::ptr;

/// Bytes that every C library copies without that instruction, and the length from which none uses it.
const STEP_BYTES: usize = 2048;
const LONG_BYTES: usize = 1 << 20;

/// Copies bytes.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn bytes(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= STEP_BYTES || bytes >= LONG_BYTES {
        // SAFETY: as the caller promises.
        return unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }
    for at in (0..bytes).step_by(STEP_BYTES) {
        // SAFETY: a part of what the caller promises.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), STEP_BYTES.min(bytes - at)) };
    }
}

/// Copies bytes to the end of a vector.
#[inline]
pub fn append(from: &[u8], to: &mut Vec<u8>) {
    to.reserve(from.len());
    let end = to.len();
    // SAFETY: there is room, which belongs to nobody else, and becomes part of the vector when it has been written.
    unsafe {
        bytes(from.as_ptr(), to.as_mut_ptr().add(end), from.len());
        to.set_len(end + from.len());
    }
}

/// Copies bytes to a place of the same length.
///
/// # Panics
/// The lengths differ.
#[inline]
pub fn fill(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "what is copied has another length than its place");
    // SAFETY: both are there, of that length, and an exclusive reference overlaps with no other.
    unsafe { bytes(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// Bytes that the kernel copies from or to.
///
/// They begin half a page behind the beginning of a page. What the kernel copies them to or from begins at that of a page,
/// or a few headers behind it, and its copying has the same weakness: 64 KiB over veth and back take bare UDP 30 µs like this,
/// and 110 where `malloc` puts them.
#[derive(Debug)]
pub struct Staging {
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Staging {
    /// So many bytes of this value.
    #[must_use]
    pub fn new(bytes: usize, value: u8) -> Staging {
        let memory: Box<[u8]> = vec![value; bytes + PAGE_BYTES].into();
        let start = (PAGE_BYTES / 2).wrapping_sub(memory.as_ptr().addr()) % PAGE_BYTES;
        Staging { memory, start, bytes }
    }
}

impl Deref for Staging {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Staging {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_to_its_place_whatever_the_length() {
        for length in [0, 1, STEP_BYTES, STEP_BYTES + 1, 5 * STEP_BYTES - 1, LONG_BYTES - 1, LONG_BYTES] {
            let from: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut to = vec![7];
            append(&from, &mut to);
            assert!(to[0] == 7 && to[1..] == from, "{length} bytes");
            let mut place = vec![0; length];
            fill(&from, &mut place);
            assert!(place == from, "{length} bytes");
        }
    }

    #[test]
    fn staging_begins_in_the_middle_of_a_page() {
        for bytes in [0, 1, 64 << 10, 1 << 20] {
            let staging = Staging::new(bytes, 0);
            assert_eq!((staging.as_ptr().addr() % PAGE_BYTES, staging.len()), (PAGE_BYTES / 2, bytes));
        }
    }
}
