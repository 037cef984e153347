//! `tsumugi perf azc`: tagged messages of random lengths, active zero-copy against eager and rendezvous (P3, figure 9).

use super::client::{Client, ClientError, check_usage};
use super::{Measure, over_rounds};
use crate::conditions::Conditions;
use crate::peers::ours::{Mix, Model, Protocol};
use crate::progress;
use crate::ratio;
use crate::report::columns::Columns;
use crate::report::units;
use crate::row::{Metric, Row, rounded};
use crate::sizes;
use crate::statistics::median;

/// Greatest lengths if none are asked for, bytes.
const USUAL: [u64; 6] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Who is compared; the first with the second.
const PROTOCOLS: [Protocol; 2] = [Protocol::ActiveZeroCopy, Protocol::Rendezvous];

/// Both protocols at a greatest length and a pace, round by round.
struct Figure {
    size: u64,
    mix: Mix,
    rounds: [Vec<Row>; 2],
}

/// Measures both protocols in turn, round by round: two rows for each greatest length and pace.
pub(super) fn run(measure: &Measure) -> Result<(Vec<Row>, Conditions), ClientError> {
    let sizes = measure.size.as_ref().map_or(&USUAL[..], |sizes| &sizes.0);
    let mut figures = Vec::new();
    for one_by_one in [true, false] {
        let mix = Mix { random: true, one_by_one };
        figures.extend(sizes.iter().map(|&size| Figure { size, mix, rounds: Default::default() }));
    }
    let steps = PROTOCOLS.len() * figures.len();
    let progress = measure.progress(&progress::count(steps, "figure"), steps, 1.0);
    let mut measured = measure.measured();
    for round in 0..measure.rounds as usize {
        for figure in &mut figures {
            // Each is first as often as the other.
            for at in [round % 2, 1 - round % 2] {
                let (protocol, mix) = (PROTOCOLS[at], figure.mix);
                progress.step(format!("{protocol} to {}", sizes::show(figure.size)));
                let measure = Measure { model: Model::Message, protocol, mix, ..measure.clone() };
                check_usage(Metric::Rate, &measure, &[figure.size])?;
                figure.rounds[at]
                    .push(Client::connect(Metric::Rate, &measure)?.round(figure.size, &mut measured)?);
            }
        }
    }
    Ok((figures.iter().flat_map(Figure::rows).collect(), measured))
}

impl Figure {
    /// A row for each protocol, the first with its ratio to the second.
    fn rows(&self) -> Vec<Row> {
        let [ours, other] = &self.rounds;
        let ratios = ours.iter().zip(other).filter_map(|(ours, other)| Some(ours.value()? / other.value()?));
        let ratio = median(ratios).map(rounded);
        let rows = [(ours, ratio), (other, None)].into_iter();
        rows.filter_map(|(rounds, ratio)| {
            let better = ratio.map(|_| Metric::Rate.better());
            Some(Row { ratio, better, ..over_rounds(rounds)? })
        })
        .collect()
    }
}

/// A table for each pace: a line for each greatest length.
pub(super) fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (one_by_one, title) in [
        (true, "messages per second, each sent when the one before was answered"),
        (false, "messages per second, as many under way as go"),
    ] {
        let heading = Metric::Rate.better().heading("ratio");
        let mut columns = Columns::new(&["up to", "active zero-copy", "eager and rendezvous", &heading]);
        let of_pace: Vec<&Row> = rows.iter().filter(|row| row.one_by_one == one_by_one).collect();
        for pair in of_pace.chunks_exact(2) {
            let rate = |row: &Row| row.per_s.map(units::rate).unwrap_or_default();
            let ratio = ratio::or_empty(pair[0].ratio);
            columns.row(vec![sizes::show(pair[0].size_bytes), rate(pair[0]), rate(pair[1]), ratio]);
        }
        text.push_str(&format!("{title}\n{columns}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pace_has_its_table_and_the_ratio_is_of_the_rounds() {
        let row = |per_s| Row {
            metric: Metric::Rate,
            size_bytes: 1024,
            per_s: Some(per_s),
            one_by_one: true,
            ..Row::default()
        };
        let figure = Figure {
            size: 1024,
            mix: Mix { random: true, one_by_one: true },
            rounds: [vec![row(30.0), row(20.0), row(24.0)], vec![row(10.0), row(20.0), row(20.0)]],
        };
        let rows = figure.rows();
        assert_eq!(rows.iter().map(|row| row.ratio).collect::<Vec<_>>(), [Some(1.2), None]);
        let text = tables(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("1 KiB") && lines[2].ends_with("1.20 ×"), "{text}");
        assert!(!text.split_once("as many under way").unwrap().1.contains("1 KiB"), "{text}");
    }
}
