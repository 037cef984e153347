//! What a port sends: data at once, or offered and sent when they are wanted.

use super::engine::{Engine, Entry, Stage};
use super::header::{DATA_HEADER_BYTES, Header};
use super::request::{Completion, RequestError, Status};
use crate::endpoint::state::State;
use crate::error::SendError;
use crate::{Node, Ticket};
use tsumugi_wire::frame::WHOLE_BYTES;

/// Bytes of messages that may be offered to one peer and not yet wanted. One message of any length is always accepted.
const OFFERED_BYTES_MAX: u64 = 64 << 20;
/// Bytes in front of the data in a buffer of a message.
const FRONT_BYTES: usize = WHOLE_BYTES + DATA_HEADER_BYTES;

/// A message that was offered.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) status: Status,
    /// The message behind room for headers; empty when it is wanted and on its way.
    buffer: Vec<u8>,
    pub(super) acquaintance: u32,
}

/// Something to be said to a peer.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A header that nothing follows.
    Header(Header),
    /// Data that are wanted, in a buffer, and the send that they complete.
    Data { buffer: Vec<u8>, send: u64 },
}

/// Why a message was not accepted, and the buffer that it came in.
pub(super) type Refused = (SendError, Vec<u8>);

impl Engine {
    /// Sends a copy of `data` at once.
    pub(super) fn send_now(
        &mut self,
        state: &mut State,
        header: Header,
        node: Node,
        data: &[u8],
    ) -> Result<Ticket, SendError> {
        let parts = [&header.encode(data.len())[..], data];
        let number = state.post_parts(self.now, node, self.channel, parts)?;
        Ok(state.ticket(node, number))
    }

    /// Sends a message at once that lies in a buffer of [`Engine::buffer`].
    pub(super) fn send_buffer_now(
        &mut self,
        state: &mut State,
        header: Header,
        node: Node,
        mut buffer: Vec<u8>,
    ) -> Result<Ticket, Refused> {
        let data_bytes = buffer.len() - FRONT_BYTES;
        buffer[WHOLE_BYTES..FRONT_BYTES].copy_from_slice(&header.encode(data_bytes));
        let number = state.post_buffer(self.now, node, self.channel, buffer)?;
        Ok(state.ticket(node, number))
    }

    /// Sends one copy of `data` to several peers, at once.
    pub(super) fn send_to_all(
        &mut self,
        state: &mut State,
        header: Header,
        nodes: &[Node],
        data: &[u8],
    ) -> Result<Vec<Ticket>, SendError> {
        let parts = [&header.encode(data.len())[..], data];
        let numbers = state.post_to_all(self.now, nodes, self.channel, parts)?;
        Ok(nodes.iter().zip(numbers).map(|(node, number)| state.ticket(*node, number)).collect())
    }

    /// Offers a message that lies in a buffer of [`Engine::buffer`]. Returns the number of the request.
    pub(super) fn offer(
        &mut self,
        state: &mut State,
        node: Node,
        tag: u64,
        buffer: Vec<u8>,
    ) -> Result<u64, Refused> {
        self.take_in(state);
        let node = state.the(node);
        let bytes = (buffer.len() - FRONT_BYTES) as u64;
        match state.may_post(node, bytes + DATA_HEADER_BYTES as u64) {
            // The data need room only when they are wanted.
            Ok(()) | Err(SendError::WouldBlock) => {}
            Err(error) => return Err((error, buffer)),
        }
        if self.is_offering_much(node, bytes) {
            return Err((SendError::WouldBlock, buffer));
        }
        let status = Status { node, tag, bytes };
        let acquaintance = state.acquaintance(node);
        let offered = Offered { status, buffer, acquaintance };
        let send = self.requests.insert(Entry { is_orphan: false, stage: Stage::Send(offered) });
        if let Err(error) = self.post_header(state, node, Header::Offer { tag, send, bytes }) {
            let buffer = match self.requests.remove(send) {
                Some(Entry { stage: Stage::Send(offered), .. }) => offered.buffer,
                _ => Vec::new(),
            };
            return Err((error, buffer));
        }
        *self.offered_bytes.entry(node.0).or_default() += bytes;
        state.expect(self.now, node);
        Ok(send)
    }

    /// Whether so much is offered to a peer that `bytes` more would be too much.
    pub(super) fn is_offering_much(&self, node: Node, bytes: u64) -> bool {
        self.offered_bytes.get(&node.0).is_some_and(|offered| offered + bytes > OFFERED_BYTES_MAX)
    }

    /// A buffer for a message of `bytes`, with room for headers in front. Its contents are arbitrary.
    pub(super) fn buffer(state: &mut State, bytes: usize) -> Result<Vec<u8>, SendError> {
        state.buffer(DATA_HEADER_BYTES + bytes)
    }

    /// Where the data begin in a buffer.
    pub(super) const DATA_AT: usize = FRONT_BYTES;

    /// The peer wants `granted` bytes of what was offered.
    pub(super) fn on_grant(&mut self, state: &mut State, source: u32, send: u64, receive: u64, granted: u64) {
        let Some(offered) = self.offered(send, source).filter(|offered| granted <= offered.status.bytes)
        else {
            state.count_violation();
            return;
        };
        let mut buffer = std::mem::take(&mut offered.buffer);
        let status = offered.status;
        self.offered_no_more(status);
        if granted == 0 {
            state.pool.give(buffer);
            self.finish_send(state, send, None);
            return;
        }
        buffer.truncate(FRONT_BYTES + granted as usize);
        let header = Header::Data { receive }.encode(granted as usize);
        buffer[WHOLE_BYTES..FRONT_BYTES].copy_from_slice(&header);
        self.say(status.node, Outgoing::Data { buffer, send });
    }

    /// A message that was offered to a peer and is not wanted yet.
    fn offered(&mut self, send: u64, source: u32) -> Option<&mut Offered> {
        match self.requests.get_mut(send) {
            Some(Entry { stage: Stage::Send(offered), .. }) => {
                Some(offered).filter(|offered| offered.status.node.0 == source && !offered.buffer.is_empty())
            }
            _ => None,
        }
    }

    fn offered_no_more(&mut self, status: Status) {
        if let Some(bytes) = self.offered_bytes.get_mut(&status.node.0) {
            *bytes = bytes.saturating_sub(status.bytes);
            if *bytes == 0 {
                self.offered_bytes.remove(&status.node.0);
            }
        }
    }

    /// The peer does not take messages that long.
    pub(super) fn on_refuse(&mut self, state: &mut State, source: u32, send: u64, limit: u64) {
        match self.offered(send, source).map(|offered| offered.status.node) {
            Some(node) => self.fail_send(state, send, RequestError::TooLong { node, limit }),
            None => state.count_violation(),
        }
    }

    /// The data of a send are accepted, or none are wanted.
    fn finish_send(&mut self, state: &mut State, send: u64, ticket: Option<Ticket>) {
        if let Some(Entry { stage: Stage::Send(offered), .. }) = self.requests.get(send) {
            let (status, acquaintance) = (offered.status, offered.acquaintance);
            state.expect_no_more(status.node, acquaintance);
            self.complete(send, Completion::sent(status, ticket));
        }
    }

    /// A send that was offered fails.
    pub(super) fn fail_send(&mut self, state: &mut State, send: u64, error: RequestError) {
        if let Some(Entry { stage: Stage::Send(offered), .. }) = self.requests.get_mut(send) {
            let buffer = std::mem::take(&mut offered.buffer);
            let (status, acquaintance) = (offered.status, offered.acquaintance);
            state.expect_no_more(status.node, acquaintance);
            if !buffer.is_empty() {
                self.offered_no_more(status);
                state.pool.give(buffer);
            }
            self.complete(send, Completion { outcome: Err(error), buffer: None, ticket: None });
        }
    }

    /// Has something said to a peer, soon.
    pub(super) fn say(&mut self, node: Node, what: Outgoing) {
        self.outgoing.entry(node.0).or_default().push_back(what);
    }

    /// Forgets what was to be said to a peer.
    pub(super) fn drop_outgoing(&mut self, state: &mut State, node: Node) {
        for outgoing in self.outgoing.remove(&node.0).into_iter().flatten() {
            if let Outgoing::Data { buffer, send } = outgoing {
                state.pool.give(buffer);
                self.fail_send(state, send, RequestError::Cancelled);
            }
        }
    }

    /// Says what is to be said, as far as there is room. Returns whether anything was said.
    pub(super) fn say_all(&mut self, state: &mut State) -> bool {
        let mut said = false;
        let nodes: Vec<u32> = self.outgoing.keys().copied().collect();
        for node in nodes {
            while let Some(outgoing) = self.outgoing.get_mut(&node).and_then(|queue| queue.pop_front()) {
                match self.post(state, Node(node), outgoing) {
                    Ok(()) => said = true,
                    Err(outgoing) => {
                        self.outgoing.entry(node).or_default().push_front(outgoing);
                        break;
                    }
                }
            }
            if self.outgoing.get(&node).is_some_and(|queue| queue.is_empty()) {
                self.outgoing.remove(&node);
            }
        }
        said
    }

    /// Says one thing; it comes back when there is no room. What cannot be said at all is dropped: its peer is gone.
    fn post(&mut self, state: &mut State, node: Node, outgoing: Outgoing) -> Result<(), Outgoing> {
        match outgoing {
            Outgoing::Header(header) => match self.post_header(state, node, header) {
                Err(SendError::WouldBlock) => Err(Outgoing::Header(header)),
                _ => Ok(()),
            },
            Outgoing::Data { buffer, send } => {
                match state.post_buffer(self.now, node, self.channel, buffer) {
                    Ok(number) => {
                        let ticket = state.ticket(node, number);
                        self.finish_send(state, send, Some(ticket));
                        Ok(())
                    }
                    Err((SendError::WouldBlock, buffer)) => Err(Outgoing::Data { buffer, send }),
                    Err((error, buffer)) => {
                        state.pool.give(buffer);
                        let error = match error {
                            SendError::Peer(failure) => RequestError::Peer(failure),
                            SendError::TooLong { limit, .. } => RequestError::TooLong { node, limit },
                            _ => RequestError::Cancelled,
                        };
                        self.fail_send(state, send, error);
                        Ok(())
                    }
                }
            }
        }
    }

    fn post_header(&self, state: &mut State, node: Node, header: Header) -> Result<(), SendError> {
        let rest = header.rest();
        let rest = rest.as_ref().map_or(&[][..], |rest| &rest[..]);
        state.post_parts(self.now, node, self.channel, [&header.encode(0), rest]).map(|_| ())
    }
}
