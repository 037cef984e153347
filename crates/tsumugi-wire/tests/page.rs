//! `docs/wire.md` states numbers; they are the crate's.

use tsumugi_wire::ack::BODY_BYTES_MAX;
use tsumugi_wire::frame::{FRAGMENT_BYTES, REMOTE_BYTES, WHOLE_BYTES, whole_frame_bytes};
use tsumugi_wire::group::{self, Notice, Operation};
use tsumugi_wire::handshake::{CHALLENGE_BYTES, OFFER_BYTES};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::{
    DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, IPV4_UDP_BYTES, IPV6_UDP_BYTES, ONE_BUFFER_BYTES,
};
use tsumugi_wire::multicast::{BODY_BYTES_MIN, ENTRY_BYTES, RECEIVERS_MAX, TABLE_BYTES, table_bytes};
use tsumugi_wire::piece::{PIECE_ALIGN, PIECE_BYTES};
use tsumugi_wire::{Flags, Kind, limits};

const PAGE: &str = include_str!("../../../docs/wire.md");

/// Preamble 8, Ethernet header 14, frame check sequence 4, gap 12.
const ETHERNET_BYTES: usize = 38;

#[track_caller]
fn states(line: &str) {
    assert!(PAGE.contains(line), "docs/wire.md does not say: {line}");
}

#[test]
fn the_budget_is_the_crates() {
    for (mtu, ip, headers) in [
        (576, "IPv4", IPV4_UDP_BYTES),
        (1500, "IPv4", IPV4_UDP_BYTES),
        (1500, "IPv6", IPV6_UDP_BYTES),
        (9000, "IPv4", IPV4_UDP_BYTES),
        (9000, "IPv6", IPV6_UDP_BYTES),
    ] {
        let datagram = mtu - headers;
        let body = datagram - HEADER_BYTES;
        let fragment = body - FRAGMENT_BYTES;
        let share = |of: usize| 100.0 * fragment as f64 / of as f64;
        states(&format!(
            "| {mtu}, {ip} | {datagram} | {body} | {} | {} | {fragment} | {:.1} % | {:.1} % |",
            body - WHOLE_BYTES,
            body / whole_frame_bytes(8),
            share(datagram),
            share(mtu + ETHERNET_BYTES)
        ));
    }
    states(&format!("A lone message of 8 B is a datagram of {} bytes.", HEADER_BYTES + whole_frame_bytes(8)));
    states(&format!("{} with the longest", HEADER_BYTES + BODY_BYTES_MAX));
    states(&format!("datagrams of {DATAGRAM_BYTES_MIN} bytes"));
    assert_eq!(DATAGRAM_BYTES_MAX, 8972, "docs/wire.md says 8,972");
}

#[test]
fn the_kinds_are_the_crates() {
    for kind in Kind::ALL {
        let name = match kind {
            Kind::ByeAck => "BYE_ACK".to_owned(),
            Kind::SizeProbe => "SIZE_PROBE".to_owned(),
            Kind::SizeAck => "SIZE_ACK".to_owned(),
            other => format!("{other:?}").to_uppercase(),
        };
        let on_a_flow = if kind.on_a_flow() { "yes" } else { "no" };
        states(&format!("| {} | {name} | {on_a_flow} |", kind as u8));
    }
}

#[test]
fn groups_are_the_crates() {
    for operation in Operation::ALL {
        states(&format!("| {} | {} |", operation as u8, format!("{operation:?}").to_lowercase()));
    }
    for notice in Notice::ALL {
        let name = match notice {
            Notice::NoBox => "no box".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        states(&format!("| {} | {name} |", notice as u8));
    }
    let bytes = group::BODY_BYTES;
    assert_eq!(PAGE.matches(&format!("  {bytes} bytes\n")).count(), 3, "the three bodies' lengths");
    states(&format!("The bodies of these kinds have {bytes} bytes"));
    states(&format!("| {} | LEAVE | no | {bytes} zeros |", Kind::Leave as u8));
    states(&format!("words {} × u64", group::WORDS_MAX));
    states(&format!("lower {} bits are the slot, of {} at most", group::SLOT_BITS, group::SLOTS_MAX));
}

#[test]
fn multicasts_are_the_crates() {
    states(&format!("frames + {TABLE_BYTES} bytes\n"));
    states(&format!("+ {ENTRY_BYTES} × receivers\n"));
    states(&format!("0 receivers, or more than {RECEIVERS_MAX};"));
    states(&format!("shorter than {BODY_BYTES_MIN} bytes"));
    assert_eq!(ONE_BUFFER_BYTES, 1472, "docs/wire.md says 1,472");
    let frames = ONE_BUFFER_BYTES - HEADER_BYTES - table_bytes(RECEIVERS_MAX);
    states(&format!("with {RECEIVERS_MAX} receivers {frames} of"));
    let of_a_group: Vec<u8> =
        Kind::ALL.into_iter().filter(|kind| kind.of_a_group()).map(|kind| kind as u8).collect();
    let (first, last) = (of_a_group[0], of_a_group[of_a_group.len() - 1]);
    assert_eq!(of_a_group, (first..=last).collect::<Vec<_>>());
    states(&format!("in kinds {first} to {last} is told"));
}

#[test]
fn the_flags_are_the_crates() {
    for (flag, name) in [
        (Flags::ACK_REQUEST, "ACK_REQUEST"),
        (Flags::RESENT, "RESENT"),
        (Flags::HAS_ACK, "HAS_ACK"),
        (Flags::ASK_BY_PROBE, "ASK_BY_PROBE"),
        (Flags::AWAY, "AWAY"),
        (Flags::AT_LEISURE, "AT_LEISURE"),
        (Flags::UNCHECKED, "UNCHECKED"),
        (Flags::MIXED, "MIXED"),
    ] {
        states(&format!(" {} {name}", flag.0));
    }
}

#[test]
fn lengths_and_limits_are_the_crates() {
    states(&format!("`version` | {}.", limits::VERSION));
    states(&format!("port {} when none is given", limits::DEFAULT_PORT));
    for bytes in [OFFER_BYTES, CHALLENGE_BYTES] {
        states(&format!(" {bytes} bytes\n"));
    }
    states(&format!("{WHOLE_BYTES} bytes + data"));
    states(&format!("{FRAGMENT_BYTES} bytes + data"));
    states(&format!("{REMOTE_BYTES} bytes + data"));
    states(&format!("{PIECE_BYTES} bytes + data"));
    states(&format!("multiples of {PIECE_ALIGN} bytes"));
}
