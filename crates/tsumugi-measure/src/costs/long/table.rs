//! The costs of longer messages as a table.

use super::Report;
use super::parts::{LongCosts, LongPart};
use crate::costs::table::{signed, with_spread};
use crate::machine::Machine;
use crate::report::columns::Columns;
use crate::report::units;

/// The table with its heading and remarks, and the machine.
pub(crate) fn page(report: &Report, machine: &Machine) -> String {
    let mut header = vec!["part".to_owned()];
    header.extend(report.sizes.iter().map(|costs| crate::sizes::show(costs.size_bytes)));
    let mut columns = Columns::new(&header);
    let mut row = |name: &str, figure: &dyn Fn(&LongCosts) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(report.sizes.iter().map(figure));
        columns.row(cells);
    };
    for (at, part) in LongPart::ALL.into_iter().enumerate() {
        row(part.name(), &|costs| with_spread(costs.parts[at].figure));
    }
    row("ahead of the sender", &|costs| format!("−{}", with_spread(costs.ahead)));
    row("sum", &|costs| units::time(costs.sum_ns));
    row("half of a round trip", &|costs| units::time(costs.one_way_ns));
    row("difference", &|costs| signed(costs.difference));
    row("one copy of it", &|costs| with_spread(costs.copy));
    row("its CRC32C", &|costs| with_spread(costs.crc));
    row("bare UDP, segmented", &|costs| units::time(costs.udp.ns / 2.0));
    row("bare TCP", &|costs| units::time(costs.tcp.ns / 2.0));
    let remarks: String = remarks(report).iter().map(|remark| format!("{remark}\n")).collect();
    format!(
        "{}\nCost of a message on its way over sockets, part by part\n{columns}{remarks}{}; load average {:.1} before\n",
        report.measured.header(),
        machine.line(),
        machine.load_average
    )
}

/// What a reader must know of the figures, a sentence each.
fn remarks(report: &Report) -> Vec<String> {
    let mut remarks = vec![
        "Medians over the rounds, one way; ± is half of (largest − smallest). A round trip has two of each.".to_owned(),
        "Kernel, sending: on a veth pair with the receiver's softirq. Ahead of the sender: so long it is still in its call \
         when the receiver has begun."
            .to_owned(),
        "One copy, its CRC32C: by themselves. The library copies a message when it is given it, when it gives packets to \
         the kernel and when it puts them to their place, and computes the CRC on both sides; `--integrity wire` of the \
         other measurements leaves it out."
            .to_owned(),
        "Bare UDP, TCP: half of a round trip of as many bytes, spinning.".to_owned(),
    ];
    for costs in report.sizes.iter().filter(|costs| !costs.adds_up) {
        remarks.push(format!(
            "DOES NOT ADD UP: of {} the parts come to {} and half of the round trip is {}, {} apart; more than a \
             tenth. Measure again while the machine is quiet.",
            crate::sizes::show(costs.size_bytes),
            units::time(costs.sum_ns),
            units::time(costs.one_way_ns),
            signed(costs.difference),
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Conditions;
    use crate::costs::long::parts::Round;

    #[test]
    fn a_table_of_parts_and_sizes() {
        let round = |round_trip| Round {
            parts: [1000.0; LongPart::ALL.len()],
            ahead: 500.0,
            copy: 200.0,
            crc: 300.0,
            round_trip,
            udp: 8000.0,
            tcp: 9000.0,
        };
        let sizes =
            vec![LongCosts::of(4096, &[round(11_000.0); 2]), LongCosts::of(65536, &[round(20_000.0)])];
        let page = page(&Report { sizes, measured: Conditions::default() }, &Machine::here());
        let line =
            |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        assert!(line("part").contains("4 KiB") && line("part").contains("64 KiB"), "{page}");
        for part in LongPart::ALL {
            // One round has no spread.
            assert!(
                line(part.name()).contains("1.00 µs ±0 %") && line(part.name()).ends_with("1.00 µs"),
                "{page}"
            );
        }
        assert!(line("sum").contains("5.50 µs"), "{page}");
        assert!(line("half of a round trip").contains("5.50 µs") && page.contains("10.0 µs"), "{page}");
        assert!(line("bare UDP, segmented").contains("4.00 µs"), "{page}");
        assert!(line("bare TCP").contains("4.50 µs"), "{page}");
        assert!(page.contains("DOES NOT ADD UP: of 64 KiB"), "{page}");
        assert!(!page.contains("DOES NOT ADD UP: of 4 KiB"), "{page}");
    }
}
