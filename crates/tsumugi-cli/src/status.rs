//! `tsumugi status`: the NICs with the XDP receive path, its endpoints, and the processes that have endpoints of either receive path.

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
#[command(after_help = HELP)]
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

const HELP: &str = "\
Processes are shown with their endpoints of either receive path: your own; root sees all. Counters begin with the endpoint, those of
a peer and its paths with the connection.

What the program is doing:
  calling     it calls the library, and so makes progress
  asleep      it sleeps in a call until something arrives
  event loop  its event loop watches the endpoint, and there is nothing to do
  computing   it runs and does not call: nothing is sent, and what arrives waits or is taken in by the XDP program
  elsewhere   it waits for something else, and does not call either
  stopped     a signal or a debugger has stopped it

Peers are strange (only the address is known), connecting, connected, leaving, or gone. A path is in use, or silent: it does not
answer, and is asked from time to time.

What messages wait for:
  xoff        the peer has refused packets: its receive queue was full, because its program does not receive fast enough
  credit      as much is under way as the peer has room for
  congestion  the congestion window of the paths: what is under way is as much as the network carries
  bitmap      as much is under way as a flow may have
  silence     no path to the peer answers
  nic         the queue of the NIC is full
  handshake   the connection is being made
  other       what was lost goes first, or a faster path is waited for

Why packets were sent again:
  overtaken    something that was sent later on the same path has arrived
  timed_out    nothing was acknowledged for a while
  path_silent  the path fell silent while another delivered
  went_back    a Go-back-N receiver missed something before it
  refused      the receiver had no room
  not_taken    the NIC's queue was full
  suspended    the endpoint was suspended meanwhile
  damaged      they had arrived damaged

What receive paths decided of packets:
  deposited          DATA that was put into the receive queue
  direct_writes      DATA that was written directly into the window
  untranslated       DATA that would have been, had there been a translation: it was deposited
  duplicate          DATA that had been deposited before
  beyond_bitmap      DATA beyond the receive bitmap or the credit
  out_of_order       DATA out of order in a Go-back-N flow
  queue_full         DATA refused because the receive queue was full
  malformed          bytes that are no packet of this version, or damaged in the header
  corrupt            packets whose body fails its CRC
  unknown_flow       packets for a flow that is not open
  wrong_token        packets with the wrong token: forged, or of a former connection
  wrong_epoch        packets for or from a former incarnation
  violation          packets that break the rules of the protocol
  handshake_refused  beginnings of connections that were refused
  remote_refused     remote operations that were not permitted

Examples:
  tsumugi status                        NICs, endpoints of the XDP receive path, processes with peers and paths
  tsumugi status --watch 2              the processes every 2 s, with rates
  tsumugi status --json | jq '.processes[] | {pid, limit}'
  tsumugi status --prometheus > /var/lib/prometheus/node-exporter/tsumugi.prom
  tsumugi top                           the same on a screen that refreshes";

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

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_wire::memory::Counter;

    #[test]
    fn every_word_that_is_shown_is_explained() {
        let endpoint = tsumugi::Endpoint::open(tsumugi::Config::loopback()).expect("an endpoint");
        let peer = endpoint.add_peer("127.0.0.1:9").expect("a peer");
        let snapshot = endpoint.snapshot();
        assert_eq!(endpoint.peers(), 1, "{peer:?}");
        let explained = |word: &str| HELP.lines().any(|line| line.trim_start().starts_with(word));
        for word in snapshot.resent.keys().chain(snapshot.peers[0].held_ns.keys()) {
            assert!(explained(word), "{word}");
        }
        for (_, word) in Counter::ALL {
            assert!(explained(word), "{word}");
        }
    }
}
