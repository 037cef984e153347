//! Making, changing and removing the box.

use super::attach::{OnPorts, attach};
use super::changes::Change;
use super::port::{self, Attachment};
use super::program::{Forwarder, PINNED, place_key};
use super::{
    Hook, NETWORKS_MAX, PLACES_MAX, PORTS_MAX, PortEntry, Rules, Status, SwitchError, changes, settings,
    status,
};
use crate::netlink::{Bridge, Member, Questions};
use crate::sys;
use crate::xdp::pins::remove;
use crate::xdp::{Access, Pins, Standing, bpf_fs, first_name, nic};
use std::io;
use std::net::IpAddr;

/// Keeps a box's number from being 0.
const IS_BOX: u64 = 1 << 63;

/// The name of a bridge that is made when none is given.
pub const BRIDGE: &str = "tsumugi0";

/// Index of the first NIC that a bridge is tried to be made as: higher than those that the kernel gives.
const BRIDGE_INDEX: u32 = 0x0075_0000;

/// Bytes of a frame beside the IP packet: the Ethernet header and a VLAN tag (`xdp_ok_fwd_dev` in include/linux/filter.h).
const FRAME_BYTES_BESIDE: u32 = 14 + 4;

/// What a box is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where the program gets frames; `None`: in the drivers if all NICs are real and can, else behind them.
    pub hook: Option<Hook>,
    /// The bridge, which is made if it is not there; `None`: the one that a NIC is a port of, or else [`BRIDGE`].
    pub bridge: Option<String>,
    /// After how long a place is forgotten, s; `None`: as it is, or else as [`Rules`] say.
    pub ageing_s: Option<u32>,
    /// Most frames of a port that are flooded in a second; `None`: as above.
    pub floods_per_s: Option<u32>,
}

/// Root alone changes the box and looks into it.
const ACCESS: Access = Access { owner: None, group: None, mode: 0o600 };

/// Makes NICs the ports of a switch, in this network namespace, beside those that it has already. What it knew and counted is
/// forgotten. Meanwhile the bridge forwards.
///
/// # Errors
/// Says what failed. What this call has made of a new box is removed. One that was there keeps its ports if a new NIC is refused.
pub fn up(nics: &[String], options: &Options) -> Result<Status, SwitchError> {
    let pins = Pins::of_the_switch()?;
    bury(&pins);
    let made = pins.make(ACCESS).map_err(SwitchError::from).and_then(|(pins, _lock)| {
        let is_new = port::list(&pins)?.is_empty();
        let new: Vec<String> = nics.iter().map(|nic| first_name(nic)).collect();
        let made = raise(&pins, &new, options);
        if made.is_err() && is_new {
            lower(&pins)?;
        }
        let OnPorts { attached, native_refused, .. } = made?;
        Ok(Status { native_refused, ..status::of(&pins, &attached)? })
    });
    if made.is_err() {
        bpf_fs::clear();
    }
    made
}

fn raise(pins: &Pins, new: &[String], options: &Options) -> Result<OnPorts, SwitchError> {
    let (others, dead): (Vec<_>, Vec<_>) = port::list(pins)?.into_iter().partition(Attachment::is_attached);
    let mut names: Vec<String> = others.iter().filter_map(|other| other.nic.clone()).collect();
    let mut added = Vec::new();
    for nic in new {
        if !names.contains(nic) {
            names.push(nic.clone());
            added.push(nic.clone());
        }
    }
    if names.is_empty() {
        return Err(SwitchError::NoPorts);
    }
    if names.len() > PORTS_MAX as usize {
        return Err(SwitchError::TooManyPorts(names.len()));
    }
    let mut questions = Questions::open().map_err(asked("asking about", "NICs"))?;
    let members = names.iter().map(|name| member(&mut questions, name)).collect::<Result<Vec<_>, _>>()?;
    let before = super::rules(pins)?.unwrap_or_default();
    let rules = Rules {
        ageing_s: options.ageing_s.unwrap_or(before.ageing_s),
        floods_per_s: options.floods_per_s.unwrap_or(before.floods_per_s),
        box_number: members.iter().map(|member| place_key(0, 0, member.nic.mac)).min().unwrap_or_default()
            | IS_BOX,
        ..before
    };
    let mut bridges = bridges_of(&mut questions, &members)?;
    let is_joining = |member: &&Member| member.controller.is_none();
    if let Some(wanted) = &options.bridge {
        stay_where_they_are(
            &bridges,
            members.iter().filter(|member| added.contains(&member.nic.name)),
            wanted,
        )?;
    }
    let target = match members.iter().find(is_joining) {
        Some(member) => Some(target(&mut questions, &mut bridges, &member.nic.name, options)?),
        None => None,
    };
    let networks = bridges.len() + usize::from(matches!(target, Some(Target::New(_))));
    if networks > NETWORKS_MAX as usize {
        return Err(SwitchError::TooManyBridges(networks));
    }
    for member in members.iter().filter(is_joining) {
        has_no_address(&member.nic.name)?;
    }

    // Nothing was changed till here.
    let joined = match target {
        Some(Target::New(name)) => {
            let bridge = make_bridge(&mut questions, pins, &name, members[0].nic.mac, rules)?;
            let index = bridge.nic.interface;
            bridges.push(bridge);
            index
        }
        Some(Target::There(index)) => index,
        None => 0,
    };
    dead.iter().try_for_each(Attachment::detach)?;
    let may_be_native = !members.iter().any(|member| member.is_virtual);
    let mut on_ports = attach(pins, rules, &others, &added, options.hook, may_be_native)?;
    let forwarder = &mut on_ports.forwarder;
    let changes = changes(pins);
    for member in &members {
        let (index, name) = (member.nic.interface, &member.nic.name);
        if is_joining(&member) {
            changes.note(Change::Joined, index)?;
            let joined = questions.set_controller(index, Some(joined));
            joined.map_err(asked("making a port of the bridge of", name))?;
        }
        if !member.is_on {
            changes.note(Change::SwitchedOn, index)?;
            questions.switch(index, true).map_err(asked("switching on", name))?;
        }
        settings::leave_alone(&changes, member, forwarder.hook())?;
    }
    tell(forwarder, &members, &bridges, joined)?;
    unpin(pins)?;
    forwarder.pin(pins.folder())?;
    super::note_rules(pins, rules)?;
    on_ports.attached.sort_by_key(|attached| attached.index);
    Ok(on_ports)
}

/// Tells the program of its ports, those that join the bridge with index `joined` included, and of this host's addresses.
fn tell(
    forwarder: &mut Forwarder,
    members: &[Member],
    bridges: &[Bridge],
    joined: u32,
) -> Result<(), SwitchError> {
    for own in members.iter().map(|member| &member.nic).chain(bridges.iter().map(|bridge| &bridge.nic)) {
        forwarder.own(own.mac)?;
    }
    for (member, number) in members.iter().zip(0..) {
        let bridge = member.controller.unwrap_or(joined);
        let network = bridges.iter().zip(0..).find(|(one, _)| one.nic.interface == bridge);
        let port = PortEntry {
            nic: member.nic.interface,
            number,
            network: network.map_or(0, |(_, network)| network),
            frame_bytes_max: member.nic.mtu_bytes as u32 + FRAME_BYTES_BESIDE,
            is_virtual: u32::from(member.is_virtual),
        };
        forwarder.enter(member.nic.interface, port)?;
    }
    Ok(())
}

/// What the kernel says of a NIC that is to be a port.
fn member(questions: &mut Questions, name: &str) -> Result<Member, SwitchError> {
    let member = questions.member(nic::index_of(name)?).map_err(asked("asking about", name))?;
    if !member.nic.ethernet {
        return Err(SwitchError::NoEthernet(name.to_owned()));
    }
    if let Some(setting) = member.exceptions.first() {
        return Err(SwitchError::Exception { nic: name.to_owned(), setting });
    }
    Ok(member)
}

/// The bridges that NICs are ports of, each once.
fn bridges_of(questions: &mut Questions, members: &[Member]) -> Result<Vec<Bridge>, SwitchError> {
    let mut bridges: Vec<Bridge> = Vec::new();
    for member in members {
        let (nic, Some(controller)) = (&member.nic.name, member.controller) else { continue };
        if bridges.iter().any(|bridge| bridge.nic.interface == controller) {
            continue;
        }
        let Some(bridge) = bridge(questions, controller)? else {
            let controller = sys::interface_name(controller).unwrap_or_else(|| controller.to_string());
            return Err(SwitchError::Controlled { nic: nic.clone(), controller });
        };
        bridges.push(bridge);
    }
    Ok(bridges)
}

/// A bridge that the program can stand in for; `None`: what has this index is none.
fn bridge(questions: &mut Questions, index: u32) -> Result<Option<Bridge>, SwitchError> {
    let name = || sys::interface_name(index).unwrap_or_else(|| index.to_string());
    let bridge = questions.bridge(index).map_err(asked("asking about", &name()))?;
    match bridge.as_ref().and_then(|bridge| bridge.exceptions.first()) {
        Some(setting) => Err(SwitchError::Exception { nic: name(), setting }),
        None => Ok(bridge),
    }
}

/// NICs that are to be ports of one bridge are not ports of another.
fn stay_where_they_are<'a>(
    bridges: &[Bridge],
    mut members: impl Iterator<Item = &'a Member>,
    wanted: &str,
) -> Result<(), SwitchError> {
    let of = |member: &Member| bridges.iter().find(|bridge| Some(bridge.nic.interface) == member.controller);
    let other = members.find_map(|member| Some((member, of(member).filter(|it| it.nic.name != wanted)?)));
    match other {
        Some((member, bridge)) => {
            Err(SwitchError::OfAnother { nic: member.nic.name.clone(), bridge: bridge.nic.name.clone() })
        }
        None => Ok(()),
    }
}

/// Which bridge NICs are to join.
enum Target {
    /// One that is there, by its index.
    There(u32),
    /// One that is to be made, by its name.
    New(String),
}

/// Finds the bridge that `nic` and others are to join, and adds it to those of the box.
fn target(
    questions: &mut Questions,
    bridges: &mut Vec<Bridge>,
    nic: &str,
    options: &Options,
) -> Result<Target, SwitchError> {
    let name = match (&options.bridge, bridges.as_slice()) {
        (Some(name), _) => name.as_str(),
        (None, []) => BRIDGE,
        (None, [one]) => return Ok(Target::There(one.nic.interface)),
        (None, _) => return Err(SwitchError::WhichBridge(nic.to_owned())),
    };
    let Some(index) = sys::interface_index(name) else { return Ok(Target::New(name.to_owned())) };
    if !bridges.iter().any(|bridge| bridge.nic.interface == index) {
        bridges.push(bridge(questions, index)?.ok_or_else(|| SwitchError::NoBridge(name.to_owned()))?);
    }
    Ok(Target::There(index))
}

/// A host is not to lose the address that it is reached by. Those of the link alone come by themselves.
fn has_no_address(nic: &str) -> Result<(), SwitchError> {
    let of_the_link = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let its = sys::interfaces().list.into_iter().filter(|interface| interface.name == nic);
    match its.filter_map(|interface| interface.address).find(|ip| !of_the_link(ip)) {
        Some(address) => Err(SwitchError::HasAddress { nic: nic.to_owned(), address }),
        None => Ok(()),
    }
}

/// Makes the bridge, on record by its index, which is chosen here. Its address stays what it is, whichever ports come and go.
fn make_bridge(
    questions: &mut Questions,
    pins: &Pins,
    name: &str,
    address: crate::ether::Mac,
    rules: Rules,
) -> Result<Bridge, SwitchError> {
    let failed = asked("making the bridge", name);
    let index = (BRIDGE_INDEX..).find(|index| sys::interface_name(*index).is_none());
    let index = index.ok_or_else(|| failed(io::ErrorKind::AddrInUse.into()))?;
    changes(pins).note(Change::Made, index)?;
    questions.make_bridge(index, name, address, PLACES_MAX, rules.ageing_s).map_err(failed)?;
    let bridge = questions.bridge(index).map_err(asked("asking about", name))?;
    bridge.ok_or_else(|| SwitchError::NoBridge(name.to_owned()))
}

fn asked(doing: &'static str, nic: &str) -> impl Fn(io::Error) -> SwitchError + use<> {
    let nic = nic.to_owned();
    move |source| SwitchError::Netlink { doing, nic: nic.clone(), source }
}

/// Takes NICs out of the box, or all of them, and with the last the bridge, if it was made for the box. Returns which.
///
/// # Errors
/// A NIC that is named is no port, or something could not be removed.
pub fn down(nics: &[String]) -> Result<Vec<Attachment>, SwitchError> {
    let pins = Pins::of_the_switch()?;
    bury(&pins);
    let gone = down_there(&pins, nics);
    bpf_fs::clear();
    gone
}

fn down_there(pins: &Pins, nics: &[String]) -> Result<Vec<Attachment>, SwitchError> {
    let Some(_lock) = pins.lock()? else {
        return match nics.first() {
            Some(nic) => Err(SwitchError::NotAPort(nic.clone())),
            None => Ok(Vec::new()),
        };
    };
    let nics: Vec<String> = nics.iter().map(|nic| first_name(nic)).collect();
    let all = port::list(pins)?;
    // A NIC that is gone may have had any name.
    let any = all.iter().any(|port| port.standing == Standing::NicGone);
    let is_port = |nic: &&String| all.iter().any(|port| port.nic.as_ref() == Some(nic));
    if let Some(stranger) = nics.iter().find(|nic| !any && !is_port(nic)) {
        return Err(SwitchError::NotAPort(stranger.clone()));
    }
    let goes = |port: &Attachment| {
        nics.is_empty() || !port.is_attached() || port.nic.as_ref().is_none_or(|nic| nics.contains(nic))
    };
    let (gone, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(goes);
    if stay.is_empty() {
        lower(pins)?;
    } else {
        gone.iter().try_for_each(Attachment::detach)?;
        changes(pins).undo(|nic| gone.iter().any(|port| port.index == nic))?;
        // The program must not know them any more, and nothing that it knows can be taken back one by one.
        raise(pins, &[], &Options::default())?;
    }
    Ok(gone)
}

/// Removes the box and whatever is left of one.
fn lower(pins: &Pins) -> Result<(), SwitchError> {
    port::list(pins)?.iter().try_for_each(Attachment::detach)?;
    let changes = changes(pins);
    changes.undo(|_| true)?;
    changes.forget()?;
    clear(pins)
}

fn clear(pins: &Pins) -> Result<(), SwitchError> {
    unpin(pins)?;
    super::forget_rules(pins)?;
    Ok(pins.clear()?)
}

fn unpin(pins: &Pins) -> Result<(), SwitchError> {
    Ok(PINNED.into_iter().try_for_each(|name| remove(&pins.folder().join(name)))?)
}

/// Removes what is pinned for network namespaces that are gone, as far as possible: leftovers harm nobody.
fn bury(pins: &Pins) {
    for dead in pins.of_the_dead() {
        let remove = || -> Result<(), SwitchError> {
            port::list(&dead)?.iter().try_for_each(Attachment::detach)?;
            changes(&dead).forget()?;
            clear(&dead)
        };
        let _ = remove();
    }
}
