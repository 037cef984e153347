//! Gathering: blocks of all participants, in the order of ranks, at the root.

use super::{children, part, reach};
use crate::collective::schedule::{Position, Schedule, blocks};

/// Everybody sends its block to the root.
pub(crate) fn linear_gather(me: Position, root: usize, lengths: &[usize]) -> Schedule {
    let mut schedule = Schedule::default();
    if me.rank != root {
        let own = schedule.allocate(lengths[me.rank]);
        schedule.send(root, own);
        schedule.end_round();
        return schedule;
    }
    let all = schedule.allocate(lengths.iter().sum());
    for (rank, block) in blocks(lengths).into_iter().enumerate() {
        if rank == root {
            schedule.input = block.start;
        } else {
            schedule.receive(rank, block);
        }
    }
    schedule.end_round();
    schedule.output = Some(all);
    schedule
}

/// Up a binomial tree, each with all that is below it. Blocks have the same length.
pub(crate) fn binomial_gather(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let place = me.relative_to(root);
    // From our own place on.
    let all = schedule.allocate(part(place, me.size) * bytes);
    for distance in children(place, me.size) {
        let below = part(place + distance, me.size);
        schedule.receive(me.after(distance), distance * bytes..(distance + below) * bytes);
    }
    schedule.end_round();
    if place > 0 {
        schedule.send(me.before(reach(place, me.size)), all);
    } else if root > 0 {
        // From the root's rank on, to from rank 0 on.
        let output = schedule.allocate(me.size * bytes);
        let end = (me.size - root) * bytes;
        schedule.copy(0..end, output.start + root * bytes);
        schedule.copy(end..all.end, output.start);
        schedule.output = Some(output);
    } else {
        schedule.output = Some(all);
    }
    schedule.end_round();
    schedule
}
