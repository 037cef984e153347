//! What NICs keep beside a frame, and a program does not see.
//!
//! A real NIC's driver may take the VLAN tag out of a frame, and the kernel may join frames to longer ones before XDP behind the
//! driver sees them; sent on by XDP, the frame would be without its tag, and nobody would cut it up. So real NICs are told to leave
//! tags and frames alone ([`leave_alone`]). A virtual NIC hands over beside a frame what its other end has left to the wire,
//! tags and checksums: XDP behind the driver passes that on, to other virtual NICs alone; XDP in it loses it ([`LostOnTheWay`]).
//! At tc nothing is lost: what it redirects is sent as whatever the kernel sends.

use super::changes::{Change, Changes};
use super::port::Attachment;
use super::{Hook, SwitchError};
use crate::netlink::{Member, OtherEnd, Questions};
use crate::sys;

/// What a veth's other end leaves to be done, and a program in the driver loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostOnTheWay {
    /// The port.
    pub nic: String,
    /// Its other end, where the caller may ask.
    pub other_end: Option<String>,
}

impl LostOnTheWay {
    /// Asks about a port; `None`: it loses nothing.
    pub(super) fn by(attached: &Attachment) -> Option<LostOnTheWay> {
        let nic = attached.nic.clone().filter(|_| attached.hook == Hook::Native)?;
        let end = Questions::open().and_then(|mut questions| questions.other_end(attached.index));
        let other_end = match end.ok()?? {
            OtherEnd::Alone(name) | OtherEnd::Port(name) => Some(name),
            OtherEnd::Unseen => None,
        };
        Some(LostOnTheWay { nic, other_end })
    }
}

/// Has a real NIC leave VLAN tags in frames, and frames as they are.
pub(super) fn leave_alone(changes: &Changes, member: &Member, hook: Hook) -> Result<(), SwitchError> {
    let (nic, index) = (&member.nic.name, member.nic.interface);
    if member.is_virtual || hook == Hook::Tc {
        return Ok(());
    }
    let failed = |doing| move |source| SwitchError::Netlink { doing, nic: nic.clone(), source };
    if sys::takes_vlan_tags(nic).unwrap_or(false) {
        changes.note(Change::TagsLeft, index)?;
        let told = sys::take_vlan_tags(nic, false);
        told.map_err(failed("having VLAN tags left in frames (`ethtool -K NIC rxvlan off`) by"))?;
    }
    if hook == Hook::Generic && sys::joins_frames(nic).unwrap_or(false) {
        changes.note(Change::FramesLeft, index)?;
        let told = sys::join_frames(nic, false);
        told.map_err(failed("having frames left as they are (`ethtool -K NIC gro off`) by"))?;
    }
    Ok(())
}
