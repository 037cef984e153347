//! What a port knows: requests, the messages that wait, and what is to be said.
//!
//! Receives are here, those of several messages in [`super::many`]; [`super::arrivals`] is what arrives,
//! [`super::departures`] what is sent.

use super::entry::{At, Entry, Kept, Receive, Stage, Stored};
use super::header::Header;
use super::matching::{Matching, Wanted};
use super::parcel::Outgoing;
use super::request::{Completion, Pattern, RequestError, Status};
use super::table::Table;
use crate::buffer::Buffer;
use crate::endpoint::core::Core;
use crate::endpoint::peer::receive;
use crate::endpoint::receive_queue::Payload;
use crate::error::SendError;
use crate::{Failure, PeerId};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use tsumugi_wire::Instant;

/// What a message that waits takes up besides its bytes, as far as limits are concerned.
const KEPT_BYTES: u64 = 256;

/// Everything that a port knows.
#[derive(Debug)]
pub(super) struct PortState {
    pub(super) channel: u16,
    /// A receive from one peer counts as something outstanding with it.
    watches: bool,
    /// When the application called last.
    pub(super) now: Instant,
    /// Receives by their numbers, messages by their keys.
    pub(super) matching: Matching<u64, usize>,
    pub(super) requests: Table<Entry>,
    /// Messages that nobody has received, in [`PortState::matching`] or claimed.
    pub(super) messages: Slab<Kept>,
    /// What is to be said to each peer.
    pub(super) outgoing: BTreeMap<u32, VecDeque<Outgoing>>,
    /// Bytes of messages offered to each peer.
    pub(super) offered_bytes: BTreeMap<u32, u64>,
    /// How many merges of peers have been followed.
    pub(super) followed: usize,
    /// Failures that nobody has asked for.
    pub(super) failures: VecDeque<Failure>,
    /// Counts completions.
    pub(super) completed: u64,
    /// Requests that are complete and listed, in the order in which they became so.
    listed: VecDeque<u64>,
    has_told_of_full_memory: bool,
}

impl PortState {
    pub(super) fn new(channel: u16, watches: bool) -> PortState {
        PortState {
            channel,
            watches,
            now: Instant(0),
            matching: Matching::default(),
            requests: Table::default(),
            messages: Slab::new(),
            outgoing: BTreeMap::new(),
            offered_bytes: BTreeMap::new(),
            followed: 0,
            failures: VecDeque::new(),
            completed: 0,
            listed: VecDeque::new(),
            has_told_of_full_memory: false,
        }
    }

    /// Whether nothing is going on that would be lost with the port.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.len() == 0 && self.messages.is_empty() && self.outgoing.is_empty()
    }

    /// Posts a receive, and returns its number.
    pub(super) fn receive(
        &mut self,
        core: &mut Core,
        pattern: Pattern,
        buffer: Buffer,
        cookie: Option<u64>,
    ) -> u64 {
        self.take_in(core);
        let wanted = wanted(core, &pattern);
        if let Some(key) = self.take_kept(&wanted) {
            return self.receive_kept(core, key, buffer, cookie);
        }
        let refused = refused(core, &pattern);
        let expects = if refused.is_some() { None } else { self.expect(core, &pattern) };
        let number = self.insert(Receive { buffer: Some(buffer), at: At::New, expects, whole: None }, cookie);
        if let Some(error) = refused {
            self.finish(core, number, Err(error));
            return number;
        }
        let posted = self.matching.post(wanted, number);
        if let Some(receive) = self.receive_mut(number) {
            receive.at = At::Posted(posted, wanted);
        }
        number
    }

    /// Takes out the message that waits for such a receive, if there is one.
    pub(super) fn take_kept(&mut self, wanted: &Wanted) -> Option<usize> {
        let at = self.matching.find(wanted)?;
        self.matching.take(at)
    }

    /// Something is expected of the source of such a receive, if it has one.
    pub(super) fn expect(&self, core: &mut Core, pattern: &Pattern) -> Option<(PeerId, u32)> {
        pattern.source.filter(|_| self.watches).map(|peer| {
            core.expect(self.now, peer);
            (core.canonical(peer), core.connection(peer))
        })
    }

    pub(super) fn insert(&mut self, receive: Receive, cookie: Option<u64>) -> u64 {
        self.requests.insert(Entry::new(cookie, Stage::Receive(receive)))
    }

    pub(super) fn receive_mut(&mut self, number: u64) -> Option<&mut Receive> {
        match self.requests.get_mut(number) {
            Some(Entry { stage: Stage::Receive(receive), .. }) => Some(receive),
            _ => None,
        }
    }

    /// Receives a message that has been taken out of matching.
    pub(super) fn receive_kept(
        &mut self,
        core: &mut Core,
        key: usize,
        buffer: Buffer,
        cookie: Option<u64>,
    ) -> u64 {
        let receive = Receive { buffer: Some(buffer), at: At::New, expects: None, whole: None };
        let number = self.insert(receive, cookie);
        self.hand_out(core, key, number);
        number
    }

    /// Gives a message that has been taken out of matching to a receive.
    pub(super) fn hand_out(&mut self, core: &mut Core, key: usize, number: u64) {
        let Some(Kept { status, stored, .. }) = self.messages.try_remove(key) else {
            // The claim of another port.
            self.finish(core, number, Err(RequestError::Cancelled));
            return;
        };
        core.discharge(KEPT_BYTES);
        match stored {
            Stored::Whole(payload) => {
                self.fill(core, number, status, Header::data_at(status.immediate), payload)
            }
            Stored::Arriving(incoming) => {
                if let Some(lent) = self.lend(number, status, Header::data_at(status.immediate))
                    && let Err(lent) = core.lend(incoming, key, lent)
                {
                    // It is not arriving any more, so its peer is gone; why is said next.
                    self.take_back(lent);
                }
            }
            Stored::Offered(send) => self.grant(core, number, status, send),
            Stored::Lost => self.lose(number, status.peer),
            Stored::Gone(failure) => self.finish(core, number, Err(RequestError::Peer(failure))),
        }
    }

    /// Copies a message, whose data begin `at` so many bytes, into a receive's buffer and gives its memory back.
    pub(super) fn fill(&mut self, core: &mut Core, number: u64, status: Status, at: usize, payload: Payload) {
        if let Some(receive) = self.receive_mut(number)
            && let Some(buffer) = &mut receive.buffer
        {
            let message = core.bytes_of(&payload);
            buffer.write(0, message.get(at..).unwrap_or_default());
        }
        core.release_message(payload);
        self.finish(core, number, Ok(status));
    }

    /// Lends a receive's buffer for a message that is arriving and whose data begin at `skip`.
    pub(super) fn lend(&mut self, number: u64, status: Status, skip: usize) -> Option<receive::Lent> {
        let receive = self.receive_mut(number)?;
        receive.at = At::Placing(status);
        let buffer = receive.buffer.take()?;
        Some(receive::Lent { buffer, skip, key: number })
    }

    /// Gives a receive its buffer back, for a message that did not arrive.
    pub(super) fn take_back(&mut self, lent: receive::Lent) {
        if let Some(receive) = self.receive_mut(lent.key) {
            receive.buffer = Some(lent.buffer);
            if let At::Placing(status) = receive.at {
                receive.at = At::Lost(status.peer);
            }
        }
    }

    fn lose(&mut self, number: u64, peer: PeerId) {
        if let Some(receive) = self.receive_mut(number) {
            receive.at = At::Lost(peer);
        }
    }

    /// The message that was lent for is complete.
    pub(super) fn placed(&mut self, core: &mut Core, lent: receive::Lent) {
        let number = lent.key;
        if let Some(receive) = self.receive_mut(number) {
            receive.buffer = Some(lent.buffer);
            if let At::Placing(status) = receive.at {
                self.finish(core, number, Ok(status));
            }
        }
    }

    /// Asks for as much of an offered message as there is room for.
    pub(super) fn grant(&mut self, core: &mut Core, number: u64, status: Status, send: u64) {
        let now = self.now;
        let Some(receive) = self.receive_mut(number) else { return };
        let room = receive.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let granted = room.min(status.bytes);
        receive.at = At::Granted { status, granted };
        if receive.expects.is_none() {
            core.expect(now, status.peer);
            receive.expects = Some((status.peer, core.connection(status.peer)));
        }
        self.say(status.peer, Outgoing::Header(Header::Grant { receive: number, send, bytes: granted }));
        if granted == 0 {
            self.finish(core, number, Ok(status));
        }
    }

    /// A receive is complete.
    pub(super) fn finish(&mut self, core: &mut Core, number: u64, outcome: Result<Status, RequestError>) {
        let Some(receive) = self.receive_mut(number) else { return };
        let (buffer, whole) = (receive.buffer.take(), receive.whole);
        if let Some((peer, connection)) = receive.expects.take() {
            core.expect_no_more(peer, connection);
        }
        let room = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let outcome = outcome.and_then(|status| match status.bytes > room as u64 {
            true => Err(RequestError::Truncated { status, room }),
            false => Ok(status),
        });
        self.complete(number, Completion { outcome, buffer, ticket: None });
        if let Some(whole) = whole {
            self.part_finished(whole);
        }
    }

    /// A request is complete.
    pub(super) fn complete(&mut self, number: u64, completion: Completion) {
        self.completed += 1;
        match self.requests.get_mut(number) {
            Some(Entry { is_orphan: true, .. }) => drop(self.requests.remove(number)),
            Some(entry) => {
                entry.stage = Stage::Done(completion);
                if entry.cookie.is_some() {
                    self.listed.push_back(number);
                }
            }
            None => {}
        }
    }

    /// The next request of the list that is complete: what the caller calls it, and what has become of it.
    #[inline]
    pub(super) fn next_listed(&mut self) -> Option<(u64, Completion)> {
        while let Some(number) = self.listed.pop_front() {
            // Otherwise somebody has asked for it by its number.
            if let Some(Entry { cookie: Some(cookie), stage: Stage::Done(completion), .. }) =
                self.requests.remove(number)
            {
                return Some((cookie, completion));
            }
        }
        None
    }

    /// Whether a request is complete, or there is none.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.requests.get(number).is_none_or(|entry| matches!(entry.stage, Stage::Done(_)))
    }

    /// What has become of a request, which is forgotten with that; `None` when it goes on, and an error when there is none.
    pub(super) fn outcome(&mut self, number: u64) -> Result<Option<Completion>, ()> {
        match self.requests.get(number) {
            Some(Entry { stage: Stage::Done(_), .. }) => {}
            Some(_) => return Ok(None),
            None => return Err(()),
        }
        match self.requests.remove(number) {
            Some(Entry { stage: Stage::Done(completion), .. }) => Ok(Some(completion)),
            _ => Err(()),
        }
    }

    /// Ends a request that no message has matched; `false` when one has, or it is complete.
    pub(super) fn cancel(&mut self, core: &mut Core, number: u64) -> bool {
        if self.end_many(core, number, RequestError::Cancelled) {
            return true;
        }
        let Some(Receive { at: At::Posted(posted, _), .. }) = self.receive_mut(number) else { return false };
        let posted = *posted;
        self.matching.cancel(posted);
        self.finish(core, number, Err(RequestError::Cancelled));
        true
    }

    /// Nobody will ask what became of a request.
    pub(super) fn let_go(&mut self, core: &mut Core, number: u64) {
        self.cancel(core, number);
        match self.requests.get_mut(number) {
            Some(Entry { stage: Stage::Done(_), .. }) => drop(self.requests.remove(number)),
            Some(entry) => entry.is_orphan = true,
            None => {}
        }
    }

    /// The first message that waits and fits the pattern.
    pub(super) fn probe(&self, core: &Core, pattern: &Pattern) -> Option<(usize, Status)> {
        let at = self.matching.find(&wanted(core, pattern))?;
        let key = *self.matching.message(at)?;
        Some((at, self.messages.get(key)?.status))
    }

    /// Takes the first message that fits the pattern out of matching, and returns its key.
    pub(super) fn claim(&mut self, core: &Core, pattern: &Pattern) -> Option<(usize, Status)> {
        let (at, status) = self.probe(core, pattern)?;
        let key = self.matching.take(at)?;
        self.messages[key].waits = None;
        Some((key, status))
    }

    /// Throws a claimed message away.
    pub(super) fn discard(&mut self, core: &mut Core, key: u64) {
        let receive = self.receive_kept(core, key as usize, Buffer::default(), None);
        self.let_go(core, receive);
    }

    /// Keeps a message until somebody receives it.
    pub(super) fn keep(&mut self, core: &mut Core, status: Status, stored: Stored) -> usize {
        core.charge(KEPT_BYTES);
        let key = self.messages.insert(Kept { status, stored, waits: None });
        self.messages[key].waits = Some(self.matching.keep(status.peer.0, status.tag, key));
        key
    }

    /// Drops a message that will never be whole.
    pub(super) fn drop_kept(&mut self, core: &mut Core, key: usize) {
        if let Some(Kept { waits, stored, .. }) = self.messages.try_remove(key) {
            if let Some(at) = waits {
                self.matching.take(at);
            }
            if let Stored::Whole(payload) = stored {
                core.release_message(payload);
            }
            core.discharge(KEPT_BYTES);
        }
    }

    /// A peer is gone: fails every receive and every send that needs it, and forgets what it had offered.
    pub(super) fn on_failed(&mut self, core: &mut Core, failure: Box<Failure>) {
        let peer = failure.peer;
        let hit: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, entry)| match &entry.stage {
                Stage::Receive(Receive { at, .. }) => match at {
                    At::Posted(_, wanted) => wanted.source == Some(peer.0),
                    At::Granted { status, .. } => status.peer == peer,
                    At::Lost(source) => *source == peer,
                    // Of this peer, it would have been lost.
                    At::New | At::Placing(_) => false,
                },
                Stage::Many(many) => many.is_posted_for(peer),
                Stage::Send(offered) => offered.status.peer == peer && !offered.is_wanted(),
                Stage::Lent(lent) => lent.has_failed(core),
                Stage::Done(_) => false,
            })
            .map(|(number, _)| number)
            .collect();
        for number in hit {
            let error = RequestError::Peer(failure.clone());
            match self.requests.get(number).map(|entry| &entry.stage) {
                Some(Stage::Receive(receive)) => {
                    if let At::Posted(posted, _) = receive.at {
                        self.matching.cancel(posted);
                    }
                    self.finish(core, number, Err(error));
                }
                Some(Stage::Many(_)) => drop(self.end_many(core, number, error)),
                Some(Stage::Lent(_)) => self.fail_lent(number, error),
                _ => self.fail_send(core, number, error),
            }
        }
        let of_peer = |kept: &Kept| {
            kept.status.peer == peer && matches!(kept.stored, Stored::Offered(_) | Stored::Lost)
        };
        let hit: Vec<usize> =
            self.messages.iter().filter(|(_, kept)| of_peer(kept)).map(|(key, _)| key).collect();
        for key in hit {
            if self.messages[key].waits.is_some() {
                self.drop_kept(core, key);
            } else {
                self.messages[key].stored = Stored::Gone(failure.clone());
            }
        }
        self.drop_outgoing(core, peer, &RequestError::Peer(failure.clone()));
        if self.failures.len() >= FAILURES_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back(*failure);
    }

    /// Messages that no receive was posted for fill the memory. Their senders wait, and so does this process, which may have
    /// other receives to post; if it has none, this line is all that tells why nothing happens.
    pub(super) fn tell_of_full_memory(&mut self, held: u64, limit: u64) {
        if !std::mem::replace(&mut self.has_told_of_full_memory, true) {
            tracing::warn!(
                channel = self.channel,
                held_bytes = held,
                limit_bytes = limit,
                "messages that no receive was posted for fill the memory, and their senders wait; post receives for them, or raise \
                 Config::receive_bytes"
            );
        }
    }

    /// Gives everything back that belongs to the endpoint.
    pub(super) fn close(&mut self, core: &mut Core) {
        let keys: Vec<usize> = self.messages.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.drop_kept(core, key);
        }
        let numbers: Vec<u64> = self.requests.iter().map(|(number, _)| number).collect();
        for number in numbers {
            self.fail_send(core, number, RequestError::Cancelled);
            self.end_many(core, number, RequestError::Cancelled);
            self.finish(core, number, Err(RequestError::Cancelled));
            self.requests.remove(number);
        }
        let peers: Vec<u32> = self.outgoing.keys().copied().collect();
        for peer in peers {
            self.drop_outgoing(core, PeerId(peer), &RequestError::Cancelled);
        }
    }
}

/// Why nothing can come from the source of such a receive, as far as is known: it is gone or does not exist.
pub(super) fn refused(core: &Core, pattern: &Pattern) -> Option<RequestError> {
    match pattern.source.map(|peer| core.may_post(peer, 0)) {
        Some(Err(SendError::Peer(failure))) => Some(RequestError::Peer(failure)),
        Some(Err(SendError::NoSuchPeer(peer))) => Some(RequestError::NoSuchPeer(peer)),
        _ => None,
    }
}

/// Which messages fit a pattern.
pub(super) fn wanted(core: &Core, pattern: &Pattern) -> Wanted {
    Wanted {
        source: pattern.source.map(|peer| core.canonical(peer).0),
        tag: pattern.tag,
        ignore: pattern.ignore,
    }
}

/// Failures that are kept for whoever asks; the oldest are forgotten first.
const FAILURES_MAX: usize = 256;
