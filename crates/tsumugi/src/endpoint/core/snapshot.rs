//! What an endpoint tells whoever looks on.

use super::Core;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::report::Report;
use crate::snapshot::{PEERS_SHOWN_MAX, PeerSnapshot, ReceiveSnapshot, Snapshot};
use std::collections::BTreeMap;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::sender::Cause;
use tsumugi_wire::Instant;
use tsumugi_wire::atomic::Ordering;

/// What the endpoint around a [`Core`] knows.
pub struct Around {
    /// See [`Snapshot`].
    pub taken_ns: u64,
    /// See there.
    pub report: Report,
    /// See there.
    pub wait: String,
    /// See there.
    pub in_event_loop: bool,
    /// See there.
    pub idle_ns: u64,
}

impl Core {
    /// What it is doing. Peers with most traffic since the last time come first.
    pub fn snapshot(&mut self, now: Instant, around: Around) -> Snapshot {
        let Around { taken_ns, report, wait, in_event_loop, idle_ns } = around;
        let mut ledger = std::mem::take(&mut self.multirail.ledger);
        ledger.begin();
        let mut resent = self.tally.resent;
        let mut busiest: Vec<(u64, u32)> = Vec::with_capacity(self.peers.len());
        for peer in self.peers.iter_mut() {
            ledger.count(peer);
            for (all, its) in resent.iter_mut().zip(peer.sender.resent()) {
                *all += its;
            }
            if peer.identity.same_as.is_some() {
                continue;
            }
            let traffic = peer.bytes_sent + peer.receive.bytes;
            let before = std::mem::replace(&mut peer.traffic_shown, traffic);
            busiest.push((traffic.saturating_sub(before), peer.number));
        }
        busiest.sort_by_key(|&(traffic, number)| (std::cmp::Reverse(traffic), number));
        busiest.truncate(PEERS_SHOWN_MAX);
        let peers = busiest.iter().map(|&(_, number)| self.peer_snapshot(now, number)).collect();
        let nics = ledger.nics();
        self.multirail.ledger = ledger;
        let mut resent = by_cause(resent);
        resent.insert("damaged".to_owned(), self.tally.packets_asked_for);
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_ns,
            epoch: self.epoch(),
            report,
            wait,
            in_event_loop,
            counters: self.counters().iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            resent,
            idle_ns,
            receive: self.receive_snapshot(),
            nics,
            peers_known: self.peers(),
            peers,
        }
    }

    fn receive_snapshot(&self) -> ReceiveSnapshot {
        let control = self.memory.control();
        let tail = control.ring_tail.0.load(Ordering::Relaxed);
        let head = control.ring_head.0.load(Ordering::Relaxed);
        ReceiveSnapshot {
            queue_used_bytes: head.saturating_sub(tail),
            queue_bytes: self.memory.ring_bytes(),
            held_bytes: self.held_bytes(),
            held_bytes_max: self.options.receive_bytes,
        }
    }

    fn peer_snapshot(&self, now: Instant, number: u32) -> PeerSnapshot {
        let peer = &self.peers[number as usize];
        PeerSnapshot {
            number,
            name: peer.name.clone(),
            address: peer.address,
            state: state(peer).to_owned(),
            bytes_sent: peer.bytes_sent,
            bytes_received: peer.receive.bytes,
            packets_received: peer.receive.packets,
            waiting_bytes: peer.outbox.bytes(),
            outstanding: peer.sender.outstanding() as u64,
            credit: peer.sender.limit().since(peer.sender.next()).unwrap_or(0),
            resent: by_cause(peer.sender.resent()),
            held_by: peer.holds.current().name().to_owned(),
            held_ns: peer.holds.until(now).map(|(name, ns)| (name.to_owned(), ns)).collect(),
            paths: self.paths(number),
        }
    }
}

fn state(peer: &Peer) -> &'static str {
    match peer.connection.phase {
        Phase::Strange => "strange",
        Phase::Handshake(_) => "connecting",
        Phase::Open => "connected",
        Phase::Leaving(_) => "leaving",
        Phase::Gone(_) => "gone",
    }
}

fn by_cause(counts: [u64; Cause::ALL.len()]) -> BTreeMap<String, u64> {
    Cause::ALL.into_iter().zip(counts).map(|((_, name), count)| (name.to_owned(), count)).collect()
}
