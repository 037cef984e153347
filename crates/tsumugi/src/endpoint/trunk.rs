//! Several ways to a peer: found, tried, used, left and taken back.
//!
//! A *way* is where packets for a peer may be addressed to, one for each of its NICs that is on a link of one of ours; it
//! is the peer's side of a path, and has the path's number. Way 0 is the address that we met the peer by. The peer tells
//! of the others in a message of its own on [`CONTROL_CHANNEL`], and they are used once they have answered a PROBE.
//!
//! A path that falls silent while others deliver is suspended by the sender; from then on it is probed from time to time,
//! and used again when it answers.

use super::peer::{Outgoing, Peer, Phase};
use super::sizes::Said;
use super::state::State;
use crate::Node;
use std::net::{IpAddr, SocketAddr};
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::path_mtu::PathMtu;
use tsumugi_proto::trunk::{self, Pick, PolicyChoice};
use tsumugi_rail::networks::NetworkKind;
use tsumugi_rail::{Networks, NicAddress};
use tsumugi_wire::defect;
use tsumugi_wire::frame;
use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, RAILS_MAX};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::rails::{self, CONTROL_CHANNEL, RAILS_BYTES_MAX, RailAddress};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Instant, Kind, Psn};

/// Time between the first two PROBEs of a silent path, ns; it doubles.
const PROBE_NS_MIN: u64 = 5 * MILLISECOND_NS;
/// Longest time between two PROBEs of a silent path, ns.
const PROBE_NS_MAX: u64 = 80 * MILLISECOND_NS;

/// The peer's side of a path.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Where packets over this path are addressed to.
    pub(super) address: SocketAddr,
    /// The address of our NIC that is or was on its link.
    pub(super) nic: Option<IpAddr>,
    /// What its path had delivered and lost when that was counted last.
    pub(super) counted: (u64, u64),
    /// How long datagrams over it may be, and who said so if that is less than both ends take.
    pub(super) mtu: PathMtu,
    pub(super) said: Said,
    /// What its path had delivered when it came back last.
    pub(super) delivered_when_revived: Option<u64>,
    /// The peer does not name it any more, or none of our NICs is on its link any more, as far as is known.
    gone: bool,
    /// When a silent path was probed last, when it is probed next, and how long after the PROBE before.
    probed_at: Instant,
    probe_at: Instant,
    pause_ns: u64,
}

impl Way {
    pub(super) const fn new(address: SocketAddr) -> Way {
        Way {
            address,
            nic: None,
            counted: (0, 0),
            mtu: PathMtu::new(DATAGRAM_BYTES_MAX),
            said: Said::Kernel,
            delivered_when_revived: None,
            gone: false,
            probed_at: Instant(0),
            probe_at: Instant(0),
            pause_ns: PROBE_NS_MIN,
        }
    }
}

/// Why an address that a peer has told of is no way to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NoWay {
    #[error("it is {0}")]
    NotAllowed(String),
    #[error("this host has the same address")]
    Ours,
    #[error("none of the NICs in use here is on its link")]
    Elsewhere,
    #[error("the peer was met on a {0} network, and this is a {1} one")]
    OtherKind(NetworkKind, NetworkKind),
    #[error("the path to {0} joins the same two NICs")]
    SameNics(SocketAddr),
    #[error(
        "the peer was met {}", if *met { "through a tunnel, and this is none" } else { "without a tunnel, and this is one" }
    )]
    Overlay {
        /// Whether it was met through one.
        met: bool,
    },
}

/// What an endpoint knows of one path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Where its packets are addressed to.
    pub address: SocketAddr,
    /// Whether it is used: it is not while it is silent.
    pub is_usable: bool,
    /// Smoothed round trip, ns.
    pub srtt_ns: u64,
    /// Packets a second that it has been delivering while there was always something under way.
    pub rate: u64,
    /// Packets under way.
    pub in_flight: u32,
    /// Packets that arrived, ever.
    pub delivered: u64,
    /// Packets found lost, ever.
    pub lost: u64,
    /// Longest datagram that it carries, as far as is known, bytes.
    pub datagram_bytes: usize,
}

impl Peer {
    /// Where packets go beside `address`, by every path that works.
    pub(super) fn elsewhere(&self, address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let ways = self.ways.iter().zip(self.sender.paths());
        let others = ways.filter(move |(way, path)| way.address != address && path.is_usable());
        others.map(|(way, _)| way.address)
    }

    /// Addresses with those in front that are of the family by which it was met.
    fn met_family_first(&self, rails: &[RailAddress]) -> Vec<RailAddress> {
        let met = self.ways.first().map_or(self.address, |way| way.address);
        let mut rails = rails.to_vec();
        rails.sort_by_key(|rail| rail.address.is_ipv4() != met.is_ipv4());
        rails
    }

    /// Whether there are several ways to it.
    pub(super) fn is_trunk(&self) -> bool {
        self.ways.len() > 1
    }

    /// Where to say something that belongs to no path: the first way that works.
    pub(super) fn way(&self) -> SocketAddr {
        let works = self.sender.paths().iter().position(|path| path.is_usable()).unwrap_or(0);
        self.ways.get(works).map_or(self.address, |way| way.address)
    }

    /// When a silent path is to be probed.
    pub(super) fn probe_due(&self) -> Instant {
        let silent = self.ways.iter().zip(self.sender.paths()).filter(|(_, path)| !path.is_usable());
        silent.map(|(way, _)| way.probe_at).min().unwrap_or(Instant::NEVER)
    }
}

impl State {
    /// Changes the policy that spreads packets over paths.
    pub fn set_policy(&mut self, policy: PolicyChoice) {
        if self.peers.len() == 0 || !defect!(PolicyNotChanged) {
            self.policy = policy.under(self.options.repeat).policy();
        }
    }

    /// What is known of the paths to a peer.
    #[must_use]
    pub fn paths(&self, index: u32) -> Vec<PathReport> {
        let Some(peer) = self.peers.get(self.the(Node(index)).0 as usize) else { return Vec::new() };
        let paths = peer.ways.iter().zip(peer.sender.paths());
        let report = |(way, path): (&Way, &tsumugi_proto::sender::Path)| PathReport {
            address: way.address,
            is_usable: path.is_usable(),
            srtt_ns: path.srtt_ns,
            rate: path.rate(),
            in_flight: path.in_flight,
            delivered: path.delivered,
            lost: path.lost,
            datagram_bytes: way.mtu.bytes(),
        };
        paths.map(report).collect()
    }

    /// Says by which addresses this endpoint is reached. Peers are told when there are several, and of every change.
    pub fn set_nics(&mut self, now: Instant, port: u16, nics: Vec<NicAddress>) {
        if nics == self.nics {
            return;
        }
        let told_before = self.has_several_nics();
        self.nics = nics;
        let rail = |nic: &NicAddress| RailAddress {
            address: SocketAddr::new(nic.ip, port),
            nic: nic.nic,
            speed_mbits: nic.speed_mbits,
        };
        self.rails = self.nics.iter().map(rail).collect();
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            if matches!(self.peers[index as usize].phase, Phase::Open) {
                let is_news = if told_before { !defect!(NicsToldOnce) } else { self.has_several_nics() };
                if is_news {
                    self.announce(index);
                }
                self.find_ways(now, index);
                self.touch(index);
            }
        }
    }

    /// Has a peer told of our NICs before anything else that waits.
    pub(super) fn announce(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        if !peer.outbox.iter().any(|outgoing| matches!(outgoing, Outgoing::Rails)) {
            peer.outbox.push_front(Outgoing::Rails);
        }
        self.touch(index);
    }

    /// The body of a packet that tells a peer of our NICs: of addresses in the family by which it was met first, for a list
    /// has room for some only.
    pub(super) fn rails_body(&mut self, index: u32) -> Option<Vec<u8>> {
        let mut buffer = [0; RAILS_BYTES_MAX];
        let told = self.peers[index as usize].met_family_first(&self.rails);
        let list = rails::encode(&told, &mut buffer);
        let mut body = self.pool.take(frame::whole_frame_bytes(list.len()))?;
        body.extend_from_slice(&frame::encode_whole(CONTROL_CHANNEL, list.len() as u32));
        body.extend_from_slice(list);
        Some(body)
    }

    /// Whether there is something to tell a peer that has just become one.
    pub(super) fn has_several_nics(&self) -> bool {
        self.nics.len() > 1
    }

    /// A message of the peer's endpoint itself.
    pub(super) fn on_control(&mut self, index: u32, list: &[u8]) {
        match rails::decode(list) {
            Ok(list) => {
                let peer = &mut self.peers[index as usize];
                peer.rails = list.filter(|_| !defect!(NicsIgnored)).collect();
                peer.has_told = true;
                self.touch(index);
            }
            Err(_) => self.memory.count(Counter::Violation, 1),
        }
    }

    /// Finds the ways to a peer: its NICs that are on a link of one of ours.
    pub(super) fn find_ways(&mut self, now: Instant, index: u32) {
        self.peers[index as usize].has_told = false;
        self.look_over_ways(now, index);
        // Where two NICs have addresses of both families, the one by which we met is used.
        let peer = &self.peers[index as usize];
        for rail in peer.met_family_first(&peer.rails) {
            let Ok(nic) = self.may_be_way(index, &rail) else { continue };
            // As fast as the slower of the two, if it says.
            let speeds = [nic.speed_mbits, rail.speed_mbits].into_iter().filter(|speed| *speed > 0);
            let speed_bits = u64::from(speeds.min().unwrap_or(0)) * 1_000_000;
            let peer = &mut self.peers[index as usize];
            match peer.ways.iter().position(|way| way.address == rail.address) {
                Some(number) => peer.sender.set_speed(number as u8, speed_bits),
                None => self.add_way(index, nic.ip, rail.address, speed_bits),
            }
        }
    }

    /// The NIC of ours by which an address that a peer has told of may be a further way to it, or why it may not.
    ///
    /// Traffic stays on the kind of network by which the peer was met: what goes to a private address goes to private ones,
    /// what goes through a tunnel goes through tunnels, and nothing else does.
    fn may_be_way(&self, index: u32, rail: &RailAddress) -> Result<NicAddress, NoWay> {
        let (peer, address) = (&self.peers[index as usize], rail.address);
        let met = peer.ways.first().map_or(address, |way| way.address).ip();
        let reaching = |ip: IpAddr| self.nics.iter().find(move |nic| nic.reaches(ip));
        let ip = address.ip();
        if let Some(why) = self.networks.refusal(ip) {
            return Err(NoWay::NotAllowed(why));
        }
        // It leads to us: a bridge for containers has the same address on many hosts.
        if self.nics.iter().any(|nic| nic.ip == ip) {
            return Err(NoWay::Ours);
        }
        let Some(nic) = reaching(ip) else { return Err(NoWay::Elsewhere) };
        if NetworkKind::of(ip) != NetworkKind::of(met) {
            return Err(NoWay::OtherKind(NetworkKind::of(met), NetworkKind::of(ip)));
        }
        if nic.is_overlay != reaching(met).is_some_and(|nic| nic.is_overlay) {
            return Err(NoWay::Overlay { met: !nic.is_overlay });
        }
        match peer.ways.iter().find(|way| way.address != address && self.joins(peer, way, nic, rail)) {
            Some(way) => Err(NoWay::SameNics(way.address)),
            None => Ok(*nic),
        }
    }

    /// Whether a way, in whichever family, joins a NIC of ours and the one of the peer's that has the address `rail`.
    fn joins(&self, peer: &Peer, way: &Way, nic: &NicAddress, rail: &RailAddress) -> bool {
        let ours = || self.nics.iter().any(|other| Some(other.ip) == way.nic && other.nic == nic.nic);
        let theirs = || peer.rails.iter().any(|other| other.address == way.address && other.nic == rail.nic);
        !way.gone && nic.nic != 0 && rail.nic != 0 && ours() && theirs()
    }

    /// Every address that a peer is met at or has told of: whether it is a path, or why not.
    #[must_use]
    pub fn explain(&self, index: u32) -> Vec<(SocketAddr, String)> {
        let index = self.the(Node(index)).0;
        let Some(peer) = self.peers.get(index as usize) else { return Vec::new() };
        let mut found = Vec::new();
        for (number, (way, path)) in peer.ways.iter().zip(peer.sender.paths()).enumerate() {
            let text = match (path.is_usable(), number) {
                (true, 0) => "the peer was met there".to_owned(),
                (true, _) => "the peer has proved to be there".to_owned(),
                (false, _) => "nobody there has proved to be the peer, or not lately".to_owned(),
            };
            found.push((way.address, text));
        }
        for rail in &peer.rails {
            if found.iter().all(|(address, _)| *address != rail.address) {
                let why = match self.may_be_way(index, rail) {
                    Ok(_) => "there are as many paths as there may be".to_owned(),
                    Err(why) => why.to_string(),
                };
                found.push((rail.address, format!("no path: {why}")));
            }
        }
        found
    }

    /// Says which networks may be used.
    pub fn set_networks(&mut self, networks: Networks) {
        self.networks = networks;
    }

    /// Which networks may be used.
    #[must_use]
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Notices which ways are gone since the last look, and which are back.
    fn look_over_ways(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        for (number, way) in peer.ways.iter_mut().enumerate() {
            let named = peer.rails.iter().any(|rail| rail.address == way.address);
            let reached = self.nics.iter().find(|nic| nic.reaches(way.address.ip()));
            way.nic = reached.map(|nic| nic.ip).or(way.nic);
            // How we met is a way even if nobody names it or it goes through a router.
            let gone = if named { way.nic.is_some() && reached.is_none() } else { number > 0 };
            // Nobody waits for it to fall silent. It is probed as any other: links come back before they are told of.
            if gone && !way.gone && peer.sender.paths()[number].is_usable() {
                peer.sender.suspend(now, number as u8);
            }
            way.gone = gone;
        }
    }

    /// Adds a way to a peer, in the place of one that is gone if there are as many as there may be.
    fn add_way(&mut self, index: u32, nic: IpAddr, address: SocketAddr, speed_bits: u64) {
        let peer = &mut self.peers[index as usize];
        let way = Way { nic: Some(nic), mtu: peer.fresh_mtu(address), ..Way::new(address) };
        if peer.ways.len() < RAILS_MAX {
            peer.sender.add_path(speed_bits);
            peer.ways.push(way);
        } else {
            let free = |(number, way): &(usize, &Way)| {
                *number > 0 && way.gone && !peer.sender.paths()[*number].is_usable()
            };
            let Some(number) = peer.ways.iter().enumerate().find(free).map(|(number, _)| number) else {
                return; // when one is gone, the peer or our own NICs will tell, and we look again
            };
            self.ledger.count(peer);
            peer.sender.replace_path(number as u8, speed_bits);
            let former = std::mem::replace(&mut peer.ways[number], way).address;
            if self.by_address.get(&former) == Some(&index) {
                self.by_address.remove(&former);
            }
            self.parted.push(former);
        }
        self.met.push(address);
    }

    /// The peer wants to know whether this way to us works: it is answered by the same way.
    pub(super) fn answer_probe(&mut self, now: Instant, index: u32, from: SocketAddr) {
        if let Some(packet) = self.answer_packet(now, index, Kind::Ack, Psn(0), Flags(0)) {
            let to = if defect!(AnsweredByAnotherWay) { self.peers[index as usize].way() } else { from };
            self.reply(to, packet.to_vec());
        }
    }

    /// Asks a peer for a sign of life, by every way there is to it.
    pub(super) fn ask(&mut self, index: u32) {
        (0..self.peers[index as usize].ways.len()).for_each(|number| self.probe(index, number));
    }

    /// Asks a peer for a sign of life by one way.
    pub(super) fn probe(&mut self, index: u32, number: usize) {
        let address = self.peers[index as usize].ways[number].address;
        if let Some(packet) = self.flow_packet(index, Kind::Probe, number as u8) {
            self.reply(address, packet.to_vec());
        }
    }

    /// Asks silent paths whose time has come for a sign of life.
    pub(super) fn probe_ways(&mut self, now: Instant, index: u32) {
        if self.peers[index as usize].probe_due() > now {
            return;
        }
        for number in 0..self.peers[index as usize].ways.len() {
            let peer = &mut self.peers[index as usize];
            let way = &mut peer.ways[number];
            if way.probe_at > now || peer.sender.paths()[number].is_usable() {
                continue;
            }
            way.probed_at = now;
            way.probe_at = if defect!(SilentPathNotProbed) { Instant::NEVER } else { now.plus(way.pause_ns) };
            way.pause_ns = (2 * way.pause_ns).min(PROBE_NS_MAX);
            self.probe(index, number);
        }
    }

    /// The peer answered from this address: what was sent there has arrived.
    pub(super) fn on_way(&mut self, now: Instant, index: u32, from: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        // A lone way may be silent, too: our NIC had no carrier.
        if !peer.is_trunk() && (peer.sender.paths()[0].is_usable() || defect!(LoneWayNotRevived)) {
            return;
        }
        let Some(number) = peer.ways.iter().position(|way| way.address == from) else { return };
        let way = &mut peer.ways[number];
        way.pause_ns = PROBE_NS_MIN;
        if !peer.sender.paths()[number].is_usable() && !defect!(PathNotRevived) {
            peer.sender.revive(now, number as u8);
            // Only the peer can answer there: from now on what comes from this address without a token is believed.
            self.by_address.entry(from).or_insert(index);
            // It answers the last PROBE, unless it took longer than there is between two of them. Nothing else was under
            // way: nobody will see the path so empty again.
            let rtt_ns = now.since(way.probed_at);
            if rtt_ns < PROBE_NS_MIN {
                peer.sender.sample(number as u8, rtt_ns.max(1));
            }
            self.suspect_revived(now, index, number);
            self.touch(index);
        }
    }

    /// What came from this address says that packet `psn` was refused, which the packet's path has carried then.
    pub(super) fn on_refused(&mut self, now: Instant, index: u32, from: SocketAddr, psn: Psn) {
        let peer = &mut self.peers[index as usize];
        if peer.is_trunk()
            && let Some(number) = peer.ways.iter().position(|way| way.address == from)
        {
            peer.sender.on_refused(now, psn, number as u8);
        }
    }

    /// The path that the next packets to a peer take; `None`: they wait.
    pub(super) fn pick(&mut self, now: Instant, index: u32) -> Option<Pick> {
        let body_bytes = self.body_bytes(index) as u64;
        let peer = &self.peers[index as usize];
        if !peer.is_trunk() {
            return Some(Pick { path: 0, packets: u32::MAX });
        }
        let waiting = u32::try_from(peer.outbox_bytes / body_bytes + 1).unwrap_or(u32::MAX);
        trunk::pick(&mut *self.policy, now, index, &peer.sender, waiting)
    }
}
