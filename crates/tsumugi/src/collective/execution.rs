//! A schedule that is being carried out: which round it is in, what is still to be sent, what is still to come. Without any
//! network: what is to be sent is asked for, and what has arrived is told.

use super::reduction::Combine;
use super::schedule::{Schedule, Step, Transfer};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A transfer that was begun, and how many bytes of it are done.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) rank: usize,
    pub(super) range: Range<usize>,
    pub(super) done: usize,
}

/// A receive, and the round that it belongs to.
#[derive(Debug)]
struct Receive {
    round: usize,
    range: Range<usize>,
    done: usize,
}

/// A message does not fit the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Nothing more comes from this participant.
    Unexpected,
    /// What is transferred next has another length.
    Length { expected: u64, found: u64 },
    /// A part of a transfer that is not the next.
    Disorder,
}

pub(super) struct Execution {
    schedule: Schedule,
    buffer: Vec<u8>,
    combine: Option<Combine>,
    /// The round that is being done.
    round: usize,
    sends: VecDeque<Pending>,
    /// By rank, in the order in which they arrive.
    receives: BTreeMap<usize, VecDeque<Receive>>,
    /// How many receives of each round have not arrived.
    missing: Vec<usize>,
}

impl Execution {
    /// Begins a schedule; `fill` writes the participant's own data, which fit it, to where they are to be.
    pub(super) fn begin(
        schedule: Schedule,
        fill: impl FnOnce(&mut [u8]),
        combine: Option<Combine>,
    ) -> Execution {
        let mut buffer = vec![0; schedule.bytes];
        fill(&mut buffer[schedule.input..]);
        let mut receives: BTreeMap<usize, VecDeque<Receive>> = BTreeMap::new();
        for (round, what) in schedule.rounds.iter().enumerate() {
            for Transfer { rank, range } in &what.receives {
                let receive = Receive { round, range: range.clone(), done: 0 };
                receives.entry(*rank).or_default().push_back(receive);
            }
        }
        let missing = schedule.rounds.iter().map(|round| round.receives.len()).collect();
        let mut execution =
            Execution { schedule, buffer, combine, round: 0, sends: VecDeque::new(), receives, missing };
        execution.queue_sends();
        execution.advance();
        execution
    }

    /// Whether everything has been sent and has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.round == self.schedule.rounds.len()
    }

    /// What is to be sent now. What goes to the same participant is to be sent in this order.
    pub(super) fn sends(&self) -> &VecDeque<Pending> {
        &self.sends
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// So many bytes more of the send at `at` have been sent; the send is done when all have.
    pub(super) fn on_sent(&mut self, at: usize, bytes: usize) {
        let Some(send) = self.sends.get_mut(at) else { return };
        send.done += bytes;
        if send.done >= send.range.len() {
            self.sends.remove(at);
        }
    }

    /// So many bytes more of all sends have been sent, which are of the same.
    pub(super) fn on_sent_to_all(&mut self, bytes: usize) {
        self.sends.iter_mut().for_each(|send| send.done += bytes);
        self.sends.retain(|send| send.done < send.range.len());
    }

    /// Bytes `at` and following have arrived from a participant, of a transfer of `whole` bytes.
    pub(super) fn on_arrived(&mut self, rank: usize, whole: u64, at: u64, data: &[u8]) -> Result<(), Misfit> {
        let Some(queue) = self.receives.get_mut(&rank) else { return Err(Misfit::Unexpected) };
        let Some(receive) = queue.front_mut() else { return Err(Misfit::Unexpected) };
        let expected = receive.range.len();
        if whole != expected as u64 {
            return Err(Misfit::Length { expected: expected as u64, found: whole });
        }
        if at != receive.done as u64
            || data.len() > expected - receive.done
            || data.is_empty() && expected > 0
        {
            return Err(Misfit::Disorder);
        }
        let start = receive.range.start + receive.done;
        self.buffer[start..start + data.len()].copy_from_slice(data);
        receive.done += data.len();
        if receive.done == expected {
            self.missing[receive.round] -= 1;
            queue.pop_front();
            if queue.is_empty() {
                self.receives.remove(&rank);
            }
        }
        Ok(())
    }

    /// Goes on with the next rounds as far as nothing of them is missing.
    pub(super) fn advance(&mut self) {
        while self.sends.is_empty() && self.missing.get(self.round) == Some(&0) {
            for step in &self.schedule.rounds[self.round].steps {
                take(&mut self.buffer, self.combine.as_ref(), step);
            }
            self.round += 1;
            self.queue_sends();
        }
    }

    fn queue_sends(&mut self) {
        if let Some(round) = self.schedule.rounds.get(self.round) {
            let pending = |send: &Transfer| Pending { rank: send.rank, range: send.range.clone(), done: 0 };
            self.sends.extend(round.sends.iter().map(pending));
        }
    }

    /// The participants from whom something is still to come.
    pub(super) fn awaited(&self) -> impl Iterator<Item = usize> + '_ {
        self.receives.keys().copied()
    }

    /// Whether something is still to come from a participant.
    pub(super) fn awaits(&self, rank: usize) -> bool {
        self.receives.contains_key(&rank)
    }

    /// Whether something is still to be sent to a participant, now or in a later round.
    pub(super) fn serves(&self, rank: usize) -> bool {
        let later = self.schedule.rounds.iter().skip(self.round + 1).flat_map(|round| &round.sends);
        self.sends.iter().any(|send| send.rank == rank) || later.into_iter().any(|send| send.rank == rank)
    }

    /// The buffer, and where in it the result is.
    pub(super) fn finish(self) -> (Vec<u8>, Option<Range<usize>>) {
        (self.buffer, self.schedule.output)
    }
}

fn take(buffer: &mut [u8], combine: Option<&Combine>, step: &Step) {
    match step {
        Step::Copy { from, to } => buffer.copy_within(from.clone(), *to),
        Step::Combine { own, arrived, order } => {
            // What arrives to be combined is allocated behind what it is combined with.
            let (front, back) = buffer.split_at_mut(*arrived);
            let (own, arrived) = (&mut front[own.clone()], &back[..own.len()]);
            if let Some(combine) = combine {
                combine(own, arrived, *order);
            }
        }
    }
}
