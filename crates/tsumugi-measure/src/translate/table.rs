//! The table that is printed when nobody asked for JSON: a line for each length, a column for each number of translations.

use super::{Figure, Report, Stopped};
use crate::report::columns::Columns;
use crate::report::units;

/// All of it.
pub(super) fn page(report: &Report) -> String {
    let mut counts: Vec<u32> = report.figures.iter().map(|figure| figure.translations).collect();
    counts.dedup();
    let lengths = report.figures.iter().take_while(|figure| Some(&figure.translations) == counts.first());
    let header = counts.iter().map(|count| match count {
        0 => "no translation".to_owned(),
        count => format!("{count} translations"),
    });
    let header: Vec<String> = std::iter::once("pages".to_owned()).chain(header).collect();
    let mut columns = Columns::new(&header);
    for length in lengths {
        let of = |count: &u32| {
            let figure = |it: &&Figure| (it.translations, it.pages) == (*count, length.pages);
            report.figures.iter().find(figure).map_or(String::new(), cell)
        };
        columns.row(std::iter::once(length.pages.to_string()).chain(counts.iter().map(of)).collect());
    }
    let title = format!(
        "time of a transfer with its fence, and the share of its packets that were written without the process ({})",
        report.replacement
    );
    let stopped = report.stopped.as_ref().map(stopped).unwrap_or_default();
    format!("{title}\n{columns}\n{stopped}")
}

fn cell(figure: &Figure) -> String {
    format!("{} {:>3.0} %", units::time(figure.transfer_ns), 100.0 * figure.direct_share)
}

fn stopped(stopped: &Stopped) -> String {
    format!(
        "written without a pause: {} while the process runs, {} while it is stopped: {}\n",
        units::bandwidth(stopped.running_gbit_s),
        units::bandwidth(stopped.stopped_gbit_s),
        stopped.better.told(stopped.ratio)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Better;

    #[test]
    fn a_line_for_each_length_and_a_column_for_each_number_of_translations() {
        let figure = |pages, translations, transfer_ns| Figure {
            pages,
            translations,
            transfer_ns,
            direct_share: if translations >= pages { 1.0 } else { 0.0 },
        };
        let report = Report {
            replacement: "fifo".to_owned(),
            figures: vec![
                figure(1, 0, 5000.0),
                figure(15, 0, 80_000.0),
                figure(1, 4, 3000.0),
                figure(15, 4, 81_000.0),
            ],
            stopped: Some(Stopped {
                running_gbit_s: 10.0,
                stopped_gbit_s: 9.5,
                ratio: 0.95,
                better: Better::Higher,
            }),
        };
        let text = page(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("no translation") && lines[1].ends_with("4 translations"), "{text}");
        assert!(lines[2].starts_with('1') && lines[2].contains("100 %"), "{text}");
        assert!(lines[3].starts_with("15") && !lines[3].contains("100 %"), "{text}");
        assert!(text.ends_with("while it is stopped: 0.95 × (higher is better)\n"), "{text}");
    }
}
