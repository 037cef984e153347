//! What a group knows: its participants and its operations, from start to end. [`super::arrivals`] is what arrives,
//! [`super::departures`] what is sent.

use super::algorithms::flat_broadcast;
use super::call::{Call, Collective};
use super::choose::{Shape, Way, choose};
use super::error::{Broken, CollectiveError};
use super::execution::Execution;
use super::format::{Kind, Part, Why, Words};
use super::multicasts::{Multicasts, Route};
use super::partner::{Partner, cost};
use super::reduction::Combine;
use super::schedule::Position;
use super::switch_box::{Counting, SwitchBox};
use crate::PeerId;
use crate::channel::Channel;
use crate::endpoint::core::Core;
use crate::error::{Failure, Reason, SendError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use tsumugi_rail::RailError;

/// Operations of which it is known what they were after they are over.
const HISTORY: usize = 64;

/// An operation's result: a buffer, and where in it the result is, if this participant has one.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) buffer: Vec<u8>,
    pub(super) range: Option<Range<usize>>,
}

/// An operation that was started and is not over.
pub(super) struct Running {
    pub(super) call: Call,
    /// How it goes by messages; `None`: a box counts it.
    pub(super) execution: Option<Execution>,
    /// How a box counts it, or would have.
    pub(super) counting: Option<Counting>,
    pub(super) route: Route,
    /// Peers that are asked for signs of life while it lasts, and in which connections.
    expects: Vec<(PeerId, u32)>,
    /// Nobody will ask for its result.
    is_orphan: bool,
}

impl Running {
    /// Whether a message is still to come from a participant, or may be.
    pub(super) fn awaits(&self, rank: usize) -> bool {
        self.execution.as_ref().is_some_and(|execution| execution.awaits(rank))
            || self.route == Route::Open { root: rank }
    }

    /// Whether it cannot be completed without a participant that is gone. One that has left in good order had done its part: if the root
    /// sends to everybody, that was to get the data from it.
    pub(super) fn needs(&self, rank: usize, failure: &Failure) -> bool {
        if matches!(self.route, Route::Open { .. }) && failure.reason == Reason::Closed {
            return false;
        }
        self.awaits(rank) || self.execution.as_ref().is_some_and(|execution| execution.serves(rank))
    }

    /// It is known now whether the root sends the data to everybody.
    pub(super) fn settle_route(&mut self, is_to_all: bool, me: Position) {
        let Route::Open { root } = self.route else { return };
        self.route = Route::Schedule;
        if is_to_all {
            let schedule = flat_broadcast(me, root, self.call.bytes as usize);
            self.execution = Some(Execution::begin(schedule, |_| {}, None));
            self.route = Route::ToAll(None);
        }
    }

    /// The participants from whom something is still to come, or may be.
    fn awaited(&self) -> Vec<usize> {
        let root = if let Route::Open { root } = self.route { Some(root) } else { None };
        self.execution.iter().flat_map(Execution::awaited).chain(root).collect()
    }
}

/// Data for an operation that was not started.
pub(super) struct Kept {
    pub(super) rank: usize,
    pub(super) part: Part,
    pub(super) data: Vec<u8>,
}

/// A participant wants to know when an operation is started.
pub(super) struct Want {
    pub(super) sequence: u64,
    pub(super) call: Call,
    /// To be repeated; 0: it only says what it waits for.
    pub(super) token: u64,
}

pub(super) struct State {
    pub(super) channel: Channel,
    pub(super) me: Position,
    /// By rank; `None` for this participant.
    pub(super) partners: Vec<Option<Partner>>,
    /// Ranks by the numbers that their peers go by.
    pub(super) ranks: BTreeMap<PeerId, usize>,
    /// How many merges of peers have been followed.
    pub(super) followed: usize,
    /// How many operations were started; the next one's number.
    pub(super) started: u64,
    pub(super) running: BTreeMap<u64, Running>,
    /// Results that nobody has asked for yet.
    done: BTreeMap<u64, Result<Output, Broken>>,
    /// What the last operations were, the last one first.
    history: VecDeque<Call>,
    /// By operation.
    pub(super) kept: BTreeMap<u64, Vec<Kept>>,
    /// By rank, and whether it is one of those that only say what they wait for.
    pub(super) wants: BTreeMap<(usize, bool), Want>,
    /// Operations that have something to send and may not yet.
    pub(super) blocked: BTreeSet<u64>,
    /// Participants to whom the queue is full, and how long the next message to them is, bytes.
    pub(super) stalled: BTreeMap<usize, u64>,
    /// Tells answers to our questions from those to questions of a group that had the channel before.
    pub(super) token: u64,
    /// Something was accepted that should leave.
    pub(super) has_said: bool,
    /// The box that counts for the group, or has.
    pub(super) switch_box: Option<SwitchBox>,
    /// What makes broadcasts leave their root once, if the box does.
    pub(super) multicasts: Option<Multicasts>,
    /// A box is being looked for, and nothing else may be started.
    pub(super) is_searching: bool,
    /// The last operation that a box has counted, and what came of it.
    pub(super) last_counted: Option<(u64, Words)>,
    /// Operations from this one on are not done, and why.
    pub(super) broken: Option<(u64, Broken)>,
}

impl State {
    pub(super) fn new(channel: Channel, me: Position, peers: &[Option<PeerId>], piece_bytes: usize) -> State {
        let token = u64::from(channel.shared.inner.borrow_mut().core.random_number()) + 1;
        let partner = |peer: &Option<PeerId>| peer.map(|peer| Partner::new(peer, piece_bytes));
        let mut state = State {
            channel,
            me,
            partners: peers.iter().map(partner).collect(),
            ranks: BTreeMap::new(),
            followed: 0,
            started: 0,
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            history: VecDeque::new(),
            kept: BTreeMap::new(),
            wants: BTreeMap::new(),
            blocked: BTreeSet::new(),
            stalled: BTreeMap::new(),
            token,
            has_said: false,
            switch_box: None,
            multicasts: None,
            is_searching: false,
            last_counted: None,
            broken: None,
        };
        state.name_ranks();
        state
    }

    /// Finds the ranks of peers by the numbers that they go by now.
    pub(super) fn name_ranks(&mut self) {
        let core = &self.channel.shared.inner.borrow().core;
        self.followed = core.merges().len();
        let named = |(rank, partner): (usize, &Option<Partner>)| {
            partner.as_ref().map(|partner| (core.canonical(partner.peer), rank))
        };
        self.ranks = self.partners.iter().enumerate().filter_map(named).collect();
    }

    pub(super) fn partner(&mut self, rank: usize) -> Option<&mut Partner> {
        self.partners.get_mut(rank)?.as_mut()
    }

    /// Starts an operation, and returns its number. `fill` writes this participant's data.
    pub(super) fn start(
        &mut self,
        call: Call,
        shape: &Shape,
        combine: Option<Combine>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, CollectiveError> {
        self.take_in()?;
        let sequence = self.started;
        if let Some((_, broken)) = self.broken.as_ref().filter(|(from, _)| *from <= sequence) {
            return Err(broken.clone().into());
        }
        let by_box = self.switch_box.as_ref();
        let counted = by_box.and_then(|by_box| by_box.counts(sequence, &call, self.me.size));
        let route = self.route_of(shape);
        let (execution, counting) = if let Some(counted) = counted {
            let mut data = vec![0; call.bytes as usize];
            fill(&mut data);
            (None, Some(Counting::new(counted, shape, combine, data)))
        } else {
            let schedule = match (shape, route) {
                (&Shape::Broadcast { root, bytes }, Route::ToAll(_)) => flat_broadcast(self.me, root, bytes),
                _ => {
                    let Way::Messages(schedule) = choose(shape, self.me);
                    schedule
                }
            };
            (Some(Execution::begin(schedule, fill, combine)), None)
        };
        self.started += 1;
        self.history.truncate(HISTORY - 1);
        self.history.push_front(call);
        let running = Running { call, execution, counting, route, expects: Vec::new(), is_orphan: false };
        if let (None, Some(switch_box)) = (&running.execution, &mut self.switch_box) {
            switch_box.waiting.push_back(sequence);
        }
        self.running.insert(sequence, running);
        for Kept { rank, part, data } in self.kept.remove(&sequence).unwrap_or_default() {
            if let Some(partner) = self.partner(rank) {
                partner.kept_bytes -= cost(data.len());
            }
            self.on_data(rank, sequence, part, &data)?;
        }
        self.answer_wants();
        self.watch(sequence);
        self.go_on(sequence)?;
        self.go_on_counting()?;
        self.leave()?;
        Ok(sequence)
    }

    /// Which way the data of an operation go.
    fn route_of(&mut self, shape: &Shape) -> Route {
        let (&Shape::Broadcast { root, .. }, Some(multicasts)) = (shape, &mut self.multicasts) else {
            return Route::Schedule;
        };
        let shared = &self.channel.shared;
        let now = shared.now();
        let peer_of = |rank: usize| self.partners.get(rank)?.as_ref().map(|partner| partner.peer);
        multicasts.route((&mut shared.inner.borrow_mut().core, now), (root, self.me), peer_of)
    }

    /// Has the peers that an operation waits for asked for signs of life, and finds those that are gone already.
    pub(super) fn watch(&mut self, sequence: u64) {
        if let Some((rank, failure)) = self.expect(sequence) {
            self.give_up(sequence, Broken::Gone { rank, failure });
        }
    }

    /// The same; returns one that is gone.
    fn expect(&mut self, sequence: u64) -> Option<(usize, Box<Failure>)> {
        let running = self.running.get_mut(&sequence).filter(|running| running.execution.is_some())?;
        if let Route::Open { root } = running.route
            && let Some(Some(Partner { gone: Some(failure), .. })) = self.partners.get(root)
            && failure.reason == Reason::Closed
        {
            // What it had to send to everybody would have come before that.
            running.settle_route(false, self.me);
        }
        let now = self.channel.shared.now();
        let core = &mut self.channel.shared.inner.borrow_mut().core;
        for (rank, partner) in self.partners.iter().enumerate() {
            let Some(partner) = partner else { continue };
            let awaits = running.awaits(rank);
            let look = || match core.may_post(partner.peer, 0) {
                Err(SendError::Peer(failure)) if awaits => Some(failure),
                _ => None,
            };
            match partner.gone.clone().or_else(look) {
                Some(failure) if running.needs(rank, &failure) => return Some((rank, failure)),
                None if awaits => {
                    core.expect(now, partner.peer);
                    let its = (core.canonical(partner.peer), core.connection(partner.peer));
                    running.expects.push(its);
                }
                _ => {}
            }
        }
        None
    }

    /// Has a peer asked for signs of life that an operation which a box counts waits for.
    fn expect_of(&mut self, sequence: u64, rank: usize) {
        let Some(running) = self.running.get_mut(&sequence).filter(|running| running.execution.is_none())
        else {
            return;
        };
        let Some(partner) = self.partners.get(rank).and_then(Option::as_ref) else { return };
        let now = self.channel.shared.now();
        let core = &mut self.channel.shared.inner.borrow_mut().core;
        let peer = core.canonical(partner.peer);
        if !running.expects.iter().any(|(other, _)| *other == peer) {
            core.expect(now, partner.peer);
            running.expects.push((peer, core.connection(partner.peer)));
        }
    }

    /// What an operation was that has been started, if that is not too long ago.
    pub(super) fn call(&self, sequence: u64) -> Option<Call> {
        let back = self.started.checked_sub(sequence + 1)?;
        self.history.get(usize::try_from(back).ok()?).copied()
    }

    /// An operation is complete that went by messages.
    pub(super) fn finish(&mut self, sequence: u64) {
        self.finish_with(sequence, |running, _| {
            let (buffer, range) = running.execution.map(Execution::finish).unwrap_or_default();
            Output { buffer, range }
        });
    }

    /// An operation is complete that a box has counted.
    pub(super) fn finish_counted(&mut self, sequence: u64, words: &Words) {
        self.finish_with(sequence, |running, me| {
            let buffer = running.counting.map(|counting| counting.result(me, words)).unwrap_or_default();
            Output { range: Some(0..buffer.len()), buffer }
        });
    }

    fn finish_with(&mut self, sequence: u64, output: impl FnOnce(Running, Position) -> Output) {
        let Some(running) = self.end(sequence) else { return };
        if is_synchronizing(&running.call, self.me) {
            for partner in self.partners.iter_mut().flatten() {
                partner.learn(sequence + 1);
            }
        }
        if !running.is_orphan {
            self.done.insert(sequence, Ok(output(running, self.me)));
        }
    }

    /// Takes an operation out of those that are running.
    fn end(&mut self, sequence: u64) -> Option<Running> {
        let running = self.running.remove(&sequence)?;
        self.blocked.remove(&sequence);
        let core = &mut self.channel.shared.inner.borrow_mut().core;
        for (peer, connection) in &running.expects {
            core.expect_no_more(*peer, *connection);
        }
        Some(running)
    }

    /// Does none of the operations from this one on any more, and tells those with whom there is a connection. Others are told when
    /// they say something, which who waits for us does: to look for them now would be to wait for those that have ended.
    pub(super) fn give_up(&mut self, sequence: u64, broken: Broken) {
        if self.broken.as_ref().is_some_and(|(from, _)| *from <= sequence) {
            return;
        }
        let lost: Vec<u64> = self.running.range(sequence..).map(|(number, _)| *number).collect();
        for number in lost {
            if self.end(number).is_some_and(|running| !running.is_orphan) {
                self.done.insert(number, Err(broken.clone()));
            }
        }
        for kept in self.kept.split_off(&sequence).into_values().flatten() {
            if let Some(partner) = self.partner(kept.rank) {
                partner.kept_bytes -= cost(kept.data.len());
            }
        }
        if let Some(switch_box) = &mut self.switch_box {
            switch_box.stop(sequence);
        }
        self.broken = Some((sequence, broken));
        for rank in 0..self.me.size {
            let is_connected =
                |partner: &Partner| self.channel.shared.inner.borrow().core.is_connected(partner.peer);
            if self.partners[rank].as_ref().is_some_and(is_connected) {
                self.tell(rank);
            }
        }
    }

    /// A search for a box was dropped before it was over.
    pub(super) fn abandon_search(&mut self) {
        self.give_up(self.started, Broken::SearchDropped { sequence: self.started });
        // There is nobody to tell that the NIC is broken.
        let _ = self.leave();
    }

    /// Tells a participant which operations are not done any more, unless it knows.
    pub(super) fn tell(&mut self, rank: usize) {
        let Some((sequence, broken)) = &self.broken else { return };
        let (sequence, kind) = (
            *sequence,
            Kind::Abort { why: broken.why(), rank: broken.rank().unwrap_or(self.me.rank) as u32 },
        );
        if let Some(partner) = self.partner(rank)
            && partner.told.is_none_or(|told| told > sequence)
        {
            partner.told = Some(sequence);
            self.say(rank, kind, sequence);
        }
    }

    /// What has become of an operation, which is forgotten with that; `None` when it goes on, and an error when there is none.
    pub(super) fn outcome(&mut self, sequence: u64) -> Result<Option<Output>, CollectiveError> {
        match self.done.remove(&sequence) {
            Some(outcome) => Ok(Some(outcome?)),
            None if self.running.contains_key(&sequence) => Ok(None),
            None => Err(CollectiveError::Spent),
        }
    }

    /// Nobody will ask what became of an operation. It goes on, for others need it.
    pub(super) fn let_go(&mut self, sequence: u64) {
        self.done.remove(&sequence);
        if let Some(running) = self.running.get_mut(&sequence) {
            running.is_orphan = true;
        }
    }

    /// Whether there is something to do.
    pub(super) fn has_news(&self, core: &Core) -> bool {
        let has_room = |(rank, bytes): (&usize, &u64)| {
            let partner = self.partners.get(*rank).and_then(Option::as_ref);
            partner.is_some_and(|partner| {
                !matches!(core.may_post(partner.peer, *bytes), Err(SendError::WouldBlock))
            })
        };
        core.has_arrived(self.channel.number())
            || self
                .switch_box
                .as_ref()
                .is_some_and(|by_box| by_box.has_news(core, || self.channel.shared.now()))
            || self.stalled.iter().any(has_room)
    }

    /// Tells those whom the oldest operation waits for what it is, so that one that does something else, or is not there,
    /// is noticed though it says nothing. Of those that have been heard nothing is asked unless it is `all`.
    pub(super) fn inquire(&mut self, all: bool) -> Result<(), RailError> {
        let Some((&sequence, running)) = self.running.first_key_value() else { return Ok(()) };
        let call = running.call;
        let awaited = match &running.execution {
            Some(_) => running.awaited(),
            None => self.awaited_by_box().into_iter().collect(),
        };
        for rank in awaited {
            self.expect_of(sequence, rank);
            if let Some(partner) = self.partner(rank)
                && (all || !partner.is_heard)
                && partner.inquire(sequence)
            {
                self.say(rank, Kind::Ask { call, token: 0 }, sequence);
            }
        }
        self.leave()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The others would wait for us.
        if self.broken.is_none()
            && !(self.running.is_empty() && self.kept.is_empty() && self.wants.is_empty())
        {
            let sequence = self.running.keys().next().map_or(self.started, |first| *first);
            for rank in 0..self.me.size {
                self.say(rank, Kind::Abort { why: Why::Left, rank: self.me.rank as u32 }, sequence);
            }
            // There is nobody to tell that the NIC is broken.
            let _ = self.leave();
        }
        let running: Vec<u64> = self.running.keys().copied().collect();
        for sequence in running {
            self.end(sequence);
        }
        self.leave_box();
        let _ = self.leave();
    }
}

/// Whether everybody has started an operation when it is over here.
fn is_synchronizing(call: &Call, me: Position) -> bool {
    match call.operation {
        Collective::Barrier
        | Collective::Allreduce
        | Collective::Allgather
        | Collective::Allgatherv
        | Collective::AllToAll
        | Collective::AllToAllv => true,
        Collective::Reduce | Collective::Gather | Collective::Gatherv => call.root == Some(me.rank as u32),
        Collective::Broadcast | Collective::Scatter | Collective::Scatterv => false,
    }
}
