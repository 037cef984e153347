//! Whether memory is there.

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::param::page_size;
use std::ptr::NonNull;

/// What is to be done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Whether the process may touch all of these bytes so. Pages that are there but not in memory are brought in. Before
/// Linux 5.14 only what is unmapped is found, not what is protected.
pub(crate) fn is_mapped(start: NonNull<u8>, bytes: usize, access: Access) -> bool {
    if bytes == 0 {
        return true;
    }
    let page_bytes = page_size();
    let into_page = start.addr().get() % page_bytes;
    let (first, bytes) = (start.as_ptr().wrapping_sub(into_page), into_page + bytes);
    let advice = match access {
        Access::Read => Advice::LinuxPopulateRead,
        Access::Write => Advice::LinuxPopulateWrite,
    };
    // SAFETY: touches the pages as a load or a store would that changes nothing, and says so where it may not.
    match unsafe { madvise(first.cast(), bytes, advice) } {
        Ok(()) => return true,
        Err(Errno::INVAL) if !knows_to_populate(page_bytes) => {}
        Err(_) => return false,
    }
    let mut resident = vec![0u8; bytes.div_ceil(page_bytes)];
    // SAFETY: the kernel writes a byte for each page.
    unsafe { libc::mincore(first.cast(), bytes, resident.as_mut_ptr()) == 0 }
}

/// Whether the kernel knows the advice: it gives the same error for what it does not know and for what is protected.
#[cold]
fn knows_to_populate(page_bytes: usize) -> bool {
    let here = 0u8;
    let page = (&raw const here).map_addr(|address| address - address % page_bytes).cast_mut();
    // SAFETY: reads a page of this thread's stack.
    unsafe { madvise(page.cast(), page_bytes, Advice::LinuxPopulateRead) }.is_ok()
}
