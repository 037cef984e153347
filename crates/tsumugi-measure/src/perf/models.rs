//! `tsumugi perf models`: the programming models beside each other, as P4 compared four libraries (its figures 4 to 6).

use super::client::{Client, ClientError, check_usage};
use super::{Measure, over_rounds};
use crate::conditions::Conditions;
use crate::peers::ours::Model;
use crate::progress;
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{Metric, Row};
use crate::sizes;

/// What is measured, and with which sizes if none are asked for.
const METRICS: [(Metric, &[u64]); 3] = [
    (Metric::RoundTrip, &[8, 64, 512, 4 << 10]),
    (Metric::Overhead, &[8, 64, 512, 4 << 10]),
    (Metric::Bandwidth, &[512, 4 << 10, 32 << 10, 256 << 10, 1 << 20]),
];

/// One figure: a metric of a model at a size, round by round.
struct Figure<'a> {
    metric: Metric,
    size: u64,
    measure: &'a Measure,
    rounds: Vec<Row>,
}

/// Measures all models in turn, round by round: one row for each figure.
pub(super) fn run(measure: &Measure) -> Result<(Vec<Row>, Conditions), ClientError> {
    let measures = Model::ALL.map(|model| Measure { model, ..measure.clone() });
    let mut figures = Vec::new();
    for (metric, usual) in METRICS {
        let sizes = measure.size.as_ref().map_or(usual, |sizes| &sizes.0);
        for &size in sizes {
            // What a model does not carry is left out.
            for measure in measures.iter().filter(|measure| size <= measure.model.bytes_max()) {
                check_usage(metric, measure, &[size])?;
                figures.push(Figure { metric, size, measure, rounds: Vec::new() });
            }
        }
    }
    let progress = measure.progress(&progress::count(figures.len(), "figure"), figures.len(), 1.0);
    let mut measured = measure.measured();
    for _ in 0..measure.rounds {
        for figure in &mut figures {
            progress.step(format!("{} {}", figure.measure.model, sizes::show(figure.size)));
            // A server serves one client at a time.
            let client = Client::connect(figure.metric, figure.measure)?;
            figure.rounds.push(client.round(figure.size, &mut measured)?);
        }
    }
    Ok((figures.iter().filter_map(|figure| over_rounds(&figure.rounds)).collect(), measured))
}

/// A table for each metric: a line for each size, a column for each model.
pub(super) fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (metric, _) in METRICS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).collect();
        let mut sizes: Vec<u64> = rows.iter().map(|row| row.size_bytes).collect();
        sizes.dedup();
        let (title, figure): (_, fn(&Row) -> Option<String>) = match metric {
            Metric::RoundTrip => {
                ("one way: half a round trip, p50", |row| row.p50_ns.map(|ns| units::time(ns / 2.0)))
            }
            Metric::Overhead => ("overhead: CPU time of sending and of receiving", |row| {
                Some(format!("{} + {}", units::time(row.send_ns?), units::time(row.receive_ns?)))
            }),
            _ => ("bandwidth", |row| row.gbit_s.map(units::bandwidth)),
        };
        let names = Model::ALL.map(|model| model.to_string());
        let mut columns = Columns::new(&[&["size"][..], &names.each_ref().map(String::as_str)].concat());
        for size in sizes {
            let cell = |model: &Model| {
                let row = rows.iter().find(|row| row.size_bytes == size && row.model == model.name());
                row.and_then(|row| figure(row)).unwrap_or_default()
            };
            columns.row([vec![sizes::show(size)], Model::ALL.iter().map(cell).collect()].concat());
        }
        text.push_str(&format!("{title}\n{columns}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_column() {
        let row = |model: Model, size_bytes, p50_ns| Row {
            metric: Metric::RoundTrip,
            model: model.name(),
            size_bytes,
            p50_ns: Some(p50_ns),
            ..Row::default()
        };
        let rows =
            [row(Model::Channel, 8, 8000.0), row(Model::Message, 8, 9000.0), row(Model::Channel, 64, 8200.0)];
        let text = tables(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("size  channel") && lines[1].ends_with("message"), "{text}");
        assert!(lines[2].contains("4.00 µs") && lines[2].ends_with("4.50 µs"), "{text}");
        assert!(lines[3].contains("4.10 µs") && !lines[3].contains("4.50"), "{text}");
    }
}
