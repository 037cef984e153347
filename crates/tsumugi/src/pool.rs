//! Buffers that are used again, so that the packet path neither allocates nor faults pages in.

use tsumugi_wire::Instant;
use tsumugi_wire::time::SECOND_NS;

/// Bytes of short buffers that the pool keeps at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of the shortest long buffer. Long ones are kept, however many, for as long as such are used.
const LONG_BYTES: usize = 8 << 20;
/// Between two looks at the long ones, ns. Those of a length that was not in use between two looks are given back to the system.
const LOOK_NS: u64 = SECOND_NS;
/// Smallest class, as a power of two.
const CLASS_MIN: u32 = 8;
/// Number of classes: 256 B to 2 GiB.
const CLASSES: usize = 24;

/// A pool of byte vectors in classes of powers of two.
#[derive(Debug)]
pub(crate) struct Pool {
    classes: [Class; CLASSES],
    /// Bytes of the short buffers in it, and of the long ones.
    short_bytes: usize,
    long_bytes: usize,
    /// When the long ones are looked at next, if there are any.
    look_due: Instant,
}

#[derive(Debug, Default)]
struct Class {
    buffers: Vec<Vec<u8>>,
    /// Of long buffers: looks until they count as unused; 0: they do.
    looks_left: u8,
}

impl Default for Pool {
    fn default() -> Self {
        let classes = std::array::from_fn(|_| Class::default());
        Pool { classes, short_bytes: 0, long_bytes: 0, look_due: Instant(0) }
    }
}

impl Pool {
    /// An empty vector with room for `bytes`, or `None` when the system has no memory for it.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let mut buffer = self.find(bytes)?;
        buffer.clear();
        Some(buffer)
    }

    /// A vector of `bytes` arbitrary bytes with room for `more`, or `None` when the system has no memory for it.
    ///
    /// A used buffer keeps its old bytes: zeroing a megabyte costs a tenth of sending it.
    pub(crate) fn take_filled(&mut self, bytes: usize, more: usize) -> Option<Vec<u8>> {
        let mut buffer = self.find(bytes + more)?;
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    fn find(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let power = bytes.max(1).next_power_of_two().trailing_zeros().max(CLASS_MIN);
        let mut capacity = bytes;
        if let Some(class) = self.classes.get_mut((power - CLASS_MIN) as usize) {
            class.looks_left = 2;
            if let Some(buffer) = class.buffers.pop() {
                *self.kept_bytes(buffer.capacity()) -= buffer.capacity();
                return Some(buffer);
            }
            capacity = 1 << power;
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(capacity).ok()?;
        Some(buffer)
    }

    /// Takes a vector back for later use.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        // A class holds vectors of at least its size.
        if capacity < 1 << CLASS_MIN {
            return;
        }
        let Some(class) = self.classes.get_mut((capacity.ilog2() - CLASS_MIN) as usize) else { return };
        let has_room = if capacity < LONG_BYTES {
            self.short_bytes + capacity <= KEPT_BYTES_MAX
        } else {
            // One that comes back was in use until now, however long its message took.
            class.looks_left = class.looks_left.max(1);
            true
        };
        if has_room {
            class.buffers.push(buffer);
            *self.kept_bytes(capacity) += capacity;
        }
    }

    /// Bytes that are kept in buffers like one of this capacity.
    fn kept_bytes(&mut self, capacity: usize) -> &mut usize {
        if capacity < LONG_BYTES { &mut self.short_bytes } else { &mut self.long_bytes }
    }

    /// Gives long buffers back to the system that were not asked for of late.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.long_bytes > 0 && now >= self.look_due {
            self.look(now);
        }
    }

    #[cold]
    fn look(&mut self, now: Instant) {
        self.look_due = now.plus(LOOK_NS);
        let first_long = (LONG_BYTES.ilog2() - CLASS_MIN) as usize;
        for class in &mut self.classes[first_long..] {
            if class.looks_left == 0 {
                self.long_bytes -= class.buffers.drain(..).map(|buffer| buffer.capacity()).sum::<usize>();
            }
            class.looks_left = class.looks_left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_large_enough() {
        let mut pool = Pool::default();
        for bytes in [0, 1, 255, 256, 257, 1424, 1 << 20, (1 << 20) + 1] {
            let mut buffer = pool.take(bytes).unwrap();
            assert!(buffer.is_empty() && buffer.capacity() >= bytes);
            buffer.resize(bytes, 1);
            let place = buffer.as_ptr();
            pool.give(buffer);
            let again = pool.take(bytes).unwrap();
            assert!(again.is_empty() && again.capacity() >= bytes);
            assert_eq!(again.as_ptr(), place, "{bytes}: not used again");
        }
    }

    #[test]
    fn it_keeps_a_bounded_number_of_bytes() {
        let mut pool = Pool::default();
        for _ in 0..100 {
            pool.give(Vec::with_capacity(4 << 20));
        }
        assert_eq!(pool.short_bytes, KEPT_BYTES_MAX);
    }

    #[test]
    fn long_buffers_are_kept_for_as_long_as_such_are_asked_for() {
        const LONG: usize = 1 << 30;
        let (mut pool, mut now) = (Pool::default(), Instant(0));
        for _ in 0..10 {
            now = now.plus(LOOK_NS);
            let buffers = [(); 2].map(|()| pool.take(LONG).unwrap());
            buffers.into_iter().for_each(|buffer| pool.give(buffer));
            pool.tick(now);
            assert_eq!(pool.long_bytes, 2 * LONG, "they are used again");
        }
        let short = pool.take(1000).unwrap();
        pool.give(short);
        for _ in 0..4 {
            now = now.plus(LOOK_NS);
            pool.tick(now);
        }
        assert_eq!((pool.long_bytes, pool.short_bytes), (0, 1024), "nobody has asked for long ones");
        pool.give(Vec::with_capacity(LONG));
        assert_eq!(pool.long_bytes, LONG, "it was in use for longer than others are kept");
        for _ in 0..2 {
            now = now.plus(LOOK_NS);
            pool.tick(now);
        }
        assert_eq!(pool.long_bytes, 0);
    }
}
