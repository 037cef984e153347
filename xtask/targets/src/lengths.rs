//! What is wanted of messages of every length, from the shortest to the longest, and of remote writes beside them.

use std::collections::BTreeSet;

use tsumugi_measure::row::{Metric, Row};

use crate::comparison::{Section, has_offloads, is, is_base, is_of, is_tcp, uses_xdp};
use crate::measured::OfTest;
use crate::target::Limit::{AtLeast, AtMost};
use crate::target::Unit::Ratio;
use crate::target::{Limit, Target};

/// Bytes of a message of the middle length, and of the long ones.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All targets.
pub(crate) fn evaluate(rows: &[OfTest]) -> Vec<Target> {
    let target = |(name, limit, wanted, measured): (&'static str, Limit, f64, Option<f64>)| Target {
        name,
        limit,
        wanted,
        unit: Ratio,
        measured,
    };
    let streams = |offloads, mtu_bytes: Option<u32>| {
        Section::of(rows, |row| {
            is_of(row, "main")
                && row.metric == Metric::Bandwidth
                && has_offloads(row) == offloads
                && (mtu_bytes.is_none() || row.mtu_bytes == mtu_bytes)
        })
    };
    let short = Section::of(rows, |row| is_of(row, "main") && row.metric == Metric::RoundTrip);
    let with = streams(true, None);
    let [usual, one_buffer, jumbo] = [1500, 3494, 9000].map(|bytes| streams(false, Some(bytes)));
    let [sockets, kernel] = [is_base, |row: &Row| is(row, "udp", "xdp", "spin")];
    let [sockets_asleep, kernel_asleep] =
        [|row: &Row| is(row, "udp", "socket", "adaptive"), |row: &Row| is(row, "udp", "xdp", "adaptive")];
    let by_xdp = |row: &Row| uses_xdp(row) && row.wait.as_deref() == Some("spin");
    let xsk = |row: &Row| is(row, "xsk", "xdp", "spin");
    let udp = |row: &Row| row.transport == "udp";
    let raw = |row: &Row| row.transport == "raw-xdp";
    [
        (
            "round trips over sockets at every length up to 1 MiB, the worst, against TCP spinning",
            AtMost,
            1.0,
            worst_round_trip(rows, 0..=MIB),
        ),
        (
            "round trips over sockets at every length up to 1 KiB, the worst, against TCP spinning",
            AtMost,
            0.85,
            worst_round_trip(rows, 0..=KIB),
        ),
        ("64 B round trip, xsk+xdp, against the better raw AF_XDP", AtMost, 1.05, short.ratio(xsk, raw)),
        ("64 B round trip, udp+xdp, against a spinning UDP socket", AtMost, 0.85, short.ratio(kernel, udp)),
        (
            "bandwidth of 1 MiB, offloads on, against a UDP socket that segments",
            AtLeast,
            0.8,
            with.ratio(is_base, udp),
        ),
        (
            "bandwidth of 1 MiB, offloads on, with its CRC, against the best TCP",
            AtLeast,
            0.85,
            with.ratio(is_base, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, MTU 1500, no offloads, best with XDP, against the best TCP",
            AtLeast,
            1.15,
            usual.ratio(by_xdp, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, MTU 3494, no offloads, best with XDP, against the best TCP",
            AtLeast,
            1.15,
            one_buffer.ratio(by_xdp, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, MTU 9000, no offloads, best with XDP, against the best TCP",
            AtLeast,
            1.15,
            jumbo.ratio(by_xdp, is_tcp),
        ),
        (
            "CPU time per KiB of 1 MiB messages, offloads on, against the best TCP",
            AtMost,
            1.0,
            cpu(&with, is_base),
        ),
        (
            "CPU time per KiB of 1 MiB messages, MTU 1500, no offloads, best with XDP, against the best TCP",
            AtMost,
            1.0,
            cpu(&usual, by_xdp),
        ),
        (
            "CPU time per KiB of 1 MiB messages, MTU 3494, no offloads, best with XDP, against the best TCP",
            AtMost,
            1.0,
            cpu(&one_buffer, by_xdp),
        ),
        (
            "CPU time per KiB of 1 MiB messages, MTU 9000, no offloads, best with XDP, against the best TCP",
            AtMost,
            1.0,
            cpu(&jumbo, by_xdp),
        ),
        ("remote writes of 8 B, sockets or XDP, the worse, against messages", AtMost, 1.05, writes(rows, 8)),
        (
            "remote writes of 1 KiB, sockets or XDP, the worse, against messages",
            AtMost,
            1.05,
            writes(rows, KIB),
        ),
        ("streams of tagged messages of 4 MiB, against those of 1 MiB", AtLeast, 0.95, long(rows, 4 * MIB)),
        ("streams of tagged messages of 64 MiB, against those of 1 MiB", AtLeast, 0.9, long(rows, 64 * MIB)),
        ("streams of tagged messages of 1 GiB, against those of 1 MiB", AtLeast, 0.9, long(rows, 1024 * MIB)),
        (
            "64 B round trip over sockets, adaptive, against spinning",
            AtMost,
            1.0 / 0.9,
            short.ratio(sockets_asleep, sockets),
        ),
        (
            "64 B round trip, udp+xdp, adaptive, against spinning",
            AtMost,
            1.0 / 0.9,
            short.ratio(kernel_asleep, kernel),
        ),
        (
            "bandwidth of 1 MiB over sockets, adaptive, against spinning",
            AtLeast,
            0.9,
            with.ratio(sockets_asleep, sockets),
        ),
        (
            "bandwidth of 1 MiB, udp+xdp, adaptive, against spinning",
            AtLeast,
            0.9,
            with.ratio(kernel_asleep, kernel),
        ),
    ]
    .into_iter()
    .map(target)
    .collect()
}

/// The largest of the ratios of round trips over sockets to those of TCP that spins, over the lengths.
fn worst_round_trip(rows: &[OfTest], lengths: std::ops::RangeInclusive<u64>) -> Option<f64> {
    let is_round_trip =
        |row: &Row| row.metric == Metric::RoundTrip && (is_of(row, "main") || is_of(row, "curve"));
    let measured = rows.iter().map(|OfTest(row)| row).filter(|row| is_round_trip(row));
    let measured: BTreeSet<u64> =
        measured.map(|row| row.size_bytes).filter(|bytes| lengths.contains(bytes)).collect();
    // One length alone says nothing of every length.
    if measured.len() < 2 {
        return None;
    }
    let spin = |row: &Row| row.transport == "tcp-spin";
    let of = |bytes| Section::of(rows, |row| is_round_trip(row) && row.size_bytes == bytes);
    measured.into_iter().filter_map(|bytes| of(bytes).ratio(is_base, spin)).max_by(f64::total_cmp)
}

/// CPU time of the cheapest of ours, by that of the TCP that has the most bandwidth.
fn cpu(section: &Section<'_>, ours: impl Fn(&Row) -> bool) -> Option<f64> {
    let of = |row: &&Row| row.cpu_ns_per_kib;
    let ours = section.0.iter().filter(|row| ours(row)).filter_map(of).min_by(f64::total_cmp)?;
    let tcp = section.0.iter().filter(|row| is_tcp(row));
    let tcp = tcp.max_by(|one, other| one.gbit_s.unwrap_or(0.0).total_cmp(&other.gbit_s.unwrap_or(0.0)))?;
    Some(ours / of(tcp)?)
}

/// Round trips by remote writes by those of messages, over the receive path where that is more.
fn writes(rows: &[OfTest], bytes: u64) -> Option<f64> {
    let section = Section::of(rows, |row| is_of(row, "writes") && row.size_bytes == bytes);
    let over = |receive: &'static str| {
        let by = |model: Option<&'static str>| {
            move |row: &Row| row.model.as_deref() == model && row.receive.as_deref() == Some(receive)
        };
        section.ratio(by(Some("write")), by(None))
    };
    ["socket", "xdp"].into_iter().filter_map(over).max_by(f64::total_cmp)
}

/// Streams of long tagged messages by those of 1 MiB.
fn long(rows: &[OfTest], bytes: u64) -> Option<f64> {
    let section = Section::of(rows, |row| is_of(row, "long"));
    section.ratio(|row| row.size_bytes == bytes, |row| row.size_bytes == MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{adaptive, base, measured, ours, row};

    fn find(rows: &[OfTest], words: &str) -> Option<f64> {
        let targets = evaluate(rows);
        targets.iter().find(|target| target.name.contains(words)).expect(words).measured
    }

    fn of_size(size_bytes: u64, rows: Vec<Row>) -> Vec<Row> {
        rows.into_iter().map(|row| Row { size_bytes, ..row }).collect()
    }

    #[test]
    fn the_worst_length_counts() {
        let at = |test, bytes, ours, tcp| {
            let rows = vec![base(&[ours, ours]), row("tcp-spin", &[tcp, tcp])];
            measured(test, Metric::RoundTrip, of_size(bytes, rows))
        };
        let rows = [at("main", 64, 8.0, 10.0), at("curve", 1024, 9.0, 10.0), at("curve", 65536, 30.0, 20.0)]
            .concat();
        assert_eq!(find(&rows, "up to 1 MiB, the worst"), Some(1.5));
        assert_eq!(find(&rows, "up to 1 KiB, the worst"), Some(0.9));
        assert_eq!(find(&rows[..2], "up to 1 MiB, the worst"), None, "64 B alone is not every length");
    }

    #[test]
    fn writes_are_compared_over_the_same_receive_path() {
        let write = |row: Row| Row { model: Some("write".into()), ..row };
        let rows = vec![
            base(&[10.0]),
            write(base(&[10.2])),
            ours("udp", "xdp", &[5.0]),
            write(ours("udp", "xdp", &[6.0])),
        ];
        let rows = measured("writes", Metric::RoundTrip, of_size(1024, rows));
        assert_eq!(find(&rows, "writes of 1 KiB"), Some(1.2));
        assert_eq!(find(&rows[..2], "writes of 1 KiB"), Some(1.02));
        assert_eq!(find(&rows, "writes of 8 B"), None);
    }

    #[test]
    fn long_streams_are_compared_with_those_of_1_mib() {
        let stream =
            |bytes, gbit_s| of_size(bytes, vec![Row { model: Some("message".into()), ..base(&[gbit_s]) }]);
        let rows = [stream(MIB, 20.0), stream(4 * MIB, 18.0), stream(64 * MIB, 10.0)].concat();
        let rows = measured("long", Metric::Bandwidth, rows);
        assert_eq!(find(&rows, "of 4 MiB"), Some(0.9));
        assert_eq!(find(&rows, "of 64 MiB"), Some(0.5));
        assert_eq!(find(&rows, "of 1 GiB"), None);
    }

    #[test]
    fn cpu_time_is_that_of_the_best_tcp_and_sleeping_is_compared_with_spinning() {
        let with_cpu = |row: Row, gbit_s, cpu| Row { gbit_s: Some(gbit_s), cpu_ns_per_kib: Some(cpu), ..row };
        let rows = vec![
            with_cpu(row("tcp-block", &[40.0]), 40.0, 100.0),
            with_cpu(row("tcp-spin", &[20.0]), 20.0, 50.0),
            with_cpu(base(&[30.0]), 30.0, 120.0),
            adaptive(base(&[27.0])),
        ];
        let rows = measured("main", Metric::Bandwidth, rows);
        assert_eq!(find(&rows, "CPU time per KiB of 1 MiB messages, offloads on"), Some(1.2));
        assert_eq!(find(&rows, "over sockets, adaptive, against spinning"), None, "that is a round trip's");
        assert_eq!(find(&rows, "bandwidth of 1 MiB over sockets, adaptive"), Some(0.9));
    }
}
