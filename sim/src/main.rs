//! Runs seeds, and replays one that failed.

use clap::Parser;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tsumugi_sim::defects;
use tsumugi_sim::{
    Complaint, Costs, GroupsReport, ModelsReport, Report, Simulation, run, run_groups, run_models, scale,
};
use tsumugi_wire::defect::Defect;

/// Events that are shown of a failing seed.
const TRACE_LINES: usize = 60;

/// Simulates clusters under faults, each from a seed, and checks what the library promises.
#[derive(Parser)]
#[command(name = "tsumugi-sim")]
struct Arguments {
    /// Seeds to run: FIRST..END; otherwise those that show the defect, or 0..10000, or 0..2000 of all models.
    #[arg(long, value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// Runs this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; 0: one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Shows every event of a single seed.
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Runs clusters whose hosts use every programming model at once.
    #[arg(long, conflicts_with = "verbose")]
    models: bool,
    /// Runs groups that switch boxes count for, of up to 61 members on trees of up to 6 boxes.
    #[arg(long, conflicts_with_all = ["verbose", "models", "defect"])]
    groups: bool,
    /// Tells how long a barrier of 2 to 4,096 members takes on trees of boxes with 64 ports, at these costs, ns: of a packet on a link,
    /// of one that comes to a box, and of each that a box sends.
    #[arg(long, value_name = "LINK,PACKET,COPY", exclusive = true, value_parser = costs)]
    scale: Option<Costs>,
    /// Goes on after a seed that failed.
    #[arg(long)]
    keep_going: bool,
    /// Breaks the protocol in this way, which a seed should show. Needs a build with `--features defects`.
    #[arg(long, value_name = "NAME", value_parser = defects::parse)]
    defect: Option<Defect>,
    /// Lists the defects, and what each breaks.
    #[arg(long, exclusive = true)]
    defects: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let malformed = || format!("'{text}' is no range of seeds; write FIRST..END, for example 0..10000");
    let (first, end) = text.split_once("..").ok_or_else(malformed)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| malformed());
    Ok(number(first)?..number(end)?)
}

fn costs(text: &str) -> Result<Costs, String> {
    let numbers: Vec<u64> = text.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    match numbers[..] {
        [link_ns, packet_ns, copy_ns] => Ok(Costs { link_ns, packet_ns, copy_ns }),
        _ => Err(format!("'{text}' is not three numbers; write LINK,PACKET,COPY, for example 1500,300,300")),
    }
}

/// Prints how long barriers take.
fn show_scale(costs: Costs) -> ExitCode {
    let sizes: Vec<usize> = (1..=12).map(|power| 1 << power).collect();
    match scale(&sizes, 9, 64, costs) {
        Ok(all) => {
            println!("members  layers  barrier");
            for row in all {
                println!("{:>7}  {:>6}  {:>5.1} µs", row.members, row.layers, row.barrier_ns as f64 / 1000.0);
            }
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.defects {
        let row = |&defect: &Defect| format!("{:<26} {}\n", defects::name(defect), defect.breaks());
        let listed = std::io::stdout().write_all(Defect::ALL.iter().map(row).collect::<String>().as_bytes());
        return if listed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(costs) = arguments.scale {
        return show_scale(costs);
    }
    if let Some(defect) = arguments.defect {
        defect.switch_on();
        arguments.models |= defects::is_of_models(defect);
    }
    // A panic is a complaint like any other, with the place where it happened.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let lines = if arguments.verbose { usize::MAX } else { TRACE_LINES };
    match arguments.seed {
        Some(seed) if arguments.groups => single(seed, run_groups(seed), lines),
        Some(seed) if arguments.models => single(seed, run_models(seed), lines),
        Some(seed) => single(seed, run(seed, true), lines),
        None if arguments.groups => many(&arguments, run_groups, GroupsReport::add, tell_groups),
        None if arguments.models => many(&arguments, run_models, ModelsReport::add, tell_models),
        None => many(&arguments, |seed| run(seed, false), Report::add, tell),
    }
}

fn single<R: std::fmt::Debug>(seed: u64, outcome: Result<R, Box<Complaint>>, lines: usize) -> ExitCode {
    match outcome {
        Ok(report) => {
            eprintln!("seed {seed}: {report:?}");
            ExitCode::SUCCESS
        }
        Err(complaint) => {
            show(&complaint, lines);
            ExitCode::FAILURE
        }
    }
}

fn show(complaint: &Complaint, lines: usize) {
    let trace = &complaint.trace;
    for line in &trace[trace.len().saturating_sub(lines)..] {
        println!("{line}");
    }
    println!("{complaint}");
}

/// Sums over runs.
#[derive(Default)]
struct Sums<R> {
    runs: u64,
    all: R,
    complaints: Vec<Complaint>,
}

/// Runs seeds on all processors; `add` sums their reports up, and `tell` says what came of it.
fn many<R: Default + Send>(
    arguments: &Arguments,
    run: impl Fn(u64) -> Result<R, Box<Complaint>> + Sync,
    add: impl Fn(&mut R, &R) + Sync,
    tell: impl Fn(&R) -> String,
) -> ExitCode {
    let seeds = arguments.seeds.clone();
    let Range { start, end } = seeds.unwrap_or_else(|| defects::seeds(arguments.defect, arguments.models));
    let jobs = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let (next, sums, began) = (AtomicU64::new(start), Mutex::new(Sums::<R>::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = run(seed);
                    let Ok(mut sums) = sums.lock() else { break };
                    sums.runs += 1;
                    match outcome {
                        Ok(report) => add(&mut sums.all, &report),
                        Err(complaint) => sums.complaints.push(*complaint),
                    }
                    if !sums.complaints.is_empty() && !arguments.keep_going {
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut shown = Instant::now();
        while next.load(Ordering::Relaxed) < end {
            std::thread::sleep(Duration::from_millis(20));
            if shown.elapsed() > Duration::from_secs(2) {
                shown = Instant::now();
                if let Ok(sums) = sums.lock() {
                    eprintln!("{} of {} seeds, {} failed", sums.runs, end - start, sums.complaints.len());
                }
            }
        }
    });
    let Ok(sums) = sums.into_inner() else { return ExitCode::FAILURE };
    eprintln!("{} seeds in {:.1} s: {}", sums.runs, began.elapsed().as_secs_f64(), tell(&sums.all));
    if sums.complaints.is_empty() {
        return ExitCode::SUCCESS;
    }
    for complaint in &sums.complaints {
        // Once more, with a trace: the same seed runs the same.
        let again = !arguments.keep_going && complaint.of == Simulation::Clusters;
        let traced = if again { tsumugi_sim::run(complaint.seed, true).err() } else { None };
        show(traced.as_deref().unwrap_or(complaint), TRACE_LINES);
    }
    ExitCode::FAILURE
}

fn tell(report: &Report) -> String {
    let Report {
        posted,
        taken,
        failed,
        errands,
        datagrams,
        xoffs,
        pieces,
        by_xdp,
        direct_writes,
        repaired,
        followed,
        left,
        calls,
        ..
    } = report;
    format!(
        "{posted} messages posted, {taken} taken, {failed} failed; {errands} errands in memory; {datagrams} datagrams, {by_xdp} deposited by XDP, {direct_writes} of them direct writes, {repaired} damaged and repaired, {xoffs} XOFFs, {pieces} pieces, {followed} over several paths, {left} paths given up, {calls} calls"
    )
}

fn tell_groups(report: &GroupsReport) -> String {
    let GroupsReport { left, told, learned, unknown, restarts, .. } = report;
    format!(
        "generations were left {left} times; {restarts} restarts of boxes, {unknown} packets to boxes that had forgotten, {learned} results learned from others; {told} members told of a death"
    )
}

fn tell_models(report: &ModelsReport) -> String {
    let ModelsReport { letters, requests, threads, tagged, counters, collectives, faults } = report;
    format!(
        "{letters} messages on channels, {requests} active messages, {threads} streams, {tagged} tagged messages, {counters} words changed, {collectives} collective operations; {faults} faults"
    )
}
