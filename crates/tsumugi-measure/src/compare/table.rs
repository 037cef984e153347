//! The comparison as one page of text.

use std::fmt::Write;

use super::Comparison;
use super::plan::FAULTS;
use super::results::{Measured, Results};
use super::summary;
use super::test::{Kind, Test};
use crate::costs;
use crate::machine::utc;
use crate::ratio;
use crate::report::columns::{Columns, without_empty};
use crate::report::units;
use crate::row::{Metric, Row};
use crate::sizes;

/// The whole page.
pub(super) fn text(results: &Results, comparison: &Comparison) -> String {
    let mut page = comparison.measured.header() + "\n";
    for measured in results.tests.iter().filter(|measured| measured.test.kind != Kind::Curve) {
        let (header, rows) = section(measured);
        let mut columns = Columns::new(&header);
        for row in rows {
            columns.row(row);
        }
        let _ = writeln!(page, "{}\n{columns}", title(&measured.test));
    }
    if let Some(costs) = &comparison.costs {
        let _ = writeln!(page, "{}", costs::table::text(costs));
    }
    let machine = &comparison.machine;
    let mtu = machine.mtu_bytes.map_or(String::new(), |bytes| format!(", MTU {bytes}"));
    let _ = writeln!(
        page,
        "Ratios are to Tsumugi with the spinning wait (send path udp, receive path socket), those of long tagged messages to the \
         shortest: medians of the ratio within each round."
    );
    let _ = writeln!(
        page,
        "{}; {}{mtu}; load average {:.1} before; {}",
        machine.line(),
        machine.wire,
        machine.load_average,
        utc(machine.time_unix_s)
    );
    if !comparison.summary.is_empty() {
        let paragraphs: Vec<String> = comparison.summary.iter().map(|text| wrapped(text)).collect();
        let _ = write!(page, "\n{}\n\n{}", summary::HEADING, paragraphs.join("\n"));
    }
    page
}

/// Most characters of a line of prose.
const PROSE_CHARS_MAX: usize = 96;

/// Lines of whole words; a number and its unit stay together.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        let is_number = word.parse::<f64>().is_ok();
        let unit = is_number.then(|| words.next()).flatten();
        let word = unit.map_or_else(|| word.to_owned(), |unit| format!("{word} {unit}"));
        let line = lines.last_mut().expect("one from the start");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > PROSE_CHARS_MAX {
            lines.push(word);
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
    }
    lines.join("\n") + "\n"
}

/// The heading of a test.
pub(crate) fn title(test: &Test) -> String {
    let offloads = if test.offloads { "offloads on" } else { "offloads off" };
    let mtu = test.mtu_bytes;
    match (test.kind, test.metric) {
        (Kind::Faults, _) => {
            format!("Bandwidth of {} messages with faults injected ({FAULTS})", sizes::show(test.size_bytes))
        }
        (Kind::Overlap, _) => {
            format!(
                "Transfer of {} messages hidden behind computation, {offloads}",
                sizes::show(test.size_bytes)
            )
        }
        (Kind::Coexistence, metric) => {
            let what = if metric == Metric::RoundTrip { "round trip" } else { "bandwidth" };
            let size = sizes::show(test.size_bytes);
            format!("TCP through NICs with the XDP program: {what} of {size}, {offloads}")
        }
        (Kind::Idle, _) => "CPU time of an endpoint that waits".to_owned(),
        (Kind::Pairs, _) => {
            "Four processes, two pairs, on two cores, adaptive wait: 64 B round trips".to_owned()
        }
        (Kind::Writes, _) => {
            format!(
                "Remote writes beside messages: round trip of {}, {offloads}",
                sizes::show(test.size_bytes)
            )
        }
        (Kind::Long, _) => format!("Bandwidth of long tagged messages, {offloads}"),
        (_, Metric::RoundTrip) => format!("Round trip of {}, {offloads}", sizes::show(test.size_bytes)),
        (_, Metric::Rate) => format!("Rate of {} messages, {offloads}", sizes::show(test.size_bytes)),
        _ => format!("Bandwidth of {} messages, {offloads}, MTU {mtu}", sizes::show(test.size_bytes)),
    }
}

/// Header and cells of a test, without columns that have nothing to say.
pub(crate) fn section(measured: &Measured) -> (Vec<String>, Vec<Vec<String>>) {
    let metric = measured.test.metric;
    let heading = |what: &str| metric.better().heading(what);
    let [ratio, of_clean, of_not_attached] = ["ratio", "of clean", "of not attached"].map(heading);
    let header: &[&str] = match (measured.test.kind, measured.test.metric) {
        (Kind::Faults, _) => &["transport", "bandwidth", &of_clean, "spread"],
        (Kind::Overlap, _) => &["transport", "overlap", "transfer", "computation", "both", "spread"],
        (Kind::Coexistence, Metric::RoundTrip) => {
            &["transport", "p50", "p99", "p99.9", "spread", &of_not_attached]
        }
        (Kind::Coexistence, _) => {
            &["transport", "bandwidth", "CPU per KiB", "spread", &of_not_attached, "best with"]
        }
        (Kind::Idle, _) => &["transport", "share of a core"],
        (Kind::Pairs, _) => &["pair", "round trips/s", "p50", "p99", "spread"],
        (_, Metric::RoundTrip) => &["transport", "p50", "p99", "p99.9", "spread", &ratio],
        (_, Metric::Rate) => &["transport", "messages/s", "spread", &ratio, "best with"],
        _ => &["transport", "bandwidth", "CPU per KiB", "spread", &ratio, "best with"],
    };
    let rows = measured.rows().into_iter().enumerate();
    let cells = rows.map(|(index, row)| cells(measured, index, &row)).collect();
    without_empty(header.iter().map(|&text| text.to_owned()).collect(), cells)
}

fn cells(measured: &Measured, index: usize, row: &Row) -> Vec<String> {
    let entry = &measured.series[index].entry;
    let text = |figure: Option<f64>, show: fn(f64) -> String| figure.map_or(String::new(), show);
    let spread = text(row.spread, units::percent);
    let ratio = ratio::or_empty(row.ratio);
    let setting = row.setting.clone().unwrap_or_default();
    match (measured.test.kind, measured.test.metric) {
        (Kind::Faults, _) => {
            let name = format!("{}, {}", entry.repeat, if entry.faults { "faults" } else { "clean" });
            vec![name, text(row.gbit_s, units::bandwidth), text(row.ratio, units::percent), spread]
        }
        (Kind::Overlap, _) => vec![
            entry.name(),
            text(row.overlap, units::percent),
            text(row.transfer_ns, units::time),
            text(row.compute_ns, units::time),
            text(row.both_ns, units::time),
            spread,
        ],
        (Kind::Idle, _) => vec![entry.name(), text(row.cpu_share, |share| format!("{:.2} %", share * 100.0))],
        (Kind::Pairs, _) => vec![
            (index + 1).to_string(),
            text(row.per_s, units::rate),
            text(row.p50_ns, units::time),
            text(row.p99_ns, units::time),
            spread,
        ],
        (_, Metric::RoundTrip) => vec![
            entry.name(),
            text(row.p50_ns, units::time),
            text(row.p99_ns, units::time),
            text(row.p999_ns, units::time),
            spread,
            ratio,
        ],
        (_, Metric::Rate) => vec![entry.name(), text(row.per_s, units::rate), spread, ratio, setting],
        _ => vec![
            entry.name(),
            text(row.gbit_s, units::bandwidth),
            text(row.cpu_ns_per_kib, units::time),
            spread,
            ratio,
            setting,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Arguments;
    use crate::compare::plan::Plan;
    use crate::compare::results::samples;
    use crate::compare::test::Missing;
    use crate::machine::Machine;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let text = "x".repeat(PROSE_CHARS_MAX - 6) + " 12.6 µs: good";
        assert_eq!(wrapped(&text).lines().nth(1), Some("12.6 µs: good"));
    }

    #[test]
    fn the_page_has_every_section_and_a_summary() {
        let plan = Plan::new(
            &Command::parse_from(["compare", "--sizes", "8..1K"]).arguments,
            true,
            &Missing::default(),
        );
        let results = samples::results(&plan);
        let machine = Machine::default();
        let comparison = Comparison {
            rows: results.rows(),
            summary: summary::paragraphs(&results, &machine),
            measured: crate::conditions::Conditions::rounds(2, 0.3),
            machine,
            costs: Some(crate::costs::samples::report(650.0)),
        };
        let page = text(&results, &comparison);
        for line in [
            "2 rounds × 0.3 s",
            "ratio (lower is better)",
            "ratio (higher is better)",
            "Round trip of 64 B, offloads on",
            "Bandwidth of 1 MiB messages, offloads on",
            "Bandwidth of 1 MiB messages, offloads off, MTU 1500",
            "Bandwidth of 1 MiB messages, offloads off, MTU 3494",
            "Bandwidth of 1 MiB messages, offloads off, MTU 9000",
            "Remote writes beside messages: round trip of 1 KiB, offloads on",
            "tsumugi, spin, tagged messages, in place, 1 GiB",
            "tsumugi udp+xdp, spin",
            "TCP through NICs with the XDP program: bandwidth of 1 MiB, offloads on",
            "tcp-spin, attached, busy",
            "Transfer of 1 MiB messages hidden behind computation, offloads on",
            "tsumugi packet+socket, spin",
            "Rate of 8 B messages, offloads on",
            "go-back-n, faults",
            "tsumugi, adaptive",
            "share of a core",
            "half of a round trip",
        ] {
            assert!(page.contains(line), "{line} is missing in\n{page}");
        }
        assert!(!page.contains("Round trip of 8 B"), "curves belong into the report");
        assert!(!page.contains("NOT MET"), "{page}");
        let (_, said) = page.split_once(summary::HEADING).expect("a summary");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(said), words(&comparison.summary.join(" ")));
        assert!(said.lines().all(|line| line.chars().count() <= PROSE_CHARS_MAX), "{said}");
        let udp = page.lines().find(|line| line.starts_with("udp")).expect("udp");
        assert!(udp.ends_with("0.90 ×"), "{udp}");
    }
}
