//! `tsumugi switch`: an Ethernet switch, made of this host's NICs.

use crate::xdp::require_root;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;
use tsumugi_measure::choices::words;
use tsumugi_measure::log::{self, Level};
use tsumugi_rail::ether::Mac;
use tsumugi_rail::switch::{
    self, BridgeStatus, CountedGroup, Hook, LostOnTheWay, Options, Port, Seen, Status,
};

const UP_HELP: &str = "\
The NICs become ports of a Linux bridge, tsumugi0 unless they are ports of one already, and each gets a program. It sends on frames \
for addresses whose port it knows; all else goes to the bridge as if there were no program: broadcasts, unknown addresses, and what \
is for this host. So all traffic passes, and the frequent kind is spared the bridge.

Frames that the program sends on pass no firewall of this host (nft, ebtables), and no tc filter where they come in; with XDP also \
none, and no queue, where they go out. A bridge with VLAN filtering or a spanning tree, and a NIC with an address of its own, \
are refused. VLAN tags are kept, and each VLAN is learned by itself.

--hook says where the program gets frames:

  native     XDP in the NICs' drivers, before the kernel has made anything of a frame. The default where all NICs are real, and their \
             drivers take the program and send what it forwards. Frames in several buffers go to the bridge. NICs are told to leave \
             VLAN tags in frames (`ethtool -K NIC rxvlan off`)
  tc         the ingress of tc, behind XDP: any NIC, any frame; Linux 6.6. The default where a NIC is virtual, for there XDP copies \
             every frame first
  generic    XDP behind the drivers: before Linux 6.6. Real NICs are told not to join frames, too (`ethtool -K NIC gro off`)

What NICs are told is undone by 'down'. A veth loses to native XDP what its other end leaves to the wire; say there `ethtool -K NIC tx \
off txvlan off gro on`.

  sudo tsumugi switch up eth1 eth2 eth3         a switch of three NICs
  sudo tsumugi switch up eth4                   one more
  sudo tsumugi switch status
  sudo tsumugi switch down eth4                 without it
  sudo tsumugi switch down                      as it was before";

const STATUS_HELP: &str = "\
Frames are counted at the port that they come in by:

  forwarded  sent on by the program
  flooded    given to the bridge: a broadcast or multicast, or nobody knows yet where its destination is
  shown      given to the bridge, which is to learn where its source is: new or moved ones, others now and then
  bridged    given to the bridge: it is too long for its port, or the port has just gone; by XDP also if it lies in several buffers \
             (native: or another of its source did in the last 2 s), or comes from a virtual NIC and goes to a real one
  local      given to the bridge: it is for this host
  filtered   dropped: its destination is at the port that it came from
  storm      dropped: more than --floods of its kind in one second
  malformed  dropped: its source is a group address, zero or this host's own, or its VLAN tag is cut off
  counted    taken: it was for the box itself, which counts for groups

Groups are those of programs (`Group::use_switch_box`, docs/models.md), which have the box on their way count their barriers and small \
reductions and make packets for each out of one of a broadcast, and those of one that sends to several (`tsumugi::multicast`). One line tells of a group: how many of its members have joined, and how many generations are complete. Packets for the \
box come to:

  join       a member joined, or said so again
  arrive     a member has arrived, and others have not
  release    the last has arrived, and all were told
  again      a member that had arrived said so again: a packet was lost, or it waits for long
  leave      a member left
  up         passed up to the next box, as this one's
  down       passed down from it
  lost       a member wants a result from before the box was restarted, and asks others
  unknown_seat      the sender has no seat here: the box was restarted, or a stranger has made it up. It is told to join
  wrong_key         dropped: the sender does not know the group's key
  refused           there is no room for another group or member, or the sender says another size
  wrong_generation  dropped: nobody who keeps to the rules is there
  disagreement      members want different things combined, and are told
  malformed         dropped: damaged, or it says nothing that there is
  not_mine          a box's answer or release: passed on to whom it is for, or dropped as out of date
  multicast         a packet for several receivers, of which each gets one of its own";

/// Options of this command.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make NICs the ports of a switch, or add NICs to it (root).
    #[command(after_help = UP_HELP)]
    Up(Up),
    /// Take NICs out of the switch, or take it away altogether (root).
    Down(Down),
    /// Show the ports, what happened to their frames, and the addresses that are known.
    #[command(after_help = STATUS_HELP)]
    Status(StatusArguments),
}

/// What to make.
#[derive(Args)]
struct Up {
    /// The NICs, as in `ip link`; none: change the settings of the switch that is there.
    #[arg(value_name = "NIC")]
    nics: Vec<String>,
    /// The bridge; made if it is not there [default: the one that a NIC is a port of, or else tsumugi0].
    #[arg(long, value_name = "NAME")]
    bridge: Option<String>,
    /// Where the program gets frames [default: native if all NICs are real and can, else tc].
    #[arg(long, value_parser = PossibleValuesParser::new(words::<Hook>()).try_map(|word| word.parse::<Hook>()))]
    hook: Option<Hook>,
    /// After how many seconds without a frame an address is forgotten [default: 300, or as it is].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    ageing: Option<u32>,
    /// How many frames of one port are flooded in a second, at most [default: 10000, or as it is].
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u32).range(1..))]
    floods: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What to take out.
#[derive(Args)]
struct Down {
    /// The NICs; all of them if none is named.
    #[arg(value_name = "NIC")]
    nics: Vec<String>,
    /// Print one JSON object: what was taken out.
    #[arg(long)]
    json: bool,
}

/// What to show.
#[derive(Args)]
struct StatusArguments {
    /// List every address with its port; --json always does.
    #[arg(long, conflicts_with = "json")]
    addresses: bool,
    /// Print one JSON object, with the addresses.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Whether it changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.action, Action::Status(_))
    }
}

pub(crate) fn run(arguments: &Arguments) -> tsumugi_measure::CommandResult {
    match &arguments.action {
        Action::Up(options) => up(options),
        Action::Down(options) => down(options),
        Action::Status(options) => {
            let status = switch::status()?;
            show(&status, options.addresses, options.json)
        }
    }
}

fn up(options: &Up) -> tsumugi_measure::CommandResult {
    require_root("switch up")?;
    let wanted = Options {
        hook: options.hook,
        bridge: options.bridge.clone(),
        ageing_s: options.ageing,
        floods_per_s: options.floods,
    };
    // What is begun is brought to an end, so that nothing half-made stays behind.
    let status = crate::uninterrupted(|| switch::up(&options.nics, &wanted))?;
    if let Some(why) = &status.native_refused {
        log::say(Level::WARN, format_args!("not all drivers take the program: {why}; it is behind them now"));
    }
    for port in &status.ports {
        if let Some(why) = &port.attached.drops {
            log::say(Level::WARN, format_args!("{}: {why}", name(port)));
        }
        if let Some(LostOnTheWay { nic, other_end }) = &port.lost {
            let end = other_end.as_deref().unwrap_or("its other end");
            let there = other_end.as_deref().unwrap_or("NIC");
            let lost = format_args!(
                "{nic} is a veth: checksums and VLAN tags that {end} leaves to the wire are lost; there: `ethtool -K {there} tx off \
                 txvlan off gro on`"
            );
            log::say(Level::WARN, lost);
        }
    }
    show(&status, false, options.json)
}

fn down(options: &Down) -> tsumugi_measure::CommandResult {
    require_root("switch down")?;
    let gone = crate::uninterrupted(|| switch::down(&options.nics))?;
    let names = gone.iter().map(|port| port.nic.clone().unwrap_or_else(|| format!("{} (gone)", port.index)));
    let names: Vec<String> = names.collect();
    if options.json {
        let mut out = tsumugi_measure::output::output();
        writeln!(out, "{}", serde_json::json!({ "gone": names }))?;
    } else {
        names.iter().for_each(|nic| eprintln!("{nic} is no port any more"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer of `--json`.
#[derive(Serialize)]
struct Report {
    bridges: Vec<BridgeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ageing_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floods_per_s: Option<u32>,
    ports: Vec<PortReport>,
    addresses: Vec<AddressReport>,
    groups: Vec<GroupReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_packets: Option<BTreeMap<&'static str, u64>>,
}

#[derive(Serialize)]
struct GroupReport {
    job: u64,
    number: String,
    members: u16,
    joined: u16,
    slots: u16,
    formed: bool,
    root: bool,
    complete: u64,
    heard_ago_s: u64,
}

#[derive(Serialize)]
struct BridgeReport {
    name: String,
    made: bool,
}

#[derive(Serialize)]
struct PortReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bridge: Option<String>,
    index: u32,
    hook: String,
    attached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<BTreeMap<&'static str, u64>>,
}

#[derive(Serialize)]
struct AddressReport {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<String>,
    seen_ago_s: u64,
}

fn report(status: &Status) -> Report {
    let port = |port: &Port| PortReport {
        nic: port.attached.nic.clone(),
        bridge: bridge_of(status, port).map(str::to_owned),
        index: port.attached.index,
        hook: port.attached.hook.to_string(),
        attached: port.attached.is_attached(),
        found: (!port.attached.is_attached()).then(|| port.attached.to_string()),
        frames: port.counts.map(|counts| counts.iter().collect()),
    };
    let bridge = |it: &BridgeStatus| BridgeReport { name: it.name.clone(), made: it.is_made };
    let address = |seen: &Seen| AddressReport {
        address: mac(seen.address),
        vlan: (seen.vlan > 0).then_some(seen.vlan),
        nic: status
            .ports
            .iter()
            .find(|port| port.attached.index == seen.nic)
            .and_then(|port| port.attached.nic.clone()),
        seen_ago_s: seen.ago.as_secs(),
    };
    let group = |group: &CountedGroup| GroupReport {
        job: group.job,
        number: format!("{:016x}", group.number),
        members: group.members,
        joined: group.joined,
        slots: group.slots,
        formed: group.is_formed,
        root: group.is_root,
        complete: group.complete,
        heard_ago_s: group.ago.as_secs(),
    };
    Report {
        groups: status.groups.iter().map(group).collect(),
        group_packets: status.events.map(|events| events.iter().collect()),
        bridges: status.bridges.iter().map(bridge).collect(),
        ageing_s: status.rules.map(|rules| rules.ageing_s),
        floods_per_s: status.rules.map(|rules| rules.floods_per_s),
        ports: status.ports.iter().map(port).collect(),
        addresses: status.seen.iter().map(address).collect(),
    }
}

fn show(status: &Status, addresses: bool, json: bool) -> tsumugi_measure::CommandResult {
    let mut out = tsumugi_measure::output::output();
    if json {
        writeln!(out, "{}", serde_json::to_string(&report(status))?)?;
    } else {
        out.write_all(table(status, addresses).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The ports, each with what is not 0 of what happened to its frames.
fn table(status: &Status, addresses: bool) -> String {
    let mut text = String::new();
    let Some(rules) = status.rules else {
        return "There is no switch here; as root: tsumugi switch up NIC...\n".to_owned();
    };
    _ = writeln!(
        text,
        "Switch box of {} ports; addresses are forgotten after {} s, {} frames a second are flooded of a port",
        status.ports.len(),
        rules.ageing_s,
        rules.floods_per_s
    );
    for port in &status.ports {
        let index = port.attached.index;
        if !port.attached.is_attached() {
            _ = writeln!(
                text,
                "  NO PORT any more: {}; `tsumugi switch up NIC` or `down NIC`",
                port.attached
            );
            continue;
        }
        let known = status.seen.iter().filter(|seen| seen.nic == index).count();
        let bridge = bridge_of(status, port).unwrap_or("of no bridge any more");
        let hook = port.attached.hook.to_string();
        _ = writeln!(text, "  {:<16} {hook:<8} {bridge:<16} {known} addresses", name(port));
        match port.counts {
            None => text += "    counters: only root may look\n",
            Some(counts) => {
                for (outcome, count) in counts.iter().filter(|(_, count)| *count > 0) {
                    _ = writeln!(text, "    {outcome:<12} {count}");
                }
            }
        }
        for seen in status.seen.iter().filter(|seen| addresses && seen.nic == index) {
            let vlan = if seen.vlan > 0 { format!(" VLAN {}", seen.vlan) } else { String::new() };
            _ = writeln!(text, "    {}{vlan}, {} s ago", mac(seen.address), seen.ago.as_secs());
        }
    }
    for group in &status.groups {
        let CountedGroup { job, number, members, joined, complete, .. } = group;
        let what = match (group.is_formed, group.is_root) {
            (false, _) => "not all have joined",
            (true, true) => "all have joined",
            (true, false) => "all have joined, and another box releases",
        };
        let ago = group.ago.as_secs();
        _ = writeln!(
            text,
            "  group {number:016x} of job {job}: {joined} of {members} members here, {what}; {complete} generations, {ago} s ago"
        );
    }
    let events: Vec<_> = status.events.iter().flat_map(|events| events.iter()).collect();
    for (event, count) in events.into_iter().filter(|(_, count)| *count > 0) {
        _ = writeln!(text, "    {event:<16} {count}");
    }
    text
}

/// Name of the bridge that a port is one of.
fn bridge_of<'a>(status: &'a Status, port: &Port) -> Option<&'a str> {
    let bridge = status.bridges.iter().find(|bridge| Some(bridge.index) == port.bridge)?;
    Some(&bridge.name)
}

fn name(port: &Port) -> String {
    port.attached.nic.clone().unwrap_or_else(|| format!("{} (gone)", port.attached.index))
}

fn mac(address: Mac) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_status_explains_every_counter() {
        for (outcome, _) in tsumugi_rail::switch::Counts::default().iter() {
            assert!(STATUS_HELP.contains(&format!("\n  {outcome:<10} ")), "{outcome}");
        }
        for (event, _) in tsumugi_rail::switch::groups::Events::default().iter() {
            assert!(STATUS_HELP.contains(&format!("\n  {event} ")), "{event}");
        }
    }
}
