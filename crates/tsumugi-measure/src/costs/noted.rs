//! A rail that somebody looks on at while it sends and receives: the clock is read there and nowhere in the library.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use tsumugi_rail::{Deliver, Evidence, NicName, Packet, Question, Rail, RailError, RailReport};
use tsumugi_wire::Instant;

/// Who looks on.
pub(super) trait Onlooker {
    /// Has the rail send.
    fn send(
        &self,
        rail: &mut dyn Rail,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<usize, RailError>;

    /// Has the rail deliver what has arrived.
    fn receive(
        &self,
        rail: &mut dyn Rail,
        now: Instant,
        deliver: &mut Deliver<'_>,
    ) -> Result<usize, RailError>;
}

/// A rail, and who looks on.
pub(super) struct Noted<N> {
    pub(super) rail: Box<dyn Rail>,
    pub(super) notes: Rc<N>,
}

impl<N: Onlooker> Rail for Noted<N> {
    fn address(&self) -> SocketAddr {
        self.rail.address()
    }
    fn datagram_bytes(&self) -> usize {
        self.rail.datagram_bytes()
    }
    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        self.notes.send(&mut *self.rail, now, to, burst)
    }
    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        self.notes.receive(&mut *self.rail, now, deliver)
    }
    fn wake_at(&self) -> Instant {
        self.rail.wake_at()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.rail.descriptor()
    }
    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        self.rail.watch(on)
    }
    fn connect(&mut self, peer: SocketAddr) {
        self.rail.connect(peer);
    }
    fn disconnect(&mut self, peer: SocketAddr) {
        self.rail.disconnect(peer);
    }
    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        self.rail.busy_poll(on)
    }
    fn send_path(&self) -> &'static str {
        self.rail.send_path()
    }
    fn uses_xdp(&self) -> bool {
        self.rail.uses_xdp()
    }
    fn listens(&self) -> bool {
        self.rail.listens()
    }
    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        self.rail.inquire(now, since, peer, question)
    }
    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        self.rail.link_down(now, peer)
    }
    fn report(&self) -> RailReport {
        self.rail.report()
    }
    fn quiesce(&mut self) {
        self.rail.quiesce();
    }
}
