//! Bodies of the packets with which two endpoints connect.
//!
//! ```text
//!   A                               B
//!   | HELLO  nonce, cookie 0 ------> |   B remembers nothing yet
//!   | <------ CHALLENGE nonce, cookie|   a keyed hash of A's address, epoch and nonce
//!   | HELLO  nonce, cookie --------> |   A can hear what is sent to its address: B opens a flow
//!   | <------------- WELCOME offer   |
//! ```
//!
//! B may refuse the HELLO instead: with a WELCOME that offers no token and says why (see [`Refusal`]).
//!
//! HELLO and WELCOME both carry an *offer*: the index and token of the flow in which their sender
//! will receive, and what it is ready to take.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of HELLO's and WELCOME's body.
pub const OFFER_BYTES: usize = 56;
/// Bytes of CHALLENGE's body.
pub const CHALLENGE_BYTES: usize = 16;

/// Bits of an offer's flags: [`Offer::listens`] and [`Offer::trusts_wire`]. The others are sent as 0 and not read.
const LISTENS: u8 = 1;
const TRUSTS_WIRE: u8 = 2;

/// How a flow repairs losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Repeat {
    /// Packets are deposited in whatever order they arrive; only what is missing is sent again.
    #[default]
    Selective = 0,
    /// Packets are deposited in order only; after a loss everything from there is sent again (P1: Sumimoto et al.,
    /// 2000).
    GoBackN = 1,
}

/// What the sender of a HELLO or WELCOME offers to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of the job; endpoints of different jobs do not talk.
    pub job: u64,
    /// Random number of the HELLO; WELCOME repeats it, so that only who heard the HELLO can answer.
    pub nonce: u64,
    /// Proof of address from a CHALLENGE, or 0. WELCOME: 0.
    pub cookie: u64,
    /// Token to put into every packet of the flow towards the offering side.
    pub token: u64,
    /// Index of that flow.
    pub flow: u32,
    /// How the offering side will repair the flow that it *sends*.
    pub repeat: Repeat,
    /// A TCP socket listens on the offering side's port, for who wants to know whether its process is there.
    pub listens: bool,
    /// The offering side takes DATA without a CRC of the body, and sends it so to a peer that does, too.
    pub trusts_wire: bool,
    /// Longest datagram payload that the offering side takes, bytes.
    pub datagram_bytes: u16,
    /// Longest message that the offering side takes, bytes.
    pub message_bytes_max: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct OfferLayout {
    job: U64,
    nonce: U64,
    cookie: U64,
    token: U64,
    flow: U32,
    repeat: u8,
    flags: u8,
    datagram_bytes: U16,
    message_bytes_max: U64,
    reserved_2: U64,
}

const _: () = assert!(size_of::<OfferLayout>() == OFFER_BYTES);

/// A handshake body that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedOffer {
    /// Wrong length.
    #[error("{0} bytes of handshake")]
    Length(usize),
    /// A mode of repair that this version does not define.
    #[error("unknown repeat mode {0}")]
    Repeat(u8),
}

/// Why an endpoint refuses another: in a WELCOME whose `token` is 0 (no flow has that), `flow` is the number of the reason
/// and `message_bytes_max` the limit that belongs to it. The nonce is the HELLO's, as in every WELCOME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no room for another peer: as many as it takes are there.
    #[error(
        "it has room for {0} peers, and all are there; raise its Config::peers_max, or have others close their endpoints"
    )]
    Full(u64),
    /// It belongs to another job: this one.
    #[error("it belongs to job {0}; give both endpoints the same Config::job")]
    Job(u64),
    /// It takes only peers that are on its list.
    #[error(
        "it takes only peers on its list; add this one to its Config::peers, or set its Config::accept_unknown"
    )]
    Stranger,
    /// A reason that this version does not know, by its number.
    #[error("its reason, number {0}, is not known to this version")]
    Other(u32),
}

impl Offer {
    /// A WELCOME's body that refuses the HELLO with this nonce.
    #[must_use]
    pub const fn refusing(job: u64, nonce: u64, refusal: Refusal) -> Offer {
        let (flow, limit) = match refusal {
            Refusal::Full(limit) => (1, limit),
            Refusal::Job(_) => (2, 0),
            Refusal::Stranger => (3, 0),
            Refusal::Other(number) => (number, 0),
        };
        Offer {
            job,
            nonce,
            cookie: 0,
            token: 0,
            flow,
            repeat: Repeat::Selective,
            listens: false,
            trusts_wire: false,
            datagram_bytes: 0,
            message_bytes_max: limit,
        }
    }

    /// Why this WELCOME refuses; `None`: it does not.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match (self.token, self.flow) {
            (0, 1) => Some(Refusal::Full(self.message_bytes_max)),
            (0, 2) => Some(Refusal::Job(self.job)),
            (0, 3) => Some(Refusal::Stranger),
            (0, number) => Some(Refusal::Other(number)),
            _ => None,
        }
    }

    /// The body of a HELLO or WELCOME.
    #[must_use]
    pub fn encode(&self) -> [u8; OFFER_BYTES] {
        zerocopy::transmute!(OfferLayout {
            job: U64::new(self.job),
            nonce: U64::new(self.nonce),
            cookie: U64::new(self.cookie),
            token: U64::new(self.token),
            flow: U32::new(self.flow),
            repeat: self.repeat as u8,
            flags: if self.listens { LISTENS } else { 0 } | if self.trusts_wire { TRUSTS_WIRE } else { 0 },
            datagram_bytes: U16::new(self.datagram_bytes),
            message_bytes_max: U64::new(self.message_bytes_max),
            reserved_2: U64::new(0),
        })
    }

    /// Reads the body of a HELLO or WELCOME.
    ///
    /// # Errors
    /// The length is wrong, or the mode unknown.
    pub fn decode(body: &[u8]) -> Result<Offer, MalformedOffer> {
        let layout = OfferLayout::ref_from_bytes(body).map_err(|_| MalformedOffer::Length(body.len()))?;
        let repeat = match layout.repeat {
            0 => Repeat::Selective,
            1 => Repeat::GoBackN,
            other => return Err(MalformedOffer::Repeat(other)),
        };
        Ok(Offer {
            job: layout.job.get(),
            nonce: layout.nonce.get(),
            cookie: layout.cookie.get(),
            token: layout.token.get(),
            flow: layout.flow.get(),
            repeat,
            listens: layout.flags & LISTENS != 0,
            trusts_wire: layout.flags & TRUSTS_WIRE != 0,
            datagram_bytes: layout.datagram_bytes.get(),
            message_bytes_max: layout.message_bytes_max.get(),
        })
    }
}

/// What a CHALLENGE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Nonce of the HELLO that it answers.
    pub nonce: u64,
    /// To be repeated in the next HELLO; never 0.
    pub cookie: u64,
}

impl Challenge {
    /// The body of a CHALLENGE.
    #[must_use]
    pub fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        zerocopy::transmute!([U64::new(self.nonce), U64::new(self.cookie)])
    }

    /// Reads the body of a CHALLENGE.
    ///
    /// # Errors
    /// The length is wrong.
    pub fn decode(body: &[u8]) -> Result<Challenge, MalformedOffer> {
        let [nonce, cookie] =
            <[U64; 2]>::ref_from_bytes(body).map_err(|_| MalformedOffer::Length(body.len()))?;
        Ok(Challenge { nonce: nonce.get(), cookie: cookie.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offers_come_back(job: u64, nonce: u64, cookie: u64, token: u64, flow: u32, gbn: bool, listens: bool, trusts_wire: bool, datagram_bytes: u16, message_bytes_max: u64) {
            let repeat = if gbn { Repeat::GoBackN } else { Repeat::Selective };
            let offer = Offer { job, nonce, cookie, token, flow, repeat, listens, trusts_wire, datagram_bytes, message_bytes_max };
            prop_assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
            for refusal in [Refusal::Full(message_bytes_max), Refusal::Job(job), Refusal::Stranger, Refusal::Other(flow.max(4))] {
                let refused = Offer::decode(&Offer::refusing(job, nonce, refusal).encode()).unwrap();
                prop_assert_eq!((refused.nonce, refused.refusal()), (nonce, Some(refusal)));
            }
            let challenge = Challenge { nonce, cookie };
            prop_assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        }

        #[test]
        fn any_bytes_parse_or_are_refused(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Offer::decode(&body).is_err() || body.len() == OFFER_BYTES);
            prop_assert!(Challenge::decode(&body).is_err() || body.len() == CHALLENGE_BYTES);
        }
    }
}
