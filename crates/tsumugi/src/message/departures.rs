//! What a port sends: data at once, or offered and sent when they are wanted.

use super::entry::{Entry, Stage};
use super::header::{DATA_HEADER_BYTES, HEADER_BYTES_MAX, Header};
use super::parcel::{FRONT_BYTES, Lent, Offered, Outgoing, Parcel};
use super::port_state::PortState;
use super::request::{Completion, Envelope, RequestError, Status};
use crate::buffer::Buffer;
use crate::endpoint::core::Core;
use crate::endpoint::long_message::Lender;
use crate::error::SendError;
use crate::ticket::TicketStatus;
use crate::{PeerId, Ticket};
use tsumugi_wire::frame::WHOLE_BYTES;

/// Bytes of messages that may be offered to one peer and not yet wanted. One message of any length is always accepted.
const OFFERED_BYTES_MAX: u64 = 64 << 20;
/// Why a message was not accepted, and the buffer that it came in.
pub(super) type Refused = (SendError, Vec<u8>);

impl PortState {
    /// Sends a copy of `data` at once.
    #[inline]
    pub(super) fn send_now(
        &mut self,
        core: &mut Core,
        header: Header,
        peer: PeerId,
        data: &[u8],
    ) -> Result<Ticket, SendError> {
        let parts = [&header.encode(data.len())[..], data];
        let number = core.post_parts(self.now, peer, self.channel, parts)?;
        Ok(core.ticket(peer, number))
    }

    /// Sends a message at once that lies in a buffer of [`PortState::buffer`].
    pub(super) fn send_buffer_now(
        &mut self,
        core: &mut Core,
        header: Header,
        peer: PeerId,
        mut buffer: Vec<u8>,
    ) -> Result<Ticket, Refused> {
        let data_bytes = buffer.len() - FRONT_BYTES;
        buffer[WHOLE_BYTES..FRONT_BYTES].copy_from_slice(&header.encode(data_bytes));
        let number = core.post_buffer(self.now, peer, self.channel, buffer)?;
        Ok(core.ticket(peer, number))
    }

    /// Sends a message at once that lies in memory of the caller. Returns the number of the request.
    pub(super) fn send_lent_now(
        &mut self,
        core: &mut Core,
        header: Header,
        status: Status,
        buffer: Buffer,
        cookie: u64,
    ) -> Result<u64, (SendError, Buffer)> {
        let ticket = core.ticket(status.peer, 0);
        let lent = Lent { status, ticket, buffer: None, failure: None };
        let number = self.requests.insert(Entry::new(Some(cookie), Stage::Lent(lent)));
        match self.post_lent(core, header, status.peer, buffer, number) {
            Ok(()) => Ok(number),
            Err(refused) => {
                self.requests.remove(number);
                Err(refused)
            }
        }
    }

    /// Has the data of request `number`, which is of memory that is lent, accepted.
    fn post_lent(
        &mut self,
        core: &mut Core,
        header: Header,
        peer: PeerId,
        buffer: Buffer,
        number: u64,
    ) -> Result<(), (SendError, Buffer)> {
        let front = header.encode(buffer.len());
        let lender = Lender { channel: self.channel, key: number };
        let (message, back) = core.post_lent(self.now, peer, lender, &front, buffer)?;
        let Some(Entry { stage: Stage::Lent(lent), .. }) = self.requests.get_mut(number) else {
            return Ok(());
        };
        lent.ticket = core.ticket(peer, message);
        if let Some(buffer) = back {
            let sent = Completion::sent(lent.status, Some(lent.ticket), Some(buffer));
            self.complete(number, sent);
        }
        Ok(())
    }

    /// The library needs the memory of a send no more.
    pub(super) fn given_back(&mut self, core: &Core, number: u64, buffer: Buffer) {
        let Some(Entry { stage: Stage::Lent(lent), .. }) = self.requests.get_mut(number) else { return };
        let (status, ticket) = (lent.status, lent.ticket);
        if let Some(error) = lent.failure.take() {
            self.complete(number, Completion { outcome: Err(error), buffer: Some(buffer), ticket: None });
        } else if core.status_of(ticket) == TicketStatus::Delivered {
            self.complete(number, Completion::sent(status, Some(ticket), Some(buffer)));
        } else {
            lent.buffer = Some(buffer);
        }
    }

    /// The peer is gone that a send in memory of the caller was for.
    pub(super) fn fail_lent(&mut self, number: u64, error: RequestError) {
        let Some(Entry { stage: Stage::Lent(lent), .. }) = self.requests.get_mut(number) else { return };
        match lent.buffer.take() {
            Some(buffer) => {
                self.complete(number, Completion { outcome: Err(error), buffer: Some(buffer), ticket: None });
            }
            None => lent.failure = Some(error),
        }
    }

    /// Sends one copy of `data` to several peers, at once.
    pub(super) fn send_to_all(
        &mut self,
        core: &mut Core,
        header: Header,
        peers: &[PeerId],
        data: &[u8],
    ) -> Result<Vec<Ticket>, SendError> {
        let parts = [&header.encode(data.len())[..], data];
        let numbers = core.post_to_all(self.now, peers, self.channel, parts)?;
        Ok(peers.iter().zip(numbers).map(|(peer, number)| core.ticket(*peer, number)).collect())
    }

    /// Whether a message of `bytes` may be offered to a peer: it takes messages that long, there is room for the offer, and not too
    /// much is offered to it already.
    pub(super) fn may_offer(&self, core: &Core, peer: PeerId, bytes: u64) -> Result<(), SendError> {
        let peer = core.canonical(peer);
        match core.may_post(peer, bytes + DATA_HEADER_BYTES as u64) {
            // The data need room only when they are wanted.
            Ok(()) | Err(SendError::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        core.may_post(peer, HEADER_BYTES_MAX as u64)?;
        match self.offered_bytes.get(&peer.0) {
            Some(offered) if offered + bytes > OFFERED_BYTES_MAX => Err(SendError::WouldBlock),
            _ => Ok(()),
        }
    }

    /// Offers a message. Returns the number of the request.
    pub(super) fn offer(
        &mut self,
        core: &mut Core,
        peer: PeerId,
        envelope: Envelope,
        parcel: Parcel,
        cookie: Option<u64>,
    ) -> Result<u64, (SendError, Parcel)> {
        self.take_in(core);
        let peer = core.canonical(peer);
        let bytes = parcel.bytes() as u64;
        if let Err(error) = self.may_offer(core, peer, bytes) {
            return Err((error, parcel));
        }
        let status = Status::new(peer, envelope, bytes);
        let connection = core.connection(peer);
        let offered = Offered { status, parcel, connection };
        let send = self.requests.insert(Entry::new(cookie, Stage::Send(offered)));
        let Envelope { tag, immediate } = envelope;
        if let Err(error) = self.post_header(core, peer, Header::Offer { tag, send, bytes, immediate }) {
            let parcel = match self.requests.remove(send) {
                Some(Entry { stage: Stage::Send(offered), .. }) => offered.parcel,
                _ => Parcel::Sent,
            };
            return Err((error, parcel));
        }
        *self.offered_bytes.entry(peer.0).or_default() += bytes;
        core.expect(self.now, peer);
        Ok(send)
    }

    /// A buffer for a message of `bytes`, with room for headers in front. Its bytes are arbitrary.
    pub(super) fn buffer(core: &mut Core, bytes: usize) -> Result<Vec<u8>, SendError> {
        core.buffer(DATA_HEADER_BYTES + bytes)
    }

    /// Where the data begin in a buffer.
    pub(super) const DATA_AT: usize = FRONT_BYTES;

    /// The peer wants `granted` bytes of what was offered.
    pub(super) fn on_grant(&mut self, core: &mut Core, source: u32, send: u64, receive: u64, granted: u64) {
        let Some(offered) = self.offered(send, source).filter(|offered| granted <= offered.status.bytes)
        else {
            core.count_violation();
            return;
        };
        let parcel = std::mem::take(&mut offered.parcel);
        let status = offered.status;
        self.offered_no_more(status);
        if granted == 0 {
            let buffer = parcel.give_back(core);
            self.finish_send(core, send, None, buffer);
            return;
        }
        let parcel = parcel.shortened(granted as usize);
        self.say(status.peer, Outgoing::Data { parcel, receive, send });
    }

    /// A message that was offered to a peer and is not wanted yet.
    fn offered(&mut self, send: u64, source: u32) -> Option<&mut Offered> {
        match self.requests.get_mut(send) {
            Some(Entry { stage: Stage::Send(offered), .. }) => {
                Some(offered).filter(|offered| offered.status.peer.0 == source && !offered.parcel.is_sent())
            }
            _ => None,
        }
    }

    fn offered_no_more(&mut self, status: Status) {
        if let Some(bytes) = self.offered_bytes.get_mut(&status.peer.0) {
            *bytes = bytes.saturating_sub(status.bytes);
            if *bytes == 0 {
                self.offered_bytes.remove(&status.peer.0);
            }
        }
    }

    /// The peer does not take messages that long.
    pub(super) fn on_refuse(&mut self, core: &mut Core, source: u32, send: u64, limit: u64) {
        match self.offered(send, source).map(|offered| offered.status.peer) {
            Some(peer) => self.fail_send(core, send, RequestError::TooLong { peer, limit }),
            None => core.count_violation(),
        }
    }

    /// The data of a send are accepted, or none are wanted.
    fn finish_send(&mut self, core: &mut Core, send: u64, ticket: Option<Ticket>, buffer: Option<Buffer>) {
        if let Some(status) = self.accepted(core, send) {
            self.complete(send, Completion::sent(status, ticket, buffer));
        }
    }

    /// Nothing more is expected of the peer because of an offer.
    fn accepted(&mut self, core: &mut Core, send: u64) -> Option<Status> {
        let Some(Entry { stage: Stage::Send(offered), .. }) = self.requests.get(send) else { return None };
        core.expect_no_more(offered.status.peer, offered.connection);
        Some(offered.status)
    }

    /// A send that was offered fails.
    pub(super) fn fail_send(&mut self, core: &mut Core, send: u64, error: RequestError) {
        if let Some(Entry { stage: Stage::Send(offered), .. }) = self.requests.get_mut(send) {
            let parcel = std::mem::take(&mut offered.parcel);
            let (status, connection) = (offered.status, offered.connection);
            core.expect_no_more(status.peer, connection);
            if !parcel.is_sent() {
                self.offered_no_more(status);
            }
            let buffer = parcel.give_back(core);
            self.complete(send, Completion { outcome: Err(error), buffer, ticket: None });
        }
    }

    /// Has something said to a peer, soon.
    pub(super) fn say(&mut self, peer: PeerId, what: Outgoing) {
        self.outgoing.entry(peer.0).or_default().push_back(what);
    }

    /// Forgets what was to be said to a peer.
    pub(super) fn drop_outgoing(&mut self, core: &mut Core, peer: PeerId, error: &RequestError) {
        for outgoing in self.outgoing.remove(&peer.0).into_iter().flatten() {
            if let Outgoing::Data { parcel, send, .. } = outgoing {
                self.fail_wanted(core, send, parcel, error.clone());
            }
        }
    }

    /// A send whose data are wanted fails.
    fn fail_wanted(&mut self, core: &mut Core, send: u64, parcel: Parcel, error: RequestError) {
        let buffer = parcel.give_back(core);
        if self.accepted(core, send).is_some() {
            self.complete(send, Completion { outcome: Err(error), buffer, ticket: None });
        }
    }

    /// Says what is to be said, as far as there is room. Returns whether anything was said.
    pub(super) fn say_all(&mut self, core: &mut Core) -> bool {
        if self.outgoing.is_empty() {
            return false;
        }
        let mut said = false;
        let peers: Vec<u32> = self.outgoing.keys().copied().collect();
        for peer in peers {
            while let Some(outgoing) = self.outgoing.get_mut(&peer).and_then(|queue| queue.pop_front()) {
                match self.post(core, PeerId(peer), outgoing) {
                    Ok(()) => said = true,
                    Err(outgoing) => {
                        self.outgoing.entry(peer).or_default().push_front(outgoing);
                        break;
                    }
                }
            }
            if self.outgoing.get(&peer).is_some_and(|queue| queue.is_empty()) {
                self.outgoing.remove(&peer);
            }
        }
        said
    }

    /// Says one thing; it comes back when there is no room. What cannot be said at all is dropped: its peer is gone.
    fn post(&mut self, core: &mut Core, peer: PeerId, outgoing: Outgoing) -> Result<(), Outgoing> {
        match outgoing {
            Outgoing::Header(header) => match self.post_header(core, peer, header) {
                Err(SendError::WouldBlock) => Err(Outgoing::Header(header)),
                _ => Ok(()),
            },
            Outgoing::Data { parcel, receive, send } => {
                match self.post_data(core, peer, parcel, receive, send) {
                    Ok(()) => Ok(()),
                    Err((SendError::WouldBlock, parcel)) => Err(Outgoing::Data { parcel, receive, send }),
                    Err((error, parcel)) => {
                        let error = match error {
                            SendError::Peer(failure) => RequestError::Peer(failure),
                            SendError::TooLong { limit, .. } => RequestError::TooLong { peer, limit },
                            _ => RequestError::Cancelled,
                        };
                        self.fail_wanted(core, send, parcel, error);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Has the data of a send accepted that a receive wants.
    fn post_data(
        &mut self,
        core: &mut Core,
        peer: PeerId,
        parcel: Parcel,
        receive: u64,
        send: u64,
    ) -> Result<(), (SendError, Parcel)> {
        let header = Header::Data { receive };
        match parcel {
            Parcel::Sent => Ok(()),
            Parcel::Own(buffer) => {
                let ticket = self
                    .send_buffer_now(core, header, peer, buffer)
                    .map_err(|(error, buffer)| (error, Parcel::Own(buffer)))?;
                self.finish_send(core, send, Some(ticket), None);
                Ok(())
            }
            Parcel::Lent(buffer) => {
                let bytes = (buffer.len() + DATA_HEADER_BYTES) as u64;
                if let Err(error) = core.may_post(peer, bytes) {
                    return Err((error, Parcel::Lent(buffer)));
                }
                let Some(status) = self.accepted(core, send) else { return Ok(()) };
                let lent = Lent { status, ticket: core.ticket(peer, 0), buffer: None, failure: None };
                if let Some(entry) = self.requests.get_mut(send) {
                    entry.stage = Stage::Lent(lent);
                }
                if let Err((error, buffer)) = self.post_lent(core, header, peer, buffer, send) {
                    let error = match error {
                        SendError::Peer(failure) => RequestError::Peer(failure),
                        _ => RequestError::Cancelled,
                    };
                    self.complete(
                        send,
                        Completion { outcome: Err(error), buffer: Some(buffer), ticket: None },
                    );
                }
                Ok(())
            }
        }
    }

    fn post_header(&self, core: &mut Core, peer: PeerId, header: Header) -> Result<(), SendError> {
        core.post_parts(self.now, peer, self.channel, [&header.encode(0), &[]]).map(|_| ())
    }
}
