//! Two endpoints that answer each other, without sockets.

use crate::tray::{Tray, options};
use tsumugi::PeerId;
use tsumugi::internal::Core;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;

/// Time that a look takes, ns.
const LOOK_NS: u64 = 2000;

/// Two endpoints that answer each other.
pub(crate) struct Conversation {
    here: Side,
    there: Side,
    now: Instant,
}

struct Side {
    core: Core,
    tray: Tray,
    /// The other one.
    peer: PeerId,
    /// What was sent last, as one datagram: the kernel coalesces what comes together.
    coalesced: Vec<u8>,
}

impl Conversation {
    pub(crate) fn begin() -> Conversation {
        let addresses = ["10.0.0.1:1", "10.0.0.2:1"];
        let [here, there] =
            [(0, 1), (1, 0)].map(|(own, other): (usize, usize)| Side::new(addresses[own], addresses[other]));
        Conversation { here, there, now: Instant(1) }
    }

    /// A message there, and one back.
    pub(crate) fn exchange(&mut self, data: &[u8]) {
        let Conversation { here, there, now } = self;
        Side::say(now, here, there, data);
        Side::say(now, there, here, data);
    }
}

impl Side {
    fn new(address: &str, peer: &str) -> Side {
        let memory = Memory::new(Geometry::plain(8, 1 << 20)).expect("memory");
        let mut core = Core::new(options(), memory);
        assert!(core.open_channel(1));
        let peer = core.add_peer(peer, peer.parse().expect("an address")).expect("a peer");
        Side { core, tray: Tray::new(address), peer, coalesced: Vec::new() }
    }

    /// Sends a message, and returns when the other side has taken it and given it back.
    fn say(now: &mut Instant, from: &mut Side, to: &mut Side, data: &[u8]) {
        from.core.post(*now, from.peer, 1, data).expect("room");
        let mut length = None;
        while length.is_none() {
            *now = now.plus(LOOK_NS);
            from.carry(*now, to);
            length = to.core.take_and_release(1);
            if length.is_none() {
                to.carry(*now, from);
            }
        }
        assert_eq!(length, Some(data.len()));
    }

    fn carry(&mut self, now: Instant, to: &mut Side) {
        self.core.transmit(now, &mut self.tray).expect("trays do not fail");
        self.coalesced.clear();
        for datagram in self.tray.datagrams.drain(..) {
            self.coalesced.extend_from_slice(&datagram);
            self.tray.spare.push(datagram);
        }
        if !self.coalesced.is_empty() {
            to.core.on_datagram(now, self.tray.address, &self.coalesced);
        }
        to.core.drain(now);
        to.core.tick(now);
    }
}
