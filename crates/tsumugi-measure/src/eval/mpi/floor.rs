//! What bare UDP sockets give the same processes: the floor of what is built on sockets.

use super::Carrier;
use super::figures::FigureRow;
use super::show::{seconds, value};
use crate::sizes;

/// How often the integer sort exchanges keys (`ITERATIONS` of `bench/is.c`).
const EXCHANGES: f64 = 10.0;

/// The floors of a figure, as its title says them; none where nothing was measured that is one.
pub(super) fn texts(rows: &[FigureRow], row: &FigureRow) -> Vec<String> {
    let of = |floor: Carrier| Some(format!("{}: {}", floor.text(), text(rows, row, floor)?));
    Carrier::FLOORS.into_iter().filter_map(of).collect()
}

fn text(rows: &[FigureRow], row: &FigureRow, floor: Carrier) -> Option<String> {
    let of_udp = |figure: &'static str| {
        let rows = rows.iter().filter(move |row| row.over == floor);
        rows.filter(move |row| row.key.figure == figure && row.key.ranks == 2)
    };
    let shown = |figure| {
        let rows = of_udp(figure).map(|row| format!("{} {}", sizes::show(row.key.size_bytes), value(row)));
        let rows: Vec<String> = rows.collect();
        (!rows.is_empty()).then(|| rows.join(", "))
    };
    match row.key.figure.as_str() {
        "latency" => shown("udp_latency"),
        "bandwidth_both_ways" => shown("udp_bandwidth_both_ways"),
        // Each of two ranks keeps half of its keys.
        "is_communication" if row.key.ranks == 2 => {
            let stream = of_udp("udp_bandwidth_both_ways").next_back()?;
            let bytes = row.key.size_bytes as f64 / 2.0 * EXCHANGES;
            Some(format!("{} for the keys alone", seconds(bytes / (stream.value * 1e6))))
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
        let floors: Vec<String> = rows.iter().map(|row| texts(&rows, row).join("; ")).collect();
        let keys = "bare UDP: 20.0 ms for the keys alone; bare UDP beside XDP: 100 ms for the keys alone";
        assert_eq!(floors, ["", "", "", keys, "", ""], "{rows:?}");
    }
}
