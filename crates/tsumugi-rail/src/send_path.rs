//! Send paths that bypass the kernel's socket layer, behind one trait.

use crate::{Packet, RailError};
use std::net::{IpAddr, SocketAddr};
use tsumugi_wire::Instant;

/// A send path. What [`Rail::send`](crate::Rail::send) says holds here.
///
/// It need not reach everybody: a rail that has one keeps its socket, and sends through the socket what the
/// send path does not take.
pub trait SendPath {
    /// Name of the send path.
    fn name(&self) -> &'static str;

    /// Sends `burst` to one peer, in order, without blocking, and returns how many packets were taken: fewer than
    /// all when the NIC's queue is full; try the rest later. `None`: the send path cannot reach that peer now;
    /// nothing was taken, send through the socket.
    ///
    /// # Errors
    /// The send path itself is broken, not just one packet.
    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError>;

    /// Says that there will be traffic with `peer`, to whom we are known by the address `local`; `None`: by the one that the
    /// kernel prefers. A send path may leave all others to the socket.
    fn connect(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        let _ = (peer, local);
    }

    /// Says that there will be no more traffic with `peer`.
    fn disconnect(&mut self, peer: SocketAddr) {
        let _ = peer;
    }
}
