//! The program without a NIC: frames are handed to it by `BPF_PROG_TEST_RUN`.

use super::program::{Program, Run};
use super::{XdpError, maps};
use crate::memory::Memory;
use aya::maps::MapData;
use std::os::fd::{AsFd, BorrowedFd};
use tsumugi_wire::memory::Geometry;

/// Receive memory that the program deposits into, and its doorbell.
#[derive(Debug)]
pub struct Endpoint {
    /// The receive memory.
    pub memory: Memory,
    bell: MapData,
}

impl Endpoint {
    /// Becomes readable when the program has rung because [`sleeping`] was set.
    ///
    /// [`sleeping`]: tsumugi_wire::memory::Control::sleeping
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.fd().as_fd()
    }
}

/// The loaded program.
#[derive(Debug)]
pub struct Receiver {
    program: Program,
    geometry: Geometry,
}

impl Receiver {
    /// Loads the program for endpoint memories of one geometry.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn load(geometry: Geometry) -> Result<Receiver, XdpError> {
        Ok(Receiver { program: Program::load(geometry, None)?, geometry })
    }

    /// Makes the receive memory of an endpoint and tells the program of it. Its epoch is 0: until it has one, the
    /// program leaves its packets to the kernel.
    ///
    /// # Errors
    /// The kernel has no memory, or no room for another endpoint.
    pub fn endpoint(&mut self, port: u16) -> Result<Endpoint, XdpError> {
        let memory = maps::make_memory(port, self.geometry)?;
        let mapping = maps::map(&memory, port, self.geometry.bytes())?;
        let bell = maps::make_bell(port)?;
        self.program.enter(port, &memory, &bell)?;
        Ok(Endpoint { memory: Memory::lay_out(mapping, self.geometry), bell })
    }

    /// Runs the program on a frame `repeat` times. `out` takes the frame as the program left it and must be long
    /// enough.
    ///
    /// # Errors
    /// The kernel refused: the frame is shorter than an Ethernet header, or `out` too short.
    pub fn run(&self, frame: &[u8], out: &mut [u8], repeat: u32) -> Result<Run, XdpError> {
        self.program.run(frame, out, repeat)
    }
}
