//! Attaching the program to NICs.

use super::XdpError;
use super::error::chain;
use super::mtu::mtu_excess;
use super::pins::{Pins, entries, failed, remove};
use super::program::Program;
use super::reap::{self, Deferral};
use crate::sys;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpLinkId};
use aya::programs::{ProgramError, Xdp, XdpMode};
use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
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

/// A NIC that the program is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Name of the NIC; `None` when it is gone.
    pub nic: Option<String>,
    /// Its index.
    pub index: u32,
    /// Where the program runs.
    pub mode: Mode,
    /// How the NIC was set before it was set for reaping; `None`: it was not.
    pub before_reaping: Option<Deferral>,
    pub(super) pin: PathBuf,
}

/// The NICs that the program is attached to.
pub(super) fn list(pins: &Pins) -> Result<Vec<Attached>, XdpError> {
    let parse = |pin: PathBuf| {
        let mut parts = pin.file_name()?.to_str()?.split('-');
        let (index, mode) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let mut number = || parts.next()?.parse().ok();
        let before_reaping = number().zip(number()).map(|(polls, flush_ns)| Deferral { polls, flush_ns });
        Some(Attached { nic: sys::interface_name(index), index, mode, before_reaping, pin })
    };
    let mut nics: Vec<Attached> = entries(&pins.nics())?.into_iter().filter_map(parse).collect();
    nics.sort_by_key(|attached| attached.index);
    Ok(nics)
}

/// Index of the NIC called `nic`.
pub(super) fn index_of(nic: &str) -> Result<u32, XdpError> {
    sys::interface_index(nic).ok_or_else(|| XdpError::NoSuchNic(nic.to_owned()))
}

/// Attaches the program to a NIC: natively, where nothing else is asked for, and generically where the driver
/// cannot.
pub(super) fn attach(
    program: &mut Program,
    pins: &Pins,
    nic: &str,
    mode: Option<Mode>,
) -> Result<Attached, XdpError> {
    let index = index_of(nic)?;
    let modes = mode.map_or(vec![Mode::Native, Mode::Generic], |mode| vec![mode]);
    let mut last = None;
    for mode in modes {
        match attach_as(program, pins, nic, index, mode) {
            Err(error @ (XdpError::Attach { .. } | XdpError::Mtu { .. })) => last = Some(error),
            done => return done,
        }
    }
    Err(last.unwrap_or_else(|| XdpError::NoSuchNic(nic.to_owned())))
}

fn attach_as(
    program: &mut Program,
    pins: &Pins,
    nic: &str,
    index: u32,
    mode: Mode,
) -> Result<Attached, XdpError> {
    let refused = |reason: String| XdpError::Attach { nic: nic.to_owned(), mode, reason };
    if let (Mode::Native, Some(excess)) = (mode, mtu_excess(nic)) {
        return Err(XdpError::Mtu { nic: nic.to_owned(), excess });
    }
    let xdp = program.xdp()?;
    let link = match attach_to(xdp, index, mode) {
        Err(error) if is_taken(&error) => return Err(XdpError::NicTaken(nic.to_owned())),
        link => link.map_err(|error| refused(chain(&error)))?,
    };
    let link = xdp.take_link(link).map_err(|error| refused(chain(&error)))?;
    // A link that cannot be pinned would go with this process; it is dropped, and so detached, here.
    let link: FdLink = link.try_into().map_err(|error| refused(chain(&error)))?;
    let pin = pins.nic(index, mode);
    link.pin(&pin).map_err(|error| refused(chain(&error)))?;
    Ok(Attached { nic: Some(nic.to_owned()), index, mode, before_reaping: None, pin })
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
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    causes.any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)))
    })
}

/// Puts the program in the place of the one that is attached; no packet sees neither.
pub(super) fn replace(program: &mut Program, attached: &Attached) -> Result<(), XdpError> {
    let nic = attached.nic.clone().unwrap_or_else(|| attached.index.to_string());
    let refused = |reason: String| XdpError::Attach { nic: nic.clone(), mode: attached.mode, reason };
    let link = PinnedLink::from_pin(&attached.pin).map_err(|error| refused(chain(&error)))?;
    let link = XdpLink::try_from(FdLink::from(link)).map_err(|error| refused(chain(&error)))?;
    program.xdp()?.attach_to_link(link).map(drop).map_err(|error| refused(chain(&error)))
}

/// Sets a NIC for reaping, and remembers how it was.
pub(super) fn reap(pins: &Pins, attached: &Attached) -> Result<(), XdpError> {
    let (Some(nic), None) = (&attached.nic, attached.before_reaping) else { return Ok(()) };
    if !reap::can_reap(nic) {
        return Err(XdpError::CannotReap(nic.clone()));
    }
    let Deferral { polls, flush_ns } = reap::read(nic)?;
    // On record before it is done, so that it can be undone whatever comes between.
    let pin = pins.nics().join(format!("{}-{}-{polls}-{flush_ns}", attached.index, attached.mode));
    std::fs::rename(&attached.pin, &pin).map_err(failed("renaming", &attached.pin))?;
    reap::write(nic, Deferral::REAPING)
}

/// Detaches the program from a NIC, and leaves the NIC as it was found. When this returns, it is free for another.
pub(super) fn detach(attached: &Attached) -> Result<(), XdpError> {
    if let (Some(nic), Some(before)) = (&attached.nic, attached.before_reaping) {
        reap::write(nic, before)?;
    }
    // First the name: interrupted in between, the link goes with this process.
    let link = sys::open_pin(&attached.pin).map_err(failed("opening", &attached.pin))?;
    remove(&attached.pin)?;
    sys::detach_link(link.as_fd()).map_err(failed("detaching what was pinned at", &attached.pin))
}
