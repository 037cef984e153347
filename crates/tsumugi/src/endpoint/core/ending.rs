//! The end of a connection, and the only place where connections end.

use super::Core;
use crate::PeerId;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::peer::receive::Held;
use crate::error::{Failure, Reason};
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::defect;
use tsumugi_wire::memory::Counter;

/// The connection with this peer is to end, for this reason.
///
/// Connections end between the packets, timers and calls that are handled, never under them: what handles one returns this, and
/// whoever called it has [`Core::apply`] end the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended(pub(super) u32, pub(super) Reason);

impl Core {
    /// Ends the connection that is to end, if one is. Returns what came of it otherwise.
    pub(super) fn apply<T>(&mut self, outcome: Result<T, Ended>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(ended) => {
                self.end(ended);
                None
            }
        }
    }

    /// Counts that a peer has done what none may.
    pub(super) fn violation(&self, index: u32, what: &'static str) -> Ended {
        self.memory.count(Counter::Violation, 1);
        Ended(index, Reason::Violation(what))
    }

    /// Ends the connection with a peer: every operation that is outstanding with it fails.
    pub(super) fn end(&mut self, Ended(index, reason): Ended) {
        let peer = &mut self.peers[index as usize];
        let is_awaited = peer.operations.pending() > 0 || peer.liveness.awaited() > 0;
        let failure = Failure {
            peer: PeerId(index),
            name: peer.name.clone(),
            address: peer.address,
            reason,
            undelivered: peer.outbox.undelivered(),
        };
        tell(&failure);
        self.forget(index);
        self.peers[index as usize].connection.phase = Phase::Gone(reason);
        self.tally.peers_lost += 1;
        let is_end = !failure.is_orderly() || is_awaited || self.is_last(index);
        self.channels.fail(failure, is_end);
    }

    /// Whether a peer that the application had added was the last that anything could have come from: who waits for a
    /// message would wait for ever. Who came by itself may come again, and so may others.
    fn is_last(&self, index: u32) -> bool {
        let is_connected = |peer: &Peer| !matches!(peer.connection.phase, Phase::Strange | Phase::Gone(_));
        self.peers[index as usize].identity.named && !self.peers.iter().any(is_connected)
    }

    /// Gives everything back that belongs to the connection with a peer. What was delivered stays.
    pub(super) fn forget(&mut self, index: u32) {
        self.close_flow(index);
        let peer = &mut self.peers[index as usize];
        self.multirail.ledger.count(peer);
        let own = peer.address;
        for path in peer.paths.take() {
            if path.address != own {
                self.peers.leave(path.address, index);
            }
            self.egress.disconnect(path.address);
        }
        self.forget_aliases(index);
        let peer = &mut self.peers[index as usize];
        defect!(PromiseForgotten).then(|| peer.operations.forget_promises());
        peer.operations.break_promises(PeerId(index));
        let ended = self.peers.count_end();
        let mut old = self.peers[index as usize].end(ended, self.options.repeat);
        self.tally.packets_unrepaired += old.receive.damaged.len() as u64;
        for (all, its) in self.tally.resent.iter_mut().zip(old.sender.resent()) {
            *all += its;
        }
        for (_, held) in old.receive.reorder.iter() {
            if let Held::Body(body) = held {
                self.budget.leave(body.len() as u64);
            }
        }
        for assembly in old.receive.assemblies {
            self.lose(assembly);
        }
        for key in old.sender.abandon().chain(old.repairs.unchecked.drain()) {
            self.release_packet(key);
        }
        for outgoing in old.outbox.into_waiting() {
            self.discard(outgoing);
        }
        self.restore_credit();
    }
}

/// Says that a connection has ended.
fn tell(failure: &Failure) {
    let Failure { name, address, reason, undelivered, .. } = failure;
    if failure.is_orderly() {
        tracing::info!(peer = %name, %address, "the connection ended: {reason}");
    } else {
        tracing::warn!(peer = %name, %address, undelivered, "the connection ended: {reason}");
    }
}
