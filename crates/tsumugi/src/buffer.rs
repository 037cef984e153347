//! Memory of the application that the library writes received bytes into.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use tsumugi_rail::copy;

/// Memory of the application that is lent to the library until a message has been received into it.
///
/// A `Vec<u8>` becomes one by [`From`]; the message may be as long as the vector is.
pub struct Buffer(Memory);

enum Memory {
    Vector(Vec<u8>),
    /// Memory of somebody else; see [`Buffer::from_raw_parts`].
    Foreign(NonNull<u8>, usize),
    /// A part of a vector: no other part overlaps it, and the last frees the vector.
    Part(Rc<Whole>, NonNull<u8>, usize),
}

/// A vector that was split: where it begins, its length and its capacity.
struct Whole(NonNull<u8>, usize, usize);

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: they are those of a vector that nobody else has (`Buffer::split_front`), and no part is left.
        drop(unsafe { Vec::from_raw_parts(self.0.as_ptr(), self.1, self.2) });
    }
}

impl Buffer {
    /// `bytes` of memory from `start` on that does not belong to Rust.
    ///
    /// # Safety
    /// Until the buffer is dropped, the memory must be initialised, valid to be read and written, and nobody else may
    /// touch it. It is dropped by whoever takes it out of a completion, or with the port that has it.
    #[must_use]
    pub unsafe fn from_raw_parts(start: NonNull<u8>, bytes: usize) -> Buffer {
        Buffer(Memory::Foreign(start, bytes))
    }

    /// The vector again; empty when the memory is somebody else's, or was split.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Vector(vector) => vector,
            Memory::Foreign(..) | Memory::Part(..) => Vec::new(),
        }
    }

    /// Only the first `bytes` of it, if it has more.
    pub(crate) fn shortened(mut self, bytes: usize) -> Buffer {
        match &mut self.0 {
            Memory::Vector(vector) => vector.truncate(bytes),
            Memory::Foreign(_, all) | Memory::Part(_, _, all) => *all = bytes.min(*all),
        }
        self
    }

    /// Splits the first `bytes` off, or all of it, if it has no more.
    pub(crate) fn split_front(&mut self, bytes: usize) -> Buffer {
        if let Memory::Vector(vector) = &mut self.0 {
            let mut vector = ManuallyDrop::new(std::mem::take(vector));
            let start = NonNull::from(vector.as_mut_slice()).cast();
            let (all, capacity) = (vector.len(), vector.capacity());
            self.0 = Memory::Part(Rc::new(Whole(start, all, capacity)), start, all);
        }
        let bytes = bytes.min(self.len());
        // SAFETY: `bytes` is not beyond the end of the memory.
        let behind = |start: &NonNull<u8>| unsafe { start.add(bytes) };
        match &mut self.0 {
            Memory::Vector(_) => Buffer::default(),
            Memory::Foreign(start, all) => {
                let front = Memory::Foreign(*start, bytes);
                (*start, *all) = (behind(start), *all - bytes);
                Buffer(front)
            }
            Memory::Part(whole, start, all) => {
                let front = Memory::Part(Rc::clone(whole), *start, bytes);
                (*start, *all) = (behind(start), *all - bytes);
                Buffer(front)
            }
        }
    }

    /// Writes `data` to the place `at`; what lies beyond the end is dropped.
    pub(crate) fn write(&mut self, at: usize, data: &[u8]) {
        let end = (at + data.len()).min(self.len());
        if let Some(place) = self.get_mut(at..end) {
            copy::fill(&data[..place.len()], place);
        }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::from(Vec::new())
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(vector: Vec<u8>) -> Buffer {
        Buffer(Memory::Vector(vector))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Vector(vector) => vector,
            // SAFETY: valid, initialised and ours alone as long as `self` lives: the promise of `from_raw_parts`, or of parts.
            Memory::Foreign(start, bytes) | Memory::Part(_, start, bytes) => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *bytes)
            },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Vector(vector) => vector,
            // SAFETY: as in `deref`; and nobody else borrows it, for we have the only way to it.
            Memory::Foreign(start, bytes) | Memory::Part(_, start, bytes) => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), *bytes)
            },
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer of {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_the_end_is_dropped() {
        let mut memory = [0u8; 8];
        // SAFETY: `memory` outlives the buffer and is not touched before that is dropped.
        let mut foreign = unsafe { Buffer::from_raw_parts(NonNull::new(memory.as_mut_ptr()).unwrap(), 6) };
        let mut own = Buffer::from(vec![0; 6]);
        for buffer in [&mut foreign, &mut own] {
            buffer.write(4, &[1, 2, 3]);
            buffer.write(6, &[4]);
            buffer.write(100, &[5]);
            buffer.write(0, &[]);
            assert_eq!(buffer[..], [0, 0, 0, 0, 1, 2]);
        }
        drop(foreign);
        assert_eq!(memory, [0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(own.into_vec(), [0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn parts_do_not_overlap_and_live_as_long_as_they_are_held() {
        let mut memory = [0u8; 8];
        // SAFETY: `memory` outlives the buffers and is not touched before they are dropped.
        let foreign = unsafe { Buffer::from_raw_parts(NonNull::new(memory.as_mut_ptr()).unwrap(), 8) };
        for mut rest in [foreign, Buffer::from(vec![0; 8])] {
            let mut first = rest.split_front(3);
            let mut second = rest.split_front(2);
            assert_eq!((first.len(), second.len(), rest.len()), (3, 2, 3));
            first.write(0, &[1; 9]);
            second.write(0, &[2; 9]);
            rest.write(0, &[3; 9]);
            assert_eq!([&first[..], &second[..], &rest[..]].concat(), [1, 1, 1, 2, 2, 3, 3, 3]);
            drop((first, second));
            assert_eq!(rest.shortened(2)[..], [3, 3]);
        }
        let mut empty = Buffer::default();
        assert!(empty.split_front(5).is_empty() && empty.is_empty());
    }
}
