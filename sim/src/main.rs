//! Runs seeds, and replays one that failed.

use clap::Parser;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tsumugi_sim::{Complaint, Report, run};

/// Events that are shown of a failing seed.
const TRACE_LINES: usize = 60;

/// Simulates clusters under faults, each from a seed, and checks what the library promises.
#[derive(Parser)]
#[command(name = "tsumugi-sim")]
struct Arguments {
    /// Seeds to run: FIRST..END.
    #[arg(long, default_value = "0..10000", value_parser = range, conflicts_with = "seed")]
    seeds: Range<u64>,
    /// Runs this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; 0: one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Shows every event of a single seed.
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Goes on after a seed that failed.
    #[arg(long)]
    keep_going: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let malformed = || format!("'{text}' is no range of seeds; write FIRST..END, for example 0..10000");
    let (first, end) = text.split_once("..").ok_or_else(malformed)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| malformed());
    Ok(number(first)?..number(end)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic is a complaint like any other, with the place where it happened.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    match arguments.seed {
        Some(seed) => single(seed, arguments.verbose),
        None => many(&arguments),
    }
}

fn single(seed: u64, verbose: bool) -> ExitCode {
    match run(seed, true) {
        Ok(report) => {
            eprintln!("seed {seed}: {report:?}");
            ExitCode::SUCCESS
        }
        Err(complaint) => {
            show(&complaint, if verbose { usize::MAX } else { TRACE_LINES });
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
struct Sums {
    runs: u64,
    all: Report,
    complaints: Vec<Complaint>,
}

fn many(arguments: &Arguments) -> ExitCode {
    let Range { start, end } = arguments.seeds;
    let jobs = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let (next, sums, began) = (AtomicU64::new(start), Mutex::new(Sums::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = run(seed, false);
                    let Ok(mut sums) = sums.lock() else { break };
                    sums.add(outcome);
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
    let Report {
        posted,
        taken,
        failed,
        errands,
        datagrams,
        stops,
        driven,
        landed,
        followed,
        left,
        calls,
        ..
    } = sums.all;
    eprintln!(
        "{} seeds in {:.1} s: {posted} messages posted, {taken} taken, {failed} failed; {errands} errands in memory; {datagrams} datagrams, {driven} deposited by drivers, {landed} of them in windows, {stops} STOPs, {followed} over trunks, {left} paths given up, {calls} calls",
        sums.runs,
        began.elapsed().as_secs_f64()
    );
    if sums.complaints.is_empty() {
        return ExitCode::SUCCESS;
    }
    for complaint in &sums.complaints {
        // Once more, with a trace: the same seed takes the same way.
        let traced = if arguments.keep_going { None } else { run(complaint.seed, true).err() };
        show(traced.as_deref().unwrap_or(complaint), TRACE_LINES);
    }
    ExitCode::FAILURE
}

impl Sums {
    fn add(&mut self, outcome: Result<Report, Box<Complaint>>) {
        self.runs += 1;
        match outcome {
            Ok(report) => {
                self.all.add(&report);
            }
            Err(complaint) => self.complaints.push(*complaint),
        }
    }
}
