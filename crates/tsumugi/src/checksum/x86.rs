//! CRC32C by the CPU's own instruction.
//!
//! It takes 8 bytes in each cycle, but three cycles for its result. So three stretches of equal length are done side by
//! side, and then what the first two leave is moved behind the others: multiplied by a power of x, one for each length (Gopal et al.,
//! "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011).

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm_xor_si128,
};

/// Castagnoli's polynomial, its highest power in the lowest bit, as in all that follows.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Longest stretch, words of 8 bytes.
const WORDS_MAX: usize = 255;
/// Fewest bytes that are done in stretches.
const STRETCHED_BYTES_MIN: usize = 192;

/// By `words`: x to the power of 64 × words − 33. Multiplying by it, and then having the instruction reduce the product, moves a CRC
/// that many words on. Of the 33, the instruction adds 32 and the product, which is one bit short of two words, one.
static BEHIND: [u32; 2 * WORDS_MAX + 1] = {
    let mut behind = [0; 2 * WORDS_MAX + 1];
    let (mut words, mut power) = (1, times_x(1 << 31, 31));
    while words < behind.len() {
        behind[words] = power;
        power = times_x(power, 64);
        words += 1;
    }
    behind
};

/// A polynomial times a power of x.
const fn times_x(mut polynomial: u32, mut power: u32) -> u32 {
    while power > 0 {
        let carry = polynomial & 1;
        polynomial >>= 1;
        if carry == 1 {
            polynomial ^= POLYNOMIAL;
        }
        power -= 1;
    }
    polynomial
}

/// CRC32C of pieces that lie behind each other, if this is how this CPU does it fastest.
#[inline]
pub(super) fn crc32c<const PIECES: usize>(pieces: [&[u8]; PIECES]) -> Option<u32> {
    let can = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
    if !can || is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq") {
        return None;
    }
    // SAFETY: the CPU has the instructions.
    let add = |crc, piece: &&[u8]| unsafe { add(crc, piece) };
    Some(!pieces.iter().fold(!0, add))
}

/// The CRC, not inverted, of what `crc` is of and `bytes` behind that.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn add(crc: u32, mut bytes: &[u8]) -> u32 {
    let mut crc = u64::from(crc);
    while bytes.len() >= STRETCHED_BYTES_MIN {
        let words = (bytes.len() / 24).min(WORDS_MAX);
        let (first, rest) = bytes.split_at(8 * words);
        let (second, rest) = rest.split_at(8 * words);
        let (third, rest) = rest.split_at(8 * words);
        let mut crcs = [crc, 0, 0];
        let [first, second, third] = [first, second, third].map(|stretch| stretch.as_chunks().0);
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            crcs[0] = _mm_crc32_u64(crcs[0], u64::from_le_bytes(*first));
            crcs[1] = _mm_crc32_u64(crcs[1], u64::from_le_bytes(*second));
            crcs[2] = _mm_crc32_u64(crcs[2], u64::from_le_bytes(*third));
        }
        let before = _mm_xor_si128(times(crcs[0], BEHIND[2 * words]), times(crcs[1], BEHIND[words]));
        crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(before).cast_unsigned()) ^ crcs[2];
        bytes = rest;
    }
    let (words, rest) = bytes.as_chunks();
    crc = words.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// The product of two polynomials.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn times(one: u64, other: u32) -> __m128i {
    _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(one.cast_signed()), _mm_cvtsi64_si128(i64::from(other)))
}
