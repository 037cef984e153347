//! What the kernel says of a NIC that the program was attached to.
//!
//! A pin outlives what it stands for. The NIC may be gone, and another have its name or its number; somebody may have
//! detached the link; and another program may be there by now. So the kernel is asked which program a NIC has, and that
//! number is compared with those of the programs that `up` has loaded (`xdp/pins.rs`).

use super::stranger::Stranger;
use super::{Mode, XdpError};
use crate::netlink::{Questions, XdpOn};
use crate::{nics, sys};
use std::io;

/// What became of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The program is attached.
    Attached,
    /// The NIC is gone. One that has its name by now is another.
    NicGone,
    /// Nothing is attached to the NIC any more.
    Detached,
    /// Another program is attached to the NIC.
    Replaced(Stranger),
    /// The kernel cannot be asked; it is believed that the program is attached.
    Unknown,
}

impl Standing {
    /// Whether the program can be believed to be attached.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        matches!(self, Standing::Attached | Standing::Unknown)
    }
}

/// The kernel, as far as it can be asked.
#[derive(Debug)]
pub(super) struct Kernel(io::Result<Questions>);

impl Kernel {
    /// Asks about the NICs of the network namespace that the calling thread is in.
    pub(super) fn here() -> Kernel {
        Kernel(Questions::open())
    }

    /// What is attached to the NIC with this index; an error where that cannot be known.
    pub(super) fn xdp(&mut self, index: u32) -> io::Result<Option<XdpOn>> {
        match &mut self.0 {
            Ok(questions) => questions.xdp(index),
            Err(error) => Err(io::Error::from(error.kind())),
        }
    }

    /// The name of a NIC, and what became of the program on it, which has one of these numbers, in this mode.
    pub(super) fn standing(
        &mut self,
        index: u32,
        mode: Mode,
        programs: &[u32],
    ) -> (Option<String>, Standing) {
        let Ok(found) = self.xdp(index) else {
            let nic = sys::interface_name(index);
            let standing = if nic.is_some() { Standing::Unknown } else { Standing::NicGone };
            return (nic, standing);
        };
        let Some(found) = found else { return (None, Standing::NicGone) };
        let there = match mode {
            Mode::Native => found.native,
            Mode::Generic => found.generic,
        };
        let standing = match Stranger::on(&found) {
            _ if there.is_some_and(|id| programs.contains(&id)) => Standing::Attached,
            Some(stranger) => Standing::Replaced(stranger),
            None => Standing::Detached,
        };
        (Some(found.nic), standing)
    }
}

/// What other programs than these the NICs here have.
pub(super) fn strangers(ours: &[u32]) -> Vec<Stranger> {
    let mut kernel = Kernel::here();
    let indices = nics::names().into_iter().filter_map(|name| sys::interface_index(&name));
    let found = indices.filter_map(|index| Stranger::on(&kernel.xdp(index).ok()??));
    found.filter(|stranger| !ours.contains(&stranger.id)).map(Stranger::identified).collect()
}

/// The error that a NIC has another program, which is asked for.
pub(super) fn taken(index: u32) -> XdpError {
    let nic = || sys::interface_name(index).unwrap_or_else(|| format!("NIC {index}"));
    let found = Kernel::here().xdp(index).ok().flatten();
    match found.as_ref().and_then(Stranger::on) {
        Some(stranger) => XdpError::NicTaken(Box::new(stranger.identified())),
        // It went away just now, or netlink is forbidden.
        None => XdpError::NicBusy(nic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_an_attachment_is_asked_of_the_kernel() {
        let mut kernel = Kernel::here();
        assert_eq!(kernel.standing(1, Mode::Native, &[7]), (Some("lo".to_owned()), Standing::Detached));
        assert_eq!(kernel.standing(0x7fff_fff0, Mode::Native, &[7]), (None, Standing::NicGone));
        let mut forbidden = Kernel(Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(forbidden.standing(1, Mode::Native, &[7]), (Some("lo".to_owned()), Standing::Unknown));
        assert_eq!(forbidden.standing(0x7fff_fff0, Mode::Native, &[7]), (None, Standing::NicGone));
    }
}
