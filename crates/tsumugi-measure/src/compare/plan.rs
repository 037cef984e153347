//! What a comparison measures: tests, and in each test the entries that are compared.

use tsumugi_rail::xdp::Mode;

use super::entry::{BUSY_POLL, Entry, Program};
use super::models;
use super::test::{Kind, Missing, Test};
use super::{Arguments, Offloads};
use crate::peers::{Transport, frames};
use crate::row::Metric;
use crate::sizes::{self, Sizes};

/// The faults of the fault test.
pub(crate) const FAULTS: &str = "loss=1%,dup=1%,reorder=5%,seed=7";

/// MTUs of jumbo frames, in bytes: what lies in one buffer of a NIC's driver, and what switches and NICs agree on most often.
const JUMBO_BYTES: [u32; 2] = [frames::ONE_BUFFER_MTU_BYTES, 9000];

/// The transports of bare frames, each of which is measured in both modes.
const FRAMES: [Transport; 2] = [Transport::RawXdp, Transport::RawWrite];

/// What a measurement takes besides, seconds: its process starts, connects and ends. That of long messages fills memory.
const STEP_S: f64 = 0.1;
const LONG_S: f64 = 3.0;

/// Everything a comparison measures.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) tests: Vec<Test>,
    /// What was asked for and cannot be measured, and why.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    /// What `arguments` ask for; over loopback there are no offloads to switch off.
    pub(crate) fn new(arguments: &Arguments, in_lab: bool, missing: &Missing) -> Plan {
        let quick = arguments.quick;
        let rounds = arguments.rounds.unwrap_or(if quick { 2 } else { 5 });
        let time_s = if quick { 0.1 } else { 0.3 };
        let asked = |transport| arguments.transports.contains(&transport);
        let has =
            |transport: Transport| asked(transport) && (!transport.is_frames() || missing.raw.is_none());
        let mut left_out: Vec<String> = FRAMES
            .into_iter()
            .filter(|&transport| asked(transport))
            .filter_map(|transport| Some(format!("{}: {}", transport.into_str(), missing.raw.as_ref()?)))
            .collect();
        let mut entries: Vec<Entry> = [Transport::TcpBlock, Transport::TcpSpin, Transport::Udp]
            .into_iter()
            .filter(|&transport| has(transport))
            .map(Entry::new)
            .collect();
        for transport in FRAMES.into_iter().filter(|&transport| has(transport)) {
            let modes = [Mode::Native, Mode::Generic].map(Some);
            entries.extend(modes.map(|mode| Entry { mode, ..Entry::new(transport) }));
        }
        entries.extend(has(Transport::Tsumugi).then(|| Entry::new(Transport::Tsumugi)));
        // Rates do without the other paths, and curves without the default wait.
        let (plain, mut spinning) = (entries.clone(), entries.clone());
        if has(Transport::Tsumugi) {
            let (others, without) = other_paths(missing);
            spinning.extend(others.iter().filter(|entry| entry.wait != "adaptive").cloned());
            entries.extend(others);
            left_out.extend(without);
        }
        let offloads: &[bool] = match arguments.offloads.unwrap_or(Offloads::Both) {
            _ if !in_lab => &[true],
            Offloads::On => &[true],
            Offloads::Off => &[false],
            Offloads::Both => &[true, false],
        };
        let first = offloads[0];
        let mtu_bytes = arguments.mtu();
        let main = |metric, size_bytes, offloads, entries: &[Entry]| Test {
            kind: Kind::Main,
            metric,
            size_bytes,
            offloads,
            mtu_bytes,
            time_s,
            entries: entries.iter().filter(|entry| entry.transport.has(metric)).cloned().collect(),
        };
        let mut tests = vec![main(Metric::RoundTrip, 64, first, &entries)];
        let mut streams = entries.clone();
        if has(Transport::Tsumugi) {
            streams.push(Entry { in_place: true, ..Entry::new(Transport::Tsumugi) });
        }
        for &offloads in offloads {
            tests.push(main(Metric::Bandwidth, 1 << 20, offloads, &streams));
        }
        // Without offloads, because with them a NIC makes its own large packets, whatever the MTU.
        let has_jumbo = has(Transport::Tsumugi) && in_lab && !quick && offloads.contains(&false);
        for jumbo_bytes in JUMBO_BYTES.into_iter().filter(|bytes| has_jumbo && *bytes != mtu_bytes) {
            let entries: Vec<Entry> = streams.iter().filter(|entry| is_in_jumbo(entry)).cloned().collect();
            let test = main(Metric::Bandwidth, 1 << 20, false, &entries);
            // TCP takes several settings' time as it is.
            tests.push(Test { mtu_bytes: jumbo_bytes, time_s: time_s / 2.0, ..test });
        }
        tests.push(main(Metric::Rate, 8, first, &plain));
        if has(Transport::Tsumugi) {
            tests.extend(ours_only(first, mtu_bytes, time_s));
            if !quick {
                let (of_models, without) = models::tests(&main(Metric::RoundTrip, 64, first, &[]), missing);
                tests.extend(of_models);
                left_out.extend(without);
            }
            let mut receive_paths = vec![Entry::new(Transport::Tsumugi)];
            receive_paths.extend(missing.xdp.is_none().then(|| Entry::ours("udp", "xdp")));
            tests.push(Test { kind: Kind::Overlap, ..main(Metric::Overlap, 1 << 20, first, &receive_paths) });
        }
        if has(Transport::Tsumugi) && has(Transport::TcpSpin) && missing.xdp.is_none() {
            let entry = |program| Entry { program: Some(program), ..Entry::new(Transport::TcpSpin) };
            let tcp = [Program::Absent, Program::Idle, Program::Busy].map(entry);
            // A stream tries several settings, each in a fraction of the time.
            let times = [(Metric::RoundTrip, 64, time_s), (Metric::Bandwidth, 1 << 20, time_s / 2.0)];
            tests.extend(times.map(|(metric, size_bytes, time_s)| Test {
                kind: Kind::Coexistence,
                time_s,
                ..main(metric, size_bytes, first, &tcp)
            }));
        }
        let curves = curves(arguments, first, &spinning);
        let frames = FRAMES.into_iter().filter(|&transport| has(transport));
        left_out.extend(frames.filter_map(|transport| too_long(transport, &curves, arguments.mtu())));
        tests.extend(curves);
        tests.retain(|test| !test.entries.is_empty());
        Plan { rounds, tests, left_out }
    }

    /// How long it takes, about, seconds.
    pub(crate) fn expected_s(&self) -> f64 {
        f64::from(self.rounds) * self.tests.iter().map(Test::round_s).sum::<f64>()
    }

    /// How many processes will be run one after the other.
    pub(crate) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.tests.iter().map(|test| test.entries.len() as u64).sum::<u64>()
    }
}

impl Test {
    /// How long a round of it takes, seconds.
    fn round_s(&self) -> f64 {
        let is_stream = matches!(self.metric, Metric::Bandwidth | Metric::Rate);
        let of = |entry: &Entry| {
            let begins_s = if self.kind == Kind::Long { LONG_S } else { STEP_S };
            // Streams of bare transports try several settings, each for half of the time.
            let times = match entry.transport {
                Transport::TcpSpin | Transport::TcpBlock if is_stream => 4.0,
                Transport::Udp | Transport::RawXdp if is_stream => 2.0,
                _ => 1.0,
            };
            begins_s + times * self.time_s * 1.2
        };
        self.entries.iter().map(of).sum()
    }
}

/// Tsumugi's other send paths, receive paths and waits, and why some of them are left out.
fn other_paths(missing: &Missing) -> (Vec<Entry>, Vec<String>) {
    let (xdp, packet) = (missing.xdp.as_ref(), missing.packet.as_ref());
    let mut entries = Vec::new();
    let paths = [("udp", "xdp"), ("packet", "xdp"), ("xsk", "xdp"), ("packet", "socket")];
    let possible = |(send_path, receive_path): &(&str, &str)| {
        (*receive_path != "xdp" || xdp.is_none()) && (*send_path == "udp" || packet.is_none())
    };
    entries.extend(paths.into_iter().filter(possible).map(|(send, receive)| Entry::ours(send, receive)));
    if possible(&("xsk", "xdp")) {
        entries.push(Entry { wait: BUSY_POLL, ..Entry::ours("xsk", "xdp") });
    }
    // Ours also with the default wait, which is what most programs will use.
    entries.push(Entry { wait: "adaptive", ..Entry::new(Transport::Tsumugi) });
    if xdp.is_none() {
        entries.push(Entry { wait: "adaptive", ..Entry::ours("udp", "xdp") });
    }
    let said = [("the XDP receive path", xdp), ("the send paths packet and xsk", packet)];
    let left_out =
        said.iter().filter_map(|(what, why)| Some(format!("tsumugi with {what}: {}", why.as_ref()?)));
    (entries, left_out.collect())
}

/// Whether an entry of the bandwidth section is in that with jumbo frames, too: the peers that must be beaten, and
/// what is expected to be best.
fn is_in_jumbo(entry: &Entry) -> bool {
    match entry.transport {
        Transport::TcpBlock | Transport::TcpSpin | Transport::RawXdp => true,
        Transport::Udp | Transport::RawWrite => false,
        Transport::Tsumugi => entry.is_base() || *entry == Entry::ours("packet", "xdp"),
    }
}

/// What has no counterpart elsewhere.
fn ours_only(offloads: bool, mtu_bytes: u32, time_s: f64) -> [Test; 3] {
    let ours = Entry::new(Transport::Tsumugi);
    let adaptive = Entry { wait: "adaptive", ..ours.clone() };
    let test = |kind, metric, size_bytes, time_s, entries| Test {
        kind,
        metric,
        size_bytes,
        offloads,
        mtu_bytes,
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
        mtu_bytes: arguments.mtu(),
        time_s: if arguments.quick { 0.05 } else { 0.1 },
        entries: entries
            .iter()
            // A bare datagram does not carry more, nor does a bare frame.
            .filter(|entry| {
                let most = match entry.transport {
                    Transport::Udp => crate::peers::udp::DATAGRAM_BYTES_MAX,
                    transport if transport.is_frames() => {
                        frames::payload_bytes_max(transport, arguments.mtu() as usize) as u64
                    }
                    _ => u64::MAX,
                };
                entry.transport.has(metric) && (metric == Metric::Bandwidth || size_bytes <= most)
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

/// Says which points of the curve of round trips a transport of bare frames has no part in.
fn too_long(transport: Transport, curves: &[Test], mtu: u32) -> Option<String> {
    let most = frames::payload_bytes_max(transport, mtu as usize);
    let sizes: Vec<String> = curves
        .iter()
        .filter(|test| test.metric == Metric::RoundTrip && test.size_bytes > most as u64)
        .map(|test| sizes::show(test.size_bytes))
        .collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "round trips of {} with {}: a bare frame carries at most {most} bytes",
            sizes.join(", "),
            transport.into_str()
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
        Plan::new(
            &Command::parse_from(["compare"].iter().chain(options)).arguments,
            true,
            &Missing::default(),
        )
    }

    fn names(test: &Test) -> Vec<String> {
        test.entries.iter().map(Entry::name).collect()
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
        let wires: Vec<(bool, u32)> = bandwidth.iter().map(|test| (test.offloads, test.mtu_bytes)).collect();
        assert_eq!(wires, [(true, 1500), (false, 1500), (false, 3494), (false, 9000)]);
        let bare = ["tcp-block", "tcp-spin", "udp", "raw-xdp, native", "raw-xdp, generic"];
        let writes = ["raw-write, native", "raw-write, generic"];
        let ours = [
            "tsumugi, spin",
            "tsumugi udp+xdp, spin",
            "tsumugi packet+xdp, spin",
            "tsumugi xsk+xdp, spin",
            "tsumugi packet+socket, spin",
            "tsumugi xsk+xdp, busy-poll",
            "tsumugi, adaptive",
            "tsumugi udp+xdp, adaptive",
            "tsumugi, spin, in place",
        ];
        assert_eq!(names(bandwidth[0]), [&bare, &ours[..]].concat());
        assert_eq!(names(bandwidth[0]), names(bandwidth[1]));
        let jumbo = ["tcp-block", "tcp-spin", "raw-xdp, native", "raw-xdp, generic", ours[0], ours[2]];
        assert_eq!(
            [names(bandwidth[2]), names(bandwidth[3])],
            [jumbo.map(str::to_owned), jumbo.map(str::to_owned)]
        );
        assert_eq!(names(&plan.tests[0]), [&bare, &writes[..], &ours[..8]].concat());
        let rate = plan.tests.iter().find(|test| test.metric == Metric::Rate).expect("rates");
        assert_eq!(names(rate), [&bare, &ours[..1]].concat());
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
        let small = plan.tests.iter().find(|test| test.kind == Kind::Curve).expect("a point");
        for path in [
            "tsumugi, spin",
            "tsumugi packet+xdp, spin",
            "tsumugi xsk+xdp, spin",
            "tsumugi xsk+xdp, busy-poll",
        ] {
            assert!(names(small).iter().any(|name| name == path), "{path}: {:?}", names(small));
        }
        assert!(names(small).iter().all(|name| !name.contains("adaptive")));
    }

    #[test]
    fn loopback_has_no_offloads() {
        let arguments = Command::parse_from(["compare", "--offloads", "both"]).arguments;
        let plan = Plan::new(&arguments, false, &Missing::default());
        assert!(plan.tests.iter().all(|test| test.offloads && test.mtu_bytes == 1500));
    }

    #[test]
    fn overlap_is_measured_for_both_receive_paths() {
        let plan = plan(&[]);
        let overlap = plan.tests.iter().find(|test| test.kind == Kind::Overlap).expect("overlap");
        assert_eq!((overlap.metric, overlap.size_bytes), (Metric::Overlap, 1 << 20));
        assert_eq!(names(overlap), ["tsumugi, spin", "tsumugi udp+xdp, spin"]);
    }

    #[test]
    fn tcp_is_measured_with_and_without_the_program() {
        let sections = |options: &[&str]| {
            let tests = plan(options).tests.into_iter().filter(|test| test.kind == Kind::Coexistence);
            tests.map(|test| (test.metric, names(&test))).collect::<Vec<_>>()
        };
        let tcp = ["tcp-spin, not attached", "tcp-spin, attached, idle", "tcp-spin, attached, busy"];
        let tcp: Vec<String> = tcp.map(str::to_owned).into();
        assert_eq!(sections(&[]), [(Metric::RoundTrip, tcp.clone()), (Metric::Bandwidth, tcp)]);
        assert!(sections(&["--transports", "tcp-spin,udp"]).is_empty(), "nobody asked about Tsumugi");
    }

    #[test]
    fn jumbo_frames_have_a_section_where_there_is_none_yet() {
        let sections = |options: &[&str]| {
            let tests = plan(options).tests.into_iter();
            tests.filter(|test| test.kind == Kind::Main && test.metric == Metric::Bandwidth).count()
        };
        assert_eq!(sections(&[]), 4);
        assert_eq!(sections(&["--mtu", "9000"]), 3);
        assert_eq!(sections(&["--offloads", "on"]), 1);
        assert_eq!(sections(&["--quick"]), 2);
        let udp = plan(&["--transports", "udp"]);
        assert!(udp.tests.iter().all(|test| test.mtu_bytes == 1500), "nothing of it has a jumbo row");
    }

    #[test]
    fn paths_that_are_missing_are_left_out_and_it_is_said_once() {
        let arguments = Command::parse_from(["compare"]).arguments;
        let xdp = Some("no program".to_owned());
        let missing = Missing { xdp: xdp.clone(), ..Missing::default() };
        let plan = Plan::new(&arguments, true, &missing);
        let all = || plan.tests.iter().flat_map(|test| &test.entries);
        assert!(all().all(|entry| !entry.is_attached()));
        assert!(all().any(|entry| *entry == Entry::ours("packet", "socket")));
        assert_eq!(plan.left_out, ["tsumugi with the XDP receive path: no program"]);
        let missing = Missing { xdp, packet: Some("no NIC".to_owned()), ..Missing::default() };
        let plan = Plan::new(&arguments, true, &missing);
        let mut ours = plan.tests.iter().flat_map(|test| &test.entries);
        assert!(ours.all(|entry| (entry.send, entry.receive) == ("udp", "socket")));
        assert_eq!(plan.left_out.len(), 2);
        let missing = Missing { packet: Some("no NIC".to_owned()), ..Missing::default() };
        let plan = Plan::new(&arguments, true, &missing);
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|entry| entry.send == "udp"));
        let arguments = Command::parse_from(["compare", "--transports", "udp"]).arguments;
        assert!(Plan::new(&arguments, true, &missing).left_out.is_empty(), "nobody asked for it");
    }

    #[test]
    fn bare_frames_are_left_out_where_they_cannot_be_and_it_is_said() {
        let arguments = Command::parse_from(["compare"]).arguments;
        let missing = Missing { raw: Some("no program".to_owned()), ..Missing::default() };
        let plan = Plan::new(&arguments, true, &missing);
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|entry| !entry.transport.is_frames()));
        assert_eq!(plan.left_out, ["raw-xdp: no program", "raw-write: no program"]);
        let arguments = Command::parse_from(["compare", "--transports", "udp"]).arguments;
        assert!(Plan::new(&arguments, true, &missing).left_out.is_empty(), "nobody asked for it");
    }

    #[test]
    fn bare_frames_have_no_part_in_what_does_not_fit_the_mtu() {
        let plan = plan(&["--sizes", "1K,4K,64K", "--mtu", "1500"]);
        let count = |transport, metric, size_bytes| {
            let is_point = |test: &&Test| test.metric == metric && test.size_bytes == size_bytes;
            let mut points = plan.tests.iter().filter(|test| test.kind == Kind::Curve).filter(is_point);
            let point = points.next().expect("a point");
            point.entries.iter().filter(|entry| entry.transport == transport).count()
        };
        for (transport, streams) in [(Transport::RawXdp, 2), (Transport::RawWrite, 0)] {
            let counts = |metric| [1 << 10, 4 << 10, 64 << 10].map(|size| count(transport, metric, size));
            assert_eq!(counts(Metric::RoundTrip), [2, 0, 0]);
            assert_eq!(counts(Metric::Bandwidth), [streams; 3]);
        }
        assert_eq!(
            plan.left_out,
            [
                "round trips of 4 KiB, 64 KiB with raw-xdp: a bare frame carries at most 1500 bytes",
                "round trips of 4 KiB, 64 KiB with raw-write: a bare frame carries at most 1490 bytes"
            ]
        );
    }

    #[test]
    fn writes_without_a_protocol_make_round_trips_only() {
        let plan = plan(&["--transports", "raw-write", "--sizes", "64,1K"]);
        let sections: Vec<_> = plan.tests.iter().map(|test| (test.kind, test.metric)).collect();
        assert_eq!(sections, [(Kind::Main, Metric::RoundTrip), (Kind::Curve, Metric::RoundTrip)]);
    }

    #[test]
    fn only_the_chosen_transports() {
        let plan = plan(&["--transports", "udp,tcp-spin", "--offloads", "off"]);
        assert!(plan.tests.iter().flat_map(|test| &test.entries).all(|e| e.transport != Transport::Tsumugi));
        assert!(plan.tests.iter().all(|test| !test.offloads));
        assert_eq!(plan.steps(), 5 * 2 * 3);
    }
}
