//! The table that `perf` prints when nobody asked for JSON.

use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{Metric, Row};
use crate::sizes;

/// A column: its heading, and what it says of a row.
type Column = (&'static str, fn(&Row) -> Option<String>);

const SIZE: Column = ("size", |row| Some(sizes::show(row.size_bytes)));
const RATE: Column = ("messages/s", |row| row.per_s.map(units::rate));
const BANDWIDTH: Column = ("bandwidth", |row| row.gbit_s.map(units::bandwidth));
const SPREAD: Column = ("spread", |row| row.spread.map(units::percent));
const LOST: Column = ("lost", |row| row.lost_bytes.map(sizes::show));
/// Of long messages, and of short ones; what the transport was best with.
const REST: [Column; 5] = [
    ("CPU per KiB", |row| row.cpu_ns_per_kib.map(units::time)),
    ("CPU per message", |row| row.cpu_ns_per_message.map(units::time)),
    SPREAD,
    LOST,
    ("best with", |row| row.setting.clone()),
];

fn columns(metric: Metric) -> Vec<Column> {
    match metric {
        Metric::RoundTrip => vec![
            SIZE,
            ("min", |row| row.min_ns.map(units::time)),
            ("p50", |row| row.p50_ns.map(units::time)),
            ("p99", |row| row.p99_ns.map(units::time)),
            ("p99.9", |row| row.p999_ns.map(units::time)),
            ("max", |row| row.max_ns.map(units::time)),
            ("round trips/s", RATE.1),
            SPREAD,
            LOST,
        ],
        Metric::Bandwidth => [&[SIZE, BANDWIDTH, RATE][..], &REST].concat(),
        Metric::Rate => [&[SIZE, RATE, BANDWIDTH][..], &REST].concat(),
        Metric::Overhead => vec![
            SIZE,
            ("send", |row| row.send_ns.map(units::time)),
            ("receive", |row| row.receive_ns.map(units::time)),
            ("sum p50", |row| row.p50_ns.map(units::time)),
            ("sum p99", |row| row.p99_ns.map(units::time)),
            SPREAD,
        ],
        Metric::Overlap => vec![
            SIZE,
            ("overlap", |row| row.overlap.map(units::percent)),
            ("transfer", |row| row.transfer_ns.map(units::time)),
            ("computation", |row| row.compute_ns.map(units::time)),
            ("both", |row| row.both_ns.map(units::time)),
            SPREAD,
        ],
        Metric::Idle => vec![("share of a core", |row| row.cpu_share.map(units::percent)), SPREAD],
    }
}

/// One line per row, with those columns of the metric that have figures.
pub(super) fn table(metric: Metric, rows: &[Row]) -> String {
    let columns = columns(metric);
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let mut table = Columns::new(&headings);
    for row in rows {
        table.row(columns.iter().map(|(_, cell)| cell(row).unwrap_or_default()).collect());
    }
    table.to_string() + &paths(rows)
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
    fn columns_without_figures_are_left_out() {
        let row =
            Row { metric: Metric::Bandwidth, size_bytes: 1 << 20, gbit_s: Some(24.0), ..Row::default() };
        let text = table(Metric::Bandwidth, std::slice::from_ref(&row));
        assert_eq!(text, "size   bandwidth\n1 MiB  24.0 Gb/s\n");
        // Another row has more to say.
        let short = Row { size_bytes: 8, cpu_ns_per_message: Some(90.0), ..row.clone() };
        let text = table(Metric::Bandwidth, &[row, short]);
        assert_eq!(
            text,
            "size   bandwidth  CPU per message\n1 MiB  24.0 Gb/s\n8 B    24.0 Gb/s          90.0 ns\n"
        );
    }
}
