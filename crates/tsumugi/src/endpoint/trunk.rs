//! Several ways to a peer: found, tried, used, left and taken back.
//!
//! A *way* is where packets for a peer may be addressed to, one for each of its NICs that is on a link of one of ours; it
//! is the peer's side of a path, and has the path's number. Way 0 is the address that we met the peer by. The peer tells
//! of the others in a message of its own on [`CONTROL_CHANNEL`], and they are used once they have answered a PROBE.
//!
//! A path that falls silent while others deliver is suspended by the sender; from then on it is probed from time to time,
//! and used again when it answers.

use super::peer::{Outgoing, Peer, Phase};
use super::state::State;
use std::net::SocketAddr;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::trunk::{Pick, PolicyChoice};
use tsumugi_rail::NicAddress;
use tsumugi_wire::frame;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::rails::{self, CONTROL_CHANNEL, RAILS_BYTES_MAX, RailAddress};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Instant, Kind};

/// Time between the first two PROBEs of a silent path, ns; it doubles.
const PROBE_NS_MIN: u64 = 5 * MILLISECOND_NS;
/// Longest time between two PROBEs of a silent path, ns.
const PROBE_NS_MAX: u64 = 80 * MILLISECOND_NS;

/// The peer's side of a path.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Where packets over this path are addressed to.
    pub(super) address: SocketAddr,
    /// One of our NICs is or was on its link.
    linked: bool,
    /// The peer does not name it any more, or none of our NICs is on its link any more, as far as is known.
    gone: bool,
    /// When a silent path is probed next, and how long after the PROBE before.
    probe_at: Instant,
    pause_ns: u64,
}

impl Way {
    pub(super) const fn new(address: SocketAddr) -> Way {
        Way { address, linked: false, gone: false, probe_at: Instant(0), pause_ns: PROBE_NS_MIN }
    }
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
}

impl Peer {
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
        self.policy = policy.policy();
    }

    /// What is known of the paths to a peer.
    #[must_use]
    pub fn paths(&self, index: u32) -> Vec<PathReport> {
        let Some(peer) = self.peers.get(index as usize) else { return Vec::new() };
        let paths = peer.ways.iter().zip(peer.sender.paths());
        let report = |(way, path): (&Way, &tsumugi_proto::sender::Path)| PathReport {
            address: way.address,
            is_usable: path.is_usable(),
            srtt_ns: path.srtt_ns,
            rate: path.rate(),
            in_flight: path.in_flight,
            delivered: path.delivered,
            lost: path.lost,
        };
        paths.map(report).collect()
    }

    /// Says by which addresses this endpoint is reached. Peers are told when there are several, and of every change.
    pub fn set_nics(&mut self, now: Instant, port: u16, nics: Vec<NicAddress>) {
        if nics == self.nics {
            return;
        }
        let told_before = self.nics.len() > 1;
        self.nics = nics;
        let rail = |nic: &NicAddress| RailAddress { address: SocketAddr::new(nic.ip, port), speed_mbits: 0 };
        self.rails = self.nics.iter().map(rail).collect();
        for index in 0..self.peers.len() as u32 {
            if matches!(self.peers[index as usize].phase, Phase::Open) {
                if told_before || self.nics.len() > 1 {
                    self.announce(index);
                }
                self.find_ways(now, index);
                self.touch(index);
            }
        }
    }

    /// Tells a peer of our NICs, if there are several, before anything else that waits.
    pub(super) fn announce(&mut self, index: u32) {
        let mut buffer = [0; RAILS_BYTES_MAX];
        let list = rails::encode(&self.rails, &mut buffer);
        let Some(mut body) = self.pool.take(frame::whole_frame_bytes(list.len())) else { return };
        body.extend_from_slice(&frame::encode_whole(CONTROL_CHANNEL, list.len() as u32));
        body.extend_from_slice(list);
        let peer = &mut self.peers[index as usize];
        // It is none of the messages that were accepted, and completes none.
        let messages = peer.marks.back().map_or(peer.delivered, |(_, messages)| *messages);
        peer.outbox_bytes += body.len() as u64;
        peer.outbox.push_front(Outgoing::Packet { body, messages });
        self.touch(index);
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
                peer.rails = list.collect();
                peer.has_told = true;
                self.touch(index);
            }
            Err(_) => self.memory.count(Counter::Violation, 1),
        }
    }

    /// Finds the ways to a peer: its NICs that are on a link of one of ours.
    pub(super) fn find_ways(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        peer.has_told = false;
        let reached = |address: SocketAddr| self.nics.iter().any(|nic| nic.reaches(address.ip()));
        for rail in &peer.rails {
            let known = peer.ways.iter().any(|way| way.address == rail.address);
            if known || !reached(rail.address) || peer.ways.len() >= RAILS_MAX {
                continue;
            }
            peer.sender.add_path(u64::from(rail.speed_mbits) * 1_000_000);
            peer.ways.push(Way::new(rail.address));
            self.by_address.entry(rail.address).or_insert(index);
            self.met.push(rail.address);
        }
        for (number, way) in peer.ways.iter_mut().enumerate() {
            let (named, reached) =
                (peer.rails.iter().any(|rail| rail.address == way.address), reached(way.address));
            way.linked |= reached;
            // How we met is a way even if nobody names it or it goes through a router.
            let gone = if named { way.linked && !reached } else { number > 0 };
            // Nobody waits for it to fall silent. It is probed as any other: links come back before they are told of.
            if gone && !way.gone && peer.sender.paths()[number].is_usable() {
                peer.sender.suspend(now, number as u8);
            }
            way.gone = gone;
        }
    }

    /// Asks a peer for a sign of life, by every way there is to it.
    pub(super) fn ask(&mut self, index: u32) {
        for number in 0..self.peers[index as usize].ways.len() {
            let address = self.peers[index as usize].ways[number].address;
            if let Some(packet) = self.flow_packet(index, Kind::Probe, number as u8) {
                self.reply(address, packet);
            }
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
            way.probe_at = now.plus(way.pause_ns);
            way.pause_ns = (2 * way.pause_ns).min(PROBE_NS_MAX);
            let address = way.address;
            if let Some(packet) = self.flow_packet(index, Kind::Probe, number as u8) {
                self.reply(address, packet);
            }
        }
    }

    /// The peer answered from this address: what was sent there has arrived.
    pub(super) fn on_way(&mut self, now: Instant, index: u32, from: SocketAddr) {
        let peer = &mut self.peers[index as usize];
        if !peer.is_trunk() {
            return;
        }
        let Some(number) = peer.ways.iter().position(|way| way.address == from) else { return };
        let way = &mut peer.ways[number];
        way.pause_ns = PROBE_NS_MIN;
        if !peer.sender.paths()[number].is_usable() {
            peer.sender.revive(now, number as u8);
            self.touch(index);
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
        let paths = peer.sender.paths();
        let in_turn = |urgent: u32| {
            let usable = || (0..).zip(paths).filter(|(_, path)| path.is_usable()).map(|(number, _)| number);
            let count = usable().count();
            let nth = |count: usize| urgent as usize % count;
            let path = if count > 0 { usable().nth(nth(count))? } else { nth(paths.len()) as u8 };
            Some(Pick { path, packets: 1 })
        };
        // What a time-out sends again goes out in any case. When the same happens again it takes one path after the
        // other: the policy's choice may be the very path that is silent, which nobody knows until another delivers.
        match peer.sender.urgent() {
            Some(urgent) if urgent > 1 => in_turn(urgent),
            urgent => self.policy.pick(now, index, paths, waiting).or_else(|| in_turn(urgent?)),
        }
    }
}
