//! What the project has promised to reach, beside what was measured.

use serde::Serialize;

use super::plan::Kind;
use super::results::{Measured, Results, Series};
use crate::measure::row::{Metric, Row, rounded};
use crate::measure::statistics::median;

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast,
    AtMost,
}

/// How a figure is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ratio,
    PerSecond,
    Share,
}

/// One promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    /// What is promised, in words.
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    pub(crate) wanted: f64,
    pub(crate) unit: Unit,
    /// Median over the rounds; absent when the comparison did not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<f64>,
    /// Absent when it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<bool>,
}

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
        let measured = main(Metric::Bandwidth, Some(offloads))?;
        let (block, spin) = (measured.named("tcp-block")?, measured.named("tcp-spin")?);
        over_best(measured.named(OURS)?, block, spin)
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
    ]
    .into_iter()
    .map(|(name, limit, wanted, unit, measured)| Target {
        name,
        limit,
        wanted,
        unit,
        measured: measured.map(rounded),
        met: measured.map(|measured| match limit {
            AtLeast => measured >= wanted,
            AtMost => measured <= wanted,
        }),
    })
    .collect()
}

/// Median over the rounds of ours over the better of two others in that round.
fn over_best(ours: &Series, one: &Series, other: &Series) -> Option<f64> {
    let rounds = ours.rounds.iter().zip(&one.rounds).zip(&other.rounds);
    median(rounds.filter_map(|((ours, one), other)| Some(ours.value()? / one.value()?.max(other.value()?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::{Entry, Test};
    use crate::peers::Transport;

    fn measured(kind: Kind, metric: Metric, series: &[(Entry, &[f64])]) -> Measured {
        let row = |&value: &f64| Row {
            metric,
            p50_ns: Some(value),
            gbit_s: Some(value),
            per_s: Some(value),
            cpu_share: Some(value),
            ..Row::default()
        };
        let test = Test { kind, metric, size_bytes: 64, offloads: true, time_s: 0.1, entries: Vec::new() };
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
