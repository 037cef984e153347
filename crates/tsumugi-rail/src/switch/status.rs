//! What there is of a box.

use super::groups::{Events, GroupEntry};
use super::port::{self, Attachment};
use super::program::{Known, of_place_key};
use super::{Counts, LostOnTheWay, Rules, SwitchError, changes, rules};
use crate::ether::Mac;
use crate::netlink::Questions;
use crate::sys;
use crate::xdp::Pins;
use std::collections::BTreeMap;
use std::time::Duration;

/// A box.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its bridges.
    pub bridges: Vec<BridgeStatus>,
    /// Its rules; `None`: there is no box.
    pub rules: Option<Rules>,
    /// Its ports, by the index of their NICs.
    pub ports: Vec<Port>,
    /// The addresses that it knows; empty, too, if the caller may not ask.
    pub seen: Vec<Seen>,
    /// The groups that it counts for; empty, too, if the caller may not ask.
    pub groups: Vec<CountedGroup>,
    /// What packets of groups have come to; `None`: the caller may not ask.
    pub events: Option<Events>,
    /// Why the program is not in the drivers, though all NICs are real; known only to the call that has attached it.
    pub native_refused: Option<String>,
}

/// A bridge of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeStatus {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Whether it was made for the box, and goes with it.
    pub is_made: bool,
}

/// A port of a box.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its NIC, and what became of the program on it.
    pub attached: Attachment,
    /// Index of the bridge that it is a port of; `None`: of none any more.
    pub bridge: Option<u32>,
    /// What happened to frames that came in by it; `None`: the caller may not ask.
    pub counts: Option<Counts>,
    /// What is lost of frames that come in by it, if it is a veth with the program in its driver, and its other end
    /// was not told.
    pub lost: Option<LostOnTheWay>,
}

/// Where an address was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The VLAN; 0: none.
    pub vlan: u16,
    /// The address.
    pub address: Mac,
    /// Index of the port's NIC.
    pub nic: u32,
    /// How long ago its last frame came, to the second.
    pub ago: Duration,
}

/// A group that a box counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedGroup {
    /// Its job.
    pub job: u64,
    /// Its number in the job.
    pub number: u64,
    /// Members in all.
    pub members: u16,
    /// Those that have joined at this box, or at boxes below it.
    pub joined: u16,
    /// Slots of this box that they take: one for each member at a port, and one for each box below.
    pub slots: u16,
    /// Whether all members have joined, here or elsewhere.
    pub is_formed: bool,
    /// Whether member 0 is here, so that this box releases; else another one above it does.
    pub is_root: bool,
    /// Generations that are complete.
    pub complete: u64,
    /// How long ago somebody was last heard, to the second.
    pub ago: Duration,
}

/// The box of this network namespace.
///
/// # Errors
/// The BPF file system cannot be read.
pub fn status() -> Result<Status, SwitchError> {
    let pins = Pins::of_the_switch()?;
    let attached = port::list(&pins)?;
    of(&pins, &attached)
}

/// The box with these ports.
pub(super) fn of(pins: &Pins, attached: &[Attachment]) -> Result<Status, SwitchError> {
    let Some(rules) = rules(pins)? else { return Ok(Status::default()) };
    let changes = changes(pins);
    let mut bridges: Vec<BridgeStatus> = Vec::new();
    for index in attached.iter().filter_map(bridge_of) {
        if !bridges.iter().any(|bridge| bridge.index == index) {
            let name = sys::interface_name(index).unwrap_or_else(|| index.to_string());
            bridges.push(BridgeStatus { name, index, is_made: changes.has_made(index)? });
        }
    }
    let known = Known::open(pins.folder()).ok();
    let port = |attached: &Attachment| Port {
        attached: attached.clone(),
        bridge: bridge_of(attached),
        counts: known.as_ref().and_then(|known| Some(known.counts(known.port(attached.index)?))),
        lost: LostOnTheWay::by(attached),
    };
    let now_s = sys::monotonic_s();
    let number = |attached: &Attachment| Some((known.as_ref()?.port(attached.index)?, attached.index));
    let nics: BTreeMap<u32, u32> = attached.iter().filter_map(number).collect();
    let seen = known.iter().flat_map(Known::places).filter_map(|(key, place)| {
        let ago_s = now_s.wrapping_sub(place.seen_s);
        let (vlan, address) = of_place_key(key);
        let nic = *nics.get(&place.port)?;
        let seen = Seen { vlan, address, nic, ago: Duration::from_secs(ago_s.into()) };
        (ago_s < rules.ageing_s).then_some(seen)
    });
    let group = |entry: GroupEntry| CountedGroup {
        job: entry.job,
        number: entry.number,
        members: entry.size,
        joined: entry.weight,
        slots: entry.slots_used,
        is_formed: entry.is_formed != 0,
        is_root: entry.is_root != 0,
        complete: entry.generation.saturating_sub(1),
        ago: Duration::from_secs(now_s.wrapping_sub(entry.seen_s).into()),
    };
    let groups = known.iter().flat_map(Known::groups).map(group).collect();
    let mut seen: Vec<Seen> = seen.collect();
    seen.sort_by_key(|seen| (seen.nic, seen.vlan, seen.address));
    Ok(Status {
        bridges,
        rules: Some(rules),
        ports: attached.iter().map(port).collect(),
        seen,
        groups,
        events: known.as_ref().and_then(Known::events),
        native_refused: None,
    })
}

/// Index of the bridge that a port's NIC is a port of.
fn bridge_of(port: &Attachment) -> Option<u32> {
    port.is_attached().then(|| Questions::open().ok()?.member(port.index).ok()?.controller).flatten()
}
