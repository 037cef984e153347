//! The bare one-sided write: a program copies what a frame carries into memory of this process, and a number behind it. There
//! is no protocol: nothing is checked, acknowledged or repeated, and the next write takes the place of the last.
//!
//! It is there to be measured: less than this no write through a NIC's driver can cost.

use super::{AttachError, Mode, attach};
use crate::copy::{self, Staging};
use crate::ether::{ETHERNET_BYTES, Mac};
use crate::sys;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/write.bpf.o"));

/// Name of the program.
const PROGRAM: &str = "write";
/// Name of the map that is the memory.
const MEMORY: &str = "memory";

/// The ethertype of the frames that write: the second of IEEE Std 802's local experimental ones.
const ETHERTYPE: u16 = 0x88b6;
/// Bytes of the memory. The first word is the number of the latest write.
const SLOT_BYTES: usize = 4096;
/// Where in it the payload lies.
const PAYLOAD_AT: usize = 64;
/// Bytes that each frame carries at least, so that the program can copy so many at once.
const SHORT_BYTES: usize = 64;
/// Bytes in front of the payload: the Ethernet header, the payload's length, the write's number.
const HEADER_BYTES: usize = ETHERNET_BYTES + size_of::<u16>() + size_of::<u64>();

/// Why nothing is written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The program is not on the NIC.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The kernel did not map the memory.
    #[error("mapping the memory that the {PROGRAM} program writes: {source}{}", crate::remedy(source))]
    Mapping {
        /// What the system said.
        source: io::Error,
    },
}

/// Memory that frames are written to which arrive at a NIC, until this is dropped.
#[derive(Debug)]
pub struct WriteTarget {
    memory: sys::Mapping,
    /// Attached while it lives.
    _program: aya::Ebpf,
}

impl WriteTarget {
    /// Whether this build contains the program.
    pub const IS_COMPILED: bool = !OBJECT.is_empty();

    /// Loads the program and attaches it to the NIC with index `nic` in this thread's network namespace.
    ///
    /// # Errors
    /// Says what failed.
    pub fn attach(nic: u32, mode: Mode) -> Result<WriteTarget, WriteError> {
        let program = attach(OBJECT, PROGRAM, nic, mode)?;
        let absent = AttachError::Object { program: PROGRAM, absent: MEMORY };
        let Some(aya::maps::Map::Array(map)) = program.map(MEMORY) else { return Err(absent.into()) };
        let memory = sys::Mapping::of_map(map.fd().as_fd(), SLOT_BYTES)
            .map_err(|source| WriteError::Mapping { source })?;
        Ok(WriteTarget { memory, _program: program })
    }

    /// The number of the latest write, whose payload is there as a whole; 0 before the first.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        // SAFETY: the first word of the mapping, which is page-aligned and lives as long as `self`. Only the program writes
        // it, by one store.
        unsafe { self.memory.start().cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire)
    }

    /// Copies out what the latest write has written, from its beginning. Parts of it are the next one's if that
    /// arrives meanwhile.
    ///
    /// # Panics
    /// No write is that long.
    pub fn read(&self, into: &mut [u8]) {
        assert!(into.len() <= WriteFrame::PAYLOAD_BYTES_MAX, "a write of {} bytes", into.len());
        // SAFETY: as just asserted, the bytes lie within the mapping. `into` is the caller's alone. That the program may
        // write at this moment may mix old and new bytes: they are bytes either way.
        unsafe { copy::bytes(self.memory.start().add(PAYLOAD_AT).as_ptr(), into.as_mut_ptr(), into.len()) };
    }
}

/// A frame that writes, to be sent again and again.
#[derive(Debug)]
pub struct WriteFrame {
    memory: Staging,
}

impl WriteFrame {
    /// Most bytes of a payload.
    pub const PAYLOAD_BYTES_MAX: usize = SLOT_BYTES - PAYLOAD_AT;
    /// How much more the frame is than an Ethernet header and its payload. With short payloads it is longer.
    pub const OVERHEAD_BYTES: usize = HEADER_BYTES - ETHERNET_BYTES;

    /// A frame between the NICs with these hardware addresses.
    #[must_use]
    pub fn new(from: Mac, to: Mac) -> WriteFrame {
        let mut memory = Staging::new(HEADER_BYTES + WriteFrame::PAYLOAD_BYTES_MAX, 0);
        memory[..6].copy_from_slice(&to);
        memory[6..12].copy_from_slice(&from);
        memory[12..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE.to_be_bytes());
        WriteFrame { memory }
    }

    /// The frame with this number and payload.
    ///
    /// # Panics
    /// The payload is too long.
    #[inline]
    pub fn fill(&mut self, sequence: u64, payload: &[u8]) -> &[u8] {
        let bytes = payload.len();
        assert!(bytes <= WriteFrame::PAYLOAD_BYTES_MAX, "a write of {bytes} bytes");
        self.memory[ETHERNET_BYTES..16].copy_from_slice(&(bytes as u16).to_le_bytes());
        self.memory[16..HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
        self.memory[HEADER_BYTES..HEADER_BYTES + bytes].copy_from_slice(payload);
        &self.memory[..HEADER_BYTES + bytes.max(SHORT_BYTES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_how_long_its_payload_is_and_is_never_too_short_to_be_copied_in_words() {
        let (from, to) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut frame = WriteFrame::new(from, to);
        let written = frame.fill(0x0102_0304_0506_0708, &[9; 65]).to_vec();
        assert_eq!(written.len(), 24 + 65);
        assert_eq!((&written[..6], &written[6..12]), (&to[..], &from[..]));
        assert_eq!(written[12..24], [0x88, 0xb6, 65, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert!(written[24..].iter().all(|byte| *byte == 9));
        let short = frame.fill(1, &[7]);
        assert_eq!((short.len(), short[14], short[24]), (24 + 64, 1, 7));
        assert_eq!(frame.fill(2, &[0; WriteFrame::PAYLOAD_BYTES_MAX]).len(), 24 + 4032);
    }

    #[test]
    #[should_panic(expected = "a write of 4033 bytes")]
    fn a_payload_that_the_memory_has_no_room_for_is_a_bug() {
        WriteFrame::new([0; 6], [0; 6]).fill(1, &[0; WriteFrame::PAYLOAD_BYTES_MAX + 1]);
    }
}
