//! The channel of a port with the accounts of its peers: how many requests are outstanding, how many replies are
//! under way. Handlers reach no more of a port than this.

use super::error::{ReplyError, RequestError};
use super::format::{Code, HEAD_BYTES, Head, Kind, SEGMENT_PLACE_BYTES};
use super::{ActiveMessageOptions, TOKENS_FIRST};
use crate::PeerId;
use crate::channel::Channel;
use crate::endpoint::core::identity::Merge;
use crate::error::SendError;
use crate::ticket::{Ticket, TicketStatus};
use std::collections::VecDeque;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::memory::Counter;

/// What is outstanding with one peer.
#[derive(Debug, Default)]
struct Account {
    /// Our requests that it has not answered.
    outstanding: u32,
    /// How many requests it takes, and in which connection it said so.
    granted: Option<(u16, u32)>,
    /// Our replies that it has not acknowledged.
    replies: VecDeque<Ticket>,
}

pub(super) struct FlowControl {
    pub(super) channel: Channel,
    pub(super) options: ActiveMessageOptions,
    accounts: Vec<Account>,
    /// How many merges of peers the accounts have followed.
    followed: usize,
}

impl FlowControl {
    pub(super) fn new(channel: Channel, options: ActiveMessageOptions) -> FlowControl {
        FlowControl { channel, options, accounts: Vec::new(), followed: 0 }
    }

    /// The number that the peer goes by: its account's.
    fn canonical(&self, peer: PeerId) -> PeerId {
        self.channel.shared.inner.borrow().core.canonical(peer)
    }

    /// Has peers that turned out to be one have one account. `true`: there are some.
    pub(super) fn follow(&mut self) -> bool {
        let merges: Vec<Merge> = {
            let inner = self.channel.shared.inner.borrow();
            inner.core.merges().get(self.followed..).unwrap_or_default().to_vec()
        };
        self.followed += merges.len();
        for Merge { from, into } in &merges {
            let Account { outstanding, granted, replies } = std::mem::take(self.account(*from));
            let account = self.account(*into);
            account.outstanding += outstanding;
            // Of the connection that they have now.
            account.granted = granted.or(account.granted);
            account.replies.extend(replies);
        }
        !merges.is_empty()
    }

    fn account(&mut self, peer: PeerId) -> &mut Account {
        let index = peer.0 as usize;
        if index >= self.accounts.len() {
            self.accounts.resize_with(index + 1, Account::default);
        }
        &mut self.accounts[index]
    }

    /// How many requests of each peer we take: everybody takes the first few.
    fn grant(&self) -> u16 {
        self.options.tokens.max(TOKENS_FIRST)
    }

    pub(super) fn outstanding(&self, peer: PeerId) -> u32 {
        let peer = self.canonical(peer);
        self.accounts.get(peer.0 as usize).map_or(0, |account| account.outstanding)
    }

    /// How many requests to the peer may be outstanding.
    fn tokens(&self, peer: PeerId) -> u32 {
        let connection = self.channel.shared.inner.borrow().core.connection(peer);
        let peer = self.canonical(peer);
        let granted = self.accounts.get(peer.0 as usize).and_then(|account| account.granted);
        let granted =
            granted.filter(|(_, when)| *when == connection).map_or(TOKENS_FIRST, |(grant, _)| grant);
        u32::from(self.options.tokens.min(granted))
    }

    pub(super) fn has_token(&self, peer: PeerId) -> bool {
        self.outstanding(peer) < self.tokens(peer)
    }

    /// Whether a request with so many bytes of data may be sent now.
    pub(super) fn may_request(&self, peer: PeerId, data_bytes: usize) -> Result<(), RequestError> {
        let (bytes, limit) = (data_bytes as u64, self.options.bulk_bytes as u64);
        if bytes > limit {
            return Err(RequestError::TooLong { bytes, limit });
        }
        let inner = self.channel.shared.inner.borrow();
        inner.core.may_post(peer, (HEAD_BYTES + SEGMENT_PLACE_BYTES) as u64 + bytes)?;
        drop(inner);
        if self.has_token(peer) { Ok(()) } else { Err(RequestError::WouldBlock) }
    }

    /// Sends a request that may be sent, and takes a token for it.
    pub(super) fn request(
        &mut self,
        peer: PeerId,
        head: &Head,
        data: [&[u8]; 2],
    ) -> Result<Ticket, SendError> {
        let head = head.encode();
        let ticket = if data[0].is_empty() {
            self.channel.post_reserved(peer, [&head, data[1]])?
        } else {
            let mut front = [0; HEAD_BYTES + SEGMENT_PLACE_BYTES];
            let bytes = HEAD_BYTES + data[0].len();
            front[..HEAD_BYTES].copy_from_slice(&head);
            front[HEAD_BYTES..bytes].copy_from_slice(data[0]);
            self.channel.post_reserved(peer, [&front[..bytes], data[1]])?
        };
        let peer = self.canonical(peer);
        self.account(peer).outstanding += 1;
        let now = self.channel.shared.now();
        self.channel.shared.inner.borrow_mut().core.expect(now, peer);
        Ok(ticket)
    }

    /// A request is over; its token comes back.
    pub(super) fn over(&mut self, ticket: Ticket) {
        let account = self.account(ticket.peer());
        account.outstanding = account.outstanding.saturating_sub(1);
        let core = &mut self.channel.shared.inner.borrow_mut().core;
        core.expect_no_more(ticket.peer(), ticket.connection());
    }

    /// The peer said how many requests it takes.
    pub(super) fn granted(&mut self, ticket: Ticket, grant: u16) {
        self.account(ticket.peer()).granted = Some((grant.max(1), ticket.connection()));
    }

    /// Whether a request of the peer may be handled. It may not while as many replies are under way to it as it was
    /// granted: a peer has no token for another request before it has the reply, and the room for replies is counted.
    pub(super) fn admit(&mut self, peer: PeerId) -> bool {
        let grant = usize::from(self.grant());
        let inner = self.channel.shared.inner.borrow();
        let Some(account) = self.accounts.get_mut(peer.0 as usize) else { return true };
        while account
            .replies
            .front()
            .is_some_and(|ticket| inner.core.status_of(*ticket) != TicketStatus::Pending)
        {
            account.replies.pop_front();
        }
        account.replies.len() < grant
    }

    /// Answers a request. There is always room: see [`FlowControl::admit`].
    pub(super) fn answer(
        &mut self,
        peer: PeerId,
        number: u64,
        words: [u64; 4],
        data: &[u8],
    ) -> Result<(), ReplyError> {
        let (bytes, limit) = (data.len() as u64, self.options.bulk_bytes as u64);
        if bytes > limit {
            self.refuse(peer, number, Code::ReplyTooLong, limit);
            return Err(ReplyError::TooLong { bytes, limit });
        }
        match self.post_answer(peer, Kind::Reply, 0, number, words, data) {
            Err(SendError::TooLong { limit, .. }) => {
                let limit = limit.saturating_sub(HEAD_BYTES as u64);
                self.refuse(peer, number, Code::ReplyTooLong, limit);
                Err(ReplyError::TooLong { bytes, limit })
            }
            outcome => Ok(outcome?),
        }
    }

    /// Refuses a request.
    pub(super) fn refuse(&mut self, peer: PeerId, number: u64, code: Code, detail: u64) {
        // A peer that is gone need not be told.
        let _ = self.post_answer(peer, Kind::Refusal, code as u8, number, [detail, 0, 0, 0], &[]);
    }

    fn post_answer(
        &mut self,
        peer: PeerId,
        kind: Kind,
        code: u8,
        number: u64,
        words: [u64; 4],
        data: &[u8],
    ) -> Result<(), SendError> {
        let head = Head { kind, code, grant: self.grant(), number, handler: 0, words };
        let ticket = self.channel.post_reserved(peer, [&head.encode(), data])?;
        self.account(peer).replies.push_back(ticket);
        Ok(())
    }

    /// Counts something that no peer that keeps to the protocol sends.
    pub(super) fn violated(&self) {
        self.channel.shared.memory.count(Counter::Violation, 1);
    }
}
