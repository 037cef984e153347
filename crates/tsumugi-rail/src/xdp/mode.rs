//! Where in the kernel a program receives, and how it gets there.

use aya::programs::xdp::XdpLinkId;
use aya::programs::{ProgramError, Xdp, XdpMode};
use strum::VariantNames as _;

/// Where in the receive path the program runs.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = no_mode)]
pub enum Mode {
    /// In the NIC's driver, before the kernel has made anything of the frame.
    Native,
    /// In the kernel's network stack, for NICs whose driver has no place for it.
    Generic,
}

fn no_mode(word: &str) -> String {
    format!("'{word}' is no mode; choose from {}", Mode::VARIANTS.join(", "))
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
