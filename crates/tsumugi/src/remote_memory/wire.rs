//! What exporters and importers say to each other, on their channel.
//!
//! ```text
//! wish    1 u8 | name
//! answer  2 u8 | rights u8 | 0 × 6 | key u64 | address u64 | bytes u64 | name      rights 0: there is none
//! ```

use crate::remote::{Rights, Target};

const WISH: u8 = 1;
const ANSWER: u8 = 2;
/// Bytes of an answer before the name.
const ANSWER_BYTES: usize = 32;

/// Where an export is, how long it is, bytes, and what is permitted.
pub(super) type Exported = (Target, u64, Rights);

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Somebody wants to import what has this name.
    Wish(String),
    /// Where it is, how long, and what is permitted; `None`: it is not exported.
    Answer(String, Option<Exported>),
}

pub(super) fn encode_wish(name: &str) -> Vec<u8> {
    [&[WISH], name.as_bytes()].concat()
}

pub(super) fn encode_answer(name: &str, found: Option<Exported>) -> Vec<u8> {
    let mut bytes = vec![0; ANSWER_BYTES];
    bytes[0] = ANSWER;
    if let Some((Target { key, address }, length, rights)) = found {
        bytes[1] = rights.bits();
        bytes[8..16].copy_from_slice(&key.to_le_bytes());
        bytes[16..24].copy_from_slice(&address.to_le_bytes());
        bytes[24..32].copy_from_slice(&length.to_le_bytes());
    }
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// `None`: it makes no sense.
pub(super) fn decode(bytes: &[u8]) -> Option<Word> {
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match *bytes.first()? {
        WISH => Some(Word::Wish(name(&bytes[1..])?)),
        ANSWER => {
            let (answer, rest) = bytes.split_first_chunk::<ANSWER_BYTES>()?;
            let word = |at: usize| Some(u64::from_le_bytes(*answer[at..].first_chunk()?));
            let target = Target { key: word(8)?, address: word(16)? };
            let rights = Rights::from_bits(answer[1])?;
            let found = (rights != Rights::NONE).then_some((target, word(24)?, rights));
            Some(Word::Answer(name(rest)?, found))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_understood() {
        let target = Target { key: 1, address: u64::MAX };
        for found in [None, Some((target, 1 << 40, Rights::WRITE))] {
            let answer = encode_answer("a name", found);
            assert_eq!(decode(&answer), Some(Word::Answer("a name".to_owned(), found)));
        }
        assert_eq!(decode(&encode_wish("a name")), Some(Word::Wish("a name".to_owned())));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
