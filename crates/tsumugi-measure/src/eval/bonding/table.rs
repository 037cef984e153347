//! The evaluation as one page of text, and as rows of cells for other pages.

use std::fmt::Write;

use super::Evaluation;
use super::case::Case;
use super::paper;
use super::results::CaseRow;
use super::summary;
use crate::machine::utc;
use crate::report::columns::Columns;
use crate::report::units;

/// The whole page.
pub(super) fn text(evaluation: &Evaluation) -> String {
    let mut page = evaluation.measured.header() + "\n";
    for case in evaluation.cases() {
        let (header, rows) = section(evaluation, case);
        let mut columns = Columns::new(&header);
        rows.into_iter().for_each(|row| columns.row(row));
        let is_simulated = evaluation.rows_of(case).any(|row| row.simulated);
        let simulated = if is_simulated { "; in simulated time" } else { "" };
        let _ = writeln!(page, "{}{simulated}\n{columns}", title(case));
    }
    let machine = &evaluation.machine;
    let _ = writeln!(page, "{}", paper::FIGURE_10);
    for paragraph in summary::paragraphs(evaluation) {
        let _ = writeln!(page, "{paragraph}");
    }
    let _ = writeln!(
        page,
        "{}; {}; load average {:.1} before; {}",
        machine.line(),
        machine.wire,
        machine.load_average,
        utc(machine.time_unix_s)
    );
    page
}

/// The heading of a case.
pub(crate) fn title(case: &Case) -> String {
    let Case { senders, nics, rate, is_uneven } = case;
    let rate = units::bandwidth(rate.bits_per_s as f64 / 1e9);
    match is_uneven {
        false => format!("{case}: {senders} senders, {nics} NICs of {rate}"),
        true => format!(
            "{case}: {senders} senders, {nics} NICs of {rate}; sender A begins {} s before the others",
            case.times_s(0.0).0
        ),
    }
}

/// Header and cells of a case.
pub(crate) fn section(evaluation: &Evaluation, case: &Case) -> (Vec<&'static str>, Vec<Vec<String>>) {
    if case.is_uneven {
        let senders: Vec<&str> = ["A", "B", "C", "D"].into();
        let ties = ["NICs of A", "of B", "of C", "of D"];
        let header = [&["policy"][..], &senders, &["all", "off the mean", "even after"], &ties].concat();
        return (header, evaluation.rows_of(case).map(uneven_cells).collect());
    }
    let header = [
        "policy",
        "throughput",
        "of all NICs",
        "NICs used",
        "sender CPU",
        "receivers CPU",
        "CPU per KiB",
        "off the mean",
        "lost",
    ];
    let mut rows: Vec<Vec<String>> = evaluation.rows_of(case).map(|row| cells(case, row)).collect();
    rows.extend(paper::of(case).map(|figure| {
        let share = units::percent(figure.gbit_s / case.gbit_s());
        let name = format!("P2, {}", figure.mode);
        vec![name, units::bandwidth(figure.gbit_s), share, String::new(), units::percent(figure.cpu)]
    }));
    (header.into(), rows)
}

fn cells(case: &Case, row: &CaseRow) -> Vec<String> {
    let show = |figure: Option<f64>, show: fn(f64) -> String| figure.map_or(String::new(), show);
    let gbit_s = row.row.gbit_s.unwrap_or(0.0);
    vec![
        row.policy.to_string(),
        units::bandwidth(gbit_s),
        units::percent(gbit_s / case.gbit_s()),
        row.nics_used().map_or(String::new(), |nics| nics.to_string()),
        show(row.send_cpu, units::percent),
        show(row.receive_cpu, units::percent),
        show(row.row.cpu_ns_per_kib, units::time),
        show(row.deviation, units::percent),
        row.lost.to_string(),
    ]
}

/// What each flow had from a second after all had begun, and over which NICs.
fn uneven_cells(row: &CaseRow) -> Vec<String> {
    let from = ((row.joined_s + 1.0) / row.interval_s).round() as usize;
    let mean = |flow: &Vec<f64>| {
        let late = flow.get(from..).unwrap_or_default();
        units::bandwidth(late.iter().sum::<f64>() / late.len().max(1) as f64)
    };
    let ties = |flow: usize| {
        let nics: Vec<String> = row.nics_of(flow).iter().map(usize::to_string).collect();
        nics.join("+")
    };
    let mut cells = vec![row.policy.to_string()];
    cells.extend(row.flows_gbit_s.iter().map(mean));
    cells.push(row.row.gbit_s.map_or(String::new(), units::bandwidth));
    cells.push(row.deviation.map_or(String::new(), units::percent));
    cells.push(row.even_after_s.map_or("never".to_owned(), |after_s| format!("{after_s:.1} s")));
    cells.extend((0..row.flows_gbit_s.len()).map(ties));
    cells
}
