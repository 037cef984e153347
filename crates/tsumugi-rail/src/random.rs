//! Random numbers from a seed: the same seed gives the same numbers.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator whose numbers stay the same from release to release, which a replayed seed relies on.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Pcg64Mcg::seed_from_u64(seed))
    }

    /// True with the given probability, between 0 and 1. What never happens costs no number.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.0.next_u64() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }

    /// A number from 0 to `end` - 1; 0 for an `end` of 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end <= 1 {
            return 0;
        }
        // Multiplying instead of dividing (Lemire 2019); the bias is far below what a test can see.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Flips one bit of `bytes`, if there are any.
    pub(crate) fn damage(&mut self, bytes: &mut [u8]) {
        let bit = self.below(8 * bytes.len() as u64) as usize;
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
