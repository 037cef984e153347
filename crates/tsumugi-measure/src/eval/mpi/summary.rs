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

/// Paragraphs: what there is today and what there would be, and then one for each way that is ours.
pub(super) fn paragraphs(evaluation: &Evaluation) -> Vec<String> {
    let ours = evaluation.carriers.iter().copied().filter(|over| over.is_ours());
    let ours: Vec<(Carrier, Vec<&FigureRow>)> = ours.map(|over| (over, rows_of(evaluation, over))).collect();
    let of_each = ours.iter().filter_map(|(over, rows)| {
        let sentences = [messages(*over, rows), collectives(rows), sort(evaluation, rows)];
        let sentences: Vec<String> = sentences.into_iter().flatten().collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    });
    let mut paragraphs: Vec<String> = today(evaluation, &ours).into_iter().chain(of_each).collect();
    paragraphs.extend(match evaluation.failures.len() {
        0 => None,
        1 => Some("A job failed; its figures are missing.".to_owned()),
        count => Some(format!("{count} jobs failed; their figures are missing.")),
    });
    paragraphs.extend(busy(&evaluation.machine).map(|busy| format!("{busy} {MEASURE_AGAIN}")));
    paragraphs
}

fn rows_of(evaluation: &Evaluation, over: Carrier) -> Vec<&FigureRow> {
    evaluation.rows.iter().filter(|row| row.over == over).collect()
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

/// What programs have over TCP, and what they would have by each way that is ours.
fn today(evaluation: &Evaluation, ours: &[(Carrier, Vec<&FigureRow>)]) -> Option<String> {
    let (shortest, longest) = ends(&rows_of(evaluation, Carrier::Tcp))?;
    let mut sentences = vec![format!(
        "Today, over TCP, a message of {} between two MPI ranks takes {}, and messages of {} pass at {}.",
        sizes::show(shortest.key.size_bytes),
        show::value(shortest),
        sizes::show(longest.key.size_bytes),
        show::value(longest)
    )];
    let (mut short, mut long) = (None, None);
    for (over, rows) in ours {
        let Some((shortest, longest)) = ends(rows) else { continue };
        let way = match over {
            Carrier::TsumugiXdp => "With the XDP program on every node (`sudo tsumugi up NIC`)",
            _ => "Over Tsumugi's sockets, which take no privileges (`tsumugi-mpiexec`),",
        };
        let (time, bandwidth) = (show::value(shortest), show::value(longest));
        sentences.push(format!("{way} it would be {time} and {bandwidth}."));
        let better = |one: Option<f64>, row| faster(row).into_iter().chain(one).reduce(f64::max);
        (short, long) = (better(short, shortest), better(long, longest));
    }
    sentences.extend(choice(short, long));
    sentences.push(place(&evaluation.machine));
    Some(sentences.join(" "))
}

/// How one of our ways compares with TCP.
fn messages(over: Carrier, rows: &[&FigureRow]) -> Option<String> {
    let (shortest, longest) = ends(rows)?;
    Some(format!(
        "{}: with messages of {} {}, and with those of {} {}.",
        if over.has_xdp() { "With the XDP program" } else { "Over sockets" },
        sizes::show(shortest.key.size_bytes),
        verdict(faster(shortest)?),
        sizes::show(longest.key.size_bytes),
        verdict(faster(longest)?)
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
        assert!(
            paragraphs[0].starts_with(
                "Today, over TCP, a message of 8 B between two MPI ranks takes 24.7 µs, and messages of 4 MiB pass at \
                 21.9 Gb/s. Over Tsumugi's sockets, which take no privileges (`tsumugi-mpiexec`), it would be 12.4 µs and \
                 15.8 Gb/s. With the XDP program on every node (`sudo tsumugi up NIC`) it would be 9.90 µs and 14.5 Gb/s. \
                 For short messages Tsumugi is faster; for long ones TCP is faster. Measured between"
            ),
            "{}",
            paragraphs[0]
        );
        assert!(
            paragraphs[1].starts_with(
                "Over sockets: with messages of 8 B Tsumugi is 2.00 times as fast as TCP, and with those of 4 MiB TCP is \
                 1.39 times as fast as Tsumugi. Collective operations take 0.50 of TCP's time in the median; 0 of 100 take"
            ),
            "{}",
            paragraphs[1]
        );
        assert_eq!(paragraphs[3], "A job failed; its figures are missing.");
        assert!(paragraphs[2].contains("Sorting integers (class A) on 2 nodes takes"), "{}", paragraphs[2]);
    }
}
