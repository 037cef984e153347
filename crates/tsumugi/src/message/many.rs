//! A receive for several messages, which fill one buffer one behind the other.
//!
//! Each message that matches it becomes a receive of its own, for a part of the buffer. When the room left is less than
//! a message must have, and every part is complete, the receive ends as [`RequestError::Filled`].

use super::entry::{At, Entry, Many, Receive, Stage};
use super::matching::Wanted;
use super::port_state::{PortState, refused, wanted};
use super::request::{Completion, Pattern, RequestError};
use crate::buffer::Buffer;
use crate::endpoint::core::Core;

impl PortState {
    /// Posts a receive for several messages, and returns its number.
    pub(super) fn receive_many(
        &mut self,
        core: &mut Core,
        pattern: Pattern,
        buffer: Buffer,
        least: usize,
        cookie: u64,
    ) -> u64 {
        self.take_in(core);
        let wanted = wanted(core, &pattern);
        let many =
            Many { rest: buffer, least: least.max(1), posted: None, parts: 0, ended: None, expects: None };
        let number = self.requests.insert(Entry::new(Some(cookie), Stage::Many(many)));
        while self.many(number).is_some_and(|many| many.rest.len() >= many.least) {
            let Some(key) = self.take_kept(&wanted) else {
                match refused(core, &pattern) {
                    Some(error) => drop(self.end_many(core, number, error)),
                    None => self.post_many(core, number, &pattern, wanted),
                }
                return number;
            };
            let bytes = self.messages.get(key).map_or(0, |kept| kept.status.bytes);
            if let Some(part) = self.part(number, bytes) {
                self.hand_out(core, key, part);
            }
        }
        self.fill_up(core, number);
        number
    }

    fn many(&mut self, number: u64) -> Option<&mut Many> {
        match self.requests.get_mut(number) {
            Some(Entry { stage: Stage::Many(many), .. }) => Some(many),
            _ => None,
        }
    }

    fn post_many(&mut self, core: &mut Core, number: u64, pattern: &Pattern, wanted: Wanted) {
        let expects = self.expect(core, pattern);
        let posted = self.matching.post(wanted, number);
        if let Some(many) = self.many(number) {
            (many.posted, many.expects) = (Some((posted, wanted)), expects);
        }
    }

    /// A part of the buffer becomes a receive of its own, for a message of `bytes`.
    fn part(&mut self, number: u64, bytes: u64) -> Option<u64> {
        let cookie = self.requests.get(number)?.cookie;
        let many = self.many(number)?;
        many.parts += 1;
        let buffer = many.rest.split_front(usize::try_from(bytes).unwrap_or(usize::MAX));
        let receive = Receive { buffer: Some(buffer), at: At::New, expects: None, whole: Some(number) };
        Some(self.insert(receive, cookie))
    }

    /// The receive that a message of `bytes` matches. One for several stays where it waits as long as it has room.
    pub(super) fn match_receive(
        &mut self,
        core: &mut Core,
        source: u32,
        tag: u64,
        bytes: u64,
    ) -> Option<u64> {
        let (number, posted) = self.matching.first(source, tag)?;
        if self.many(number).is_none() {
            self.matching.cancel(posted);
            return Some(number);
        }
        let part = self.part(number, bytes);
        if self.many(number).is_some_and(|many| many.rest.len() < many.least) {
            self.fill_up(core, number);
        }
        part
    }

    /// No more messages fit.
    fn fill_up(&mut self, core: &mut Core, number: u64) {
        let room = self.many(number).map_or(0, |many| many.rest.len());
        self.end_many(core, number, RequestError::Filled { room });
    }

    /// A receive for several messages matches no more of them. `false` if it is none, or has ended.
    pub(super) fn end_many(&mut self, core: &mut Core, number: u64, error: RequestError) -> bool {
        let Some(many) = self.many(number).filter(|many| many.ended.is_none()) else { return false };
        many.ended = Some(error);
        let (posted, expects) = (many.posted.take(), many.expects.take());
        if let Some((posted, _)) = posted {
            self.matching.cancel(posted);
        }
        if let Some((peer, connection)) = expects {
            core.expect_no_more(peer, connection);
        }
        self.complete_many(number);
        true
    }

    /// One of its messages is complete.
    pub(super) fn part_finished(&mut self, number: u64) {
        if let Some(many) = self.many(number) {
            many.parts -= 1;
            self.complete_many(number);
        }
    }

    fn complete_many(&mut self, number: u64) {
        let Some(many) = self.many(number).filter(|many| many.parts == 0) else { return };
        let Some(error) = many.ended.take() else { return };
        let rest = std::mem::take(&mut many.rest);
        self.complete(number, Completion { outcome: Err(error), buffer: Some(rest), ticket: None });
    }
}
