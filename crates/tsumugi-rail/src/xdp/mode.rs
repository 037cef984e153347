//! Where in the kernel a program receives, and how it gets there.

use aya::programs::xdp::XdpLinkId;
use aya::programs::{ProgramError, Xdp, XdpMode};
use std::fmt;
use std::str::FromStr;

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the NIC's driver, before the kernel has made anything of the frame.
    Native,
    /// In the kernel's network stack, for NICs whose driver has no place for it.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Mode, String> {
        match word {
            "native" => Ok(Mode::Native),
            "generic" => Ok(Mode::Generic),
            other => Err(format!("'{other}' is no mode; choose native or generic")),
        }
    }
}

/// Attaches a program to the NIC with this index.
pub(crate) fn attach_to(program: &mut Xdp, index: u32, mode: Mode) -> Result<XdpLinkId, ProgramError> {
    let flags = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
    };
    program.attach_to_if_index(index, flags)
}

/// Whether the kernel refused because something else is attached.
pub(crate) fn is_taken(error: &ProgramError) -> bool {
    errno(error).is_some_and(|error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)))
}

/// What the system said, among what caused an error.
pub(super) fn errno(error: &ProgramError) -> Option<&std::io::Error> {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    causes.find_map(|cause| cause.downcast_ref::<std::io::Error>())
}
