//! Reductions, to one participant or to all. `element` is the length of what may not be cut, bytes.

use super::fold::{Fold, order};
use crate::collective::schedule::{Position, Schedule};
use std::ops::Range;

/// Up a binomial tree, ⌈log₂ size⌉ messages of the whole length.
pub(crate) fn binomial_reduce(me: Position, root: usize, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let fold = Fold::of(me.size);
    if let Some(place) = fold.begin(&mut schedule, me, &data) {
        let goal = fold.place_for(root);
        for mask in masks(fold.places) {
            let partner = fold.rank(place ^ mask);
            if place & mask == goal & mask {
                schedule.receive_to_combine(partner, data.clone(), order(place, mask));
                schedule.end_round();
            } else {
                schedule.send(partner, data.clone());
                schedule.end_round();
                break;
            }
        }
    }
    to_root(schedule, fold, me, root, data)
}

/// Everybody's part of the result is reduced where it is its turn, and then gathered (Rabenseifner): everybody sends and receives
/// about twice the length at most, but for pairs.
pub(crate) fn reduce_scatter_gather(me: Position, root: usize, bytes: usize, element: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let fold = Fold::of(me.size);
    if let Some(place) = fold.begin(&mut schedule, me, &data) {
        let goal = fold.place_for(root);
        for Half { mask, kept, given } in
            reduce_scatter(&mut schedule, fold, place, &data, element).into_iter().rev()
        {
            let partner = fold.rank(place ^ mask);
            if place & mask == goal & mask {
                schedule.receive(partner, given);
                schedule.end_round();
            } else {
                schedule.send(partner, kept);
                schedule.end_round();
                break;
            }
        }
    }
    to_root(schedule, fold, me, root, data)
}

/// Everybody exchanges all it has with the participants 1, 2, 4, … places away: ⌊log₂ size⌋ messages of the whole length, and
/// two more where there are pairs.
pub(crate) fn recursive_doubling(me: Position, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let fold = Fold::of(me.size);
    if let Some(place) = fold.begin(&mut schedule, me, &data) {
        for mask in masks(fold.places) {
            let partner = fold.rank(place ^ mask);
            schedule.send(partner, data.clone());
            schedule.receive_to_combine(partner, data.clone(), order(place, mask));
            schedule.end_round();
        }
    }
    fold.end(&mut schedule, me, &data);
    schedule.output = Some(data);
    schedule
}

/// As [`reduce_scatter_gather`], but everybody gathers.
pub(crate) fn reduce_scatter_allgather(me: Position, bytes: usize, element: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let data = schedule.allocate(bytes);
    let fold = Fold::of(me.size);
    if let Some(place) = fold.begin(&mut schedule, me, &data) {
        for Half { mask, kept, given } in
            reduce_scatter(&mut schedule, fold, place, &data, element).into_iter().rev()
        {
            let partner = fold.rank(place ^ mask);
            schedule.send(partner, kept);
            schedule.receive(partner, given);
            schedule.end_round();
        }
    }
    fold.end(&mut schedule, me, &data);
    schedule.output = Some(data);
    schedule
}

/// What two places had in common before they shared it: the half that we went on with, and the half that the other did.
struct Half {
    mask: usize,
    kept: Range<usize>,
    given: Range<usize>,
}

/// Halves the data with the participants 1, 2, 4, … places away; each goes on with what both have of its half. (The usual order
/// is the other way around, which combines ranks that are not neighbours.)
fn reduce_scatter(
    schedule: &mut Schedule,
    fold: Fold,
    place: usize,
    data: &Range<usize>,
    element: usize,
) -> Vec<Half> {
    let mut have = data.clone();
    let halve = |mask: usize| {
        let middle = have.start + have.len() / element / 2 * element;
        let (low, high) = (have.start..middle, middle..have.end);
        let (kept, given) = if place & mask == 0 { (low, high) } else { (high, low) };
        let partner = fold.rank(place ^ mask);
        schedule.send(partner, given.clone());
        schedule.receive_to_combine(partner, kept.clone(), order(place, mask));
        schedule.end_round();
        have = kept.clone();
        Half { mask, kept, given }
    };
    masks(fold.places).map(halve).collect()
}

/// 1, 2, 4, … below the number of places.
fn masks(places: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |mask| Some(mask * 2)).take_while(move |mask| *mask < places)
}

/// Adds the way of the result from the root's place to the root, if the root is the odd one of a pair.
fn to_root(mut schedule: Schedule, fold: Fold, me: Position, root: usize, data: Range<usize>) -> Schedule {
    if fold.place(root).is_none() {
        if me.rank == root {
            schedule.receive(root - 1, data.clone());
        } else if me.rank == root - 1 {
            schedule.send(root, data.clone());
        }
        schedule.end_round();
    }
    schedule.output = (me.rank == root).then_some(data);
    schedule
}
