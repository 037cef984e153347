//! Where in the kernel the program gets frames.

use crate::xdp::Mode;
use strum::VariantNames as _;

/// Where in the kernel the program gets frames.
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
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = no_hook)]
pub enum Hook {
    /// XDP in the NICs' drivers: before the kernel has made anything of the frame. For real NICs.
    Native,
    /// XDP behind the drivers: each frame is copied first, unless it has come with much room in front.
    Generic,
    /// tc's ingress, behind XDP (tcx, Linux 6.6): frames as they are, and with what the kernel knows of them.
    Tc,
}

fn no_hook(word: &str) -> String {
    format!("'{word}' is no hook; choose from {}", Hook::VARIANTS.join(", "))
}

impl Hook {
    /// The mode of XDP that it is.
    pub(super) const fn mode(self) -> Option<Mode> {
        match self {
            Hook::Native => Some(Mode::Native),
            Hook::Generic => Some(Mode::Generic),
            Hook::Tc => None,
        }
    }
}

impl From<Mode> for Hook {
    fn from(mode: Mode) -> Hook {
        match mode {
            Mode::Native => Hook::Native,
            Mode::Generic => Hook::Generic,
        }
    }
}
