//! Endpoints to try what is said of them with.

use super::doing::Doing;
use super::limit;
use super::processes::View;
use super::rates::Rates;
use std::collections::BTreeMap;
use tsumugi::snapshot::{NicSnapshot, PeerSnapshot, ReceiveSnapshot, Snapshot};
use tsumugi::{PathReport, Report};

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// A peer of two paths, of which one is silent.
pub(crate) fn peer() -> PeerSnapshot {
    let path = |ip: [u8; 4], is_usable| PathReport {
        address: (ip, 7411).into(),
        nic: Some([10, 77, 0, 1].into()),
        is_usable,
        srtt_ns: 45_300,
        rttvar_ns: 2_000,
        rtt_ns_min: Some(40_000),
        cwnd_packets: 64,
        rate: 100_000,
        in_flight: 12,
        delivered: 1_000,
        lost: 3,
        bytes_sent: 4_000_000,
        datagram_bytes: 1472,
    };
    PeerSnapshot {
        number: 0,
        name: "n1".into(),
        address: ([10, 77, 0, 2], 7411).into(),
        state: "connected".into(),
        bytes_sent: 4_000_000,
        bytes_received: 2_000_000,
        packets_received: 2_000,
        waiting_bytes: 0,
        outstanding: 12,
        credit: 700,
        resent: counts(&[("overtaken", 2), ("timed_out", 1)]),
        held_by: "nothing".into(),
        held_ns: counts(&[("credit", 0), ("congestion", 0), ("silence", 0), ("nic", 0), ("xoff", 0)]),
        paths: vec![path([10, 77, 0, 2], true), path([10, 77, 1, 2], false)],
    }
}

/// An endpoint by the socket receive path, at a time in seconds.
pub(crate) fn snapshot(at_s: u64) -> Snapshot {
    Snapshot {
        version: "0.1.0".into(),
        taken_ns: at_s * 1_000_000_000,
        epoch: 77,
        report: Report {
            address: "0.0.0.0:7411".parse().expect("an address"),
            receive_path: "socket".into(),
            send_paths: vec!["udp".into()],
            nics: Vec::new(),
            links_down: Vec::new(),
            given_up: Vec::new(),
        },
        wait: "adaptive".into(),
        in_event_loop: false,
        counters: counts(&[
            ("bytes_sent", 1_000_000 * at_s),
            ("bytes_received", 3_000_000 * at_s),
            ("messages_sent", 1_000 * at_s),
            ("deposited", 5_000 * at_s),
        ]),
        resent: counts(&[("overtaken", 2 * at_s), ("timed_out", 0)]),
        idle_ns: at_s * 500_000_000,
        receive: ReceiveSnapshot {
            queue_used_bytes: 0,
            queue_bytes: 1 << 20,
            held_bytes: 0,
            held_bytes_max: 1 << 28,
        },
        nics: vec![NicSnapshot { ip: [10, 77, 0, 1].into(), delivered: 1_000, lost: 3, paths: 2, silent: 1 }],
        peers_known: 1,
        peers: vec![peer()],
    }
}

/// A process with it, two seconds after a look.
pub(crate) fn view(pid: u32) -> View {
    let (before, endpoint) = (snapshot(1), snapshot(3));
    let rates = Rates::between(&before, &endpoint);
    View {
        pid,
        command:
            "/usr/bin/program --with \"quotes\" and a long list of arguments that no screen has room for"
                .into(),
        uid: 1000,
        network_namespace: 1,
        is_in_our_network_namespace: true,
        doing: Doing::Calling,
        age_s: 0.01,
        cpus: Some(0.42),
        limit: limit::sentence(&endpoint, Some(&rates), Doing::Calling, Some(0.42), 0.01),
        rates: Some(rates),
        endpoint,
    }
}
