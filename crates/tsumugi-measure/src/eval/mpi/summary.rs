//! What the figures say, in a few sentences: what an MPI program has over TCP, and what it would have.

use super::figures::FigureRow;
use super::{Carrier, Evaluation, show};
use crate::report::units::three_digits;
use crate::report::words::{MEASURE_AGAIN, busy, choice, place, verdict};
use crate::sizes;
use crate::statistics::median;

/// Operations of all ranks.
pub(super) const COLLECTIVES: [&str; 8] =
    ["barrier", "bcast", "reduce", "allreduce", "gather", "allgather", "scatter", "alltoall"];

/// What comes before the figures of each way that is ours.
fn way(over: Carrier) -> &'static str {
    match over {
        Carrier::TsumugiXdp => "With the XDP program on every node (`sudo tsumugi up NIC`)",
        _ => "Over Tsumugi's sockets, which take no privileges (`tsumugi-mpiexec`)",
    }
}

/// Paragraphs: what there is today, and one for each way that is ours.
pub(super) fn paragraphs(evaluation: &Evaluation) -> Vec<String> {
    let ours = evaluation.carriers.iter().copied().filter(|over| over.is_ours());
    let ours = ours.filter_map(|over| {
        let of = |row: &&FigureRow| row.over == over;
        let rows: Vec<&FigureRow> = evaluation.rows.iter().filter(of).collect();
        let sentences: Vec<String> = [messages(over, &rows), collectives(&rows), sort(evaluation, &rows)]
            .into_iter()
            .flatten()
            .collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    });
    let mut paragraphs: Vec<String> = today(evaluation).into_iter().chain(ours).collect();
    paragraphs.extend(match evaluation.failures.len() {
        0 => None,
        1 => Some("A job failed; its figures are missing.".to_owned()),
        count => Some(format!("{count} jobs failed; their figures are missing.")),
    });
    paragraphs.extend(busy(&evaluation.machine).map(|busy| format!("{busy} {MEASURE_AGAIN}")));
    paragraphs
}

/// The rows of the shortest message and of the longest stream.
fn ends<'a>(rows: &[&'a FigureRow]) -> Option<(&'a FigureRow, &'a FigureRow)> {
    let shortest = rows.iter().find(|row| row.key.figure == "latency")?;
    let longest = rows.iter().rfind(|row| row.key.figure == "bandwidth")?;
    Some((shortest, longest))
}

/// How many times as fast as TCP a figure is.
fn faster(row: &FigureRow) -> Option<f64> {
    let ratio = row.over_tcp?;
    Some(if row.is_time() { 1.0 / ratio } else { ratio })
}

fn today(evaluation: &Evaluation) -> Option<String> {
    let rows: Vec<&FigureRow> = evaluation.rows.iter().filter(|row| row.over == Carrier::Tcp).collect();
    let (shortest, longest) = ends(&rows)?;
    Some(format!(
        "Today, over TCP, a message of {} between two MPI ranks takes {}, and messages of {} pass at {}. {}",
        sizes::show(shortest.key.size_bytes),
        show::value(shortest),
        sizes::show(longest.key.size_bytes),
        show::value(longest),
        place(&evaluation.machine)
    ))
}

fn messages(over: Carrier, rows: &[&FigureRow]) -> Option<String> {
    let (shortest, longest) = ends(rows)?;
    let (short, long) = (faster(shortest)?, faster(longest)?);
    Some(format!(
        "{} the short message would take {} ({}), and the long ones would pass at {} ({}). {}",
        way(over),
        show::value(shortest),
        verdict(short),
        show::value(longest),
        verdict(long),
        choice(Some(short), Some(long))?
    ))
}

fn collectives(rows: &[&FigureRow]) -> Option<String> {
    let of_all: Vec<&&FigureRow> =
        rows.iter().filter(|row| COLLECTIVES.contains(&row.key.figure.as_str())).collect();
    let ratios: Vec<f64> = of_all.iter().filter_map(|row| row.over_tcp).collect();
    let slower = of_all.iter().filter(|row| row.over_tcp.is_some_and(|ratio| ratio > 1.0)).count();
    Some(format!(
        "Collective operations take {} of TCP's time in the median; {slower} of {} take longer than over TCP.",
        three_digits(median(ratios)?),
        of_all.len(),
    ))
}

fn sort(evaluation: &Evaluation, rows: &[&FigureRow]) -> Option<String> {
    let ratio = |figure: &str| {
        let found = rows.iter().find(|row| row.key.figure == figure && row.key.ranks > 1)?;
        Some((found.key.ranks, found.over_tcp?))
    };
    let ((nodes, communication), (_, time)) = (ratio("is_communication")?, ratio("is_time")?);
    Some(format!(
        "Sorting integers (class {}) on {nodes} nodes takes {} of TCP's time, and its communication {}.",
        evaluation.class,
        three_digits(time),
        three_digits(communication),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::page::samples;
    use super::*;

    #[test]
    fn what_there_is_and_what_would_be() {
        let paragraphs = paragraphs(&samples::evaluation());
        let words = [
            "Today, over TCP, a message of 8 B between two MPI ranks takes 24.7 µs, and messages of 4 MiB pass at",
            "which take no privileges (`tsumugi-mpiexec`) the short message would take 12.4 µs (Tsumugi is 2.00 times as fast",
            "With the XDP program on every node (`sudo tsumugi up NIC`) the short message",
            "A job failed",
        ];
        for (paragraph, words) in paragraphs.iter().zip(words) {
            assert!(paragraph.contains(words), "{words}: {paragraph}");
        }
        assert!(paragraphs[1].contains("For short messages Tsumugi is faster; for long ones TCP is faster."));
        assert!(paragraphs[1].contains("0 of 100 take longer than over TCP"), "{}", paragraphs[1]);
        assert!(paragraphs[2].contains("Sorting integers (class A) on 2 nodes takes"), "{}", paragraphs[2]);
    }
}
