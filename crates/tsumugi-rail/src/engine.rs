//! Ways to send that pass the kernel's socket layer by, each behind one trait.

use crate::{Packet, RailError};
use std::net::{IpAddr, SocketAddr};
use tsumugi_wire::Instant;

/// A way to send. What [`Rail::send`](crate::Rail::send) says holds here.
///
/// An engine need not reach everybody: a rail that has one keeps its socket, and sends through that what
/// the engine does not take.
pub trait Engine {
    /// What the engine is called.
    fn name(&self) -> &'static str;

    /// Sends `burst` to one peer, in order, without blocking, and returns how many packets were taken: fewer than
    /// all when the NIC's queue is full; try the rest later. `None`: the engine cannot reach that peer now;
    /// nothing was taken, send through the socket.
    ///
    /// # Errors
    /// The engine itself is broken, not just one packet.
    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError>;

    /// Says that there will be traffic with `peer`, to whom we are known by the address `local`; `None`: by the one that the
    /// kernel prefers. An engine may leave all others to the socket.
    fn meet(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        let _ = (peer, local);
    }

    /// Says that `peer` has gone.
    fn part(&mut self, peer: SocketAddr) {
        let _ = peer;
    }
}
