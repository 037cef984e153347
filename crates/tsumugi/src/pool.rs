//! Buffers that are used again, so that the packet path neither allocates nor faults pages in.

/// Bytes that the pool keeps at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Smallest class, as a power of two.
const CLASS_MIN: u32 = 8;
/// Number of classes: 256 B to 2 GiB.
const CLASSES: usize = 24;

/// A pool of byte vectors in classes of powers of two.
#[derive(Debug)]
pub(crate) struct Pool {
    classes: [Vec<Vec<u8>>; CLASSES],
    kept_bytes: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { classes: std::array::from_fn(|_| Vec::new()), kept_bytes: 0 }
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
        let class = bytes.max(1).next_power_of_two().trailing_zeros().max(CLASS_MIN);
        let index = (class - CLASS_MIN) as usize;
        if let Some(list) = self.classes.get_mut(index)
            && let Some(buffer) = list.pop()
        {
            self.kept_bytes -= buffer.capacity();
            return Some(buffer);
        }
        let mut buffer = Vec::new();
        let capacity = if index < CLASSES { 1 << class } else { bytes };
        buffer.try_reserve_exact(capacity).ok()?;
        Some(buffer)
    }

    /// Takes a vector back for later use.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        // A class holds vectors of at least its size.
        if capacity < 1 << CLASS_MIN || self.kept_bytes + capacity > KEPT_BYTES_MAX {
            return;
        }
        let index = (capacity.ilog2() - CLASS_MIN) as usize;
        if let Some(list) = self.classes.get_mut(index) {
            self.kept_bytes += capacity;
            list.push(buffer);
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
        assert!(pool.kept_bytes <= KEPT_BYTES_MAX);
    }
}
