//! Segments: memory with a name that peers store into and get from.

use super::error::{RequestError, Unanswered};
use super::format::{Code, Head, Kind, SegmentPlace};
use super::reply::{Answer, Reply, Request};
use super::{ActiveMessages, Asked};
use crate::error::NameError;
use crate::{PeerId, registry};
use std::ops::Range;
use tsumugi_rail::copy;

impl<S> ActiveMessages<S> {
    /// Registers memory that peers may store into and get from, under a name.
    ///
    /// # Errors
    /// The name is taken by another segment, or looks like one on the wire.
    pub fn register_segment(&mut self, name: &str, memory: Vec<u8>) -> Result<(), NameError> {
        self.segments.register(name, memory)
    }

    /// Takes a segment back. Peers that use it from now on are refused.
    pub fn remove_segment(&mut self, name: &str) -> Option<Vec<u8>> {
        self.segments.remove(name)
    }

    /// A segment's memory.
    #[must_use]
    pub fn segment(&self, name: &str) -> Option<&[u8]> {
        self.segments.get(registry::hash(name)).map(Vec::as_slice)
    }

    /// A segment's memory.
    pub fn segment_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        self.segments.get_mut(registry::hash(name)).map(Vec::as_mut_slice)
    }

    /// Stores data in the peer's segment, `offset` bytes from its beginning, and then runs a handler there, which sees
    /// them where they are. Waits as [`ActiveMessages::request`] does.
    ///
    /// # Errors
    /// As [`ActiveMessages::request_bulk`].
    pub fn store(
        &mut self,
        peer: PeerId,
        (segment, offset): (&'static str, u64),
        data: &[u8],
        handler: &'static str,
        words: [u64; 4],
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        self.wait_for_room(None, peer, data.len())?;
        let place = SegmentPlace { segment: registry::hash(segment), offset }.encode();
        let hash = registry::hash(handler);
        let asked = Asked { kind: Kind::Store, handler, segment, hash, words, place: &place };
        self.ask(peer, asked, data, Box::new(then))
    }

    /// Fetches `bytes` of the peer's segment from `offset` on; they are the answer's data. Waits as
    /// [`ActiveMessages::request`] does. No handler runs there.
    ///
    /// # Errors
    /// As [`ActiveMessages::request`]; more bytes than [`super::ActiveMessageOptions::bulk_bytes`].
    pub fn get(
        &mut self,
        peer: PeerId,
        (segment, offset): (&'static str, u64),
        bytes: usize,
        then: impl FnOnce(&mut S, Result<Answer<'_>, Unanswered>) + 'static,
    ) -> Result<(), RequestError> {
        let limit = self.flow_control.options.bulk_bytes;
        if bytes > limit {
            return Err(RequestError::TooLong { bytes: bytes as u64, limit: limit as u64 });
        }
        self.wait_for_room(None, peer, 0)?;
        let hash = registry::hash(segment);
        let words = [offset, bytes as u64, 0, 0];
        let asked = Asked { kind: Kind::Get, handler: segment, segment, hash, words, place: &[] };
        self.ask(peer, asked, &[], Box::new(then))
    }

    pub(super) fn on_store(&mut self, source: PeerId, head: &Head, data: &[u8]) {
        let limit = self.flow_control.options.bulk_bytes;
        let Some((place, data)) = SegmentPlace::decode(data) else {
            self.flow_control.violated();
            return;
        };
        // Without the handler nobody here would be told: nothing is stored.
        let Some(handler) = self.handlers.get_mut(head.handler) else {
            self.flow_control.refuse(source, head.number, Code::Handler, 0);
            return;
        };
        let Some(segment) = self.segments.get_mut(place.segment) else {
            self.flow_control.refuse(source, head.number, Code::Segment, 0);
            return;
        };
        if data.len() > limit {
            self.flow_control.refuse(source, head.number, Code::TooLong, limit as u64);
            return;
        }
        let Some(range) = range(segment, place.offset, data.len() as u64) else {
            self.flow_control.refuse(source, head.number, Code::Bounds, segment.len() as u64);
            return;
        };
        copy::fill(data, &mut segment[range.clone()]);
        let request =
            Request { source, words: head.words, data: &segment[range], offset: Some(place.offset) };
        handler(&mut self.state, request, Reply::new(&mut self.flow_control, source, head.number));
    }

    pub(super) fn on_get(&mut self, source: PeerId, head: &Head) {
        let [offset, bytes, ..] = head.words;
        let Some(segment) = self.segments.get(head.handler) else {
            self.flow_control.refuse(source, head.number, Code::Segment, 0);
            return;
        };
        let Some(range) = range(segment, offset, bytes) else {
            self.flow_control.refuse(source, head.number, Code::Bounds, segment.len() as u64);
            return;
        };
        // Refused when it is too long, and of no use to a requester that is gone.
        let _ = self.flow_control.answer(source, head.number, [0; 4], &segment[range]);
    }
}

/// The range, if it lies in the segment.
fn range(segment: &[u8], offset: u64, bytes: u64) -> Option<Range<usize>> {
    let end = offset.checked_add(bytes).filter(|end| *end <= segment.len() as u64)?;
    Some(offset as usize..end as usize)
}
