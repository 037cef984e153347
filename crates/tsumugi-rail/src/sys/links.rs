//! Links, which attach BPF programs: detaching one so that it is detached when the call returns.

use super::checked;
use aya_obj::generated::bpf_cmd;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What `BPF_OBJ_GET` reads of `bpf_attr`.
#[repr(C)]
struct PinAttributes {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// What `BPF_LINK_DETACH` reads of `bpf_attr`.
#[repr(C)]
struct DetachAttributes {
    descriptor: u32,
}

/// Opens what is pinned at `path` in the BPF file system.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = PinAttributes { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    let opened = bpf(bpf_cmd::BPF_OBJ_GET, &attributes)?;
    // SAFETY: the call has just opened the descriptor, which nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// Takes the program off what the link attaches it to.
///
/// The kernel also does so when the last pin and descriptor of a link are gone, but for a pin some time after it was
/// removed (`bpf_link_put` in kernel/bpf/syscall.c leaves it to a worker).
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = DetachAttributes { descriptor: link.as_raw_fd() as u32 };
    bpf(bpf_cmd::BPF_LINK_DETACH, &attributes).map(drop)
}

fn bpf<A>(command: bpf_cmd, attributes: &A) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are as long as said and outlive the call, and so does what they refer to; neither command
    // writes to memory of ours.
    checked(unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_ref(attributes), size_of::<A>())
    })
}
