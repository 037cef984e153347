//! The headers of what a box sends on behalf of a group, but for what is in its body, which [`super::member::seal`] adds.

use super::boxes::{Group, IS_BOX, Slot};
use tsumugi_wire::{Header, Kind, Psn};

/// The header of a notice to the sender of a packet.
#[must_use]
pub const fn answer_to(header: &Header) -> Header {
    let (flow, token) = match header.kind {
        Kind::Join => (header.flow, header.token),
        _ => (header.psn.0 as u32, header.ack.0),
    };
    Header { flow, token, ..Header::new(Kind::Notice, header.epoch) }
}

impl<A> Slot<A> {
    /// Whether it is that of a box below.
    #[must_use]
    pub const fn is_box(&self) -> bool {
        self.member & IS_BOX != 0
    }

    /// The header of a notice to it.
    #[must_use]
    pub const fn notice(&self) -> Header {
        self.packet(Kind::Notice)
    }

    /// The header of what tells it what came of a generation: to a member DATA of the flow that it has named.
    #[must_use]
    pub const fn release(&self, generation: u64) -> Header {
        let kind = if self.is_box() { Kind::Release } else { Kind::Data };
        Header { psn: Psn(generation.wrapping_sub(self.first)), ..self.packet(kind) }
    }

    const fn packet(&self, kind: Kind) -> Header {
        Header { flow: self.peer_flow, token: self.peer_token, ..Header::new(kind, self.epoch) }
    }
}

impl<A> Group<A> {
    /// The header of a JOIN, an ARRIVE or a LEAVE to the box above; `place` is the group's here.
    #[must_use]
    pub const fn up(&self, place: usize, kind: Kind) -> Header {
        let up = Header::new(kind, 1);
        match kind {
            Kind::Join => Header { flow: place as u32, token: self.up_token, ..up },
            _ => Header {
                flow: self.up_seat,
                token: self.up_seat_token,
                psn: Psn(place as u64),
                ack: Psn(self.up_token),
                ..up
            },
        }
    }
}
