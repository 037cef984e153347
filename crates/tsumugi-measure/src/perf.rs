//! `tsumugi perf`: latency, bandwidth, message rate, overhead and overlap between two hosts; and the cost table.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tsumugi::{Integrity, Policy, ReceiveChoice, SendChoice, Wait};
use tsumugi_rail::xdp::Mode;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;

use crate::choices::{any_of, words};
use crate::cpu::{Cpus, pin};
use crate::machine::Machine;
use crate::output::{self, EXIT_INTERRUPTED};
use crate::peers::{Transport, ours};
use crate::row::{Metric, Output, Row};
use crate::sizes::{Sizes, bytes};
use tsumugi_lab::interrupt::watch_interrupts;

mod azc;
mod client;
mod control;
mod models;
mod rounds;
mod sample;
mod serve;
mod text;

pub(crate) use rounds::over_rounds;

/// The port of `perf serve` unless another is given.
pub(crate) const PORT: u16 = 7411;

/// Options of this command.
#[derive(Args)]
#[command(after_help = "Examples:
  On one host:    tsumugi perf serve
  On another:     tsumugi perf latency node1
                  tsumugi perf latency node1 --size 8..64K --wait spin
                  tsumugi perf bandwidth node1 --size 1M --faults loss=1%,seed=7 --repeat go-back-n
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
    Latency(Measure),
    /// Payload per second in one direction, and what it costs in CPU time.
    Bandwidth(Measure),
    /// Messages per second in one direction, sent one by one by a single thread.
    Rate(Measure),
    /// CPU time of sending and receiving one message (LogP's o_s and o_r).
    Overhead(Measure),
    /// Share of a core that a waiting endpoint costs.
    Idle(Measure),
    /// Share of a message's transfer that is hidden behind a computation of the receiver.
    #[command(long_about = OVERLAP)]
    Overlap(Measure),
    /// The programming models beside each other: one-way latency, overhead and bandwidth of each, by size.
    #[command(long_about = MODELS)]
    Models(Measure),
    /// Tagged messages of random lengths: active zero-copy against eager and rendezvous.
    #[command(long_about = AZC)]
    Azc(Measure),
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

const OVERLAP: &str = "\
Share of a message's transfer that is hidden behind a computation of the receiver, which is this side.

It asks the server for a message of --size [default: 1M] and waits: that takes t_transfer. It asks for another one,
computes for T = 2 t_transfer without calling the library, and receives it: that takes t_both. The overlap is
(t_transfer + T - t_both) / t_transfer, within 0 and 1: 1 when the message was there after the computation, 0 when it
only began to arrive then. Figures are medians.";

const MODELS: &str = "\
The programming models beside each other: one-way latency, overhead (LogP's o_s and o_r) and bandwidth of each, by
message size, in turn and round by round, so that a disturbance meets all of them.

  channel         messages on a channel
  active-message  a request with data, and a reply with as much; a stream's requests are replied to with nothing
  stream          messages of one piece, read by a handler while they arrive
  write           remote writes into the other side's memory, which looks whether they are there
  message         tagged messages, received by requests that are posted ahead

What a model does not carry (active messages of more than 64 KiB) is left out.";

const AZC: &str = "\
Tagged messages of random lengths up to --size [default: 256 to 256K], per second: active zero-copy, where the data
follow their head without a handshake and the receiver supplies the buffer when the head arrives, against eager sending
up to 8 KiB and rendezvous above (figure 9 of P3: Aoki et al., MMP on Maestro2, 2006). Receives are posted ahead.

The two are measured in turn and round by round; the ratio is the median of the rounds' ratios. Once each message leaves
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

/// Options of the measurements.
#[derive(Args, Clone)]
#[command(after_help = "Examples:
  tsumugi perf latency node1                              64 B, the default wait
  tsumugi perf latency node1 --size 8..64K --wait spin    a curve
  tsumugi perf bandwidth node1:7500 --size 1M --rounds 5  median and spread of five rounds
  tsumugi perf bandwidth node1 --transport tcp-block      bare TCP on the same wire
  sudo tsumugi perf latency node1 --transport raw-xdp     bare Ethernet frames; root on both hosts
  sudo tsumugi perf latency node1 --transport raw-write   the same, written into memory
  tsumugi perf overhead node1 --json                      one object on stdout

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")]
pub(crate) struct Measure {
    /// Where `tsumugi perf serve` runs: name or address, and port if it is not 7411.
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M` [default: 64; bandwidth and
    /// overlap 1M; rate 8].
    #[arg(long)]
    pub(crate) size: Option<Sizes>,
    /// Messages per round, instead of --time or as well; whichever ends first.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Seconds per round and size [default: 0.5].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time: Option<Duration>,
    /// Rounds; medians and spread are over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// What carries the messages.
    #[arg(long, value_enum, default_value_t = Transport::Tsumugi)]
    pub(crate) transport: Transport,
    /// Where raw-xdp and raw-write take frames out of the kernel [default: native].
    #[arg(long, value_parser = any_of::<Mode>().try_map(|word| word.parse::<Mode>()))]
    pub(crate) mode: Option<Mode>,
    /// How Tsumugi waits. `busy-poll` is for NICs that were set for it by `tsumugi up --busy-poll`.
    #[arg(long, default_value = "adaptive", value_parser = any_of::<Wait>())]
    pub(crate) wait: String,
    /// How Tsumugi sends. `packet` and `xsk` need CAP_NET_RAW.
    #[arg(long, default_value = "auto", value_parser = any_of::<SendChoice>())]
    pub(crate) send: String,
    /// Receive path, on both hosts. `xdp` needs `tsumugi up` there.
    #[arg(long, default_value = "auto", value_parser = any_of::<ReceiveChoice>())]
    pub(crate) receive: String,
    /// How packets are spread over the NICs that both hosts have on common links.
    #[arg(long, default_value = "adaptive", value_parser = policies())]
    pub(crate) policy: String,
    /// How the library is used (Tsumugi only).
    #[arg(long, value_enum, default_value_t)]
    pub(crate) model: ours::Model,
    /// How tagged messages travel (--model message).
    #[arg(long, value_enum, default_value_t)]
    pub(crate) protocol: ours::Protocol,
    /// What streams are made of: chosen by what is measured.
    #[arg(skip)]
    pub(crate) mix: ours::Mix,
    /// How Tsumugi repeats what was lost.
    #[arg(long, default_value = "selective", value_parser = repeats())]
    pub(crate) repeat: String,
    /// What tells that a message was altered on its way, on both hosts: a CRC of each packet, or what Ethernet and UDP have.
    #[arg(long, default_value = "crc32c", value_parser = any_of::<Integrity>())]
    pub(crate) integrity: String,
    /// Bytes that may be in flight: Tsumugi's receive memory (at least 32K), UDP's and raw-xdp's limit, TCP's socket
    /// buffers.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) in_flight: Option<u64>,
    /// Stream from buffers of the library, which it never copies: what a program does that builds its messages
    /// there (Tsumugi only, --model channel or message; bandwidth and rate).
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Longest datagram payload that Tsumugi sends [default: what the NIC's MTU has room for].
    #[arg(long, value_name = "BYTES", value_parser = datagram)]
    pub(crate) datagram: Option<u16>,
    /// Faults to inject on both sides, as in `loss=1%,dup=1%,reorder=5%,seed=7`.
    #[arg(long)]
    pub(crate) faults: Option<String>,
    /// Write every packet this side sends and receives to a pcap file (Tsumugi only).
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Give up when nothing arrives for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Run on these CPUs only, as in `0` or `0,2-3`.
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpu: Option<Cpus>,
    /// Print one JSON object on stdout, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A positive number of seconds up to an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds over 0 and up to 3600")),
    }
}

/// The length of a datagram that the library takes; what the NIC takes is for it to say.
fn datagram(text: &str) -> Result<u16, String> {
    let bytes = bytes(text).map_err(|why| why.to_string())?;
    match u16::try_from(bytes) {
        Ok(bytes) if usize::from(bytes) >= DATAGRAM_BYTES_MIN => Ok(bytes),
        _ => Err(format!("a datagram has {DATAGRAM_BYTES_MIN} to {} bytes", u16::MAX)),
    }
}

/// The policies, and to have none.
fn policies() -> PossibleValuesParser {
    let single = PossibleValue::new("single").help("Everything through the NIC that leads to HOST");
    PossibleValuesParser::new(words::<Policy>().into_iter().chain([single]))
}

/// What is sent again after a loss.
fn repeats() -> PossibleValuesParser {
    let selective = PossibleValue::new("selective").help("Only what is missing");
    let go_back_n = PossibleValue::new("go-back-n")
        .help("Everything from what is missing on (P1: Sumimoto et al., PM/Ethernet, 2000)");
    PossibleValuesParser::new([selective, go_back_n])
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
        Command::Latency(measure) => (Metric::RoundTrip, measure),
        Command::Bandwidth(measure) => (Metric::Bandwidth, measure),
        Command::Rate(measure) => (Metric::Rate, measure),
        Command::Overhead(measure) => (Metric::Overhead, measure),
        Command::Idle(measure) => (Metric::Idle, measure),
        Command::Overlap(measure) => (Metric::Overlap, measure),
        Command::Models(measure) => {
            return finish(&measure, || models::run(&measure), models::tables);
        }
        Command::Azc(measure) => {
            return finish(&measure, || azc::run(&measure), azc::tables);
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
        Command::Translate(options) => return crate::translate::run(&options),
        Command::TranslateTarget(options) => return crate::translate::target::run(&options),
        Command::TranslateWriter(options) => return crate::translate::writer::run(&options),
    };
    finish(&measure, || client::run(metric, &measure), |rows| text::table(metric, rows))
}

/// Measures, and prints what came of it.
fn finish(
    measure: &Measure,
    run: impl FnOnce() -> Result<Vec<Row>, client::ClientError>,
    show: impl FnOnce(&[Row]) -> String,
) -> crate::CommandResult {
    if let Some(cpus) = &measure.cpu {
        pin(cpus)?;
    }
    match run() {
        Ok(rows) => {
            let machine = Machine { wire: measure.host.clone(), ..Machine::here() };
            if measure.json {
                output::line(serde_json::to_string(&Output { rows, machine })?)?;
            } else {
                output::text(show(&rows))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(client::ClientError::Interrupted) => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(error @ client::ClientError::Usage(_)) => {
            eprintln!("tsumugi: {error}");
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error.into()),
    }
}
