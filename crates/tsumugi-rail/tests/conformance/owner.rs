//! A memory whose owner was killed: its sockets are closed, and all else is as it was.

use super::frames::{PORT, Wrapping};
use super::pair::{EPOCH, Pair};
use super::{ROOMY, data, open};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tsumugi_rail::xdp::Action;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::{Flags, Header, Kind};

/// Between two looks for an owner: `OWNER_CHECK_NS` of `bpf/receive/owner.h`.
const CHECK_NS: u64 = 100_000_000;

const FOUR: Wrapping = Wrapping::PLAIN;
const SIX: Wrapping = Wrapping { six: true, ..Wrapping::PLAIN };

/// Gives this thread a network of its own, in which nobody has a socket, and any address may be bound to.
pub(super) fn alone() {
    // SAFETY: descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace");
    for family in ["ipv4", "ipv6"] {
        let setting = format!("/proc/sys/net/{family}/ip_nonlocal_bind");
        std::fs::write(&setting, "1").unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
}

/// The endpoint's socket.
pub(super) fn socket(address: &str) -> UdpSocket {
    let address: IpAddr = address.parse().expect("an address");
    UdpSocket::bind((address, PORT)).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// What the program's clock says.
fn now_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).expect("the clock").as_nanos() as u64
}

/// Loads the program into a network without sockets, and opens a flow.
fn load() -> Option<Pair> {
    let pair = Pair::load(ROOMY)?;
    alone();
    open(&pair, Repeat::Selective);
    Some(pair)
}

/// Gives the XDP program a packet when it last looked for the owner at `checked_at`, some ticks ago; returns what it
/// did, the epoch, and when it has looked now.
fn give(pair: &mut Pair, wrapping: Wrapping, packet: &[u8], checked_at: u64) -> (Action, u32, u64) {
    pair.xdp.memory.control().checked_tick.fetch_xor(1 << 31, Ordering::Relaxed);
    give_again(pair, wrapping, packet, checked_at)
}

/// The same, but it may be that the last packet came with the same tick.
fn give_again(pair: &mut Pair, wrapping: Wrapping, packet: &[u8], checked_at: u64) -> (Action, u32, u64) {
    pair.xdp.memory.control().epoch.store(EPOCH, Ordering::Relaxed);
    pair.xdp.memory.control().checked_at.store(checked_at, Ordering::Relaxed);
    let action = pair.run_xdp(&wrapping.question(packet)).0;
    let control = pair.xdp.memory.control();
    (action, control.epoch.load(Ordering::Relaxed), control.checked_at.load(Ordering::Relaxed))
}

/// A packet that is answered.
fn asking(psn: u64) -> Vec<u8> {
    data(psn, Flags::ACK_REQUEST, &[7; 40])
}

#[test]
fn an_owner_with_a_socket_is_left_alone() {
    let Some(mut pair) = load() else { return };
    let mut psn = 0;
    for (address, wrappings) in [
        ("0.0.0.0", vec![FOUR, Wrapping { vlan: true, ..FOUR }]),
        ("::", vec![FOUR, SIX, Wrapping { vlan: true, ..SIX }]),
        // The packets' addresses.
        ("10.0.0.2", vec![FOUR]),
        ("fd00::2", vec![SIX]),
    ] {
        let _socket = socket(address);
        for wrapping in wrappings {
            let before = now_ns();
            let (action, epoch, checked_at) = give(&mut pair, wrapping, &asking(psn), before - CHECK_NS);
            assert_eq!((action, epoch), (Action::Transmit, EPOCH), "{address}, {wrapping:?}");
            assert!((before..=now_ns()).contains(&checked_at), "{checked_at} is not now");
            psn += 1;
        }
    }
}

#[test]
fn a_memory_without_a_socket_is_taken_from_its_owner() {
    let Some(mut pair) = load() else { return };
    let mut probe = Header::decode(&asking(0)).expect("our own packet").0;
    (probe.kind, probe.body_bytes) = (Kind::Probe, 0);
    let packets = [asking(0), probe.encode().to_vec()];
    // Nobody, and somebody with another address or of the other family.
    for (address, wrappings) in
        [(None, vec![FOUR, SIX]), (Some("10.0.0.1"), vec![FOUR, SIX]), (Some("fd00::1"), vec![FOUR, SIX])]
    {
        let _socket = address.map(socket);
        for (wrapping, packet) in
            wrappings.iter().flat_map(|it| packets.iter().map(move |packet| (it, packet)))
        {
            let (action, epoch, _) = give(&mut pair, *wrapping, packet, 0);
            assert_eq!((action, epoch), (Action::Pass, 0), "{address:?}, {wrapping:?}");
            // Nothing is deposited, noted or counted, and from now on everything is the kernel's.
            let question = wrapping.question(packet);
            assert_eq!(pair.run_xdp(&question), (Action::Pass, question));
            pair.xdp.memory.control().epoch.store(EPOCH, Ordering::Relaxed);
            pair.compare().unwrap_or_else(|what| panic!("{address:?}, {wrapping:?}: {what}"));
        }
    }
}

#[test]
fn an_owner_is_not_looked_for_again_within_100_ms() {
    let Some(mut pair) = load() else { return };
    for psn in 0.. {
        let before = now_ns();
        let (action, epoch, checked_at) = give(&mut pair, FOUR, &asking(psn), before);
        // Unless this process was kept from running just now.
        if now_ns() < before + CHECK_NS {
            assert_eq!(
                (action, epoch, checked_at),
                (Action::Transmit, EPOCH, before),
                "though nobody is there"
            );
            break;
        }
    }
    // A clock that goes back, or garbage.
    let (action, epoch, _) = give(&mut pair, SIX, &asking(1 << 9), now_ns() + CHECK_NS);
    assert_eq!((action, epoch), (Action::Transmit, EPOCH));
}

#[test]
fn an_owner_is_not_looked_for_again_with_the_same_tick() {
    let Some(mut pair) = load() else { return };
    give(&mut pair, FOUR, &asking(0), now_ns());
    // A tick is as long as thousands of packets.
    let same =
        (0..100).any(|psn| give_again(&mut pair, FOUR, &asking(psn), 0) == (Action::Transmit, EPOCH, 0));
    assert!(same, "asked the clock with every packet");
}

#[test]
fn a_stranger_takes_no_memory_from_its_owner() {
    let Some(mut pair) = load() else { return };
    let good = Header::decode(&asking(0)).expect("our own packet").0;
    for header in [Header { token: 1, ..good }, Header { epoch: 1, ..good }, Header { flow: 1, ..good }] {
        let (_, epoch, checked_at) = give(&mut pair, FOUR, &Header { body_bytes: 0, ..header }.encode(), 0);
        assert_eq!((epoch, checked_at), (EPOCH, 0));
    }
}
