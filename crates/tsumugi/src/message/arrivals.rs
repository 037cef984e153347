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

use crate::endpoint::core::State;

impl PortState {
    /// Takes in everything that the channel has.
    pub(super) fn take_in(&mut self, state: &mut State) {
        self.follow(state);
        while let Some((number, buffer)) = state.take_lent(self.channel) {
            self.given_back(state, number, buffer);
        }
        while let Some(delivery) = state.take(self.channel) {
            match delivery {
                Delivery::Message { source, payload } => self.on_message(state, source, payload),
                Delivery::Failed(failure) => self.on_failed(state, failure),
            }
        }
    }

    fn on_message(&mut self, state: &mut State, source: u32, payload: Payload) {
        let message = state.bytes_of(&payload);
        let bytes = message.len() as u64;
        let Some(header) = Header::decode(message, bytes) else {
            state.count_violation();
            state.release_message(payload);
            return;
        };
        match header {
            Header::Eager { tag, immediate } | Header::Active { tag, immediate } => {
                let at = Header::data_at(immediate);
                let status = Status { peer: PeerId(source), tag, immediate, bytes: bytes - at as u64 };
                match self.match_receive(state, source, tag, status.bytes) {
                    Some(number) => self.fill(state, number, status, at, payload),
                    None => {
                        let payload = state.copy_out(payload);
                        self.keep(state, status, Stored::Whole(payload));
                    }
                }
                return;
            }
            Header::Data { receive } => {
                match self.granted(receive, source, bytes - DATA_HEADER_BYTES as u64) {
                    Some(status) => self.fill(state, receive, status, DATA_HEADER_BYTES, payload),
                    None => {
                        state.count_violation();
                        state.release_message(payload);
                    }
                }
                return;
            }
            Header::Offer { tag, send, bytes, immediate } => {
                let status = Status { peer: PeerId(source), tag, immediate, bytes };
                self.on_offer(state, status, send);
            }
            Header::Grant { receive, send, bytes } => self.on_grant(state, source, send, receive, bytes),
            Header::Refuse { send, bytes } => self.on_refuse(state, source, send, bytes),
        }
        state.release_message(payload);
    }

    /// The message for which a receive has granted so many bytes.
    fn granted(&mut self, number: u64, source: u32, bytes: u64) -> Option<Status> {
        match self.receive_mut(number)?.at {
            At::Granted { status, granted } if status.peer.0 == source && granted == bytes => Some(status),
            _ => None,
        }
    }

    fn on_offer(&mut self, state: &mut State, status: Status, send: u64) {
        let limit = state.message_bytes_max().saturating_sub(DATA_HEADER_BYTES as u64);
        if status.bytes > limit {
            state.count_violation();
            self.say(status.peer, Outgoing::Header(Header::Refuse { send, bytes: limit }));
            return;
        }
        match self.match_receive(state, status.peer.0, status.tag, status.bytes) {
            Some(number) => self.grant(state, number, status, send),
            None => {
                self.keep(state, status, Stored::Offered(send));
            }
        }
    }
}

impl Placer for PortState {
    fn on_head(&mut self, state: &mut State, incoming: Incoming, head: &[u8]) -> Room {
        self.take_in(state);
        let Incoming { source, total, .. } = incoming;
        let lent = match Header::decode(head, total) {
            // It is matched when it is whole.
            Some(Header::Eager { .. }) => return Room::Own,
            Some(Header::Active { tag, immediate }) => {
                let at = Header::data_at(immediate);
                let status = Status { peer: PeerId(source), tag, immediate, bytes: total - at as u64 };
                match self.match_receive(state, source, tag, status.bytes) {
                    Some(number) => self.lend(number, status, at),
                    None => return Room::Claimed(self.keep(state, status, Stored::Arriving(incoming))),
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
                state.count_violation();
                Room::Nowhere
            },
            Room::Lent,
        )
    }

    fn on_placed(&mut self, state: &mut State, lent: Lent) {
        self.placed(state, lent);
    }

    fn on_collected(&mut self, key: usize, payload: Payload) {
        if let Some(kept) = self.messages.get_mut(key) {
            kept.stored = Stored::Whole(payload);
        }
    }

    fn on_lost(&mut self, state: &mut State, room: Room) {
        match room {
            Room::Lent(lent) => self.take_back(lent),
            Room::Claimed(key) => match self.messages.get_mut(key) {
                Some(kept) if kept.waits.is_none() => kept.stored = Stored::Lost,
                _ => self.drop_kept(state, key),
            },
            Room::Own | Room::Nowhere => {}
        }
    }
}
