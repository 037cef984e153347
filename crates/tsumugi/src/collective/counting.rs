//! Having a switch box count a group's operations, and doing without it.

use super::error::Broken;
use super::format::{Kind, Words};
use super::state::State;
use std::collections::VecDeque;
use tsumugi_proto::group::member::{Failure, State as Seat};
use tsumugi_rail::RailError;

impl State {
    /// Goes on with what the box counts, as far as it has.
    pub(super) fn go_on_counting(&mut self) -> Result<(), RailError> {
        loop {
            let Some(switch_box) = &mut self.switch_box else { return Ok(()) };
            let Some(sequence) = switch_box.now else {
                let Some(next) = switch_box.waiting.pop_front() else { return Ok(()) };
                switch_box.now = Some(next);
                let seat = switch_box.seat;
                let Some(counting) = self.running.get(&next).and_then(|running| running.counting.as_ref())
                else {
                    switch_box.now = None;
                    continue;
                };
                let (operation, words, count) = counting.contribute(self.me);
                let now = self.channel.shared.now();
                let core = &mut self.channel.shared.inner.borrow_mut().core;
                core.arrive(now, seat, operation, &words[..count]);
                self.has_said = true;
                return Ok(());
            };
            let seat = switch_box.seat;
            let (state, result, is_adrift, awaited) = {
                let core = &self.channel.shared.inner.borrow().core;
                let Some(member) = core.seat(seat) else { return Ok(()) };
                (member.state(), *member.result(), member.is_adrift(), member.awaited())
            };
            match state {
                Seat::Joined => self.was_counted(sequence, result),
                Seat::Failed(Failure::Disagreement) => {
                    self.give_up(sequence, Broken::Disagreement { sequence });
                    return Ok(());
                }
                Seat::Failed(why) => return self.do_without(sequence, Some(why)),
                _ if is_adrift && switch_box.asked != Some(sequence) => {
                    switch_box.asked = Some(sequence);
                    self.say_to_all(Kind::Asked, sequence);
                    return Ok(());
                }
                _ => {
                    let awaited = awaited.map(usize::from);
                    let gone = awaited.and_then(|rank| {
                        let partner = self.partners.get(rank)?.as_ref()?;
                        Some(Broken::Gone { rank, failure: partner.gone.clone()? })
                    });
                    if let Some(broken) = gone {
                        self.give_up(sequence, broken);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The participant that an operation which is being counted waits for, as far as the box has said.
    pub(super) fn awaited_by_box(&self) -> Option<usize> {
        let seat = self.switch_box.as_ref()?.seat;
        let core = &self.channel.shared.inner.borrow().core;
        core.seat(seat)?.awaited().map(usize::from)
    }

    /// What came of the operation that the box counts is known.
    fn was_counted(&mut self, sequence: u64, words: Words) {
        if let Some(switch_box) = &mut self.switch_box {
            switch_box.now = None;
            switch_box.last = Some((sequence, words));
        }
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
        (switch_box.now, switch_box.waiting) = (None, VecDeque::new());
        let seat = switch_box.seat;
        let counted = self.running.iter().filter(|(_, running)| running.execution.is_none());
        let counted: Vec<u64> = counted.map(|(sequence, _)| *sequence).collect();
        // Who has left it already says what came of it.
        if let Some(first) = counted.first() {
            self.say_to_all(Kind::DoWithout, *first);
        }
        self.channel.shared.inner.borrow_mut().core.leave_group(seat);
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
        let last = self.switch_box.as_ref().and_then(|switch_box| switch_box.last);
        if let Some((_, words)) = last.filter(|(last, _)| *last == sequence) {
            self.say(rank, Kind::Counted { words }, sequence);
        }
    }

    /// A participant says what came of an operation.
    pub(super) fn on_counted(&mut self, sequence: u64, words: Words) {
        let is_open = self.running.get(&sequence).is_some_and(|running| running.counting.is_some());
        let Some(switch_box) = self.switch_box.as_mut().filter(|_| is_open) else { return };
        if switch_box.now == Some(sequence) {
            let (seat, now) = (switch_box.seat, self.channel.shared.now());
            let core = &mut self.channel.shared.inner.borrow_mut().core;
            if !core.seat(seat).is_some_and(|seat| seat.is_adrift()) {
                // It has just learned it from the box itself.
                return;
            }
            core.learn(now, seat, words);
        }
        self.was_counted(sequence, words);
    }

    fn say_to_all(&mut self, kind: Kind, sequence: u64) {
        (0..self.me.size).for_each(|rank| self.say(rank, kind, sequence));
    }

    /// Gives the seat back.
    pub(super) fn leave_box(&mut self) {
        if let Some(switch_box) = self.switch_box.take() {
            self.channel.shared.inner.borrow_mut().core.leave_group(switch_box.seat);
            self.has_said = true;
        }
    }
}
