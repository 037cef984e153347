//! Remote memory: what of ours others may reach, and what they told us of it.

use super::window::Window;
use crate::PeerId;
use crate::memory::Mapped;
use crate::remote::outcome::{Notification, Refusal};
use crate::remote::target::Rights;
use std::collections::{HashMap, VecDeque};
use tsumugi_rail::region::AtomicError;
use tsumugi_rail::{OutOfRegion, Region, Slice};
use tsumugi_wire::frame::RemoteFrame;
use tsumugi_wire::remote::{Atomic, Notice, Opcode, RemoteStatus};

/// Refusals of writes that wait to be taken, at most; older ones are forgotten.
const REFUSALS_MAX: usize = 1024;
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
    pub(crate) fn find(
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

    pub(crate) fn atomic(&self, remote: &RemoteFrame, data: &[u8]) -> Result<u64, RemoteStatus> {
        let atomic = Atomic::decode(data).ok_or(RemoteStatus::Malformed)?;
        let (region, at) = self.find(remote, atomic.word.bytes() as u64, Rights::ATOMIC)?;
        region.atomic(at, &atomic).map_err(|error| match error {
            AtomicError::Outside(error) => status_of(error),
            AtomicError::Misaligned { .. } => RemoteStatus::Misaligned,
        })
    }

    pub(crate) fn notify(
        &mut self,
        source: PeerId,
        remote: &RemoteFrame,
        data: &[u8],
    ) -> Result<(), RemoteStatus> {
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

    /// Whether the memory of this key was written and nobody has been told.
    pub(crate) fn has_notification(&self, key: u64) -> bool {
        self.registered.get(&key).is_some_and(|registered| !registered.notifications.is_empty())
    }

    /// Takes the next notification of all.
    pub(crate) fn take_any_notification(&mut self) -> Option<(u64, Notification)> {
        let key = self.notified.pop_front()?;
        Some((key, self.registered.get_mut(&key)?.notifications.pop_front()?))
    }
}

/// The remote memory of an endpoint.
#[derive(Debug)]
pub(crate) struct Rma {
    pub(crate) served: Served,
    pub(crate) window: Window,
    /// Direct writes into it that were done when we looked last.
    pub(crate) direct_writes_seen: u64,
    /// Writes of ours that were refused.
    refusals: VecDeque<Refusal>,
}

impl Rma {
    pub(crate) fn new(memory: &Mapped) -> Rma {
        Rma {
            served: Served::default(),
            window: Window::new(memory),
            direct_writes_seen: 0,
            refusals: VecDeque::new(),
        }
    }

    /// Writes what came for memory that is registered. The XDP program may do so the next time, if it lies in the window.
    pub(crate) fn write(
        &mut self,
        memory: &Mapped,
        remote: &RemoteFrame,
        data: &[u8],
    ) -> Result<(), RemoteStatus> {
        self.served.write(remote, data)?;
        if self.window.is_there()
            && let Some(Registered { slice, base, .. }) = self.served.registered.get(&remote.key)
            // The XDP program looks pages up by the addresses in the packets.
            && *base == slice.region().address() + slice.at() as u64
        {
            let written = remote.address..remote.address + data.len() as u64;
            self.window.learn(memory, remote.key, slice, written);
        }
        Ok(())
    }

    /// A write of ours was refused.
    pub(crate) fn push_refusal(&mut self, refusal: Refusal) {
        if self.refusals.len() >= REFUSALS_MAX {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }

    /// Takes the next write of ours that was refused.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusals.pop_front()
    }
}

/// What the other side is told of something that is not in a region.
pub(crate) fn status_of(error: OutOfRegion) -> RemoteStatus {
    match error {
        OutOfRegion::Beyond { .. } => RemoteStatus::OutOfBounds,
        // Of memory that cannot be reached for any other reason no more can be said.
        _ => RemoteStatus::NotMapped,
    }
}
