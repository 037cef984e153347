//! Remote memory: reads and writes begin here.
//!
//! A write is complete when the peer's memory has it, whatever level was asked for: a fence behind all the writes of one look says
//! so, and only it tells of those that were refused.

use super::Running;
use super::operations::{Begun, Behind, Pieces, Side};
use super::user_buffer::UserBuffer;
use crate::abi::*;
use crate::error;
use crate::limits::INJECT_BYTES;
use std::ffi::c_void;
use std::ptr::NonNull;
use tsumugi::remote::Target;
use tsumugi::{Region, Slice};

/// What is written from a copy: longer data are read when there is room to send them, bytes.
const COPY_BYTES: usize = 4 << 10;

/// An access to a peer's memory.
pub(super) struct Access {
    pub(super) peer: fi_addr_t,
    pub(super) target: Target,
    pub(super) data: Option<u64>,
    pub(super) flags: u64,
    /// Whether its success is an entry of the queue, if the flags want it.
    pub(super) told: bool,
    pub(super) context: *mut c_void,
}

/// The caller's memory as a slice that the library copies from or to.
///
/// # Safety
/// It is there until the operation is complete.
unsafe fn slice(start: *mut c_void, bytes: usize) -> Result<Slice, i32> {
    let start = NonNull::new(start.cast::<u8>()).ok_or(FI_EINVAL)?;
    // SAFETY: as the caller promises.
    Ok(unsafe { Region::from_raw(start, bytes) }.all())
}

impl Running {
    /// # Safety
    /// The buffer is there: until this returns if it is injected, until the operation is complete otherwise.
    pub(super) unsafe fn write(&self, user_buffer: UserBuffer<'_>, access: &Access) -> Result<(), i32> {
        let peer = self.peer(access.peer)?;
        let (bytes, injected) = (user_buffer.bytes(), access.flags & FI_INJECT != 0);
        if injected && bytes > INJECT_BYTES {
            return Err(FI_EINVAL);
        }
        if access.flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let wanted = self.wants(Side::Write, access);
        self.check_connected(peer, wanted)?;
        let from = match user_buffer {
            UserBuffer::One(start, bytes) if bytes > COPY_BYTES && !injected => {
                // SAFETY: as the caller promises.
                Some(unsafe { slice(start, bytes)? })
            }
            _ => None,
        };
        let ticket = match (from, access.data) {
            (Some(from), Some(data)) => self.remote.write_and_notify(peer, access.target, &from, data),
            (Some(from), None) => self.remote.write(peer, access.target, &from),
            (None, data) => {
                let mut copy = Vec::with_capacity(bytes);
                // SAFETY: as the caller promises.
                unsafe { user_buffer.gather(&mut copy) };
                match data {
                    Some(data) => self.remote.write_bytes_and_notify(peer, access.target, &copy, data),
                    None => self.remote.write_bytes(peer, access.target, &copy),
                }
            }
        };
        let ticket = ticket.map_err(|error| error::of_send(&error))?;
        let number = self.begin(Side::Write, access, FI_WRITE, Pieces::One);
        self.operations.borrow_mut().of(peer).unfenced.push((ticket, number));
        self.push_untold(peer, wanted)
    }

    /// # Safety
    /// The buffer is there until the operation is complete.
    pub(super) unsafe fn read(&self, user_buffer: UserBuffer<'_>, access: &Access) -> Result<(), i32> {
        let peer = self.peer(access.peer)?;
        if access.flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let (into, pieces) = match user_buffer {
            UserBuffer::One(_, 0) => {
                // Nothing is read, and that is done in its turn.
                let fence = self.remote.fence(peer).map_err(|error| error::of_send(&error))?;
                let number = self.begin(Side::Read, access, FI_READ, Pieces::One);
                self.operations.borrow_mut().of(peer).operations.push_back((fence, Behind::Read(number)));
                return Ok(());
            }
            // SAFETY: as the caller promises.
            UserBuffer::One(start, bytes) => (unsafe { slice(start, bytes)? }, Pieces::One),
            UserBuffer::Several(pieces) => {
                let copy = Region::new(user_buffer.bytes()).map_err(|_| FI_ENOMEM)?;
                (copy.all(), Pieces::Several(pieces.to_vec(), Some(copy)))
            }
        };
        let operation =
            self.remote.read(peer, access.target, &into).map_err(|error| error::of_send(&error))?;
        let number = self.begin(Side::Read, access, FI_READ, pieces);
        self.operations.borrow_mut().of(peer).operations.push_back((operation, Behind::Read(number)));
        Ok(())
    }

    fn wants(&self, side: Side, access: &Access) -> bool {
        access.told && self.reports.wants(side, access.flags)
    }

    fn begin(&self, side: Side, access: &Access, flag: u64, pieces: Pieces) -> usize {
        self.operations.borrow_mut().begun.insert(Begun {
            side,
            context: access.context,
            flags: FI_RMA | flag,
            wanted: self.wants(side, access),
            delivered: true,
            pieces,
            request: None,
        })
    }
}
