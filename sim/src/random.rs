//! Chance from a seed, the same from release to release: a seed in a report must replay.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    /// Chance number `stream` of `seed`. Different streams do not disturb each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        Random(Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `end` - 1; 0 for an `end` of 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `in_all` times.
    pub(crate) fn one_in(&mut self, in_all: u64) -> bool {
        self.below(in_all) == 0
    }

    /// A probability between 0 and `most`, often 0.
    pub(crate) fn share(&mut self, most: f64) -> f64 {
        if self.one_in(3) { 0.0 } else { most * self.below(1000) as f64 / 1000.0 }
    }

    /// One of `all`, which is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.bits().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
