//! Packets that arrive damaged by way of a program in the driver, which acknowledges what it cannot look at.
//!
//! That a packet is acknowledged says that it need not be sent again by itself. Its sender keeps it until the receiver has
//! compared it with its CRC, and says so (`tsumugi_proto::unchecked`). What turns out to be damaged the receiver asks for
//! (DAMAGED), and asks again until it comes: in PIECEs, which no program takes, so that they are compared when they arrive.
//! Meanwhile the packet's turn does not pass.

use super::deliver::Place;
use super::peer::{Body, Content, Phase};
use super::state::State;
use crate::error::Reason;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::pieces::JOINS_MAX;
use tsumugi_proto::unchecked::UNCHECKED_MAX;
use tsumugi_rail::{Rail, RailError};
use tsumugi_wire::frame::{Frame, Frames};
use tsumugi_wire::memory::Counter;
use tsumugi_wire::remote::What;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Instant, Kind, Psn};

/// Packets of a peer that are asked for at a time: as many as may be in pieces.
const ASKED_MAX: usize = JOINS_MAX;
/// Packets that a peer may have asked for and not got: more it will ask for again.
const REPAIRS_MAX: usize = 2 * ASKED_MAX;
/// Longest time after which a packet is asked for again, ns.
const ASK_NS_MAX: u64 = 100 * MILLISECOND_NS;

/// A packet that arrived damaged.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    psn: Psn,
    /// When it is to be asked for, again.
    due: Instant,
    /// How often it has been.
    asks: u32,
}

/// The packets of a peer that arrived damaged and are wanted again, in the order of their PSNs.
#[derive(Clone, Debug, Default)]
pub(super) struct Damaged(Vec<Wanted>);

impl Damaged {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The first of them: its turn does not pass before it has come.
    pub(super) fn first(&self) -> Option<Psn> {
        self.0.first().map(|wanted| wanted.psn)
    }

    pub(super) fn has(&self, psn: Psn) -> bool {
        self.0.binary_search_by_key(&psn, |wanted| wanted.psn).is_ok()
    }

    /// When some are to be asked for.
    #[inline]
    pub(super) fn due(&self) -> Instant {
        self.0.iter().take(ASKED_MAX).map(|wanted| wanted.due).min().unwrap_or(Instant::NEVER)
    }

    /// Adds a packet, which is asked for as soon as may be.
    pub(super) fn add(&mut self, psn: Psn) {
        if let Err(at) = self.0.binary_search_by_key(&psn, |wanted| wanted.psn) {
            self.0.insert(at, Wanted { psn, due: Instant(0), asks: 0 });
        }
    }

    fn remove(&mut self, psn: Psn) -> bool {
        let found = self.0.binary_search_by_key(&psn, |wanted| wanted.psn).ok();
        found.map(|at| self.0.remove(at)).is_some()
    }

    pub(super) fn psns(&self) -> impl Iterator<Item = Psn> + '_ {
        self.0.iter().map(|wanted| wanted.psn)
    }
}

impl Content {
    /// Whether a program may write what it carries where it belongs: then nobody compares it.
    pub(super) fn may_land(&self) -> bool {
        let Body::Packet(body) = &self.body else { return false };
        let Some(Ok(Frame::Remote(remote, _))) = Frames::new(body).next() else { return false };
        [What::Write, What::Piece].map(|what| what as u16).contains(&remote.what)
    }
}

impl State {
    /// A packet in the receive queue is not what its CRC says.
    pub(super) fn on_damage(&mut self, index: u32, psn: Psn) {
        self.memory.count(Counter::Corrupt, 1);
        let peer = &mut self.peers[index as usize];
        if psn < peer.reorder.next() || peer.damaged.len() >= UNCHECKED_MAX {
            // No depositor takes a packet twice, or so many beyond the credit: somebody wrote garbage into our memory.
            self.violated(index, "packets that cannot have been deposited");
            return;
        }
        peer.damaged.add(psn);
        self.tell_held(index);
        self.touch(index);
    }

    /// Asks for packets that arrived damaged.
    pub(super) fn ask_for_damaged(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        let srtt_ns = peer.sender.paths().iter().map(|path| path.srtt_ns).max().unwrap_or(0);
        let patience_ns = 2 * srtt_ns + MILLISECOND_NS;
        let mut asked = Vec::new();
        for wanted in peer.damaged.0.iter_mut().take(ASKED_MAX).filter(|wanted| wanted.due <= now) {
            wanted.due = now.plus((patience_ns << wanted.asks.min(10)).min(ASK_NS_MAX.max(patience_ns)));
            // First by a way that works, as far as is known; then by each.
            let way = peer.ways.get(wanted.asks as usize % peer.ways.len()).filter(|_| wanted.asks > 0);
            wanted.asks = wanted.asks.saturating_add(1);
            asked.push((wanted.psn, way.map(|way| way.address)));
        }
        let usual = peer.way();
        for (psn, address) in asked {
            if let Some(packet) = self.flow_packet_about(index, Kind::Damaged, 0, psn) {
                self.reply(address.unwrap_or(usual), packet.to_vec());
            }
        }
    }

    /// Takes a packet in that has come again, if it was wanted. It has been compared.
    #[inline]
    pub(super) fn repairs(&mut self, index: u32, psn: Psn, body: &[u8]) -> bool {
        let peer = &mut self.peers[index as usize];
        if peer.damaged.is_empty() || !peer.damaged.remove(psn) {
            return false;
        }
        peer.demand(Kind::Ack, Psn(0));
        self.touch(index);
        self.tally.packets_repaired += 1;
        self.take_in(index, psn, body, Place::Passing);
        self.tell_held(index);
        true
    }

    /// A packet of ours has arrived damaged, and the peer wants it again.
    pub(super) fn on_wanted_again(&mut self, index: u32, psn: Psn) {
        let peer = &mut self.peers[index as usize];
        if !matches!(peer.phase, Phase::Open | Phase::Leaving(_)) {
            return;
        }
        if psn >= peer.sender.next() {
            self.memory.count(Counter::Violation, 1);
        } else if peer.sender.packet(psn).or_else(|| peer.unchecked.get(psn)).is_some() {
            if peer.repairs.len() < REPAIRS_MAX && !peer.repairs.contains(&psn) {
                peer.repairs.push(psn);
                self.touch(index);
            }
        } else if psn >= peer.unchecked.checked() {
            // So much has been written to its memory since that this was given up. It must not wait for ever.
            let (address, local) = (peer.way(), peer.local);
            self.end_peer(index, Reason::Violation("it asks for a packet that is not kept any more"));
            if let Some(local) = local {
                self.reset(address, local.token);
            }
        }
        // Otherwise it has got it: this is a copy, or late.
    }

    /// Sends the packets again that the peer has asked for. `false` when the NIC did not take them all.
    pub(super) fn send_repairs<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let wanted = std::mem::take(&mut self.peers[index as usize].repairs);
        for (at, &psn) in wanted.iter().enumerate() {
            let peer = &mut self.peers[index as usize];
            let Some(&key) = peer.sender.packet(psn).or_else(|| peer.unchecked.get(psn)) else { continue };
            // One path after the other: it may be one of them that does the damage.
            let usable: Vec<u8> = (0..)
                .zip(peer.sender.paths())
                .filter(|(_, path)| path.is_usable())
                .map(|(path, _)| path)
                .collect();
            let path = usable.get(peer.repaired as usize % usable.len().max(1)).copied().unwrap_or(0);
            peer.repaired = peer.repaired.wrapping_add(1);
            self.tally.packets_resent += 1;
            if !self.send_pieces_of(now, index, path, (psn, key, Flags::RESENT), rail)? {
                self.peers[index as usize].repairs.extend_from_slice(&wanted[at..]);
                return Ok(false);
            }
        }
        Ok(true)
    }
}
