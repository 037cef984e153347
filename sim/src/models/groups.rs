//! Collective operations: all hosts do the same, in the same order, and nobody leaves a barrier before the last has come.

use super::{Part, Site, Wrong, payload, text};
use crate::random::Random;
use std::cell::RefCell;
use std::rc::Rc;
use tsumugi::collective::{CollectiveError, Group, Operation, Reduction};

/// Operations that a host has under way at most.
const UNDER_WAY_MAX: usize = 6;
/// Lengths of what is carried, bytes; on either side of those at which algorithms change.
const BYTES: [usize; 4] = [8, 300, 5000, 40_000];

/// How many operations each host has started: what all hosts together know, and none alone.
pub(super) type Started = Rc<RefCell<Vec<u64>>>;

/// An operation that was started, and what it has to come to.
enum UnderWay {
    Barrier(Operation<()>),
    Numbers(Operation<Vec<u64>>, Vec<u64>),
    Bytes(Operation<Vec<u8>>, Vec<u8>),
}

pub(super) struct Groups {
    group: Group,
    started: Started,
    under_way: Vec<(u64, UnderWay)>,
    done: u64,
}

impl Groups {
    pub(super) fn open(site: &Site, started: &Started) -> Result<Groups, Wrong> {
        let group = Group::open(&site.endpoint, 5, site.me, &site.peers).map_err(text)?;
        Ok(Groups { group, started: Rc::clone(started), under_way: Vec::new(), done: 0 })
    }

    fn own_started(&self) -> u64 {
        self.started.borrow()[self.group.rank()]
    }

    /// Starts the next operation, which its number decides.
    fn start(&mut self) -> Result<(), CollectiveError> {
        let (me, hosts, number) = (self.group.rank(), self.group.size(), self.own_started());
        self.started.borrow_mut()[me] += 1;
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let bytes = BYTES[(mixed >> 4) as usize % BYTES.len()];
        let root = (mixed >> 8) as usize % hosts;
        let numbers = |of: usize| (0..bytes / 8).map(|at| (at * (of + 2)) as u64 ^ mixed).collect::<Vec<_>>();
        let block = |of: usize| payload(of, of, number, bytes);
        let operation = match mixed % 5 {
            0 | 1 => UnderWay::Barrier(self.group.start_barrier()?),
            2 => {
                let sum = |at: usize| (0..hosts).fold(0u64, |sum, of| sum.wrapping_add(numbers(of)[at]));
                // Of the long ones a few are enough.
                let expected: Vec<u64> = (0..bytes / 8).take(40).map(sum).collect();
                UnderWay::Numbers(self.group.start_allreduce(&numbers(me), &Reduction::sum())?, expected)
            }
            3 => {
                let data = if me == root { block(root) } else { vec![0; bytes] };
                UnderWay::Bytes(self.group.start_broadcast(root, &data)?, block(root))
            }
            _ => {
                let all = (0..hosts).flat_map(block).collect();
                UnderWay::Bytes(self.group.start_allgather(&block(me))?, all)
            }
        };
        self.under_way.push((number, operation));
        Ok(())
    }

    /// Whether an operation is over; if it is, it has come to what it should.
    fn is_over(&self, number: u64, operation: &mut UnderWay) -> Result<bool, Wrong> {
        let right = match operation {
            UnderWay::Barrier(operation) => operation.test().map_err(text)?.map(|()| true),
            UnderWay::Numbers(operation, expected) => {
                operation.test().map_err(text)?.map(|numbers| numbers.starts_with(expected))
            }
            UnderWay::Bytes(operation, expected) => {
                operation.test().map_err(text)?.map(|bytes| bytes == *expected)
            }
        };
        if right == Some(false) {
            return Err(format!("operation {number} has another result than it should"));
        }
        if right.is_some() && matches!(operation, UnderWay::Barrier(_)) {
            let started = self.started.borrow();
            if let Some(late) = started.iter().position(|started| *started <= number) {
                return Err(format!("barrier {number} is over, and host {late} has not come to it"));
            }
        }
        Ok(right.is_some())
    }
}

impl Part for Groups {
    fn act(&mut self, _: &mut Random, _: &Site) -> Result<(), Wrong> {
        if self.under_way.len() < UNDER_WAY_MAX { self.start().map_err(text) } else { Ok(()) }
    }

    fn poll(&mut self, _: &Site, calm: bool) -> Result<(), Wrong> {
        self.group.progress().map_err(text)?;
        // What one has started, all have to.
        let most = self.started.borrow().iter().copied().max().unwrap_or_default();
        while calm && self.own_started() < most && self.under_way.len() < UNDER_WAY_MAX {
            self.start().map_err(text)?;
        }
        let mut under_way = Vec::new();
        for (number, mut operation) in std::mem::take(&mut self.under_way) {
            if self.is_over(number, &mut operation)? {
                self.done += 1;
            } else {
                under_way.push((number, operation));
            }
        }
        self.under_way = under_way;
        Ok(())
    }

    fn sent_to(&self, _: usize) -> u64 {
        self.own_started()
    }

    fn taken_from(&self, _: usize) -> u64 {
        self.done
    }

    fn is_quiet(&self) -> bool {
        self.under_way.is_empty() && self.group.outstanding() == 0
    }
}
