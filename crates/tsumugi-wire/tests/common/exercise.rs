//! What must hold for any bytes whatever. One body, run by the mutation test and by the fuzz targets.

use tsumugi_wire::ack::{BODY_BYTES_MAX, Sack};
use tsumugi_wire::frame::{FRAGMENT_BYTES, Frame, Frames, REMOTE_BYTES, WHOLE_BYTES};
use tsumugi_wire::group::{self, Answer, BODY_BYTES, Contribution, Join};
use tsumugi_wire::handshake::{Challenge, Offer};
use tsumugi_wire::header::{HEADER_BYTES, Header};
use tsumugi_wire::limits::MESSAGE_BYTES_MAX;
use tsumugi_wire::multicast::{self, BODY_BYTES_MIN, ENTRY_BYTES, Entry, RECEIVERS_MAX, TABLE_BYTES, Table};
use tsumugi_wire::piece::{PIECE_BYTES, Piece};
use tsumugi_wire::{Flags, Kind, Psn};

/// How far an input got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The header was refused.
    Nothing,
    /// The header was accepted, the body refused.
    Header,
    /// Both were accepted.
    Body,
}

/// The function of the header check, and of bodies that are MIXED, written here a second time from the
/// format's description, so that an error in the one is not repeated in the other.
pub(crate) fn mix(bytes: &[u8]) -> u32 {
    let mut sum = 0u64;
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
        sum = (sum ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum ^= sum >> 32;
    }
    sum as u32
}

/// Fills in the header check. Bytes shorter than a header are left alone.
pub(crate) fn seal(bytes: &mut [u8]) {
    let Some(header) = bytes.get_mut(..HEADER_BYTES) else { return };
    header[4..8].fill(0);
    let check = mix(header);
    header[4..8].copy_from_slice(&check.to_le_bytes());
}

/// Reads `bytes` as a packet. An accepted header must encode to the very bytes it was read from.
pub(crate) fn packet(bytes: &[u8]) -> Reached {
    let Ok((header, body, rest)) = Header::decode(bytes) else { return Reached::Nothing };
    assert_eq!(header.encode(), bytes[..HEADER_BYTES], "{header:?} encodes to other bytes");
    assert_eq!(HEADER_BYTES + body.len() + rest.len(), bytes.len(), "bytes got lost");
    let accepted = match header.kind {
        Kind::Data if is_release(header.flags, body) => group(body).contribution,
        Kind::Data => frames(body),
        Kind::Ack | Kind::Nak | Kind::Xoff | Kind::Xon => sack(header.ack, body),
        Kind::Hello | Kind::Challenge | Kind::Welcome => offer(body),
        Kind::Piece => piece(body),
        Kind::Join => group(body).join,
        Kind::Arrive | Kind::Release => group(body).contribution,
        Kind::Notice => group(body).answer,
        Kind::Leave => group::mix(body).is_some(),
        Kind::Multicast | Kind::Relay => table(header.credit, body),
        Kind::Probe
        | Kind::Bye
        | Kind::ByeAck
        | Kind::Reset
        | Kind::SizeProbe
        | Kind::SizeAck
        | Kind::Damaged => true,
    };
    if accepted { Reached::Body } else { Reached::Header }
}

/// Reads `body` as frames: they end, lie within the body one behind the other, and say what is possible.
pub(crate) fn frames(body: &[u8]) -> bool {
    let mut end = 0;
    let mut iterator = Frames::new(body);
    while let Some(frame) = iterator.next() {
        match frame {
            Ok(Frame::Whole { at, data, .. }) => {
                assert!(at >= end + WHOLE_BYTES, "a frame at {at} overlaps the one that ends at {end}");
                assert_eq!(&body[at..at + data.len()], data, "`at` points elsewhere");
                end = at + data.len();
            }
            Ok(Frame::Fragment(fragment, data)) => {
                assert!(!data.is_empty() && fragment.total <= MESSAGE_BYTES_MAX);
                assert!(fragment.offset.checked_add(data.len() as u64).is_some_and(|e| e <= fragment.total));
                let at = data.as_ptr() as usize - body.as_ptr() as usize;
                assert!(at >= end + FRAGMENT_BYTES, "a fragment at {at} overlaps what ends at {end}");
                let padded = fragment.offset + data.len() as u64 == fragment.total;
                assert!(
                    at + data.len() == body.len() || padded,
                    "a fragment goes to the end, or to its message's"
                );
                assert!(iterator.next().is_none(), "something behind a fragment");
                return true;
            }
            Ok(Frame::Remote(_, data)) => {
                let at = data.as_ptr() as usize - body.as_ptr() as usize;
                assert!(at >= end + REMOTE_BYTES, "a frame at {at} overlaps the one that ends at {end}");
                end = at + data.len();
            }
            Err(_) => {
                assert!(iterator.next().is_none(), "something behind a malformed frame");
                return false;
            }
        }
    }
    true
}

/// Whether a DATA packet with these flags and this body carries no frames but what came of a barrier or a reduction.
pub(crate) fn is_release(flags: Flags, body: &[u8]) -> bool {
    flags.has(Flags::MIXED) && body.len() == BODY_BYTES && body[2] == 0
}

/// What the body of a packet of a group can be read as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) join: bool,
    pub(crate) contribution: bool,
    pub(crate) answer: bool,
}

/// Reads `body` as each of what packets of groups carry. What is read, written and read again is the same.
pub(crate) fn group(body: &[u8]) -> Group {
    let fits = body.len() == BODY_BYTES;
    assert_eq!(group::mix(body), fits.then(|| mix(body)), "the mix written twice");
    let join = Join::decode(body);
    if let Ok(join) = join {
        assert!(join.member < join.size && (1..=join.size).contains(&join.weight), "{join:?}");
        assert_eq!(Join::decode(&join.encode()), Ok(join));
    }
    let contribution = Contribution::decode(body);
    if let Ok(contribution) = contribution {
        assert!(usize::from(contribution.count) <= group::WORDS_MAX && contribution.generation > 0);
        assert_eq!(Contribution::decode(&contribution.encode()), Ok(contribution));
    }
    let answer = Answer::decode(body);
    if let Ok(answer) = answer {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    let read = Group { join: join.is_ok(), contribution: contribution.is_ok(), answer: answer.is_ok() };
    assert!(fits || !(read.join || read.contribution || read.answer), "{} bytes", body.len());
    read
}

/// Reads `body` as frames and a table for so many receivers. What is read encodes to the same bytes, and gives each number to the flow that
/// it is meant for and to no other.
pub(crate) fn table(receivers: u16, body: &[u8]) -> bool {
    let count = usize::from(receivers);
    let behind = TABLE_BYTES + ENTRY_BYTES * count;
    let long_enough = body.len() >= BODY_BYTES_MIN && body.len() >= behind;
    let fits = (1..=RECEIVERS_MAX).contains(&count) && long_enough && body.len().is_multiple_of(8);
    let Ok((frames, table)) = Table::decode(receivers, body) else {
        assert!(!fits && multicast::split(receivers, body).is_err(), "{} bytes for {receivers}", body.len());
        return false;
    };
    assert!(fits, "{} bytes for {receivers}", body.len());
    let bytes = &body[body.len() - behind..];
    assert_eq!(multicast::split(receivers, body), Ok((frames, bytes)));
    assert_eq!(multicast::check(bytes), mix(bytes), "the mix written twice");
    let (head, entries) = bytes.split_at(TABLE_BYTES);
    // Behind these are the reserved bytes.
    assert_eq!(table.encode_head()[..12], head[..12], "{table:?} encodes to other bytes");
    assert_eq!((table.entry_bytes(), table.entries.len()), (entries, count));
    for (entry, bytes) in table.entries.iter().zip(entries.chunks_exact(ENTRY_BYTES)) {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("half of a word"));
        let (tag, after) = (half(0), half(4));
        let psn = Psn(table.base.0.wrapping_add(after.into()));
        let its = (tag != 0).then_some(psn);
        assert_eq!(entry.psn(table.base, u64::from(tag)), its, "{entry:?}");
        assert_eq!(entry.psn(table.base, u64::from(tag) | 7 << 32), its, "only the lower half is compared");
        assert_eq!(entry.psn(table.base, u64::from(tag) ^ 1 << 31), None, "{entry:?} is another flow's");
        if psn.since(table.base) == Some(after.into()) {
            assert_eq!(Entry::new(tag.into(), table.base, psn), *entry);
        }
    }
    self::frames(frames);
    true
}

/// Reads `body` as a piece. What is read encodes to the same bytes, and lies within its packet.
pub(crate) fn piece(body: &[u8]) -> bool {
    let Ok((piece, data)) = Piece::decode(body) else { return false };
    assert_eq!(piece.encode(), body[..PIECE_BYTES], "{piece:?} encodes to other bytes");
    assert!(!data.is_empty() && usize::from(piece.at) + data.len() <= usize::from(piece.packet_bytes));
    true
}

/// Reads `body` as an answer. What is read encodes to the same bytes, and can be asked about any PSN.
pub(crate) fn sack(ack: Psn, body: &[u8]) -> bool {
    let Ok(sack) = Sack::decode(body) else { return false };
    let mut buffer = [0; BODY_BYTES_MAX];
    let written = sack.encode(&mut buffer);
    assert_eq!(written, &body[..written.len()], "{sack:?} encodes to other bytes");
    let end = sack.end(ack);
    for psn in [0, 1, ack.0, ack.0 | 31, end.0, u64::MAX, sack.echo.0] {
        let has = sack.has(ack, Psn(psn));
        // At the very end of the numbers `end` saturates and the last PSN is still within the bitmap.
        assert!(!has || psn < end.0 || end.0 == u64::MAX, "{psn} lies beyond {end}");
        assert!(has || psn >= ack.0 - ack.0 % 32, "{psn} lies before the bitmap of {ack}");
    }
    true
}

/// Reads `body` as an offer and as a challenge. What is read, written and read again is the same.
pub(crate) fn offer(body: &[u8]) -> bool {
    let offer = Offer::decode(body);
    if let Ok(offer) = offer {
        assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
    }
    let challenge = Challenge::decode(body);
    if let Ok(challenge) = challenge {
        assert_eq!(challenge.encode(), body, "{challenge:?} encodes to other bytes");
    }
    offer.is_ok() || challenge.is_ok()
}
