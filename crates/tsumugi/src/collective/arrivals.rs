//! What arrives at a group.

use super::call::Call;
use super::error::Broken;
use super::execution::Misfit;
use super::format::{Header, Kind, Part};
use super::multicasts::Route;
use super::partner::{AHEAD_BYTES, cost};
use super::state::{Kept, Running, State, Want};
use crate::channel::Message;
use crate::error::{Failure, Reason, ReceiveError};
use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::RailError;
use tsumugi_wire::memory::Counter;

impl State {
    /// Takes in what has arrived, and goes on with the operations that it is for.
    pub(super) fn take_in(&mut self) -> Result<(), RailError> {
        if self.channel.shared.inner.borrow().core.merges().len() > self.followed {
            self.name_ranks();
        }
        while let Some(delivery) = self.channel.take() {
            match delivery {
                Ok(message) => self.on_message(&message)?,
                Err(ReceiveError::Peer(failure)) => self.on_failure(failure),
                Err(ReceiveError::Rail(error)) => return Err(error),
                Err(_) => {}
            }
        }
        self.go_on_blocked()?;
        self.go_on_counting()?;
        self.leave()
    }

    fn on_message(&mut self, message: &Message) -> Result<(), RailError> {
        let source = self.channel.shared.inner.borrow().core.canonical(message.source());
        let (Some(&rank), Some((header, data))) = (self.ranks.get(&source), Header::decode(message)) else {
            self.violated();
            return Ok(());
        };
        let Header { kind, rank: said_rank, size: said_size, sequence, started } = header;
        if (said_rank as usize, said_size as usize) != (rank, self.me.size) {
            self.give_up(0, Broken::OtherGroup { rank, size: self.me.size, said_rank, said_size });
            return Ok(());
        }
        if let Some(partner) = self.partner(rank) {
            partner.is_heard = true;
        }
        match kind {
            Kind::Data(part) => {
                self.learn(rank, started);
                return self.on_data(rank, sequence, part, data);
            }
            Kind::Ask { .. } if self.broken.as_ref().is_some_and(|(from, _)| *from <= sequence) => {
                self.tell(rank)
            }
            Kind::Ask { call, token } => {
                self.learn(rank, started);
                self.wants.insert((rank, token == 0), Want { sequence, call, token });
                self.answer_wants();
            }
            Kind::DoWithout | Kind::Asked | Kind::Counted { .. }
                if self.broken.as_ref().is_some_and(|(from, _)| *from <= sequence) =>
            {
                self.tell(rank)
            }
            Kind::DoWithout => return self.on_do_without(rank, sequence),
            Kind::Asked => self.tell_words(rank, sequence),
            Kind::Counted { words } => self.on_counted(sequence, words),
            Kind::Started { token } if token == self.token => self.learn(rank, started),
            Kind::Started { .. } => {}
            Kind::Abort { why, rank: blamed } if (blamed as usize) < self.me.size => {
                self.give_up(sequence, Broken::Told { by: rank, sequence, rank: blamed as usize, why });
            }
            Kind::Abort { .. } => self.violated(),
        }
        Ok(())
    }

    fn learn(&mut self, rank: usize, started: u64) {
        if let Some(partner) = self.partner(rank) {
            partner.learn(started);
        }
    }

    /// Data of an operation.
    pub(super) fn on_data(
        &mut self,
        rank: usize,
        sequence: u64,
        part: Part,
        data: &[u8],
    ) -> Result<(), RailError> {
        if self.broken.as_ref().is_some_and(|(from, _)| *from <= sequence) {
            self.tell(rank);
            return Ok(());
        }
        if sequence >= self.started {
            self.keep(sequence, Kept { rank, part, data: data.to_vec() });
            return Ok(());
        }
        let Part { call, whole, at, is_to_all } = part;
        if !self.agrees(rank, sequence, call) {
            return Ok(());
        }
        if self.running.get(&sequence).is_some_and(|running| running.execution.is_none()) {
            // It does without the box, and has not said so yet, for it was not in the operation when it heard it.
            self.do_without(sequence, None)?;
        }
        let me = self.me;
        let mut running = self.running.get_mut(&sequence);
        if let Some(running) = &mut running
            && let Route::Open { root } = running.route
        {
            running.settle_route(is_to_all && rank == root, me);
        }
        let outcome = match running {
            Some(running) if is_to_all != (running.route == Route::ToAll(None)) => Err(Misfit::Unexpected),
            Some(Running { execution: Some(execution), .. }) => execution.on_arrived(rank, whole, at, data),
            // Of one who had to do without the box.
            _ if self.last_counted.is_some_and(|(last, _)| last == sequence) => return Ok(()),
            _ => Err(Misfit::Unexpected),
        };
        match outcome {
            Ok(()) => return self.go_on(sequence),
            Err(Misfit::Length { expected, found }) => {
                self.give_up(sequence, Broken::Length { rank, sequence, call, expected, found });
            }
            Err(Misfit::Unexpected | Misfit::Disorder) => {
                self.give_up(sequence, Broken::Unexpected { rank, sequence });
            }
        }
        Ok(())
    }

    /// Whether a participant has started the same as we have under this number; if not, everything ends.
    fn agrees(&mut self, rank: usize, sequence: u64, found: Call) -> bool {
        match self.call(sequence) {
            Some(expected) if expected != found => {
                self.give_up(sequence, Broken::Mismatch { rank, sequence, expected, found });
                false
            }
            _ => true,
        }
    }

    /// Keeps data for an operation that was not started; see [`super::partner`] for how much.
    fn keep(&mut self, sequence: u64, kept: Kept) {
        let bytes = cost(kept.data.len());
        match self.partner(kept.rank) {
            Some(partner) if partner.kept_bytes + bytes <= AHEAD_BYTES => {
                partner.kept_bytes += bytes;
                self.kept.entry(sequence).or_default().push(kept);
            }
            _ => self.violated(),
        }
    }

    /// Tells those who want to know that an operation was started, and finds those that have started another.
    pub(super) fn answer_wants(&mut self) {
        if self.wants.is_empty() {
            return;
        }
        let started = self.started;
        let is_answered = |(key, want): (&(usize, bool), &Want)| (want.sequence < started).then_some(*key);
        let answered: Vec<(usize, bool)> = self.wants.iter().filter_map(is_answered).collect();
        for key in answered {
            let Some(Want { sequence, call, token }) = self.wants.remove(&key) else { continue };
            let rank = key.0;
            if self.agrees(rank, sequence, call) && token != 0 {
                self.say(rank, Kind::Started { token }, sequence);
            }
        }
    }

    /// A peer is gone. Of one that left in good order it matters only if something is still to come from it or to go to it.
    fn on_failure(&mut self, failure: Box<Failure>) {
        let peer = self.channel.shared.inner.borrow().core.canonical(failure.peer);
        let Some(&rank) = self.ranks.get(&peer) else { return };
        let has_closed = failure.reason == Reason::Closed;
        if let Some(partner) = self.partner(rank) {
            partner.gone = Some(failure.clone());
        }
        if has_closed {
            self.on_root_closed(rank);
        }
        let needs = |(_, running): &(&u64, &Running)| running.needs(rank, &failure);
        let first = self.running.iter().find(needs).map(|(sequence, _)| *sequence);
        match first {
            Some(sequence) => self.give_up(sequence, Broken::Gone { rank, failure }),
            None if has_closed => {}
            None => self.give_up(self.started, Broken::Gone { rank, failure }),
        }
    }

    /// A participant has left in good order: what it had to send to everybody has come.
    fn on_root_closed(&mut self, rank: usize) {
        let is_open = |(sequence, running): (&u64, &Running)| {
            (running.route == Route::Open { root: rank }).then_some(*sequence)
        };
        let open: Vec<u64> = self.running.iter().filter_map(is_open).collect();
        for sequence in open {
            self.watch(sequence);
        }
    }

    /// Counts something that no peer that keeps to the protocol sends.
    fn violated(&self) {
        self.channel.shared.memory.count(Counter::Violation, 1);
    }
}
