//! The receive bitmap of a flow: which PSNs have been deposited.
//!
//! A word holds the number of a block of 32 PSNs in its upper half and the block's bits in its lower
//! half. A word of an older block counts as empty and is replaced, so nothing is ever cleared: a
//! scheme that clears must do it before or after moving the base, and either order lets a late
//! duplicate or an early newcomer through (invariant 3 of [`tsumugi_wire::memory`]).

use tsumugi_wire::Psn;
use tsumugi_wire::ack::{Sack, WORD_PSNS, WORDS_MAX};
use tsumugi_wire::atomic::{AtomicU64, Ordering};
use tsumugi_wire::defect;
use tsumugi_wire::memory::{BITMAP_WORDS, Flow};

/// PSNs from the base that are always within the bitmap: one block less than its words cover,
/// because the base may lie anywhere in its block.
pub const REACH_PACKETS: u64 = (BITMAP_WORDS as u64 - 1) * WORD_PSNS;

const BITS: u64 = 0xffff_ffff;

/// What became of an attempt to set a PSN's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller set it, and deposits the packet. The word as it was left is for [`advance`].
    Mine(u64),
    /// It was set before.
    Taken,
    /// The PSN lies beyond the bitmap.
    Beyond,
}

const fn block_of(psn: Psn) -> u64 {
    psn.0 / WORD_PSNS
}

const fn bit_of(psn: Psn) -> u64 {
    1 << (psn.0 % WORD_PSNS)
}

/// Distance from the block in `word` to `block`, modulo 2³²; negative when the word's is newer.
const fn age(word: u64, block: u64) -> i32 {
    (block as u32).wrapping_sub((word >> 32) as u32) as i32
}

/// The flow's base: every PSN before it is deposited.
#[inline]
pub fn base(flow: &Flow) -> Psn {
    Psn(flow.received.0.base.load(Ordering::Acquire))
}

/// The block of `psn` and the word for it; for a PSN outside the bitmap, what is to be said of it.
#[inline]
fn slot(flow: &Flow, psn: Psn) -> Result<(u64, &AtomicU64), Claim> {
    let base = base(flow);
    if psn < base {
        return Err(if defect!(NoDuplicateCheck) { Claim::Mine(0) } else { Claim::Taken });
    }
    let block = block_of(psn);
    if block - block_of(base) >= BITMAP_WORDS as u64 {
        return Err(Claim::Beyond);
    }
    Ok((block, &flow.bitmap.0[(block % BITMAP_WORDS as u64) as usize]))
}

/// Whether `psn` is deposited, or what stands in the way, without setting anything.
#[inline]
pub fn look(flow: &Flow, psn: Psn) -> Claim {
    let (block, slot) = match slot(flow, psn) {
        Ok(found) => found,
        Err(outside) => return outside,
    };
    let word = slot.load(Ordering::Acquire);
    match age(word, block) {
        0 if word & bit_of(psn) == 0 => Claim::Mine(word),
        0 | i32::MIN..=-1 => Claim::Taken,
        1.. => Claim::Mine(word),
    }
}

/// Sets the bit of `psn`.
#[inline]
pub fn claim(flow: &Flow, psn: Psn) -> Claim {
    claim_bits(flow, psn, bit_of(psn)).1
}

/// Sets the bits of `packets` PSNs from `first` on, up to one that is set or lies beyond the bitmap. Returns how many it set, and the
/// word as it was left that has the last of them; if none, what stands in the way of the first.
#[inline]
pub fn claim_run(flow: &Flow, first: Psn, packets: u64) -> (u64, Claim) {
    let (mut claimed, mut last) = (0, Claim::Taken);
    while claimed < packets {
        let psn = first.plus(claimed);
        let some = (packets - claimed).min(WORD_PSNS - psn.0 % WORD_PSNS);
        let (set, claim) = claim_bits(flow, psn, (BITS >> (WORD_PSNS - some)) << (psn.0 % WORD_PSNS));
        if set > 0 || claimed == 0 {
            last = claim;
        }
        claimed += set;
        if set < some {
            break;
        }
    }
    (claimed, last)
}

/// Sets these bits of the block that `psn`, the first of them, lies in, up to one that is set. Returns how many it set.
#[inline]
fn claim_bits(flow: &Flow, psn: Psn, bits: u64) -> (u64, Claim) {
    let (block, slot) = match slot(flow, psn) {
        Ok(found) => found,
        Err(outside) => return (0, outside),
    };
    let newest = &flow.received.0.newest;
    // A look is enough for all but a block's first packet.
    if newest.load(Ordering::Relaxed) < block {
        newest.fetch_max(block, Ordering::Relaxed);
    }
    let mut word = slot.load(Ordering::Acquire);
    loop {
        let (free, wanted) = match age(word, block) {
            0 => {
                let set = word & bits;
                let free = bits & (set & set.wrapping_neg()).wrapping_sub(1);
                (free, word | free)
            }
            // The bitmap has moved past this block since the base was read.
            i32::MIN..=-1 => (0, word),
            // Every PSN of the older block lies before the base: both blocks share this word, and
            // the newer is within the bitmap.
            1.. => (bits, (block & BITS) << 32 | bits),
        };
        if free == 0 {
            return (0, Claim::Taken);
        }
        match slot.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return (u64::from(free.count_ones()), Claim::Mine(wanted)),
            Err(seen) => word = seen,
        }
    }
}

/// Moves the base over everything that is deposited without a gap, after the caller has set the bit of `psn`
/// and left `word` behind.
///
/// Two receive paths that each set a bit and then look for the other's cannot both miss it, because every
/// word is looked at by read-modify-write: whoever comes second to a word sees all that the first had done.
/// The caller's own word needs no second look, nor does a word whose run of bits ended within it:
/// whoever sets a bit there later looks itself.
#[inline]
pub fn advance(flow: &Flow, psn: Psn, word: u64) {
    let mut base = flow.received.0.base.load(Ordering::Acquire);
    loop {
        let block = base / WORD_PSNS;
        let word = if block == block_of(psn) {
            word
        } else {
            flow.bitmap.0[(block % BITMAP_WORDS as u64) as usize].fetch_or(0, Ordering::AcqRel)
        };
        let run = match age(word, block) {
            0 => u64::from(((word & BITS) as u32 >> (base % WORD_PSNS)).trailing_ones()),
            // Somebody has moved the base beyond this block meanwhile, and goes on from there.
            i32::MIN..=-1 => return,
            1.. => 0,
        };
        if run == 0 {
            return;
        }
        match flow.received.0.base.compare_exchange(base, base + run, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if !(base + run).is_multiple_of(WORD_PSNS) => return,
            Ok(_) => base += run,
            Err(seen) => base = seen,
        }
    }
}

/// The base, and the bitmap of what lies beyond it, for an answer.
///
/// Mostly nothing does, and there is no more than one word to look at. What another receive path claims meanwhile may be
/// told or not.
#[must_use]
pub fn snapshot(flow: &Flow) -> (Psn, Sack) {
    let base = base(flow);
    let first = block_of(base);
    let mut sack = Sack { echo: Psn(flow.received.0.echo.load(Ordering::Relaxed)), ..Sack::EMPTY };
    let newest = flow.received.0.newest.load(Ordering::Relaxed);
    let words = newest.saturating_sub(first).saturating_add(1).min(BITMAP_WORDS.min(WORDS_MAX) as u64);
    for index in 0..words as usize {
        let block = first + index as u64;
        let word = flow.bitmap.0[(block % BITMAP_WORDS as u64) as usize].load(Ordering::Acquire);
        let bits = match age(word, block) {
            0 => (word & BITS) as u32,
            i32::MIN..=-1 => u32::MAX, // the bitmap has moved on: all of this block had arrived
            1.. => 0,
        };
        sack.bitmap[index] = bits;
        // The word that holds the base says nothing new unless a bit beyond the base is set.
        let news = if index == 0 { bits >> (base.0 % WORD_PSNS) } else { bits };
        if news != 0 {
            sack.words = index + 1;
        }
    }
    (base, sack)
}

/// Continues a flow entry, just opened, that had received what `base` and `sack` say.
pub fn restore(flow: &Flow, base: Psn, sack: &Sack) {
    let first = block_of(base);
    for index in 0..BITMAP_WORDS {
        let block = first + index as u64;
        let bits = if index < sack.words {
            sack.bitmap[index]
        } else if index == 0 {
            bit_of(base) as u32 - 1 // what lies before the base in its block
        } else {
            0
        };
        let word = (block & BITS) << 32 | u64::from(bits);
        flow.bitmap.0[(block % BITMAP_WORDS as u64) as usize].store(word, Ordering::Relaxed);
    }
    flow.received.0.newest.store(first + sack.words.saturating_sub(1) as u64, Ordering::Relaxed);
    flow.received.0.base.store(base.0, Ordering::Release);
}
