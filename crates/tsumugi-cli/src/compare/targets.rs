//! What the project has promised to reach, beside what was measured.

use super::entry::Entry;
use super::plan::Kind;
use super::results::{Measured, Results, Series};
use crate::measure::row::{Metric, Row};
use crate::measure::statistics::median;
use crate::measure::target::{Limit, Target, Unit};
use crate::peers::Transport;

const OURS: &str = "tsumugi, spin";

/// All promises.
pub(crate) fn evaluate(results: &Results) -> Vec<Target> {
    let main = |metric, offloads: Option<bool>| {
        results.of(Kind::Main).find(|measured| {
            measured.test.metric == metric && offloads.is_none_or(|on| measured.test.offloads == on)
        })
    };
    let round_trip = main(Metric::RoundTrip, None);
    let slower = |peer| {
        let measured: &Measured = round_trip?;
        measured.named(peer)?.ratio_to(measured.named(OURS)?)
    };
    let against_tcp = |offloads| {
        let measured = main(Metric::Bandwidth, Some(offloads));
        best_over_best(measured, Entry::is_base, is_tcp)
    };
    let driven = |one: &Entry| one.is_driven() && one.wait == "spin";
    let udp_driven = |one: &Entry| *one == Entry::ours("udp", "driver");
    let raw = |one: &Entry| one.transport == Transport::RawXdp;
    let ours = |one: &Entry| one.transport == Transport::Tsumugi;
    let is = |transport| move |one: &Entry| one.transport == transport;
    let stream = |mtu_bytes| {
        results.of(Kind::Main).find(|Measured { test, .. }| {
            test.metric == Metric::Bandwidth && !test.offloads && test.mtu_bytes == mtu_bytes
        })
    };
    let faults = results.of(Kind::Faults).next();
    let kept = faults.and_then(|measured| {
        let faulty = measured.series.iter().find(|s| s.entry.faults && s.entry.repeat == "selective")?;
        faulty.ratio_to(measured.named(OURS)?)
    });
    let value = |series: &Series| median(series.rounds.iter().filter_map(Row::value));
    let rate = main(Metric::Rate, None).and_then(|measured| value(measured.named(OURS)?));
    let idle = results.of(Kind::Idle).next().and_then(|measured| value(measured.series.first()?));
    let pairs = results.of(Kind::Pairs).next().and_then(|measured| {
        let per_s = |series: &Series| median(series.rounds.iter().filter_map(|row| row.per_s));
        measured.series.iter().filter_map(per_s).min_by(f64::total_cmp)
    });
    let hidden = results
        .of(Kind::Overlap)
        .next()
        .and_then(|measured| value(measured.series.iter().find(|series| series.entry.is_driven())?));
    use Limit::{AtLeast, AtMost};
    use Unit::{PerSecond, Ratio, Share};
    let udp = slower("udp").map(|ratio| 1.0 / ratio);
    [
        ("64 B round trip, spinning, against a spinning UDP socket", AtMost, 1.15, Ratio, udp),
        ("64 B round trip: faster than TCP spinning", AtLeast, 1.4, Ratio, slower("tcp-spin")),
        ("64 B round trip: faster than TCP blocking", AtLeast, 15.0, Ratio, slower("tcp-block")),
        ("bandwidth of 1 MiB, offloads on, against the best TCP", AtLeast, 1.4, Ratio, against_tcp(true)),
        ("bandwidth of 1 MiB, offloads off, against the best TCP", AtLeast, 1.3, Ratio, against_tcp(false)),
        ("8 B messages from one thread", AtLeast, 2e6, PerSecond, rate),
        ("bandwidth kept under injected faults, selective repeat", AtLeast, 0.6, Ratio, kept),
        ("an idle endpoint with the adaptive wait", AtMost, 0.01, Share, idle),
        ("two pairs on two cores, adaptive: the slower pair's round trips", AtLeast, 10e3, PerSecond, pairs),
        (
            "64 B round trip, best with the driver, against the better raw AF_XDP",
            AtMost,
            0.75,
            Ratio,
            best_over_best(round_trip, driven, raw),
        ),
        (
            "64 B round trip, best with the driver: faster than TCP spinning",
            AtLeast,
            3.2,
            Ratio,
            best_over_best(round_trip, is(Transport::TcpSpin), driven),
        ),
        (
            "64 B round trip, best with the driver: faster than TCP blocking",
            AtLeast,
            35.0,
            Ratio,
            best_over_best(round_trip, is(Transport::TcpBlock), driven),
        ),
        (
            "64 B round trip, udp+driver (no privilege): faster than TCP spinning",
            AtLeast,
            2.6,
            Ratio,
            best_over_best(round_trip, is(Transport::TcpSpin), udp_driven),
        ),
        (
            "bandwidth of 1 MiB, MTU 1500, no offloads, our best against the best TCP",
            AtLeast,
            1.8,
            Ratio,
            best_over_best(stream(1500), ours, is_tcp),
        ),
        (
            "bandwidth of 1 MiB, MTU 1500, no offloads, our best against raw AF_XDP",
            AtLeast,
            1.1,
            Ratio,
            best_over_best(stream(1500), ours, raw),
        ),
        (
            "bandwidth of 1 MiB, MTU 9000, no offloads, our best against the best TCP",
            AtLeast,
            2.5,
            Ratio,
            best_over_best(stream(9000), ours, is_tcp),
        ),
        ("transfer of 1 MiB hidden behind computation, with the driver", AtLeast, 0.95, Share, hidden),
    ]
    .into_iter()
    .map(|(name, limit, wanted, unit, measured)| Target::judged(name, limit, wanted, unit, measured))
    .collect()
}

fn is_tcp(entry: &Entry) -> bool {
    matches!(entry.transport, Transport::TcpBlock | Transport::TcpSpin)
}

/// Median over the rounds of (the best of one kind / the best of another kind in that round).
fn best_over_best(
    measured: Option<&Measured>,
    one: impl Fn(&Entry) -> bool,
    other: impl Fn(&Entry) -> bool,
) -> Option<f64> {
    let measured = measured?;
    let best = |of: &dyn Fn(&Entry) -> bool, round: usize| {
        let of = measured.series.iter().filter(|series| of(&series.entry));
        let values = of.filter_map(|series| series.rounds.get(round)?.value());
        match measured.test.metric {
            Metric::RoundTrip => values.min_by(f64::total_cmp),
            _ => values.max_by(f64::total_cmp),
        }
    };
    let rounds = measured.series.iter().map(|series| series.rounds.len()).max().unwrap_or(0);
    median((0..rounds).filter_map(|round| Some(best(&one, round)? / best(&other, round)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::Test;
    use crate::measure::row::rounded;
    use tsumugi_rail::xdp::Mode;

    fn measured(kind: Kind, metric: Metric, series: &[(Entry, &[f64])]) -> Measured {
        wire(kind, metric, (true, 1500), series)
    }

    fn wire(
        kind: Kind,
        metric: Metric,
        (offloads, mtu_bytes): (bool, u32),
        series: &[(Entry, &[f64])],
    ) -> Measured {
        let row = |&value: &f64| Row {
            metric,
            p50_ns: Some(value),
            gbit_s: Some(value),
            per_s: Some(value),
            cpu_share: Some(value),
            overlap: Some(value),
            ..Row::default()
        };
        let entries = Vec::new();
        let test = Test { kind, metric, size_bytes: 64, offloads, mtu_bytes, time_s: 0.1, entries };
        let series = series
            .iter()
            .map(|(entry, values)| Series { entry: entry.clone(), rounds: values.iter().map(row).collect() });
        Measured { test, series: series.collect() }
    }

    fn entry(transport: Transport) -> Entry {
        Entry::new(transport)
    }

    fn find<'a>(targets: &'a [Target], words: &str) -> &'a Target {
        targets.iter().find(|target| target.name.contains(words)).expect(words)
    }

    #[test]
    fn round_trips_against_each_peer() {
        let tests = vec![measured(
            Kind::Main,
            Metric::RoundTrip,
            &[
                (entry(Transport::TcpBlock), &[80.0, 80.0, 40.0]),
                (entry(Transport::TcpSpin), &[5.0, 5.0, 5.0]),
                (entry(Transport::Udp), &[4.0, 4.0, 4.0]),
                (entry(Transport::Tsumugi), &[4.0, 4.0, 5.0]),
            ],
        )];
        let targets = evaluate(&Results { tests });
        let udp = find(&targets, "UDP socket");
        assert_eq!((udp.measured, udp.met), (Some(1.0), Some(true)));
        let spin = find(&targets, "TCP spinning");
        assert_eq!((spin.measured, spin.met), (Some(1.25), Some(false)));
        let block = find(&targets, "TCP blocking");
        assert_eq!((block.measured, block.met), (Some(20.0), Some(true)));
        assert_eq!(find(&targets, "8 B messages").met, None, "not measured is not missed");
    }

    #[test]
    fn the_best_driver_row_of_each_round_meets_the_best_of_the_others() {
        let adaptive = Entry { wait: "adaptive", ..Entry::ours("udp", "driver") };
        let generic = Entry { mode: Some(Mode::Generic), ..entry(Transport::RawXdp) };
        let tests = vec![measured(
            Kind::Main,
            Metric::RoundTrip,
            &[
                (entry(Transport::TcpBlock), &[80.0, 80.0]),
                (entry(Transport::TcpSpin), &[6.0, 6.0]),
                (entry(Transport::RawXdp), &[4.0, 2.0]),
                (generic, &[2.0, 4.0]),
                (entry(Transport::Tsumugi), &[1.0, 1.0]),
                (Entry::ours("packet", "user"), &[1.0, 1.0]),
                (adaptive, &[0.1, 0.1]),
                (Entry::ours("udp", "driver"), &[1.5, 3.0]),
                (Entry::ours("packet", "driver"), &[3.0, 1.5]),
            ],
        )];
        let targets = evaluate(&Results { tests });
        let measured = |words| {
            let target = find(&targets, words);
            (target.measured, target.met)
        };
        assert_eq!(measured("better raw AF_XDP"), (Some(0.75), Some(true)));
        assert_eq!(measured("driver: faster than TCP spinning"), (Some(4.0), Some(true)));
        assert_eq!(measured("driver: faster than TCP blocking"), (Some(rounded(80.0 / 1.5)), Some(true)));
        assert_eq!(measured("udp+driver"), (Some(3.0), Some(true)));
    }

    #[test]
    fn overlap_is_judged_with_the_driver() {
        let user = (entry(Transport::Tsumugi), &[0.99][..]);
        let driver = (Entry::ours("udp", "driver"), &[0.94][..]);
        let target = |series: &[(Entry, &[f64])]| {
            let tests = vec![measured(Kind::Overlap, Metric::Overlap, series)];
            let targets = evaluate(&Results { tests });
            let target = find(&targets, "hidden behind computation");
            (target.measured, target.met)
        };
        assert_eq!(target(&[user.clone(), driver]), (Some(0.94), Some(false)));
        assert_eq!(target(&[user]), (None, None));
    }

    #[test]
    fn bandwidth_without_offloads_is_judged_for_each_mtu() {
        let off = |mtu_bytes, ours: f64| {
            let driven = (Entry::ours("packet", "driver"), &[ours, ours][..]);
            let rest: [(Entry, &[f64]); 3] = [
                (entry(Transport::TcpSpin), &[8.0, 10.0]),
                (entry(Transport::RawXdp), &[12.5, 12.5]),
                (entry(Transport::Tsumugi), &[9.0, 9.0]),
            ];
            wire(Kind::Main, Metric::Bandwidth, (false, mtu_bytes), &[&[driven], &rest[..]].concat())
        };
        let on = wire(Kind::Main, Metric::Bandwidth, (true, 1500), &[(entry(Transport::TcpSpin), &[40.0])]);
        let targets = evaluate(&Results { tests: vec![on, off(1500, 15.0), off(9000, 20.0)] });
        let measured = |words| {
            let target = find(&targets, words);
            (target.measured, target.met)
        };
        assert_eq!(measured("MTU 1500, no offloads, our best against the best TCP").0, Some(1.6875));
        assert_eq!(measured("MTU 1500, no offloads, our best against raw"), (Some(1.2), Some(true)));
        assert_eq!(measured("MTU 9000"), (Some(2.25), Some(false)));
        assert_eq!(measured("offloads off").0, Some(1.0125), "that of the MTU asked for");
    }

    #[test]
    fn the_best_tcp_is_the_best_of_each_round() {
        let tests = vec![measured(
            Kind::Main,
            Metric::Bandwidth,
            &[
                (entry(Transport::TcpBlock), &[40.0, 20.0]),
                (entry(Transport::TcpSpin), &[20.0, 40.0]),
                (entry(Transport::Tsumugi), &[60.0, 60.0]),
            ],
        )];
        let targets = evaluate(&Results { tests });
        let target = find(&targets, "offloads on");
        assert_eq!((target.measured, target.met), (Some(1.5), Some(true)));
        assert_eq!(find(&targets, "offloads off").measured, None);
    }

    #[test]
    fn faults_idleness_and_pairs() {
        let faulty = Entry { faults: true, ..entry(Transport::Tsumugi) };
        let go_back = Entry { repeat: "go-back-n", ..faulty.clone() };
        let adaptive = Entry { wait: "adaptive", ..entry(Transport::Tsumugi) };
        let tests = vec![
            measured(
                Kind::Faults,
                Metric::Bandwidth,
                &[(entry(Transport::Tsumugi), &[60.0]), (faulty, &[30.0]), (go_back, &[59.0])],
            ),
            measured(Kind::Idle, Metric::Idle, &[(adaptive.clone(), &[0.002])]),
            measured(
                Kind::Pairs,
                Metric::RoundTrip,
                &[(adaptive.clone(), &[25_000.0]), (adaptive, &[9_000.0])],
            ),
        ];
        let targets = evaluate(&Results { tests });
        assert_eq!(find(&targets, "injected faults").met, Some(false));
        assert_eq!(find(&targets, "idle endpoint").met, Some(true));
        let pairs = find(&targets, "two pairs");
        assert_eq!((pairs.measured, pairs.met), (Some(9000.0), Some(false)));
    }
}
