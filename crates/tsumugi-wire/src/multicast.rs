//! Packets that a switch box makes DATA of for each of several receivers.
//!
//! A sender that has the same frames for several peers sends them once in a MULTICAST: the frames, and behind them a [`Table`] of what
//! differs. The box makes one DATA packet for each receiver out of it, in that receiver's ordinary flow from this sender. So a receiver need
//! not know how a packet has come, and the sender sends again what is lost, to those who lack it. The box keeps nothing, and acknowledges
//! nothing.
//!
//! ```text
//! frames, a multiple of 8 | base u64 | crc u32 | 0 u32 | for each receiver: tag u32 | after u32
//! ```
//!
//! The header's `credit` is the number of receivers in the table, its `body_crc` the [`check`] of the table, with the flag
//! [`MIXED`](crate::Flags::MIXED). `epoch`, `path` and the other flags are those that the DATA is to have; HAS_ACK is none of them, for the
//! DATA's `ack` and `credit` are 0. `flow` and `token` are the sender's seat in the group (see [`crate::group`]), `psn` and `ack` the `flow` and
//! `token` of its JOIN. What a box sends on to a box below is a RELAY: the same, but `flow` and `token` are those of that box's JOIN. With `psn`
//! and `ack` that box can answer the sender, too.
//!
//! The check is not of the frames, which a box does not read: whoever gets the DATA compares their CRC. A sender makes no packet longer than
//! one buffer ([`ONE_BUFFER_BYTES`](crate::limits::ONE_BUFFER_BYTES)), because a box does not look into those that are.

use crate::defect;
use crate::group::BODY_BYTES;
use crate::header::mix_words;
use crate::psn::Psn;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a table in front of its entries.
pub const TABLE_BYTES: usize = 16;
/// Bytes of a table's entry.
pub const ENTRY_BYTES: usize = 8;
/// Most entries of a table.
pub const RECEIVERS_MAX: usize = 63;
/// Shortest body, so that a box can make an answer to the sender of it.
pub const BODY_BYTES_MIN: usize = BODY_BYTES;

/// What a receiver's DATA packet has that others' have not.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    tag: U32,
    after: U32,
}

impl Entry {
    /// Nothing is sent to this receiver.
    pub const ABSENT: Entry = Entry { tag: U32::ZERO, after: U32::ZERO };

    /// The entry of a receiver whose flow has this token, for a packet of this number. [`Entry::ABSENT`] if there can be none: then this
    /// one must be sent to by itself.
    #[must_use]
    pub fn new(token: u64, base: Psn, psn: Psn) -> Entry {
        let psn = if defect!(MulticastOneNumber) { base } else { psn };
        let after = psn.since(base).and_then(|after| u32::try_from(after).ok());
        after.map_or(Entry::ABSENT, |after| Entry { tag: U32::new(tag_of(token)), after: U32::new(after) })
    }

    /// The number of the packet in a flow with this token; `None`: there is none for it. A flow that was opened anew has another token,
    /// and what was meant for the one before must not come into it.
    #[must_use]
    pub fn psn(&self, base: Psn, token: u64) -> Option<Psn> {
        let is_its = self.tag.get() != 0 && (self.tag.get() == tag_of(token) || defect!(MulticastTagIgnored));
        is_its.then(|| Psn(base.0.wrapping_add(self.after.get().into())))
    }
}

/// The part of a token that an entry is compared by.
const fn tag_of(token: u64) -> u32 {
    token as u32
}

/// What is behind the frames, for all receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    /// CRC32C of the frames: the `body_crc` of all DATA packets that are made.
    pub crc: u32,
    /// What the entries' numbers are counted from.
    pub base: Psn,
    /// Member `n` of the group is receiver `n` − 1.
    pub entries: &'a [Entry],
}

/// A body that is no frames and a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a body of {bytes} bytes is no frames and a table for {receivers} receivers")]
pub struct MalformedTable {
    /// Its length, bytes.
    pub bytes: usize,
    /// What its header says.
    pub receivers: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct TableLayout {
    base: U64,
    crc: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<TableLayout>() == TABLE_BYTES && size_of::<Entry>() == ENTRY_BYTES);

/// Bytes of a table for so many receivers.
#[must_use]
pub const fn table_bytes(receivers: usize) -> usize {
    TABLE_BYTES + ENTRY_BYTES * receivers
}

/// Receivers in the table behind so many bytes of frames: as many as there are, or, of no one, as many as make the body long enough.
#[must_use]
pub const fn receivers_behind(frame_bytes: usize, receivers: usize) -> usize {
    let needed = BODY_BYTES_MIN.saturating_sub(frame_bytes + TABLE_BYTES).div_ceil(ENTRY_BYTES);
    if needed > receivers { needed } else { receivers }
}

/// The bytes of frames and the table in a body, when its header says so many receivers.
///
/// # Errors
/// There is no such body.
pub fn split(receivers: u16, body: &[u8]) -> Result<(&[u8], &[u8]), MalformedTable> {
    let malformed = MalformedTable { bytes: body.len(), receivers };
    let count = usize::from(receivers);
    let fits = (1..=RECEIVERS_MAX).contains(&count) && body.len() >= BODY_BYTES_MIN;
    let frames = body.len().checked_sub(table_bytes(count)).filter(|frames| fits && frames.is_multiple_of(8));
    frames.map(|frames| body.split_at(frames)).ok_or(malformed)
}

/// What `body_crc` is: the header check's function over the words of the table.
#[must_use]
pub fn check(table: &[u8]) -> u32 {
    let (words, _) = table.as_chunks::<8>();
    mix_words(words.iter().map(|word| u64::from_le_bytes(*word)))
}

impl<'a> Table<'a> {
    /// What is in front of the entries.
    #[must_use]
    pub fn encode_head(&self) -> [u8; TABLE_BYTES] {
        zerocopy::transmute!(TableLayout {
            base: U64::new(self.base.0),
            crc: U32::new(self.crc),
            reserved: U32::new(0),
        })
    }

    /// The entries as bytes.
    #[must_use]
    pub fn entry_bytes(&self) -> &'a [u8] {
        self.entries.as_bytes()
    }

    /// Reads the frames and the table of a body whose header says so many receivers.
    ///
    /// # Errors
    /// There is no such body.
    pub fn decode(receivers: u16, body: &'a [u8]) -> Result<(&'a [u8], Table<'a>), MalformedTable> {
        let malformed = MalformedTable { bytes: body.len(), receivers };
        let (frames, table) = split(receivers, body)?;
        let (head, entries) = TableLayout::ref_from_prefix(table).map_err(|_| malformed)?;
        let entries = <[Entry]>::ref_from_bytes(entries).map_err(|_| malformed)?;
        Ok((frames, Table { crc: head.crc.get(), base: Psn(head.base.get()), entries }))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (words, crc, base) in (0usize..150, any::<u32>(), 0u64..1 << 60),
            receivers in proptest::collection::vec((1u64.., 0u64..1 << 33), 1..=RECEIVERS_MAX),
        ) {
            let frames = vec![7; 8 * words];
            let count = receivers_behind(frames.len(), receivers.len());
            let mut entries: Vec<Entry> = receivers
                .iter()
                .map(|(token, after)| Entry::new(*token, Psn(base), Psn(base + after)))
                .collect();
            entries.resize(count, Entry::ABSENT);
            let table = Table { crc, base: Psn(base), entries: &entries };
            let body = [&frames[..], &table.encode_head(), table.entry_bytes()].concat();
            prop_assert!(body.len() >= BODY_BYTES_MIN);
            prop_assert_eq!(Table::decode(count as u16, &body), Ok((&frames[..], table)));
            for (entry, (token, after)) in entries.iter().zip(&receivers) {
                let is_near = u32::try_from(*after).is_ok() && *token as u32 != 0;
                prop_assert_eq!(entry.psn(Psn(base), *token), is_near.then(|| Psn(base + after)));
                prop_assert_eq!(entry.psn(Psn(base), token ^ 1), None);
            }
            prop_assert!(Table::decode(count as u16 + 1, &body).is_err() || count < RECEIVERS_MAX);
        }

        #[test]
        fn any_bytes_are_read_or_refused(receivers: u16, body in proptest::collection::vec(any::<u8>(), 0..700)) {
            if let Ok((frames, table)) = Table::decode(receivers, &body) {
                prop_assert_eq!(table.entries.len(), usize::from(receivers));
                prop_assert_eq!(frames.len() + table_bytes(table.entries.len()), body.len());
            }
        }
    }
}
