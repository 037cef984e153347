//! Putting the program on all ports at one hook.

use super::port::{self, Attachment};
use super::program::{Forwarder, Hook};
use super::{Rules, SwitchError};
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
    let may_fail = hook.is_none() && first == Hook::Native;
    let mut native_refused = None;
    if may_fail {
        match attach_new(pins, rules, new, first, true)? {
            Ok((forwarder, attached)) => return finish(pins, forwarder, others, attached, None),
            Err(why) => native_refused = Some(why),
        }
    }
    let hook = if may_fail { behind } else { first };
    match attach_new(pins, rules, new, hook, false)? {
        Ok((forwarder, attached)) => finish(pins, forwarder, others, attached, native_refused),
        Err(reason) => Err(SwitchError::Tc { nic: new.join(" "), reason }),
    }
}

/// Attaches to all, or to none and says why not.
fn attach_new(
    pins: &Pins,
    rules: Rules,
    new: &[String],
    hook: Hook,
    may_fail: bool,
) -> Result<Result<(Forwarder, Vec<Attachment>), String>, SwitchError> {
    let mut forwarder = Forwarder::load(rules, hook, false)?;
    // Before it is attached anywhere: who asks the kernel knows it for ours.
    pins.remember_program(forwarder.id()?)?;
    let mut attached: Vec<Attachment> = Vec::new();
    for name in new {
        let why = match port::attach(&mut forwarder, pins, name) {
            Ok(one) => {
                let drops = one.drops.clone();
                attached.push(one);
                match drops.filter(|_| may_fail) {
                    None => continue,
                    Some(why) => Ok(format!("{name}: {why}")),
                }
            }
            Err(SwitchError::Xdp(error @ (XdpError::Attach { .. } | XdpError::Mtu { .. }))) if may_fail => {
                Ok(error.to_string())
            }
            Err(error) => Err(error),
        };
        attached.iter().try_for_each(Attachment::detach)?;
        return why.map(Err);
    }
    Ok(Ok((forwarder, attached)))
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
