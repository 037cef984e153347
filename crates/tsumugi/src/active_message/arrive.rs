//! What arrives: requests run handlers, answers complete requests.

use super::error::Unanswered;
use super::format::{Code, Head, Kind};
use super::reply::{Answer, Reply, Request};
use super::{ActiveMessages, Outstanding};
use crate::PeerId;
use crate::channel::Message;
use crate::error::{Failure, ReceiveError};
use tsumugi_rail::RailError;
use tsumugi_wire::defect;

impl<S> ActiveMessages<S> {
    /// Handles what the endpoint has taken in. Returns how many messages there were.
    pub(super) fn handle_arrived(&mut self) -> Result<usize, RailError> {
        self.follow();
        let mut handled = 0;
        while let Some(delivery) = self.flow_control.channel.take() {
            handled += 1;
            match delivery {
                Ok(message) => self.on_message(&message),
                Err(ReceiveError::Peer(failure)) => self.on_failure(&failure),
                Err(_) => {}
            }
        }
        if handled > 0 {
            // Replies that share a packet should not wait for the next call.
            self.flow_control.channel.shared.transmit(self.flow_control.channel.shared.now())?;
        }
        Ok(handled)
    }

    /// Has what is outstanding be known by the number that its peer goes by.
    pub(super) fn follow(&mut self) {
        if self.flow_control.follow() {
            let inner = self.flow_control.channel.shared.inner.borrow();
            for (_, outstanding) in &mut self.requests {
                outstanding.ticket = inner.core.ticket_now(outstanding.ticket);
            }
        }
    }

    fn on_message(&mut self, message: &Message) {
        let source = message.source();
        let Some((head, data)) = Head::decode(message) else {
            self.flow_control.violated();
            return;
        };
        match head.kind {
            Kind::Reply | Kind::Refusal => self.on_answer(source, &head, data),
            Kind::Request | Kind::Store | Kind::Get if !self.flow_control.admit(source) => {
                self.flow_control.violated()
            }
            Kind::Request if defect!(RequestTwice) => {
                (0..2).for_each(|_| self.on_request(source, &head, data))
            }
            Kind::Request => self.on_request(source, &head, data),
            Kind::Store => self.on_store(source, &head, data),
            Kind::Get => self.on_get(source, &head),
        }
    }

    fn on_request(&mut self, source: PeerId, head: &Head, data: &[u8]) {
        let limit = self.flow_control.options.bulk_bytes;
        let Some(handler) = self.handlers.get_mut(head.handler) else {
            self.flow_control.refuse(source, head.number, Code::Handler, 0);
            return;
        };
        if data.len() > limit {
            self.flow_control.refuse(source, head.number, Code::TooLong, limit as u64);
            return;
        }
        let request = Request { source, words: head.words, data, offset: None };
        handler(&mut self.state, request, Reply::new(&mut self.flow_control, source, head.number));
    }

    fn on_answer(&mut self, source: PeerId, head: &Head, data: &[u8]) {
        let (key, sequence) = (head.number as u32 as usize, (head.number >> 32) as u32);
        let known = self.requests.get(key);
        if known.is_none_or(|known| known.sequence != sequence || known.ticket.peer() != source) {
            self.flow_control.violated();
            return;
        }
        let outstanding = self.requests.remove(key);
        self.flow_control.granted(outstanding.ticket, head.grant);
        let limit = self.flow_control.options.bulk_bytes;
        let answer = match head.kind {
            Kind::Refusal => Err(refusal(&outstanding, head)),
            _ if data.len() > limit => Err(Unanswered::ReplyTooLong { peer: source, limit: limit as u64 }),
            _ => Ok(Answer { source, words: head.words, data }),
        };
        self.complete(outstanding, answer);
    }

    /// Everything outstanding with a peer that is gone fails. What was sent to its successor since does not.
    fn on_failure(&mut self, failure: &Failure) {
        let present = self.flow_control.channel.shared.inner.borrow().core.connection(failure.peer);
        let lost = |outstanding: &Outstanding<S>| {
            outstanding.ticket.peer() == failure.peer && outstanding.ticket.connection() != present
        };
        let mut keys: Vec<(u32, usize)> = self
            .requests
            .iter()
            .filter(|(_, outstanding)| lost(outstanding))
            .map(|(key, outstanding)| (self.sequence.wrapping_sub(outstanding.sequence), key))
            .collect();
        // In the order in which they were sent.
        keys.sort_unstable_by(|one, other| other.cmp(one));
        for (_, key) in keys {
            let outstanding = self.requests.remove(key);
            self.complete(outstanding, Err(Unanswered::Peer(Box::new(failure.clone()))));
        }
    }

    fn complete(&mut self, outstanding: Outstanding<S>, answer: Result<Answer<'_>, Unanswered>) {
        self.flow_control.over(outstanding.ticket);
        (outstanding.then)(&mut self.state, answer);
    }
}

/// Why the peer refused the request.
fn refusal<S>(outstanding: &Outstanding<S>, head: &Head) -> Unanswered {
    let Outstanding { ticket, handler, segment, .. } = outstanding;
    let (peer, limit) = (ticket.peer(), head.words[0]);
    match Code::of(head.code) {
        Some(Code::Handler) => Unanswered::UnknownHandler { peer, name: handler },
        Some(Code::TooLong) => Unanswered::TooLong { peer, limit },
        Some(Code::ReplyTooLong) => Unanswered::ReplyTooLong { peer, limit },
        Some(Code::Segment) => Unanswered::UnknownSegment { peer, name: segment },
        Some(Code::Bounds) => Unanswered::OutOfBounds { peer, name: segment, bytes: limit },
        None => Unanswered::Nonsense(peer),
    }
}
