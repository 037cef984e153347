//! What handlers get: a request with the right to reply to it, or the answer to a request of one's own.

use super::error::ReplyError;
use super::flow_control::FlowControl;
use crate::PeerId;

/// A request that has arrived, as its handler sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Who asks.
    pub source: PeerId,
    /// Its words.
    pub words: [u64; 4],
    /// Its data: in the receive memory, or, when they were stored, where they are now in the segment.
    pub data: &'a [u8],
    /// Where the data was stored in its segment, bytes; `None` for a request without a store.
    pub offset: Option<u64>,
}

/// The answer to a request, as its completion sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// Who answers.
    pub source: PeerId,
    /// The reply's words; zeroes when the handler did not reply.
    pub words: [u64; 4],
    /// The reply's data, in the receive memory; what was fetched, for a get.
    pub data: &'a [u8],
}

/// The right to reply to one request, once. Whoever does not use it replies with nothing when it is dropped: the
/// requester learns that its request was handled, and has its token back.
///
/// Replying never waits: there is room for the reply to every request that may be outstanding.
pub struct Reply<'a> {
    flow_control: &'a mut FlowControl,
    source: PeerId,
    number: u64,
    used: bool,
}

impl<'a> Reply<'a> {
    pub(super) fn new(flow_control: &'a mut FlowControl, source: PeerId, number: u64) -> Reply<'a> {
        Reply { flow_control, source, number, used: false }
    }

    /// Replies with four words.
    ///
    /// # Errors
    /// The requester is gone.
    pub fn send(self, words: [u64; 4]) -> Result<(), ReplyError> {
        self.send_bulk(words, &[])
    }

    /// Replies with four words and data.
    ///
    /// # Errors
    /// The requester is gone; more data than [`super::ActiveMessageOptions::bulk_bytes`], which the requester is told.
    pub fn send_bulk(mut self, words: [u64; 4], data: &[u8]) -> Result<(), ReplyError> {
        self.used = true;
        self.flow_control.answer(self.source, self.number, words, data)
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if !self.used {
            // A requester that is gone needs no reply.
            let _ = self.flow_control.answer(self.source, self.number, [0; 4], &[]);
        }
    }
}
