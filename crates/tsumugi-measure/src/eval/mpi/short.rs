//! One short table: what an MPI program gets today, and what it gets.

use super::figures::FigureRow;
use super::show::value;
use super::{Carrier, Evaluation};
use crate::report::columns::Columns;
use crate::report::units::{self, three_digits};

/// What is asked in words, and the figure and size that answer.
const QUESTIONS: [(&str, &str, u64); 7] = [
    ("a short message (8 B)", "latency", 8),
    ("a message of 1 KiB", "latency", 1 << 10),
    ("many short messages", "bandwidth", 8),
    ("long messages (1 MiB)", "bandwidth", 1 << 20),
    ("a sum over all ranks (1 KiB)", "allreduce", 1 << 10),
    ("sorting integers: its messages", "is_communication", 0),
    ("sorting integers: all of it", "is_time", 0),
];

/// The table, and how it is read.
pub(super) fn text(evaluation: &Evaluation) -> String {
    let row = |figure: &str, bytes: u64, over: Carrier| {
        let is = |row: &&FigureRow| {
            row.key.figure == figure && (bytes == 0 || row.key.size_bytes == bytes) && row.over == over
        };
        evaluation.rows.iter().find(is)
    };
    let ours = [Carrier::TsumugiSocket, Carrier::TsumugiXdp];
    let mut columns = Columns::new(&[
        "an MPI program, two nodes",
        "TCP",
        "Tsumugi",
        "better",
        "Tsumugi with XDP",
        "better",
    ]);
    for (words, figure, bytes) in QUESTIONS {
        let Some(today) = row(figure, bytes, Carrier::Tcp) else { continue };
        let mut cells = vec![words.to_owned(), shown(today)];
        for over in ours {
            let now = row(figure, bytes, over);
            cells.push(now.map_or(String::new(), shown));
            cells.push(
                now.and_then(better).map_or(String::new(), |times| format!("{} x", three_digits(times))),
            );
        }
        columns.row(cells);
    }
    let failures: String = evaluation.failures.iter().map(|why| format!("FAILED {why}\n")).collect();
    format!(
        "{columns}\nThe same MPI ({}) and the same programs, on two nodes of this machine. \"Tsumugi\" is for every user; \"with XDP\" takes \
         \"sudo tsumugi up NIC\"\nonce on every node, and is for programs that compute meanwhile, and for short messages. Less than 1 x is worse.\n{failures}",
        evaluation.mpi
    )
}

/// Short messages are counted, long ones are weighed.
fn shown(row: &FigureRow) -> String {
    if row.key.figure == "bandwidth" && row.key.size_bytes < 1024 {
        return units::rate(row.value * 1e6 / row.key.size_bytes as f64);
    }
    value(row)
}

/// How many times better than TCP.
fn better(row: &FigureRow) -> Option<f64> {
    let ratio = row.over_tcp?;
    Some(if row.is_time() { 1.0 / ratio } else { ratio })
}
