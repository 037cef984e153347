//! The report of `tsumugi eval bonding`: P2's figures 8 to 10 redrawn, with P2's numbers in them.

use std::fmt::Write;

use super::case::Case;
use super::results::CaseRow;
use super::{Evaluation, paper, table};
use crate::machine::utc;
use crate::report::chart::{Bar, Bars, Course, Group, Level, Series};
use crate::report::page::{self, escaped, section, table_of};
use crate::report::units;

/// The classes that give the flows of figure 10 their colours.
const FLOWS: [(&str, &str); 4] = [("A", "adaptive"), ("B", "round-robin"), ("C", "tlb"), ("D", "kernel-rr")];

/// The whole page.
pub(crate) fn page(evaluation: &Evaluation) -> String {
    let machine = &evaluation.machine;
    let mut body = format!(
        "<header><h1>Several NICs as one, beside P2 (Yoshida et al., 2014)</h1><p>{}, {}, on {}</p></header>",
        escaped(&utc(machine.time_unix_s)),
        escaped(&machine.wire),
        escaped(&machine.host),
    );
    body.push_str(&figure_8(evaluation));
    body.push_str(&figure_9(evaluation));
    body.push_str(&figure_10(evaluation));
    body.push_str(&figures(evaluation));
    body.push_str(&method(evaluation));
    page::document("Several NICs as one, beside P2", &body, "evaluation", evaluation)
}

/// Throughput: all cases of a rate as bars, and each case over time.
fn figure_8(evaluation: &Evaluation) -> String {
    let value = |row: &CaseRow| row.row.gbit_s;
    let bars = bars(evaluation, "throughput of all senders", units::bandwidth, value, |figure| figure.gbit_s);
    let caption = "Payload of all senders together. A case is senders x NICs @ rate of a NIC. P2's are TCP over Linux \
                   bonding on one Pentium 4, which at 1 Gb/s was the limit.";
    let courses = matrix(evaluation).filter_map(|case| course(evaluation, case));
    section("Figure 8: throughput", caption, bars.into_iter().chain(courses))
}

/// The sender's CPU use.
fn figure_9(evaluation: &Evaluation) -> String {
    let bars = bars(evaluation, "share of a core", units::percent, |row| row.send_cpu, |figure| figure.cpu);
    let caption = "CPU time of the sending process as a share of one core while all senders send; P2's is that of the \
                   sending host, which had one core.";
    section("Figure 9: CPU use of the sender", caption, bars.into_iter())
}

/// The throughput of each flow where one begins before the others.
fn figure_10(evaluation: &Evaluation) -> String {
    let rows = evaluation.cases().filter(|case| case.is_uneven).flat_map(|case| evaluation.rows_of(case));
    let course = |row: &CaseRow| {
        let flows = row.flows_gbit_s.iter().zip(FLOWS);
        let series = flows.map(|(values, (name, class))| Series {
            name: name.to_owned(),
            class,
            interval_s: row.interval_s,
            values: values.clone(),
        });
        let y_label = "throughput of a sender";
        Course {
            title: &row.policy.to_string(),
            y_label,
            show: units::bandwidth,
            series: series.collect(),
            levels: Vec::new(),
        }
        .svg()
    };
    section("Figure 10: uneven ties", paper::FIGURE_10, rows.filter_map(course))
}

/// The cases of the matrix.
fn matrix(evaluation: &Evaluation) -> impl Iterator<Item = &Case> {
    evaluation.cases().filter(|case| !case.is_uneven)
}

/// One chart for each rate: P2's bars first in each group.
fn bars(
    evaluation: &Evaluation,
    y_label: &str,
    show: fn(f64) -> String,
    ours: fn(&CaseRow) -> Option<f64>,
    theirs: fn(&paper::Figure) -> f64,
) -> Vec<String> {
    let mut rates: Vec<u64> = matrix(evaluation).map(|case| case.rate.bits_per_s).collect();
    rates.sort_unstable();
    rates.dedup();
    let group = |case: &Case| {
        let of_paper = paper::of(case).map(|figure| {
            let mode = paper::MODES.iter().find(|(mode, _)| *mode == figure.mode);
            let class = mode.map_or("", |(_, class)| class);
            Bar { name: format!("P2, {}", figure.mode), class, value: theirs(figure) }
        });
        let of_ours = evaluation.rows_of(case).filter_map(|row| {
            Some(Bar { name: row.policy.to_string(), class: row.policy.class(), value: ours(row)? })
        });
        // P2's alone would be no comparison.
        let of_ours: Vec<Bar> = of_ours.collect();
        let bars = if of_ours.is_empty() { Vec::new() } else { of_paper.chain(of_ours).collect() };
        Group { name: case.to_string(), bars }
    };
    let chart = |rate: u64| {
        let cases = matrix(evaluation).filter(|case| case.rate.bits_per_s == rate);
        let groups: Vec<Group> = cases.map(group).filter(|group| !group.bars.is_empty()).collect();
        let title = format!("NICs of {}", units::bandwidth(rate as f64 / 1e9));
        Bars { title: &title, x_label: "senders x NICs @ rate", y_label, show, groups }.svg()
    };
    rates.into_iter().filter_map(chart).collect()
}

/// A case over time, with the levels that P2's modes had.
fn course(evaluation: &Evaluation, case: &Case) -> Option<String> {
    let series = evaluation.rows_of(case).map(|row| Series {
        name: row.policy.to_string(),
        class: row.policy.class(),
        interval_s: row.interval_s,
        values: row.total_gbit_s(),
    });
    let levels = paper::of(case).zip(paper::MODES).map(|(figure, (mode, class))| Level {
        name: format!("P2, {mode}"),
        class,
        value: figure.gbit_s,
    });
    Course {
        title: &case.to_string(),
        y_label: "throughput of all senders",
        show: units::bandwidth,
        series: series.collect(),
        levels: levels.collect(),
    }
    .svg()
}

/// Everything as tables.
fn figures(evaluation: &Evaluation) -> String {
    let mut html = "<section><h2>Figures</h2><div class=\"tables\">".to_owned();
    for case in evaluation.cases() {
        let (header, cells) = table::section(evaluation, case);
        let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
        let ours = evaluation.rows_of(case).map(|row| row.policy.class());
        let classes = ours.chain(paper::MODES.map(|(_, class)| class));
        let table = table_of(&header, cells.into_iter().zip(classes));
        let _ = write!(html, "<div><h3>{}</h3>{table}</div>", escaped(&table::title(case)));
    }
    html.push_str("</div></section>");
    html
}

/// How it was measured, and on what.
fn method(evaluation: &Evaluation) -> String {
    let machine = &evaluation.machine;
    format!(
        "<section><h2>How this was measured</h2><p>K flows of one endpoint, one to each of K receiving processes, send \
         1 kB messages back to back; sending begins when every NIC carries packets to every receiver. In a lab, NICs are \
         veths whose rates are enforced on the ports of the switch between two nodes; in simulated time, CPUs are \
         infinitely fast. What arrives is counted where it arrives.</p>\
         <p>{}. Load average before: {:.1}. tsumugi {}. The figures are in this page as JSON, in the element \
         <code>#evaluation</code>.</p></section>",
        escaped(&machine.line()),
        machine.load_average,
        escaped(&machine.tsumugi),
    )
}

#[cfg(test)]
mod tests {
    use super::super::results::samples;
    use super::*;
    use crate::conditions::Conditions;
    use crate::machine::Machine;
    use crate::report::style::inks;
    use tsumugi::Policy;

    fn example() -> String {
        let mut rows = Vec::new();
        for case in Case::ALL {
            let bytes = vec![1_000_000; case.senders as usize];
            rows.extend(
                [Policy::Adaptive, Policy::Tlb].map(|policy| samples::run(case, policy, &bytes).row()),
            );
        }
        let machine = Machine { host: "a <b> & \"c\"".into(), ..Machine::here() };
        page(&Evaluation::new(Case::ALL.to_vec(), rows, Conditions::default(), machine))
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_else() {
        let page = example();
        let text = page.strip_prefix("<!DOCTYPE html>\n").expect("an HTML document");
        let document = roxmltree::Document::parse(text).expect("well-formed");
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        // Figure 8: two rates and six cases; figure 9: two rates; figure 10: two policies.
        assert_eq!(count("figure"), 2 + 6 + 2 + 2);
        assert_eq!(count("h3"), 7);
        let data = document.descendants().find(|node| node.has_tag_name("script")).expect("the data");
        let json: serde_json::Value = serde_json::from_str(data.text().unwrap_or("")).expect("JSON");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(14));
        assert_eq!(json["paper"].as_array().map(Vec::len), Some(12));
        let names = ["http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"];
        let rest = names.iter().fold(page, |page, name| page.replace(name, ""));
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "//"] {
            assert!(!rest.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_class_has_a_colour() {
        let flows = FLOWS.map(|(_, class)| class);
        let papers = paper::MODES.map(|(_, class)| class);
        let contenders = super::super::contender::Contender::all();
        for class in contenders.iter().map(|contender| contender.class()).chain(flows).chain(papers) {
            assert!(inks().any(|ink| ink == class), "{class}");
        }
    }

    #[test]
    fn without_cpu_use_there_is_no_figure_9() {
        let mut run = samples::run(Case::ALL[0], Policy::Tlb, &[1_000_000; 2]);
        run.cpu_ns = None;
        let page = page(&Evaluation::new(
            vec![Case::ALL[0]],
            vec![run.row()],
            Conditions::default(),
            Machine::default(),
        ));
        assert!(!page.contains("Figure 9") && !page.contains("Figure 10") && page.contains("Figure 8"));
    }
}
