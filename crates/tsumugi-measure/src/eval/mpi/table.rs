//! The evaluation as one page of text.

use std::fmt::Write;

use super::figures::{FigureRow, Kind};
use super::{Carrier, Evaluation};
use crate::machine::utc;
use crate::report::columns::Columns;
use crate::report::units;

/// The whole page.
pub(super) fn text(evaluation: &Evaluation) -> String {
    let [tcp, others @ ..] = Carrier::ALL;
    let head = others.into_iter().flat_map(|over| [over.text(), "×"]);
    let head: Vec<&str> = [evaluation.mpi, tcp.text()].into_iter().chain(head).collect();
    let mut columns = Columns::new(&head);
    for row in evaluation.rows.iter().filter(|row| row.over == tcp) {
        let mut cells = vec![name(row), value(row)];
        for over in others {
            let same = |other: &&FigureRow| {
                other.over == over && other.figure == row.figure && other.size_bytes == row.size_bytes
            };
            let ours = evaluation.rows.iter().find(same);
            cells.push(ours.map_or(String::new(), value));
            cells.push(ours.and_then(|row| row.over_tcp).map_or(String::new(), units::three_digits));
        }
        columns.row(cells);
    }
    let machine = &evaluation.machine;
    let mut page = columns.to_string();
    let _ = writeln!(
        page,
        "\n{}; {}; load average {:.1} before; {}",
        machine.line(),
        machine.wire,
        machine.load_average,
        utc(machine.time_unix_s)
    );
    page
}

fn name(row: &FigureRow) -> String {
    let size = match row.size_bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    };
    match row.figure {
        Kind::OneWay => format!("{size} one way"),
        Kind::Stream => format!("{size} stream"),
        Kind::Barrier => "barrier".to_owned(),
    }
}

/// Short messages are counted, long ones are weighed.
fn value(row: &FigureRow) -> String {
    match row.figure {
        Kind::OneWay | Kind::Barrier => units::time(row.value),
        Kind::Stream if row.size_bytes < 1024 => units::rate(row.value),
        Kind::Stream => units::bandwidth(row.value * row.size_bytes as f64 * 8.0 / 1e9),
    }
}
