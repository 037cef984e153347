//! The report of a comparison.

use std::fmt::Write;

use tsumugi_rail::xdp::Mode;

use crate::compare::entry::{BUSY_POLL, Entry};
use crate::compare::results::{Measured, Results};
use crate::compare::test::Kind;
use crate::compare::{Comparison, summary, table};
use crate::costs::{Report, table as costs_table};
use crate::machine::utc;
use crate::peers::Transport;
use crate::report::page::{self, escaped, table_of};
use crate::report::plot::{Line, Plot};
use crate::report::units;
use crate::row::Metric;
use crate::sizes;

/// The whole page.
pub(crate) fn page(results: &Results, comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let mtu = machine.mtu_bytes.map_or(String::new(), |bytes| format!(", MTU {bytes}"));
    let mut body = String::new();
    let _ = write!(
        body,
        "<header><h1>Tsumugi beside TCP and UDP</h1><p>{}, over {}{mtu}, on {}</p></header>",
        escaped(&utc(machine.time_unix_s)),
        escaped(&machine.wire),
        escaped(&machine.host),
    );
    if !comparison.summary.is_empty() {
        let paragraphs: String =
            comparison.summary.iter().map(|text| format!("<p>{}</p>", escaped(text))).collect();
        let _ =
            write!(body, "<section class=\"summary\"><h2>{}</h2>{paragraphs}</section>", summary::HEADING);
    }
    let plots: Vec<String> = [
        curve(
            results,
            Metric::RoundTrip,
            "Round trip against message size",
            "round trip, median",
            units::time,
        ),
        curve(results, Metric::Bandwidth, "Bandwidth against message size", "bandwidth", units::bandwidth),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !plots.is_empty() {
        let _ = write!(
            body,
            "<section><h2>Against size</h2><div class=\"plots\">{}</div></section>",
            plots.concat()
        );
    }
    body.push_str("<section><h2>Figures</h2><div class=\"tables\">");
    for measured in results.tests.iter().filter(|measured| measured.test.kind != Kind::Curve) {
        let (header, rows) = table::section(measured);
        let _ = write!(body, "<div><h3>{}</h3>", escaped(&table::title(&measured.test)));
        let classes = measured.series.iter().map(|series| class(&series.entry));
        body.push_str(&table_of(
            &header,
            rows.iter().zip(classes).map(|(cells, class)| (cells.clone(), class)),
        ));
        body.push_str("</div>");
    }
    body.push_str("</div></section>");
    body.push_str(&comparison.costs.as_ref().map_or(String::new(), costs));
    body.push_str(&method(comparison, results));
    page::document("Tsumugi beside TCP and UDP", &body, "comparison", comparison)
}

/// Where the time of a short message goes.
fn costs(report: &Report) -> String {
    let (header, rows) = costs_table::section(report);
    let table = table_of(&header, rows.into_iter().map(|cells| (cells, "")));
    let remarks = costs_table::remarks(report);
    let remarks: String = remarks.iter().map(|remark| format!("<p>{}</p>", escaped(remark))).collect();
    let heading = escaped(&costs_table::title(report));
    format!(
        "<section class=\"costs\"><h2>{heading}</h2><div class=\"tables\"><div>{table}</div></div>{remarks}</section>"
    )
}

/// How it was measured, and on what.
fn method(comparison: &Comparison, results: &Results) -> String {
    let machine = &comparison.machine;
    let rounds = comparison.rows.iter().filter_map(|row| row.rounds).max().unwrap_or(0);
    let count = results.tests.iter().map(|measured| measured.series.len()).sum::<usize>();
    format!(
        "<section><h2>How this was measured</h2><p>{count} measurements in {rounds} rounds. A round runs every \
         transport once, in an order that rotates from round to round, each in fresh processes pinned to \
         different CPUs. Figures are medians over the rounds; the spread is (largest − smallest) / median. A \
         ratio is the median over the rounds of (transport / Tsumugi with the spinning wait, send path udp and receive path socket) within a round: \
         for times more than 1 means slower than Tsumugi, for bandwidth and rate more than 1 means faster. TCP \
         is shown at its best of several write sizes and socket buffers, UDP with segmentation offload.</p>\
         <p>{}. Load average before: {:.1}. tsumugi {}. The figures are in this page as JSON, in the element <code>#comparison</code>.</p>\
         </section>",
        escaped(&machine.line()),
        machine.load_average,
        escaped(&machine.tsumugi),
    )
}

/// A plot of one metric over all sizes, with its figures folded away below it.
fn curve(
    results: &Results,
    metric: Metric,
    title: &str,
    y_label: &str,
    show: fn(f64) -> String,
) -> Option<String> {
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
    let svg = Plot { title, y_label, show, lines: lines.collect() }.svg()?;
    let mut header = vec!["size".to_owned()];
    header.extend(entries.iter().map(|entry| entry.name()));
    let rows = points.iter().map(|point| {
        let mut cells = vec![sizes::show(point.test.size_bytes)];
        cells.extend(entries.iter().map(|entry| value(point, entry).map_or("–".to_owned(), show)));
        (cells, "")
    });
    let figures = table_of(&header, rows);
    Some(format!("<figure>{svg}<details><summary>figures</summary>{figures}</details></figure>"))
}

/// The class that gives a transport its colour, the same in plots and tables.
fn class(entry: &Entry) -> &'static str {
    match entry.transport {
        Transport::TcpBlock => "tcp-block",
        Transport::TcpSpin => "tcp-spin",
        Transport::Udp => "udp",
        Transport::RawXdp if entry.mode == Some(Mode::Generic) => "raw-xdp generic",
        Transport::RawXdp => "raw-xdp",
        Transport::RawWrite if entry.mode == Some(Mode::Generic) => "raw-write generic",
        Transport::RawWrite => "raw-write",
        Transport::Tsumugi if entry.wait == "adaptive" => "ours adaptive",
        Transport::Tsumugi if entry.wait == BUSY_POLL => "ours-busy-poll ours",
        Transport::Tsumugi => match (entry.send, entry.receive) {
            ("udp", "xdp") => "ours-udp-xdp ours",
            ("packet", "xdp") => "ours-packet-xdp ours",
            ("xsk", _) => "ours-xsk-xdp ours",
            ("packet", _) => "ours-packet ours",
            _ => "ours",
        },
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

    fn example(options: &[&str]) -> String {
        let plan = Plan::new(
            &Command::parse_from(["compare"].iter().chain(options)).arguments,
            true,
            &Missing::default(),
        );
        let results = samples::results(&plan);
        let machine = Machine { host: "a <b> & \"c\"".into(), ..Machine::here() };
        let costs = Some(crate::costs::samples::report(1000.0));
        let summary = summary::paragraphs(&results, &machine);
        let (rows, measured) = (results.rows(), crate::conditions::Conditions::default());
        page(&results, &Comparison { rows, measured, machine, summary, costs })
    }

    #[test]
    fn the_page_is_well_formed() {
        let page = example(&["--sizes", "8..1M"]);
        let text = page.strip_prefix("<!DOCTYPE html>\n").expect("an HTML document");
        let document = roxmltree::Document::parse(text).expect("well-formed");
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        let svg = ("http://www.w3.org/2000/svg", "svg");
        assert_eq!(document.descendants().filter(|node| node.has_tag_name(svg)).count(), 2);
        assert_eq!(count("figure"), 2);
        assert_eq!(count("h3"), 15);
        assert!(text.contains("<td>program (protocol)</td>") && text.contains("DOES NOT ADD UP"), "{text}");
        let data = document.descendants().find(|node| node.has_tag_name("script")).expect("the data");
        let json: serde_json::Value = serde_json::from_str(data.text().unwrap_or("")).expect("JSON");
        assert_eq!(json["machine"]["host"], "a <b> & \"c\"");
        let said: Vec<&str> =
            json["summary"].as_array().expect("a summary").iter().filter_map(|it| it.as_str()).collect();
        assert!(said[0].starts_with("A 64 B round trip takes"), "{said:?}");
        let summary = document.descendants().find(|node| node.attribute("class") == Some("summary"));
        let shown = summary.expect("a summary").descendants().filter(|node| node.has_tag_name("p"));
        assert_eq!(shown.filter_map(|node| node.text()).collect::<Vec<_>>(), said);
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = example(&["--sizes", "8..1M"]);
        let names = ["http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"];
        let rest = names.iter().fold(page, |page, name| page.replace(name, ""));
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "//"] {
            assert!(!rest.contains(outside), "{outside}");
        }
    }

    #[test]
    fn without_curves_there_are_tables_only() {
        let page = example(&[]);
        assert!(!page.contains("<svg") && page.contains("<table>"));
    }
}
