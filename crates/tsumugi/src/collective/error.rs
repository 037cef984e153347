//! What can go wrong with a group and its operations.

use super::call::Call;
use super::format::Why;
use crate::PeerId;
use crate::error::{ChannelError, Failure};
use std::time::Duration;
use tsumugi_rail::RailError;

/// A group could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The channel cannot be had.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The own rank is none of the group's.
    #[error(
        "rank {rank} is not in a group of {size}; ranks begin with 0, and the list has an entry for each, ours too"
    )]
    NoSuchRank {
        /// The own rank as it was given.
        rank: usize,
        /// Length of the list.
        size: usize,
    },
    /// There is a peer where this participant is.
    #[error("rank {rank} is this participant, and the list has {peer} there; give None")]
    OwnPeer {
        /// The own rank.
        rank: usize,
        /// What the list says.
        peer: PeerId,
    },
    /// There is no peer where another participant is.
    #[error("the list has no peer for rank {rank}; only this participant's own entry is None")]
    NoPeer {
        /// Whose entry it is.
        rank: usize,
    },
    /// No peer has this number.
    #[error("rank {rank} is said to be {peer}, and no peer was added under this number")]
    NoSuchPeer {
        /// Whose entry it is.
        rank: usize,
        /// What the list says.
        peer: PeerId,
    },
    /// A peer has two ranks.
    #[error("{peer} is both rank {} and rank {}; every participant has an endpoint of its own", ranks.0, ranks.1)]
    Twice {
        /// The peer.
        peer: PeerId,
        /// Its ranks.
        ranks: (usize, usize),
    },
    /// Messages are so short that headers do not fit.
    #[error(
        "messages of {needed} bytes are needed and the endpoint takes {limit}; raise Config::message_bytes_max"
    )]
    MessageBytes {
        /// Bytes of the shortest message that is of use.
        needed: u64,
        /// The endpoint's limit.
        limit: u64,
    },
    /// More participants than can be counted.
    #[error("a group of {0} is more than ranks can be written for")]
    TooMany(usize),
}

/// An operation could not be started, or has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The root is none of the group's. Nothing was started.
    #[error("rank {root} cannot be the root: the group has {size} participants, and ranks begin with 0")]
    NoSuchRoot {
        /// The root as it was given.
        root: usize,
        /// Number of participants.
        size: usize,
    },
    /// A list of lengths has not one for each participant. Nothing was started.
    #[error(
        "{given} lengths were given for a group of {size}; give one for each participant, in the order of ranks"
    )]
    Lengths {
        /// How many were given.
        given: usize,
        /// Number of participants.
        size: usize,
    },
    /// The data given are not as long as the operation needs. Nothing was started.
    #[error(
        "{given} elements were given and the operation needs {needed}; see the lengths that it was given"
    )]
    DataLength {
        /// Elements that were given.
        given: usize,
        /// Elements that are needed.
        needed: usize,
    },
    /// Data that are to be cut into a block for each participant cannot be. Nothing was started.
    #[error(
        "{given} elements cannot be cut into {size} blocks of equal length; use the form with lengths (…v)"
    )]
    Uneven {
        /// Elements that were given.
        given: usize,
        /// Number of participants.
        size: usize,
    },
    /// The group is broken, from this operation on or an earlier one.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The time is over. The operation goes on.
    #[error("not complete within {0:?}; the operation goes on and can be waited for again")]
    TimedOut(Duration),
    /// Its result was given out already.
    #[error("the result of this operation was given out already")]
    Spent,
    /// A switch box is being looked for. Nothing was started.
    #[error(
        "a switch box is being looked for, and nothing else can be started in the group until that is over; wait for the search"
    )]
    Searching,
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}

/// Why a group is broken. What its other participants are told of it is that there is something, and who is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A participant does something else.
    #[error(
        "operation {sequence} of rank {rank} is {found}, and of this participant {expected}; all participants start the same operations in the same order"
    )]
    Mismatch {
        /// Who does something else.
        rank: usize,
        /// Number of the operation in the group, from 0.
        sequence: u64,
        /// What was started here.
        expected: Call,
        /// What was started there.
        found: Call,
    },
    /// A participant sends more or less than is expected.
    #[error(
        "in operation {sequence}, {call}, rank {rank} sends {found} bytes where {expected} are expected; the lengths that participants give have to agree"
    )]
    Length {
        /// Who sends them.
        rank: usize,
        /// Number of the operation in the group, from 0.
        sequence: u64,
        /// What was started here.
        call: Call,
        /// Bytes that are expected.
        expected: u64,
        /// Bytes that come.
        found: u64,
    },
    /// A participant sends something that has no place in the operation.
    #[error(
        "in operation {sequence} rank {rank} sends data that have no place there; its version of Tsumugi may be another, or its lengths do not agree"
    )]
    Unexpected {
        /// Who sends it.
        rank: usize,
        /// Number of the operation in the group, from 0.
        sequence: u64,
    },
    /// Participants that a switch box counts reduce by different operations, or data of different lengths.
    #[error(
        "in operation {sequence} participants reduce by different operations, or data of different lengths"
    )]
    Disagreement {
        /// Number of the operation in the group, from 0.
        sequence: u64,
    },
    /// This participant has dropped a search for a switch box before it was over.
    #[error("a search for a switch box was dropped before operation {sequence}, and it was not over")]
    SearchDropped {
        /// First operation that is not done, from 0.
        sequence: u64,
    },
    /// A participant has another list of participants.
    #[error(
        "rank {rank} of {size} says that it is rank {said_rank} of {said_size}; all participants list the same peers in the same order"
    )]
    OtherGroup {
        /// Its rank in our list.
        rank: usize,
        /// Number of participants in our list.
        size: usize,
        /// What it says that its rank is.
        said_rank: u32,
        /// How many participants it says that there are.
        said_size: u32,
    },
    /// A participant is gone.
    #[error("rank {rank} is gone: {failure}")]
    Gone {
        /// Who is gone.
        rank: usize,
        /// What is known of it.
        failure: Box<Failure>,
    },
    /// Nothing can be sent to a participant.
    #[error("nothing can be sent to rank {rank}: {why}")]
    Unsent {
        /// To whom.
        rank: usize,
        /// Why not.
        why: String,
    },
    /// Another participant has given the group up and told us.
    #[error("rank {by} has given up operation {sequence} and all after it: {}", told(*.rank, *.why))]
    Told {
        /// Who told us.
        by: usize,
        /// First operation that it does not do, from 0.
        sequence: u64,
        /// Who is to blame, it says.
        rank: usize,
        /// Of what.
        why: Why,
    },
}

impl Broken {
    /// Who is to blame; `None`: that is not known.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Broken::Mismatch { rank, .. }
            | Broken::Length { rank, .. }
            | Broken::Unexpected { rank, .. }
            | Broken::OtherGroup { rank, .. }
            | Broken::Gone { rank, .. }
            | Broken::Unsent { rank, .. }
            | Broken::Told { rank, .. } => Some(*rank),
            Broken::Disagreement { .. } | Broken::SearchDropped { .. } => None,
        }
    }

    /// What others are told.
    pub(super) fn why(&self) -> Why {
        match self {
            Broken::Mismatch { .. }
            | Broken::Disagreement { .. }
            | Broken::Length { .. }
            | Broken::Unexpected { .. }
            | Broken::OtherGroup { .. } => Why::Mismatch,
            Broken::SearchDropped { .. } => Why::Left,
            Broken::Gone { .. } => Why::Gone,
            Broken::Unsent { .. } => Why::Unsent,
            Broken::Told { why, .. } => *why,
        }
    }
}

fn told(rank: usize, why: Why) -> String {
    match why {
        Why::Gone => format!("rank {rank} is gone"),
        Why::Mismatch => {
            format!("what it has started and what rank {rank} has do not fit; see the error there")
        }
        Why::Left => format!("rank {rank} has dropped its group before the operations were over"),
        Why::Unsent => format!("nothing can be sent to rank {rank}; see the error there"),
    }
}
