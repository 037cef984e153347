//! Asking the kernel by trying.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use tsumugi_rail::set_option;

/// linux/bpf.h: the command, the program type, and `r0 = XDP_PASS; exit`.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
const PASS_EVERYTHING: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

/// Whether one send may carry many datagrams.
pub(super) fn udp_segment() -> io::Result<()> {
    set(libc::UDP_SEGMENT, 1200)
}

/// Whether one receive may return many datagrams.
pub(super) fn udp_gro() -> io::Result<()> {
    set(libc::UDP_GRO, 1)
}

fn set(option: i32, value: i32) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    set_option(socket.as_fd(), libc::SOL_UDP, option, value)
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
