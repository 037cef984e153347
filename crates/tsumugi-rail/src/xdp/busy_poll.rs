//! What a NIC needs so that a waiting process may run its poll instead of paying an interrupt.
//!
//! The kernel must leave the NIC alone after a poll: its interrupt stays off while somebody polls again within
//! `gro_flush_timeout`, `napi_defer_hard_irqs` times over (Linux: Documentation/networking/napi.rst). A process that
//! does not busy-poll then waits for the timer, up to that long; so this is set only on request, and undone.

use super::XdpError;
use super::error::failed;
use crate::nics::folder;
use std::fs;

/// The settings of one NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// Polls that find nothing before the interrupt is let on again.
    pub polls: u64,
    /// Time after which the kernel polls by itself, ns.
    pub flush_ns: u64,
}

impl Deferral {
    /// What busy polling needs. Much longer than a look may take: with 50 or 200 µs the timer fired between looks, on
    /// virtio-net in an emulated machine, where 2 ms left 9 to 25 interrupts of 1,990.
    pub const BUSY_POLLING: Deferral = Deferral { polls: 2, flush_ns: 2_000_000 };
}

/// Whether a NIC has interrupts that can be spared. Virtual ones, such as veth, run their poll on the CPU of
/// whoever sends to them.
#[must_use]
pub fn can_busy_poll(nic: &str) -> bool {
    folder(nic).join("device").exists() && read(nic).is_ok()
}

/// The present settings.
pub(super) fn read(nic: &str) -> Result<Deferral, XdpError> {
    let number = |name: &str| {
        let path = folder(nic).join(name);
        let text = fs::read_to_string(&path).map_err(failed("reading", &path))?;
        let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        text.trim().parse().map_err(|_| failed("reading", &path)(wrong()))
    };
    Ok(Deferral { polls: number("napi_defer_hard_irqs")?, flush_ns: number("gro_flush_timeout")? })
}

/// Changes the settings.
pub(super) fn write(nic: &str, to: Deferral) -> Result<(), XdpError> {
    for (name, value) in [("napi_defer_hard_irqs", to.polls), ("gro_flush_timeout", to.flush_ns)] {
        let path = folder(nic).join(name);
        fs::write(&path, value.to_string()).map_err(failed("writing", &path))?;
    }
    Ok(())
}
