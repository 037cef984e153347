//! One of the processes that are a group.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use thiserror::Error;
use tsumugi::collective::{CollectiveError, Group, Reduction};
use tsumugi::{Channel, PeerId, ReceiveError, SendError};

use super::process::Process;
use super::task::{By, Task, Timing, What};
use crate::cpu::machine_ns;
use crate::output;
use crate::statistics::median;

/// The channels: of the group that does all by messages, of the one that a box counts for, of single messages.
const BY_MESSAGES: u16 = 1;
const BY_BOX: u16 = 2;
const PAIR: u16 = 3;
/// How often something is done before it is timed, which says how often it then is.
const WARM_UP: u64 = 20;
/// It is timed in so many batches, of no more than so much each.
const BATCHES: f64 = 8.0;
const BATCH_MAX: u64 = 1 << 18;
const NUMBER_BYTES: usize = size_of::<u64>();

/// Options of this command.
#[derive(Args)]
pub(crate) struct MemberOptions {
    #[command(flatten)]
    process: Process,
    /// What is timed, one behind the other.
    #[arg(long = "task", required = true)]
    tasks: Vec<Task>,
}

/// What goes wrong among members.
#[derive(Debug, Error)]
enum MemberError {
    #[error("no switch box counts for the group")]
    NoBox,
    #[error("the switch box counts no more: not all of {0} was counted by it")]
    NotCounted(Task),
    #[error("{task} came to {came_to}, and should have come to {expected}")]
    Wrong { task: Task, came_to: u64, expected: u64 },
    #[error("{0}: {1}")]
    Collective(Task, CollectiveError),
    #[error("cannot send: {0}")]
    Send(#[from] SendError),
    #[error("cannot receive: {0}")]
    Receive(#[from] ReceiveError),
}

pub(crate) fn run(options: &MemberOptions) -> crate::CommandResult {
    let process = &options.process;
    let (endpoint, peers) = process.open()?;
    let by_messages = Group::open(&endpoint, BY_MESSAGES, process.rank, &peers)?;
    let by_box = Group::open(&endpoint, BY_BOX, process.rank, &peers)?;
    let pair = endpoint.channel(PAIR)?;
    by_messages.barrier()?;
    if options.tasks.iter().any(|task| task.by == By::Box) && !by_box.use_switch_box()? {
        return Err(MemberError::NoBox.into());
    }
    // Of the first two, the other.
    let other = peers.iter().take(2).flatten().copied().next().filter(|_| process.rank < 2);
    let member = Member { by_messages, by_box, pair, other };
    let mut medians = Vec::new();
    for &task in &options.tasks {
        let all = member.time(task, process.time)?;
        medians.push(median(all.into_iter().map(|ns| ns as f64)).unwrap_or_default());
        if task.by == By::Box && !member.by_box.is_counted_by_a_box() {
            return Err(MemberError::NotCounted(task).into());
        }
    }
    member.by_messages.barrier()?;
    output::line(serde_json::to_string(&process.told(&endpoint, medians))?)?;
    Ok(ExitCode::SUCCESS)
}

struct Member {
    by_messages: Group,
    by_box: Group,
    pair: Channel,
    other: Option<PeerId>,
}

impl Member {
    /// Times of a task, ns; what they are of the first member are the times, of others nothing.
    fn time(&self, task: Task, time_s: f64) -> Result<Vec<u64>, MemberError> {
        let mut work = Work::new(task, self.by_messages.rank(), self.by_messages.size());
        let mut start = Instant::now();
        self.batch(&mut work, WARM_UP)?;
        let one_s = start.elapsed().as_secs_f64() / WARM_UP as f64;
        // All have to do it as often, and the first says how often: a batch at a time, for whatever else runs here may have one
        // take far longer than planned.
        let planned = time_s / BATCHES / one_s.max(1e-9);
        let mut next = [(planned as u64).clamp(WARM_UP, BATCH_MAX)];
        let mut all = Vec::new();
        start = Instant::now();
        loop {
            self.by_messages.broadcast(0, &mut next).map_err(|cause| MemberError::Collective(task, cause))?;
            if next[0] == 0 {
                return Ok(all);
            }
            all.extend(self.batch(&mut work, next[0])?);
            if start.elapsed().as_secs_f64() >= time_s {
                next[0] = 0;
            }
        }
    }

    /// Does it so often.
    fn batch(&self, work: &mut Work, times: u64) -> Result<Vec<u64>, MemberError> {
        match work.task.timing {
            Timing::InARow => self.in_a_row(work, times as usize),
            Timing::Apart => self.apart(work, times as usize),
        }
    }

    fn in_a_row(&self, work: &mut Work, times: usize) -> Result<Vec<u64>, MemberError> {
        let task = work.task;
        let mut all = Vec::with_capacity(times);
        self.by_messages.barrier().map_err(|cause| MemberError::Collective(task, cause))?;
        let mut before = Instant::now();
        for _ in 0..times {
            work.prepare();
            self.once(work)?;
            let after = Instant::now();
            all.push((after - before).as_nanos() as u64);
            before = after;
        }
        if task.what == What::Message {
            all.iter_mut().for_each(|ns| *ns /= 2);
        }
        Ok(all)
    }

    fn apart(&self, work: &mut Work, times: usize) -> Result<Vec<u64>, MemberError> {
        let task = work.task;
        let failed = |cause| MemberError::Collective(task, cause);
        let (mut starts, mut ends) = (Vec::with_capacity(times), Vec::with_capacity(times));
        for _ in 0..times {
            work.prepare();
            self.by_messages.barrier().map_err(failed)?;
            // The clock is the same for all processes of the machine.
            starts.push(machine_ns());
            self.once(work)?;
            ends.push(machine_ns());
        }
        let starts = self.by_messages.gather(0, &starts).map_err(failed)?.unwrap_or_default();
        let ends = self.by_messages.gather(0, &ends).map_err(failed)?.unwrap_or_default();
        Ok(from_first_to_last(&starts, &ends, times))
    }

    /// Does it, and looks whether it came to what it should.
    fn once(&self, work: &mut Work) -> Result<(), MemberError> {
        let task = work.task;
        let group = match task.by {
            By::Box => &self.by_box,
            By::Messages => &self.by_messages,
        };
        let came_to = match task.what {
            What::Message => return self.message(&work.data),
            _ => work.carry_out(group).map_err(|cause| MemberError::Collective(task, cause))?,
        };
        let expected = work.expected;
        match came_to {
            Some(came_to) if came_to != expected => Err(MemberError::Wrong { task, came_to, expected }),
            _ => Ok(()),
        }
    }

    /// There and back between the first two.
    fn message(&self, data: &[u64]) -> Result<(), MemberError> {
        let Some(other) = self.other else { return Ok(()) };
        let bytes = [0; 1 << 10];
        let message = &bytes[..size_of_val(data).min(bytes.len())];
        if self.by_messages.rank() == 0 {
            self.pair.send(other, message)?;
            self.pair.receive()?;
        } else {
            self.pair.receive()?;
            self.pair.send(other, message)?;
        }
        Ok(())
    }
}

/// The data of a task.
struct Work {
    task: Task,
    rank: usize,
    /// Numbers of a block.
    count: usize,
    /// What this member gives.
    data: Vec<u64>,
    /// Where that is replaced by what comes of it.
    place: Vec<u64>,
    /// The number that the result ends with.
    expected: u64,
}

impl Work {
    fn new(task: Task, rank: usize, size: usize) -> Work {
        let count = (task.bytes as usize).div_ceil(NUMBER_BYTES);
        // Everybody gives its rank, counted from 1.
        let (own, last) = (rank as u64 + 1, size as u64);
        let (data, expected) = match task.what {
            What::Message | What::Barrier => (vec![own; count], 0),
            What::Broadcast => (vec![own; count], 1),
            What::Reduce | What::Allreduce => (vec![own; count], last * (last + 1) / 2),
            What::Gather | What::Allgather => (vec![own; count], last),
            What::Scatter => ((1..=last).flat_map(|to| vec![to; count]).collect(), own),
            What::AllToAll => (vec![own; count * size], last),
        };
        Work { task, rank, count, place: data.clone(), data, expected }
    }

    /// What is not to be timed.
    fn prepare(&mut self) {
        if matches!(self.task.what, What::Broadcast | What::Allreduce) {
            self.place.copy_from_slice(&self.data);
        }
    }

    /// The last number of what came of it here, if anything does.
    fn carry_out(&mut self, group: &Group) -> Result<Option<u64>, CollectiveError> {
        let last = |numbers: &[u64]| numbers.last().copied();
        let at_root = |numbers: Option<Vec<u64>>| numbers.and_then(|numbers| last(&numbers));
        Ok(match self.task.what {
            What::Message => None,
            What::Barrier => group.barrier().map(|()| None)?,
            What::Broadcast => group.broadcast(0, &mut self.place).map(|()| last(&self.place))?,
            What::Reduce => at_root(group.reduce(0, &self.data, &Reduction::sum())?),
            What::Allreduce => {
                group.allreduce(&mut self.place, &Reduction::sum()).map(|()| last(&self.place))?
            }
            What::Gather => at_root(group.gather(0, &self.data)?),
            What::Allgather => last(&group.allgather(&self.data)?),
            What::Scatter => {
                let data = if self.rank == 0 { &self.data[..] } else { &[] };
                last(&group.scatter(0, data, self.count)?)
            }
            What::AllToAll => last(&group.all_to_all(&self.data)?),
        })
    }
}

/// How long each time was, of members that lie one behind the other.
fn from_first_to_last(starts: &[u64], ends: &[u64], times: usize) -> Vec<u64> {
    let of_all =
        |numbers: &[u64], at: usize| numbers.iter().skip(at).step_by(times).copied().collect::<Vec<_>>();
    let time = |at: usize| {
        let first = of_all(starts, at).into_iter().min()?;
        let last = of_all(ends, at).into_iter().max()?;
        Some(last.saturating_sub(first))
    };
    (0..times).filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_lasts_from_the_first_that_begins_to_the_last_that_is_done() {
        let (starts, ends) = ([100, 200, 90, 210, 110, 205], [130, 250, 120, 230, 115, 260]);
        assert_eq!(from_first_to_last(&starts, &ends, 2), [40, 60]);
        assert!(from_first_to_last(&[], &[], 2).is_empty());
    }
}
