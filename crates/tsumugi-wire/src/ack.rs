//! The body of ACK, NAK, XOFF and XON: what has arrived beyond the header's `ack`.
//!
//! The bitmap is cut at multiples of 32 PSNs, not at `ack`, so that a receiver copies the words of
//! its bitmap as they lie and shifts nothing: bit `i` of word `j` stands for PSN
//! `(ack − ack mod 32) + 32 j + i`. Bits before `ack` are set.
//!
//! ```text
//! echo u64 | delay_ns u32 | words u32 | bitmap u32 × words
//! ```

use crate::limits::BITMAP_PACKETS;
use crate::psn::Psn;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// PSNs that one word of the bitmap covers.
pub const WORD_PSNS: u64 = 32;
/// Words of a bitmap of [`BITMAP_PACKETS`] PSNs, wherever `ack` lies in its first word.
pub const WORDS_MAX: usize = (BITMAP_PACKETS / WORD_PSNS) as usize + 1;
/// Bytes of the longest body.
pub const BODY_BYTES_MAX: usize = size_of::<Layout>() + 4 * WORDS_MAX;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    echo: U64,
    delay_ns: U32,
    words: U32,
}

/// What a receiver holds of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack {
    /// The PSN deposited last, in order of time: the sender learns from it how long its path took.
    pub echo: Psn,
    /// Time between that deposit and this answer, ns.
    pub delay_ns: u32,
    /// Words of `bitmap` in use.
    pub words: usize,
    /// See the module.
    pub bitmap: [u32; WORDS_MAX],
}

/// A SACK that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer of {body_bytes} bytes does not hold the bitmap it announces")]
pub struct MalformedSack {
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl Sack {
    /// Nothing beyond `ack`.
    pub const EMPTY: Sack = Sack { echo: Psn(0), delay_ns: 0, words: 0, bitmap: [0; WORDS_MAX] };

    /// Writes the body into `into`, and returns the part written.
    pub fn encode<'a>(&self, into: &'a mut [u8; BODY_BYTES_MAX]) -> &'a [u8] {
        let words = self.words.min(WORDS_MAX);
        let layout = Layout {
            echo: U64::new(self.echo.0),
            delay_ns: U32::new(self.delay_ns),
            words: U32::new(words as u32),
        };
        let (head, tail) = into.split_at_mut(size_of::<Layout>());
        head.copy_from_slice(layout.as_bytes());
        let (chunks, _) = tail.as_chunks_mut::<4>();
        for (chunk, word) in chunks.iter_mut().zip(&self.bitmap[..words]) {
            *chunk = word.to_le_bytes();
        }
        &into[..size_of::<Layout>() + 4 * words]
    }

    /// Reads a body.
    ///
    /// # Errors
    /// The body is shorter than its bitmap, or the bitmap longer than [`WORDS_MAX`].
    pub fn decode(body: &[u8]) -> Result<Sack, MalformedSack> {
        let malformed = MalformedSack { body_bytes: body.len() };
        let (layout, rest) = Layout::ref_from_prefix(body).map_err(|_| malformed)?;
        let words = layout.words.get() as usize;
        let (chunks, _) = rest.as_chunks::<4>();
        if words > WORDS_MAX || chunks.len() < words {
            return Err(malformed);
        }
        let mut sack =
            Sack { echo: Psn(layout.echo.get()), delay_ns: layout.delay_ns.get(), words, ..Sack::EMPTY };
        for (word, chunk) in sack.bitmap.iter_mut().zip(&chunks[..words]) {
            *word = u32::from_le_bytes(*chunk);
        }
        Ok(sack)
    }

    /// Whether the bitmap says that `psn` arrived, given the `ack` of the same packet.
    #[must_use]
    pub fn has(&self, ack: Psn, psn: Psn) -> bool {
        let first = Psn(ack.0 - ack.0 % WORD_PSNS);
        let Some(distance) = psn.since(first) else { return true };
        let word = usize::try_from(distance / WORD_PSNS).unwrap_or(usize::MAX);
        word < self.words.min(WORDS_MAX) && self.bitmap[word] & (1 << (distance % WORD_PSNS)) != 0
    }

    /// One past the highest PSN that the bitmap can speak about.
    #[must_use]
    pub fn end(&self, ack: Psn) -> Psn {
        Psn(ack.0 - ack.0 % WORD_PSNS).plus(WORD_PSNS * self.words as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(echo: u64, delay_ns: u32, words in 0..=WORDS_MAX, seed: u32) {
            let mut sack = Sack { echo: Psn(echo), delay_ns, words, ..Sack::EMPTY };
            for (index, word) in sack.bitmap[..words].iter_mut().enumerate() {
                *word = seed.rotate_left(index as u32);
            }
            let mut buffer = [0; BODY_BYTES_MAX];
            prop_assert_eq!(Sack::decode(sack.encode(&mut buffer)), Ok(sack));
        }

        #[test]
        fn any_bytes_parse_or_are_refused(body in proptest::collection::vec(any::<u8>(), 0..300), ack: u64, psn: u64) {
            if let Ok(sack) = Sack::decode(&body) {
                let _ = sack.has(Psn(ack), Psn(psn));
            }
        }
    }

    #[test]
    fn bits_are_counted_from_the_word_that_holds_ack() {
        let sack = Sack {
            words: 2,
            bitmap: {
                let mut b = [0; WORDS_MAX];
                b[1] = 0b100;
                b
            },
            ..Sack::EMPTY
        };
        assert!(sack.has(Psn(70), Psn(63)), "before ack everything arrived");
        assert!(!sack.has(Psn(70), Psn(70)));
        assert!(sack.has(Psn(70), Psn(98)));
        assert!(!sack.has(Psn(70), Psn(128)), "beyond the bitmap nothing is said");
    }
}
