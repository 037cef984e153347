//! Putting the program on all ports at one hook.

use super::port::{self, Attachment};
use super::program::Forwarder;
use super::{Hook, Rules, SwitchError};
use crate::sys;
use crate::xdp::{Pins, XdpError};

/// Linux with which programs can be at tc's ingress by links (tcx).
const TCX: (u32, u32) = (6, 6);

/// The program on its ports.
pub(super) struct OnPorts {
    pub(super) forwarder: Forwarder,
    /// The new ports.
    pub(super) attached: Vec<Attachment>,
    /// Why the program is not in the drivers, though all NICs are real.
    pub(super) native_refused: Option<String>,
}

/// Attaches the program to new ports, and then in the place of the one that others have. Without a hook it is in the drivers
/// (`may_be_native`) if all of them take it and send what it forwards, else behind them. When it fails for a new port, the others have
/// what they had.
pub(super) fn attach(
    pins: &Pins,
    rules: Rules,
    others: &[Attachment],
    new: &[String],
    hook: Option<Hook>,
    may_be_native: bool,
) -> Result<OnPorts, SwitchError> {
    let behind = if sys::kernel_version() >= TCX { Hook::Tc } else { Hook::Generic };
    let now = others.first().map(|other| other.hook);
    let wanted = hook.or(now.filter(|now| *now != Hook::Native || may_be_native));
    let first = wanted.unwrap_or(if may_be_native { Hook::Native } else { behind });
    let may_be_refused = hook.is_none() && first == Hook::Native;
    match attach_new(pins, rules, new, first, may_be_refused) {
        Err(refused @ (SwitchError::Refused { .. } | SwitchError::Xdp(XdpError::Mtu { .. })))
            if may_be_refused =>
        {
            let (forwarder, attached) = attach_new(pins, rules, new, behind, false)?;
            finish(pins, forwarder, others, attached, Some(refused.to_string()))
        }
        attached => {
            let (forwarder, attached) = attached?;
            finish(pins, forwarder, others, attached, None)
        }
    }
}

/// Attaches to all, or to none. A NIC that does not let out what the program sends refuses it, if `must_send`.
fn attach_new(
    pins: &Pins,
    rules: Rules,
    new: &[String],
    hook: Hook,
    must_send: bool,
) -> Result<(Forwarder, Vec<Attachment>), SwitchError> {
    let mut forwarder = Forwarder::load(rules, hook, false)?;
    // Before it is attached anywhere: who asks the kernel knows it for ours.
    pins.remember_program(forwarder.id()?)?;
    let mut attached: Vec<Attachment> = Vec::new();
    for nic in new {
        let refused = match port::attach(&mut forwarder, pins, nic) {
            Ok(one) => {
                let reason = one.drops.clone().filter(|_| must_send);
                attached.push(one);
                reason.map(|reason| SwitchError::Refused { nic: nic.clone(), hook, reason })
            }
            Err(error) => Some(error),
        };
        if let Some(refused) = refused {
            attached.iter().try_for_each(Attachment::detach)?;
            return Err(refused);
        }
    }
    Ok((forwarder, attached))
}

/// Has the other ports get the program, too. In between the bridge has their frames.
fn finish(
    pins: &Pins,
    mut forwarder: Forwarder,
    others: &[Attachment],
    mut attached: Vec<Attachment>,
    native_refused: Option<String>,
) -> Result<OnPorts, SwitchError> {
    for other in others {
        other.detach()?;
        if let Some(name) = &other.nic {
            attached.push(port::attach(&mut forwarder, pins, name)?);
        }
    }
    pins.forget_programs(&[forwarder.id()?])?;
    Ok(OnPorts { forwarder, attached, native_refused })
}
