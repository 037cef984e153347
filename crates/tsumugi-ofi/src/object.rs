//! What every object that the host holds is made of.

use crate::abi::*;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// What an object begins with, in the host's layout. The host reads and writes it whenever it likes.
#[repr(transparent)]
pub(crate) struct Head<T>(UnsafeCell<T>);

impl<T> Head<T> {
    pub(crate) const fn new(value: T) -> Head<T> {
        Head(UnsafeCell::new(value))
    }

    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// A table of functions. The host takes it for memory that it may write, and does not.
#[repr(transparent)]
pub(crate) struct Table<T>(UnsafeCell<T>);

// SAFETY: nobody writes it.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    pub(crate) const fn new(value: T) -> Table<T> {
        Table(UnsafeCell::new(value))
    }

    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// The common head of an object.
pub(crate) const fn head(class: usize, context: *mut c_void, ops: &'static Table<fi_ops>) -> fid {
    fid { fclass: class, context, ops: ops.get() }
}

/// Functions of every object: what is not given here is not supported.
pub(crate) const fn functions(
    close: unsafe extern "C" fn(*mut fid) -> c_int,
    bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
    control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
) -> Table<fi_ops> {
    Table::new(fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: if bind.is_some() { bind } else { Some(no_bind) },
        control: if control.is_some() { control } else { Some(no_control) },
        ops_open: Some(no_ops_open),
        tostr: None,
        ops_set: None,
    })
}

unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_ops_open(
    _: *mut fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

/// A function that is not supported, as one of whatever arguments.
macro_rules! unsupported {
    () => {{
        unsafe extern "C" fn no() -> isize {
            -($crate::abi::FI_ENOSYS as isize)
        }
        #[allow(clippy::missing_transmute_annotations, clippy::useless_transmute, reason = "of any type that is wanted")]
        // SAFETY: it does not look at its arguments, which in C's calling conventions the caller clears away; and an
        // integer is returned in the same register whatever its length.
        let function = unsafe { std::mem::transmute(no as unsafe extern "C" fn() -> isize) };
        Some(function)
    }};
}
pub(crate) use unsupported;

/// Writes where the caller wants a pointer to an object.
///
/// # Safety
/// The place can be written.
pub(crate) unsafe fn give<T, F>(place: *mut *mut F, object: *const T) {
    // SAFETY: as the caller promises.
    unsafe { place.write(ptr::from_ref(&*object).cast_mut().cast()) };
}

/// Copies text to where C wants it, with a zero behind it; as much as there is room for.
///
/// # Safety
/// There is room for `room` bytes, or the place is null.
pub(crate) unsafe fn put_text(text: &[u8], place: *mut c_char, room: usize) {
    if place.is_null() || room == 0 {
        return;
    }
    let bytes = text.len().min(room - 1);
    // SAFETY: so many have room, and the zero.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), bytes);
        place.add(bytes).write(0);
    }
}
