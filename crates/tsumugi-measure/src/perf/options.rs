//! Options of the measurements between two hosts: of each only those that have an effect on it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use thiserror::Error;
use tsumugi::{Integrity, Policy, ReceiveChoice, SendChoice, Wait};
use tsumugi_rail::xdp::Mode;
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;

use crate::choices::{any_of, from_one, words};
use crate::conditions::Conditions;
use crate::cpu::Cpus;
use crate::output::Shown;
use crate::peers::{Transport, ours, raw_write};
use crate::progress::Progress;
use crate::row::Metric;
use crate::seconds::duration;
use crate::sizes::{Sizes, bytes, within};

/// How long each round and size takes if nothing else is asked for.
const USUAL_TIME: Duration = Duration::from_millis(500);
/// What a round takes with its warm-up, in lengths of the round.
const WITH_WARM_UP: f64 = 1.2;

/// Options that cannot be together: what is wrong, and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// What is measured, with whatever was not said filled in.
#[derive(Clone)]
pub(crate) struct Measure {
    /// Where `tsumugi perf serve` runs.
    pub(crate) host: String,
    /// The sizes of messages; those that are usual for what is measured, if none.
    pub(crate) size: Option<Sizes>,
    /// Messages of a round, if they are counted.
    pub(crate) count: Option<u64>,
    /// How long a round takes, if that was said.
    pub(crate) time: Option<Duration>,
    pub(crate) rounds: u32,
    pub(crate) transport: Transport,
    /// Where bare frames are taken out of the kernel.
    pub(crate) mode: Option<Mode>,
    pub(crate) wait: String,
    pub(crate) send: String,
    pub(crate) receive: String,
    pub(crate) policy: String,
    pub(crate) model: ours::Model,
    pub(crate) protocol: ours::Protocol,
    /// What streams are made of: chosen by what is measured.
    pub(crate) mix: ours::Mix,
    pub(crate) repeat: String,
    pub(crate) integrity: String,
    pub(crate) in_flight: Option<u64>,
    pub(crate) in_place: bool,
    pub(crate) datagram: Option<u16>,
    pub(crate) faults: Option<String>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) timeout: Duration,
    pub(crate) cpu: Option<Cpus>,
    pub(crate) shown: Shown,
}

/// Options of all measurements.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Where `tsumugi perf serve` runs: name or address, and port if it is not 7411.
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// Rounds; medians and spread are over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Give up when nothing arrives for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = duration)]
    timeout: Duration,
    /// Run on these CPUs only, as in `0` or `0,2-3`.
    #[arg(long, value_name = "CPUS")]
    cpu: Option<Cpus>,
    #[command(flatten)]
    shown: Shown,
}

/// How much is measured.
#[derive(Args, Clone)]
pub(crate) struct Amount {
    /// Messages per round, instead of --time or as well; whichever ends first.
    #[arg(long, value_parser = from_one)]
    count: Option<u64>,
    /// Seconds per round and size [default: 0.5; with --count as long as they take].
    #[arg(long, value_name = "SECONDS", value_parser = duration)]
    time: Option<Duration>,
}

/// What carries the messages.
#[derive(Args, Clone)]
pub(crate) struct Carrier {
    /// What carries the messages.
    #[arg(long, value_enum, default_value_t = Transport::Tsumugi)]
    transport: Transport,
    /// Where raw-xdp and raw-write take frames out of the kernel [default: native].
    #[arg(long, value_parser = any_of::<Mode>().try_map(|word| word.parse::<Mode>()))]
    mode: Option<Mode>,
}

/// How Tsumugi's packets travel.
#[derive(Args, Clone)]
#[command(next_help_heading = "Options of Tsumugi")]
pub(crate) struct Paths {
    /// How it waits. `busy-poll` is for NICs that were set for it by `tsumugi up --busy-poll` [default: adaptive].
    #[arg(long, value_parser = any_of::<Wait>())]
    wait: Option<String>,
    /// How it sends. `packet` and `xsk` need CAP_NET_RAW [default: auto].
    #[arg(long, value_parser = any_of::<SendChoice>())]
    send: Option<String>,
    /// Receive path, on both hosts. `xdp` needs `tsumugi up` there [default: auto].
    #[arg(long, value_parser = any_of::<ReceiveChoice>())]
    receive: Option<String>,
    /// How packets are spread over the NICs that both hosts have on common links [default: adaptive].
    #[arg(long, value_parser = policies())]
    policy: Option<String>,
}

/// How Tsumugi has them arrive.
#[derive(Args, Clone)]
#[command(next_help_heading = "Options of Tsumugi")]
pub(crate) struct Delivery {
    /// How it repeats what was lost [default: selective].
    #[arg(long, value_parser = repeats())]
    repeat: Option<String>,
    /// What tells that a message was altered on its way, on both hosts: a CRC of each packet, or what Ethernet and UDP have
    /// [default: crc32c].
    #[arg(long, value_parser = any_of::<Integrity>())]
    integrity: Option<String>,
    /// Bytes that may be in flight, as in 256K: its receive memory, at least 32K.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    in_flight: Option<u64>,
    /// Longest datagram payload that it sends, as in 1400 or 8K [default: what the NIC's MTU has room for].
    #[arg(long, value_name = "BYTES", value_parser = datagram())]
    datagram: Option<u16>,
    /// Faults to inject on both sides, as in `loss=1%,dup=1%,reorder=5%,seed=7`.
    #[arg(long)]
    faults: Option<String>,
}

/// Where its packets are written.
#[derive(Args, Clone)]
#[command(next_help_heading = "Options of Tsumugi")]
pub(crate) struct Trace {
    /// Write every packet that this side sends and receives in the last round to a pcap file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// How the library is used.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Options of Tsumugi")]
pub(crate) struct Model {
    /// How the library is used [default: channel].
    #[arg(long, value_enum)]
    model: Option<ours::Model>,
}

/// The same of messages, some of which are tagged.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Options of Tsumugi")]
struct Messages {
    #[command(flatten)]
    model: Model,
    /// How tagged messages travel (--model message) [default: auto].
    #[arg(long, value_enum)]
    protocol: Option<ours::Protocol>,
}

/// Options of all exchanges of messages, but for their sizes.
#[derive(Args, Clone)]
struct Exchange {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    carrier: Carrier,
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    delivery: Delivery,
    #[command(flatten)]
    trace: Trace,
}

/// Options of round trips: latency and overhead.
#[derive(Args, Clone)]
pub(crate) struct RoundTrips {
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M`.
    #[arg(long, value_name = "SIZES", default_value = "64")]
    size: Sizes,
    #[command(flatten)]
    exchange: Exchange,
    #[command(flatten)]
    messages: Messages,
}

/// Options of streams, but for their sizes: bandwidth and rate.
#[derive(Args, Clone)]
struct Streams {
    #[command(flatten)]
    exchange: Exchange,
    #[command(flatten)]
    messages: Messages,
    /// Stream from buffers of the library, which it never copies: what a program does that builds its messages there (--model
    /// channel or message).
    #[arg(long, help_heading = "Options of Tsumugi")]
    in_place: bool,
}

/// Options of `perf bandwidth`.
#[derive(Args, Clone)]
pub(crate) struct Bandwidth {
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M`.
    #[arg(long, value_name = "SIZES", default_value = "1M")]
    size: Sizes,
    #[command(flatten)]
    streams: Streams,
}

/// Options of `perf rate`.
#[derive(Args, Clone)]
pub(crate) struct Rate {
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M`.
    #[arg(long, value_name = "SIZES", default_value = "8")]
    size: Sizes,
    #[command(flatten)]
    streams: Streams,
}

/// Options of `perf overlap`.
#[derive(Args, Clone)]
pub(crate) struct Overlap {
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M`.
    #[arg(long, value_name = "SIZES", default_value = "1M")]
    size: Sizes,
    #[command(flatten)]
    exchange: Exchange,
}

/// Options of `perf idle`.
#[derive(Args, Clone)]
pub(crate) struct Idle {
    #[command(flatten)]
    common: Common,
    /// Seconds of waiting per round.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = duration)]
    time: Duration,
    #[command(flatten)]
    carrier: Carrier,
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    trace: Trace,
}

/// Options of `perf models` and `perf azc`, which compare ways to use Tsumugi.
#[derive(Args, Clone)]
pub(crate) struct Ways {
    #[command(flatten)]
    common: Common,
    /// Message sizes: `64`, `8,1K,1M`, or a doubling range `8..1M` [default: as above].
    #[arg(long, value_name = "SIZES")]
    size: Option<Sizes>,
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    delivery: Delivery,
}

/// An option, and whether it was given.
type Given = (&'static str, bool);

impl Paths {
    fn given(&self) -> [Given; 4] {
        let Paths { wait, send, receive, policy } = self;
        let given = [wait, send, receive, policy].map(Option::is_some);
        [("--wait", given[0]), ("--send", given[1]), ("--receive", given[2]), ("--policy", given[3])]
    }
}

impl Delivery {
    fn given(&self) -> [Given; 4] {
        [
            ("--repeat", self.repeat.is_some()),
            ("--integrity", self.integrity.is_some()),
            ("--datagram", self.datagram.is_some()),
            ("--faults", self.faults.is_some()),
        ]
    }
}

impl Measure {
    fn new(common: Common) -> Measure {
        let Common { host, rounds, timeout, cpu, shown } = common;
        Measure {
            host,
            rounds,
            timeout,
            cpu,
            shown,
            size: None,
            count: None,
            time: None,
            transport: Transport::Tsumugi,
            mode: None,
            wait: "adaptive".to_owned(),
            send: "auto".to_owned(),
            receive: "auto".to_owned(),
            policy: "adaptive".to_owned(),
            model: ours::Model::default(),
            protocol: ours::Protocol::default(),
            mix: ours::Mix::default(),
            repeat: "selective".to_owned(),
            integrity: "crc32c".to_owned(),
            in_flight: None,
            in_place: false,
            datagram: None,
            faults: None,
            trace: None,
        }
    }

    /// Time of one round: what was asked for, or as long as the messages that were asked for take.
    pub(super) fn time(&self) -> Duration {
        let unlimited = Duration::from_secs(3600);
        self.time.unwrap_or(if self.count.is_some() { unlimited } else { USUAL_TIME })
    }

    /// What is to be said of it; the sides come when it is measured.
    pub(super) fn measured(&self) -> Conditions {
        let time = self.time.or(self.count.is_none().then_some(USUAL_TIME));
        let time_s = time.map(|time| time.as_secs_f64());
        Conditions { rounds: self.rounds, time_s, count: self.count, ..Conditions::default() }
    }

    /// Begins with so many steps in each round: `what`, as in `3 sizes`. A step takes `times` as long as was asked for.
    pub(super) fn progress(&self, what: &str, steps: usize, times: f64) -> Progress {
        let measured = self.measured();
        let steps = steps as u64 * u64::from(self.rounds);
        let between = if what.is_empty() { "" } else { " × " };
        // How long counted messages take is not known.
        let time_s = measured.time_s.filter(|_| self.count.is_none()).unwrap_or(0.0);
        let expected_s = steps as f64 * times * time_s * WITH_WARM_UP;
        Progress::begin(self.shown, expected_s, &format!("{what}{between}{}", measured.amount()), steps)
    }

    fn with_amount(self, amount: &Amount) -> Measure {
        Measure { count: amount.count, time: amount.time, ..self }
    }

    fn with_carrier(self, carrier: &Carrier) -> Measure {
        Measure { transport: carrier.transport, mode: carrier.mode, ..self }
    }

    fn with_paths(self, paths: Paths) -> Measure {
        Measure {
            wait: paths.wait.unwrap_or(self.wait),
            send: paths.send.unwrap_or(self.send),
            receive: paths.receive.unwrap_or(self.receive),
            policy: paths.policy.unwrap_or(self.policy),
            ..self
        }
    }

    fn with_delivery(self, delivery: Delivery) -> Measure {
        Measure {
            repeat: delivery.repeat.unwrap_or(self.repeat),
            integrity: delivery.integrity.unwrap_or(self.integrity),
            in_flight: delivery.in_flight,
            datagram: delivery.datagram,
            faults: delivery.faults,
            ..self
        }
    }

    /// Refuses what has no effect with the transport.
    fn checked(self, metric: Metric, ours_only: &[Given]) -> Result<Measure, UsageError> {
        let usage = |text: String| Err(UsageError(text));
        let transport = self.transport;
        if !transport.is_frames() && self.mode.is_some() {
            return usage(
                "--mode is a choice of bare frames: it needs --transport raw-xdp or raw-write".into(),
            );
        }
        if !transport.has(metric) {
            return usage(raw_write::ONLY_ROUND_TRIPS.into());
        }
        if transport == Transport::Tsumugi {
            return Ok(self);
        }
        let name = transport.into_str();
        if let Some((option, _)) = ours_only.iter().find(|(_, is_given)| *is_given) {
            return usage(format!(
                "{option} has no effect with --transport {name}: it is an option of Tsumugi, and needs --transport tsumugi"
            ));
        }
        let is_stream = matches!(metric, Metric::Bandwidth | Metric::Rate);
        if self.in_flight.is_some() && (!is_stream || transport == Transport::RawWrite) {
            return usage(format!(
                "--in-flight has no effect here: with --transport {name} one message at a time is in flight, but in `tsumugi perf \
                 bandwidth` and `rate`"
            ));
        }
        Ok(self)
    }
}

impl Exchange {
    fn measure(
        self,
        metric: Metric,
        size: Sizes,
        messages: Messages,
        in_place: bool,
    ) -> Result<Measure, UsageError> {
        let Exchange { common, amount, carrier, paths, delivery, trace: Trace { trace } } = self;
        let Messages { model: Model { model }, protocol } = messages;
        let given = [
            ("--model", model.is_some()),
            ("--protocol", protocol.is_some()),
            ("--in-place", in_place),
            ("--trace", trace.is_some()),
        ];
        let given = [&paths.given()[..], &delivery.given(), &given].concat();
        let measure = Measure {
            size: Some(size),
            model: model.unwrap_or_default(),
            protocol: protocol.unwrap_or_default(),
            in_place,
            trace,
            ..Measure::new(common)
        };
        let measure = measure.with_amount(&amount).with_carrier(&carrier).with_paths(paths);
        measure.with_delivery(delivery).checked(metric, &given)
    }
}

impl RoundTrips {
    pub(super) fn measure(self, metric: Metric) -> Result<Measure, UsageError> {
        self.exchange.measure(metric, self.size, self.messages, false)
    }
}

impl Streams {
    fn measure(self, metric: Metric, size: Sizes) -> Result<Measure, UsageError> {
        self.exchange.measure(metric, size, self.messages, self.in_place)
    }
}

impl Bandwidth {
    pub(super) fn measure(self) -> Result<Measure, UsageError> {
        self.streams.measure(Metric::Bandwidth, self.size)
    }
}

impl Rate {
    pub(super) fn measure(self) -> Result<Measure, UsageError> {
        self.streams.measure(Metric::Rate, self.size)
    }
}

impl Overlap {
    pub(super) fn measure(self) -> Result<Measure, UsageError> {
        self.exchange.measure(Metric::Overlap, self.size, Messages::default(), false)
    }
}

impl Idle {
    pub(super) fn measure(self) -> Result<Measure, UsageError> {
        let Idle { common, time, carrier, paths, model, trace } = self;
        let given = [("--model", model.model.is_some()), ("--trace", trace.trace.is_some())];
        let given = [&paths.given()[..], &given].concat();
        let measure = Measure {
            time: Some(time),
            model: model.model.unwrap_or_default(),
            trace: trace.trace,
            ..Measure::new(common)
        };
        measure.with_carrier(&carrier).with_paths(paths).checked(Metric::Idle, &given)
    }
}

impl Ways {
    pub(super) fn measure(self) -> Measure {
        let Ways { common, size, amount, paths, delivery } = self;
        let measure = Measure { size, ..Measure::new(common) };
        measure.with_amount(&amount).with_paths(paths).with_delivery(delivery)
    }
}

/// The length of a datagram that the library takes; what the NIC takes is for it to say.
fn datagram() -> impl Fn(&str) -> Result<u16, String> + Clone {
    within("a datagram", DATAGRAM_BYTES_MIN as u64..=u64::from(u16::MAX))
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
