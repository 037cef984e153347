//! Memory of the caller's.

use libc::iovec;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use tsumugi::message::Buffer;
use tsumugi_rail::copy;

/// The caller's buffer.
#[derive(Clone, Copy)]
pub(super) enum UserBuffer<'a> {
    One(*mut c_void, usize),
    Several(&'a [iovec]),
}

impl<'a> UserBuffer<'a> {
    /// # Safety
    /// There are `count` pieces.
    pub(super) unsafe fn of(pieces: *const iovec, count: usize) -> UserBuffer<'a> {
        match count {
            0 => UserBuffer::One(ptr::null_mut(), 0),
            // SAFETY: as the caller promises.
            1 => unsafe { UserBuffer::One((*pieces).iov_base, (*pieces).iov_len) },
            // SAFETY: as the caller promises.
            _ => UserBuffer::Several(unsafe { slice::from_raw_parts(pieces, count) }),
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        match self {
            UserBuffer::One(_, bytes) => *bytes,
            UserBuffer::Several(pieces) => pieces.iter().map(|piece| piece.iov_len).sum(),
        }
    }

    /// Copies what is there to the end of `into`.
    ///
    /// # Safety
    /// It is there.
    pub(super) unsafe fn gather(&self, into: &mut Vec<u8>) {
        match self {
            // SAFETY: as the caller promises.
            UserBuffer::One(start, bytes) => copy::append(unsafe { view(*start, *bytes) }, into),
            UserBuffer::Several(pieces) => {
                for piece in *pieces {
                    // SAFETY: as the caller promises.
                    copy::append(unsafe { view(piece.iov_base, piece.iov_len) }, into);
                }
            }
        }
    }
}

/// What is at a place, which may be null if there is nothing.
///
/// # Safety
/// It is there, and stays as it is for as long as this is used.
#[inline]
pub(super) unsafe fn view<'a>(start: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(start.cast(), bytes) }
}

/// The caller's memory, lent to the library.
///
/// # Safety
/// It is there until the operation is complete, and nobody touches it.
#[inline]
pub(super) unsafe fn lent(start: *mut c_void, bytes: usize) -> Buffer {
    match NonNull::new(start.cast::<u8>()) {
        // SAFETY: as the caller promises.
        Some(start) => unsafe { Buffer::from_raw_parts(start, bytes) },
        None => Buffer::default(),
    }
}
