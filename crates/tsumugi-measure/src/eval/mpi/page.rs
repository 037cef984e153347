//! The report of `tsumugi eval mpi`.

use super::figures::FigureRow;
use super::summary::{self, COLLECTIVES};
use super::{Carrier, Evaluation, paper, show, table};
use crate::machine::utc;
use crate::report::bars::{Bar, Bars, Group};
use crate::report::html::Figure;
use crate::report::page::{Page, Table, section, tables};
use crate::report::plot::{Line, Plot};
use crate::report::quantity::Quantity;
use crate::sizes;

/// How it was measured.
const METHOD: &str = "The programs of `bench/`, built by the MPI's own compiler, run over each carrier in turn and round by round, on the nodes of a \
     lab. Figures are medians over the rounds.";

/// The whole page.
pub(super) fn page(evaluation: &Evaluation) -> String {
    let machine = &evaluation.machine;
    let loss =
        evaluation.loss.as_ref().map_or_else(String::new, |loss| format!(", {loss} of the packets lost"));
    let sections = [pairs, collectives, sort, overlap, figures];
    let page = Page {
        title: "MPI over Tsumugi, beside the same MPI over TCP",
        subtitle: format!(
            "{}, {}{loss}, {}, on {}",
            utc(machine.time_unix_s),
            machine.wire,
            evaluation.mpi,
            machine.host
        ),
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

/// A figure against size.
fn curve(evaluation: &Evaluation, title: &str, y_label: &str, figure: &str, ranks: u32) -> Option<Figure> {
    let line = |over: Carrier, figure: &str| {
        let of = |row: &&FigureRow| row.over == over && row.key.figure == figure && row.key.ranks == ranks;
        let points =
            evaluation.rows.iter().filter(of).map(|row| (row.key.size_bytes as f64, show::base(row)));
        Line { name: over.text().to_owned(), class: over.class(), points: points.collect() }
    };
    let mut lines: Vec<Line> = evaluation.carriers.iter().map(|over| line(*over, figure)).collect();
    lines.extend(Carrier::FLOORS.map(|floor| line(floor, &format!("udp_{figure}"))));
    lines.retain(|line| !line.points.is_empty());
    let quantity = show::quantity(evaluation.rows.iter().find(|row| row.key.figure == figure)?);
    Plot { title, y_label, quantity, lines }.figure()
}

/// Two ranks.
fn pairs(evaluation: &Evaluation) -> String {
    let plots = [
        curve(evaluation, "Latency", "half a round trip", "latency", 2),
        curve(evaluation, "Bandwidth", "one way", "bandwidth", 2),
        curve(evaluation, "Bandwidth, both ways", "both together", "bandwidth_both_ways", 2),
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
            curve(evaluation, &format!("{figure}, {ranks} nodes"), "mean of the ranks", figure, ranks)
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
        Some(Bar { name: over.text().to_owned(), class: over.class(), value: show::base(row) })
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

fn barrier(evaluation: &Evaluation, ranks: &[u32]) -> Option<Figure> {
    let groups = by_ranks(evaluation, ranks, "barrier");
    Bars { title: "barrier", label: "mean of the ranks", quantity: Quantity::Time, groups }.figure()
}

/// The integer sort, beside P1.
fn sort(evaluation: &Evaluation) -> String {
    let of_sort = |row: &&FigureRow| row.key.figure == "is_time";
    let mut ranks: Vec<u32> = evaluation.rows.iter().filter(of_sort).map(|row| row.key.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let charts =
        [("is_time", "Whole time"), ("is_communication", "Time in communication")].map(|(figure, title)| {
            let groups = by_ranks(evaluation, &ranks, figure);
            Bars { title, label: "of ten sorts", quantity: Quantity::Time, groups }.figure()
        });
    let title = format!("Integer sort, class {}", evaluation.class);
    section(&title, paper::CAPTION, charts.into_iter().chain([speed_ups(evaluation, &ranks)]).flatten())
}

/// How much quicker several nodes are than one: figure 6.
fn speed_ups(evaluation: &Evaluation, ranks: &[u32]) -> Option<Figure> {
    let alone = evaluation.rows.iter().find(|row| row.key.figure == "is_time" && row.key.ranks == 1)?;
    let alone = show::base(alone);
    let mut groups = by_ranks(evaluation, ranks, "is_time");
    groups.retain(|group| group.name != "1 nodes");
    for bar in groups.iter_mut().flat_map(|group| &mut group.bars) {
        bar.value = alone / bar.value;
    }
    let of_paper = paper::FIGURE_6.map(|it| Bar {
        name: format!("P1, {}", it.over),
        class: "paper",
        value: it.speed_up,
    });
    groups.push(Group { name: "16 nodes of P1".to_owned(), bars: of_paper.into() });
    let title = "Speed-up over one rank, beside P1's figure 6";
    Bars { title, label: "times quicker", quantity: Quantity::Number, groups }.figure()
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
        Bars { title, label: "share of the communication", quantity: Quantity::Share, groups }.figure()
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
    let how =
        "Medians of the rounds, and in brackets the median of the figure divided by tcp's in the same round.";
    let failures = evaluation.failures.iter().map(|failure| format!("FAILED {failure}"));
    let words: Vec<String> = std::iter::once(how.to_owned()).chain(failures).collect();
    let all = table::sections(evaluation).into_iter();
    tables("Figures", &words, all.map(|section| (section.title.clone(), joined(&section))))
}

/// A table in which each ratio is with its figure, where also a row that became a block has it.
fn joined(section: &table::Section) -> Table {
    let is_ratio = |column: usize| section.header.get(column).is_some_and(|heading| heading == table::RATIO);
    let columns: Vec<usize> = (0..section.header.len()).filter(|column| !is_ratio(*column)).collect();
    let cell = |cells: &[String], column: usize| match cells.get(column + 1) {
        Some(ratio) if is_ratio(column + 1) && !ratio.is_empty() => format!("{} ({ratio})", cells[column]),
        _ => cells[column].clone(),
    };
    let row = |cells: &Vec<String>| columns.iter().map(|column| cell(cells, *column)).collect();
    let header = columns.iter().map(|column| section.header[*column].clone()).collect();
    Table::plain(header, section.rows.iter().map(row))
}

#[cfg(test)]
pub(crate) mod samples {
    //! A page as an evaluation would give it.

    use super::super::figures::{Measured, read};
    use super::super::{Failure, plan};
    use super::*;
    use crate::machine::Machine;
    use crate::sizes::Sizes;
    use tsumugi_lab::mpi::Mpi;

    /// Two rounds of what is measured by default; ours takes less time, and has less bandwidth.
    pub(in super::super) fn evaluation() -> Evaluation {
        let carriers = Carrier::of(Mpi::Mpich);
        let (nodes, class) = ([2, 4], 'A');
        let mut measured = Measured::default();
        let wanted = plan::Wanted { nodes: &nodes, class, seconds: 0.1, quick: false };
        for task in plan::tasks(&wanted) {
            let over: &[Carrier] = match (task.is_floor, task.nodes) {
                (true, _) => &Carrier::FLOORS,
                (false, 1) => &carriers[..1],
                _ => &carriers,
            };
            for (over, round) in over.iter().flat_map(|over| [(*over, 1), (*over, 2)]) {
                let lines = lines(&task, over, f64::from(round));
                let figures = lines.iter().filter_map(|line| read(line)).flatten();
                measured.add(round, over, figures.collect());
            }
        }
        let why = "exit status 1 <in a sample>".to_owned();
        let failures =
            vec![Failure { round: 2, job: "overlap on 2 nodes".to_owned(), over: Carrier::Ucx, why }];
        let wire = "labs (veth of 2 nodes, veth of 4 nodes)".to_owned();
        Evaluation {
            mpi: "mpich",
            class,
            loss: None,
            rows: measured.rows(&carriers),
            paper: &paper::FIGURE_6,
            failures,
            measured: crate::conditions::samples::measured(),
            machine: Machine { wire, ..Machine::here() },
            carriers,
        }
    }

    /// What the benchmark of a task would print.
    fn lines(task: &plan::Task, over: Carrier, round: f64) -> Vec<String> {
        let slower = match over {
            Carrier::Tcp => 1.0,
            Carrier::Ucx => 0.8,
            Carrier::TsumugiSocket => 0.5,
            Carrier::TsumugiXdp => 0.4,
            Carrier::BareUdp => 0.3,
            Carrier::BareUdpXdp => 0.35,
        } * (1.0 + round / 50.0);
        let option = |name: &str| task.arguments.iter().skip_while(|it| *it != name).nth(1);
        let both_ways = task.arguments.iter().any(|it| it == "--both-ways");
        let udp = if task.is_floor { "udp_" } else { "" };
        let figures: Vec<String> = match task.program {
            "bandwidth" if both_ways => vec![format!("{udp}bandwidth_both_ways")],
            "overlap" => vec!["overlap_sender".to_owned(), "overlap_receiver".to_owned()],
            "collectives" => COLLECTIVES.map(str::to_owned).into(),
            "is" => vec!["is_A".to_owned()],
            program => vec![format!("{udp}{program}")],
        };
        let sizes = option("--size").map_or("32M", String::as_str).parse::<Sizes>().expect("sizes").0;
        let nodes = f64::from(task.nodes);
        let line = |figure: &String, bytes: u64| {
            let size = bytes as f64;
            let time = slower * (12.0 + size / 900.0) * nodes;
            let (value, unit) = match task.program {
                "bandwidth" => (3000.0 * size / (size + 4096.0) * (0.4 + slower / 2.0), "MB/s"),
                "message_rate" => (4e6 / slower, "messages/s"),
                "overlap" => (1.0 - slower, "ratio"),
                _ => (time, "us"),
            };
            let seconds = 0.8 / nodes + slower * 0.1;
            format!(
                r#"{{"figure": "{figure}", "size_bytes": {bytes}, "ranks": {nodes}, "value": {value}, "unit": "{unit}",
                "seconds": {seconds}, "communication_mean_s": {}}}"#,
                slower * 0.1
            )
        };
        figures
            .iter()
            .flat_map(|figure| {
                let sizes = if figure == "barrier" { &[0][..] } else { &sizes[..] };
                sizes.iter().map(move |&bytes| line(figure, bytes)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// What `eval mpi --html` writes.
    pub(crate) fn page() -> String {
        super::page(&evaluation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::marks::assert_told_apart;
    use tsumugi_lab::mpi::Mpi;

    #[test]
    fn ratios_are_with_their_figures() {
        let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let header = cells(&["size", "tcp", "UCX/tcp", table::RATIO]);
        let rows = vec![cells(&["8 B", "4 µs", "2 µs", "0.50"]), cells(&["16 B", "4 µs", "", ""])];
        let table = joined(&table::Section { title: String::new(), header, rows });
        assert_eq!(table.header, ["size", "tcp", "UCX/tcp"]);
        let rows: Vec<Vec<String>> = table.rows.into_iter().map(|(cells, _)| cells).collect();
        assert_eq!(rows, [["8 B", "4 µs", "2 µs (0.50)"], ["16 B", "4 µs", ""]]);
    }

    #[test]
    fn ways_can_be_told_apart_without_colour() {
        let carriers = Carrier::of(Mpi::Mpich).into_iter().chain(Carrier::FLOORS).map(Carrier::class);
        assert_told_apart(&carriers.chain(["paper"]).collect::<Vec<_>>());
    }
}
