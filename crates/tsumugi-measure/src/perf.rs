//! `tsumugi perf`: latency, bandwidth, message rate, overhead and overlap between two hosts; and the cost table.

use clap::{Args, Subcommand};
use std::process::ExitCode;

use tsumugi::{ReceiveChoice, Wait};

use crate::choices::any_of;
use crate::conditions::Conditions;
use crate::cpu::{Cpus, pin};
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED};
use crate::row::{Metric, Output, Row};
use tsumugi_lab::interrupt::watch_interrupts;

mod azc;
mod client;
mod control;
mod models;
mod options;
mod rounds;
mod sample;
mod serve;
mod text;

use client::ClientError;
use options::Measure;
pub(crate) use rounds::over_rounds;

/// The port of `perf serve` unless another is given.
pub(crate) const PORT: u16 = 7411;

/// Options of this command.
#[derive(Args)]
#[command(after_help = "Examples:
  On one host:    tsumugi perf serve
  On another:     tsumugi perf latency node1
                  tsumugi perf latency node1 --size 8..64K --wait spin
                  tsumugi perf bandwidth node1 --faults loss=1%,seed=7
                  tsumugi perf bandwidth node1 --transport tcp-spin
                  tsumugi perf overlap node1 --receive xdp
                  tsumugi perf models node1 --wait spin
                  tsumugi perf azc node1 --wait spin --rounds 9
                  tsumugi perf rate node1 --json | jq '.rows[].per_s'
  Alone, as root: tsumugi perf costs
                  tsumugi perf all-to-all
                  tsumugi perf forwarding
                  tsumugi perf barrier
                  tsumugi perf multicast
                  tsumugi perf collectives
                  tsumugi perf translate")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer the measurements of other hosts until Ctrl-C; one at a time, so that none disturbs another.
    Serve(Serve),
    /// Round-trip time of a message and its echo: percentiles.
    #[command(after_help = LATENCY)]
    Latency(Box<options::RoundTrips>),
    /// Payload per second in one direction, and what it costs in CPU time.
    #[command(after_help = BANDWIDTH)]
    Bandwidth(Box<options::Bandwidth>),
    /// Messages per second in one direction, sent one by one by a single thread.
    #[command(after_help = RATE)]
    Rate(Box<options::Rate>),
    /// CPU time of sending and receiving one message (LogP's o_s and o_r).
    #[command(after_help = OVERHEAD)]
    Overhead(Box<options::RoundTrips>),
    /// Share of a core that a waiting endpoint costs.
    #[command(after_help = IDLE)]
    Idle(Box<options::Idle>),
    /// Share of a message's transfer that is hidden behind a computation of the receiver.
    #[command(long_about = OVERLAP, after_help = OVERLAP_EXAMPLES)]
    Overlap(Box<options::Overlap>),
    /// The programming models beside each other: one-way latency, overhead and bandwidth of each, by size.
    #[command(long_about = MODELS, after_help = MODELS_EXAMPLES)]
    Models(Box<options::Ways>),
    /// Tagged messages of random lengths: active zero-copy against eager and rendezvous.
    #[command(long_about = AZC, after_help = AZC_EXAMPLES)]
    Azc(Box<options::Ways>),
    /// Where the time of a 64 B message goes, part by part, in a lab of its own (root).
    Costs(crate::costs::CostsOptions),
    /// Everyone sends to everyone at once, with the XDP and with the socket receive path (figures 7 and 8 of P3:
    /// Aoki et al., MMP on Maestro2, 2006), in labs of its own (root).
    AllToAll(crate::exchange::ExchangeOptions),
    /// One of those who send: a part of `all-to-all`, run in a node of its lab.
    #[command(hide = true)]
    AllToAllMember(crate::exchange::member::MemberOptions),
    /// The switch box beside the kernel's bridge, on the same NICs, in a lab of its own (root).
    Forwarding(crate::forwarding::ForwardingOptions),
    /// Sends frames: a part of `forwarding`, run in a node of its lab.
    #[command(hide = true)]
    ForwardingFrames(crate::forwarding::frames::FramesOptions),
    /// A barrier that the switch box counts, beside one by messages and a single message (table 2 of P3: Aoki et al., MMP on
    /// Maestro2, 2006), in a lab of its own (root).
    Barrier(crate::groups::barrier::BarrierOptions),
    /// One message to all of several receivers, sent once and sent to each: the sender's CPU time, and what arrives, in a lab
    /// of its own (root).
    Multicast(crate::groups::multicast::MulticastOptions),
    /// One of those who send and receive: a part of `multicast`, run in a node of its lab.
    #[command(hide = true)]
    MulticastMember(crate::groups::stream::StreamOptions),
    /// Every collective operation by size, by messages and, where it can count them, by the switch box, in a lab of its
    /// own (root).
    Collectives(crate::groups::collectives::CollectivesOptions),
    /// A member of a group: a part of `barrier` and `collectives`, run in a node of their lab.
    #[command(hide = true)]
    GroupMember(crate::groups::member::MemberOptions),
    /// What a node is: a part of several measurements.
    #[command(hide = true)]
    Side(crate::side::SideOptions),
    /// Writing pages of another process's window, with and without translations in the XDP program
    /// (figure 1 of P5: Kunisawa et al., Network Interface card with address translation buffer, about 1998), and while that
    /// process is stopped, in a lab of its own (root).
    Translate(crate::translate::TranslateOptions),
    /// Has a window: a part of `translate`, run in a node of its lab.
    #[command(hide = true)]
    TranslateTarget(crate::translate::target::TargetOptions),
    /// Writes into a window: a part of `translate`, run in a node of its lab.
    #[command(hide = true)]
    TranslateWriter(crate::translate::writer::WriterOptions),
}

macro_rules! examples {
    ($lines:literal) => {
        concat!("Examples:\n", $lines, "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")
    };
}

const LATENCY: &str = examples!(
    "  tsumugi perf latency node1                              64 B, the default wait
  tsumugi perf latency node1 --size 8..64K --wait spin    a curve
  tsumugi perf latency node1:7500 --receive xdp           through the XDP program, on both hosts
  tsumugi perf latency node1 --transport tcp-spin         bare TCP on the same wire
  sudo tsumugi perf latency node1 --transport raw-xdp     bare Ethernet frames; root on both hosts
  sudo tsumugi perf latency node1 --transport raw-write   the same, written into memory
  tsumugi perf latency node1 --json | jq '.rows[].p50_ns'"
);

const BANDWIDTH: &str = examples!(
    "  tsumugi perf bandwidth node1                            messages of 1 MiB
  tsumugi perf bandwidth node1 --size 64..4M --rounds 5   a curve; median and spread of five rounds
  tsumugi perf bandwidth node1 --in-place                 messages that are built in the library's buffers
  tsumugi perf bandwidth node1 --faults loss=1%,seed=7 --repeat go-back-n
  tsumugi perf bandwidth node1 --transport tcp-block      bare TCP on the same wire
  tsumugi perf bandwidth node1 --json | jq '.rows[].gbit_s'"
);

const RATE: &str = examples!(
    "  tsumugi perf rate node1                                 messages of 8 B
  tsumugi perf rate node1 --size 8,64,1K --wait spin
  tsumugi perf rate node1 --transport udp                 bare UDP on the same wire
  tsumugi perf rate node1 --json | jq '.rows[].per_s'"
);

const OVERHEAD: &str = examples!(
    "  tsumugi perf overhead node1                             64 B
  tsumugi perf overhead node1 --size 8..4K --send packet
  tsumugi perf overhead node1 --transport udp             bare UDP on the same wire
  tsumugi perf overhead node1 --json | jq '.rows[] | {size_bytes, send_ns, receive_ns}'"
);

const IDLE: &str = examples!(
    "  tsumugi perf idle node1                                 the default wait
  tsumugi perf idle node1 --wait block --time 2
  tsumugi perf idle node1 --transport tcp-block           a TCP socket that sleeps
  tsumugi perf idle node1 --json | jq '.rows[].cpu_share'"
);

const OVERLAP_EXAMPLES: &str = examples!(
    "  tsumugi perf overlap node1                              1 MiB
  tsumugi perf overlap node1 --receive xdp                the program takes packets in meanwhile
  tsumugi perf overlap node1 --size 64K..4M --json | jq '.rows[] | {size_bytes, overlap}'"
);

const MODELS_EXAMPLES: &str = examples!(
    "  tsumugi perf models node1 --wait spin
  tsumugi perf models node1 --size 8,1K,64K --rounds 9
  tsumugi perf models node1 --json | jq '.rows[] | {model, metric, size_bytes, p50_ns, gbit_s}'"
);

const AZC_EXAMPLES: &str = examples!(
    "  tsumugi perf azc node1 --wait spin --rounds 9
  tsumugi perf azc node1 --size 4K,64K
  tsumugi perf azc node1 --json | jq '.rows[] | {protocol, size_bytes, per_s, ratio}'"
);

const OVERLAP: &str = "\
Share of a message's transfer that is hidden behind a computation of the receiver, which is this side.

It asks the server for a message and waits: that takes t_transfer. It asks for another one, \
computes for T = 2 t_transfer without calling the library, and receives it: that takes t_both. The overlap is \
(t_transfer + T - t_both) / t_transfer, within 0 and 1: 1 when the message was there after the computation, 0 when it \
only began to arrive then. Figures are medians.";

const MODELS: &str = "\
The programming models beside each other: one-way latency, overhead (LogP's o_s and o_r) and bandwidth of each, by \
message size, in turn and round by round, so that a disturbance meets all of them.

  channel         messages on a channel
  active-message  a request with data, and a reply with as much; a stream's requests are replied to with nothing
  stream          messages of one piece, read by a handler while they arrive
  write           remote writes into the other side's memory, which looks whether they are there
  message         tagged messages, received by requests that are posted ahead

What a model does not carry (active messages of more than 64 KiB) is left out. Sizes are 8 B to 4 KiB, and of bandwidth 512 B to \
1 MiB, unless --size says others.";

const AZC: &str = "\
Tagged messages of random lengths up to --size, 256 B to 256 KiB if none is given, per second: active zero-copy, where the data \
follow their head without a handshake and the receiver supplies the buffer when the head arrives, against eager sending \
up to 8 KiB and rendezvous above (figure 9 of P3: Aoki et al., MMP on Maestro2, 2006). Receives are posted ahead.

The two are measured in turn and round by round; the ratio is the median of the rounds' ratios. Once each message leaves \
when the one before was answered, so that a handshake is waited for; once as many are under way as go, which hides it.";

/// Options of `perf serve`.
#[derive(Args)]
#[command(
    after_help = "Uses TCP port PORT to be told what to measure, and UDP port PORT for the measurement. While nobody measures an
endpoint is there, which `tsumugi doctor --paths HOST` asks.

Examples:
  tsumugi perf serve
  tsumugi perf serve --port 7500 --cpu 1 --once"
)]
pub(crate) struct Serve {
    /// TCP and UDP port to answer on.
    #[arg(long, default_value_t = PORT)]
    pub(crate) port: u16,
    /// Exit when the first client has gone.
    #[arg(long)]
    pub(crate) once: bool,
    /// How to wait for messages, whatever the client asks for [default: what the client asks for].
    #[arg(long, value_parser = any_of::<Wait>())]
    pub(crate) wait: Option<String>,
    /// Receive path of this side, whatever the client asks for [default: what the client asks for].
    #[arg(long, value_parser = any_of::<ReceiveChoice>())]
    pub(crate) receive: Option<String>,
    /// Run on these CPUs only, as in `1` or `0,2-3`.
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpu: Option<Cpus>,
}

/// Runs it.
pub fn run(arguments: Arguments) -> crate::CommandResult {
    tsumugi_lab::child::die_with_parent();
    watch_interrupts()?;
    let (metric, measure) = match arguments.command {
        Command::Serve(serve) => {
            if let Some(cpus) = &serve.cpu {
                pin(cpus)?;
            }
            return serve::run(&serve);
        }
        Command::Latency(options) => (Metric::RoundTrip, options.measure(Metric::RoundTrip)),
        Command::Bandwidth(options) => (Metric::Bandwidth, options.measure()),
        Command::Rate(options) => (Metric::Rate, options.measure()),
        Command::Overhead(options) => (Metric::Overhead, options.measure(Metric::Overhead)),
        Command::Idle(options) => (Metric::Idle, options.measure()),
        Command::Overlap(options) => (Metric::Overlap, options.measure()),
        Command::Models(options) => {
            let measure = options.measure();
            return finish(&measure, models::run, models::tables);
        }
        Command::Azc(options) => {
            let measure = options.measure();
            return finish(&measure, azc::run, azc::tables);
        }
        Command::Costs(options) => return crate::costs::run(&options),
        Command::AllToAll(options) => return crate::exchange::run(&options),
        Command::AllToAllMember(options) => return crate::exchange::member::run(&options),
        Command::Forwarding(options) => return crate::forwarding::run(&options),
        Command::ForwardingFrames(options) => return crate::forwarding::frames::run(&options),
        Command::Barrier(options) => return crate::groups::barrier::run(&options),
        Command::Multicast(options) => return crate::groups::multicast::run(&options),
        Command::MulticastMember(options) => return crate::groups::stream::run(&options),
        Command::Collectives(options) => return crate::groups::collectives::run(&options),
        Command::GroupMember(options) => return crate::groups::member::run(&options),
        Command::Side(options) => return crate::side::run(&options),
        Command::Translate(options) => return crate::translate::run(&options),
        Command::TranslateTarget(options) => return crate::translate::target::run(&options),
        Command::TranslateWriter(options) => return crate::translate::writer::run(&options),
    };
    let measure = match measure {
        Ok(measure) => measure,
        Err(error) => return failed(error.into()),
    };
    finish(&measure, |measure| client::run(metric, measure), |rows| text::table(metric, rows))
}

/// Measures, and prints what came of it.
fn finish(
    measure: &Measure,
    run: impl FnOnce(&Measure) -> Result<(Vec<Row>, Conditions), ClientError>,
    show: impl FnOnce(&[Row]) -> String,
) -> crate::CommandResult {
    if let Some(cpus) = &measure.cpu {
        pin(cpus)?;
    }
    let (rows, measured) = match run(measure) {
        Ok(found) => found,
        Err(error) => return failed(error),
    };
    if measure.shown.json {
        let machine = Machine { wire: measure.host.clone(), ..Machine::here() };
        output::line(serde_json::to_string(&Output { rows, measured, machine })?)?;
    } else {
        output::text(format!("{}\n{}", measured.header(), show(&rows)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit code of what was not measured, or the error that is to be printed.
fn failed(error: ClientError) -> crate::CommandResult {
    match error {
        ClientError::Interrupted => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        ClientError::Usage(_) => {
            eprintln!("tsumugi: {error}");
            Ok(ExitCode::from(2))
        }
        error => Err(error.into()),
    }
}
