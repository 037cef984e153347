//! What a box makes of a packet for several receivers.
//!
//! A group serves for that if member 0 alone sends, and the others have joined with the flows that it sends to them in anyway. The root is
//! then its box. What it sends comes down the tree, and is made DATA for a member where that has its slot. A box keeps nothing of it:
//! the numbers are in the packet, beside what tells the flow that they are meant for.

use super::boxes::{Group, Groups, Slot};
use alloc::vec::Vec;
use tsumugi_wire::multicast::Table;
use tsumugi_wire::{Flags, Header, Kind, Psn};

impl<A> Group<A> {
    /// What a slot gets of a packet for several receivers: DATA without what is behind the frames, or, a box, all of it.
    fn part(slot: &Slot<A>, header: &Header, frame_bytes: usize, table: &Table<'_>) -> Option<Header> {
        let its = Header { flow: slot.peer_flow, token: slot.peer_token, ..*header };
        if slot.has_left {
            return None;
        }
        if slot.is_box() {
            // Its `psn` and `ack` stay: a box below that cannot do it answers the sender.
            return Some(Header { kind: Kind::Relay, ..its });
        }
        let entry = table.entries.get(usize::try_from(slot.member).ok()?.checked_sub(1)?)?;
        Some(Header {
            kind: Kind::Data,
            flags: Flags(header.flags.0 & !Flags::MIXED.with(Flags::HAS_ACK).0),
            psn: entry.psn(table.base, slot.peer_token)?,
            ack: Psn(0),
            credit: 0,
            body_bytes: frame_bytes as u16,
            body_crc: table.crc,
            ..its
        })
    }
}

impl<A: Clone + Default> Groups<A> {
    /// What the slots of a group get of a packet for several receivers, boxes first: the header of each slot's. A box's has
    /// the same body, a member's only the frames.
    pub fn spread(&self, place: usize, header: &Header, body: &[u8]) -> Vec<(u8, Header)> {
        let Ok((frames, table)) = Table::decode(header.credit, body) else { return Vec::new() };
        let group = self.at(place);
        let mut parts: Vec<_> = (0u8..)
            .zip(&group.slots)
            .filter_map(|(number, slot)| Some((number, Group::part(slot, header, frames.len(), &table)?)))
            .collect();
        parts.sort_by_key(|(_, part)| part.kind != Kind::Relay);
        parts
    }
}
