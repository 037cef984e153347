//! Messages that are compared with their CRC on arrival, or not, as both sides have agreed.

use super::{Host, address, host_options};
use tsumugi::internal::{Core, EndpointOptions};
use tsumugi::{Integrity, PeerId};
use tsumugi_rail::Rail;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{LinkOptions, Network};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Kind};

/// How the second host receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Socket,
    Xdp,
}

fn fresh(number: u8, integrity: Integrity) -> Core {
    let options = EndpointOptions { integrity, ..host_options(number.into(), 1472) };
    Core::new(options, Memory::new(Geometry::plain(4, 32 << 10)).unwrap())
}

/// Two hosts that want this.
fn hosts(network: &Network, wanted: [Integrity; 2]) -> (Host, Host, PeerId) {
    let [mut here, mut there] = [1, 2].map(|number: u8| {
        let core = fresh(number, wanted[usize::from(number) - 1]);
        Host { core, rail: network.rail(address(number), 1472) }
    });
    assert!(there.core.open_channel(1));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    let mut now = Instant(0);
    let greeted = exchange(&mut here, &mut there, &mut now, By::Socket, |_| {});
    assert_eq!(greeted, [b"hello"]);
    (here, there, peer)
}

/// What the second host takes within 20 ms, after `harm` was done to what arrives there.
fn exchange(
    here: &mut Host,
    there: &mut Host,
    now: &mut Instant,
    by: By,
    harm: impl Fn(&mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    for _ in 0..2000 {
        here.call(*now);
        match by {
            By::Xdp => there.run_xdp(*now, &harm),
            By::Socket => {
                let mut arrived = Vec::new();
                there.rail.receive(*now, &mut |from, bytes| arrived.push((from, bytes.to_vec()))).unwrap();
                for (from, mut bytes) in arrived {
                    harm(&mut bytes);
                    there.core.on_datagram(*now, from, &bytes);
                }
            }
        }
        there.call(*now);
        taken.append(&mut there.read());
        *now = now.plus(10_000);
    }
    taken
}

/// Alters the last byte of what is sent for the first time.
fn alter_first(bytes: &mut [u8]) {
    if Header::decode(bytes)
        .is_ok_and(|(header, ..)| header.kind == Kind::Data && !header.flags.has(Flags::RESENT))
    {
        *bytes.last_mut().unwrap() ^= 1;
    }
}

/// One message that fits in a packet, whose frame it ends, and a long one.
fn messages() -> Vec<Vec<u8>> {
    vec![vec![8; 1000], vec![9; 20_000]]
}

/// What the second of two such hosts takes of those when every packet is altered once, and how many packets it found damaged.
fn altered(wanted: [Integrity; 2], by: By) -> (Vec<Vec<u8>>, u64) {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = hosts(&network, wanted);
    let mut now = Instant(MILLISECOND_NS);
    for message in messages() {
        here.core.post(now, peer, 1, &message).unwrap();
    }
    let taken = exchange(&mut here, &mut there, &mut now, by, |bytes| alter_first(bytes));
    assert!(here.core.is_flushed() && here.core.take_failure().is_none());
    assert!(there.core.take_failure().is_none());
    (taken, there.core.counters().get("corrupt"))
}

#[test]
fn where_both_trust_the_wire_nothing_is_compared() {
    for by in [By::Socket, By::Xdp] {
        let (taken, corrupt) = altered([Integrity::Wire; 2], by);
        assert_eq!(corrupt, 0, "{by:?}");
        let lengths: Vec<usize> = taken.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1000, 20_000], "{by:?}");
        let changed = |message: &[u8], of: u8| message.iter().filter(|byte| **byte != of).count();
        assert_eq!(changed(&taken[0], 8), 1, "{by:?}");
        assert!(changed(&taken[1], 9) > 10, "{by:?}");
    }
}

#[test]
fn one_that_wants_crcs_gets_and_makes_them() {
    for wanted in [[Integrity::Wire, Integrity::Crc32c], [Integrity::Crc32c, Integrity::Wire]] {
        for by in [By::Socket, By::Xdp] {
            let (taken, corrupt) = altered(wanted, by);
            assert_eq!(taken, messages(), "{wanted:?} {by:?}");
            assert!(corrupt > 10, "{wanted:?} {by:?}: {corrupt}");
        }
    }
}

/// A stranger, or damage that the header's check does not show, cannot switch the comparison off.
#[test]
fn a_packet_that_says_of_itself_that_it_is_unchecked_is_damaged() {
    let unchecked = |bytes: &mut Vec<u8>| {
        alter_first(bytes);
        if let Ok((mut header, ..)) = Header::decode(bytes)
            && header.kind == Kind::Data
            && !header.flags.has(Flags::RESENT)
        {
            header.flags = header.flags.with(Flags::UNCHECKED);
            bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        }
    };
    for by in [By::Socket, By::Xdp] {
        let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
        let (mut here, mut there, peer) = hosts(&network, [Integrity::Crc32c; 2]);
        let mut now = Instant(MILLISECOND_NS);
        here.core.post(now, peer, 1, &[8; 1000]).unwrap();
        let taken = exchange(&mut here, &mut there, &mut now, by, unchecked);
        assert_eq!(taken, [[8; 1000]], "{by:?}");
        assert_eq!(there.core.counters().get("corrupt"), 1, "{by:?}");
    }
}
