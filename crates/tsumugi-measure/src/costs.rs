//! `tsumugi perf costs`: where the time of a message goes, part by part: of a short one with the XDP receive path (P1's tables 3 and
//! 4, of this machine), and of longer ones over sockets ([`long`]).
//!
//! Each [part](parts::Part) is measured by itself; none is what others left over. How far their sum is from a round
//! trip that was measured in between tells whether they are all.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;
use tsumugi::{Endpoint, Wait};

use crate::conditions::{Conditions, Side};
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED, Shown};
use crate::progress::{Progress, count};
use crate::sizes::Sizes;

mod bare;
mod long;
mod measure;
mod noted;
pub(crate) mod parts;
pub(crate) mod table;
mod talk;
mod timing;
mod wires;

/// Send paths whose costs can be taken apart.
pub(crate) const SEND_PATHS: [&str; 3] = ["udp", "packet", "xsk"];

const HELP: &str = "\
As root this makes two nodes of its own (network namespaces joined by veth pairs) and removes them again. Two threads \
on two CPUs talk to each other through the library with the XDP receive path; each part of the time is measured:

  library, sending     from the application's call to the system call
  system call          the call that sends, refused before anything is done
  driver, sending      socket layer, frame buffer, the NIC driver's transmit: what sending the same bytes takes more \
                       when nobody takes the frame
  softirq, receiving   the receiving NIC's poll: what it takes more when a program there drops the frame at once
  program (protocol)   the XDP program, by the kernel's statistics of its runs
  (in a conversation)  what the same call takes more where it deposits the frame and somebody reads it than where the \
                       frame is dropped: with cache lines that are waited for. Not in the sum
  wire (cache line)    a veth pair has none: the time of a cache line from one CPU to the other
  library, receiving   from the record in the queue to the application's bytes, and giving it back

Their sum is compared with half of a round trip that was measured in between, and the output says so when they are more \
than a tenth apart. On a veth pair the sender's CPU does the receiver's softirq and is still in it when the receiver \
has the message; that time, 'ahead of the sender', is measured too and taken off.

With --size the two threads exchange messages of these sizes over sockets alone, and what each side spends in the library \
and in its calls is added up:

  library, sending     the copy that is kept, cutting, CRCs, headers
  kernel, sending      socket layer, segmentation, driver; on a veth pair the receiver's softirq, too
  until it is seen     nothing where the receiver looks while the sender is still in its call
  kernel, receiving    calls that find some of it
  library, receiving   CRCs, bookkeeping, the copy to its place
  waiting for the rest calls that find nothing in between

Beside them one copy and one CRC32C of the message by themselves, and as many bytes through bare UDP, for which the kernel \
segments and coalesces, and through bare TCP.

Examples:
  sudo tsumugi perf costs
  sudo tsumugi perf costs --size 4K,16K,64K
  sudo tsumugi perf costs --send packet --rounds 15
  sudo tsumugi perf costs --json | jq '.send_paths[] | {send, sum_ns, one_way_ns}'

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

/// What a send path or a size takes in a round, seconds, and what is made before.
const STEP_S: f64 = 0.2;
const LAB_S: f64 = 1.0;

/// Options of this command.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CostsOptions {
    /// Send paths, separated by commas.
    #[arg(long = "send", value_delimiter = ',', value_parser = SEND_PATHS, default_values = SEND_PATHS)]
    pub(crate) send_paths: Vec<String>,
    /// Take messages of these sizes apart, over sockets: bytes, as in `4K,16K,64K`, from 256 to 64K.
    #[arg(long = "size", value_name = "SIZES", conflicts_with = "send_paths", value_parser = long::sizes)]
    pub(crate) sizes: Option<Sizes>,
    /// Rounds; medians and spread are over them. A round takes about a fifth of a second for each send path or size.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// With each send path.
    pub(crate) send_paths: Vec<parts::Costs>,
    /// Without Tsumugi.
    pub(crate) bare_udp: parts::Bare,
    /// What was measured.
    #[serde(default)]
    pub(crate) measured: Conditions,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<R> {
    #[serde(flatten)]
    report: R,
    machine: Machine,
}

/// Why there is no table.
#[derive(Debug, ThisError)]
pub(crate) enum CostsError {
    #[error("interrupted")]
    Interrupted,
    #[error("only root can make the lab that costs are measured in: `sudo tsumugi perf costs`")]
    NotRoot,
    #[error("two CPUs are needed, one for each side, and this process may use one")]
    OneCpu,
    #[error("cannot make a lab to measure in: {0}")]
    Lab(#[from] tsumugi_lab::LabError),
    #[error(transparent)]
    Xdp(#[from] tsumugi_rail::xdp::XdpError),
    #[error("{doing}: {cause}")]
    Failed { doing: &'static str, cause: Box<dyn Error + Send + Sync> },
    #[error("{0}")]
    Lost(&'static str),
    #[error("the other thread has ended")]
    Gone,
}

impl CostsError {
    /// For `map_err`: what was tried when that happened.
    fn failed<E: Error + Send + Sync + 'static>(doing: &'static str) -> impl FnOnce(E) -> CostsError {
        move |cause| CostsError::Failed { doing, cause: cause.into() }
    }
}

/// Measures the costs of a short message in a lab of its own, which is gone afterwards.
pub(crate) fn report(options: &CostsOptions) -> Result<Report, CostsError> {
    measured(options, 1 + options.send_paths.len(), "send path", |progress| {
        let sides = Sides::default();
        let (send_paths, bare_udp) = measure::measure(options, &sides, progress)?;
        Ok(Report { send_paths, bare_udp, measured: sides.measured(options.rounds) })
    })
}

/// What `measure` measures as root, showing how far it is: so many steps a round.
fn measured<R>(
    options: &CostsOptions,
    steps: usize,
    of_what: &str,
    measure: impl FnOnce(&mut (dyn FnMut(u32, &str) + Send)) -> Result<R, CostsError>,
) -> Result<R, CostsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(CostsError::NotRoot);
    }
    let steps = u64::from(options.rounds) * steps as u64;
    let rounds = count(options.rounds as usize, "round");
    let what = format!("costs, {rounds} of about {STEP_S} s for each {of_what}");
    let progress = Progress::begin(options.shown, steps as f64 * STEP_S + LAB_S, &what, steps);
    measure(&mut |round, what| progress.step(format!("round {}: costs, {what}", round + 1)))
}

pub(crate) fn run(options: &CostsOptions) -> crate::CommandResult {
    // Before anything is started: the load that others make.
    let machine = Machine { wire: "lab (direct)".to_owned(), mtu_bytes: Some(1500), ..Machine::here() };
    let shown = match &options.sizes {
        None => report(options).map(|report| show(options, &report, &machine, table::page)),
        Some(Sizes(sizes)) => {
            let report =
                measured(options, sizes.len(), "size", |progress| long::report(options, sizes, progress));
            report.map(|report| show(options, &report, &machine, long::table::page))
        }
    };
    match shown {
        Ok(shown) => shown.map(|()| ExitCode::SUCCESS),
        Err(CostsError::Interrupted) => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error) => Err(error.into()),
    }
}

/// Prints a report as the options want it.
fn show<R: Serialize>(
    options: &CostsOptions,
    report: &R,
    machine: &Machine,
    page: impl FnOnce(&R, &Machine) -> String,
) -> Result<(), Box<dyn Error>> {
    if options.shown.json {
        output::line(serde_json::to_string(&Output { report, machine: machine.clone() })?)?;
    } else {
        output::text(page(report, machine))?;
    }
    Ok(())
}

/// Both sides of what is measured, as their threads tell.
#[derive(Default)]
struct Sides(Mutex<[Side; 2]>);

impl Sides {
    /// Notes what an endpoint in a node uses.
    fn add(&self, node: usize, endpoint: &Endpoint) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[node].add(&Side::of(endpoint, Wait::Spin));
    }

    /// What was measured, in so many rounds.
    fn measured(self, rounds: u32) -> Conditions {
        let sides = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        Conditions { rounds, sides: sides.into(), ..Conditions::default() }
    }
}

/// Figures as they might have been measured, for tests of what shows them.
#[cfg(test)]
pub(crate) mod samples {
    use super::Report;
    use super::parts::{Bare, Costs, Part, Round};
    use crate::conditions::Conditions;

    /// Of one send path: the parts come to 700 ns less 50, one way takes `one_way_ns`.
    pub(crate) fn report(one_way_ns: f64) -> Report {
        let parts = [100.0; Part::ALL.len()];
        let round = Round { parts, ahead: 50.0, call: 400.0, conversing: 60.0, round_trip: 2.0 * one_way_ns };
        let (send_paths, bare_udp) = (vec![Costs::of("packet", 64, &[round])], Bare::of(&[4000.0], &[90.0]));
        Report { send_paths, bare_udp, measured: Conditions::default() }
    }
}
