//! Having a switch box count a group's operations, and doing without it.

use super::error::Broken;
use super::format::{Kind, Words};
use super::multicasts::{Multicasts, Route};
use super::state::State;
use tsumugi_proto::group::member::{Failure, Member, State as Seat};
use tsumugi_rail::RailError;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// How often others are asked what came of an operation that the box has forgotten, ns.
const ASK_NS: u64 = 20 * MILLISECOND_NS;

impl State {
    /// Goes on with what the box counts, as far as it has.
    pub(super) fn go_on_counting(&mut self) -> Result<(), RailError> {
        loop {
            let Some(sequence) = self.switch_box.as_ref().and_then(|by_box| by_box.now) else {
                if !self.count_next() {
                    return Ok(());
                }
                continue;
            };
            let Some((state, result)) = self.ask_box(|member| (member.state(), *member.result())) else {
                return Ok(());
            };
            match state {
                Seat::Joined => self.was_counted(sequence, result),
                Seat::Failed(Failure::Disagreement) => {
                    self.give_up(sequence, Broken::Disagreement { sequence });
                    return Ok(());
                }
                Seat::Failed(why) => return self.do_without(sequence, Some(why)),
                _ => {
                    self.ask_others(sequence);
                    return Ok(());
                }
            }
        }
    }

    /// What the seat says whose box counts an operation.
    fn ask_box<T>(&self, what: impl FnOnce(&Member) -> T) -> Option<T> {
        let core = &self.channel.shared.inner.borrow().core;
        self.switch_box.as_ref()?.member(core).map(what)
    }

    /// Has the box count the operation whose turn it is. `false`: there is none.
    fn count_next(&mut self) -> bool {
        let Some(switch_box) = &mut self.switch_box else { return false };
        let Some(next) = switch_box.waiting.pop_front() else { return false };
        let counting = self.running.get(&next).and_then(|running| running.counting.as_ref());
        if let (Some(counting), Some(seat)) = (counting, switch_box.seat) {
            let (operation, words, count) = counting.contribute(self.me);
            let now = self.channel.shared.now();
            (switch_box.now, switch_box.ask_at) = (Some(next), Instant(0));
            let core = &mut self.channel.shared.inner.borrow_mut().core;
            core.arrive(now, seat, operation, &words[..count]);
            self.has_said = true;
        }
        true
    }

    /// While the box does not say what came of an operation: asks the others, if it has forgotten, and finds out whether the one
    /// is gone for whom it waits.
    fn ask_others(&mut self, sequence: u64) {
        let now = self.channel.shared.now();
        let is_adrift = self.ask_box(Member::is_adrift) == Some(true);
        if let Some(switch_box) = self.switch_box.as_mut().filter(|by_box| is_adrift && now >= by_box.ask_at)
        {
            // Whoever has not left it yet does not answer, and may later.
            switch_box.ask_at = now.plus(ASK_NS);
            self.say_to_all(Kind::Asked, sequence);
        }
        let gone = self.awaited_by_box().and_then(|rank| {
            let partner = self.partners.get(rank)?.as_ref()?;
            Some(Broken::Gone { rank, failure: partner.gone.clone()? })
        });
        if let Some(broken) = gone {
            self.give_up(sequence, broken);
        }
    }

    /// The participant that an operation which is being counted waits for, as far as the box has said.
    pub(super) fn awaited_by_box(&self) -> Option<usize> {
        self.ask_box(Member::awaited)?.map(usize::from)
    }

    /// What came of the operation that the box counts is known.
    fn was_counted(&mut self, sequence: u64, words: Words) {
        if let Some(switch_box) = &mut self.switch_box {
            switch_box.now = None;
        }
        self.last_counted = Some((sequence, words));
        self.finish_counted(sequence, &words);
    }

    /// From an operation on the group goes on by messages.
    pub(super) fn do_without(&mut self, sequence: u64, why: Option<Failure>) -> Result<(), RailError> {
        let Some(switch_box) = &mut self.switch_box else { return Ok(()) };
        if switch_box.until == u64::MAX {
            let rank = self.me.rank;
            tracing::warn!(
                rank,
                sequence,
                ?why,
                "the switch box counts no more for a group: it goes on by messages"
            );
        }
        switch_box.until = switch_box.until.min(sequence);
        switch_box.stop(0);
        let seat = switch_box.seat.take();
        let counted = self.running.iter().filter(|(_, running)| running.execution.is_none());
        let counted: Vec<u64> = counted.map(|(sequence, _)| *sequence).collect();
        // Who has left it already says what came of it.
        if let Some(first) = counted.first() {
            self.say_to_all(Kind::DoWithout, *first);
        }
        if let Some(seat) = seat {
            self.channel.shared.inner.borrow_mut().core.leave_group(seat);
        }
        for sequence in counted {
            if let Some(running) = self.running.get_mut(&sequence)
                && let Some(counting) = &running.counting
            {
                running.execution = Some(counting.by_messages(self.me));
            }
            self.watch(sequence);
            self.go_on(sequence)?;
        }
        Ok(())
    }

    /// A participant does operations from this one on by messages.
    pub(super) fn on_do_without(&mut self, rank: usize, sequence: u64) -> Result<(), RailError> {
        self.tell_words(rank, sequence);
        match &self.switch_box {
            Some(switch_box) if switch_box.until > sequence => self.do_without(sequence, None),
            _ => Ok(()),
        }
    }

    /// Says what came of an operation that the box has counted, if that is known.
    pub(super) fn tell_words(&mut self, rank: usize, sequence: u64) {
        if let Some((_, words)) = self.last_counted.filter(|(last, _)| *last == sequence) {
            self.say(rank, Kind::Counted { words }, sequence);
        }
    }

    /// A participant says what came of an operation.
    pub(super) fn on_counted(&mut self, sequence: u64, words: Words) {
        let is_open = self.running.get(&sequence).is_some_and(|running| running.counting.is_some());
        let Some(switch_box) = self.switch_box.as_ref().filter(|_| is_open) else { return };
        if switch_box.now == Some(sequence)
            && let Some(seat) = switch_box.seat
        {
            if self.ask_box(|member| member.state() == Seat::Joined) == Some(true) {
                // It has just learned it from the box itself.
                return;
            }
            let now = self.channel.shared.now();
            self.channel.shared.inner.borrow_mut().core.learn(now, seat, words);
        }
        self.was_counted(sequence, words);
    }

    fn say_to_all(&mut self, kind: Kind, sequence: u64) {
        (0..self.me.size).for_each(|rank| self.say(rank, kind, sequence));
    }

    /// Gives the seat back, and leaves the groups in which members send to all.
    pub(super) fn leave_box(&mut self) {
        // What has told others that it goes to all goes on so.
        for running in self.running.values_mut() {
            if let Route::ToAll(id) = &mut running.route {
                *id = None;
            }
        }
        for id in self.multicasts.take().into_iter().flat_map(Multicasts::joined) {
            self.channel.shared.inner.borrow_mut().core.leave_multicast(id);
            self.has_said = true;
        }
        if let Some(seat) = self.switch_box.take().and_then(|switch_box| switch_box.seat) {
            self.channel.shared.inner.borrow_mut().core.leave_group(seat);
            self.has_said = true;
        }
    }
}
