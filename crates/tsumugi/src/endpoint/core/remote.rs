//! Our operations on the memory of others: what departs for them, and what comes back.

use super::{Core, Ended};
use crate::endpoint::peer::operations::TooMuch;
use crate::endpoint::peer::operations::{BulkTransfer, Promise};
use crate::endpoint::peer::operations::{NUMBER_BITS, NUMBER_MASK};
use crate::error::SendError;
use crate::remote::outcome::Refusal;
use crate::ticket::Ticket;
use crate::{PeerId, Target};
use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::{Region, Slice};
use tsumugi_wire::Instant;
use tsumugi_wire::frame::{REMOTE_BYTES, RemoteFrame};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::remote::{Atomic, Notice, Opcode, RemoteStatus};

/// Operations of one peer that may wait for replies at once.
pub(super) const OPERATIONS_MAX: usize = 1024;

impl Core {
    /// Longest write to a peer that is short, bytes. It does not become less while the peer is connected: what a path that carries
    /// less than both take cannot carry whole goes in pieces.
    pub(crate) fn short_write_bytes(&self, id: PeerId) -> usize {
        let PeerId(index) = self.canonical(id);
        if self.peers.get(index as usize).is_none() {
            return 0;
        }
        self.agreed_body_bytes(index) - REMOTE_BYTES
    }

    /// Writes what is in `from` to memory of a peer. Returns the message's number, for [`Core::is_delivered`].
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_write(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Target,
        from: &Slice,
    ) -> Result<u64, SendError> {
        let id = self.canonical(id);
        self.may_post(id, 0)?;
        if from.bytes() <= self.short_write_bytes(id) {
            let mut data = self.pool.take(from.bytes()).ok_or(SendError::NoMemory(from.bytes()))?;
            let read = from.append(0, from.bytes(), &mut data).map_err(SendError::Memory);
            let written = read.and_then(|()| self.remote_write_bytes(now, id, to, &data));
            self.pool.give(data);
            return written;
        }
        let Target { key, address } = to;
        let operation = self.next_operation(id.0);
        let transfer = BulkTransfer::write(key, address, operation, from.clone());
        self.queue_bulk_transfer(id.0, transfer, self.peers[id.0 as usize].outbox.next_number());
        Ok(self.accepted(now, id.0))
    }

    /// Writes a copy of bytes to memory of a peer.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_write_bytes(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Target,
        data: &[u8],
    ) -> Result<u64, SendError> {
        let id = self.canonical(id);
        self.may_post(id, 0)?;
        if data.len() <= self.short_write_bytes(id) {
            return self.request(now, id.0, Opcode::Write, to, data);
        }
        let copy = Region::new(data.len()).map_err(|_| SendError::NoMemory(data.len()))?;
        // As long as its data.
        let _ = copy.write(0, data);
        self.remote_write(now, id, to, &copy.all())
    }

    /// Writes what is in `from` to memory of a peer, and has its process told by a handler when all of it is there. Both
    /// are accepted or, with an error, neither is. Returns the number of the second message.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_write_and_notify(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Target,
        from: &Slice,
        handler: u64,
    ) -> Result<u64, SendError> {
        let write = |core: &mut Core, id| core.remote_write(now, id, to, from);
        self.and_notify(now, id, to, from.bytes(), handler, write)
    }

    /// The same of a copy of bytes.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_write_bytes_and_notify(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Target,
        data: &[u8],
        handler: u64,
    ) -> Result<u64, SendError> {
        let write = |core: &mut Core, id| core.remote_write_bytes(now, id, to, data);
        self.and_notify(now, id, to, data.len(), handler, write)
    }

    fn and_notify(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Target,
        bytes: usize,
        handler: u64,
        write: impl FnOnce(&mut Core, PeerId) -> Result<u64, SendError>,
    ) -> Result<u64, SendError> {
        let id = self.canonical(id);
        self.may_post(id, 0)?;
        // Behind a write that is queued, nothing may fail: neither for want of room in the queue nor for want of memory.
        let spare = self.spare_packet(id.0)?;
        write(self, id)?;
        let notice = Notice { handler, bytes: bytes as u64 }.encode();
        let operation = self.next_operation(id.0);
        let remote =
            RemoteFrame { opcode: Opcode::Notify as u16, key: to.key, address: to.address, operation };
        let messages = self.peers[id.0 as usize].outbox.next_number();
        self.queue_frame_in(id.0, &remote.encode(notice.len() as u32), [&notice, &[]], messages, spare);
        Ok(self.accepted(now, id.0))
    }

    /// Reads memory of a peer. The promise is kept when all of it is there.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_read(
        &mut self,
        now: Instant,
        id: PeerId,
        from: Target,
        into: &Slice,
    ) -> Result<Promise, SendError> {
        let bytes = into.bytes() as u64;
        self.ask_remote(now, id, Opcode::Read, from, &bytes.to_le_bytes(), Some(into.clone()))
    }

    /// An atomic operation on a word of a peer. The promise is kept with what the word was.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_atomic(
        &mut self,
        now: Instant,
        id: PeerId,
        at: Target,
        atomic: Atomic,
    ) -> Result<Promise, SendError> {
        self.ask_remote(now, id, Opcode::Atomic, at, &atomic.encode(), None)
    }

    /// The promise is kept when everything sent to the peer before has been done.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn remote_fence(&mut self, now: Instant, id: PeerId) -> Result<Promise, SendError> {
        self.ask_remote(now, id, Opcode::Fence, Target { key: 0, address: 0 }, &[], None)
    }

    fn ask_remote(
        &mut self,
        now: Instant,
        id: PeerId,
        opcode: Opcode,
        at: Target,
        data: &[u8],
        into: Option<Slice>,
    ) -> Result<Promise, SendError> {
        let id = self.canonical(id);
        self.may_post(id, 0)?;
        if self.peers[id.0 as usize].operations.pending() >= OPERATIONS_MAX {
            return Err(SendError::WouldBlock);
        }
        let operation = self.next_operation(id.0);
        self.request(now, id.0, opcode, at, data)?;
        Ok(self.peers[id.0 as usize].operations.expect(operation, into))
    }

    fn request(
        &mut self,
        now: Instant,
        index: u32,
        opcode: Opcode,
        at: Target,
        data: &[u8],
    ) -> Result<u64, SendError> {
        let (room, bytes) = (self.short_write_bytes(PeerId(index)), data.len());
        if bytes > room {
            return Err(SendError::TooLong { bytes: bytes as u64, limit: room as u64 });
        }
        let operation = self.next_operation(index);
        let remote = RemoteFrame { opcode: opcode as u16, key: at.key, address: at.address, operation };
        let messages = self.peers[index as usize].outbox.next_number();
        self.queue_frame(index, &remote.encode(bytes as u32), [data, &[]], messages)?;
        Ok(self.accepted(now, index))
    }

    /// An operation is named by the number of its message, and the connection: a reply may wait for longer than that
    /// lasts, and must not be taken for another's.
    fn next_operation(&self, index: u32) -> u64 {
        let peer = &self.peers[index as usize];
        u64::from(peer.connection.number) << NUMBER_BITS | peer.outbox.next_number() & NUMBER_MASK
    }

    pub(super) fn queue_bulk_transfer(&mut self, index: u32, transfer: BulkTransfer, messages: u64) {
        let peer = &mut self.peers[index as usize];
        peer.outbox.push_transfer(transfer, messages);
    }

    /// A write was refused, by the other side or by our own memory.
    pub(super) fn was_refused(&mut self, index: u32, number: u64, status: RemoteStatus) {
        let ticket = Ticket::new(PeerId(index), self.peers[index as usize].connection.number, number);
        self.rma.push_refusal(Refusal::new(ticket, status));
    }

    /// Something came of an operation of ours.
    pub(super) fn on_reply(&mut self, index: u32, remote: &RemoteFrame, data: &[u8]) -> Result<(), Ended> {
        let Some(status) = RemoteStatus::from_number(remote.key) else {
            return Err(self.violation(index, "a reply that says nothing known"));
        };
        let peer = &mut self.peers[index as usize];
        match peer.operations.on_reply(remote, status, data) {
            Some(Ok(())) => return Ok(()),
            Some(Err(TooMuch)) => return Err(self.violation(index, "more data than was asked for")),
            None => {}
        }
        if remote.operation >> NUMBER_BITS != u64::from(peer.connection.number) & (u64::MAX >> NUMBER_BITS) {
            return Ok(()); // whoever asked has been told that no reply will come
        }
        let number = remote.operation & NUMBER_MASK;
        if status == RemoteStatus::Done || number > peer.outbox.accepted() {
            self.memory.count(Counter::Violation, 1);
        } else {
            self.was_refused(index, number, status);
        }
        Ok(())
    }
}
