//! Asking the kernel by trying.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// linux/udp.h.
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;
/// linux/bpf.h: the command, the program type, and `r0 = XDP_PASS; exit`.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
const PASS_EVERYTHING: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

pub(super) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether one send may carry many datagrams.
pub(super) fn udp_segment() -> io::Result<()> {
    set(UDP_SEGMENT, 1200)
}

/// Whether one receive may return many datagrams.
pub(super) fn udp_gro() -> io::Result<()> {
    set(UDP_GRO, 1)
}

fn set(option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (pointer, length) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the descriptor is open, and pointer and length describe `value`, which outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, pointer, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The capabilities that this process has in effect, by their numbers.
pub(super) fn capabilities() -> io::Result<u64> {
    /// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    // Effective, permitted and inheritable, first the low halves of all, then the high ones.
    let mut sets = [0u32; 6];
    // SAFETY: header and sets are as long as this version of the call takes, and outlive it.
    match unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) } {
        0 => Ok(u64::from(sets[0]) | u64::from(sets[3]) << 32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many bytes this process may lock; `None` is as many as it likes.
pub(super) fn memlock_bytes() -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that this frame owns; the call writes nothing else.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 => Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD needs; the kernel takes what is left out as zero.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    program_flags: u32,
}

/// Whether this process may load an XDP program. It is attached to nothing and gone at once.
pub(super) fn load_xdp() -> io::Result<()> {
    let license = c"Dual MIT/GPL";
    let attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_XDP,
        instruction_count: PASS_EVERYTHING.len() as u32,
        instructions: PASS_EVERYTHING.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        program_flags: 0,
    };
    let size = size_of::<LoadAttributes>();
    // SAFETY: the attributes, and the instructions and license they point to, outlive the call, and the
    // counts and the size are theirs; the kernel only reads them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(result as RawFd) });
    Ok(())
}
