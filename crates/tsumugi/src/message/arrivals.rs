//! What arrives at a port, and what it becomes.

use super::entry::{At, Stored};
use super::header::{DATA_HEADER_BYTES, HEADER_BYTES_MAX, Header};
use super::parcel::Outgoing;
use super::port_state::PortState;
use super::request::Status;
use crate::PeerId;
use crate::endpoint::core::channels::Delivery;
use crate::endpoint::core::place::{Incoming, Placer, Room};
use crate::endpoint::peer::receive::Lent;
use crate::endpoint::receive_queue::Payload;

use crate::endpoint::core::Core;

impl PortState {
    /// Takes in everything that the channel has.
    pub(super) fn take_in(&mut self, core: &mut Core) {
        self.follow(core);
        while let Some((number, buffer)) = core.take_lent(self.channel) {
            self.given_back(core, number, buffer);
        }
        while let Some(delivery) = core.take(self.channel) {
            match delivery {
                Delivery::Message { source, payload } => self.on_message(core, source, payload),
                Delivery::Failed(failure) => self.on_failed(core, failure),
            }
        }
    }

    fn on_message(&mut self, core: &mut Core, source: u32, payload: Payload) {
        let message = core.bytes_of(&payload);
        let bytes = message.len() as u64;
        let Some(header) = Header::decode(message, bytes) else {
            core.count_violation();
            core.release_message(payload);
            return;
        };
        match header {
            Header::Eager { tag, immediate } | Header::Active { tag, immediate } => {
                let at = Header::data_at(immediate);
                let status = Status { peer: PeerId(source), tag, immediate, bytes: bytes - at as u64 };
                match self.match_receive(core, source, tag, status.bytes) {
                    Some(number) => self.fill(core, number, status, at, payload),
                    None => {
                        let payload = core.copy_out(payload);
                        self.keep(core, status, Stored::Whole(payload));
                    }
                }
                return;
            }
            Header::Data { receive } => {
                match self.granted(receive, source, bytes - DATA_HEADER_BYTES as u64) {
                    Some(status) => self.fill(core, receive, status, DATA_HEADER_BYTES, payload),
                    None => {
                        core.count_violation();
                        core.release_message(payload);
                    }
                }
                return;
            }
            Header::Offer { tag, send, bytes, immediate } => {
                let status = Status { peer: PeerId(source), tag, immediate, bytes };
                self.on_offer(core, status, send);
            }
            Header::Grant { receive, send, bytes } => self.on_grant(core, source, send, receive, bytes),
            Header::Refuse { send, bytes } => self.on_refuse(core, source, send, bytes),
        }
        core.release_message(payload);
    }

    /// The message for which a receive has granted so many bytes.
    fn granted(&mut self, number: u64, source: u32, bytes: u64) -> Option<Status> {
        match self.receive_mut(number)?.at {
            At::Granted { status, granted } if status.peer.0 == source && granted == bytes => Some(status),
            _ => None,
        }
    }

    fn on_offer(&mut self, core: &mut Core, status: Status, send: u64) {
        let limit = core.message_bytes_max().saturating_sub(DATA_HEADER_BYTES as u64);
        if status.bytes > limit {
            core.count_violation();
            self.say(status.peer, Outgoing::Header(Header::Refuse { send, bytes: limit }));
            return;
        }
        match self.match_receive(core, status.peer.0, status.tag, status.bytes) {
            Some(number) => self.grant(core, number, status, send),
            None => {
                self.keep(core, status, Stored::Offered(send));
            }
        }
    }
}

impl Placer for PortState {
    fn on_head(&mut self, core: &mut Core, incoming: Incoming, head: &[u8]) -> Room {
        self.take_in(core);
        let Incoming { source, total, .. } = incoming;
        let lent = match Header::decode(head, total) {
            // It is matched when it is whole.
            Some(Header::Eager { .. }) => return Room::Own,
            Some(Header::Active { tag, immediate }) => {
                let at = Header::data_at(immediate);
                let status = Status { peer: PeerId(source), tag, immediate, bytes: total - at as u64 };
                match self.match_receive(core, source, tag, status.bytes) {
                    Some(number) => self.lend(number, status, at),
                    None => return Room::Claimed(self.keep(core, status, Stored::Arriving(incoming))),
                }
            }
            Some(Header::Data { receive }) => {
                let status = self.granted(receive, source, total - DATA_HEADER_BYTES as u64);
                status.and_then(|status| self.lend(receive, status, DATA_HEADER_BYTES))
            }
            // A head too short for a header is looked at again when the message is whole.
            None if head.len() < HEADER_BYTES_MAX => return Room::Own,
            _ => None,
        };
        lent.map_or_else(
            || {
                core.count_violation();
                Room::Nowhere
            },
            Room::Lent,
        )
    }

    fn on_placed(&mut self, core: &mut Core, lent: Lent) {
        self.placed(core, lent);
    }

    fn on_collected(&mut self, key: usize, payload: Payload) {
        if let Some(kept) = self.messages.get_mut(key) {
            kept.stored = Stored::Whole(payload);
        }
    }

    fn on_lost(&mut self, core: &mut Core, room: Room) {
        match room {
            Room::Lent(lent) => self.take_back(lent),
            Room::Claimed(key) => match self.messages.get_mut(key) {
                Some(kept) if kept.waits.is_none() => kept.stored = Stored::Lost,
                _ => self.drop_kept(core, key),
            },
            Room::Own | Room::Nowhere => {}
        }
    }
}
