//! Multirail: several paths to a peer, found, tried, used, left and taken back.
//!
//! A [`PeerPath`] is the peer's side of a path: the address that its packets go to. There is one for each of the
//! peer's NICs that is on a link of one of ours. Path 0 is the address by which the connection was made. The peer tells
//! of the others in a message of its own on [`CONTROL_CHANNEL`], and they are used once they have answered a PROBE.
//!
//! A path that falls silent while others deliver is suspended by the sender; from then on it is probed from time to time,
//! and used again when it answers.

use super::Core;
use crate::PeerId;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::paths::PeerPath;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::path_policy::{self, Pick, PolicyChoice};
use tsumugi_proto::sender::Path;
use tsumugi_rail::networks::NetworkKind;
use tsumugi_rail::{Networks, NicAddress};
use tsumugi_wire::defect;
use tsumugi_wire::frame;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::rails::{self, CONTROL_CHANNEL, RAILS_BYTES_MAX, RailAddress};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Instant, Kind, Psn};

/// Why an address that a peer has told of is no path to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NoPath {
    #[error("it is {0}")]
    NotAllowed(String),
    #[error("this host has the same address")]
    Ours,
    #[error("none of the NICs in use here is on its link")]
    Elsewhere,
    #[error("the connection was made on a {0} network, and this is a {1} one")]
    OtherKind(NetworkKind, NetworkKind),
    #[error("the path to {0} joins the same two NICs")]
    SameNics(SocketAddr),
    #[error(
        "the connection was made {}", if *through { "through a tunnel, and this is none" } else { "without a tunnel, and this is one" }
    )]
    Overlay {
        /// Whether the connection was made through one.
        through: bool,
    },
}

/// What an endpoint knows of one path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Where its packets are addressed to.
    pub address: SocketAddr,
    /// The address of our NIC on its link, where that is known.
    pub nic: Option<IpAddr>,
    /// Whether it is used: it is not while it is silent.
    pub is_usable: bool,
    /// Smoothed round trip, ns.
    pub srtt_ns: u64,
    /// Its variation, ns.
    pub rttvar_ns: u64,
    /// Shortest round trip seen, ns; `None`: none was measured.
    pub rtt_ns_min: Option<u64>,
    /// Packets that may be under way.
    pub cwnd_packets: u32,
    /// Packets a second that it has been delivering while there was always something under way.
    pub rate: u64,
    /// Packets under way.
    pub in_flight: u32,
    /// Packets that arrived, ever.
    pub delivered: u64,
    /// Packets found lost, ever.
    pub lost: u64,
    /// Bytes of packets that were sent over it, those sent again included.
    pub bytes_sent: u64,
    /// Longest datagram that it carries, as far as is known, bytes.
    pub datagram_bytes: usize,
}

impl Core {
    /// Changes the path policy.
    pub fn set_policy(&mut self, policy: PolicyChoice) {
        if self.peers.len() == 0 || !defect!(PolicyNotChanged) {
            self.multirail.policy = policy.under(self.options.repeat).policy();
        }
    }

    /// What is known of the paths to a peer.
    #[must_use]
    pub fn paths(&self, index: u32) -> Vec<PathReport> {
        let Some(peer) = self.peers.get(self.canonical(PeerId(index)).0 as usize) else { return Vec::new() };
        let paths = peer.paths.iter().zip(peer.sender.paths());
        let report = |(path, stats): (&PeerPath, &tsumugi_proto::sender::Path)| PathReport {
            address: path.address,
            nic: path.nic,
            is_usable: stats.is_usable(),
            srtt_ns: stats.rtt.srtt_ns,
            rttvar_ns: stats.rtt.rttvar_ns,
            rtt_ns_min: Some(stats.rtt.min_ns).filter(|ns| *ns < u64::MAX),
            cwnd_packets: stats.congestion.cwnd_packets,
            rate: stats.rate(),
            in_flight: stats.in_flight,
            delivered: stats.delivered,
            lost: stats.lost,
            bytes_sent: path.bytes_sent,
            datagram_bytes: path.mtu.bytes(),
        };
        paths.map(report).collect()
    }

    /// Says at which addresses this endpoint is reached. Peers are told when there are several, and of every change.
    pub fn set_nics(&mut self, now: Instant, port: u16, nics: Vec<NicAddress>) {
        if nics == self.multirail.nics {
            return;
        }
        let told_before = self.has_several_nics();
        self.multirail.nics = nics;
        let rail = |nic: &NicAddress| RailAddress {
            address: SocketAddr::new(nic.ip, port),
            nic: nic.nic,
            speed_mbits: nic.speed_mbits,
        };
        self.multirail.told = self.multirail.nics.iter().map(rail).collect();
        for place in 0..self.peers.len() {
            let index = self.peers.number_at(place);
            if matches!(self.peers[index as usize].connection.phase, Phase::Open) {
                let is_news = if told_before { !defect!(NicsToldOnce) } else { self.has_several_nics() };
                if is_news {
                    self.announce(index);
                }
                self.find_paths(now, index);
                self.schedule(index);
            }
        }
    }

    /// Has a peer told of our NICs before anything else that waits.
    pub(super) fn announce(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        peer.outbox.announce();
        self.schedule(index);
    }

    /// The body of a packet that tells a peer of our NICs. Addresses of the family by which the connection was made
    /// come first, because a list has room for some only.
    pub(super) fn rails_body(&mut self, index: u32) -> Option<Vec<u8>> {
        let mut buffer = [0; RAILS_BYTES_MAX];
        let told = self.peers[index as usize].primary_family_first(&self.multirail.told);
        let list = rails::encode(&told, &mut buffer);
        let mut body = self.pool.take(frame::whole_frame_bytes(list.len()))?;
        body.extend_from_slice(&frame::encode_whole(CONTROL_CHANNEL, list.len() as u32));
        body.extend_from_slice(list);
        Some(body)
    }

    /// Whether there is something to tell a peer that has just become one.
    pub(super) fn has_several_nics(&self) -> bool {
        self.multirail.nics.len() > 1
    }

    /// A message of the peer's endpoint itself.
    pub(super) fn on_control(&mut self, index: u32, list: &[u8]) {
        match rails::decode(list) {
            Ok(list) => {
                let peer = &mut self.peers[index as usize];
                peer.paths.tell(list.filter(|_| !defect!(NicsIgnored)).collect());
                self.schedule(index);
            }
            Err(_) => self.memory.count(Counter::Violation, 1),
        }
    }

    /// Finds the paths to a peer: its NICs that are on a link of one of ours.
    pub(super) fn find_paths(&mut self, now: Instant, index: u32) {
        self.peers[index as usize].paths.look();
        self.review_paths(now, index);
        // Where two NICs have addresses of both families, that of the connection's is used.
        let peer = &self.peers[index as usize];
        for rail in peer.primary_family_first(peer.paths.told()) {
            let Ok(nic) = self.nic_for_path(index, &rail) else { continue };
            // As fast as the slower of the two, if it says.
            let speeds = [nic.speed_mbits, rail.speed_mbits].into_iter().filter(|speed| *speed > 0);
            let speed_bits = u64::from(speeds.min().unwrap_or(0)) * 1_000_000;
            let peer = &mut self.peers[index as usize];
            match peer.paths.to(rail.address) {
                Some(number) => peer.sender.set_speed(number as u8, speed_bits),
                None => self.add_path(index, nic.ip, rail.address, speed_bits),
            }
        }
    }

    /// The NIC of ours from which an address that a peer has told of may be a further path to it, or why it may not.
    ///
    /// Traffic stays on the kind of network on which the connection was made: what goes to a private address goes to
    /// private ones, what goes through a tunnel goes through tunnels, and nothing else does.
    fn nic_for_path(&self, index: u32, rail: &RailAddress) -> Result<NicAddress, NoPath> {
        let (peer, address) = (&self.peers[index as usize], rail.address);
        let first = peer.paths.get(0).map_or(address, |path| path.address).ip();
        let reaching = |ip: IpAddr| self.multirail.nics.iter().find(move |nic| nic.reaches(ip));
        let ip = address.ip();
        if let Some(why) = self.multirail.networks.refusal(ip) {
            return Err(NoPath::NotAllowed(why));
        }
        // It leads to us: a bridge for containers has the same address on many hosts.
        if self.multirail.nics.iter().any(|nic| nic.ip == ip) {
            return Err(NoPath::Ours);
        }
        let Some(nic) = reaching(ip) else { return Err(NoPath::Elsewhere) };
        if NetworkKind::of(ip) != NetworkKind::of(first) {
            return Err(NoPath::OtherKind(NetworkKind::of(first), NetworkKind::of(ip)));
        }
        if nic.is_overlay != reaching(first).is_some_and(|nic| nic.is_overlay) {
            return Err(NoPath::Overlay { through: !nic.is_overlay });
        }
        match peer.paths.iter().find(|path| path.address != address && self.joins(peer, path, nic, rail)) {
            Some(path) => Err(NoPath::SameNics(path.address)),
            None => Ok(*nic),
        }
    }

    /// Whether a path, in whichever family, joins a NIC of ours and the one of the peer's that has the address `rail`.
    fn joins(&self, peer: &Peer, path: &PeerPath, nic: &NicAddress, rail: &RailAddress) -> bool {
        let ours =
            || self.multirail.nics.iter().any(|other| Some(other.ip) == path.nic && other.nic == nic.nic);
        let theirs =
            || peer.paths.told().iter().any(|other| other.address == path.address && other.nic == rail.nic);
        !path.gone && nic.nic != 0 && rail.nic != 0 && ours() && theirs()
    }

    /// Every address of a peer, that of the connection and those it has told of: whether it is a path, or why not.
    #[must_use]
    pub fn explain(&self, index: u32) -> Vec<(SocketAddr, String)> {
        let index = self.canonical(PeerId(index)).0;
        let Some(peer) = self.peers.get(index as usize) else { return Vec::new() };
        let mut found = Vec::new();
        for (number, (path, stats)) in peer.paths.iter().zip(peer.sender.paths()).enumerate() {
            let text = match (stats.is_usable(), number) {
                (true, 0) => "the connection was made there".to_owned(),
                (true, _) => "the peer has proved to be there".to_owned(),
                (false, _) => "nobody there has proved to be the peer, or not lately".to_owned(),
            };
            found.push((path.address, text));
        }
        for rail in peer.paths.told() {
            if found.iter().all(|(address, _)| *address != rail.address) {
                let why = match self.nic_for_path(index, rail) {
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
        self.multirail.networks = networks;
    }

    /// Which networks may be used.
    #[must_use]
    pub fn networks(&self) -> &Networks {
        &self.multirail.networks
    }

    /// Notices which paths are gone since the last look, and which are back.
    fn review_paths(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        for (number, (path, named)) in peer.paths.with_told().enumerate() {
            let reached = self.multirail.nics.iter().find(|nic| nic.reaches(path.address.ip()));
            path.nic = reached.map(|nic| nic.ip).or(path.nic);
            // The connection's own path stays one even if the peer does not name it or it goes through a router.
            let gone = if named { path.nic.is_some() && reached.is_none() } else { number > 0 };
            // Nobody waits for it to fall silent. It is probed as any other: links come back before they are told of.
            if gone && !path.gone && peer.sender.paths()[number].is_usable() {
                let why = if named {
                    "no NIC here is on its link any more"
                } else {
                    "the peer has withdrawn the address"
                };
                tracing::warn!(peer = %peer.name, path = %path.address, why, "a path is left");
                peer.sender.suspend(now, number as u8);
            }
            path.gone = gone;
        }
    }

    /// Adds a path to a peer, in the place of one that is gone if there are as many as there may be.
    fn add_path(&mut self, index: u32, nic: IpAddr, address: SocketAddr, speed_bits: u64) {
        let peer = &mut self.peers[index as usize];
        let mut path = PeerPath::new(address);
        (path.nic, path.mtu) = (Some(nic), peer.fresh_mtu(address));
        if peer.paths.len() < RAILS_MAX {
            peer.sender.add_path(speed_bits);
            peer.paths.push(path);
        } else {
            let free = |(number, path): &(usize, &PeerPath)| {
                *number > 0 && path.gone && !peer.sender.paths()[*number].is_usable()
            };
            let Some(number) = peer.paths.iter().enumerate().find(free).map(|(number, _)| number) else {
                return; // when one is gone, the peer or our own NICs will tell, and we look again
            };
            self.multirail.ledger.count(peer);
            peer.sender.replace_path(number as u8, speed_bits);
            let former = std::mem::replace(&mut peer.paths[number], path).address;
            self.peers.leave(former, index);
            self.egress.disconnect(former);
        }
        self.egress.connect(address);
    }

    /// The peer wants to know whether this path to us works: the answer goes back to the address that it came from.
    pub(super) fn answer_probe(&mut self, now: Instant, index: u32, from: SocketAddr) {
        if let Some(packet) = self.answer_packet(now, index, Kind::Ack, Psn(0), Flags(0)) {
            let to = if defect!(AnsweredOverAnotherPath) {
                self.peers[index as usize].usual_address()
            } else {
                from
            };
            self.reply(to, packet.to_vec());
        }
    }

    /// Asks a peer for a sign of life, over every path.
    pub(super) fn ask(&mut self, index: u32) {
        (0..self.peers[index as usize].paths.len()).for_each(|number| self.probe(index, number));
    }

    /// Asks a peer for a sign of life over one path.
    pub(super) fn probe(&mut self, index: u32, number: usize) {
        let address = self.peers[index as usize].paths[number].address;
        if let Some(packet) = self.flow_packet(index, Kind::Probe, number as u8) {
            self.reply(address, packet.to_vec());
        }
    }

    /// Asks silent paths whose time has come for a sign of life.
    pub(super) fn probe_paths(&mut self, now: Instant, index: u32) {
        if self.peers[index as usize].probe_due() > now {
            return;
        }
        for number in 0..self.peers[index as usize].paths.len() {
            let peer = &mut self.peers[index as usize];
            let path = &mut peer.paths[number];
            // The first is used from the beginning, the others since they have answered.
            let is_left = path.is_unprobed() && (number == 0 || path.delivered_when_revived.is_some());
            if peer.sender.paths()[number].is_usable() || !path.probe(now) {
                continue;
            }
            if is_left && !path.gone {
                let Path { delivered, lost, .. } = peer.sender.paths()[number];
                tracing::warn!(
                    peer = %peer.name,
                    path = %path.address,
                    silent_ms = peer.sender.paths()[number].unheard_ns(now) / MILLISECOND_NS,
                    delivered,
                    lost,
                    "a path has fallen silent and is left until it answers"
                );
            }
            self.probe(index, number);
        }
    }

    /// The peer answered from this address: what was sent there has arrived.
    pub(super) fn on_answer_from(&mut self, now: Instant, index: u32, from: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        // A lone path may be silent, too: our NIC had no carrier.
        if !peer.is_multirail() && (peer.sender.paths()[0].is_usable() || defect!(LonePathNotRevived)) {
            return;
        }
        let Some(number) = peer.paths.to(from) else { return };
        let path = &mut peer.paths[number];
        path.on_answer();
        if !peer.sender.paths()[number].is_usable() && !defect!(PathNotRevived) {
            tell_of_revival(now, &peer.name, path, &peer.sender.paths()[number], number == 0);
            peer.sender.revive(now, number as u8);
            // It answers the last PROBE, unless it took longer than there is between two of them. Nothing else was in
            // flight: the path will never be so empty again.
            if let Some(rtt_ns) = path.probe_rtt_ns(now) {
                peer.sender.sample(number as u8, rtt_ns);
            }
            // Only the peer can answer there: from now on what comes from this address without a token is believed.
            self.peers.settle_if_free(from, index);
            self.suspect_revived(now, index, number);
            self.schedule(index);
        }
    }

    /// An answer has come from this address: what a time-out has tried over that path is lost if it does not acknowledge it.
    pub(super) fn lose_tried(&mut self, now: Instant, index: u32, from: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        if !peer.is_multirail() || defect!(TriedUnasked) {
            return;
        }
        let Some(number) = peer.paths.to(from) else { return };
        if peer.sender.lose_tried(now, number as u8) {
            self.schedule(index);
        }
    }

    /// What came from this address says that packet `psn` was refused, which the packet's path has carried then.
    pub(super) fn on_refused(&mut self, now: Instant, index: u32, from: SocketAddr, psn: Psn) {
        let peer = &mut self.peers[index as usize];
        if peer.is_multirail()
            && let Some(number) = peer.paths.to(from)
        {
            peer.sender.on_refused(now, psn, number as u8);
        }
    }

    /// The path that the next packets to a peer take; `None`: they wait.
    pub(super) fn pick(&mut self, now: Instant, index: u32) -> Option<Pick> {
        let body_bytes = self.body_bytes(index) as u64;
        let peer = &self.peers[index as usize];
        if !peer.is_multirail() {
            return Some(Pick { path: 0, packets: u32::MAX });
        }
        let waiting = u32::try_from(peer.outbox.bytes() / body_bytes + 1).unwrap_or(u32::MAX);
        path_policy::pick(&mut *self.multirail.policy, now, index, &peer.sender, waiting)
    }
}

/// Says that a path answers: for the first time, or after how long. The first one was used from the beginning.
fn tell_of_revival(now: Instant, peer: &str, path: &PeerPath, stats: &Path, is_first: bool) {
    let PeerPath { address, delivered_when_revived, .. } = path;
    if is_first || delivered_when_revived.is_some() {
        let left_ms = stats.suspended_ns(now) / MILLISECOND_NS;
        tracing::info!(%peer, path = %address, left_ms, "a path answers again and is used from now on");
    } else {
        tracing::info!(%peer, path = %address, "a path answers and is used from now on");
    }
}
