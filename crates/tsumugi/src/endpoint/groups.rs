//! The groups of an endpoint that switch boxes count for: a seat of each, and the flow that its releases come in.

use crate::PeerId;
use tsumugi_proto::group::member::Member;
use tsumugi_wire::{Header, Instant};

/// Number of a seat among those of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatId(u32);

impl SeatId {
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// A member of a group.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) member: Member,
    /// Index of the flow.
    pub(crate) flow: u32,
    /// Its token.
    pub(crate) token: u64,
    /// To whom packets are addressed that a box is to take.
    pub(crate) to: PeerId,
}

/// All seats.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    seats: Vec<Option<Seat>>,
}

impl Groups {
    /// A place for a seat.
    pub(crate) fn free(&mut self) -> SeatId {
        let free = self.seats.iter().position(Option::is_none).unwrap_or(self.seats.len());
        if free == self.seats.len() {
            self.seats.push(None);
        }
        SeatId(free as u32)
    }

    pub(crate) fn put(&mut self, id: SeatId, seat: Seat) {
        self.seats[id.0 as usize] = Some(seat);
    }

    pub(crate) fn take(&mut self, id: SeatId) -> Option<Seat> {
        self.seats.get_mut(id.0 as usize)?.take()
    }

    #[inline]
    pub(crate) fn get(&self, id: SeatId) -> Option<&Seat> {
        self.seats.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SeatId) -> Option<&mut Seat> {
        self.seats.get_mut(id.0 as usize)?.as_mut()
    }

    /// The seat with this number.
    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> Option<&mut Seat> {
        self.get_mut(SeatId(number))
    }

    /// The seat that a verdict is for.
    pub(crate) fn meant_by(&mut self, header: &Header) -> Option<&mut Seat> {
        self.seats.iter_mut().flatten().find(|seat| seat.member.is_for(header))
    }

    /// Places for seats, in use or not.
    pub(crate) fn len(&self) -> u32 {
        self.seats.len() as u32
    }

    /// When the next has something to send.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        let due = self.seats.iter().flatten().map(|seat| seat.member.deadline());
        due.min().unwrap_or(Instant::NEVER)
    }
}
