//! The costs as a table, beside P1's.

use super::Report;
use super::parts::{Costs, Figure, Part};
use crate::machine::Machine;
use crate::report::columns::Columns;
use crate::report::units;

/// One half of a round trip in P1 (PM/Ethernet, 2000; Pentium III, 500 MHz; Gigabit Ethernet), µs: by part, PM's and
/// TCP's. What P1 does not have apart is with its neighbour; its interrupt is with our softirq, its PM with the program.
const P1: [(Part, Option<f64>, Option<f64>); 5] = [
    (Part::SystemCall, Some(1.6), Some(1.6)),
    (Part::DriverSend, Some(4.7), Some(4.7)),
    (Part::Softirq, None, Some(3.2 + 5.9)),
    (Part::Program, Some(4.8), Some(15.5 + 6.2)),
    (Part::Wire, Some(7.7), Some(7.7)),
];

/// P1's totals, µs.
const P1_TOTAL: (f64, f64) = (18.8, 44.8);

/// What a heading says.
pub(crate) fn title(report: &Report) -> String {
    let size = report.send_paths.first().map_or(0, |costs| costs.size_bytes);
    format!("Cost of a message of {size} B on its way, part by part")
}

/// Header and cells.
pub(crate) fn section(report: &Report) -> (Vec<String>, Vec<Vec<String>>) {
    let send_paths = report.send_paths.iter().map(|costs| format!("{}+{}", costs.send, costs.receive));
    let mut header = vec!["part".to_owned()];
    header.extend(send_paths);
    header.extend(["bare UDP", "P1: PM", "P1: TCP"].map(str::to_owned));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for part in Part::ALL {
        rows.push(part_row(report, part));
        if part == Part::Program {
            rows.push(conversing_row(report));
        }
    }
    let mut row = |name: &str, figure: &dyn Fn(&Costs) -> String, rest: [String; 3]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(report.send_paths.iter().map(figure));
        cells.extend(rest);
        rows.push(cells);
    };
    let none = || [(); 3].map(|()| String::new());
    let bare = &report.bare_udp;
    row("ahead of the sender", &|costs| format!("−{}", with_spread(costs.ahead)), none());
    let (pm, tcp) = P1_TOTAL;
    let totals = [units::time(bare.one_way_ns), micro(Some(pm)), micro(Some(tcp))];
    row("sum", &|costs| units::time(costs.sum_ns), totals);
    let half = [units::time(bare.one_way_ns), micro(Some(37.6 / 2.0)), micro(Some(89.6 / 2.0))];
    row("half of a round trip", &|costs| units::time(costs.one_way_ns), half);
    row("difference", &|costs| signed(costs.difference), none());
    (header, rows)
}

fn part_row(report: &Report, part: Part) -> Vec<String> {
    let mut cells = vec![part.name().to_owned()];
    for costs in &report.send_paths {
        let cost = costs.parts.iter().find(|cost| cost.part == part);
        cells.push(cost.map_or(String::new(), |cost| with_spread(cost.figure)));
    }
    let bare = &report.bare_udp;
    cells.push(match part {
        Part::SystemCall => units::time(2.0 * bare.system_call.ns),
        Part::Softirq => format!("stack {}", units::time(bare.stack_ns)),
        _ => String::new(),
    });
    let p1 = P1.into_iter().find(|row| row.0 == part);
    cells.push(micro(p1.and_then(|row| row.1)));
    cells.push(micro(p1.and_then(|row| row.2)));
    cells
}

/// What there is to the program in a conversation, beside the row before.
fn conversing_row(report: &Report) -> Vec<String> {
    let mut cells = vec!["  (in a conversation)".to_owned()];
    cells.extend(report.send_paths.iter().map(|costs| format!("({})", with_spread(costs.conversing))));
    cells.extend([(); 3].map(|()| String::new()));
    cells
}

pub(super) fn with_spread(figure: Figure) -> String {
    let spread = figure.spread.map_or_else(String::new, |spread| format!(" ±{:.0} %", spread * 50.0));
    units::time(figure.ns) + &spread
}

fn micro(us: Option<f64>) -> String {
    us.map_or(String::new(), |us| units::time(us * 1e3))
}

pub(super) fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "−" } else { "+" };
    format!("{sign}{}", units::percent(share.abs()))
}

/// What a reader must know of the figures, a sentence each.
pub(crate) fn remarks(report: &Report) -> Vec<String> {
    let mut remarks = vec![
        "Medians over the rounds; ± is half of (largest − smallest). A round trip has two of each.".to_owned(),
        "Program: its run as the kernel counts it. In a conversation: what the call takes more when the frame is deposited \
         and read instead of dropped, with cache lines that are waited for; no part of the sum."
            .to_owned(),
        "Ahead of the sender: on a veth pair the sender's CPU does the receiver's softirq, and is still in it when the \
         receiver has the record; that much of the parts is not in the one-way time."
            .to_owned(),
        "Bare UDP: two system calls, and what is left of half its round trip. P1: table 4 of Sumimoto et al., \
         PM/Ethernet, 2000 (Pentium III, Gigabit Ethernet; its driver is both sides', and in PM's row are the library's)."
            .to_owned(),
    ];
    for costs in report.send_paths.iter().filter(|costs| !costs.adds_up) {
        remarks.push(format!(
            "DOES NOT ADD UP: with {} the parts come to {} and half of the round trip is {}, {} apart; more than a \
             tenth. Measure again while the machine is quiet.",
            costs.send,
            units::time(costs.sum_ns),
            units::time(costs.one_way_ns),
            signed(costs.difference),
        ));
    }
    remarks
}

/// The table with its heading and remarks.
pub(crate) fn text(report: &Report) -> String {
    let (header, rows) = section(report);
    let mut columns = Columns::new(&header);
    for row in rows {
        columns.row(row);
    }
    let remarks: String = remarks(report).iter().map(|remark| format!("{remark}\n")).collect();
    format!("{}\n{columns}{remarks}", title(report))
}

/// The table of a command of its own, with the machine.
pub(super) fn page(report: &Report, machine: &Machine) -> String {
    let (header, text, machine_line) = (report.measured.header(), text(report), machine.line());
    format!("{header}\n{text}{machine_line}; load average {:.1} before\n", machine.load_average)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::samples;

    #[test]
    fn a_table_of_parts() {
        let text = text(&samples::report(650.0));
        for line in [
            "Cost of a message of 64 B",
            "part                   packet+xdp",
            "bare UDP   P1: PM  P1: TCP",
            "system call",
            "180 ns",
            "stack 1.82 µs",
            "program (protocol)",
            "−50.0 ns",
            "sum",
            "650 ns",
            "+0.0 %",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("DOES NOT ADD UP"), "{text}");
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        let text = text(&samples::report(1000.0));
        assert!(text.contains("DOES NOT ADD UP: with packet") && text.contains("−35.0 %"), "{text}");
    }

    #[test]
    fn p1_adds_up() {
        let pm: f64 = P1.iter().filter_map(|row| row.1).sum();
        let tcp: f64 = P1.iter().filter_map(|row| row.2).sum();
        assert!((pm - P1_TOTAL.0).abs() < 1e-9 && (tcp - P1_TOTAL.1).abs() < 1e-9, "{pm}, {tcp}");
    }
}
