//! The evaluation as text.

use std::fmt::Write;

use super::figures::FigureRow;
use super::show::value;
use super::{Carrier, Evaluation, floor, summary};
use crate::machine::utc;
use crate::report::columns::Columns;
use crate::report::units;
use crate::sizes;

/// All of it.
pub(super) fn text(evaluation: &Evaluation) -> String {
    let mut page = String::new();
    for Section { title, header, rows } in sections(evaluation) {
        let mut columns = Columns::new(&header);
        for cells in rows {
            columns.row(cells);
        }
        let _ = writeln!(page, "{title}\n{columns}");
    }
    for failure in &evaluation.failures {
        let _ = writeln!(page, "FAILED {failure}");
    }
    for paragraph in summary::paragraphs(evaluation) {
        let _ = writeln!(page, "{paragraph}");
    }
    let machine = &evaluation.machine;
    let loss =
        evaluation.loss.as_ref().map_or_else(String::new, |loss| format!("; {loss} of the packets lost"));
    let _ = writeln!(
        page,
        "\n{}, {}; {}{loss}; load average {:.1} before; {}",
        evaluation.mpi,
        machine.line(),
        machine.wire,
        machine.load_average,
        utc(machine.time_unix_s)
    );
    page
}

/// A table: one figure on a number of ranks.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What the column of a ratio to tcp is called.
pub(super) const RATIO: &str = "×";

/// What columns are called: each way, and its ratio to tcp if that says something; and the floors.
fn header(ways: &[Carrier], has_ratio: bool, floors: &[Carrier]) -> Vec<String> {
    let ways = ways.iter().flat_map(|over| {
        let ratio = (has_ratio && *over != Carrier::Tcp).then(|| RATIO.to_owned());
        [over.text().to_owned()].into_iter().chain(ratio)
    });
    let floors = floors.iter().map(|floor| floor.text().to_owned());
    ["size".to_owned()].into_iter().chain(ways).chain(floors).collect()
}

/// A table for each figure and number of ranks.
pub(super) fn sections(evaluation: &Evaluation) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut done: Vec<&super::Key> = Vec::new();
    for first in evaluation.rows.iter().filter(|row| !row.over.is_floor()) {
        if done.contains(&&first.key) {
            continue;
        }
        done.push(&first.key);
        let of_key = || evaluation.rows.iter().filter(|row| row.key == first.key);
        // A rank alone has nothing to carry, and was measured once.
        let is_there = |over: &Carrier| of_key().any(|row| row.over == *over);
        let ways: Vec<Carrier> = evaluation.carriers.iter().copied().filter(is_there).collect();
        let has_ratio = first.unit != "ratio";
        let mut cells =
            vec![if first.key.size_bytes == 0 { String::new() } else { sizes::show(first.key.size_bytes) }];
        for &over in &ways {
            let row = of_key().find(|row| row.over == over);
            cells.push(row.map_or(String::new(), value));
            if has_ratio && over != Carrier::Tcp {
                // Its heading has the sign.
                let ratio = row.and_then(|row| row.over_tcp);
                cells.push(ratio.map_or_else(String::new, units::three_digits));
            }
        }
        let floors = floors(evaluation, first);
        cells.extend(
            floors.iter().map(|floor| floor::text(&evaluation.rows, first, *floor).unwrap_or_default()),
        );
        let (title, header) = (title(evaluation, first), header(&ways, has_ratio, &floors));
        match sections.iter_mut().find(|known| known.title == title && known.header == header) {
            Some(known) => known.rows.push(cells),
            None => sections.push(Section { title, header, rows: vec![cells] }),
        }
    }
    sections
}

/// The floors that there are in a figure's table, at any of its sizes.
fn floors(evaluation: &Evaluation, row: &FigureRow) -> Vec<Carrier> {
    let rows = &evaluation.rows;
    let of_table =
        |other: &&FigureRow| (&other.key.figure, other.key.ranks) == (&row.key.figure, row.key.ranks);
    let is_there = |floor: &Carrier| {
        rows.iter().filter(of_table).any(|other| floor::text(rows, other, *floor).is_some())
    };
    Carrier::FLOORS.into_iter().filter(is_there).collect()
}

fn title(evaluation: &Evaluation, row: &FigureRow) -> String {
    let nodes = row.key.ranks;
    let better = row.better;
    let what = match row.key.figure.as_str() {
        "bandwidth_both_ways" => "bandwidth, both ways together".to_owned(),
        "message_rate" => "messages a second of all pairs".to_owned(),
        "overlap_sender" => "overlap of MPI_Isend with computation".to_owned(),
        "overlap_receiver" => "overlap of MPI_Irecv with computation".to_owned(),
        "is_time" => format!("integer sort, class {}: whole time", evaluation.class),
        "is_communication" => {
            let floors = if floors(evaluation, row).is_empty() { "" } else { " (floors: its keys alone)" };
            format!("integer sort, class {}: time in communication{floors}", evaluation.class)
        }
        other => other.to_owned(),
    };
    format!("{what}, {nodes} node{}; {better}", if nodes == 1 { "" } else { "s" })
}
