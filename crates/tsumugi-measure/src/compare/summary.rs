//! What a comparison says, in a few sentences: where Tsumugi is ahead on this machine, and where it is not.

use super::entry::Entry;
use super::plan::FAULTS;
use super::results::{Measured, Results, Series};
use super::test::Kind;
use crate::machine::Machine;
use crate::peers::Transport;
use crate::report::words::{MEASURE_AGAIN, busy, choice, place, verdict};
use crate::report::{page, units};
use crate::row::Metric;
use crate::sizes;
use crate::statistics::median;

/// What stands above them.
pub(crate) const HEADING: &str = page::SUMMARY;

/// Rounds that differ by more than this share of their median are hardly comparable.
const WIDE: f64 = 0.3;

/// Paragraphs; none where Tsumugi was not measured.
pub(crate) fn paragraphs(results: &Results, machine: &Machine) -> Vec<String> {
    let of_all = [today(results, machine), round_trips(results), streams(results), rest(results)];
    let mut paragraphs: Vec<String> =
        of_all.into_iter().filter(|sentences| !sentences.is_empty()).map(|it| it.join(" ")).collect();
    let remarks = remarks(results, machine);
    if !paragraphs.is_empty() && !remarks.is_empty() {
        paragraphs.push(remarks.join(" "));
    }
    paragraphs
}

/// What programs have on this machine today, over TCP, and what they would have: with the waits that are usual.
fn today(results: &Results, machine: &Machine) -> Vec<String> {
    let adaptive = Entry { wait: "adaptive", ..Entry::new(Transport::Tsumugi) };
    let by_xdp = |entry: &Entry| entry.uses_xdp() && entry.wait == "adaptive";
    let short = main(results, Metric::RoundTrip).next().and_then(|measured| {
        let tcp = named(measured, &Entry::new(Transport::TcpBlock))?;
        Some((measured, tcp, named(measured, &adaptive)?, best(measured, by_xdp)))
    });
    let long = main(results, Metric::Bandwidth)
        .next()
        .and_then(|measured| Some((measured, best(measured, is_tcp)?, best(measured, is_ours)?)));
    let sentences = short.zip(long).and_then(|((round_trip, tcp, ours, by_xdp), (stream, tcp_long, ours_long))| {
        let (size, size_long) = (sizes::show(round_trip.test.size_bytes), sizes::show(stream.test.size_bytes));
        let now = format!(
            "Today, over TCP, the answer to a message of {size} comes after {}, and messages of {size_long} pass at {}.",
            time(tcp)?,
            bandwidth(tcp_long)?
        );
        let up = by_xdp.and_then(time).map(|time| format!(", or after {time} once root has run `tsumugi up`"));
        let then = format!(
            "Over Tsumugi the answer would come after {}{}, and the messages would pass at {}.",
            time(ours)?,
            up.unwrap_or_default(),
            bandwidth(ours_long)?
        );
        let faster = (faster(round_trip, ours, tcp), faster(stream, ours_long, tcp_long));
        Some(vec![now, then, choice(faster.0, faster.1)?, place(machine)])
    });
    sentences.unwrap_or_default()
}

/// What a short message takes.
fn round_trips(results: &Results) -> Vec<String> {
    let Some(measured) = main(results, Metric::RoundTrip).next() else { return Vec::new() };
    let tcp = named(measured, &Entry::new(Transport::TcpSpin));
    let size = sizes::show(measured.test.size_bytes);
    let base = named(measured, &Entry::new(Transport::Tsumugi)).and_then(|ours| {
        let takes =
            format!("A {size} round trip takes {} without privileges, over a UDP socket.", time(ours)?);
        let tcp = tcp.and_then(|tcp| {
            let verdict = verdict(faster(measured, ours, tcp)?);
            Some(format!(" TCP takes {} on the same wire, spinning too: {verdict}.", time(tcp)?))
        });
        Some(takes + &tcp.unwrap_or_default())
    });
    let by_xdp = best(measured, |entry| entry.uses_xdp() && entry.wait == "spin").and_then(|ours| {
        let Entry { send: send_path, receive: receive_path, .. } = ours.entry;
        let takes = format!(
            "With the XDP program in the NIC's driver ({send_path}+{receive_path}) it takes {}",
            time(ours)?
        );
        let tcp = tcp.and_then(|tcp| Some(format!(": {}", verdict(faster(measured, ours, tcp)?))));
        Some(takes + &tcp.unwrap_or_default() + ".")
    });
    let adaptive = Entry { wait: "adaptive", ..Entry::new(Transport::Tsumugi) };
    let asleep = named(measured, &adaptive).and_then(|ours| {
        let tcp = named(measured, &Entry::new(Transport::TcpBlock))?;
        let verdict = verdict(faster(measured, ours, tcp)?);
        Some(format!(
            "In all of these both sides spin. With the default wait it takes {}, and TCP with blocking calls {}: {verdict}.",
            time(ours)?,
            time(tcp)?
        ))
    });
    let floor = [
        (Transport::Udp, "a bare UDP socket"),
        (Transport::RawXdp, "bare frames through AF_XDP"),
        (Transport::RawWrite, "bare writes through a packet socket"),
    ];
    let floor = floor.into_iter().filter_map(|(transport, name)| {
        let bare = best(measured, |entry| entry.transport == transport)?;
        Some(format!("{name} {}", time(bare)?))
    });
    let floor: Vec<String> = floor.collect();
    let bare = (base.is_some() && !floor.is_empty())
        .then(|| format!("Without any protocol, so that messages may be lost: {}.", floor.join(", ")));
    [base, by_xdp, asleep, bare].into_iter().flatten().collect()
}

/// Bandwidth on each wire, and the rate.
fn streams(results: &Results) -> Vec<String> {
    let bandwidth = main(results, Metric::Bandwidth).filter_map(|measured| {
        let test = &measured.test;
        let ours = best(measured, is_ours)?;
        let is_plain = results.of(Kind::Main).all(|other| other.test.offloads);
        let wire = match (is_plain, test.offloads) {
            (true, _) => String::new(),
            (_, true) => " with the NICs' offloads".to_owned(),
            (_, false) => format!(" without offloads at MTU {}", test.mtu_bytes),
        };
        let carried =
            format!("Messages of {} are carried at {}{wire}", sizes::show(test.size_bytes), bandwidth(ours)?);
        let tcp = best(measured, is_tcp).and_then(|tcp| {
            Some(format!(", by TCP at {}: {}", bandwidth(tcp)?, verdict(faster(measured, ours, tcp)?)))
        });
        Some(carried + &tcp.unwrap_or_default() + ".")
    });
    let rate = main(results, Metric::Rate).filter_map(|measured| {
        let ours = best(measured, is_ours)?;
        let size = sizes::show(measured.test.size_bytes);
        let sends = format!("One thread sends {} messages of {size} a second", count(value(ours)?));
        let tcp = best(measured, is_tcp).and_then(|tcp| {
            let verdict = verdict(faster(measured, ours, tcp)?);
            Some(format!(", over TCP {}: {verdict}", count(value(tcp)?)))
        });
        Some(sends + &tcp.unwrap_or_default() + ".")
    });
    bandwidth.chain(rate).collect()
}

/// What was measured of Tsumugi alone.
fn rest(results: &Results) -> Vec<String> {
    let overlap = results.of(Kind::Overlap).next().and_then(|measured| {
        let size = sizes::show(measured.test.size_bytes);
        let hidden = |is: fn(&Entry) -> bool| {
            Some(units::percent(value(measured.series.iter().find(|series| is(&series.entry))?)?))
        };
        let socket = format!(
            "While the receiver computes, {} of a transfer of {size} goes on by itself",
            hidden(Entry::is_base)?
        );
        let by_xdp = hidden(Entry::uses_xdp).map(|share| format!(", and {share} with the XDP program"));
        Some(socket + &by_xdp.unwrap_or_default() + ".")
    });
    let faults = results.of(Kind::Faults).next().and_then(|measured| {
        let faulty = measured.series.iter().find(|it| it.entry.faults && it.entry.repeat == "selective")?;
        let kept = units::percent(faulty.ratio_to(measured.base()?)?);
        Some(format!(
            "With packets lost, duplicated and reordered ({FAULTS}), {kept} of the bandwidth is left."
        ))
    });
    let idle = results.of(Kind::Idle).next().and_then(|measured| {
        let share = value(measured.series.first()?)?;
        Some(format!("An endpoint that waits for messages takes {:.2} % of a core.", share * 100.0))
    });
    [overlap, faults, idle].into_iter().flatten().collect()
}

/// How far the figures can be trusted.
fn remarks(results: &Results, machine: &Machine) -> Vec<String> {
    let mut remarks = Vec::new();
    if machine.wire == "loopback" {
        remarks.push(
            "This was measured over loopback; root measures between two hosts on this machine.".to_owned(),
        );
    }
    let spreads =
        results.of(Kind::Main).flat_map(|measured| &measured.series).filter_map(|it| it.row().spread);
    let spread = spreads.max_by(f64::total_cmp).filter(|&spread| spread > WIDE);
    if let Some(spread) = spread {
        let by = if spread > 1.0 {
            "more than 100 %".to_owned()
        } else {
            format!("up to {:.0} %", spread * 100.0)
        };
        remarks.push(format!("Rounds differ by {by}."));
    }
    let busy = busy(machine);
    let is_unsure = spread.is_some() || busy.is_some();
    remarks.extend(busy);
    if is_unsure {
        remarks.push(MEASURE_AGAIN.to_owned());
    }
    remarks
}

fn main(results: &Results, metric: Metric) -> impl Iterator<Item = &Measured> {
    results.of(Kind::Main).filter(move |measured| measured.test.metric == metric)
}

fn is_ours(entry: &Entry) -> bool {
    entry.transport == Transport::Tsumugi
}

fn is_tcp(entry: &Entry) -> bool {
    matches!(entry.transport, Transport::TcpBlock | Transport::TcpSpin)
}

fn named<'a>(measured: &'a Measured, entry: &Entry) -> Option<&'a Series> {
    measured.series.iter().find(|series| series.entry == *entry)
}

/// The best of a kind, by its median.
fn best(measured: &Measured, is: impl Fn(&Entry) -> bool) -> Option<&Series> {
    let of_kind = measured.series.iter().filter(|series| is(&series.entry));
    let valued = of_kind.filter_map(|series| Some((series, value(series)?)));
    let best = match measured.test.metric {
        Metric::RoundTrip => valued.min_by(|(_, a), (_, b)| a.total_cmp(b)),
        _ => valued.max_by(|(_, a), (_, b)| a.total_cmp(b)),
    };
    best.map(|(series, _)| series)
}

/// Median over the rounds.
fn value(series: &Series) -> Option<f64> {
    median(series.rounds.iter().filter_map(|row| row.value()))
}

fn time(series: &Series) -> Option<String> {
    value(series).map(units::time)
}

fn bandwidth(series: &Series) -> Option<String> {
    value(series).map(units::bandwidth)
}

/// `15.4 million`, `353 thousand`.
fn count(number: f64) -> String {
    match number {
        number if number >= 999.5e3 => format!("{} million", units::three_digits(number / 1e6)),
        number if number >= 999.5 => format!("{} thousand", units::three_digits(number / 1e3)),
        number => units::three_digits(number),
    }
}

/// How many times as fast ours is, median of the ratios within each round.
fn faster(measured: &Measured, ours: &Series, other: &Series) -> Option<f64> {
    match measured.test.metric {
        Metric::RoundTrip => other.ratio_to(ours),
        _ => ours.ratio_to(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Arguments;
    use crate::compare::plan::Plan;
    use crate::compare::results::samples;
    use crate::compare::test::Missing;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn summary(options: &[&str], in_lab: bool, machine: &Machine) -> Vec<String> {
        let arguments = Command::parse_from(["compare"].iter().chain(options)).arguments;
        let why = || (!in_lab).then(|| "no NIC".to_owned());
        let missing = Missing { raw: why(), xdp: why(), packet: why(), memory_bytes: None };
        paragraphs(&samples::results(&Plan::new(&arguments, in_lab, &missing)), machine)
    }

    #[test]
    fn everything_that_was_measured_is_told() {
        let paragraphs = summary(&[], true, &Machine::default());
        assert_eq!(paragraphs.len(), 4, "{paragraphs:?}");
        assert_eq!(
            paragraphs[0],
            "Today, over TCP, the answer to a message of 64 B comes after 84.0 µs, and messages of 1 MiB pass at 37.9 Gb/s. \
             Over Tsumugi the answer would come after 4.42 µs, or after 1.69 µs once root has run `tsumugi up`, and the \
             messages would pass at 142 Gb/s. For short messages and for long ones Tsumugi is faster. Measured between nodes \
             made of network namespaces on this machine, which share its CPUs; separate hosts give other figures."
        );
        assert_eq!(
            paragraphs[1],
            "A 64 B round trip takes 4.21 µs without privileges, over a UDP socket. TCP takes 6.31 µs on the same wire, \
             spinning too: Tsumugi is 1.50 times as fast as TCP. With the XDP program in the NIC's driver (udp+xdp) it takes 1.69 µs: \
             Tsumugi is 3.74 times as fast as TCP. In all of these both sides spin. With the default wait it takes \
             4.42 µs, and TCP with blocking calls 84.0 µs: Tsumugi is 19.0 times as fast as TCP. Without any protocol, \
             so that messages may be lost: a bare UDP socket 3.79 µs, bare frames through AF_XDP 2.53 µs, bare writes \
             through a packet socket 1.48 µs."
        );
        for words in [
            "with the NICs' offloads, by TCP",
            "without offloads at MTU 9000",
            "million messages of 8 B a second",
        ] {
            assert!(paragraphs[2].contains(words), "{words}: {}", paragraphs[2]);
        }
        for words in ["98.0 % with the XDP program", "80.0 % of the bandwidth", "0.20 % of a core"] {
            assert!(paragraphs[3].contains(words), "{words}: {}", paragraphs[3]);
        }
    }

    #[test]
    fn loopback_and_load_are_told() {
        let machine = Machine { wire: "loopback".into(), load_average: 7.9, cpus: 2, ..Machine::default() };
        let paragraphs = summary(&[], false, &machine);
        let all = paragraphs.join("\n");
        assert!(!all.contains("xdp") && !all.contains("XDP") && !all.contains("offloads"), "{all}");
        let last = paragraphs.last().expect("remarks");
        assert!(last.contains("over loopback") && last.contains("load average 7.9 on 2 CPUs"), "{last}");
    }

    #[test]
    fn rounds_that_differ_are_told() {
        let arguments = Command::parse_from(["compare"]).arguments;
        let mut results = samples::results(&Plan::new(&arguments, true, &Missing::default()));
        assert!(remarks(&results, &Machine::default()).is_empty());
        let mut said = |p50_ns: [f64; 2]| {
            for (row, p50_ns) in results.tests[0].series[0].rounds.iter_mut().zip(p50_ns) {
                row.p50_ns = Some(p50_ns);
            }
            remarks(&results, &Machine::default()).join(" ")
        };
        let quiet = "Measure on a quiet machine before you rely on the figures.";
        assert_eq!(said([3e3, 5e3]), format!("Rounds differ by up to 50 %. {quiet}"));
        assert_eq!(said([1.0, 5e3]), format!("Rounds differ by more than 100 %. {quiet}"));
    }

    #[test]
    fn alone_it_is_compared_with_nothing() {
        let all = summary(&["--transports", "tsumugi"], true, &Machine::default()).join("\n");
        assert!(
            all.contains("A 64 B round trip takes 4.21 µs without privileges, over a UDP socket."),
            "{all}"
        );
        assert!(!all.contains("TCP") && !all.contains("bare"), "{all}");
        assert!(summary(&["--transports", "udp,tcp-spin"], true, &Machine::default()).is_empty());
    }
}
