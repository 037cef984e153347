//! What a comparison measures: tests, and in each test the entries that are compared.

use tsumugi_rail::xdp::Mode;

use super::{Arguments, Offloads};
use crate::measure::row::Metric;
use crate::measure::sizes::{self, Sizes};
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
    /// Where bare frames are taken out of the kernel.
    pub(crate) mode: Option<Mode>,
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
        let mode = match transport {
            Transport::RawXdp => Some(Mode::Native),
            _ => None,
        };
        Entry { transport, mode, wait: "spin", repeat: "selective", faults: false, in_place: false }
    }

    /// What it is called in tables and legends.
    pub(crate) fn name(&self) -> String {
        let mut name = self.transport.name().to_owned();
        if let Some(mode) = self.mode {
            name.push_str(", ");
            name.push_str(&mode.to_string());
        }
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
    /// What was asked for and cannot be measured, and why.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    /// What `arguments` ask for; over loopback there are no offloads to switch off. `no_raw`: why there can be no
    /// bare frames.
    pub(crate) fn new(arguments: &Arguments, in_lab: bool, no_raw: Option<&str>) -> Plan {
        let quick = arguments.quick;
        let rounds = arguments.rounds.unwrap_or(if quick { 2 } else { 5 });
        let time_s = if quick { 0.1 } else { 0.3 };
        let asked = |transport| arguments.transports.contains(&transport);
        let has = |transport| asked(transport) && (transport != Transport::RawXdp || no_raw.is_none());
        let mut left_out = Vec::new();
        if let Some(why) = no_raw.filter(|_| asked(Transport::RawXdp)) {
            left_out.push(format!("{}: {why}", Transport::RawXdp.name()));
        }
        let mut entries: Vec<Entry> =
            [Transport::TcpBlock, Transport::TcpSpin, Transport::Udp, Transport::RawXdp]
                .into_iter()
                .filter(|&transport| has(transport))
                .map(Entry::new)
                .collect();
        if has(Transport::RawXdp) {
            entries.push(Entry { mode: Some(Mode::Generic), ..Entry::new(Transport::RawXdp) });
        }
        entries.extend(has(Transport::Tsumugi).then(|| Entry::new(Transport::Tsumugi)));
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
        let curves = curves(arguments, first, &spinning);
        if has(Transport::RawXdp) {
            left_out.extend(too_long_for_a_frame(&curves, arguments.mtu));
        }
        tests.extend(curves);
        Plan { rounds, tests, left_out }
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
            // A bare datagram does not carry more, nor does a bare frame.
            .filter(|entry| {
                let most = match entry.transport {
                    Transport::Udp => crate::peers::udp::DATAGRAM_BYTES_MAX,
                    Transport::RawXdp => u64::from(arguments.mtu),
                    _ => u64::MAX,
                };
                metric == Metric::Bandwidth || size_bytes <= most
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

/// Says which points of the curves bare frames have no part in.
fn too_long_for_a_frame(curves: &[Test], mtu: u32) -> Option<String> {
    let sizes: Vec<String> = curves
        .iter()
        .filter(|test| test.metric == Metric::RoundTrip && test.size_bytes > u64::from(mtu))
        .map(|test| sizes::show(test.size_bytes))
        .collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "round trips of {} with {}: a frame carries at most the MTU, {mtu} bytes",
            sizes.join(", "),
            Transport::RawXdp.name()
        )
    })
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
        Plan::new(&Command::parse_from(["compare"].iter().chain(options)).arguments, true, None)
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
        let bare = ["tcp-block", "tcp-spin", "udp", "raw-xdp, native", "raw-xdp, generic"];
        assert_eq!(names, [&bare, &ours[..]].concat());
        assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
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
        assert!(Plan::new(&arguments, false, None).tests.iter().all(|test| test.offloads));
    }

    #[test]
    fn bare_frames_are_left_out_where_they_cannot_be_and_it_is_said() {
        let arguments = Command::parse_from(["compare"]).arguments;
        let plan = Plan::new(&arguments, true, Some("no program"));
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|e| e.transport != Transport::RawXdp));
        assert_eq!(plan.left_out, ["raw-xdp: no program"]);
        let arguments = Command::parse_from(["compare", "--transports", "udp"]).arguments;
        assert!(Plan::new(&arguments, true, Some("no program")).left_out.is_empty(), "nobody asked for it");
    }

    #[test]
    fn bare_frames_have_no_part_in_what_does_not_fit_the_mtu() {
        let plan = plan(&["--sizes", "1K,4K,64K", "--mtu", "1500"]);
        let raw = |metric, size_bytes| {
            let mut tests =
                plan.tests.iter().filter(|test| test.metric == metric && test.size_bytes == size_bytes);
            let test = tests.next().expect("a point");
            test.entries.iter().filter(|entry| entry.transport == Transport::RawXdp).count()
        };
        assert_eq!([1 << 10, 4 << 10, 64 << 10].map(|size| raw(Metric::RoundTrip, size)), [2, 0, 0]);
        assert_eq!([1 << 10, 4 << 10, 64 << 10].map(|size| raw(Metric::Bandwidth, size)), [2, 2, 2]);
        assert_eq!(plan.left_out.len(), 1);
        assert!(plan.left_out[0].contains("4 KiB, 64 KiB with raw-xdp"), "{:?}", plan.left_out);
    }

    #[test]
    fn only_the_chosen_transports() {
        let plan = plan(&["--transports", "udp,tcp-spin", "--offloads", "off"]);
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|e| e.transport != Transport::Tsumugi));
        assert!(plan.tests.iter().all(|test| !test.offloads));
        assert_eq!(plan.steps(), 5 * 2 * 3);
    }
}
