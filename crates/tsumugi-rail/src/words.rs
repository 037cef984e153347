//! Copying into memory that others look at meanwhile: word by word.
//!
//! A plain copy promises nothing to another thread that reads what is written: neither that it sees a word whole, nor that
//! it sees what was written before.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Copies `from` to `to`. Every word of 1, 2, 4 or 8 bytes in it, at an address that is a multiple of its size, is written
/// by one store; who loads such a word with acquire order sees everything that this thread wrote before the copy. The last store
/// comes last: who loads the word that the copy ends with sees the rest of it, too.
///
/// # Safety
/// The bytes from `to` on can be written, and nobody has a reference to them meanwhile but as atomics.
#[inline]
pub(crate) unsafe fn copy_words(to: NonNull<u8>, from: &[u8]) {
    // It makes each of the stores below a release. One fence costs less than as many stores with that order.
    fence(Ordering::Release);
    let (mut to, mut from) = (to.as_ptr(), from);
    macro_rules! store {
        ($keyword:tt $condition:expr, $atomic:ty, $integer:ty) => {
            $keyword $condition && let Some((first, rest)) = from.split_first_chunk() {
                // SAFETY: `first` has its place at `to`, among the bytes that the caller vouches for. It is aligned there:
                // smaller steps were made while it was not, and when they are made again at the end, less is left.
                unsafe {
                    if rest.is_empty() {
                        fence(Ordering::Release);
                    }
                    let word = <$atomic>::from_ptr(to.cast());
                    word.store(<$integer>::from_ne_bytes(*first), Ordering::Relaxed);
                    to = to.add(size_of::<$integer>());
                }
                from = rest;
            }
        };
    }
    store!(if !to.addr().is_multiple_of(2), AtomicU8, u8);
    store!(if !to.addr().is_multiple_of(4), AtomicU16, u16);
    store!(if !to.addr().is_multiple_of(8), AtomicU32, u32);
    store!(while true, AtomicU64, u64);
    store!(if true, AtomicU32, u32);
    store!(if true, AtomicU16, u16);
    store!(if true, AtomicU8, u8);
    debug_assert!(from.is_empty(), "{} bytes are left before {to:p}", from.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Memory that begins at a multiple of 8.
    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn place(words: &[AtomicU64], at: usize) -> NonNull<u8> {
        assert!(at <= 8 * words.len());
        // SAFETY: within the slice, or at its end.
        unsafe { NonNull::from(words).cast::<u8>().add(at) }
    }

    #[test]
    fn every_byte_has_its_place_wherever_a_copy_begins_and_ends() {
        let data: Vec<u8> = (1..=40).collect();
        for at in 0..16 {
            for bytes in 0..=data.len() {
                let memory = words(8);
                // SAFETY: `at + bytes` is less than 64, and nobody else knows of the memory.
                unsafe { copy_words(place(&memory, at), &data[..bytes]) };
                let all: Vec<u8> =
                    memory.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                let expected = [&vec![0; at][..], &data[..bytes], &vec![0; 64 - at - bytes]].concat();
                assert_eq!(all, expected, "{bytes} bytes at {at}");
            }
        }
    }

    /// Also for an interpreter that knows of data races (`cargo miri test -p tsumugi-rail words`): plain copies are some.
    #[test]
    fn a_flag_behind_data_tells_the_truth_to_another_thread() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        macro_rules! flags {
            ($atomic:ty, $integer:ty, $at:expr) => {
                let memory = words(9);
                let seen = words(1);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for round in 1..=ROUNDS {
                            let data = [round as u8; 37];
                            // SAFETY: within 72 bytes; others look at the data as atomics, when the flag says so.
                            unsafe {
                                copy_words(place(&memory, 11), &data);
                                copy_words(place(&memory, $at), &(round as $integer).to_ne_bytes());
                            }
                            while seen[0].load(Ordering::Acquire) != round {
                                thread::yield_now();
                            }
                        }
                    });
                    for round in 1..=ROUNDS {
                        // SAFETY: as `place` says, and aligned; everybody treats it as an atomic.
                        let flag = unsafe { <$atomic>::from_ptr(place(&memory, $at).as_ptr().cast()) };
                        while flag.load(Ordering::Acquire) != round as $integer {
                            thread::yield_now();
                        }
                        let mut data = [0; 37];
                        // SAFETY: the data lie there, and are not written before `seen` says that they were read.
                        unsafe { place(&memory, 11).copy_to(NonNull::from(&mut data).cast(), data.len()) };
                        assert_eq!(data, [round as u8; 37]);
                        seen[0].store(round, Ordering::Release);
                    }
                });
            };
        }
        flags!(AtomicU8, u8, 61);
        flags!(AtomicU16, u16, 58);
        flags!(AtomicU32, u32, 52);
        flags!(AtomicU64, u64, 64);
    }

    /// As above, with the flag at the end of the copy itself.
    #[test]
    fn a_flag_at_the_end_of_data_tells_the_truth_to_another_thread() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        const BYTES: usize = 1032;
        let (memory, seen) = (words(BYTES / 8), words(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let data = [&[round as u8; BYTES - 8][..], &round.to_ne_bytes()].concat();
                    // SAFETY: as many bytes; others look at the data as atomics, when the flag says so.
                    unsafe { copy_words(place(&memory, 0), &data) };
                    while seen[0].load(Ordering::Acquire) != round {
                        thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                while memory[BYTES / 8 - 1].load(Ordering::Acquire) != round {
                    thread::yield_now();
                }
                let first = memory[0].load(Ordering::Relaxed).to_ne_bytes();
                let before = memory[BYTES / 8 - 2].load(Ordering::Relaxed).to_ne_bytes();
                assert_eq!([first, before], [[round as u8; 8]; 2]);
                seen[0].store(round, Ordering::Release);
            }
        });
    }

    #[test]
    fn a_word_is_never_seen_in_parts() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 200_000 };
        // The second word is the last whole one of a copy that begins and ends in the middle of others.
        let memory = words(4);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..ROUNDS {
                    // SAFETY: bytes 5 to 26 of 32, which others look at as atomics.
                    unsafe { copy_words(place(&memory, 5), &[round as u8; 21]) };
                }
            });
            while !writer.is_finished() {
                for word in &memory[1..3] {
                    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                    assert_eq!(bytes, [bytes[0]; 8]);
                }
            }
        });
    }
}
