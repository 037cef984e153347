//! Packets between endpoints and a switch box, which counts for groups of endpoints (barrier) and combines what they
//! contribute (reduction). What it does for one that sends to several is told in [`crate::multicast`].
//!
//! A member sends its packets to another member, and a box on the way takes them: so nobody configures where boxes are, and
//! without one the other member gets the packet and says so. All of them have the flag [`Flags::MIXED`](crate::Flags::MIXED). JOIN,
//! ARRIVE, LEAVE, NOTICE and RELEASE, which are told here, are a header and a body of [`BODY_BYTES`], so that a box can turn one into
//! another where it lies. Their `body_crc` is [`mix`] of the body.
//!
//! ```text
//!   member                                  box
//!   | JOIN  job, key, group, size -------->  |
//!   | <------------- NOTICE joined, seat    |   when all `size` have joined
//!   | ARRIVE seat, generation, words ----->  |
//!   | <-- DATA generation, combined words    |   to every member, when all have arrived: the release
//! ```
//!
//! A member that leaves says LEAVE: header and token as in an ARRIVE, and a body of zeros, which nobody reads. It is there
//! because these bodies are of one length. Nothing answers it. A NOTICE answers each JOIN and ARRIVE that is not answered by a release,
//! and a MULTICAST that no box takes, or of which the box cannot make what is asked for.
//!
//! A release is a DATA packet of a flow that the member has opened for it and named in its JOIN, so a receive path deposits it
//! as any other. Its PSN counts generations. Between boxes it is a RELEASE.

use crate::header::mix_words;
use crate::numbered::numbered;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the body of every packet of a group, but for those of [`crate::multicast`], which have no fewer.
pub const BODY_BYTES: usize = 88;
/// Most words that are combined at once.
pub const WORDS_MAX: usize = 8;
/// Slots of a group in a box: members, and boxes below, at most.
pub const SLOTS_MAX: usize = 64;
/// Bits of a seat that are the slot's number; above them is the group's place in the box.
pub const SLOT_BITS: u32 = 6;
/// Most members of a group.
pub const MEMBERS_MAX: usize = u16::MAX as usize;

numbered! {
    /// How contributions are combined, word by word.
    ///
    /// Each is exact, and so its result does not depend on the order. Numbers of other types are mapped to these by whoever
    /// contributes: what is to be ordered to unsigned numbers that are ordered alike. Sums of floating point are not among them.
    pub enum Operation: u8 {
        /// Nothing is combined: a barrier.
        None = 0,
        /// Sum, modulo 2⁶⁴.
        Sum = 1,
        /// The smallest, as unsigned numbers.
        Min = 2,
        /// The largest, as unsigned numbers.
        Max = 3,
        /// Bits that all have.
        And = 4,
        /// Bits that any has.
        Or = 5,
        /// Bits that an odd number of them have.
        Xor = 6,
    }
}

impl Operation {
    /// Two words combined.
    #[inline]
    #[must_use]
    pub const fn combine(self, one: u64, other: u64) -> u64 {
        match self {
            Operation::None => 0,
            Operation::Sum => one.wrapping_add(other),
            Operation::Min => {
                if other < one {
                    other
                } else {
                    one
                }
            }
            Operation::Max => {
                if other > one {
                    other
                } else {
                    one
                }
            }
            Operation::And => one & other,
            Operation::Or => one | other,
            Operation::Xor => one ^ other,
        }
    }
}

numbered! {
    /// What a box says of a JOIN, an ARRIVE, a LEAVE or a MULTICAST other than by what was asked for; and what a member says that such a
    /// packet has reached.
    pub enum Notice: u8 {
        /// All members have joined, and this is the sender's seat.
        Joined = 1,
        /// All that is known has been counted; others have yet to arrive. `member` is one of them.
        Waiting = 2,
        /// The generation is complete, but its result has been lost: other members have it.
        Lost = 3,
        /// There is no such seat: the box has been restarted, or has given the group's place away. Join again.
        Unknown = 4,
        /// The group cannot be joined here: there is no room for it, or more members join than it has. Of a MULTICAST: the box cannot
        /// reach all receivers at once.
        Refused = 5,
        /// The members disagree about what is to be combined in this generation.
        Disagreement = 6,
        /// Said by a member: no box has taken the packet.
        NoBox = 7,
    }
}

numbered! {
    /// What a packet came to in a box, which counts by these numbers.
    pub enum Event: u8 {
        /// A member joined, or did again.
        Join = 0,
        /// A member arrived, and others have not yet.
        Arrive = 1,
        /// A member arrived again: its packet or the answer was lost or doubled.
        Again = 2,
        /// The last member arrived at the root, and all are told.
        Release = 3,
        /// All members here have arrived, and the box above is told; or the last JOIN was passed up.
        Up = 4,
        /// Something of the box above was passed down.
        Down = 5,
        /// A member left.
        Leave = 6,
        /// The generation is complete, and its result is not here.
        Lost = 7,
        /// Nobody has such a seat.
        UnknownSeat = 8,
        /// The group has another key.
        WrongKey = 9,
        /// There is no room, or the group is not as the sender says.
        Refused = 10,
        /// No member that keeps to the rules is at that generation.
        WrongGeneration = 11,
        /// The members disagree about what is combined.
        Disagreement = 12,
        /// The body does not say what there is.
        Malformed = 13,
        /// A NOTICE, RELEASE or RELAY for somebody else, or out of date.
        NotMine = 14,
        /// DATA was made for several receivers.
        Multicast = 15,
    }
}

impl Event {
    /// Its name, for scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Event::Join => "join",
            Event::Arrive => "arrive",
            Event::Again => "again",
            Event::Release => "release",
            Event::Up => "up",
            Event::Down => "down",
            Event::Leave => "leave",
            Event::Lost => "lost",
            Event::UnknownSeat => "unknown_seat",
            Event::WrongKey => "wrong_key",
            Event::Refused => "refused",
            Event::WrongGeneration => "wrong_generation",
            Event::Disagreement => "disagreement",
            Event::Malformed => "malformed",
            Event::NotMine => "not_mine",
            Event::Multicast => "multicast",
        }
    }
}

/// The body of a JOIN. The header's `flow`, `token` and `epoch` are those of the releases that the sender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The job.
    pub job: u64,
    /// What whoever joins must know; the first one says it.
    pub key: u64,
    /// Number of the group in the job.
    pub group: u64,
    /// 0, or the number of the box that joins with some of the members.
    pub box_number: u64,
    /// Generation whose release has PSN 0.
    pub first: u64,
    /// Members in all.
    pub size: u16,
    /// Number of the member, from 0; of a box: of the member whose JOIN made it send this one.
    pub member: u16,
    /// Members that the sender stands for: 1, or those of a box.
    pub weight: u16,
    /// Of a box: the slot to which it passes the answer on.
    pub via: u8,
}

/// The body of an ARRIVE, a release and a RELEASE. An ARRIVE's `flow` and `token` are its seat's, its `psn` and `ack` those that its JOIN had
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// Of an ARRIVE that a box sends: the slot to which it passes the answer on.
    pub via: u8,
    /// How it is combined.
    pub operation: Operation,
    /// How many of the words mean something; the others are 0.
    pub count: u8,
    /// Which barrier or reduction of the group's it is; they count from 1.
    pub generation: u64,
    /// What is combined, or what came of it.
    pub words: [u64; WORDS_MAX],
}

/// The body of a NOTICE. The header's `flow` and `token` are those of the JOIN of whoever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What is said.
    pub notice: Notice,
    /// The `via` of what is answered.
    pub via: u8,
    /// WAITING: number of a member that has not arrived; of a box: the smallest that it stands for.
    pub member: u16,
    /// JOINED: how many members the sender of the JOIN stands for.
    pub weight: u16,
    /// JOINED: what an ARRIVE has in its `flow`.
    pub seat: u32,
    /// JOINED: what an ARRIVE has in its `token`.
    pub seat_token: u64,
    /// The generation that is spoken of.
    pub generation: u64,
}

/// The body of a packet of a group does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of a packet of a group says nothing that there is")]
pub struct MalformedGroup;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct JoinLayout {
    /// Where a DATA packet has its first frame: none has form 0.
    frame: U64,
    job: U64,
    key: U64,
    group: U64,
    box_number: U64,
    first: U64,
    size: U16,
    member: U16,
    weight: U16,
    via: u8,
    reserved: [u8; 33],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct ContributionLayout {
    frame: U64,
    operation: u8,
    count: u8,
    via: u8,
    reserved: [u8; 5],
    generation: U64,
    words: [U64; WORDS_MAX],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct AnswerLayout {
    frame: U64,
    notice: u8,
    via: u8,
    member: U16,
    weight: U16,
    reserved: [u8; 2],
    seat: U32,
    reserved_2: U32,
    seat_token: U64,
    generation: U64,
    reserved_3: [u8; 48],
}

const _: () = assert!(size_of::<JoinLayout>() == BODY_BYTES);
const _: () = assert!(size_of::<ContributionLayout>() == BODY_BYTES);
const _: () = assert!(size_of::<AnswerLayout>() == BODY_BYTES);

/// What `body_crc` is in a packet with [`Flags::MIXED`](crate::Flags::MIXED), but for those of [`crate::multicast`]: the header check's function over the body's
/// words, which costs a BPF program next to nothing. `None`: the body has not the length of a group's.
#[must_use]
pub fn mix(body: &[u8]) -> Option<u32> {
    let (words, rest) = body.as_chunks::<8>();
    (body.len() == BODY_BYTES && rest.is_empty())
        .then(|| mix_words(words.iter().map(|word| u64::from_le_bytes(*word))))
}

impl Join {
    /// A JOIN's body.
    #[must_use]
    pub fn encode(&self) -> [u8; BODY_BYTES] {
        zerocopy::transmute!(JoinLayout {
            frame: U64::new(0),
            job: U64::new(self.job),
            key: U64::new(self.key),
            group: U64::new(self.group),
            box_number: U64::new(self.box_number),
            first: U64::new(self.first),
            size: U16::new(self.size),
            member: U16::new(self.member),
            weight: U16::new(self.weight),
            via: self.via,
            reserved: [0; 33],
        })
    }

    /// Reads a JOIN's body.
    ///
    /// # Errors
    /// Its length is wrong, or it names a member that there cannot be.
    pub fn decode(body: &[u8]) -> Result<Join, MalformedGroup> {
        let layout = JoinLayout::ref_from_bytes(body).map_err(|_| MalformedGroup)?;
        let join = Join {
            job: layout.job.get(),
            key: layout.key.get(),
            group: layout.group.get(),
            box_number: layout.box_number.get(),
            first: layout.first.get(),
            size: layout.size.get(),
            member: layout.member.get(),
            weight: layout.weight.get(),
            via: layout.via,
        };
        let is_one = join.box_number != 0 || join.weight == 1;
        let fits = join.member < join.size && join.weight >= 1 && join.weight <= join.size;
        (fits && is_one).then_some(join).ok_or(MalformedGroup)
    }
}

impl Contribution {
    /// An ARRIVE's body, or a release's.
    #[must_use]
    pub fn encode(&self) -> [u8; BODY_BYTES] {
        zerocopy::transmute!(ContributionLayout {
            frame: U64::new(0),
            operation: self.operation as u8,
            count: self.count,
            via: self.via,
            reserved: [0; 5],
            generation: U64::new(self.generation),
            words: self.words.map(U64::new),
        })
    }

    /// Reads an ARRIVE's body, or a release's.
    ///
    /// # Errors
    /// Its length is wrong, or it says what this version does not define.
    pub fn decode(body: &[u8]) -> Result<Contribution, MalformedGroup> {
        let layout = ContributionLayout::ref_from_bytes(body).map_err(|_| MalformedGroup)?;
        let operation = Operation::from_number(layout.operation).ok_or(MalformedGroup)?;
        let contribution = Contribution {
            via: layout.via,
            operation,
            count: layout.count,
            generation: layout.generation.get(),
            words: layout.words.map(U64::get),
        };
        let fits = usize::from(layout.count) <= WORDS_MAX && contribution.generation != 0;
        fits.then_some(contribution).ok_or(MalformedGroup)
    }
}

impl Answer {
    /// A NOTICE's body.
    #[must_use]
    pub fn encode(&self) -> [u8; BODY_BYTES] {
        zerocopy::transmute!(AnswerLayout {
            frame: U64::new(0),
            notice: self.notice as u8,
            via: self.via,
            member: U16::new(self.member),
            weight: U16::new(self.weight),
            reserved: [0; 2],
            seat: U32::new(self.seat),
            reserved_2: U32::new(0),
            seat_token: U64::new(self.seat_token),
            generation: U64::new(self.generation),
            reserved_3: [0; 48],
        })
    }

    /// Reads a NOTICE's body.
    ///
    /// # Errors
    /// Its length is wrong, or it says what this version does not define.
    pub fn decode(body: &[u8]) -> Result<Answer, MalformedGroup> {
        let layout = AnswerLayout::ref_from_bytes(body).map_err(|_| MalformedGroup)?;
        let notice = Notice::from_number(layout.notice).ok_or(MalformedGroup)?;
        Ok(Answer {
            notice,
            via: layout.via,
            member: layout.member.get(),
            weight: layout.weight.get(),
            seat: layout.seat.get(),
            seat_token: layout.seat_token.get(),
            generation: layout.generation.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (job, key, group, box_number, first) in any::<(u64, u64, u64, u64, u64)>(),
            (size, member, weight, via) in any::<(u16, u16, u16, u8)>(),
            (words, generation, seat_token) in any::<([u64; 8], u64, u64)>(),
            operation in 0..Operation::ALL.len(),
            notice in 0..Notice::ALL.len(),
        ) {
            let join = Join { job, key, group, box_number, first, size, member, weight, via };
            match Join::decode(&join.encode()) {
                Ok(read) => prop_assert_eq!(read, join),
                Err(_) => prop_assert!(
                    member >= size || weight > size || weight == 0 || (box_number == 0 && weight != 1)
                ),
            }
            let count = via % 9;
            let operation = Operation::ALL[operation];
            let contribution = Contribution { via, operation, count, generation, words };
            match Contribution::decode(&contribution.encode()) {
                Ok(read) => prop_assert_eq!(read, contribution),
                Err(_) => prop_assert_eq!(generation, 0),
            }
            let notice = Notice::ALL[notice];
            let answer = Answer { notice, via, member, weight, seat: job as u32, seat_token, generation };
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }

        #[test]
        fn any_flipped_bit_is_noticed(body in any::<[[u8; 8]; BODY_BYTES / 8]>(), bit in 0..BODY_BYTES * 8) {
            let mut body = body.concat();
            let before = mix(&body);
            body[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(before.is_some() && mix(&body) != before);
        }

        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let fits = body.len() == BODY_BYTES;
            prop_assert_eq!(mix(&body).is_some(), fits);
            prop_assert!(Join::decode(&body).is_err() || fits);
            prop_assert!(Contribution::decode(&body).is_err() || fits);
            prop_assert!(Answer::decode(&body).is_err() || fits);
        }
    }

    #[test]
    fn operations_are_exact_and_need_no_order() {
        for operation in Operation::ALL {
            let words = [3, u64::MAX, 0, 1 << 63, 7];
            let forward = words.into_iter().reduce(|one, other| operation.combine(one, other));
            let back = words.into_iter().rev().reduce(|one, other| operation.combine(one, other));
            assert_eq!(forward, back, "{operation:?}");
        }
    }
}
