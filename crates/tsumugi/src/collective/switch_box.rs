//! Operations that a switch box counts, and how a group goes on without it.
//!
//! All participants choose the box for the same operations ([`Counted::of`]), and it counts one after the other. Whoever finds that it counts
//! no more says so to all others: from that operation on the group goes on by messages. Those who are in it as well follow. Those who have left
//! it, because the box had told them before it went, say what came of it. Nobody is further ahead, for nobody leaves the next
//! before all have entered it.
//!
//! A box that was restarted is joined again, by itself. What came of the operation before may be lost to some then; they ask the
//! others, and the box goes on counting.

use super::call::Call;
use super::choose::{Shape, Way, choose};
use super::counted::Counted;
use super::execution::Execution;
use super::format::Words;
use super::reduction::Combine;
use super::schedule::Position;
use crate::endpoint::core::Core;
use crate::endpoint::groups::SeatId;
use std::collections::VecDeque;
use tsumugi_proto::group::member::{Member, State as Seat};
use tsumugi_wire::Instant;
use tsumugi_wire::group::Operation;

/// An operation that a box counts, and what is needed to do without it.
pub(super) struct Counting {
    counted: Counted,
    shape: Shape,
    data: Vec<u8>,
    combine: Option<Combine>,
}

impl Counting {
    pub(super) fn new(counted: Counted, shape: &Shape, combine: Option<Combine>, data: Vec<u8>) -> Counting {
        Counting { counted, shape: shape.clone(), data, combine }
    }

    /// What this participant contributes: the words, and how many there are.
    pub(super) fn contribute(&self, me: Position) -> (Operation, Words, usize) {
        let (words, count) = self.counted.contribute(me, &self.data);
        (self.counted.operation(), words, count)
    }

    /// The result of what the box has made of all contributions.
    pub(super) fn result(&self, me: Position, words: &Words) -> Vec<u8> {
        self.counted.result(me, words, self.combine.as_ref())
    }

    /// The same by messages.
    pub(super) fn by_messages(&self, me: Position) -> Execution {
        let Way::Messages(schedule) = choose(&self.shape, me);
        let fill = |place: &mut [u8]| place[..self.data.len()].copy_from_slice(&self.data);
        Execution::begin(schedule, fill, self.combine.clone())
    }
}

/// The box of a group.
pub(super) struct SwitchBox {
    /// `None`: it counts no more.
    pub(super) seat: Option<SeatId>,
    /// The operation that it counts, and those that wait for it.
    pub(super) now: Option<u64>,
    pub(super) waiting: VecDeque<u64>,
    /// Not before this time are others asked (again) what came of the operation.
    pub(super) ask_at: Instant,
    /// Operations from this one on are done by messages.
    pub(super) until: u64,
}

impl SwitchBox {
    pub(super) fn new(seat: SeatId) -> SwitchBox {
        SwitchBox {
            seat: Some(seat),
            now: None,
            waiting: VecDeque::new(),
            ask_at: Instant(0),
            until: u64::MAX,
        }
    }

    /// Operations from this one on are not counted any more.
    pub(super) fn stop(&mut self, sequence: u64) {
        self.now = self.now.filter(|now| *now < sequence);
        self.waiting.retain(|waiting| *waiting < sequence);
    }

    /// How it counts an operation, if it does.
    pub(super) fn counts(&self, sequence: u64, call: &Call, size: usize) -> Option<Counted> {
        (sequence < self.until).then(|| Counted::of(call, size)).flatten()
    }

    /// How it stands with the operation that it counts; `None`: it counts none.
    pub(super) fn member<'c>(&self, core: &'c Core) -> Option<&'c Member> {
        self.now.and(self.seat).and_then(|seat| core.seat(seat))
    }

    /// Whether there is something to do about it. `now` is asked for the time.
    pub(super) fn has_news(&self, core: &Core, now: impl FnOnce() -> Instant) -> bool {
        self.member(core).is_some_and(|member| match member.state() {
            Seat::Joined | Seat::Failed(_) => true,
            _ => member.is_adrift() && now() >= self.ask_at,
        })
    }
}
