//! A program that drops packets at once, to tell what a frame costs before any program has done anything.

use super::runs::{self, Runs};
use super::{AttachError, Mode, XdpError, attach};
use aya::programs::Xdp;

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/discard.bpf.o"));

/// Name of the program.
const PROGRAM: &str = "discard";

/// Drops every IPv4 packet that arrives at a NIC, until this is dropped.
#[derive(Debug)]
pub struct Discard {
    program: aya::Ebpf,
}

impl Discard {
    /// Loads the program and attaches it to the NIC with index `nic` in this thread's network namespace.
    ///
    /// # Errors
    /// Says what failed.
    pub fn attach(nic: u32, mode: Mode) -> Result<Discard, AttachError> {
        Ok(Discard { program: attach(OBJECT, PROGRAM, nic, mode)? })
    }

    /// How often it has run while runs were [counted](super::Counting), and how long that took.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn runs(&self) -> Result<Runs, XdpError> {
        let failed = |source| XdpError::Program { doing: "asking about", source };
        let absent = || XdpError::Object(format!("there is no '{PROGRAM}' in it"));
        let program = self.program.program(PROGRAM).ok_or_else(absent)?;
        let program: &Xdp = program.try_into().map_err(failed)?;
        program.info().map(|info| runs::of(&info)).map_err(failed)
    }
}
