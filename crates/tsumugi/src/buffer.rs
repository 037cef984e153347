//! Memory of the application that the library writes received bytes into.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory of the application that is lent to the library until a message has been received into it.
///
/// A `Vec<u8>` becomes one by [`From`]; the message may be as long as the vector is.
pub struct Buffer(Memory);

enum Memory {
    Vector(Vec<u8>),
    /// Memory of somebody else; see [`Buffer::from_raw_parts`].
    Foreign(NonNull<u8>, usize),
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

    /// The vector again; empty when the memory is somebody else's.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Vector(vector) => vector,
            Memory::Foreign(..) => Vec::new(),
        }
    }

    /// Writes `data` to the place `at`; what lies beyond the end is dropped.
    pub(crate) fn write(&mut self, at: usize, data: &[u8]) {
        let end = (at + data.len()).min(self.len());
        if let Some(place) = self.get_mut(at..end) {
            place.copy_from_slice(&data[..place.len()]);
        }
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
            // SAFETY: valid, initialised and ours alone as long as `self` lives: the promise of `from_raw_parts`.
            Memory::Foreign(start, bytes) => unsafe { std::slice::from_raw_parts(start.as_ptr(), *bytes) },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Vector(vector) => vector,
            // SAFETY: as in `deref`; and nobody else borrows it, for we have the only way to it.
            Memory::Foreign(start, bytes) => unsafe {
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
}
