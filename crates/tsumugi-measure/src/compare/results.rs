//! What the rounds of a comparison gave, and ratios within the rounds.

use super::entry::{Entry, Program};
use super::test::{Kind, Test};
use crate::perf::over_rounds;
use crate::row::{Row, rounded};
use crate::statistics::median;

/// All rounds of one entry of one test. Two pairs at once are two series.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) entry: Entry,
    /// One row per round.
    pub(crate) rounds: Vec<Row>,
}

impl Series {
    /// The row over the rounds.
    pub(crate) fn row(&self) -> Row {
        over_rounds(&self.rounds).unwrap_or_default()
    }

    /// The value of each round, if every round has one.
    fn values(&self) -> Vec<f64> {
        let values: Option<Vec<f64>> = self.rounds.iter().map(|row| row.value().map(rounded)).collect();
        values.unwrap_or_default()
    }

    /// Median over the rounds of `self / base` within a round.
    pub(crate) fn ratio_to(&self, base: &Series) -> Option<f64> {
        let within = |(row, base): (&Row, &Row)| Some(row.value()? / base.value()?);
        median(self.rounds.iter().zip(&base.rounds).filter_map(within))
    }
}

/// A test and what it gave.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) test: Test,
    pub(crate) series: Vec<Series>,
}

impl Measured {
    /// What the others are compared with: Tsumugi with the spinning wait, TCP without the program, or the shortest messages.
    pub(crate) fn base(&self) -> Option<&Series> {
        self.series.iter().find(|series| match self.test.kind {
            Kind::Coexistence => series.entry.program == Some(Program::Absent),
            // The shortest, which comes first.
            Kind::Long => true,
            _ => series.entry.is_base(),
        })
    }

    /// The rows of this test, with ratios.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let pairs = self.test.kind == Kind::Pairs;
        // A share that may be zero is nothing to divide by.
        let has_ratios = !matches!(self.test.kind, Kind::Pairs | Kind::Overlap);
        let ratio =
            |series: &Series| self.base().filter(|_| has_ratios).and_then(|base| series.ratio_to(base));
        let row = |(number, series): (usize, &Series)| Row {
            ratio: ratio(series).map(rounded),
            better: ratio(series).map(|_| self.test.metric.better()),
            pair: pairs.then_some(number as u32 + 1),
            test: Some(self.test.kind.into_str().to_owned()),
            values: series.values(),
            ..series.row()
        };
        self.series.iter().enumerate().map(row).collect()
    }
}

/// Everything that was measured, in the order of the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub(crate) tests: Vec<Measured>,
}

impl Results {
    /// All rows, for JSON.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.tests.iter().flat_map(Measured::rows).collect()
    }

    /// The tests of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Measured> {
        self.tests.iter().filter(move |measured| measured.test.kind == kind)
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Results as a comparison would give them, for the tests of what is shown.

    use super::*;
    use crate::compare::plan::Plan;
    use crate::peers::Transport;
    use crate::row::Metric;

    /// Two rounds of everything in a plan with curves. Ours is 4 µs, 60 Gb/s, 3 M/s.
    pub(crate) fn results(plan: &Plan) -> Results {
        let tests = plan.tests.iter().map(|test| {
            let copies = if test.kind == Kind::Pairs { 2 } else { 1 };
            let entries = test.entries.iter().flat_map(|entry| std::iter::repeat_n(entry, copies));
            let series = entries.map(|entry| Series {
                entry: entry.clone(),
                rounds: [1.0, 1.1].map(|noise| row(test, entry, noise)).into(),
            });
            Measured { test: test.clone(), series: series.collect() }
        });
        Results { tests: tests.collect() }
    }

    fn row(test: &Test, entry: &Entry, noise: f64) -> Row {
        // By how much the transport is worse than ours.
        let worse = match entry.transport {
            Transport::TcpBlock => 20.0,
            Transport::TcpSpin => 1.5,
            Transport::Udp => 0.9,
            Transport::RawXdp => 0.6,
            Transport::RawWrite => 0.35,
            Transport::Tsumugi if entry.uses_xdp() => 0.4,
            Transport::Tsumugi if entry.wait == "adaptive" => 1.05,
            Transport::Tsumugi if entry.faults && entry.repeat == "go-back-n" => 10.0,
            Transport::Tsumugi if entry.faults => 1.25,
            Transport::Tsumugi => 1.0,
        } * noise;
        let size = test.size_bytes as f64;
        let ours = entry.transport == Transport::Tsumugi;
        let mut row = Row {
            transport: entry.transport.into_str().into(),
            send: ours.then(|| entry.send.into()),
            receive: ours.then(|| entry.receive.into()),
            wait: ours.then(|| entry.wait.into()),
            metric: test.metric,
            size_bytes: test.size_bytes,
            ..Row::default()
        };
        match test.metric {
            Metric::RoundTrip => {
                let p50_ns = 4000.0 * worse + size / 8.0;
                row.p50_ns = Some(p50_ns);
                row.p99_ns = Some(p50_ns * 1.5);
                row.per_s = Some(1e9 / p50_ns);
            }
            Metric::Bandwidth => {
                row.gbit_s = Some(60.0 * size / (size + 8192.0) / worse);
                row.cpu_ns_per_kib = Some(200.0 * worse);
            }
            Metric::Rate => row.per_s = Some(3e6 / worse),
            Metric::Overhead => {}
            Metric::Idle => row.cpu_share = Some(0.002),
            Metric::Overlap => row.overlap = Some(if entry.uses_xdp() { 0.98 } else { 0.1 }),
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Transport;
    use crate::ratio::Better;
    use crate::row::Metric;

    fn series(transport: Transport, p50_ns: &[f64]) -> Series {
        let row = |&p50_ns: &f64| Row { metric: Metric::RoundTrip, p50_ns: Some(p50_ns), ..Row::default() };
        Series { entry: Entry::new(transport), rounds: p50_ns.iter().map(row).collect() }
    }

    #[test]
    fn ratios_are_within_a_round() {
        // The machine was twice as slow in the second round: for both alike, so it does not show.
        let ours = series(Transport::Tsumugi, &[4.0, 8.0, 4.0]);
        let udp = series(Transport::Udp, &[3.0, 6.0, 3.0]);
        assert_eq!(udp.ratio_to(&ours), Some(0.75));
        assert_eq!(ours.ratio_to(&ours), Some(1.0));
    }

    #[test]
    fn tcp_with_the_program_is_compared_with_tcp_without() {
        let test = Test {
            kind: Kind::Coexistence,
            metric: Metric::RoundTrip,
            size_bytes: 64,
            offloads: true,
            mtu_bytes: 1500,
            time_s: 0.1,
            entries: Vec::new(),
        };
        let tcp = |program, p50_ns: &[f64]| {
            let series = series(Transport::TcpSpin, p50_ns);
            Series { entry: Entry { program: Some(program), ..series.entry }, ..series }
        };
        let series = vec![tcp(Program::Absent, &[6.0, 12.0]), tcp(Program::Busy, &[9.0, 18.0])];
        let rows = Measured { test, series }.rows();
        assert_eq!(rows.iter().map(|row| row.ratio).collect::<Vec<_>>(), [Some(1.0), Some(1.5)]);
        assert!(rows.iter().all(|row| row.better == Some(Better::Lower)));
    }

    #[test]
    fn without_ours_there_is_no_ratio() {
        let test = Test {
            kind: Kind::Main,
            metric: Metric::RoundTrip,
            size_bytes: 64,
            offloads: true,
            mtu_bytes: 1500,
            time_s: 0.1,
            entries: Vec::new(),
        };
        let alone = Measured { test, series: vec![series(Transport::Udp, &[3.0])] };
        assert_eq!(alone.rows()[0].ratio, None);
        assert_eq!(alone.rows()[0].rounds, Some(1));
    }

    #[test]
    fn rows_tell_their_test_and_every_round() {
        let test = Test {
            kind: Kind::Main,
            metric: Metric::RoundTrip,
            size_bytes: 64,
            offloads: true,
            mtu_bytes: 1500,
            time_s: 0.1,
            entries: Vec::new(),
        };
        let rows = Measured { test, series: vec![series(Transport::Udp, &[3.0, 5.0])] }.rows();
        assert_eq!((rows[0].test.as_deref(), &rows[0].values[..]), (Some("main"), &[3.0, 5.0][..]));
    }
}
