//! The program on a NIC: attaching it, what became of that, and taking it off.

use super::program::Forwarder;
use super::{Hook, SwitchError};
use crate::netlink::for_programs;
use crate::sys;
use crate::xdp::pins::entries;
use crate::xdp::{Attached, Pins, Standing, XdpError, chain, nic};
use aya::programs::links::FdLink;
use aya::programs::tc::{SchedClassifier, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, TcAttachType};
use std::fmt;
use std::path::PathBuf;

/// The program on a NIC, and what became of that.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Name of the NIC that has the index now; `None`: there is none.
    pub nic: Option<String>,
    /// Its index.
    pub index: u32,
    /// Where the program gets frames.
    pub hook: Hook,
    /// What the kernel says of it.
    pub standing: Standing,
    /// Why what the program sends does not leave the NIC, as far as that was tried; known only to the call that attached it.
    pub drops: Option<String>,
    pin: PathBuf,
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nic = self.nic.as_deref().unwrap_or("?");
        match &self.standing {
            Standing::Attached | Standing::Unknown => write!(f, "it is on {nic} ({})", self.hook),
            Standing::NicGone => write!(f, "the NIC that it was on (number {}) is gone", self.index),
            Standing::Detached => write!(f, "it was detached from {nic}"),
            Standing::Replaced(stranger) => stranger.fmt(f),
        }
    }
}

impl From<Attached> for Attachment {
    fn from(attached: Attached) -> Attachment {
        let Attached { nic, index, mode, standing, answers_dropped, pin, .. } = attached;
        Attachment { nic, index, hook: mode.into(), standing, drops: answers_dropped, pin }
    }
}

impl Attachment {
    /// Whether the program is attached, as far as is known.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.standing.is_attached()
    }

    /// Takes the program off the NIC.
    pub(super) fn detach(&self) -> Result<(), SwitchError> {
        Ok(nic::detach_link(&self.pin)?)
    }
}

/// Puts the program on a NIC.
pub(super) fn attach(forwarder: &mut Forwarder, pins: &Pins, nic: &str) -> Result<Attachment, SwitchError> {
    let hook = forwarder.hook();
    if let Some(mode) = hook.mode() {
        let attached = nic::attach(forwarder.xdp()?, pins, nic, Some(mode)).map_err(|error| match error {
            XdpError::Attach { nic, reason, .. } => SwitchError::Refused { nic, hook, reason },
            error => error.into(),
        });
        let mut attached: Attachment = attached?.into();
        // Before Linux 6.3 the kernel does not say.
        if attached.drops.is_none() && for_programs(attached.index).is_some_and(|it| !it.sends) {
            attached.drops = Some("its driver sends no frames for programs on other NICs".to_owned());
        }
        return Ok(attached);
    }
    let index = nic::index_of(nic)?;
    let pin = pins.nics().join(format!("{index}-{hook}"));
    let refused = |error: &dyn std::error::Error| {
        let reason = chain(error);
        SwitchError::Refused { nic: nic.to_owned(), hook, reason }
    };
    let program = forwarder.tc()?;
    // Before others: what they let pass or change is not what came in.
    let first = TcAttachOptions::TcxOrder(LinkOrder::first());
    let attached = program.attach_with_options(nic, TcAttachType::Ingress, first);
    let link =
        attached.and_then(|id| program.take_link(id)).map_err(|error: ProgramError| refused(&error))?;
    // A link that cannot be pinned would go with this process; it is dropped, and so detached, here.
    let link = FdLink::try_from(link).map_err(|error| refused(&error))?;
    link.pin(&pin).map_err(|error| refused(&error))?;
    Ok(Attachment { nic: Some(nic.to_owned()), index, hook, standing: Standing::Attached, drops: None, pin })
}

/// The NICs that the program was put on, by their indices.
pub(super) fn list(pins: &Pins) -> Result<Vec<Attachment>, XdpError> {
    let programs = pins.known_programs()?;
    let at_tc = |pin: PathBuf| {
        let (index, hook) = pin.file_name()?.to_str()?.split_once('-')?;
        let (index, hook) = (index.parse().ok()?, hook.parse().ok().filter(|hook| *hook == Hook::Tc)?);
        let nic = sys::interface_name(index);
        let standing = nic.as_ref().map_or(Standing::NicGone, |nic| standing_at_tc(nic, &programs));
        Some(Attachment { nic, index, hook, standing, drops: None, pin })
    };
    let mut all: Vec<Attachment> = entries(&pins.nics())?.into_iter().filter_map(at_tc).collect();
    all.extend(nic::list(pins)?.into_iter().map(Attachment::from));
    all.sort_by_key(|attached| attached.index);
    Ok(all)
}

/// Whether one of these programs is at tc's ingress of a NIC.
fn standing_at_tc(nic: &str, programs: &[u32]) -> Standing {
    match SchedClassifier::query_tcx(nic, TcAttachType::Ingress) {
        Ok((_, there)) if there.iter().any(|program| programs.contains(&program.id())) => Standing::Attached,
        Ok(_) => Standing::Detached,
        Err(_) => Standing::Unknown,
    }
}
