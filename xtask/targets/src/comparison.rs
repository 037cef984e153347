//! What is wanted of messages between two hosts, beside TCP, UDP and bare frames on the same wire.

use tsumugi_measure::row::{Metric, Row};
use tsumugi_measure::statistics::median;

use crate::measured::OfTest;
use crate::target::{Limit, Target, Unit};

/// All targets.
pub(crate) fn evaluate(rows: &[OfTest]) -> Vec<Target> {
    let of = |test: &str| Section::of(rows, |row| is_of(row, test));
    let main = |metric: Metric| Section::of(rows, |row| is_of(row, "main") && row.metric == metric);
    let bandwidth = |offloads, mtu_bytes: Option<u32>| {
        Section::of(rows, |row| {
            is_of(row, "main")
                && row.metric == Metric::Bandwidth
                && has_offloads(row) == offloads
                && (mtu_bytes.is_none() || row.mtu_bytes == mtu_bytes)
        })
    };
    let round_trip = main(Metric::RoundTrip);
    let (with, without) = (bandwidth(true, None), bandwidth(false, None));
    let (usual, jumbo) = (bandwidth(false, Some(1500)), bandwidth(false, Some(9000)));
    let udp = |row: &Row| row.transport == "udp";
    let raw = |row: &Row| row.transport == "raw-xdp";
    let write = |row: &Row| row.transport == "raw-write";
    let spin = |row: &Row| row.transport == "tcp-spin";
    let block = |row: &Row| row.transport == "tcp-block";
    let by_xdp = |row: &Row| uses_xdp(row) && row.wait.as_deref() == Some("spin");
    let udp_xdp = |row: &Row| is(row, "udp", "xdp", "spin");
    let packet_xdp = |row: &Row| is(row, "packet", "xdp", "spin");
    let faulty = |row: &Row| row.faults.is_some() && row.repeat.is_none();
    let rate = main(Metric::Rate).one(is_base).and_then(over_rounds);
    let kept = of("faults").ratio(faulty, is_base);
    let idle = of("idle").one(is_ours).and_then(over_rounds);
    let pairs = of("pairs").0.iter().filter_map(|row| row.per_s).min_by(f64::total_cmp);
    let hidden = of("overlap").one(uses_xdp).and_then(over_rounds);
    use Limit::{AtLeast, AtMost};
    use Unit::{PerSecond, Ratio, Share};
    [
        (
            "64 B round trip, spinning, against a spinning UDP socket",
            AtMost,
            1.15,
            Ratio,
            round_trip.ratio(is_base, udp),
        ),
        ("64 B round trip: faster than TCP spinning", AtLeast, 1.4, Ratio, round_trip.ratio(spin, is_base)),
        ("64 B round trip: faster than TCP blocking", AtLeast, 15.0, Ratio, round_trip.ratio(block, is_base)),
        (
            "bandwidth of 1 MiB, offloads on, against the best TCP",
            AtLeast,
            1.4,
            Ratio,
            with.ratio(is_base, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, offloads off, against the best TCP",
            AtLeast,
            1.3,
            Ratio,
            without.ratio(is_base, is_tcp),
        ),
        ("8 B messages from one thread", AtLeast, 2e6, PerSecond, rate),
        ("bandwidth kept under injected faults, selective repeat", AtLeast, 0.6, Ratio, kept),
        ("an idle endpoint with the adaptive wait", AtMost, 0.01, Share, idle),
        ("two pairs on two cores, adaptive: the slower pair's round trips", AtLeast, 10e3, PerSecond, pairs),
        (
            "64 B round trip, best with the XDP program, against the better raw AF_XDP",
            AtMost,
            0.75,
            Ratio,
            round_trip.ratio(by_xdp, raw),
        ),
        (
            "64 B round trip, packet+xdp, against the bare one-sided write through a packet socket",
            AtMost,
            1.2,
            Ratio,
            round_trip.ratio(packet_xdp, write),
        ),
        (
            "64 B round trip, best with the XDP program: faster than TCP spinning",
            AtLeast,
            3.2,
            Ratio,
            round_trip.ratio(spin, by_xdp),
        ),
        (
            "64 B round trip, best with the XDP program: faster than TCP blocking",
            AtLeast,
            35.0,
            Ratio,
            round_trip.ratio(block, by_xdp),
        ),
        (
            "64 B round trip, udp+xdp (no privilege): faster than TCP spinning",
            AtLeast,
            2.6,
            Ratio,
            round_trip.ratio(spin, udp_xdp),
        ),
        (
            "bandwidth of 1 MiB, MTU 1500, no offloads, our best against the best TCP",
            AtLeast,
            1.8,
            Ratio,
            usual.ratio(is_ours, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, MTU 1500, no offloads, our best against raw AF_XDP",
            AtLeast,
            1.1,
            Ratio,
            usual.ratio(is_ours, raw),
        ),
        (
            "bandwidth of 1 MiB, MTU 9000, no offloads, our best against the best TCP",
            AtLeast,
            2.5,
            Ratio,
            jumbo.ratio(is_ours, is_tcp),
        ),
        ("transfer of 1 MiB hidden behind computation, with the XDP program", AtLeast, 0.95, Share, hidden),
    ]
    .into_iter()
    .map(|(name, limit, wanted, unit, measured)| Target { name, limit, wanted, unit, measured })
    .collect()
}

/// Whether it belongs to this test: `main`, `faults`, `overlap`, `idle`, `pairs`, …
pub(crate) fn is_of(row: &Row, test: &str) -> bool {
    row.test.as_deref() == Some(test)
}

fn is_ours(row: &Row) -> bool {
    row.transport == "tsumugi"
}

pub(crate) fn is_tcp(row: &Row) -> bool {
    row.transport.starts_with("tcp-")
}

/// Whether it is Tsumugi with this send path, receive path and wait, and everything else as usual.
pub(crate) fn is(row: &Row, send_path: &str, receive_path: &str, wait: &str) -> bool {
    let is = |value: &Option<String>, wanted| value.as_deref() == Some(wanted);
    let others = [&row.repeat, &row.faults, &row.setting, &row.model];
    is_ours(row)
        && is(&row.send, send_path)
        && is(&row.receive, receive_path)
        && is(&row.wait, wait)
        && others.iter().all(|other| other.is_none())
}

/// What all others are compared with.
pub(crate) fn is_base(row: &Row) -> bool {
    is(row, "udp", "socket", "spin")
}

pub(crate) fn uses_xdp(row: &Row) -> bool {
    is_ours(row) && row.receive.as_deref() == Some("xdp")
}

/// Over loopback there is nothing to switch off.
pub(crate) fn has_offloads(row: &Row) -> bool {
    row.offloads.as_deref() != Some("off")
}

/// Median over the rounds.
fn over_rounds(row: &Row) -> Option<f64> {
    median(row.values.iter().copied())
}

/// The rows of one test on one wire.
pub(crate) struct Section<'a>(pub(crate) Vec<&'a Row>);

impl<'a> Section<'a> {
    /// The rows that are wanted, on the wire of the first of them.
    pub(crate) fn of(rows: &'a [OfTest], wanted: impl Fn(&Row) -> bool) -> Section<'a> {
        let mut rows: Vec<&Row> = rows.iter().map(|OfTest(row)| row).filter(|row| wanted(row)).collect();
        if let Some(first) = rows.first().copied() {
            rows.retain(|row| has_offloads(row) == has_offloads(first) && row.mtu_bytes == first.mtu_bytes);
        }
        Section(rows)
    }

    fn one(&self, is: impl Fn(&Row) -> bool) -> Option<&Row> {
        self.0.iter().copied().find(|row| is(row))
    }

    /// Median over the rounds of (the best of one kind / the best of another kind in that round).
    pub(crate) fn ratio(&self, one: impl Fn(&Row) -> bool, other: impl Fn(&Row) -> bool) -> Option<f64> {
        let best = |of: &dyn Fn(&Row) -> bool, round: usize| {
            let rows = self.0.iter().filter(|row| of(row));
            let values = rows.filter_map(|row| row.values.get(round).copied());
            match self.0.first()?.metric {
                Metric::RoundTrip => values.min_by(f64::total_cmp),
                _ => values.max_by(f64::total_cmp),
            }
        };
        let rounds = self.0.iter().map(|row| row.values.len()).max().unwrap_or(0);
        median((0..rounds).filter_map(|round| Some(best(&one, round)? / best(&other, round)?)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(transport: &str, values: &[f64]) -> Row {
        Row {
            transport: transport.into(),
            values: values.into(),
            per_s: values.first().copied(),
            ..Row::default()
        }
    }

    pub(crate) fn ours(send_path: &str, receive_path: &str, values: &[f64]) -> Row {
        Row {
            send: Some(send_path.into()),
            receive: Some(receive_path.into()),
            wait: Some("spin".into()),
            ..row("tsumugi", values)
        }
    }

    pub(crate) fn base(values: &[f64]) -> Row {
        ours("udp", "socket", values)
    }

    pub(crate) fn adaptive(row: Row) -> Row {
        Row { wait: Some("adaptive".into()), ..row }
    }

    pub(crate) fn measured(test: &str, metric: Metric, rows: Vec<Row>) -> Vec<OfTest> {
        let of_test = |row| OfTest(Row { test: Some(test.into()), metric, ..row });
        rows.into_iter().map(of_test).collect()
    }

    /// The figure and the verdict of the target with these words in its name.
    fn find(rows: &[OfTest], words: &str) -> (Option<f64>, Option<bool>) {
        let targets = evaluate(rows);
        let target = targets.iter().find(|target| target.name.contains(words)).expect(words);
        (target.measured, target.met())
    }

    #[test]
    fn round_trips_against_each_peer() {
        let rows = measured(
            "main",
            Metric::RoundTrip,
            vec![
                row("tcp-block", &[80.0, 80.0, 40.0]),
                row("tcp-spin", &[5.0, 5.0, 5.0]),
                row("udp", &[4.0, 4.0, 4.0]),
                base(&[4.0, 4.0, 5.0]),
            ],
        );
        assert_eq!(find(&rows, "UDP socket"), (Some(1.0), Some(true)));
        assert_eq!(find(&rows, "TCP spinning"), (Some(1.25), Some(false)));
        assert_eq!(find(&rows, "TCP blocking"), (Some(20.0), Some(true)));
        assert_eq!(find(&rows, "8 B messages"), (None, None), "not measured is not missed");
    }

    #[test]
    fn the_best_xdp_row_of_each_round_meets_the_best_of_the_others() {
        let rows = measured(
            "main",
            Metric::RoundTrip,
            vec![
                row("tcp-block", &[80.0, 80.0]),
                row("tcp-spin", &[6.0, 6.0]),
                row("raw-xdp", &[4.0, 2.0]),
                row("raw-xdp", &[2.0, 4.0]),
                row("raw-write", &[2.0, 1.5]),
                row("raw-write", &[2.5, 1.0]),
                base(&[1.0, 1.0]),
                ours("packet", "socket", &[1.0, 1.0]),
                adaptive(ours("udp", "xdp", &[0.1, 0.1])),
                ours("udp", "xdp", &[1.5, 3.0]),
                ours("packet", "xdp", &[3.0, 1.5]),
            ],
        );
        assert_eq!(find(&rows, "better raw AF_XDP"), (Some(0.75), Some(true)));
        assert_eq!(find(&rows, "XDP program: faster than TCP spinning"), (Some(4.0), Some(true)));
        assert_eq!(find(&rows, "XDP program: faster than TCP blocking"), (Some(80.0 / 1.5), Some(true)));
        assert_eq!(find(&rows, "udp+xdp"), (Some(3.0), Some(true)));
        assert_eq!(find(&rows, "packet+xdp, against the bare one-sided write"), (Some(1.5), Some(false)));
    }

    #[test]
    fn overlap_is_judged_with_xdp() {
        let rows = vec![base(&[0.99]), ours("udp", "xdp", &[0.94])];
        let rows = measured("overlap", Metric::Overlap, rows);
        assert_eq!(find(&rows, "hidden behind computation"), (Some(0.94), Some(false)));
        assert_eq!(find(&rows[..1], "hidden behind computation"), (None, None));
    }

    #[test]
    fn bandwidth_without_offloads_is_judged_for_each_mtu() {
        let off = |mtu_bytes, best: f64| {
            let rows = vec![
                ours("packet", "xdp", &[best, best]),
                row("tcp-spin", &[8.0, 10.0]),
                row("raw-xdp", &[12.5, 12.5]),
                base(&[9.0, 9.0]),
            ];
            let wire = |row| Row { offloads: Some("off".into()), mtu_bytes: Some(mtu_bytes), ..row };
            measured("main", Metric::Bandwidth, rows.into_iter().map(wire).collect())
        };
        let on = measured("main", Metric::Bandwidth, vec![row("tcp-spin", &[40.0])]);
        let rows = [on, off(1500, 15.0), off(9000, 20.0)].concat();
        assert_eq!(find(&rows, "MTU 1500, no offloads, our best against the best TCP").0, Some(1.6875));
        assert_eq!(find(&rows, "MTU 1500, no offloads, our best against raw"), (Some(1.2), Some(true)));
        assert_eq!(find(&rows, "MTU 9000"), (Some(2.25), Some(false)));
        assert_eq!(find(&rows, "offloads off").0, Some(1.0125), "that of the MTU asked for");
    }

    #[test]
    fn the_best_tcp_is_the_best_of_each_round() {
        let rows = vec![row("tcp-block", &[40.0, 20.0]), row("tcp-spin", &[20.0, 40.0]), base(&[60.0, 60.0])];
        let rows = measured("main", Metric::Bandwidth, rows);
        assert_eq!(find(&rows, "offloads on"), (Some(1.5), Some(true)));
        assert_eq!(find(&rows, "offloads off").0, None);
    }

    #[test]
    fn faults_idleness_and_pairs() {
        let faulty = Row { faults: Some("loss=1%".into()), ..base(&[30.0]) };
        let go_back = Row { repeat: Some("go-back-n".into()), values: vec![59.0], ..faulty.clone() };
        let pairs = [&[25_000.0][..], &[9_000.0]].map(|per_s| adaptive(base(per_s)));
        let rows = [
            measured("faults", Metric::Bandwidth, vec![base(&[60.0]), go_back, faulty]),
            measured("idle", Metric::Idle, vec![adaptive(base(&[0.002]))]),
            measured("pairs", Metric::RoundTrip, pairs.into()),
        ]
        .concat();
        assert_eq!(find(&rows, "injected faults"), (Some(0.5), Some(false)));
        assert_eq!(find(&rows, "idle endpoint"), (Some(0.002), Some(true)));
        assert_eq!(find(&rows, "two pairs"), (Some(9000.0), Some(false)));
    }

    #[test]
    fn only_the_usual_is_the_base() {
        let text = |text: &str| Some(text.to_owned());
        let base = base(&[1.0]);
        assert!(is_base(&base) && is_ours(&base) && !uses_xdp(&base));
        for other in [
            Row { wait: text("adaptive"), ..base.clone() },
            Row { setting: text("in place"), ..base.clone() },
            Row { faults: text("loss=1%"), ..base.clone() },
            Row { repeat: text("go-back-n"), ..base.clone() },
            Row { send: text("packet"), ..base.clone() },
        ] {
            assert!(!is_base(&other), "{other:?}");
        }
    }
}
