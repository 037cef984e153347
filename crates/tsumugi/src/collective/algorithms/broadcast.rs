//! Broadcasts.

use super::{children, part, reach};
use crate::collective::schedule::{Position, Schedule, piece};

/// The root sends all to everybody: for where that leaves once.
pub(in crate::collective) fn flat_broadcast(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let all = schedule.allocate(bytes);
    schedule.output = Some(all.clone());
    if me.rank == root {
        (0..me.size).filter(|rank| *rank != root).for_each(|rank| schedule.send(rank, all.clone()));
    } else {
        schedule.receive(root, all);
    }
    schedule.end_round();
    schedule
}

/// Down a binomial tree: ⌈log₂ size⌉ messages of the whole length, one after the other.
pub(crate) fn binomial_broadcast(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let place = me.relative_to(root);
    if place > 0 {
        schedule.receive(me.before(reach(place, me.size)), data.clone());
        schedule.end_round();
    }
    for distance in children(place, me.size) {
        schedule.send(me.after(distance), data.clone());
    }
    schedule.end_round();
    schedule.output = Some(data);
    schedule
}

/// The root cuts the data into as many pieces as there are participants, which are scattered down a binomial tree and then go
/// around a ring (van de Geijn). Nobody sends or receives more than twice the length.
pub(crate) fn scatter_allgather(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let pieces = |from: usize, count: usize| {
        piece(bytes, me.size, from).start..piece(bytes, me.size, from + count - 1).end
    };
    let place = me.relative_to(root);
    if place > 0 {
        schedule.receive(me.before(reach(place, me.size)), pieces(place, part(place, me.size)));
        schedule.end_round();
    }
    for distance in children(place, me.size) {
        let child = place + distance;
        schedule.send(me.after(distance), pieces(child, part(child, me.size)));
    }
    // What is below us in the tree comes around once more, the same as it is: to leave it out costs more rounds than it saves.
    for step in 0..me.size - 1 {
        let at = |step: usize| (place + me.size - step) % me.size;
        schedule.send(me.after(1), pieces(at(step), 1));
        schedule.receive(me.before(1), pieces(at(step + 1), 1));
        schedule.end_round();
    }
    schedule.output = Some(data);
    schedule
}
