//! What the figures say, in sentences.

use super::figures::FigureRow;
use super::{Carrier, Evaluation};
use crate::report::units;
use crate::sizes;
use crate::statistics::median;

/// Operations of all ranks.
pub(super) const COLLECTIVES: [&str; 8] =
    ["barrier", "bcast", "reduce", "allreduce", "gather", "allgather", "scatter", "alltoall"];

/// One sentence for each way that is ours and each question.
pub(super) fn sentences(evaluation: &Evaluation) -> Vec<String> {
    let ours = evaluation.carriers.iter().copied().filter(|over| over.is_ours());
    ours.flat_map(|over| {
        let of = |row: &&FigureRow| row.over == over;
        let rows: Vec<&FigureRow> = evaluation.rows.iter().filter(of).collect();
        [latency(over, &rows), collectives(over, &rows), sort(evaluation, over, &rows)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    })
    .collect()
}

fn latency(over: Carrier, rows: &[&FigureRow]) -> Option<String> {
    let shortest = rows.iter().find(|row| row.key.figure == "latency")?;
    let longest = rows.iter().rfind(|row| row.key.figure == "bandwidth")?;
    Some(format!(
        "{}: a message of {} takes {} of tcp's time, and long ones pass at {} times its bandwidth.",
        over.text(),
        sizes::show(shortest.key.size_bytes),
        units::three_digits(shortest.over_tcp?),
        units::three_digits(longest.over_tcp?),
    ))
}

fn collectives(over: Carrier, rows: &[&FigureRow]) -> Option<String> {
    let of_all: Vec<&&FigureRow> =
        rows.iter().filter(|row| COLLECTIVES.contains(&row.key.figure.as_str())).collect();
    let ratios: Vec<f64> = of_all.iter().filter_map(|row| row.over_tcp).collect();
    let slower = of_all.iter().filter(|row| row.over_tcp.is_some_and(|ratio| ratio > 1.0)).count();
    Some(format!(
        "{}: collective operations take {} of tcp's time in the median; {slower} of {} take longer than over tcp.",
        over.text(),
        units::three_digits(median(ratios)?),
        of_all.len(),
    ))
}

fn sort(evaluation: &Evaluation, over: Carrier, rows: &[&FigureRow]) -> Option<String> {
    let ratio = |figure: &str| {
        let found = rows.iter().find(|row| row.key.figure == figure && row.key.ranks > 1)?;
        Some((found.key.ranks, found.over_tcp?))
    };
    let ((nodes, communication), (_, time)) = (ratio("is_communication")?, ratio("is_time")?);
    Some(format!(
        "{}: sorting integers (class {}) on {nodes} nodes spends {} of tcp's time in communication, and {} in all.",
        over.text(),
        evaluation.class,
        units::three_digits(communication),
        units::three_digits(time),
    ))
}
