//! What is wanted of an MPI over Tsumugi, beside the same MPI over TCP.

use tsumugi_measure::eval::mpi::{Carrier, FigureRow};
use tsumugi_measure::statistics::median;

use crate::target::{Limit, Target, Unit};

use Limit::{AtLeast, AtMost};

const SOCKET: Carrier = Carrier::TsumugiSocket;
const XDP: Carrier = Carrier::TsumugiXdp;
const MIB: u64 = 1 << 20;

/// What is wanted: in words; of which figure, size in bytes and receive path; its ratio to TCP's. On two nodes.
const WANTED: [(&str, &str, u64, Carrier, Limit, f64); 10] = [
    ("sockets: 8 B one way against TCP", "latency", 8, SOCKET, AtMost, 0.60),
    ("sockets: 1 KiB one way against TCP", "latency", 1024, SOCKET, AtMost, 0.45),
    ("sockets: 4 KiB one way against TCP", "latency", 4096, SOCKET, AtMost, 0.9),
    ("sockets: 16 KiB one way against TCP", "latency", 16384, SOCKET, AtMost, 0.9),
    ("sockets: 64 KiB one way against TCP", "latency", 65536, SOCKET, AtMost, 0.9),
    ("sockets: 8 B stream against TCP", "bandwidth", 8, SOCKET, AtLeast, 6.0),
    ("sockets: 1 MiB stream against TCP", "bandwidth", MIB, SOCKET, AtLeast, 1.3),
    ("sockets: 4 MiB stream against TCP", "bandwidth", 4 * MIB, SOCKET, AtLeast, 1.3),
    ("sockets: barrier against TCP", "barrier", 0, SOCKET, AtMost, 0.55),
    ("XDP: 8 B one way against TCP", "latency", 8, XDP, AtMost, 0.48),
];

/// The operations of all ranks, up to 64 KiB.
const COLLECTIVES: [&str; 8] =
    ["barrier", "bcast", "reduce", "allreduce", "gather", "allgather", "scatter", "alltoall"];

/// All targets.
pub(crate) fn evaluate(rows: &[FigureRow]) -> Vec<Target> {
    let target = |name, limit, wanted, measured| Target { name, limit, wanted, unit: Unit::Ratio, measured };
    let of_pairs = WANTED.into_iter().map(|(name, figure, size_bytes, over, limit, wanted)| {
        let is = |row: &&FigureRow| {
            (row.key.figure.as_str(), row.key.size_bytes, row.key.ranks, row.over)
                == (figure, size_bytes, 2, over)
        };
        target(name, limit, wanted, rows.iter().find(is).and_then(|row| row.over_tcp))
    });
    let collectives = |ratio: fn(&FigureRow) -> Option<f64>| -> Vec<f64> {
        let is = |row: &&FigureRow| row.over == SOCKET && COLLECTIVES.contains(&row.key.figure.as_str());
        rows.iter().filter(is).filter_map(ratio).collect()
    };
    let slowest = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::max);
    let by_tcp: fn(&FigureRow) -> Option<f64> = |row| row.over_tcp;
    let of_all = [
        target("sockets: collectives against TCP, median", AtMost, 0.6, median(collectives(by_tcp))),
        target("sockets: slowest collective against TCP", AtMost, 1.0, slowest(collectives(by_tcp))),
        target(
            "sockets: slowest collective against UCX",
            AtMost,
            1.0,
            slowest(collectives(|row| row.over_ucx)),
        ),
    ];
    let sort = |figure: &str| {
        let is = |row: &&FigureRow| row.over == SOCKET && row.key.figure == figure && row.key.ranks == 2;
        rows.iter().find(is).and_then(|row| row.over_tcp)
    };
    let of_sort = [
        target("sockets: integer sort's communication against TCP", AtMost, 0.6, sort("is_communication")),
        target("sockets: integer sort against TCP", AtMost, 1.0, sort("is_time")),
    ];
    let overlaps = rows.iter().filter(|row| row.over == XDP && row.key.figure.starts_with("overlap_"));
    let least = overlaps.map(|row| row.value).reduce(f64::min);
    let of_overlap = target("XDP: least overlap with computation", AtLeast, 0.8, least);
    of_pairs.chain(of_all).chain(of_sort).chain([of_overlap]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_measure::eval::mpi::Key;

    #[test]
    fn each_receive_path_is_judged_by_its_own_figures() {
        let row = |figure: &str, size_bytes, over, over_tcp| FigureRow {
            key: Key { figure: figure.to_owned(), size_bytes, ranks: 2 },
            over,
            value: 1.0,
            unit: "us".to_owned(),
            over_tcp,
            over_ucx: None,
            values: vec![1.0],
            rounds: 1,
            spread: None,
            better: tsumugi_measure::Better::Lower,
        };
        let rows = [
            row("latency", 8, Carrier::Tcp, None),
            row("latency", 8, SOCKET, Some(0.59)),
            row("latency", 8, XDP, Some(0.49)),
            row("bandwidth", 8, SOCKET, Some(5.9)),
            row("bcast", 8, SOCKET, Some(0.5)),
            row("allreduce", 8, SOCKET, Some(1.1)),
            row("allreduce", 8, XDP, Some(3.0)),
            row("is_communication", 64, SOCKET, Some(0.6)),
        ];
        let targets = evaluate(&rows);
        let met = |name: &str| targets.iter().find(|target| target.name.starts_with(name)).unwrap().met();
        assert_eq!(met("sockets: 8 B one way"), Some(true));
        assert_eq!(met("XDP: 8 B one way"), Some(false));
        assert_eq!(met("sockets: 8 B stream"), Some(false));
        assert_eq!(met("sockets: barrier"), None);
        assert_eq!(met("sockets: collectives"), Some(false));
        assert_eq!(met("sockets: slowest collective against TCP"), Some(false));
        assert_eq!(met("sockets: slowest collective against UCX"), None);
        assert_eq!(met("sockets: integer sort's"), Some(true));
    }
}
