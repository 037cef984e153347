//! The paths to a peer.

use super::Peer;
use super::sizes::Said;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use tsumugi_proto::path_mtu::PathMtu;
use tsumugi_wire::Instant;
use tsumugi_wire::limits::DATAGRAM_BYTES_MAX;
use tsumugi_wire::rails::RailAddress;
use tsumugi_wire::time::MILLISECOND_NS;

/// Time between the first two PROBEs of a silent path, ns; it doubles.
pub(crate) const PROBE_NS_MIN: u64 = 5 * MILLISECOND_NS;

/// Longest time between two PROBEs of a silent path, ns.
pub(crate) const PROBE_NS_MAX: u64 = 80 * MILLISECOND_NS;

/// The addresses that its packets go to.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The number is the path's.
    pub(crate) list: Vec<PeerPath>,
    /// The NICs that it has told of.
    pub(crate) told: Vec<RailAddress>,
    /// It has told of them since the paths to it were found.
    pub(crate) has_news: bool,
}

impl Paths {
    pub(crate) fn new(address: SocketAddr) -> Paths {
        Paths { list: vec![PeerPath::new(address)], told: Vec::new(), has_news: false }
    }
}

impl Deref for Paths {
    type Target = Vec<PeerPath>;

    fn deref(&self) -> &Vec<PeerPath> {
        &self.list
    }
}

impl DerefMut for Paths {
    fn deref_mut(&mut self) -> &mut Vec<PeerPath> {
        &mut self.list
    }
}

/// The peer's side of a path.
#[derive(Clone, Debug)]
pub(crate) struct PeerPath {
    /// Where packets over this path are addressed to.
    pub(crate) address: SocketAddr,
    /// The address of our NIC that is or was on its link.
    pub(crate) nic: Option<IpAddr>,
    /// What its path had delivered and lost when that was counted last.
    pub(crate) counted: (u64, u64),
    /// How long datagrams over it may be, and who said so if that is less than both ends take.
    pub(crate) mtu: PathMtu,
    pub(crate) said: Said,
    /// What its path had delivered when it came back last.
    pub(crate) delivered_when_revived: Option<u64>,
    /// The peer does not name it any more, or none of our NICs is on its link any more, as far as is known.
    pub(crate) gone: bool,
    /// When a silent path was probed last, when it is probed next, and how long after the PROBE before.
    pub(crate) probed_at: Instant,
    pub(crate) probe_at: Instant,
    pub(crate) pause_ns: u64,
}

impl PeerPath {
    pub(crate) const fn new(address: SocketAddr) -> PeerPath {
        PeerPath {
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

impl Peer {
    /// Where packets go beside `address`, by every path that works.
    pub(crate) fn elsewhere(&self, address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let paths = self.paths.iter().zip(self.sender.paths());
        let others = paths.filter(move |(path, stats)| path.address != address && stats.is_usable());
        others.map(|(path, _)| path.address)
    }

    /// `rails` in an order: those of the family by which the connection was made come first.
    pub(crate) fn primary_family_first(&self, rails: &[RailAddress]) -> Vec<RailAddress> {
        let first = self.paths.first().map_or(self.address, |path| path.address);
        let mut rails = rails.to_vec();
        rails.sort_by_key(|rail| rail.address.is_ipv4() != first.is_ipv4());
        rails
    }

    /// Whether there are several paths to it.
    pub(crate) fn is_multirail(&self) -> bool {
        self.paths.len() > 1
    }

    /// The address for what belongs to no path: that of the first path that works.
    pub(crate) fn usual_address(&self) -> SocketAddr {
        let works = self.sender.paths().iter().position(|stats| stats.is_usable()).unwrap_or(0);
        self.paths.get(works).map_or(self.address, |path| path.address)
    }

    /// When a silent path is to be probed.
    pub(crate) fn probe_due(&self) -> Instant {
        let silent = self.paths.iter().zip(self.sender.paths()).filter(|(_, stats)| !stats.is_usable());
        silent.map(|(path, _)| path.probe_at).min().unwrap_or(Instant::NEVER)
    }
}
