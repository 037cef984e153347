//! What the programming models built on channels ask of an endpoint beyond what a channel's owner does.

use super::Core;
use crate::PeerId;
use crate::endpoint::peer::connection::Phase;
use rand::RngExt;
use tsumugi_wire::Instant;
use tsumugi_wire::frame::WHOLE_BYTES;

impl Core {
    /// Something is awaited from now on that only the peer can bring: it is asked for signs of life until
    /// [`Core::expect_no_more`], so that its silent death is noticed though everything sent was acknowledged.
    /// The end of the connection ends the waiting too.
    pub(crate) fn expect(&mut self, now: Instant, id: PeerId) {
        let id = self.canonical(id);
        let Some(peer) = self.peers.get_mut(id.0 as usize) else { return };
        if peer.liveness.expect(1) && matches!(peer.connection.phase, Phase::Open) {
            self.arm(now, id.0);
        }
    }

    /// What was awaited in the given connection has come, or nobody wants it any more.
    pub(crate) fn expect_no_more(&mut self, id: PeerId, connection: u32) {
        let (id, connection) = self.connection_now(id, connection);
        if self.connection(id) == connection
            && let Some(peer) = self.peers.get_mut(id.0 as usize)
        {
            peer.liveness.expect_less();
        }
    }

    /// Where numbers begin that nobody who had the channel before should have used.
    pub(crate) fn random_number(&mut self) -> u32 {
        self.incarnation.random.random()
    }

    /// Whether there is a peer of this number.
    pub(crate) fn has_peer(&self, id: PeerId) -> bool {
        self.peers.get(id.0 as usize).is_some()
    }

    /// Whether there is a connection with the peer, so that what is sent to it need not wait until it is there.
    pub(crate) fn is_connected(&self, id: PeerId) -> bool {
        let peer = self.peers.get(self.canonical(id).0 as usize);
        peer.is_some_and(|peer| matches!(peer.connection.phase, Phase::Open))
    }

    /// Longest message that this endpoint sends and takes, bytes.
    pub(crate) fn message_bytes_max(&self) -> u64 {
        self.options.message_bytes_max
    }

    /// Longest message that fits into one packet to the peer, bytes.
    pub(crate) fn packet_message_bytes(&self, id: PeerId) -> usize {
        let id = self.canonical(id);
        if self.peers.get(id.0 as usize).is_some() { (self.body_bytes(id.0) - WHOLE_BYTES) & !7 } else { 0 }
    }
}
