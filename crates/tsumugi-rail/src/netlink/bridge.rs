//! Bridges and their ports: asking about them, and changing them.

use super::{Nic, Questions, nic};
use crate::ether::Mac;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage as Link,
};
use std::io;

/// A NIC as one that could be a bridge's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// What it is.
    pub(crate) nic: Nic,
    /// Whether it is switched on, with or without a carrier.
    pub(crate) is_on: bool,
    /// Whether nothing but the kernel is behind it: it has a kind, such as veth or tun.
    pub(crate) is_virtual: bool,
    /// Index of what it is a port of.
    pub(crate) controller: Option<u32>,
    /// Settings of a bridge's port that treat its frames otherwise than those of other ports.
    pub(crate) exceptions: Vec<&'static str>,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bridge {
    /// What it is.
    pub(crate) nic: Nic,
    /// Settings by which it does more than learn and forward.
    pub(crate) exceptions: Vec<&'static str>,
}

impl Questions {
    /// A NIC; an error where there is none.
    pub(crate) fn member(&mut self, interface: u32) -> io::Result<Member> {
        let answer = self.link(interface, None)?;
        let mut member = Member {
            nic: nic(&answer),
            is_on: answer.header.flags.contains(LinkFlags::Up),
            is_virtual: false,
            controller: None,
            exceptions: Vec::new(),
        };
        for attribute in &answer.attributes {
            match attribute {
                LinkAttribute::Controller(index) => member.controller = Some(*index),
                LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| match info {
                    LinkInfo::Kind(_) => member.is_virtual = true,
                    LinkInfo::PortData(InfoPortData::BridgePort(settings)) => {
                        member.exceptions = settings.iter().filter_map(of_port).collect();
                    }
                    _ => {}
                }),
                _ => {}
            }
        }
        Ok(member)
    }

    /// A bridge; `None` where what has this index is none.
    pub(crate) fn bridge(&mut self, interface: u32) -> io::Result<Option<Bridge>> {
        let answer = self.link(interface, None)?;
        let infos = answer.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
        let infos = infos.map(Vec::as_slice).unwrap_or_default();
        if !infos.contains(&LinkInfo::Kind(InfoKind::Bridge)) {
            return Ok(None);
        }
        let settings = infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Bridge(settings)) => Some(settings),
            _ => None,
        });
        let exceptions = settings.into_iter().flatten().filter_map(of_bridge).collect();
        Ok(Some(Bridge { nic: nic(&answer), exceptions }))
    }

    /// Makes a bridge that learns and forwards and does nothing else, and switches it on. It knows at most so many addresses, and
    /// forgets each so long after its last frame.
    pub(crate) fn make_bridge(
        &mut self,
        interface: u32,
        name: &str,
        address: Mac,
        addresses_max: u32,
        ageing_s: u32,
    ) -> io::Result<()> {
        let settings = vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
            // In hundredths.
            InfoBridge::AgeingTime(ageing_s.saturating_mul(100)),
            // Linux 6.7; others take no notice.
            InfoBridge::FdbMaxLearned(addresses_max),
        ];
        let mut link = Link::default();
        link.header.index = interface;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Address(address.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(settings)),
            ]),
        ];
        self.change(Message::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes a NIC the port of a bridge, or of none.
    pub(crate) fn set_controller(&mut self, interface: u32, bridge: Option<u32>) -> io::Result<()> {
        let mut link = Link::default();
        link.header.index = interface;
        link.attributes = vec![LinkAttribute::Controller(bridge.unwrap_or(0))];
        self.change(Message::SetLink(link), 0)
    }

    /// Switches a NIC on or off.
    pub(crate) fn switch(&mut self, interface: u32, on: bool) -> io::Result<()> {
        let mut link = Link::default();
        link.header.index = interface;
        link.header.flags = if on { LinkFlags::Up } else { LinkFlags::empty() };
        link.header.change_mask = LinkFlags::Up;
        self.change(Message::SetLink(link), 0)
    }

    /// Removes a virtual NIC.
    pub(crate) fn remove(&mut self, interface: u32) -> io::Result<()> {
        let mut link = Link::default();
        link.header.index = interface;
        self.change(Message::DelLink(link), 0)
    }

    fn change(&mut self, message: Message, flags: u16) -> io::Result<()> {
        match self.exchange(message, flags | NLM_F_ACK)? {
            None => Ok(()),
            Some(other) => Err(super::unexpected(&other)),
        }
    }
}

/// A setting of a bridge by which it does more than learn and forward.
fn of_bridge(setting: &InfoBridge) -> Option<&'static str> {
    match setting {
        InfoBridge::VlanFiltering(true) => Some("vlan_filtering 1"),
        InfoBridge::StpState(state) if *state != BridgeStpState::Disabled => Some("stp_state 1"),
        _ => None,
    }
}

/// A setting of a bridge's port by which its frames are treated otherwise.
fn of_port(setting: &InfoBridgePort) -> Option<&'static str> {
    match setting {
        InfoBridgePort::Isolated(true) => Some("isolated on"),
        InfoBridgePort::HairpinMode(true) => Some("hairpin on"),
        InfoBridgePort::Locked(true) => Some("locked on"),
        InfoBridgePort::Learning(false) => Some("learning off"),
        InfoBridgePort::VlanTunnel(true) => Some("vlan_tunnel on"),
        InfoBridgePort::ProxyARP(true) => Some("proxy_arp on"),
        InfoBridgePort::NeighSupress(true) => Some("neigh_suppress on"),
        _ => None,
    }
}
