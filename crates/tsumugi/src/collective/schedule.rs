//! A schedule: what one participant sends, receives, copies and combines in an operation, round by round.
//!
//! All of it is over one buffer of bytes. A round's sends and receives may happen in any order; when all are done its steps are
//! taken, in order, and the next round begins. Two rules keep that sound:
//!
//! - **What is received has its place from the beginning.** A message may arrive rounds before its own, and is written to its
//!   place at once. So nothing else is written there before, and what is sent from there is sent before the message can have been:
//!   the message is made, by whoever sends it, of what was sent.
//! - **Steps combine, arrivals do not.** So the order in which messages arrive has no part in the result.
//!
//! Messages from one participant to another arrive in the order in which they were sent; so the n-th receive from a participant
//! is for its n-th send to us.

use std::ops::Range;

/// A participant's rank, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl Position {
    /// Our place when places are counted from `root`, which has place 0.
    pub(super) fn relative_to(self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    /// The rank `distance` places after ours, all around.
    pub(super) fn after(self, distance: usize) -> usize {
        (self.rank + distance) % self.size
    }

    /// The rank `distance` places before ours; `distance` is at most the size.
    pub(super) fn before(self, distance: usize) -> usize {
        (self.rank + self.size - distance) % self.size
    }
}

/// Bytes that go to a participant, or come from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) rank: usize,
    pub(super) range: Range<usize>,
}

/// Which of two operands is the left one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    OwnFirst,
    ArrivedFirst,
}

/// Something that a participant does by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Copies bytes; the two places do not overlap.
    Copy { from: Range<usize>, to: usize },
    /// Combines as many bytes that begin at `arrived` into `own`; the two places do not overlap.
    Combine { own: Range<usize>, arrived: usize, order: Order },
}

/// Sends and receives, and what is done after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) sends: Vec<Transfer>,
    pub(super) receives: Vec<Transfer>,
    pub(super) steps: Vec<Step>,
}

/// What one participant does in an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Length of the buffer, bytes.
    pub(super) bytes: usize,
    /// Where in the buffer the participant's own data begin.
    pub(super) input: usize,
    /// Where its result lies at the end, if it has one.
    pub(super) output: Option<Range<usize>>,
    pub(super) rounds: Vec<Round>,
    /// The round that is being written.
    next: Round,
}

impl Schedule {
    /// Adds bytes to the buffer.
    pub(super) fn allocate(&mut self, bytes: usize) -> Range<usize> {
        let range = self.bytes..self.bytes + bytes;
        self.bytes = range.end;
        range
    }

    pub(super) fn send(&mut self, rank: usize, range: Range<usize>) {
        self.next.sends.push(Transfer { rank, range });
    }

    pub(super) fn receive(&mut self, rank: usize, range: Range<usize>) {
        self.next.receives.push(Transfer { rank, range });
    }

    pub(super) fn copy(&mut self, from: Range<usize>, to: usize) {
        if !from.is_empty() {
            self.next.steps.push(Step::Copy { from, to });
        }
    }

    /// Receives what is then combined into `own`.
    pub(super) fn receive_to_combine(&mut self, rank: usize, own: Range<usize>, order: Order) {
        let arrived = self.allocate(own.len());
        self.receive(rank, arrived.clone());
        self.next.steps.push(Step::Combine { own, arrived: arrived.start, order });
    }

    /// What is added from now on is done after what was added before.
    pub(super) fn end_round(&mut self) {
        let round = std::mem::take(&mut self.next);
        if round != Round::default() {
            self.rounds.push(round);
        }
    }
}

/// Piece `index` of `bytes` that are cut into `count` pieces, as equal as whole bytes can be.
pub(super) fn piece(bytes: usize, count: usize, index: usize) -> Range<usize> {
    // The first so many pieces have one byte more.
    let (each, more) = (bytes / count, bytes % count);
    let start = |index: usize| index * each + index.min(more);
    start(index)..start(index + 1)
}

/// Where blocks of these lengths lie that follow each other.
pub(super) fn blocks(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0;
    let block = |bytes: &usize| {
        let start = end;
        end += bytes;
        start..end
    };
    lengths.iter().map(block).collect()
}
