//! `tsumugi status`: the NICs with the XDP receive path, its endpoints, and the processes that have endpoints of either receive path.

mod doing;
mod help;
mod here;
mod limit;
pub(crate) mod processes;
mod prometheus;
pub(crate) mod rates;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod text;
pub(crate) mod units;

use crate::xdp;
use clap::Args;
use here::Here;
use processes::{View, Watcher};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tsumugi_lab::interrupt::{interrupted, watch_interrupts};
use tsumugi_measure::output::output;
use tsumugi_rail::xdp::{Pins, PoolStatus, status};

/// How often a wait is interrupted to see whether the user wants to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What to show.
#[derive(Args)]
#[command(after_help = help::HELP)]
pub(crate) struct StatusArguments {
    /// Print one JSON object; with --watch one a line.
    #[arg(long)]
    json: bool,
    /// Print the processes' endpoints in Prometheus' text format.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
    /// Show the processes again and again, with rates, until Ctrl-C; so many seconds apart.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    watch: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds from 0.1 to 3600")),
    }
}

/// The answer of `--json`.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    pool: xdp::Report,
    here: &'a Here,
    processes: &'a [View],
}

/// A line of `--watch --json`.
#[derive(Serialize)]
struct Line<'a> {
    processes: &'a [View],
}

pub(crate) fn run(options: &StatusArguments) -> tsumugi_measure::CommandResult {
    if let Some(every) = options.watch {
        return watch(every, options.json);
    }
    let views = own_last(Watcher::new().look());
    let mut out = output();
    if options.prometheus {
        out.write_all(prometheus::metrics(&views).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (pool, here) = (status(&Pins::here()?)?, Here::tried());
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&whole(&pool, &here, &views))?)?;
    } else {
        out.write_all(xdp::table(&pool).as_bytes())?;
        out.write_all(here.lines().as_bytes())?;
        out.write_all(text::processes(&views).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn whole<'a>(pool: &PoolStatus, here: &'a Here, processes: &'a [View]) -> Whole<'a> {
    Whole { pool: xdp::Report::new(pool), here, processes }
}

/// Those in other network namespaces last.
pub(crate) fn own_last(mut views: Vec<View>) -> Vec<View> {
    views.sort_by_key(|view| (!view.is_in_our_network_namespace, view.pid, view.port()));
    views
}

fn watch(every: Duration, json: bool) -> tsumugi_measure::CommandResult {
    watch_interrupts()?;
    let mut watcher = Watcher::new();
    // The first look is what the others' rates begin with.
    watcher.look();
    loop {
        let until = Instant::now() + every;
        while Instant::now() < until {
            if interrupted() {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
        let views = own_last(watcher.look());
        let mut out = output();
        if json {
            writeln!(out, "{}", serde_json::to_string(&Line { processes: &views })?)?;
        } else if views.is_empty() {
            writeln!(out, "no process with an endpoint that you may look at\n")?;
        } else {
            writeln!(out, "{}", text::processes(&views))?;
        }
        out.flush()?;
    }
}
