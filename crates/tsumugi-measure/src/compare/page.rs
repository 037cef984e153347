//! The report of a comparison.

use tsumugi_rail::xdp::Mode;

use crate::compare::entry::{BUSY_POLL, Entry};
use crate::compare::results::{Measured, Results};
use crate::compare::test::Kind;
use crate::compare::{Comparison, table};
use crate::costs::{Report, table as costs_table};
use crate::machine::utc;
use crate::peers::Transport;
use crate::report::html::Figure;
use crate::report::page::{Page, Table, section, tables};
use crate::report::plot::{Line, Plot};
use crate::report::quantity::Quantity;
use crate::row::Metric;
use crate::sizes;

/// The whole page.
pub(crate) fn page(results: &Results, comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let mtu = machine.mtu_bytes.map_or(String::new(), |bytes| format!(", MTU {bytes}"));
    let page = Page {
        title: "Tsumugi beside TCP and UDP",
        subtitle: format!("{}, over {}{mtu}, on {}", utc(machine.time_unix_s), machine.wire, machine.host),
        summary: &comparison.summary,
        body: curves(results) + &figures(results, comparison),
        method: &method(comparison, results),
        measured: &comparison.measured,
        machine,
        data_id: "comparison",
        data: comparison,
    };
    page.html()
}

fn curves(results: &Results) -> String {
    let latency = ("Round trip", "round trip, median", Quantity::Time);
    let bandwidth = ("Bandwidth", "bandwidth", Quantity::Bandwidth);
    let curves = [(Metric::RoundTrip, latency), (Metric::Bandwidth, bandwidth)];
    let curves = curves.into_iter().filter_map(|(metric, shown)| curve(results, metric, shown));
    section("Against message size", "", curves)
}

/// Everything as tables.
fn figures(results: &Results, comparison: &Comparison) -> String {
    let tests = results.tests.iter().filter(|measured| measured.test.kind != Kind::Curve).map(|measured| {
        let (header, rows) = table::section(measured);
        let marks = measured.series.iter().map(|series| Some(class(&series.entry)));
        (table::title(&measured.test), Table { header, rows: rows.into_iter().zip(marks).collect() })
    });
    tables("Figures", &[], tests) + &comparison.costs.as_ref().map_or(String::new(), costs)
}

/// Where the time of a short message goes.
fn costs(report: &Report) -> String {
    let (header, rows) = costs_table::section(report);
    let table = Table::plain(header, rows);
    tables(&costs_table::title(report), &costs_table::remarks(report), [(String::new(), table)].into_iter())
}

/// How it was measured, and on what.
fn method(comparison: &Comparison, results: &Results) -> String {
    let rounds = comparison.rows.iter().filter_map(|row| row.rounds).max().unwrap_or(0);
    let count = results.tests.iter().map(|measured| measured.series.len()).sum::<usize>();
    format!(
        "{count} measurements in {rounds} rounds. A round runs every transport once, in an order that rotates from round \
         to round, each in fresh processes pinned to different CPUs. Figures are medians over the rounds; the spread is \
         (largest − smallest) / median. A ratio is the median over the rounds of (transport / Tsumugi with the spinning \
         wait, send path udp and receive path socket) within a round: for times more than 1 means slower than Tsumugi, \
         for bandwidth and rate more than 1 means faster. TCP is shown at its best of several write sizes and socket \
         buffers, UDP with segmentation offload."
    )
}

/// A plot of one metric over all sizes, with its figures folded away below it.
fn curve(
    results: &Results,
    metric: Metric,
    (title, y_label, quantity): (&str, &str, Quantity),
) -> Option<Figure> {
    let curves: Vec<&Measured> =
        results.of(Kind::Curve).filter(|point| point.test.metric == metric).collect();
    let first = &curves.first()?.test;
    let wire = (first.offloads, first.mtu_bytes);
    let mut points = curves;
    points.extend(
        results
            .of(Kind::Main)
            .filter(|main| main.test.metric == metric && (main.test.offloads, main.test.mtu_bytes) == wire),
    );
    points.sort_by_key(|point| point.test.size_bytes);
    let mut entries: Vec<&Entry> = Vec::new();
    for series in points.iter().filter(|point| point.test.kind == Kind::Curve).flat_map(|point| &point.series)
    {
        if !entries.contains(&&series.entry) {
            entries.push(&series.entry);
        }
    }
    let value = |point: &Measured, entry: &Entry| {
        point.series.iter().find(|series| series.entry == *entry)?.row().value().filter(|&value| value > 0.0)
    };
    let lines = entries.iter().map(|entry| Line {
        name: entry.name(),
        class: class(entry),
        points: points
            .iter()
            .filter_map(|point| Some((point.test.size_bytes as f64, value(point, entry)?)))
            .collect(),
    });
    let figure = Plot { title, y_label, quantity, lines: lines.collect() }.figure()?;
    let mut header = vec!["size".to_owned()];
    header.extend(entries.iter().map(|entry| entry.name()));
    let rows = points.iter().map(|point| {
        let mut cells = vec![sizes::show(point.test.size_bytes)];
        let show = |value| quantity.show(value);
        cells.extend(entries.iter().map(|entry| value(point, entry).map_or("–".to_owned(), show)));
        cells
    });
    Some(figure.with_table(Table::plain(header, rows).html()))
}

/// The mark of a transport, the same in plots and tables.
fn class(entry: &Entry) -> &'static str {
    let is_generic = entry.mode == Some(Mode::Generic);
    match entry.transport {
        Transport::TcpBlock => "tcp-block",
        Transport::TcpSpin => "tcp-spin",
        Transport::Udp => "udp",
        Transport::RawXdp if is_generic => "raw-xdp-generic",
        Transport::RawXdp => "raw-xdp",
        Transport::RawWrite if is_generic => "raw-write-generic",
        Transport::RawWrite => "raw-write",
        Transport::Tsumugi if entry.wait == BUSY_POLL => "ours-busy-poll",
        Transport::Tsumugi => match (entry.send, entry.receive) {
            ("udp", "xdp") => "ours-udp-xdp",
            ("packet", "xdp") => "ours-packet-xdp",
            ("xsk", _) => "ours-xsk-xdp",
            ("packet", _) => "ours-packet",
            _ => "ours",
        },
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! A page as a comparison would give it.

    use super::*;
    use crate::compare::plan::Plan;
    use crate::compare::results::samples;
    use crate::compare::test::Missing;
    use crate::compare::{Arguments, summary};
    use crate::machine::Machine;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// What `compare` with these options writes.
    pub(crate) fn page(options: &[&str]) -> String {
        let arguments = Command::parse_from(["compare"].iter().chain(options)).arguments;
        let results = samples::results(&Plan::new(&arguments, true, &Missing::default()));
        let (host, wire) = ("a <b> & \"c\"".into(), "lab (veth)".into());
        let machine = Machine { host, wire, mtu_bytes: Some(1500), ..Machine::here() };
        let costs = Some(crate::costs::samples::report(1000.0));
        let summary = summary::paragraphs(&results, &machine);
        let (rows, measured) = (results.rows(), crate::conditions::samples::measured());
        super::page(&results, &Comparison { rows, measured, machine, summary, costs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::marks::assert_told_apart;

    #[test]
    fn the_page_is_well_formed() {
        let page = samples::page(&["--sizes", "8..1M"]);
        let text = page.strip_prefix("<!DOCTYPE html>\n").expect("an HTML document");
        let document = roxmltree::Document::parse(text).expect("well-formed");
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        assert_eq!((count("figure"), page.matches("class=\"plot\"").count()), (2, 2));
        assert_eq!(count("h3"), 15);
        assert!(page.contains(">program (protocol)</td>") && page.contains("DOES NOT ADD UP"), "{page}");
        let data = document.descendants().find(|node| node.has_tag_name("script")).expect("the data");
        let json: serde_json::Value = serde_json::from_str(data.text().unwrap_or("")).expect("JSON");
        assert_eq!(json["machine"]["host"], "a <b> & \"c\"");
        let said: Vec<&str> =
            json["summary"].as_array().expect("a summary").iter().filter_map(|it| it.as_str()).collect();
        assert!(
            said[0].starts_with("Today, over TCP, the answer to a message of 64 B comes after"),
            "{said:?}"
        );
        let summary = document.descendants().find(|node| node.attribute("class") == Some("summary"));
        let shown = summary.expect("a summary").descendants().filter(|node| node.has_tag_name("p"));
        let shown: Vec<String> = shown
            .map(|node| node.descendants().filter_map(|it| it.is_text().then(|| it.text())?).collect())
            .collect();
        assert_eq!(shown.join(" ").replace('\u{a0}', " "), said.join(" ").replace('`', ""));
    }

    #[test]
    fn without_curves_there_are_tables_only() {
        let page = samples::page(&[]);
        assert!(!page.contains("class=\"plot\"") && page.contains("<table"));
    }

    #[test]
    fn transports_can_be_told_apart_without_colour() {
        let frames = |transport, mode| Entry { mode: Some(mode), ..Entry::new(transport) };
        let mut entries: Vec<Entry> =
            [Transport::TcpBlock, Transport::TcpSpin, Transport::Udp].map(Entry::new).into();
        for mode in [Mode::Native, Mode::Generic] {
            entries.extend([Transport::RawXdp, Transport::RawWrite].map(|transport| frames(transport, mode)));
        }
        for (send_path, receive_path) in
            [("udp", "socket"), ("packet", "socket"), ("udp", "xdp"), ("packet", "xdp"), ("xsk", "xdp")]
        {
            entries.push(Entry::ours(send_path, receive_path));
        }
        entries.push(Entry { wait: BUSY_POLL, ..Entry::ours("xsk", "xdp") });
        let classes: Vec<&str> = entries.iter().map(class).collect();
        assert_eq!(classes.len(), 13);
        assert_told_apart(&classes);
    }
}
