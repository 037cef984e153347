//! What the library itself costs a message, without sockets: two endpoints joined by a pair of vectors.
//!
//! `cargo bench -p tsumugi` prints nanoseconds for one message from `post` to release, both sides together.

mod tray;

use std::time::Instant as Clock;
use tray::{Tray, options};
use tsumugi::internal::Core;
use tsumugi_rail::memory::Memory;
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;

struct Side {
    core: Core,
    tray: Tray,
}

impl Side {
    fn new(address: &str) -> Side {
        let memory = Memory::new(Geometry::plain(8, 1 << 20)).expect("memory");
        let mut core = Core::new(options(), memory);
        assert!(core.open_channel(1));
        let tray = Tray::new(address);
        Side { core, tray }
    }

    fn carry(&mut self, now: Instant, to: &mut Side) {
        self.core.transmit(now, &mut self.tray).expect("trays do not fail");
        for datagram in self.tray.datagrams.drain(..) {
            to.core.on_datagram(now, self.tray.address, &datagram);
            self.tray.spare.push(datagram);
        }
        to.core.drain(now);
        to.core.tick(now);
    }
}

fn main() {
    let (mut here, mut there) = (Side::new("10.0.0.1:1"), Side::new("10.0.0.2:1"));
    let peer = here.core.add_peer("there", there.tray.address).expect("a peer");
    let back = there.core.add_peer("here", here.tray.address).expect("a peer");
    let mut now = Instant(1);
    let only: Option<usize> = std::env::var("PACKET_PATH_BYTES").ok().and_then(|word| word.parse().ok());
    for (bytes, count) in [(8usize, 2_000_000u32), (64, 2_000_000), (1400, 500_000), (1 << 20, 2_000)] {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        let data = vec![3u8; bytes];
        let mut best_ns = f64::MAX;
        for _ in 0..5 {
            let start = Clock::now();
            for _ in 0..count / 5 {
                for (peer, from, to) in [(peer, true, false), (back, false, true)] {
                    let (from, to) = match (from, to) {
                        (true, false) => (&mut here, &mut there),
                        _ => (&mut there, &mut here),
                    };
                    from.core.post(now, peer, 1, &data).expect("room");
                    let mut length = None;
                    while length.is_none() {
                        now = now.plus(2000);
                        from.carry(now, to);
                        length = to.core.take_and_release(1);
                        if length.is_none() {
                            to.carry(now, from);
                        }
                    }
                    assert_eq!(length, Some(bytes));
                }
            }
            best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(count / 5 * 2));
        }
        println!("{bytes:>8} B: {best_ns:>9.0} ns a message");
    }
}
