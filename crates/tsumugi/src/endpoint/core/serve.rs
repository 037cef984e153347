//! What others do to our memory.
//!
//! # Invariants
//!
//! 1. No memory is read or written but what is registered under the key given, within its bounds, by its rights.
//! 2. A long write's pieces and a long reply's parts are done when they arrive, everything else in its turn; so who is
//!    told of a write, or has its fence answered, finds done what was sent before.
//! 3. What is done is done once, because a PSN is claimed once.
//! 4. What is refused is counted, and its sender told; of a long write once.

use super::remote::OPERATIONS_MAX;
use super::{Core, Ended};
use crate::PeerId;
use crate::endpoint::peer::operations::BulkTransfer;
use crate::endpoint::rma::status_of;
use crate::error::Reason;
use crate::remote::target::Rights;
use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::Slice;
use tsumugi_wire::Psn;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{REMOTE_BYTES, RemoteFrame};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::remote::{Opcode, RemoteStatus};

impl Core {
    /// A frame about remote memory that is alone in its packet and may be done at once: it is a part of a long write or
    /// reply, or has its turn. Its PSN has been claimed.
    pub(super) fn on_remote_at_once(
        &mut self,
        index: u32,
        psn: Psn,
        remote: &RemoteFrame,
        data: &[u8],
    ) -> Result<(), Ended> {
        self.on_remote(index, remote, data)?;
        let peer = &mut self.peers[index as usize];
        if psn == peer.receive.reorder.next() {
            peer.receive.reorder.pass();
            self.catch_up(index)
        } else {
            // An empty body has its turn, when there is nothing left to do.
            self.hold(index, psn, &[])
        }
    }

    /// Does what a frame says.
    pub(super) fn on_remote(&mut self, index: u32, remote: &RemoteFrame, data: &[u8]) -> Result<(), Ended> {
        let done = match Opcode::from_number(remote.opcode) {
            Some(Opcode::Write | Opcode::Piece) => self.rma.write(&self.memory, remote, data).map(|()| None),
            Some(Opcode::Notify) => self.rma.served.notify(PeerId(index), remote, data).map(|()| None),
            Some(Opcode::Atomic) => {
                defect!(AtomicTwice).then(|| self.rma.served.atomic(remote, data));
                self.rma.served.atomic(remote, data).map(Some)
            }
            Some(Opcode::Fence) => Ok(Some(0)),
            Some(Opcode::Read) => match self.asked_for(remote, data) {
                Ok(slice) => return self.serve_read(index, remote, slice),
                Err(refused) => Err(refused),
            },
            Some(Opcode::Reply | Opcode::Part) => return self.on_reply(index, remote, data),
            None => return Err(self.violation(index, "something unknown to be done to memory")),
        };
        match done {
            Ok(None) => Ok(()),
            Ok(Some(value)) => {
                self.reply_to(index, remote.operation, RemoteStatus::Done, &value.to_le_bytes())
            }
            Err(status) => self.refuse(index, remote, status),
        }
    }

    /// The memory that is to be read.
    fn asked_for(&self, remote: &RemoteFrame, data: &[u8]) -> Result<Slice, RemoteStatus> {
        let bytes = <[u8; 8]>::try_from(data).map(u64::from_le_bytes).map_err(|_| RemoteStatus::Malformed)?;
        let (region, at) = self.rma.served.find(remote, bytes, Rights::READ)?;
        region.slice(at..at + bytes as usize).map_err(status_of)
    }

    fn serve_read(&mut self, index: u32, remote: &RemoteFrame, slice: Slice) -> Result<(), Ended> {
        if REMOTE_BYTES + slice.bytes() <= self.body_bytes(index) {
            let mut copy = self.room_for(index, slice.bytes())?;
            let status =
                slice.append(0, slice.bytes(), &mut copy).map_or_else(status_of, |()| RemoteStatus::Done);
            let outcome = self.reply_to(index, remote.operation, status, &copy);
            self.pool.give(copy);
            return outcome;
        }
        let peer = &mut self.peers[index as usize];
        if peer.outbox.replies() >= OPERATIONS_MAX {
            return self.refuse(index, remote, RemoteStatus::TooMany);
        }
        let messages = peer.outbox.accepted();
        self.queue_bulk_transfer(index, BulkTransfer::reply(remote.operation, slice), messages);
        self.schedule(index);
        Ok(())
    }

    /// Counts what was not done, and tells its sender.
    fn refuse(&mut self, index: u32, remote: &RemoteFrame, status: RemoteStatus) -> Result<(), Ended> {
        self.memory.count(Counter::RemoteRefused, 1);
        let peer = &mut self.peers[index as usize];
        if remote.opcode == Opcode::Piece as u16 && peer.operations.refuse_again(remote.operation) {
            return Ok(()); // it has been told
        }
        self.reply_to(index, remote.operation, status, &[])
    }

    /// Replies in a packet.
    fn reply_to(
        &mut self,
        index: u32,
        operation: u64,
        status: RemoteStatus,
        data: &[u8],
    ) -> Result<(), Ended> {
        let peer = &self.peers[index as usize];
        // A peer asks for no more than it may wait for; one that does all the same does not make us grow.
        let most = OPERATIONS_MAX as u64 * self.body_bytes(index) as u64;
        if peer.outbox.bytes() > self.options.send_bytes + most {
            return Err(self.violation(index, "it asks for more than it takes"));
        }
        let messages = peer.outbox.accepted();
        let head = RemoteFrame { opcode: Opcode::Reply as u16, key: status as u64, address: 0, operation }
            .encode(data.len() as u32);
        if self.queue_frame(index, &head, [data, &[]], messages).is_err() {
            return Err(Ended(index, Reason::NoMemory(data.len() as u64)));
        }
        self.schedule(index);
        Ok(())
    }
}
