//! The table that `perf` prints when nobody asked for JSON.

use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{Metric, Row};
use crate::sizes;

/// One line per row, with the columns of the metric.
pub(super) fn table(metric: Metric, rows: &[Row]) -> String {
    let mut columns = match metric {
        Metric::RoundTrip => {
            Columns::new(&["size", "min", "p50", "p99", "p99.9", "max", "round trips/s", "spread"])
        }
        Metric::Bandwidth => {
            Columns::new(&["size", "bandwidth", "messages/s", "CPU per KiB", "spread", "best with"])
        }
        Metric::Rate => {
            Columns::new(&["size", "messages/s", "bandwidth", "CPU per KiB", "spread", "best with"])
        }
        Metric::Overhead => Columns::new(&["size", "send", "receive", "sum p50", "sum p99", "spread"]),
        Metric::Overlap => Columns::new(&["size", "overlap", "transfer", "computation", "both", "spread"]),
        Metric::Idle => Columns::new(&["share of a core", "spread"]),
    };
    for row in rows {
        let size = sizes::show(row.size_bytes);
        let spread = row.spread.map_or(String::new(), units::percent);
        let ns = |figure: Option<f64>| figure.map_or(String::new(), units::time);
        let rate = row.per_s.map_or(String::new(), units::rate);
        let bandwidth = row.gbit_s.map_or(String::new(), units::bandwidth);
        let setting = row.setting.clone().unwrap_or_default();
        match metric {
            Metric::RoundTrip => columns.row(vec![
                size,
                ns(row.min_ns),
                ns(row.p50_ns),
                ns(row.p99_ns),
                ns(row.p999_ns),
                ns(row.max_ns),
                rate,
                spread,
            ]),
            Metric::Bandwidth => {
                columns.row(vec![size, bandwidth, rate, ns(row.cpu_ns_per_kib), spread, setting]);
            }
            Metric::Rate => columns.row(vec![size, rate, bandwidth, ns(row.cpu_ns_per_kib), spread, setting]),
            Metric::Overhead => columns.row(vec![
                size,
                ns(row.send_ns),
                ns(row.receive_ns),
                ns(row.p50_ns),
                ns(row.p99_ns),
                spread,
            ]),
            Metric::Overlap => columns.row(vec![
                size,
                row.overlap.map_or(String::new(), units::percent),
                ns(row.transfer_ns),
                ns(row.compute_ns),
                ns(row.both_ns),
                spread,
            ]),
            Metric::Idle => columns.row(vec![row.cpu_share.map_or(String::new(), units::percent), spread]),
        }
    }
    columns.to_string() + &paths(rows)
}

/// What the paths of the last row carried, if there were several.
fn paths(rows: &[Row]) -> String {
    let Some(row) = rows.last().filter(|row| !row.paths.is_empty()) else { return String::new() };
    let mut columns = Columns::new(&["path", "to", "delivered", "lost", "round trip", "state"]);
    for (number, path) in row.paths.iter().enumerate() {
        columns.row(vec![
            number.to_string(),
            path.address.clone(),
            path.delivered.to_string(),
            path.lost.to_string(),
            units::time(path.srtt_ns as f64),
            if path.usable { "used" } else { "silent" }.to_owned(),
        ]);
    }
    format!("\n{columns}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_table() {
        let row = Row {
            metric: Metric::RoundTrip,
            size_bytes: 64,
            min_ns: Some(3900.0),
            p50_ns: Some(4100.0),
            p99_ns: Some(12_345.0),
            p999_ns: Some(81_000.0),
            max_ns: Some(2.5e6),
            per_s: Some(243_902.4),
            spread: Some(0.021),
            ..Row::default()
        };
        assert_eq!(
            table(Metric::RoundTrip, &[row]),
            "size      min      p50      p99    p99.9      max  round trips/s  spread\n\
             64 B  3.90 µs  4.10 µs  12.3 µs  81.0 µs  2.50 ms        244 k/s   2.1 %\n"
        );
    }

    #[test]
    fn figures_that_are_missing_leave_their_place_empty() {
        let row =
            Row { metric: Metric::Bandwidth, size_bytes: 1 << 20, gbit_s: Some(24.0), ..Row::default() };
        let text = table(Metric::Bandwidth, &[row]);
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("24.0 Gb/s")), "{text}");
    }
}
