//! What a comparison measures: tests, and in each test the entries that are compared.

use super::{Arguments, Offloads};
use crate::measure::row::Metric;
use crate::measure::sizes::Sizes;
use crate::peers::Transport;

/// The faults of the fault test: what must be survived is fixed by the project's targets.
pub(crate) const FAULTS: &str = "loss=1%,dup=1%,reorder=5%,seed=7";

/// What a test is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A section of the table: every transport at one size.
    Main,
    /// Bandwidth with and without injected faults.
    Faults,
    /// An endpoint that waits.
    Idle,
    /// Two pairs of processes on two cores.
    Pairs,
    /// A point of a curve against size; in the report and the JSON, not in the table.
    Curve,
}

/// One thing to measure in each round.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) kind: Kind,
    pub(crate) metric: Metric,
    pub(crate) size_bytes: u64,
    /// Whether it runs in the lab with offloads.
    pub(crate) offloads: bool,
    /// Seconds of one measurement.
    pub(crate) time_s: f64,
    pub(crate) entries: Vec<Entry>,
}

/// What is compared in a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) transport: Transport,
    /// Tsumugi's wait.
    pub(crate) wait: &'static str,
    /// Tsumugi's repetition.
    pub(crate) repeat: &'static str,
    /// Whether [`FAULTS`] are injected.
    pub(crate) faults: bool,
    /// Whether messages are built in the library's buffers.
    pub(crate) in_place: bool,
}

impl Entry {
    /// The entry with the usual settings.
    pub(crate) const fn new(transport: Transport) -> Entry {
        Entry { transport, wait: "spin", repeat: "selective", faults: false, in_place: false }
    }

    /// What it is called in tables and legends.
    pub(crate) fn name(&self) -> String {
        let mut name = self.transport.name().to_owned();
        if self.transport == Transport::Tsumugi {
            name.push_str(", ");
            name.push_str(self.wait);
            if self.in_place {
                name.push_str(", in place");
            }
        }
        name
    }

    /// What every peer is divided by.
    pub(crate) fn is_base(&self) -> bool {
        *self == Entry::new(Transport::Tsumugi)
    }
}

/// Everything a comparison measures.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) tests: Vec<Test>,
}

impl Plan {
    /// What `arguments` ask for; over loopback there are no offloads to switch off.
    pub(crate) fn new(arguments: &Arguments, in_lab: bool) -> Plan {
        let quick = arguments.quick;
        let rounds = arguments.rounds.unwrap_or(if quick { 2 } else { 5 });
        let time_s = if quick { 0.1 } else { 0.3 };
        let has = |transport| arguments.transports.contains(&transport);
        let mut entries: Vec<Entry> =
            [Transport::TcpBlock, Transport::TcpSpin, Transport::Udp, Transport::Tsumugi]
                .into_iter()
                .filter(|&transport| has(transport))
                .map(Entry::new)
                .collect();
        // Ours also with the default wait, which is what most programs will use.
        if has(Transport::Tsumugi) {
            entries.push(Entry { wait: "adaptive", ..Entry::new(Transport::Tsumugi) });
        }
        let spinning: Vec<Entry> = entries.iter().filter(|entry| entry.wait == "spin").cloned().collect();
        let offloads: &[bool] = match arguments.offloads {
            _ if !in_lab => &[true],
            Offloads::On => &[true],
            Offloads::Off => &[false],
            Offloads::Both => &[true, false],
        };
        let first = offloads[0];
        let main = |metric, size_bytes, offloads, entries: &[Entry]| Test {
            kind: Kind::Main,
            metric,
            size_bytes,
            offloads,
            time_s,
            entries: entries.to_vec(),
        };
        let mut tests = vec![main(Metric::RoundTrip, 64, first, &entries)];
        let mut streams = entries.clone();
        if has(Transport::Tsumugi) {
            streams.push(Entry { in_place: true, ..Entry::new(Transport::Tsumugi) });
        }
        for &offloads in offloads {
            tests.push(main(Metric::Bandwidth, 1 << 20, offloads, &streams));
        }
        tests.push(main(Metric::Rate, 8, first, &spinning));
        if has(Transport::Tsumugi) {
            tests.extend(ours_only(first, time_s));
        }
        tests.extend(curves(arguments, first, &spinning));
        Plan { rounds, tests }
    }

    /// How many processes will be run one after the other.
    pub(crate) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.tests.iter().map(|test| test.entries.len() as u64).sum::<u64>()
    }
}

/// What has no counterpart elsewhere.
fn ours_only(offloads: bool, time_s: f64) -> [Test; 3] {
    let ours = Entry::new(Transport::Tsumugi);
    let adaptive = Entry { wait: "adaptive", ..ours.clone() };
    let test = |kind, metric, size_bytes, time_s, entries| Test {
        kind,
        metric,
        size_bytes,
        offloads,
        time_s,
        entries,
    };
    let faulty = vec![
        ours.clone(),
        Entry { faults: true, ..ours.clone() },
        Entry { repeat: "go-back-n", ..ours.clone() },
        Entry { faults: true, repeat: "go-back-n", ..ours },
    ];
    [
        test(Kind::Faults, Metric::Bandwidth, 1 << 20, time_s, faulty),
        test(Kind::Idle, Metric::Idle, 0, time_s * 4.0, vec![adaptive.clone()]),
        test(Kind::Pairs, Metric::RoundTrip, 64, time_s * 2.0, vec![adaptive]),
    ]
}

/// The points of the curves that the table does not measure anyway.
fn curves(arguments: &Arguments, offloads: bool, entries: &[Entry]) -> Vec<Test> {
    let (latency, bandwidth) = match (&arguments.sizes, arguments.quick) {
        (Some(Sizes(sizes)), _) => (sizes.clone(), sizes.clone()),
        (None, _) if arguments.html.is_none() => return Vec::new(),
        (None, true) => (vec![8, 1 << 10, 16 << 10], vec![64, 1 << 10, 16 << 10, 128 << 10]),
        (None, false) => (
            vec![8, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10],
            vec![64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 4 << 20],
        ),
    };
    let point = |metric, size_bytes| Test {
        kind: Kind::Curve,
        metric,
        size_bytes,
        offloads,
        time_s: if arguments.quick { 0.05 } else { 0.1 },
        entries: entries
            .iter()
            // A bare datagram does not carry more.
            .filter(|entry| {
                entry.transport != Transport::Udp
                    || metric == Metric::Bandwidth
                    || size_bytes <= crate::peers::udp::DATAGRAM_BYTES_MAX
            })
            .cloned()
            .collect(),
    };
    let round_trips =
        latency.into_iter().filter(|&size| size != 64).map(|size| point(Metric::RoundTrip, size));
    let bandwidths =
        bandwidth.into_iter().filter(|&size| size != 1 << 20).map(|size| point(Metric::Bandwidth, size));
    round_trips.chain(bandwidths).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(options: &[&str]) -> Plan {
        Plan::new(&Command::parse_from(["compare"].iter().chain(options)).arguments, true)
    }

    #[test]
    fn every_transport_is_in_every_section() {
        let plan = plan(&[]);
        assert_eq!(plan.rounds, 5);
        let bandwidth: Vec<&Test> = plan
            .tests
            .iter()
            .filter(|test| test.kind == Kind::Main && test.metric == Metric::Bandwidth)
            .collect();
        assert_eq!(bandwidth.len(), 2, "offloads on and off");
        let names: Vec<String> = bandwidth[0].entries.iter().map(Entry::name).collect();
        let ours = ["tsumugi, spin", "tsumugi, adaptive", "tsumugi, spin, in place"];
        assert_eq!(names, [&["tcp-block", "tcp-spin", "udp"], &ours[..]].concat());
        assert!(plan.tests.iter().all(|test| test.kind != Kind::Curve));
    }

    #[test]
    fn curves_do_not_repeat_what_the_table_measures() {
        let plan = plan(&["--sizes", "8..1M", "--quick"]);
        let curve = |metric| {
            let points =
                plan.tests.iter().filter(move |test| test.kind == Kind::Curve && test.metric == metric);
            points.map(|test| test.size_bytes).collect::<Vec<u64>>()
        };
        assert_eq!(curve(Metric::RoundTrip).len(), 17);
        assert!(!curve(Metric::RoundTrip).contains(&64));
        assert!(!curve(Metric::Bandwidth).contains(&(1 << 20)));
        let large =
            plan.tests.iter().find(|test| test.metric == Metric::RoundTrip && test.size_bytes == 1 << 20);
        assert!(large.is_some_and(|test| test.entries.iter().all(|entry| entry.transport != Transport::Udp)));
    }

    #[test]
    fn loopback_has_no_offloads() {
        let arguments = Command::parse_from(["compare", "--offloads", "both"]).arguments;
        assert!(Plan::new(&arguments, false).tests.iter().all(|test| test.offloads));
    }

    #[test]
    fn only_the_chosen_transports() {
        let plan = plan(&["--transports", "udp,tcp-spin", "--offloads", "off"]);
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|e| e.transport != Transport::Tsumugi));
        assert!(plan.tests.iter().all(|test| !test.offloads));
        assert_eq!(plan.steps(), 5 * 2 * 3);
    }
}
