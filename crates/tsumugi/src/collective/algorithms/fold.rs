//! How participants whose number is no power of two become one: pairs of neighbours act as one.
//!
//! The first pairs, as many as there are participants too many, combine their data first; the even one goes on with them. What is
//! then left is numbered anew, as *places*, in the same order. Places combine with neighbours first, then with neighbours of
//! neighbours: what a place has is always of consecutive ranks, in order.
//!
//! So there is one tree of combinations for a number of participants. Every reduction here combines along it, whatever its length, its
//! root and its algorithm: that is why their results are the same to the last bit.

use crate::collective::reduction::Combine;
use crate::collective::schedule::{Order, Position, Schedule};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    /// How many pairs there are.
    pairs: usize,
    /// How many places there are, a power of two.
    pub(super) places: usize,
}

impl Fold {
    pub(super) fn of(size: usize) -> Fold {
        let places = 1 << size.ilog2();
        Fold { pairs: size - places, places }
    }

    /// A rank's place; `None` for the odd one of a pair.
    pub(super) fn place(&self, rank: usize) -> Option<usize> {
        match rank < 2 * self.pairs {
            true if rank % 2 == 1 => None,
            true => Some(rank / 2),
            false => Some(rank - self.pairs),
        }
    }

    /// The place where a rank's data are: its own, or the even one's of its pair.
    pub(super) fn place_for(&self, rank: usize) -> usize {
        self.place(rank).unwrap_or(rank / 2)
    }

    /// The rank at a place.
    pub(super) fn rank(&self, place: usize) -> usize {
        if place < self.pairs { 2 * place } else { place + self.pairs }
    }

    /// Adds what pairs do first. Returns our place; `None` if the other of our pair goes on with our data.
    pub(super) fn begin(&self, schedule: &mut Schedule, me: Position, data: &Range<usize>) -> Option<usize> {
        let place = self.place(me.rank);
        match place {
            None => schedule.send(me.rank - 1, data.clone()),
            Some(place) if place < self.pairs => {
                schedule.receive_to_combine(me.rank + 1, data.clone(), Order::OwnFirst);
            }
            Some(_) => {}
        }
        schedule.end_round();
        place
    }

    /// Adds what pairs do last, if both are to have the result.
    pub(super) fn end(&self, schedule: &mut Schedule, me: Position, data: &Range<usize>) {
        match self.place(me.rank) {
            None => schedule.receive(me.rank - 1, data.clone()),
            Some(place) if place < self.pairs => schedule.send(me.rank + 1, data.clone()),
            Some(_) => {}
        }
        schedule.end_round();
    }
}

/// What everybody's data, by rank, come to along the tree, for one who has all of them. There is somebody.
pub(in crate::collective) fn fold_all(mut data: Vec<Vec<u8>>, combine: Option<&Combine>) -> Vec<u8> {
    let fold = Fold::of(data.len());
    let join = |mut left: Vec<u8>, right: &[u8]| {
        if let Some(combine) = combine {
            combine(&mut left, right, Order::OwnFirst);
        }
        left
    };
    let mut at_places: Vec<Vec<u8>> = (0..fold.places)
        .map(|place| {
            let rank = fold.rank(place);
            let own = std::mem::take(&mut data[rank]);
            if place < fold.pairs { join(own, &data[rank + 1]) } else { own }
        })
        .collect();
    while at_places.len() > 1 {
        let pairs = at_places.chunks_mut(2).map(|pair| join(std::mem::take(&mut pair[0]), &pair[1]));
        at_places = pairs.collect();
    }
    at_places.pop().unwrap_or_default()
}

/// Which of two places whose numbers differ in one bit has the earlier ranks.
pub(super) fn order(place: usize, mask: usize) -> Order {
    if place & mask == 0 { Order::OwnFirst } else { Order::ArrivedFirst }
}
