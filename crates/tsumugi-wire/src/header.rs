//! The 48-byte header at the start of every packet.

use crate::limits::VERSION;
use crate::numbered::numbered;
use crate::psn::Psn;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 48;

numbered! {
    /// What a packet is for.
    pub enum Kind: u8 {
        /// Messages, under a PSN.
        Data = 1,
        /// Acknowledgement: everything before `ack`, and what the bitmap says beyond it.
        Ack = 2,
        /// Go-back-N: a packet arrived out of order; begin again at `ack` (LOSE of P1: Sumimoto et al., 2000).
        Nak = 3,
        /// The receive queue is full (P1's STOP); `psn` was not taken. Send nothing until XON.
        Xoff = 4,
        /// There is room again (P1's GO).
        Xon = 5,
        /// Asks for an ACK; carries no PSN of its own.
        Probe = 6,
        /// First word of a peer: its epoch and what it offers.
        Hello = 7,
        /// Answer to a HELLO without a valid cookie: here is one. Nothing is remembered.
        Challenge = 8,
        /// Answer to a HELLO with a valid cookie: the flow is open.
        Welcome = 9,
        /// The endpoint closes: nothing will follow. `psn` says whether all that it sent has arrived.
        Bye = 10,
        /// The BYE was heard.
        ByeAck = 11,
        /// The flow that this packet answers is not known here: the endpoint has restarted, or never was.
        Reset = 12,
        /// A piece of a DATA packet that is too long for its path; `psn` is the packet's.
        Piece = 13,
        /// As long as a datagram may be, if it arrives: asks for SIZE_ACK. `psn` is the datagram's length.
        SizeProbe = 14,
        /// A SIZE_PROBE arrived: its `psn` and `path` are repeated.
        SizeAck = 15,
        /// The DATA packet `psn` arrived, and its body is not what its CRC says: send it again, in PIECEs.
        Damaged = 16,
        /// To a switch box: the sender wants to be counted in a group. What this and the next four carry is told in
        /// [`group`](crate::group).
        Join = 17,
        /// To a switch box: the sender has arrived at a generation of its group.
        Arrive = 18,
        /// To a switch box: the sender leaves its group.
        Leave = 19,
        /// What a switch box says of a JOIN, an ARRIVE, a LEAVE or a MULTICAST; or a member, that no box has taken it.
        Notice = 20,
        /// From a switch box to one below: a generation of a group is complete.
        Release = 21,
        /// To a switch box: DATA for several receivers, which it makes one packet of for each ([`crate::multicast`]).
        Multicast = 22,
        /// The same, from a switch box to one below.
        Relay = 23,
    }
}

impl Kind {
    /// Whether the packet belongs to an established flow, so that its `flow` and `token` must match.
    #[must_use]
    pub const fn on_a_flow(self) -> bool {
        !matches!(self, Kind::Hello | Kind::Challenge | Kind::Welcome | Kind::Reset) && !self.of_a_group()
    }

    /// Whether the packet is between a member of a group and a switch box, or between boxes.
    #[must_use]
    pub const fn of_a_group(self) -> bool {
        matches!(
            self,
            Kind::Join
                | Kind::Arrive
                | Kind::Leave
                | Kind::Notice
                | Kind::Release
                | Kind::Multicast
                | Kind::Relay
        )
    }
}

/// Bits of a header's `flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender wants an ACK for this packet at once rather than when convenient.
    pub const ACK_REQUEST: Flags = Flags(1);
    /// This packet was sent before.
    pub const RESENT: Flags = Flags(2);
    /// `ack` and `credit` are meaningful: the sender has a flow from us to speak about.
    pub const HAS_ACK: Flags = Flags(4);
    /// In an answer: packets of this flow reach the receiver in several buffers, and such a packet cannot be turned round
    /// into an answer where it arrives. Whoever wants an ACK at once sends a PROBE behind a long packet.
    pub const ASK_BY_PROBE: Flags = Flags(8);
    /// In an answer: the sending process leaves, and another will go on in its place. That nobody has its port meanwhile
    /// means nothing.
    pub const AWAY: Flags = Flags(16);
    /// With ACK_REQUEST: nobody waits for that ACK. Whoever must make a system call for it may let it ride along with
    /// what it sends next, as if it had not been asked.
    pub const AT_LEISURE: Flags = Flags(32);
    /// In DATA, where both sides have agreed on it ([`Offer::trusts_wire`](crate::handshake::Offer::trusts_wire)): the body's CRC was
    /// not made, is 0, and is not compared.
    pub const UNCHECKED: Flags = Flags(64);
    /// `body_crc` is no CRC but [`group::mix`](crate::group::mix) of the body, or in MULTICAST and RELAY
    /// [`multicast::check`](crate::multicast::check) of the table in it: in all packets to and from switch boxes but the DATA that they make
    /// for several receivers, and in no others. With a body that has not the length for it, or not the table, it means nothing.
    pub const MIXED: Flags = Flags(128);

    /// Whether every bit of `other` is set here.
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A packet's header, as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet is for.
    pub kind: Kind,
    /// See [`Flags`].
    pub flags: Flags,
    /// Number of the path, as the sender counts them; echoed by SIZE_ACK alone, read by whoever judges paths.
    pub path: u8,
    /// Token that the receiver handed out with `flow`: 64 bits that a stranger cannot guess.
    pub token: u64,
    /// Index of the flow in the *receiver's* flow table, so that finding it needs no hash.
    pub flow: u32,
    /// Incarnation of the sending endpoint; random, never 0.
    pub epoch: u32,
    /// DATA, PIECE: this packet's number. ACK, NAK, XON: every PSN before this one has been compared with its CRC. XOFF: the
    /// number refused. BYE: the number after the last sent. SIZE_PROBE, SIZE_ACK: the length of the datagram. DAMAGED: the
    /// number of the packet that is wanted again. Packets of groups: see [`group`](crate::group) and
    /// [`multicast`](crate::multicast). Otherwise 0.
    pub psn: Psn,
    /// Reverse flow: every PSN before this one has been deposited; in packets that are no answers, compared with its CRC, too. Packets
    /// of groups: as `psn`.
    pub ack: Psn,
    /// Reverse flow: how many PSNs from `ack` on the receiver will take. MULTICAST, RELAY: the receivers in the table.
    pub credit: u16,
    /// Bytes of body that follow the header. Datagrams that were coalesced on receive are cut apart by it.
    pub body_bytes: u16,
    /// CRC32C (Castagnoli) of the body; 0 for an empty body, and with [`Flags::UNCHECKED`]. See [`Flags::MIXED`].
    pub body_crc: u32,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedHeader {
    /// Fewer bytes than a header, or than the header announces.
    #[error("{have} bytes, but the packet needs {need}")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// Written by another version of the protocol.
    #[error("version {0}, this is version {VERSION}")]
    Version(u8),
    /// The header check does not match: damaged in transit, or not ours.
    #[error("header check failed")]
    Check,
    /// A kind that this version does not define.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// Epoch 0 is never handed out.
    #[error("epoch 0")]
    Epoch,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    version: u8,
    kind: u8,
    flags: u8,
    path: u8,
    check: U32,
    token: U64,
    flow: U32,
    epoch: U32,
    psn: U64,
    ack: U64,
    credit: U16,
    body_bytes: U16,
    body_crc: U32,
}

const _: () = assert!(size_of::<Layout>() == HEADER_BYTES);

impl Header {
    /// A header of `kind` with everything else 0.
    #[must_use]
    pub const fn new(kind: Kind, epoch: u32) -> Header {
        Header {
            kind,
            flags: Flags(0),
            path: 0,
            token: 0,
            flow: 0,
            epoch,
            psn: Psn(0),
            ack: Psn(0),
            credit: 0,
            body_bytes: 0,
            body_crc: 0,
        }
    }

    /// The header's bytes, its check filled in.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut layout = Layout {
            version: VERSION,
            kind: self.kind as u8,
            flags: self.flags.0,
            path: self.path,
            check: U32::new(0),
            token: U64::new(self.token),
            flow: U32::new(self.flow),
            epoch: U32::new(self.epoch),
            psn: U64::new(self.psn.0),
            ack: U64::new(self.ack.0),
            credit: U16::new(self.credit),
            body_bytes: U16::new(self.body_bytes),
            body_crc: U32::new(self.body_crc),
        };
        layout.check = U32::new(check(&layout));
        zerocopy::transmute!(layout)
    }

    /// The kind of a packet of any version. Versions may differ in everything but this: a packet's first byte is its version
    /// and the second its kind, and HELLO and RESET have these numbers. So two that differ can tell each other.
    #[must_use]
    pub fn kind_in_any_version(bytes: &[u8]) -> Option<Kind> {
        Kind::from_number(*bytes.get(1)?)
    }

    /// Reads the packet at the start of `bytes`: its header, its body, and what follows it.
    ///
    /// The body's CRC is not checked here; whoever hands the data on does that.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; nothing in them is trusted before the header check holds.
    pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8], &[u8]), MalformedHeader> {
        let truncated = |need| MalformedHeader::Truncated { have: bytes.len(), need };
        let (layout, rest) = Layout::ref_from_prefix(bytes).map_err(|_| truncated(HEADER_BYTES))?;
        if layout.version != VERSION {
            return Err(MalformedHeader::Version(layout.version));
        }
        if layout.check.get() != check(layout) {
            return Err(MalformedHeader::Check);
        }
        let kind = Kind::from_number(layout.kind).ok_or(MalformedHeader::Kind(layout.kind))?;
        let epoch = layout.epoch.get();
        if epoch == 0 {
            return Err(MalformedHeader::Epoch);
        }
        let body_bytes = layout.body_bytes.get();
        if rest.len() < usize::from(body_bytes) {
            return Err(truncated(HEADER_BYTES + usize::from(body_bytes)));
        }
        let (body, rest) = rest.split_at(usize::from(body_bytes));
        let header = Header {
            kind,
            flags: Flags(layout.flags),
            path: layout.path,
            token: layout.token.get(),
            flow: layout.flow.get(),
            epoch,
            psn: Psn(layout.psn.get()),
            ack: Psn(layout.ack.get()),
            credit: layout.credit.get(),
            body_bytes,
            body_crc: layout.body_crc.get(),
        };
        Ok((header, body, rest))
    }
}

/// Odd multiplier from the splitmix64 generator (Steele, Lea, Flood, OOPSLA 2014).
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

/// 32-bit check over the header's six words with `check` taken as 0.
///
/// A CRC in software costs the XDP program half a lookup a byte; six multiplications cost it nothing
/// and catch any damage with a chance of 2⁻³² to miss. It protects against accidents, the
/// token against strangers.
fn check(layout: &Layout) -> u32 {
    let bytes: &[u8; HEADER_BYTES] = zerocopy::transmute_ref!(layout);
    let (words, _) = bytes.as_chunks::<8>();
    mix_words(words.iter().enumerate().map(|(index, word)| {
        let word = u64::from_le_bytes(*word);
        // The upper half of the first is the check itself.
        if index == 0 { word & 0xffff_ffff } else { word }
    }))
}

/// 32 bits that any change of the words changes, but for a chance of 2⁻³².
#[inline]
pub(crate) fn mix_words(words: impl Iterator<Item = u64>) -> u32 {
    words.fold(0u64, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(MIX);
        sum ^ sum >> 32
    }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_header() -> impl Strategy<Value = Header> {
        (
            (0..Kind::ALL.len(), any::<u8>(), any::<u8>(), any::<u64>(), any::<u32>(), 1u32..),
            (any::<u64>(), any::<u64>(), any::<u16>(), 0u16..2000, any::<u32>()),
        )
            .prop_map(
                |((kind, flags, path, token, flow, epoch), (psn, ack, credit, body_bytes, body_crc))| {
                    Header {
                        kind: Kind::ALL[kind],
                        flags: Flags(flags),
                        path,
                        token,
                        flow,
                        epoch,
                        psn: Psn(psn),
                        ack: Psn(ack),
                        credit,
                        body_bytes,
                        body_crc,
                    }
                },
            )
    }

    fn packet(header: &Header) -> [u8; HEADER_BYTES + 2000] {
        let mut bytes = [0u8; HEADER_BYTES + 2000];
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in any_header()) {
            let bytes = packet(&header);
            let (read, body, rest) = Header::decode(&bytes).unwrap();
            prop_assert_eq!(read, header);
            prop_assert_eq!(body.len(), usize::from(header.body_bytes));
            prop_assert_eq!(rest.len(), 2000 - body.len());
        }

        #[test]
        fn any_flipped_bit_is_noticed(header in any_header(), bit in 0usize..HEADER_BYTES * 8) {
            let mut bytes = packet(&header);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::decode(&bytes);
        }
    }

    #[test]
    fn a_body_shorter_than_announced_is_truncated() {
        let mut header = Header::new(Kind::Data, 1);
        header.body_bytes = 10;
        let mut bytes = [0u8; HEADER_BYTES + 9];
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        assert_eq!(
            Header::decode(&bytes),
            Err(MalformedHeader::Truncated { have: HEADER_BYTES + 9, need: HEADER_BYTES + 10 })
        );
    }
}
