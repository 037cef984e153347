//! What is wanted of an MPI over Tsumugi, beside the same MPI over TCP.

use tsumugi_measure::eval::mpi::{Carrier, FigureRow, Kind};

use crate::target::{Limit, Target, Unit};

use Limit::{AtLeast, AtMost};

const SOCKET: Carrier = Carrier::TsumugiSocket;
const XDP: Carrier = Carrier::TsumugiXdp;
const MIB: u64 = 1 << 20;

/// What is wanted: in words; of which figure, size in bytes and receive path; its ratio to TCP's.
const WANTED: [(&str, Kind, u64, Carrier, Limit, f64); 10] = [
    ("sockets: 8 B one way against TCP", Kind::OneWay, 8, SOCKET, AtMost, 0.60),
    ("sockets: 1 KiB one way against TCP", Kind::OneWay, 1024, SOCKET, AtMost, 0.45),
    ("sockets: 4 KiB one way against TCP", Kind::OneWay, 4096, SOCKET, AtMost, 0.9),
    ("sockets: 16 KiB one way against TCP", Kind::OneWay, 16384, SOCKET, AtMost, 0.9),
    ("sockets: 64 KiB one way against TCP", Kind::OneWay, 65536, SOCKET, AtMost, 0.9),
    ("sockets: 8 B stream against TCP", Kind::Stream, 8, SOCKET, AtLeast, 6.0),
    ("sockets: 1 MiB stream against TCP", Kind::Stream, MIB, SOCKET, AtLeast, 1.3),
    ("sockets: 4 MiB stream against TCP", Kind::Stream, 4 * MIB, SOCKET, AtLeast, 1.3),
    ("sockets: barrier against TCP", Kind::Barrier, 0, SOCKET, AtMost, 0.55),
    ("XDP: 8 B one way against TCP", Kind::OneWay, 8, XDP, AtMost, 0.48),
];

/// All targets.
pub(crate) fn evaluate(rows: &[FigureRow]) -> Vec<Target> {
    WANTED
        .into_iter()
        .map(|(name, figure, size_bytes, over, limit, wanted)| {
            let is = |row: &&FigureRow| (row.figure, row.size_bytes, row.over) == (figure, size_bytes, over);
            let measured = rows.iter().find(is).and_then(|row| row.over_tcp);
            Target { name, limit, wanted, unit: Unit::Ratio, measured }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_receive_path_is_judged_by_its_own_figures() {
        let row = |figure, size_bytes, over, over_tcp| FigureRow {
            figure,
            size_bytes,
            over,
            value: 1.0,
            over_tcp,
            values: vec![1.0],
            rounds: 1,
            spread: 0.0,
        };
        let rows = [
            row(Kind::OneWay, 8, Carrier::Tcp, None),
            row(Kind::OneWay, 8, SOCKET, Some(0.59)),
            row(Kind::OneWay, 8, XDP, Some(0.49)),
            row(Kind::Stream, 8, SOCKET, Some(5.9)),
        ];
        let targets = evaluate(&rows);
        let met = |name: &str| targets.iter().find(|target| target.name.starts_with(name)).unwrap().met();
        assert_eq!(met("sockets: 8 B one way"), Some(true));
        assert_eq!(met("XDP: 8 B one way"), Some(false));
        assert_eq!(met("sockets: 8 B stream"), Some(false));
        assert_eq!(met("sockets: barrier"), None);
    }
}
