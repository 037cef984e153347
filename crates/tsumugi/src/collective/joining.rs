//! Having a switch box count for a group.

use super::error::CollectiveError;
use super::group::Group;
use super::multicasts::Multicasts;
use super::operation::{self, Operation};
use super::reduction::Reduction;
use super::switch_box::SwitchBox;
use crate::endpoint::core::Core;
use crate::endpoint::core::groups::Joining;
use crate::endpoint::groups::SeatId;
use crate::endpoint::shared::Shared;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tsumugi_proto::group::member::{Failure, Member, State as Seat};
use tsumugi_rail::host_number;
use tsumugi_wire::Instant;
use tsumugi_wire::group::MEMBERS_MAX;
use tsumugi_wire::time::MILLISECOND_NS;

/// After so long without all having joined there is no box that all can join, ns.
const PATIENCE_NS: u64 = 1_500 * MILLISECOND_NS;

impl Group {
    /// Has a switch box (`tsumugi switch`) that lies between the participants count barriers and small reductions from now on, if there is
    /// one that all of them can join. Returns whether there is; it is the same at all participants, who all call this, like any other
    /// operation.
    ///
    /// It counts [`Group::barrier`], and [`Group::allreduce`] of up to 8 integers, of the minimum and maximum of up to 8 floating-point
    /// numbers, and of anything else that is 8 numbers at most over all participants together, such as one sum of a `f64`
    /// among 8. Results are the same to the last bit as without it. Everything else goes by messages, and so does all when the box
    /// counts no more, from the operation that it does not complete on; [`Group::is_counted_by_a_box`] tells.
    ///
    /// Where each participant is on a host of its own, and they are 3 to 64, the box also makes a packet for each of them out of what
    /// the root of a [`Group::broadcast`] sends, which then leaves once, soon after it has broadcast for the second time;
    /// [`Group::is_broadcast_by_a_box`] tells.
    ///
    /// There may be any number of boxes on the way, one behind the other: each counts for those that are behind it. A box that forwards in XDP
    /// counts only for groups that have no two participants behind one of its ports.
    ///
    /// # Errors
    /// The group is broken, or the NIC is.
    pub fn use_switch_box(&self) -> Result<bool, CollectiveError> {
        self.start_use_switch_box()?.wait()
    }

    /// As [`Group::use_switch_box`], without waiting. Nothing else can be started in the group until the search is over.
    ///
    /// # Errors
    /// As [`Group::use_switch_box`].
    pub fn start_use_switch_box(&self) -> Result<SwitchBoxSearch, CollectiveError> {
        if self.state.borrow().is_searching {
            return Err(CollectiveError::Searching);
        }
        // What the former box counts comes to its end first.
        let has_box = self.state.borrow().switch_box.is_some();
        let stage = if has_box { Stage::Settling(self.start_barrier()?) } else { self.tell_hosts()? };
        self.state.borrow_mut().is_searching = true;
        Ok(SwitchBoxSearch { group: self.again(), stage, seat: None, multicasts: None })
    }

    /// Whether a switch box counts for the group, as far as is known.
    #[must_use]
    pub fn is_counted_by_a_box(&self) -> bool {
        let state = self.state.borrow();
        state.broken.is_none() && state.switch_box.as_ref().is_some_and(|by_box| by_box.until == u64::MAX)
    }

    /// Whether what this participant sends to all as the root of a broadcast leaves once, for a switch box makes a packet for each participant
    /// out of it, as far as is known.
    #[must_use]
    pub fn is_broadcast_by_a_box(&self) -> bool {
        let state = self.state.borrow();
        let core = &state.channel.shared.inner.borrow().core;
        state.multicasts.as_ref().is_some_and(|multicasts| multicasts.is_joined(core, self.rank()))
    }

    /// Tells all others which host this is, and what they would join with if this were the first of them.
    fn tell_hosts(&self) -> Result<Stage, CollectiveError> {
        if !(2..=MEMBERS_MAX).contains(&self.size()) {
            return Ok(Stage::Over(false));
        }
        let random = || u64::from(self.state.borrow().channel.shared.inner.borrow_mut().core.random_number());
        let word = || random() << 32 | random();
        // Of a host that does not say which it is nobody else seems to be.
        let own = [host_number().unwrap_or_else(word), word(), word()];
        self.start_allgather(&own).map(Stage::Telling)
    }
}

/// How far a search has come.
enum Stage {
    /// What the former box counts comes to its end.
    Settling(Operation<()>),
    /// All tell which host they are on.
    Telling(Operation<Vec<u64>>),
    /// All join what is on the way, if there is something, by this time.
    Joining(Instant),
    /// All tell whether they have.
    Agreeing(Operation<Vec<u64>>),
    Over(bool),
    /// The result was given out, or an error that was.
    Spent,
}

/// A search for a switch box that was started, by which to ask for its result. It goes on in its own calls alone.
///
/// All participants bring it to its end: whoever drops it before breaks the group.
pub struct SwitchBoxSearch {
    group: Group,
    stage: Stage,
    seat: Option<SeatId>,
    multicasts: Option<Multicasts>,
}

impl SwitchBoxSearch {
    /// Whether there is a box that counts from now on, if that is known; `None` while it is not. Makes progress.
    ///
    /// # Errors
    /// The group is broken, the result was given out already, or the NIC is broken.
    pub fn test(&mut self) -> Result<Option<bool>, CollectiveError> {
        self.go_on(Some(Duration::ZERO))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As [`SwitchBoxSearch::test`].
    pub fn wait(&mut self) -> Result<bool, CollectiveError> {
        self.go_on(None).map(|has_box| has_box == Some(true))
    }

    /// As [`SwitchBoxSearch::wait`], but no longer than `timeout`.
    ///
    /// # Errors
    /// As [`SwitchBoxSearch::test`]; [`CollectiveError::TimedOut`] when the time is over. The search goes on.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<bool, CollectiveError> {
        self.go_on(Some(timeout))?.ok_or(CollectiveError::TimedOut(timeout))
    }

    /// Goes on until the result is known, or the time is over.
    fn go_on(&mut self, timeout: Option<Duration>) -> Result<Option<bool>, CollectiveError> {
        if matches!(self.stage, Stage::Spent) {
            // Another search may be under way.
            return Err(CollectiveError::Spent);
        }
        let deadline = timeout.and_then(|timeout| self.shared().deadline(timeout)).unwrap_or(Instant::NEVER);
        let outcome = self.advance(deadline);
        if !matches!(outcome, Ok(None)) {
            self.end();
        }
        outcome
    }

    fn advance(&mut self, deadline: Instant) -> Result<Option<bool>, CollectiveError> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Settling(operation) => {
                    let Some(()) = operation.wait_until(deadline)? else { return Ok(None) };
                    self.group.state.borrow_mut().leave_box();
                    self.start(Group::tell_hosts)?
                }
                Stage::Telling(operation) => {
                    let Some(told) = operation.wait_until(deadline)? else { return Ok(None) };
                    self.join(&told)?
                }
                Stage::Joining(patience) => {
                    let patience = *patience;
                    match self.wait_for_seat(deadline.min(patience))? {
                        Seat::Joining if self.shared().now() < patience => return Ok(None),
                        seat => self.agree(seat)?,
                    }
                }
                Stage::Agreeing(operation) => {
                    let Some(have_all) = operation.wait_until(deadline)? else { return Ok(None) };
                    Stage::Over(self.take_seat(have_all == [1]))
                }
                Stage::Over(has_box) => return Ok(Some(*has_box)),
                Stage::Spent => return Err(CollectiveError::Spent),
            };
        }
    }

    /// All have told where they are, and the first with what to join.
    fn join(&mut self, told: &[u64]) -> Result<Stage, CollectiveError> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let hosts: Vec<u64> = told.chunks_exact(3).map(|of_one| of_one[0]).collect();
        // All send towards the first, and who is on its host towards the first that is not.
        let Some(away) = hosts.iter().position(|host| *host != hosts[0]) else {
            return Ok(Stage::Over(false));
        };
        let to = if hosts[rank] == hosts[0] { away } else { 0 };
        let joining = Joining { key: told[1], group: told[2], size: size as u16, member: rank as u16 };
        self.multicasts = Multicasts::between(&hosts, joining.key, joining.group.wrapping_add(1));
        let peer = self.group.state.borrow_mut().partner(to).map(|partner| partner.peer);
        let (shared, now) = (self.shared(), self.shared().now());
        self.seat = peer.and_then(|peer| shared.inner.borrow_mut().core.join_group(now, peer, joining));
        shared.transmit(now)?;
        Ok(Stage::Joining(now.plus(PATIENCE_NS)))
    }

    /// Waits until it is known whether there is a box here. Returns how it stands then, or when the time is over.
    fn wait_for_seat(&self, deadline: Instant) -> Result<Seat, CollectiveError> {
        let state = |core: &mut Core| self.seat.and_then(|seat| core.seat(seat)).map(Member::state);
        let settled = |core: &mut Core| match state(core) {
            Some(Seat::Joining) => None,
            state => Some(state.unwrap_or(Seat::Failed(Failure::NoBox))),
        };
        let settled = self.shared().wait_until(Some(deadline), settled)?;
        operation::progress(&self.group.state)?;
        Ok(settled.unwrap_or(Seat::Joining))
    }

    /// It is known here whether there is a box.
    fn agree(&mut self, seat: Seat) -> Result<Stage, CollectiveError> {
        if seat != Seat::Joined {
            let rank = self.group.rank();
            tracing::info!(
                rank,
                ?seat,
                "this participant has joined no switch box, and its group goes by messages"
            );
            self.leave();
        }
        let has_joined = [u64::from(seat == Seat::Joined)];
        self.start(|group| group.start_allreduce(&has_joined, &Reduction::min())).map(Stage::Agreeing)
    }

    /// Starts something in the group, where others can start nothing.
    fn start<T>(
        &self,
        start: impl FnOnce(&Group) -> Result<T, CollectiveError>,
    ) -> Result<T, CollectiveError> {
        self.group.state.borrow_mut().is_searching = false;
        let started = start(&self.group);
        self.group.state.borrow_mut().is_searching = true;
        started
    }

    /// If there is a box for all, it counts from now on.
    fn take_seat(&mut self, have_all: bool) -> bool {
        let Some(seat) = self.seat.take_if(|_| have_all) else { return false };
        let (rank, size) = (self.group.rank(), self.group.size());
        let mut state = self.group.state.borrow_mut();
        state.switch_box = Some(SwitchBox::new(seat));
        state.multicasts = self.multicasts.take();
        tracing::info!(rank, size, "a switch box counts for a group");
        true
    }

    /// The result is given out.
    fn end(&mut self) {
        self.stage = Stage::Spent;
        self.group.state.borrow_mut().is_searching = false;
        self.leave();
    }

    fn leave(&mut self) {
        if let Some(seat) = self.seat.take() {
            let shared = self.shared();
            shared.inner.borrow_mut().core.leave_group(seat);
            // If the NIC is broken, nobody can be told.
            let _ = shared.transmit(shared.now());
        }
    }

    fn shared(&self) -> Rc<Shared> {
        Rc::clone(&self.group.state.borrow().channel.shared)
    }
}

impl Drop for SwitchBoxSearch {
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Spent | Stage::Over(_)) {
            self.group.state.borrow_mut().abandon_search();
        }
        if !matches!(self.stage, Stage::Spent) {
            self.end();
        }
    }
}

impl fmt::Debug for SwitchBoxSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchBoxSearch").field("group", &self.group).finish_non_exhaustive()
    }
}
