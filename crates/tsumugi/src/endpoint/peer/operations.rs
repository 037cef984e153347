//! Operations on memory under way: ours on a peer's, and what a peer's on ours have left.

use crate::PeerId;
use crate::context::{ContextError, SavedOutgoing};
use crate::remote::outcome::RemoteError;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use tsumugi_rail::{OutOfRegion, Region, Slice};
use tsumugi_wire::defect;
use tsumugi_wire::frame::{REMOTE_BYTES, RemoteFrame};
use tsumugi_wire::remote::{Opcode, RemoteStatus};

/// Bits of an operation's name that are its message's number; the others are the connection's.
pub(crate) const NUMBER_BITS: u32 = 40;

pub(crate) const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// What becomes of an operation: nothing yet, the former value of a word (0 if none was asked for), or an error.
pub type Promise = Rc<OnceCell<Result<u64, RemoteError>>>;

/// An operation of ours that waits for its reply.
#[derive(Debug)]
struct Pending {
    promise: Promise,
    /// Where what is read goes, and how much of it has not come.
    into: Option<Slice>,
    missing: u64,
}

/// Data that leave the process's memory packet by packet, as room appears: a long write, or the reply to a long read.
#[derive(Clone, Debug)]
pub(crate) struct BulkTransfer {
    opcode: Opcode,
    /// See [`RemoteFrame::key`].
    key: u64,
    /// Address of the first byte.
    address: u64,
    operation: u64,
    from: Slice,
    /// Bytes that have become packets.
    cut: usize,
}

impl BulkTransfer {
    /// A long write.
    pub(crate) fn write(key: u64, address: u64, operation: u64, from: Slice) -> BulkTransfer {
        BulkTransfer { opcode: Opcode::Piece, key, address, operation, from, cut: 0 }
    }

    /// The reply to an operation that reads `from`.
    pub(crate) fn reply(operation: u64, from: Slice) -> BulkTransfer {
        BulkTransfer {
            opcode: Opcode::Part,
            key: RemoteStatus::Done as u64,
            address: 0,
            operation,
            from,
            cut: 0,
        }
    }

    /// Bytes that have not become packets and count as waiting. Replies do not: nobody could wait for room for them.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        if self.is_reply() { 0 } else { (self.from.bytes() - self.cut) as u64 }
    }

    /// Whether it answers an operation of the other side.
    pub(crate) fn is_reply(&self) -> bool {
        self.opcode == Opcode::Part
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut == self.from.bytes()
    }

    /// What is left of it: the memory that it comes from stays behind.
    pub(crate) fn save(&self, messages: u64) -> SavedOutgoing {
        let mut data = Vec::new();
        // Within the slice, by how `cut` counts.
        let _ = self.from.append(self.cut, self.from.bytes() - self.cut, &mut data);
        let (opcode, key, operation) = (self.opcode as u16, self.key, self.operation);
        let address = self.address.wrapping_add(self.cut as u64);
        SavedOutgoing::BulkTransfer { opcode, key, address, operation, data, messages }
    }

    /// What was [saved](BulkTransfer::save), in memory of its own.
    pub(crate) fn restore(
        opcode: u16,
        key: u64,
        address: u64,
        operation: u64,
        data: &[u8],
    ) -> Result<BulkTransfer, ContextError> {
        let opcode = Opcode::from_number(opcode)
            .filter(|opcode| matches!(opcode, Opcode::Piece | Opcode::Part) && !data.is_empty())
            .ok_or_else(|| ContextError::Damaged("a long transfer that is none".to_owned()))?;
        let memory =
            Region::new(data.len()).map_err(|error| ContextError::NoMemory(data.len(), error.to_string()))?;
        // As long as its data.
        let _ = memory.write(0, data);
        Ok(BulkTransfer { opcode, key, address, operation, from: memory.all(), cut: 0 })
    }

    /// Appends the next frame, in a packet of at most `most` bytes, to `body`. Pieces are of one length, in runs that
    /// segmentation offload takes as one.
    ///
    /// The data are copied here: they may change until then, and not after, whatever is sent again. `false`: they are not
    /// there any more, and this was the last frame; it says so in place of a reply.
    pub(crate) fn next(&mut self, most: usize, body: &mut Vec<u8>) -> bool {
        let (all, most) = (self.from.bytes(), most - REMOTE_BYTES);
        let even = all.div_ceil(all.div_ceil(most).max(1)).next_multiple_of(8).min(most);
        let bytes = even.min(all - self.cut);
        let before = if defect!(PieceOutOfPlace) && !self.is_reply() { 0 } else { self.cut };
        let address = self.address.wrapping_add(before as u64);
        let remote =
            RemoteFrame { opcode: self.opcode as u16, key: self.key, address, operation: self.operation };
        body.extend_from_slice(&remote.encode(bytes as u32));
        // Within the slice, by how `cut` counts.
        if self.from.append(self.cut, bytes, body).is_ok() {
            self.cut += bytes;
            return true;
        }
        let remote = match self.opcode {
            Opcode::Part => {
                RemoteFrame { opcode: Opcode::Reply as u16, key: RemoteStatus::NotMapped as u64, ..remote }
            }
            _ => remote,
        };
        body.clear();
        body.extend_from_slice(&remote.encode(0));
        self.cut = all;
        false
    }

    /// The write's number among the messages.
    pub(crate) fn number(&self) -> u64 {
        self.operation & NUMBER_MASK
    }
}

/// Operations on memory, ours on its and its on ours.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// Operations on its memory that wait for replies, by number.
    pending: HashMap<u64, Pending>,
    /// Its long write that was refused last.
    refused: u64,
}

impl Operations {
    /// Operations that wait for replies.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// An operation waits for its reply: data into `into`, if it reads.
    pub(crate) fn expect(&mut self, operation: u64, into: Option<Slice>) -> Promise {
        let missing = into.as_ref().map_or(0, |slice| slice.bytes() as u64);
        let promise = Promise::default();
        self.pending.insert(operation, Pending { promise: Rc::clone(&promise), into, missing });
        promise
    }

    /// Whether an operation under way has the same number as one of another entry of the same peer.
    pub(crate) fn collides(&self, other: &Operations) -> bool {
        other.pending.keys().any(|operation| self.pending.contains_key(operation))
    }

    /// Takes over what is under way under another name of the same peer.
    pub(crate) fn absorb(&mut self, other: Operations) {
        self.pending.extend(other.pending);
    }

    /// Tells those who wait for replies that none will come.
    pub(crate) fn break_promises(&mut self, id: PeerId) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            let _ = pending.promise.set(Err(RemoteError::PeerGone(id)));
        }
    }

    /// Forgets them without a word.
    pub(crate) fn forget_promises(&mut self) {
        self.pending.clear();
    }

    /// A piece of its long write is refused. Returns whether it has been told of that already.
    pub(crate) fn refuse_again(&mut self, operation: u64) -> bool {
        std::mem::replace(&mut self.refused, operation) == operation
    }

    /// A reply has come. `None`: to no operation that waits.
    ///
    /// # Errors
    /// It brings more data than was asked for.
    pub(crate) fn on_reply(
        &mut self,
        remote: &RemoteFrame,
        status: RemoteStatus,
        data: &[u8],
    ) -> Option<Result<(), TooMuch>> {
        let pending = self.pending.get_mut(&remote.operation)?;
        let kept = match (&pending.into, status) {
            (Some(into), RemoteStatus::Done) => {
                let bytes = data.len() as u64;
                let at = usize::try_from(remote.address).unwrap_or(usize::MAX);
                let written = into.write(at, data);
                if bytes > pending.missing || matches!(written, Err(OutOfRegion::Beyond { .. })) {
                    return Some(Err(TooMuch));
                }
                if written.is_err() {
                    // Our memory is not there any more. Who waits is told now; what comes yet is taken all the same.
                    let _ = pending.promise.set(Err(RemoteError::refused(RemoteStatus::NotMapped)));
                }
                pending.missing -= bytes;
                (pending.missing == 0 || defect!(ReadHalfDone)).then_some(Ok(0))
            }
            (None, RemoteStatus::Done) => {
                Some(Ok(data.first_chunk().map_or(0, |value| u64::from_le_bytes(*value))))
            }
            (_, refused) => Some(Err(RemoteError::refused(refused))),
        };
        if let Some(kept) = kept
            && let Some(pending) = self.pending.remove(&remote.operation)
        {
            let _ = pending.promise.set(kept); // unless it was told already
        }
        Some(Ok(()))
    }
}

/// More data than was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooMuch;
