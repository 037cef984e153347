//! The paths to a peer.

use super::Peer;
use super::sizes::Said;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Index, IndexMut};
use std::slice::{Iter, IterMut};
use tsumugi_proto::path_mtu::PathMtu;
use tsumugi_wire::Instant;
use tsumugi_wire::defect;
use tsumugi_wire::limits::DATAGRAM_BYTES_MAX;
use tsumugi_wire::rails::RailAddress;
use tsumugi_wire::time::MILLISECOND_NS;

/// Time between the first two PROBEs of a silent path, ns; it doubles.
const PROBE_NS_MIN: u64 = 5 * MILLISECOND_NS;

/// Longest time between two PROBEs of a silent path, ns.
const PROBE_NS_MAX: u64 = 80 * MILLISECOND_NS;

/// The addresses that its packets go to.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The number is the path's.
    list: Vec<PeerPath>,
    /// The NICs that it has told of.
    told: Vec<RailAddress>,
    /// It has told of them since the paths to it were found.
    has_news: bool,
}

impl Paths {
    pub(crate) fn new(address: SocketAddr) -> Paths {
        Paths { list: vec![PeerPath::new(address)], told: Vec::new(), has_news: false }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> Iter<'_, PeerPath> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> IterMut<'_, PeerPath> {
        self.list.iter_mut()
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&PeerPath> {
        self.list.get(number)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut PeerPath> {
        self.list.get_mut(number)
    }

    /// The number of the path to an address.
    #[inline]
    pub(crate) fn to(&self, address: SocketAddr) -> Option<usize> {
        self.list.iter().position(|path| path.address == address)
    }

    pub(crate) fn push(&mut self, path: PeerPath) {
        self.list.push(path);
    }

    /// Leaves the first only, that of the connection.
    pub(crate) fn keep_first(&mut self) {
        self.list.truncate(1);
    }

    /// Takes all of them.
    pub(crate) fn take(&mut self) -> Vec<PeerPath> {
        std::mem::take(&mut self.list)
    }

    /// The NICs that it has told of.
    pub(crate) fn told(&self) -> &[RailAddress] {
        &self.told
    }

    /// It tells of its NICs.
    pub(crate) fn tell(&mut self, told: Vec<RailAddress>) {
        (self.told, self.has_news) = (told, true);
    }

    /// Whether it has told of them since the paths to it were found.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.has_news
    }

    /// The paths to it are found anew.
    pub(crate) fn look(&mut self) {
        self.has_news = false;
    }

    /// Each path, and whether the peer has told of its address.
    pub(crate) fn with_told(&mut self) -> impl Iterator<Item = (&mut PeerPath, bool)> {
        let Paths { list, told, .. } = self;
        list.iter_mut().map(|path| {
            let is_told = told.iter().any(|rail| rail.address == path.address);
            (path, is_told)
        })
    }
}

impl Index<usize> for Paths {
    type Output = PeerPath;

    #[inline]
    fn index(&self, number: usize) -> &PeerPath {
        &self.list[number]
    }
}

impl IndexMut<usize> for Paths {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut PeerPath {
        &mut self.list[number]
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
    /// Bytes of packets that were sent over it.
    pub(crate) bytes_sent: u64,
    /// How long datagrams over it may be, and who said so if that is less than both ends take.
    pub(crate) mtu: PathMtu,
    pub(crate) said: Said,
    /// What its path had delivered when it came back last.
    pub(crate) delivered_when_revived: Option<u64>,
    /// The peer does not name it any more, or none of our NICs is on its link any more, as far as is known.
    pub(crate) gone: bool,
    /// When a silent path was probed last, when it is probed next, and how long after the PROBE before.
    probed_at: Instant,
    probe_at: Instant,
    pause_ns: u64,
}

impl PeerPath {
    pub(crate) const fn new(address: SocketAddr) -> PeerPath {
        PeerPath {
            address,
            nic: None,
            counted: (0, 0),
            bytes_sent: 0,
            mtu: PathMtu::new(DATAGRAM_BYTES_MAX),
            said: Said::Kernel,
            delivered_when_revived: None,
            gone: false,
            probed_at: Instant(0),
            probe_at: Instant(0),
            pause_ns: PROBE_NS_MIN,
        }
    }

    /// A silent path is to be asked for a sign of life, if it is time; the next time is later and later.
    pub(crate) fn probe(&mut self, now: Instant) -> bool {
        if self.probe_at > now {
            return false;
        }
        self.probed_at = now;
        self.probe_at = if defect!(SilentPathNotProbed) { Instant::NEVER } else { now.plus(self.pause_ns) };
        self.pause_ns = (2 * self.pause_ns).min(PROBE_NS_MAX);
        true
    }

    /// Whether it was not asked for a sign of life since it answered last.
    pub(crate) const fn is_unprobed(&self) -> bool {
        self.pause_ns == PROBE_NS_MIN
    }

    /// When a silent path is to be asked next.
    pub(crate) const fn probe_at(&self) -> Instant {
        self.probe_at
    }

    /// The peer has answered from there.
    #[inline]
    pub(crate) fn on_answer(&mut self) {
        self.pause_ns = PROBE_NS_MIN;
    }

    /// The round trip of the answer that has just come, ns, if it can be the last PROBE's: there are longer pauses between two of
    /// them.
    pub(crate) fn probe_rtt_ns(&self, now: Instant) -> Option<u64> {
        let rtt_ns = now.since(self.probed_at);
        (rtt_ns < PROBE_NS_MIN).then_some(rtt_ns.max(1))
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
        let first = self.paths.get(0).map_or(self.address, |path| path.address);
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
        silent.map(|(path, _)| path.probe_at()).min().unwrap_or(Instant::NEVER)
    }
}
