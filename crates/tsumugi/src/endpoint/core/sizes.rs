//! How long packets to a peer may be: what both ends take, and what each path to it carries.
//!
//! A path begins with what our own kernel's route has room for. It carries less when our kernel says so, or when the packet
//! that all others wait for has been lost several times while the peer answered: then short packets come through and
//! long ones do not. [`tsumugi_proto::path_mtu`] decides how much less, and finds out by probes when it is more. What
//! was cut before for more than a path carries is sent in [`super::pieces`].

use super::{Core, Ended};
use crate::checksum::crc32c;
use crate::endpoint::peer::connection::{Address, Phase};
use crate::endpoint::peer::paths::PeerPath;
use crate::endpoint::peer::sizes::Said;
use crate::error::Reason;
use crate::report::GivenUp;
use std::net::SocketAddr;
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;
use tsumugi_wire::time::SECOND_NS;
use tsumugi_wire::{Header, Instant, Kind, Psn};

/// Transmissions that the first packet outstanding must have lost before its length is to blame.
const LOST_SENDS: u8 = 4;
/// Transmissions of it from which on the peer is asked, by a short packet behind it, whether short ones arrive.
const ASK_SENDS: u8 = 2;

/// How long not even packets that every path should carry must be lost, ns, at least: chance does that for a while, too.
const NARROW_NS_MIN: u64 = 5 * SECOND_NS;

impl Core {
    /// Takes in what our kernel expects to pass to an address: when the address is new, and when a packet was too long.
    pub(super) fn hear_size<R: Rail + ?Sized>(&mut self, now: Instant, address: SocketAddr, rail: &mut R) {
        let Some(index) = self.peers.at(address) else { return };
        let peer = &mut self.peers[index as usize];
        if peer.connection.remote.is_none() {
            return; // what both take is not known either
        }
        let Some(number) = peer.paths.to(address) else { return };
        let Some(bytes) = rail.path_bytes(address) else { return };
        let before = peer.paths[number].mtu;
        if peer.paths[number].mtu.limit(now, bytes) {
            peer.paths[number].said = Said::Kernel;
            peer.sender.forget_losses();
            tell(&peer.paths[number], before.bytes());
        }
        if before != peer.paths[number].mtu {
            peer.fit();
            let due = self.due(index);
            self.schedule_at(index, due);
        }
    }

    /// Looks whether it is for its length that the first packet outstanding is lost again and again.
    pub(super) fn suspect_size<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        let Some((sends, sent_at, number)) = peer.sender.lost_head() else { return Ok(()) };
        if sends < ASK_SENDS || !peer.sizes.look_into(sent_at) {
            return Ok(());
        }
        let Some(&key) = peer.sender.head() else { return Ok(()) };
        let path = &mut peer.paths[usize::from(number)];
        let before = path.mtu.bytes();
        let bytes = self.sent[key].datagram_bytes().min(before);
        // The XDP program answers for a process that computes or is stopped, but does not take every packet that arrives: pieces
        // it leaves to the process, and those for which a queue has no room. So the process itself must have answered.
        if sends < LOST_SENDS || !peer.sizes.has_acked_since(sent_at) {
            self.ask_behind(index, number);
            return Ok(());
        }
        // Our kernel may have been told, and not we.
        let known = rail.path_bytes(path.address).filter(|known| *known < bytes);
        let (said, less) = match known {
            Some(known) => (Said::Kernel, path.mtu.limit(now, known)),
            None => {
                let mut less = false;
                while path.mtu.bytes() >= bytes && path.mtu.on_black_hole(now) {
                    less = true;
                }
                (Said::Nobody, less)
            }
        };
        if less {
            path.said = said;
            tell(path, before);
            peer.sender.forget_losses();
            peer.fit();
        } else if bytes <= DATAGRAM_BYTES_MIN {
            self.ask_behind(index, number);
            return self.suspect_all(now, index);
        }
        Ok(())
    }

    /// Asks by short packets, behind one that may be too long, whether those come through. The PROBE may be answered by
    /// the peer's XDP program. An answer to the SIZE_PROBE says that what was sent before it is lost, whatever the
    /// time-out.
    fn ask_behind(&mut self, index: u32, number: u8) {
        self.probe(index, usize::from(number));
        let to = self.peers[index as usize].paths[usize::from(number)].address;
        if let Some(packet) = self.size_packet(index, Kind::SizeProbe, number, HEADER_BYTES, &[]) {
            self.reply(to, packet.to_vec());
        }
    }

    /// Not even what every path must carry arrives, though the peer answers. After a while the connection ends.
    fn suspect_all(&mut self, now: Instant, index: u32) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        let base = peer.sender.base();
        let stuck_ns = peer.sizes.suspect(base, now);
        if stuck_ns >= self.options.peer_timeout_ns.max(NARROW_NS_MIN) {
            return Err(Ended(index, Reason::Narrow(DATAGRAM_BYTES_MIN)));
        }
        Ok(())
    }

    /// A path has come back and lost all it was given before: it may carry short packets only.
    pub(super) fn suspect_revived(&mut self, now: Instant, index: u32, number: usize) {
        let peer = &mut self.peers[index as usize];
        let delivered = peer.sender.paths()[number].delivered;
        let path = &mut peer.paths[number];
        let before = path.mtu.bytes();
        if path.delivered_when_revived.replace(delivered) == Some(delivered) && path.mtu.on_black_hole(now) {
            path.said = Said::Nobody;
            tell(path, before);
        }
        peer.fit();
    }

    /// Sends the probes that are due.
    pub(super) fn probe_sizes<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<(), RailError> {
        for number in 0..self.peers[index as usize].paths.len() {
            let peer = &mut self.peers[index as usize];
            let stats = &peer.sender.paths()[number];
            let path = &mut peer.paths[number];
            if !stats.is_usable() {
                continue;
            }
            let address = path.address;
            let Some(bytes) = path.mtu.probe(now, stats.rtt.srtt_ns) else { continue };
            let padding = vec![0; bytes - HEADER_BYTES];
            let Some(head) = self.size_packet(index, Kind::SizeProbe, number as u8, bytes, &padding) else {
                continue;
            };
            rail.send(now, address, &[Packet { head: &head, body: &padding }])?;
        }
        self.peers[index as usize].fit();
        Ok(())
    }

    /// The header of a packet about the length of datagrams.
    fn size_packet(
        &mut self,
        index: u32,
        kind: Kind,
        number: u8,
        bytes: usize,
        body: &[u8],
    ) -> Option<[u8; HEADER_BYTES]> {
        let packet = self.flow_packet(index, kind, number)?;
        let (mut header, ..) = Header::decode(&packet).ok()?;
        header.psn = Psn(bytes as u64);
        header.body_bytes = body.len() as u16;
        header.body_crc = crc32c(body);
        Some(header.encode())
    }

    /// The peer wants to know whether so long a datagram arrives: it did.
    pub(super) fn on_size_probe(&mut self, index: u32, from: SocketAddr, header: &Header) {
        let bytes = HEADER_BYTES + usize::from(header.body_bytes);
        if header.psn == Psn(bytes as u64)
            && let Some(packet) = self.size_packet(index, Kind::SizeAck, header.path, bytes, &[])
        {
            self.reply(from, packet.to_vec());
        }
    }

    /// So long a datagram of ours has arrived.
    pub(super) fn on_size_ack(&mut self, now: Instant, index: u32, header: &Header) {
        let peer = &mut self.peers[index as usize];
        peer.sizes.on_acked(now);
        let Some(path) = peer.paths.get_mut(usize::from(header.path)) else { return };
        let before = path.mtu.bytes();
        let bytes = usize::try_from(header.psn.0).unwrap_or(usize::MAX);
        if bytes == HEADER_BYTES && peer.sender.lose_overtaken_head(header.path, ASK_SENDS..=LOST_SENDS) {
            self.schedule(index);
            return;
        }
        if matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)) && path.mtu.on_arrived(now, bytes)
        {
            tracing::info!(
                path = %path.address,
                "datagrams of {bytes} bytes arrive; {before} were known to before"
            );
            peer.fit();
            self.schedule(index);
        }
    }

    /// The paths that carry less than both ends take, and why, as far as is known.
    pub(crate) fn short_paths(&self) -> Vec<GivenUp> {
        let open =
            self.peers.iter().filter(|peer| matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)));
        let paths = open.flat_map(|peer| peer.paths.iter().map(move |path| (peer.connection.remote, path)));
        let short = |(remote, path): (Option<Address>, &PeerPath)| {
            let longest = remote?.datagram_bytes_at(path.address);
            let bytes = path.mtu.bytes();
            (bytes < longest).then(|| GivenUp {
                what: format!("datagrams of {longest} bytes to {}", path.address),
                why: format!("{bytes} at most: {}", path.said.why()),
                remedy: path.said.remedy(path.address),
            })
        };
        paths.filter_map(short).collect()
    }
}

/// Says that a path carries less than before.
fn tell(path: &PeerPath, before: usize) {
    let PeerPath { address, mtu, said, .. } = path;
    tracing::warn!(
        path = %address,
        "datagrams of {} bytes at most, {before} before: {}; {}",
        mtu.bytes(),
        said.why(),
        said.remedy(*address)
    );
}
