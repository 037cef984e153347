//! What bare UDP sockets give the same processes: the floor of what is built on sockets.

use super::Carrier;
use super::figures::FigureRow;
use super::show::{seconds, value};

/// How often the integer sort exchanges keys (`ITERATIONS` of `bench/is.c`).
const EXCHANGES: f64 = 10.0;

/// What a floor gives where a figure stands. `None`: nothing was measured that is one.
pub(super) fn text(rows: &[FigureRow], row: &FigureRow, floor: Carrier) -> Option<String> {
    let of_udp = |figure: &'static str| {
        let rows = rows.iter().filter(move |row| row.over == floor);
        rows.filter(move |row| row.key.figure == figure && row.key.ranks == 2)
    };
    let of_size = |figure| of_udp(figure).find(|udp| udp.key.size_bytes == row.key.size_bytes).map(value);
    match row.key.figure.as_str() {
        "latency" => of_size("udp_latency"),
        "bandwidth_both_ways" => of_size("udp_bandwidth_both_ways"),
        // Its keys alone, of which each of two ranks keeps half.
        "is_communication" if row.key.ranks == 2 => {
            let stream = of_udp("udp_bandwidth_both_ways").next_back()?;
            let bytes = row.key.size_bytes as f64 / 2.0 * EXCHANGES;
            Some(seconds(bytes / (stream.value * 1e6)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::{self, Measured};
    use super::*;

    #[test]
    fn the_sort_has_the_time_that_its_keys_take_bare_sockets() {
        let mut measured = Measured::default();
        let udp = r#"{"figure": "udp_bandwidth_both_ways", "size_bytes": 1048576, "ranks": 2, "value": 8000, "unit": "MB/s"}"#;
        measured.add(1, Carrier::BareUdp, figures::read(udp).unwrap());
        measured.add(1, Carrier::BareUdpXdp, figures::read(&udp.replace("8000", "1600")).unwrap());
        for ranks in [2, 4] {
            let sort = format!(
                r#"{{"figure": "is_A", "size_bytes": 32000000, "ranks": {ranks}, "value": 500, "unit": "Mop/s", "seconds": 0.16,
                "communication_mean_s": 0.05, "communication_max_s": 0.06, "verified": 1}}"#
            );
            measured.add(1, Carrier::Tcp, figures::read(&sort).unwrap());
        }
        let rows = measured.rows(&[Carrier::Tcp]);
        let floors = |row| Carrier::FLOORS.map(|floor| text(&rows, row, floor).unwrap_or_default());
        let of_two = |row: &&FigureRow| (row.key.figure.as_str(), row.key.ranks) == ("is_communication", 2);
        assert_eq!(rows.iter().find(of_two).map(floors), Some(["20.0 ms".to_owned(), "100 ms".to_owned()]));
        assert!(
            rows.iter().filter(|row| !of_two(row)).flat_map(floors).all(|cell| cell.is_empty()),
            "{rows:?}"
        );
    }
}
