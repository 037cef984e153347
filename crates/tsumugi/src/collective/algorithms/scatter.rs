//! Scattering: the root's blocks, one to each participant, in the order of ranks.

use super::{children, part, reach};
use crate::collective::schedule::{Position, Schedule, blocks};

/// The root sends everybody its block.
pub(crate) fn linear_scatter(me: Position, root: usize, lengths: &[usize]) -> Schedule {
    let mut schedule = Schedule::default();
    if me.rank != root {
        let own = schedule.allocate(lengths[me.rank]);
        schedule.receive(root, own.clone());
        schedule.end_round();
        schedule.output = Some(own);
        return schedule;
    }
    schedule.allocate(lengths.iter().sum());
    for (rank, block) in blocks(lengths).into_iter().enumerate() {
        if rank == root {
            schedule.output = Some(block);
        } else {
            schedule.send(rank, block);
        }
    }
    schedule.end_round();
    schedule
}

/// Down a binomial tree, to each all that is below it. Blocks have the same length.
pub(crate) fn binomial_scatter(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let place = me.relative_to(root);
    let mut start = 0;
    if place > 0 {
        let all = schedule.allocate(part(place, me.size) * bytes);
        schedule.receive(me.before(reach(place, me.size)), all);
        schedule.end_round();
    } else {
        let input = schedule.allocate(me.size * bytes);
        if root > 0 {
            // From rank 0 on, to from the root's rank on.
            let turned = schedule.allocate(me.size * bytes);
            let end = (me.size - root) * bytes;
            schedule.copy(root * bytes..input.end, turned.start);
            schedule.copy(0..root * bytes, turned.start + end);
            schedule.end_round();
            start = turned.start;
        }
    }
    for distance in children(place, me.size) {
        let below = part(place + distance, me.size);
        schedule.send(me.after(distance), start + distance * bytes..start + (distance + below) * bytes);
    }
    schedule.end_round();
    schedule.output = Some(start..start + bytes);
    schedule
}
