//! The row format that every measurement of this command prints: a contract, scripts are written against it.

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::conditions::Conditions;
use crate::ratio::Better;

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// From sending a message to having received its echo.
    #[default]
    RoundTrip,
    /// Payload bits per second in one direction.
    Bandwidth,
    /// Messages per second in one direction, sent one by one by a single thread.
    Rate,
    /// CPU time of sending plus receiving one message (LogP's o_s + o_r).
    Overhead,
    /// Share of a core that an endpoint costs while nothing arrives.
    Idle,
    /// Share of a message's transfer that is hidden behind a computation of the receiver.
    Overlap,
}

impl Metric {
    /// Which values are better.
    pub fn better(self) -> Better {
        match self {
            Metric::RoundTrip | Metric::Overhead | Metric::Idle => Better::Lower,
            Metric::Bandwidth | Metric::Rate | Metric::Overlap => Better::Higher,
        }
    }
}

/// One measurement. Keys that do not apply are absent, never null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// `tsumugi`, `tcp-block`, `tcp-spin`, `udp`, `raw-xdp` or `raw-write`.
    pub transport: String,
    /// Tsumugi's send path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<String>,
    /// Tsumugi's receive path: `xdp` or `socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<String>,
    /// Where `raw-xdp` and `raw-write` take frames out of the kernel: `native` or `generic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How Tsumugi waits: `spin`, `adaptive` or `block`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// The programming model that Tsumugi was used by, if not `channel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How its tagged messages travelled, if not `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Whether each message of a stream left when the one before was answered; absent in JSON if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_by_one: bool,
    /// What was measured.
    pub metric: Metric,
    /// Payload bytes of one message; 0, and absent in JSON, where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub size_bytes: u64,
    /// The shortest sample of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<f64>,
    /// Median over the rounds of each round's median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// Median over the rounds of each round's 99th percentile; absent where a round has fewer than 100 samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// Median over the rounds of each round's 99.9th percentile; absent where a round has fewer than 1000 samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
    /// The longest sample of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<f64>,
    /// CPU time of sending one message: the sender's part of `overhead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_ns: Option<f64>,
    /// CPU time of receiving one message: the receiver's part of `overhead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ns: Option<f64>,
    /// Payload, in 10⁹ bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbit_s: Option<f64>,
    /// Messages (or round trips) per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// CPU time of both processes per KiB of payload, of messages of 1 KiB and more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_kib: Option<f64>,
    /// CPU time of both processes per message, of shorter ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_message: Option<f64>,
    /// CPU time of the waiting process divided by the time it waited: 0.01 is 1 % of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// Share of the transfer that the receiver's computation hid, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// From asking for a message to having it, when the receiver does nothing but wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<f64>,
    /// How long the receiver computed without calling the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_ns: Option<f64>,
    /// From asking for a message to having it and having computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both_ns: Option<f64>,
    /// In a comparison: this row's value divided by that of Tsumugi with the spinning wait (with `program`: by
    /// that without the program), median over the rounds of the ratio within a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Which ratios are better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// In a comparison: the test that it belongs to, `main`, `faults`, `overlap`, `coexistence`, `idle`, `pairs`,
    /// `writes`, `long` or `curve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// In a comparison: the row's value in each round, in the unit of its metric. Ratios within a round are made of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
    /// How many rounds the medians are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// (largest − smallest) / median of the rounds' values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// How Tsumugi repeats what was lost, when that is not its default: `go-back-n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// What tells that a message was altered, when that is not Tsumugi's default: `wire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// The faults injected on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<String>,
    /// The peer's setting that was best, such as `write=256K`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Payload bytes that a transport without repetition lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_bytes: Option<u64>,
    /// In a comparison: the NIC's offloads, `on` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads: Option<String>,
    /// In a comparison: the largest IP packet of the NICs, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// In a comparison of TCP with itself: the XDP program on its NICs, `absent`, `idle` or `busy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// In a comparison: which of several pairs that ran at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<u32>,
    /// The paths that the last round's packets took, where there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathRow>,
}

/// What the sending side counted of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathRow {
    /// The server's address on it.
    pub address: String,
    /// Whether it was used in the end, and not silent.
    pub usable: bool,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets found lost.
    pub lost: u64,
    /// Smoothed round trip, ns.
    pub srtt_ns: u64,
}

impl Row {
    /// The one figure the row stands for, in the unit of its metric.
    pub fn value(&self) -> Option<f64> {
        match self.metric {
            Metric::RoundTrip | Metric::Overhead => self.p50_ns,
            Metric::Bandwidth => self.gbit_s,
            Metric::Rate => self.per_s,
            Metric::Idle => self.cpu_share,
            Metric::Overlap => self.overlap,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Six decimals are enough for every unit used here, and keep the JSON readable.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// What `perf … --json` prints on stdout, and nothing else there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Output {
    /// The figures.
    pub rows: Vec<Row>,
    /// What was measured.
    #[serde(default)]
    pub measured: Conditions,
    /// Where.
    pub machine: Machine,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_contract() {
        let row = Row {
            transport: "tsumugi".into(),
            send: Some("udp".into()),
            receive: Some("socket".into()),
            wait: Some("spin".into()),
            metric: Metric::RoundTrip,
            size_bytes: 64,
            p50_ns: Some(4100.0),
            p99_ns: Some(5000.5),
            ratio: Some(1.0),
            rounds: Some(5),
            spread: Some(0.02),
            ..Row::default()
        };
        let json = serde_json::to_value(&row).expect("a row is JSON");
        let expected = serde_json::json!({
            "transport": "tsumugi", "send": "udp", "receive": "socket", "wait": "spin",
            "metric": "round_trip", "size_bytes": 64, "p50_ns": 4100.0, "p99_ns": 5000.5,
            "ratio": 1.0, "rounds": 5, "spread": 0.02
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn keys_that_do_not_apply_are_left_out() {
        let row = Row {
            transport: "tcp-spin".into(),
            metric: Metric::Bandwidth,
            size_bytes: 1 << 20,
            gbit_s: Some(24.0),
            per_s: Some(2861.0),
            ..Row::default()
        };
        let json = serde_json::to_value(&row).expect("a row is JSON");
        let keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys.len(), 5, "{keys:?}");
        assert!(!json.to_string().contains("null"));
    }

    #[test]
    fn rows_read_back() {
        let row = Row { transport: "udp".into(), metric: Metric::Rate, per_s: Some(1.5e6), ..Row::default() };
        let text = serde_json::to_string(&row).expect("a row is JSON");
        assert_eq!(serde_json::from_str::<Row>(&text).expect("the same row"), row);
    }

    #[test]
    fn metrics_are_named_as_in_the_contract() {
        let names: Vec<String> =
            [Metric::RoundTrip, Metric::Bandwidth, Metric::Rate, Metric::Overhead, Metric::Idle]
                .iter()
                .map(|metric| serde_json::to_string(metric).expect("a name"))
                .collect();
        assert_eq!(names, ["\"round_trip\"", "\"bandwidth\"", "\"rate\"", "\"overhead\"", "\"idle\""]);
    }
}
