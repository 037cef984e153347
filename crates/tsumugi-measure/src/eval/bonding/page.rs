//! The report of `tsumugi eval bonding`: P2's figures 8 to 10 redrawn, with P2's numbers in them.

use super::case::Case;
use super::results::CaseRow;
use super::{Evaluation, paper, summary, table};
use crate::machine::utc;
use crate::report::bars::{Bar, Bars, Group};
use crate::report::course::{Course, Level, Series};
use crate::report::html::Figure;
use crate::report::page::{Page, Table, section, tables};
use crate::report::quantity::Quantity;
use crate::report::units;

/// The flows of figure 10, and their marks.
const FLOWS: [(&str, &str); 4] = [("A", "flow-a"), ("B", "flow-b"), ("C", "flow-c"), ("D", "flow-d")];

/// How it was measured.
const METHOD: &str = "K flows of one endpoint, one to each of K receiving processes, send 1 kB messages back to back; sending begins \
     when every NIC carries packets to every receiver. In a lab, NICs are veths whose rates are enforced on the \
     ports of the switch between two nodes; in simulated time, CPUs are infinitely fast. What arrives is counted \
     where it arrives.";

/// The whole page.
pub(crate) fn page(evaluation: &Evaluation) -> String {
    let machine = &evaluation.machine;
    let sections = [figure_8, figure_9, figure_10, figures];
    let page = Page {
        title: "Several NICs as one, beside P2 (Yoshida et al., 2014)",
        subtitle: format!("{}, {}, on {}", utc(machine.time_unix_s), machine.wire, machine.host),
        summary: &summary::paragraphs(evaluation),
        body: sections.map(|section| section(evaluation)).concat(),
        method: METHOD,
        measured: &evaluation.measured,
        machine,
        data_id: "evaluation",
        data: evaluation,
    };
    page.html()
}

/// Throughput: all cases of a rate as bars, and each case over time.
fn figure_8(evaluation: &Evaluation) -> String {
    let value = |row: &CaseRow| row.row.gbit_s;
    let label = "throughput of all senders; senders x NICs @ rate of a NIC";
    let bars = bars(evaluation, label, Quantity::Bandwidth, value, |figure| figure.gbit_s);
    let caption = "Payload of all senders together. A case is senders x NICs @ rate of a NIC. P2's are TCP over Linux \
                   bonding on one Pentium 4, which at 1 Gb/s was the limit.";
    let courses = matrix(evaluation).filter_map(|case| course(evaluation, case));
    section("Figure 8: throughput", caption, bars.into_iter()) + &section("Figure 8 over time", "", courses)
}

/// The sender's CPU use.
fn figure_9(evaluation: &Evaluation) -> String {
    let label = "share of a core; senders x NICs @ rate of a NIC";
    let bars = bars(evaluation, label, Quantity::Share, |row| row.send_cpu, |figure| figure.cpu);
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
        let course = Course {
            title: &row.policy.to_string(),
            y_label: "throughput of a sender",
            quantity: Quantity::Bandwidth,
            series: series.collect(),
            levels: Vec::new(),
        };
        course.figure()
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
    label: &str,
    quantity: Quantity,
    ours: fn(&CaseRow) -> Option<f64>,
    theirs: fn(&paper::Figure) -> f64,
) -> Vec<Figure> {
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
        Bars { title: &title, label, quantity, groups }.figure()
    };
    rates.into_iter().filter_map(chart).collect()
}

/// A case over time, with the levels that P2's modes had.
fn course(evaluation: &Evaluation, case: &Case) -> Option<Figure> {
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
    let course = Course {
        title: &case.to_string(),
        y_label: "throughput of all senders",
        quantity: Quantity::Bandwidth,
        series: series.collect(),
        levels: levels.collect(),
    };
    course.figure()
}

/// Everything as tables.
fn figures(evaluation: &Evaluation) -> String {
    let cases = evaluation.cases().map(|case| {
        let (header, cells) = table::section(evaluation, case);
        let ours = evaluation.rows_of(case).map(|row| row.policy.class());
        let marks = ours.chain(paper::MODES.map(|(_, class)| class)).map(Some);
        let header = header.into_iter().map(str::to_owned).collect();
        (table::title(case), Table { header, rows: cells.into_iter().zip(marks).collect() })
    });
    tables("Figures", &[], cases)
}

#[cfg(test)]
pub(crate) mod samples {
    //! A page as an evaluation would give it.

    use super::super::contender::Contender;
    use super::super::results::samples;
    use super::*;
    use crate::conditions::samples::measured;
    use crate::machine::Machine;

    /// Every case with every policy. Flows have less and less, and with the third policy and later ones much less.
    pub(in super::super) fn evaluation() -> Evaluation {
        let mut rows = Vec::new();
        for case in Case::ALL {
            for (number, contender) in (0..).zip(Contender::all()) {
                let Contender::Ours(policy) = contender else { continue };
                let fair = case.gbit_s() * 1e9 / 8.0 / 10.0 / f64::from(case.senders);
                let share = if number < 2 { 0.92 } else { 0.92 / f64::from(case.nics) };
                let bytes =
                    (0..case.senders).map(|flow| (fair * share * (1.0 - 0.02 * f64::from(flow))) as u64);
                rows.push(samples::run(case, policy, &bytes.collect::<Vec<_>>()).row());
            }
        }
        let machine = Machine { host: "a <b> & \"c\"".into(), wire: "lab (veth)".into(), ..Machine::here() };
        Evaluation::new(Case::ALL.to_vec(), rows, measured(), machine)
    }

    /// What `eval bonding --html` writes.
    pub(crate) fn page() -> String {
        super::page(&evaluation())
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::Contender;
    use super::super::results;
    use super::*;
    use crate::conditions::Conditions;
    use crate::machine::Machine;
    use crate::report::marks::assert_told_apart;
    use tsumugi::Policy;

    #[test]
    fn the_page_is_well_formed() {
        let page = samples::page();
        let text = page.strip_prefix("<!DOCTYPE html>\n").expect("an HTML document");
        let document = roxmltree::Document::parse(text).expect("well-formed");
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        // Figure 8: two rates and six cases; figure 9: two rates; figure 10: six policies.
        assert_eq!(count("figure"), 2 + 6 + 2 + 6);
        assert_eq!(count("h3"), 7);
        let data = document.descendants().find(|node| node.has_tag_name("script")).expect("the data");
        let json: serde_json::Value = serde_json::from_str(data.text().unwrap_or("")).expect("JSON");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(6 * 7));
        assert_eq!(json["paper"].as_array().map(Vec::len), Some(12));
    }

    #[test]
    fn policies_and_flows_can_be_told_apart_without_colour() {
        let contenders = Contender::all().into_iter().map(Contender::class);
        assert_told_apart(&contenders.chain(paper::MODES.map(|(_, class)| class)).collect::<Vec<_>>());
        assert_told_apart(&FLOWS.map(|(_, class)| class));
    }

    #[test]
    fn without_cpu_use_there_is_no_figure_9() {
        let mut run = results::samples::run(Case::ALL[0], Policy::Tlb, &[1_000_000; 2]);
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
