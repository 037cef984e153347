//! What others do to our memory.
//!
//! # Invariants
//!
//! 1. No memory is read or written but what is registered under the key given, within its bounds, by its rights.
//! 2. A long write's pieces and a long reply's parts are done when they arrive, everything else in its turn; so who is
//!    told of a write, or has its fence answered, finds done what was sent before.
//! 3. What is done is done once, because a PSN is claimed once.
//! 4. What is refused is counted, and its sender told; of a long write once.

use super::State;
use super::remote::OPERATIONS_MAX;
use crate::PeerId;
use crate::endpoint::peer::rma::BulkTransfer;
use crate::error::Reason;
use crate::remote::{Notification, Rights};
use std::collections::{HashMap, VecDeque};
use tsumugi_proto::ReceiveMemory;
use tsumugi_rail::region::AtomicError;
use tsumugi_rail::{OutOfRegion, Region, Slice};
use tsumugi_wire::Psn;
use tsumugi_wire::defect;
use tsumugi_wire::frame::{REMOTE_BYTES, RemoteFrame};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::remote::{Atomic, Notice, Opcode, RemoteStatus};

/// Notifications of one registration that wait to be taken, at most; the next ones are refused.
const NOTIFICATIONS_MAX: usize = 1 << 12;

/// The memory that others may reach, and what they told us of it.
#[derive(Debug, Default)]
pub(crate) struct Served {
    registered: HashMap<u64, Registered>,
    /// Keys of notifications that wait, in the order in which they came.
    notified: VecDeque<u64>,
}

#[derive(Debug)]
struct Registered {
    slice: Slice,
    /// What others call its first byte.
    base: u64,
    rights: Rights,
    notifications: VecDeque<Notification>,
}

impl Served {
    /// Lets others reach memory by a key, and by addresses that begin at `base`.
    pub(crate) fn register(&mut self, key: u64, base: u64, slice: Slice, rights: Rights) {
        self.registered.insert(key, Registered { slice, base, rights, notifications: VecDeque::new() });
    }

    /// What has arrived is done; nothing more will be.
    pub(crate) fn revoke(&mut self, key: u64) {
        self.registered.remove(&key);
        self.notified.retain(|other| *other != key);
    }

    pub(crate) fn is_key(&self, key: u64) -> bool {
        self.registered.contains_key(&key)
    }

    /// The region, and the place in it of `bytes` at an address.
    fn find(
        &self,
        remote: &RemoteFrame,
        bytes: u64,
        rights: Rights,
    ) -> Result<(&Region, usize), RemoteStatus> {
        let Registered { slice, base, rights: given, .. } =
            self.registered.get(&remote.key).ok_or(RemoteStatus::NoSuchKey)?;
        if !given.has(rights) {
            return Err(RemoteStatus::NotPermitted);
        }
        let region = slice.region();
        let ahead = remote.address.checked_sub(*base).ok_or(RemoteStatus::OutOfBounds)?;
        let length = slice.bytes() as u64;
        if bytes > length || ahead > length - bytes {
            return Err(RemoteStatus::OutOfBounds);
        }
        Ok((region, slice.at() + ahead as usize))
    }

    fn write(&self, remote: &RemoteFrame, data: &[u8]) -> Result<(), RemoteStatus> {
        let (region, at) = self.find(remote, data.len() as u64, Rights::WRITE)?;
        // A short write may be a flag that another thread waits for. Of a long one nothing is promised before all is there.
        let written = match Opcode::from_number(remote.opcode) {
            Some(Opcode::Piece) => region.write(at, data),
            _ => region.write_words(at, data),
        };
        written.map_err(status_of)
    }

    fn atomic(&self, remote: &RemoteFrame, data: &[u8]) -> Result<u64, RemoteStatus> {
        let atomic = Atomic::decode(data).ok_or(RemoteStatus::Malformed)?;
        let (region, at) = self.find(remote, atomic.word.bytes() as u64, Rights::ATOMIC)?;
        region.atomic(at, &atomic).map_err(|error| match error {
            AtomicError::Outside(error) => status_of(error),
            AtomicError::Misaligned { .. } => RemoteStatus::Misaligned,
        })
    }

    fn notify(&mut self, source: PeerId, remote: &RemoteFrame, data: &[u8]) -> Result<(), RemoteStatus> {
        let Notice { handler, bytes } = Notice::decode(data).ok_or(RemoteStatus::Malformed)?;
        let (region, at) = self.find(remote, bytes, Rights::WRITE)?;
        let slice = region.slice(at..at + bytes as usize).map_err(status_of)?;
        let registered = self.registered.get_mut(&remote.key).ok_or(RemoteStatus::NoSuchKey)?;
        if registered.notifications.len() >= NOTIFICATIONS_MAX {
            return Err(RemoteStatus::TooMany);
        }
        registered.notifications.push_back(Notification { source, handler, slice });
        self.notified.push_back(remote.key);
        Ok(())
    }

    /// Takes the next notification about what is registered under a key.
    pub(crate) fn take_notification(&mut self, key: u64) -> Option<Notification> {
        let notification = self.registered.get_mut(&key)?.notifications.pop_front()?;
        if let Some(at) = self.notified.iter().position(|notified| *notified == key) {
            self.notified.remove(at);
        }
        Some(notification)
    }

    /// Takes the next notification of all.
    pub(crate) fn take_any_notification(&mut self) -> Option<(u64, Notification)> {
        let key = self.notified.pop_front()?;
        Some((key, self.registered.get_mut(&key)?.notifications.pop_front()?))
    }
}

/// What the other side is told of something that is not in a region.
fn status_of(error: OutOfRegion) -> RemoteStatus {
    match error {
        OutOfRegion::Beyond { .. } => RemoteStatus::OutOfBounds,
        OutOfRegion::Unmapped { .. } => RemoteStatus::NotMapped,
    }
}

impl State {
    /// A frame about remote memory that is alone in its packet and may be done at once: it is a part of a long write or
    /// reply, or has its turn. Its PSN has been claimed.
    pub(super) fn on_remote_at_once(&mut self, index: u32, psn: Psn, remote: &RemoteFrame, data: &[u8]) {
        if !self.on_remote(index, remote, data) {
            return;
        }
        let peer = &mut self.peers[index as usize];
        if psn == peer.receive.reorder.next() {
            peer.receive.reorder.pass();
            self.catch_up(index);
        } else {
            // An empty body has its turn, when there is nothing left to do.
            self.hold(index, psn, &[]);
        }
    }

    /// Does what a frame says. `false` when that ended the connection.
    pub(super) fn on_remote(&mut self, index: u32, remote: &RemoteFrame, data: &[u8]) -> bool {
        let done = match Opcode::from_number(remote.opcode) {
            Some(Opcode::Write | Opcode::Piece) => self.serve_write(remote, data).map(|()| None),
            Some(Opcode::Notify) => self.served.notify(PeerId(index), remote, data).map(|()| None),
            Some(Opcode::Atomic) => {
                defect!(AtomicTwice).then(|| self.served.atomic(remote, data));
                self.served.atomic(remote, data).map(Some)
            }
            Some(Opcode::Fence) => Ok(Some(0)),
            Some(Opcode::Read) => match self.serve_read(index, remote, data) {
                Ok(going_on) => return going_on,
                Err(refused) => Err(refused),
            },
            Some(Opcode::Reply | Opcode::Part) => return self.on_reply(index, remote, data),
            None => {
                self.violated(index, "something unknown to be done to memory");
                return false;
            }
        };
        match done {
            Ok(None) => true,
            Ok(Some(value)) => {
                self.reply_to(index, remote.operation, RemoteStatus::Done, &value.to_le_bytes())
            }
            Err(status) => self.refuse(index, remote, status),
        }
    }

    fn serve_write(&mut self, remote: &RemoteFrame, data: &[u8]) -> Result<(), RemoteStatus> {
        self.served.write(remote, data)?;
        if self.window.is_there()
            && let Some(Registered { slice, base, .. }) = self.served.registered.get(&remote.key)
            // The XDP program looks pages up by the addresses in the packets.
            && *base == slice.region().address() + slice.at() as u64
        {
            let written = remote.address..remote.address + data.len() as u64;
            self.window.learn(&self.memory, remote.key, slice, written);
        }
        Ok(())
    }

    fn serve_read(&mut self, index: u32, remote: &RemoteFrame, data: &[u8]) -> Result<bool, RemoteStatus> {
        let bytes = <[u8; 8]>::try_from(data).map(u64::from_le_bytes).map_err(|_| RemoteStatus::Malformed)?;
        let (region, at) = self.served.find(remote, bytes, Rights::READ)?;
        let slice = region.slice(at..at + bytes as usize).map_err(status_of)?;
        if REMOTE_BYTES + slice.bytes() <= self.body_bytes(index) {
            let Some(mut copy) = self.pool.take(slice.bytes()) else {
                self.end_peer(index, Reason::NoMemory(bytes));
                return Ok(false);
            };
            let status =
                slice.append(0, slice.bytes(), &mut copy).map_or_else(status_of, |()| RemoteStatus::Done);
            let going_on = self.reply_to(index, remote.operation, status, &copy);
            self.pool.give(copy);
            return Ok(going_on);
        }
        let peer = &mut self.peers[index as usize];
        if peer.outbox.replies >= OPERATIONS_MAX {
            return Err(RemoteStatus::TooMany);
        }
        peer.outbox.replies += 1;
        let messages = peer.outbox.accepted;
        self.queue_bulk_transfer(index, BulkTransfer::reply(remote.operation, slice), messages);
        self.schedule(index);
        Ok(true)
    }

    /// Counts what was not done, and tells its sender. `false` when that ended the connection.
    fn refuse(&mut self, index: u32, remote: &RemoteFrame, status: RemoteStatus) -> bool {
        self.memory.count(Counter::RemoteRefused, 1);
        let peer = &mut self.peers[index as usize];
        if remote.opcode == Opcode::Piece as u16
            && std::mem::replace(&mut peer.rma.refused, remote.operation) == remote.operation
        {
            return true; // it has been told
        }
        self.reply_to(index, remote.operation, status, &[])
    }

    /// Replies in a packet. `false` when that ended the connection.
    fn reply_to(&mut self, index: u32, operation: u64, status: RemoteStatus, data: &[u8]) -> bool {
        let peer = &self.peers[index as usize];
        // A peer asks for no more than it may wait for; one that does all the same does not make us grow.
        let most = OPERATIONS_MAX as u64 * self.body_bytes(index) as u64;
        if peer.outbox.bytes > self.options.send_bytes + most {
            self.violated(index, "it asks for more than it takes");
            return false;
        }
        let messages = peer.outbox.accepted;
        let head = RemoteFrame { opcode: Opcode::Reply as u16, key: status as u64, address: 0, operation }
            .encode(data.len() as u32);
        if self.queue_frame(index, &head, [data, &[]], messages).is_err() {
            self.end_peer(index, Reason::NoMemory(data.len() as u64));
            return false;
        }
        self.schedule(index);
        true
    }
}
