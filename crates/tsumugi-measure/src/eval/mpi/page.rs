//! The report of `tsumugi eval mpi`.

use super::figures::FigureRow;
use super::summary::{self, COLLECTIVES};
use super::{Carrier, Evaluation, paper, show, table};
use crate::machine::utc;
use crate::report::chart::{Bar, Bars, Group};
use crate::report::page::{self, escaped, section, table_of};
use crate::report::plot::{Line, Plot};
use crate::report::units;
use crate::sizes;

/// The whole page.
pub(super) fn page(evaluation: &Evaluation) -> String {
    let machine = &evaluation.machine;
    let title = "MPI over Tsumugi, beside the same MPI over TCP";
    let sentences: String = summary::sentences(evaluation)
        .iter()
        .map(|sentence| format!("<li>{}</li>", escaped(sentence)))
        .collect();
    let loss =
        evaluation.loss.as_ref().map_or_else(String::new, |loss| format!(", {loss} of the packets lost"));
    let mut body = format!(
        "<header><h1>{title}</h1><p>{}, {}{}, {}, on {}</p></header><section><h2>What it says</h2><ul>{sentences}</ul></section>",
        escaped(&utc(machine.time_unix_s)),
        escaped(&machine.wire),
        escaped(&loss),
        escaped(evaluation.mpi),
        escaped(&machine.host),
    );
    body.push_str(&pairs(evaluation));
    body.push_str(&collectives(evaluation));
    body.push_str(&sort(evaluation));
    body.push_str(&overlap(evaluation));
    body.push_str(&figures(evaluation));
    page::document(title, &body, "evaluation", evaluation)
}

/// A figure against size.
fn curve(
    evaluation: &Evaluation,
    title: &str,
    y_label: &str,
    figure: &str,
    ranks: u32,
    show: fn(f64) -> String,
) -> Option<String> {
    let line = |over: Carrier, figure: &str| {
        let of = |row: &&FigureRow| row.over == over && row.key.figure == figure && row.key.ranks == ranks;
        let points = evaluation.rows.iter().filter(of).map(|row| (row.key.size_bytes as f64, row.value));
        Line { name: over.text().to_owned(), class: over.class(), points: points.collect() }
    };
    let mut lines: Vec<Line> = evaluation.carriers.iter().map(|over| line(*over, figure)).collect();
    lines.extend(Carrier::FLOORS.map(|floor| line(floor, &format!("udp_{figure}"))));
    lines.retain(|line| !line.points.is_empty());
    Plot { title, y_label, show, lines }.svg()
}

/// Two ranks.
fn pairs(evaluation: &Evaluation) -> String {
    let plots = [
        curve(evaluation, "Latency", "half a round trip", "latency", 2, show::microseconds),
        curve(evaluation, "Bandwidth", "one way", "bandwidth", 2, show::megabytes),
        curve(evaluation, "Bandwidth, both ways", "both together", "bandwidth_both_ways", 2, show::megabytes),
    ];
    let caption = "Two ranks on two nodes, by the size of a message. Bare UDP is what two sockets give the same processes; \
                   beside XDP, on NICs that have the XDP program.";
    section("Two ranks", caption, plots.into_iter().flatten())
}

/// Each operation on each number of nodes.
fn collectives(evaluation: &Evaluation) -> String {
    let mut ranks: Vec<u32> =
        evaluation.rows.iter().filter(|row| is_collective(row)).map(|row| row.key.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let plots = ranks.iter().flat_map(|&ranks| {
        COLLECTIVES.into_iter().filter_map(move |figure| {
            curve(
                evaluation,
                &format!("{figure}, {ranks} nodes"),
                "mean of the ranks",
                figure,
                ranks,
                show::microseconds,
            )
        })
    });
    let barriers = barrier(evaluation, &ranks);
    let caption =
        "Each operation by itself, with one rank on each node, by the bytes that a rank sends to another.";
    section("Collective operations", caption, barriers.into_iter().chain(plots))
}

fn is_collective(row: &FigureRow) -> bool {
    COLLECTIVES.contains(&row.key.figure.as_str())
}

/// The bars of each way for a figure.
fn bars_of(evaluation: &Evaluation, is: impl Fn(&FigureRow) -> bool) -> Vec<Bar> {
    let bar = |over: &Carrier| {
        let row = evaluation.rows.iter().find(|row| row.over == *over && is(row))?;
        Some(Bar { name: over.text().to_owned(), class: over.class(), value: row.value })
    };
    evaluation.carriers.iter().filter_map(bar).collect()
}

fn by_ranks(evaluation: &Evaluation, ranks: &[u32], figure: &str) -> Vec<Group> {
    let group = |ranks: &u32| Group {
        name: format!("{ranks} nodes"),
        bars: bars_of(evaluation, |row| row.key.figure == figure && row.key.ranks == *ranks),
    };
    ranks.iter().map(group).filter(|group| !group.bars.is_empty()).collect()
}

fn barrier(evaluation: &Evaluation, ranks: &[u32]) -> Option<String> {
    let groups = by_ranks(evaluation, ranks, "barrier");
    Bars {
        title: "barrier",
        x_label: "nodes",
        y_label: "mean of the ranks",
        show: show::microseconds,
        groups,
    }
    .svg()
}

/// The integer sort, beside P1.
fn sort(evaluation: &Evaluation) -> String {
    let of_sort = |row: &&FigureRow| row.key.figure == "is_time";
    let mut ranks: Vec<u32> = evaluation.rows.iter().filter(of_sort).map(|row| row.key.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let charts =
        [("is_time", "Whole time"), ("is_communication", "Time in communication")].map(|(figure, title)| {
            Bars {
                title,
                x_label: "nodes",
                y_label: "of ten sorts",
                show: show::seconds,
                groups: by_ranks(evaluation, &ranks, figure),
            }
            .svg()
        });
    let title = format!("Integer sort, class {}", evaluation.class);
    section(&title, paper::CAPTION, charts.into_iter().chain([speed_ups(evaluation, &ranks)]).flatten())
}

/// How much quicker several nodes are than one: figure 6.
fn speed_ups(evaluation: &Evaluation, ranks: &[u32]) -> Option<String> {
    let alone = evaluation.rows.iter().find(|row| row.key.figure == "is_time" && row.key.ranks == 1)?.value;
    let mut groups = by_ranks(evaluation, ranks, "is_time");
    groups.retain(|group| group.name != "1 nodes");
    for bar in groups.iter_mut().flat_map(|group| &mut group.bars) {
        bar.value = alone / bar.value;
    }
    let of_paper = paper::FIGURE_6.map(|it| Bar {
        name: format!("P1, {}", it.over),
        class: it.class,
        value: it.speed_up,
    });
    groups.push(Group { name: "16 nodes of P1".to_owned(), bars: of_paper.into() });
    let (title, y_label) = ("Speed-up over one rank, beside P1's figure 6", "times quicker");
    Bars { title, x_label: "nodes", y_label, show: units::three_digits, groups }.svg()
}

/// Communication beside computation.
fn overlap(evaluation: &Evaluation) -> String {
    let chart = |figure: &str, title: &str| {
        let mut sizes: Vec<u64> = evaluation
            .rows
            .iter()
            .filter(|row| row.key.figure == figure)
            .map(|row| row.key.size_bytes)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let group = |bytes: &u64| Group {
            name: sizes::show(*bytes),
            bars: bars_of(evaluation, |row| row.key.figure == figure && row.key.size_bytes == *bytes),
        };
        let groups = sizes.iter().map(group).collect();
        Bars { title, x_label: "size", y_label: "0 nothing, 1 all", show: units::three_digits, groups }.svg()
    };
    let charts = [
        chart("overlap_sender", "MPI_Isend while the sender computes"),
        chart("overlap_receiver", "MPI_Irecv while the receiver computes"),
    ];
    let caption = "How much of the communication passes while the program computes for as long as the communication takes alone.";
    section("Overlap", caption, charts.into_iter().flatten())
}

/// Everything as tables.
fn figures(evaluation: &Evaluation) -> String {
    let tables = table::sections(evaluation).into_iter().map(|table::Section { title, header, rows }| {
        let rows = rows.into_iter().map(|cells| (cells, ""));
        format!("<div><h3>{}</h3>{}</div>", escaped(&title), table_of(&header, rows))
    });
    let failures =
        evaluation.failures.iter().map(|failure| format!("<p>FAILED {}</p>", escaped(&failure.to_string())));
    format!(
        "<section><h2>Figures</h2><p>Medians of the rounds; × is the median of the figure divided by tcp's in the same round.</p>{}<div \
         class=\"tables\">{}</div></section>",
        failures.collect::<String>(),
        tables.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::inks;
    use tsumugi_lab::mpi::Mpi;

    #[test]
    fn every_class_has_a_colour_of_its_own() {
        let carriers = Carrier::of(Mpi::Mpich).into_iter().chain(Carrier::FLOORS).map(Carrier::class);
        let mut classes: Vec<&str> = carriers.chain(paper::FIGURE_6.map(|it| it.class)).collect();
        for class in &classes {
            assert!(inks().any(|ink| ink == *class), "{class}");
        }
        let count = classes.len();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes.len(), count);
    }
}
