//! What the kernel says over rtnetlink (rtnetlink(7)): answers to questions, and news.
//!
//! The kernel works on a request inside the call that sends it, so that the answer lies ready when that call
//! returns and nothing here ever waits.

mod bridge;
mod features;
mod xdp;

use crate::ether::Mac;
use crate::sys::Own;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage as Link,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage as Neighbour, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage as Route, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};

pub(crate) use bridge::{Bridge, Member};
pub(crate) use features::{ForPrograms, for_programs};
pub(crate) use xdp::{GENERIC, NATIVE, OtherEnd, XdpOn, why_refused};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its index.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address; zeros when it has none.
    pub mac: Mac,
    /// Longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Whether Ethernet frames to one receiver can be sent through it.
    pub ethernet: bool,
}

/// Room for one answer. The kernel makes none longer than this for a question about one thing
/// (NLMSG_GOODSIZE), except about NICs with hundreds of virtual functions, which we do not ask for.
const BUFFER_BYTES: usize = 32 * 1024;
/// IP's number of UDP.
const PROTOCOL_UDP: u8 = 17;
/// What may change the NICs that an endpoint is reached by.
pub(crate) const OF_NICS: [u32; 3] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
/// What may change the route that a packet takes.
pub(crate) const OF_ROUTES: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_NEXTHOP,
];
/// Most datagrams of news that are read at a time.
const NEWS_MAX: usize = 32;

/// A route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelRoute {
    /// Index of the NIC.
    pub(crate) interface: u32,
    /// The kernel's choice of our own address, if it made one.
    pub(crate) source: Option<IpAddr>,
    /// Who must take the frame: a router, or the peer itself.
    pub(crate) next_hop: IpAddr,
    /// The route's own MTU, bytes, if it has one: a setting, or what a router has reported.
    pub(crate) mtu_bytes: Option<usize>,
}

/// A socket for questions.
#[derive(Debug)]
pub(crate) struct Questions {
    socket: Own<Socket>,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Questions {
    pub(crate) fn open() -> io::Result<Questions> {
        let mut socket = Own::new(Socket::new(NETLINK_ROUTE)?);
        socket.bind_auto()?;
        Ok(Questions { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// The route of UDP datagrams to `peer` from `source` (unspecified: as the kernel chooses). `None`: they
    /// do not leave this machine in a plain IP packet to one receiver.
    pub(crate) fn route(&mut self, source: SocketAddr, peer: SocketAddr) -> io::Result<Option<KernelRoute>> {
        let mut question = Route::default();
        let (family, bits) = family(peer.ip());
        question.header.address_family = family;
        question.header.destination_prefix_length = bits;
        question.attributes = vec![
            RouteAttribute::Destination(peer.ip().into()),
            RouteAttribute::IpProto(PROTOCOL_UDP),
            RouteAttribute::Sport(source.port()),
            RouteAttribute::Dport(peer.port()),
        ];
        if !source.ip().is_unspecified() {
            question.header.source_prefix_length = bits;
            question.attributes.push(RouteAttribute::Source(source.ip().into()));
        }
        if let Some(scope) = [peer, source].into_iter().map(scope).find(|scope| *scope != 0) {
            question.attributes.push(RouteAttribute::Oif(scope));
        }
        match self.ask(Message::GetRoute(question))? {
            Message::NewRoute(answer) => Ok(route(peer.ip(), &answer)),
            other => Err(unexpected(&other)),
        }
    }

    /// The hardware address behind `next_hop`; `None` while the kernel does not vouch for it.
    pub(crate) fn neighbour(&mut self, interface: u32, next_hop: IpAddr) -> io::Result<Option<Mac>> {
        let mut question = Neighbour::default();
        question.header.family = family(next_hop).0;
        question.header.ifindex = interface;
        question.attributes = vec![NeighbourAttribute::Destination(next_hop.into())];
        match self.ask(Message::GetNeighbour(question)) {
            Ok(Message::NewNeighbour(answer)) => Ok(resolved(&answer)),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The NIC with this index.
    pub(crate) fn nic(&mut self, interface: u32) -> io::Result<Nic> {
        let mut question = Link::default();
        question.header.index = interface;
        question.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
        match self.ask(Message::GetLink(question))? {
            Message::NewLink(answer) => Ok(nic(&answer)),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, question: Message) -> io::Result<Message> {
        let answer = self.exchange(question, 0)?;
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an acknowledgement, and no answer"))
    }

    /// Sends a request, and returns the answer; `None`: it was acknowledged.
    fn exchange(&mut self, request: Message, flags: u16) -> io::Result<Option<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut question = NetlinkMessage::from(request);
        question.header.flags = NLM_F_REQUEST | flags;
        question.header.sequence_number = self.sequence;
        question.finalize();
        let bytes = question.buffer_len();
        question.serialize(&mut self.buffer[..bytes]);
        self.socket.send(&self.buffer[..bytes], 0)?;
        loop {
            let bytes = self.socket.recv(&mut &mut self.buffer[..], libc::MSG_DONTWAIT)?;
            let answer = NetlinkMessage::<Message>::deserialize(&self.buffer[..bytes])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue; // to an earlier question whose answer could not be read
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                NetlinkPayload::Error(error) if error.code.is_none() => Ok(None),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                other => Err(unexpected(&other)),
            };
        }
    }
}

/// A piece of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A NIC has changed.
    Nic,
    /// A route, an address or a rule has changed.
    Route,
    /// What is known of a neighbour has changed.
    Neighbour {
        /// Index of the NIC.
        interface: u32,
        /// Its IP address.
        address: IpAddr,
    },
    /// News have been lost: anything may have changed.
    Lost,
}

/// A socket for news.
#[derive(Debug)]
pub(crate) struct Events {
    socket: Own<Socket>,
    buffer: Box<[u8]>,
}

impl Events {
    /// A socket that hears of what `groups` ([`OF_NICS`], [`OF_ROUTES`]) are about.
    pub(crate) fn open(groups: &[u32]) -> io::Result<Events> {
        let mut socket = Own::new(Socket::new(NETLINK_ROUTE)?);
        socket.bind_auto()?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Events { socket, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Hands what has come to `tell`, without waiting, a bounded number of news.
    pub(crate) fn take(&mut self, tell: &mut dyn FnMut(News)) {
        for _ in 0..NEWS_MAX {
            match self.socket.recv(&mut &mut self.buffer[..], libc::MSG_DONTWAIT) {
                Ok(bytes) => read_news(&self.buffer[..bytes], tell),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS: the socket's queue ran over (netlink(7)). Whatever else it is, we have missed something.
                Err(_) => tell(News::Lost),
            }
        }
    }
}

/// Reads one datagram of news. Only neighbours are looked at closely: they change all the time, the rest
/// hardly ever.
fn read_news(mut bytes: &[u8], tell: &mut dyn FnMut(News)) {
    while !bytes.is_empty() {
        let Ok(message) = NetlinkBuffer::new_checked(&bytes) else { return tell(News::Lost) };
        match message.message_type() {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => tell(News::Nic),
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => match NetlinkMessage::<Message>::deserialize(bytes) {
                Ok(NetlinkMessage {
                    payload:
                        NetlinkPayload::InnerMessage(Message::NewNeighbour(news) | Message::DelNeighbour(news)),
                    ..
                }) => {
                    // None: a bridge's own table, which is about other things.
                    if let Some(address) = neighbour_address(&news) {
                        tell(News::Neighbour { interface: news.header.ifindex, address });
                    }
                }
                _ => tell(News::Lost),
            },
            _ => tell(News::Route),
        }
        let aligned = (message.length() as usize).next_multiple_of(libc::NLA_ALIGNTO as usize);
        bytes = bytes.get(aligned..).unwrap_or_default();
    }
}

fn family(ip: IpAddr) -> (AddressFamily, u8) {
    if ip.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) }
}

/// Index of the NIC that an IPv6 address is confined to; 0: none.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

fn route(peer: IpAddr, answer: &Route) -> Option<KernelRoute> {
    if answer.header.kind != RouteType::Unicast {
        return None;
    }
    let mut route = KernelRoute { interface: 0, source: None, next_hop: peer, mtu_bytes: None };
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Oif(interface) => route.interface = *interface,
            RouteAttribute::PrefSource(address) => route.source = ip_of_route(address),
            RouteAttribute::Gateway(address) => route.next_hop = ip_of_route(address)?,
            RouteAttribute::Via(RouteVia::Inet(v4)) => route.next_hop = (*v4).into(),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => route.next_hop = (*v6).into(),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    if let RouteMetric::Mtu(bytes) = metric {
                        route.mtu_bytes = Some(*bytes as usize);
                    }
                }
            }
            // Wrapped into something else on the way out (`ip route … encap …`).
            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) | RouteAttribute::Via(_) => return None,
            _ => {}
        }
    }
    (route.interface != 0).then_some(route)
}

fn ip_of_route(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn neighbour_address(message: &Neighbour) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some((*v4).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    })
}

/// The hardware address of a neighbour, if the kernel would send to it without further ado.
///
/// Not so when it is STALE: a packet through the socket then makes it DELAY, in which the kernel still sends but asks
/// after a while (RFC 4861, section 7.3.2). Frames that bypass the socket layer would never make it ask.
fn resolved(neighbour: &Neighbour) -> Option<Mac> {
    use NeighbourState::{Delay, Permanent, Probe, Reachable};
    if !matches!(neighbour.header.state, Reachable | Delay | Probe | Permanent) {
        return None;
    }
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    })
}

fn nic(answer: &Link) -> Nic {
    let flags = answer.header.flags;
    let mut nic = Nic {
        interface: answer.header.index,
        name: String::new(),
        mac: Mac::default(),
        mtu_bytes: 0,
        up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        ethernet: false,
    };
    for attribute in &answer.attributes {
        match attribute {
            LinkAttribute::IfName(name) => nic.name.clone_from(name),
            LinkAttribute::Mtu(bytes) => nic.mtu_bytes = *bytes as usize,
            LinkAttribute::Address(bytes) => {
                if let Ok(mac) = Mac::try_from(bytes.as_slice()) {
                    nic.mac = mac;
                    nic.ethernet = answer.header.link_layer_type == LinkLayerType::Ether
                        && !flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp);
                }
            }
            _ => {}
        }
    }
    nic
}

fn unexpected(answer: &dyn Debug) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an unexpected answer: {answer:?}"))
}
