//! Attaching the XDP program to NICs.

use super::busy_poll::{self, Deferral};
use super::error::{chain, failed};
use super::mode::{Mode, attach_to, errno, is_taken};
use super::mtu::mtu_excess;
use super::pins::{Pins, entries, remove};
use super::standing::{self, Kernel, Standing};
use super::{XdpError, answers};
use crate::netlink;
use crate::sys;
use aya::programs::Xdp;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;
use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A NIC that the program was attached to, and what became of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Name of the NIC that has the index now; `None` when there is none.
    pub nic: Option<String>,
    /// Its index.
    pub index: u32,
    /// Where the program runs.
    pub mode: Mode,
    /// How the NIC was set before it was set for busy polling; `None`: it was not.
    pub before_busy_polling: Option<Deferral>,
    /// What the kernel says of it.
    pub standing: Standing,
    /// Why it does not run in the driver though that was tried; known only to the call that has attached it.
    pub native_refused: Option<String>,
    /// Why what it sends from the driver does not leave the NIC, as far as that was tried; known only to the call that
    /// has attached it. The owners of memories answer meanwhile.
    pub answers_dropped: Option<String>,
    pub(crate) pin: PathBuf,
}

impl Attached {
    /// Whether the program is attached, as far as is known.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.standing.is_attached()
    }
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nic = self.nic.as_deref().unwrap_or("?");
        match &self.standing {
            Standing::Attached | Standing::Unknown => write!(f, "it is on {nic} ({})", self.mode),
            Standing::NicGone => write!(f, "the NIC that it was on (number {}) is gone", self.index),
            Standing::Detached => write!(f, "it was detached from {nic}"),
            Standing::Replaced(stranger) => stranger.fmt(f),
        }
    }
}

/// The NICs that the program was attached to.
pub(crate) fn list(pins: &Pins) -> Result<Vec<Attached>, XdpError> {
    list_by(&mut Kernel::here(), pins)
}

/// The same, asked of `kernel`.
pub(super) fn list_by(kernel: &mut Kernel, pins: &Pins) -> Result<Vec<Attached>, XdpError> {
    let programs = pins.known_programs()?;
    let mut parse = |pin: PathBuf| {
        let mut parts = pin.file_name()?.to_str()?.split('-');
        let (index, mode) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let mut number = || parts.next()?.parse().ok();
        let before_busy_polling =
            number().zip(number()).map(|(polls, flush_ns)| Deferral { polls, flush_ns });
        let (nic, standing) = kernel.standing(index, mode, &programs);
        Some(Attached {
            nic,
            index,
            mode,
            before_busy_polling,
            standing,
            native_refused: None,
            answers_dropped: None,
            pin,
        })
    };
    let mut nics: Vec<Attached> = entries(&pins.nics())?.into_iter().filter_map(&mut parse).collect();
    nics.sort_by_key(|attached| attached.index);
    Ok(nics)
}

/// Index of the NIC called `nic`.
pub(crate) fn index_of(nic: &str) -> Result<u32, XdpError> {
    sys::interface_index(nic).ok_or_else(|| XdpError::NoSuchNic(nic.to_owned()))
}

/// The name that a NIC has first, given that or an alternative one; what is given, where no NIC has it.
#[must_use]
pub fn first_name(nic: &str) -> String {
    sys::interface_index(nic).and_then(sys::interface_name).unwrap_or_else(|| nic.to_owned())
}

/// Attaches a program to a NIC: natively, where nothing else is asked for, and generically where the driver
/// cannot.
pub(crate) fn attach(
    program: &mut Xdp,
    pins: &Pins,
    nic: &str,
    mode: Option<Mode>,
) -> Result<Attached, XdpError> {
    let index = index_of(nic)?;
    let is_demanded = mode.is_some();
    let modes = mode.map_or(vec![Mode::Native, Mode::Generic], |mode| vec![mode]);
    let (mut last, mut native_refused) = (None, None);
    for mode in modes {
        match attach_as(program, pins, nic, index, mode) {
            Err(error @ (XdpError::Attach { .. } | XdpError::Mtu { .. })) => {
                if mode == Mode::Native {
                    native_refused = Some(refusal(&error));
                }
                last = Some(error);
            }
            Ok(attached) => {
                let dropped = (mode == Mode::Native).then(|| answers::dropped(index, nic)).flatten();
                match dropped {
                    // It can answer behind the driver.
                    Some(dropped) if !dropped.may_change && !is_demanded => {
                        detach(&attached)?;
                        native_refused = Some(dropped.why);
                    }
                    dropped => {
                        let answers_dropped = dropped.map(|dropped| dropped.why);
                        return Ok(Attached { native_refused, answers_dropped, ..attached });
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| XdpError::NoSuchNic(nic.to_owned())))
}

/// Why a driver took no program.
fn refusal(error: &XdpError) -> String {
    match error {
        XdpError::Attach { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

fn attach_as(
    program: &mut Xdp,
    pins: &Pins,
    nic: &str,
    index: u32,
    mode: Mode,
) -> Result<Attached, XdpError> {
    let refused = |reason: String| XdpError::Attach { nic: nic.to_owned(), mode, reason };
    if let (Mode::Native, Some(excess)) = (mode, mtu_excess(nic)) {
        return Err(XdpError::Mtu { nic: nic.to_owned(), excess });
    }
    let link = match attach_to(program, index, mode) {
        Err(error) if is_taken(&error) => return Err(standing::taken(index)),
        Err(error) => {
            let flag = match mode {
                Mode::Native => netlink::NATIVE,
                Mode::Generic => netlink::GENERIC,
            };
            let words = program.fd().ok().and_then(|fd| netlink::why_refused(index, fd.as_fd(), flag));
            return Err(refused(match (words, errno(&error)) {
                (Some(words), Some(errno)) => format!("{words} ({errno})"),
                _ => chain(&error),
            }));
        }
        Ok(link) => link,
    };
    let link = program.take_link(link).map_err(|error| refused(chain(&error)))?;
    // A link that cannot be pinned would go with this process; it is dropped, and so detached, here.
    let link: FdLink = link.try_into().map_err(|error| refused(chain(&error)))?;
    let pin = pins.nic(index, mode);
    link.pin(&pin).map_err(|error| refused(chain(&error)))?;
    Ok(Attached {
        nic: Some(nic.to_owned()),
        index,
        mode,
        before_busy_polling: None,
        standing: Standing::Attached,
        native_refused: None,
        answers_dropped: None,
        pin,
    })
}

/// Puts the program in the place of the one that is attached; no packet sees neither.
pub(super) fn replace(program: &mut Xdp, attached: &Attached) -> Result<(), XdpError> {
    let nic = attached.nic.clone().unwrap_or_else(|| attached.index.to_string());
    let refused = |reason: String| XdpError::Attach { nic: nic.clone(), mode: attached.mode, reason };
    let link = PinnedLink::from_pin(&attached.pin).map_err(|error| refused(chain(&error)))?;
    let link = XdpLink::try_from(FdLink::from(link)).map_err(|error| refused(chain(&error)))?;
    program.attach_to_link(link).map(drop).map_err(|error| refused(chain(&error)))
}

/// Sets a NIC for busy polling, and remembers how it was.
pub(super) fn set_for_busy_polling(pins: &Pins, attached: &Attached) -> Result<(), XdpError> {
    let (Some(nic), None) = (&attached.nic, attached.before_busy_polling) else { return Ok(()) };
    if !busy_poll::can_busy_poll(nic) {
        return Err(XdpError::CannotBusyPoll(nic.clone()));
    }
    let Deferral { polls, flush_ns } = busy_poll::read(nic)?;
    // On record before it is done, so that it can be undone whatever comes between.
    let pin = pins.nics().join(format!("{}-{}-{polls}-{flush_ns}", attached.index, attached.mode));
    std::fs::rename(&attached.pin, &pin).map_err(failed("renaming", &attached.pin))?;
    busy_poll::write(nic, Deferral::BUSY_POLLING)
}

/// Detaches the program from a NIC, if it still is attached, and leaves the NIC as it was found. When this returns, it
/// is free for another.
pub(super) fn detach(attached: &Attached) -> Result<(), XdpError> {
    if let (Some(nic), Some(before)) = (&attached.nic, attached.before_busy_polling) {
        // Another NIC may have the number by now.
        if attached.is_attached() || busy_poll::read(nic).is_ok_and(|now| now == Deferral::BUSY_POLLING) {
            busy_poll::write(nic, before)?;
        }
    }
    detach_link(&attached.pin)
}

/// Takes a program off what a pinned link attaches it to, and removes the pin.
pub(crate) fn detach_link(pin: &Path) -> Result<(), XdpError> {
    // First the name: interrupted in between, the link goes with this process.
    let link = sys::open_pin(pin).map_err(failed("opening", pin))?;
    remove(pin)?;
    sys::detach_link(link.as_fd()).map_err(failed("detaching what was pinned at", pin))
}
